{{- define "bellwether.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "bellwether.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "bellwether.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "bellwether.selectorLabels" -}}
app.kubernetes.io/name: {{ include "bellwether.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "bellwether.ownLabels" -}}
{{ include "bellwether.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- /* Of every object. What selectors are made of cannot be replaced. */ -}}
{{- define "bellwether.labels" -}}
{{- toYaml (merge (dict) (include "bellwether.ownLabels" . | fromYaml) .Values.commonLabels) -}}
{{- end -}}

{{- define "bellwether.podLabels" -}}
{{- toYaml (merge (dict) (include "bellwether.selectorLabels" . | fromYaml) .Values.podLabels .Values.commonLabels) -}}
{{- end -}}

{{- /* Of objects that are in no namespace. Operators of several namespaces may have the same name. */ -}}
{{- define "bellwether.clusterName" -}}
{{- if .Values.watch.namespaces -}}
{{- printf "%s-%s" .Release.Namespace (include "bellwether.fullname" .) -}}
{{- else -}}
{{- include "bellwether.fullname" . -}}
{{- end -}}
{{- end -}}

{{- define "bellwether.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "bellwether.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "bellwether.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* How a monitor asks for the metrics. */ -}}
{{- define "bellwether.metricsEndpoint" -}}
{{- if .Values.secureServing.enabled -}}
port: https
scheme: https
authorization:
  credentials:
    name: {{ include "bellwether.fullname" . }}-metrics-reader
    key: token
tlsConfig:
  {{- if .Values.secureServing.certificateSecret }}
  ca:
    secret:
      name: {{ .Values.secureServing.certificateSecret }}
      key: ca.crt
  serverName: {{ include "bellwether.fullname" . }}-metrics.{{ .Release.Namespace }}.svc
  {{- else }}
  # The token is of use for these metrics only.
  insecureSkipVerify: true
  {{- end }}
{{- else -}}
port: http
{{- end -}}
{{- end -}}
