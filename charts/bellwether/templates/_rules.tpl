{{- /*
What the operator may do in the namespaces that it works in: exactly what it does. It deletes only pods (one
at a time), configuration revisions that no pod uses any more, volume claims and NetworkPolicies that the spec does not want
any more, and what it projected an election to;
everything else goes with its owner.
*/ -}}
{{- define "bellwether.rules" -}}
- apiGroups: [zookeeper.bellwether.dev]
  resources: [zookeeperensembles, leaderelections]
  verbs: [get, list, watch]
- apiGroups: [zookeeper.bellwether.dev]
  resources: [zookeeperensembles/status, leaderelections/status]
  verbs: [get, patch, update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
# Those with the certificates of members. The operator writes them as a whole, and cannot read them.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, update]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
# Those of members. One is deleted where `spec.network.policy` is `Disabled`.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# Why a StatefulSet cannot create a pod is told by events only.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- if .Values.rbac.secrets }}
# Those that a LeaderElection names, by name: they cannot be listed or watched.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end }}
{{- if .Values.rbac.certManager }}
# What cert-manager is asked for, by `spec.tls.issuerRef`.
- apiGroups: [cert-manager.io]
  resources: [certificates]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if .Values.rbac.projections }}
# What elections are projected to. Only objects that the operator made are changed and deleted.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch, create, update, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [update, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, update, delete]
# A label on the pods of candidates.
- apiGroups: [""]
  resources: [pods]
  verbs: [patch]
{{- end }}
{{- if and .Values.bridges.enabled (not .Values.rbac.projections) }}
# The Leases to which elections move.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update]
{{- end }}
{{- if .Values.rbac.rollouts }}
# The workloads whose pods are replaced with the leader's last.
- apiGroups: [apps]
  resources: [daemonsets]
  verbs: [get, list, watch]
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [list]
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
{{- end }}
{{- end -}}

{{- /* What the operator may do with what is in no namespace. */ -}}
{{- define "bellwether.clusterRules" -}}
{{- if .Values.rbac.storageClasses }}
# Whether volumes can grow.
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get]
{{- end }}
{{- if .Values.handover.onCordon }}
# Which nodes are cordoned.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
{{- end }}
{{- end -}}

{{- /* The operator, as a subject of bindings. */ -}}
{{- define "bellwether.subjects" -}}
- kind: ServiceAccount
  name: {{ include "bellwether.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
