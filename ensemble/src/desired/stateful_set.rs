//! The StatefulSet of the voting members.
//!
//! `OnDelete` and `Parallel`: the StatefulSet controller creates pods, and only the operator's
//! executor deletes them, one at a time and in the order of the plan.

mod inputs;
mod pod;

use bellwether_api::labels;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use super::claims::{ClaimSizes, DATA, LOG};
use super::{
    DesiredObject, ObjectKind, Write, apply, members_service, metadata, short_hash, written,
};
use crate::ids::Voters;
use crate::observation::Revision;
use crate::validate::ValidEnsemble;

use pod::{pod_annotations, pod_labels, pod_spec};

pub use inputs::inputs_hash;

/// Annotation of the pod template: the newcomer that initializes its empty disk.
pub const INITIALIZE: &str = "zookeeper.bellwether.dev/initialize";
/// Annotation of the pod template: the user's request for a restart.
pub const RESTART: &str = "zookeeper.bellwether.dev/restart";
/// The port that `bellwether-member serve` answers probes on.
pub const PROBE_PORT: u16 = 8079;
/// The port that the operator asks the member program on, over mutual TLS.
pub const CONTROL_PORT: u16 = 8078;
/// The name of the container that runs ZooKeeper.
pub const CONTAINER: &str = "zookeeper";
/// The name of the container that runs the member program beside it.
pub const PROBES_CONTAINER: &str = "probes";
/// The name of the init container that prepares the volume.
pub const PREPARE_CONTAINER: &str = "prepare";

/// The user's last request for a restart in a rendered pod template.
pub fn restart_request(template: &Value) -> Option<String> {
    let request = &template["metadata"]["annotations"][RESTART];
    request.as_str().map(str::to_owned)
}

/// The pod annotation that `kubectl rollout restart` writes into the template (kubectl's `polymorphichelpers/objectrestarter.go`).
pub const ROLLOUT_RESTART: &str = "kubectl.kubernetes.io/restartedAt";

/// See [`template_hash_of`].
pub fn template_hash(template: &Value) -> Option<String> {
    let annotations = &template["metadata"]["annotations"];
    template_hash_of(|key| annotations[key].as_str())
}

/// What a pod template is told by that leaves its server list out, from the annotations of the template or of a pod that was
/// made from it: the hash of what the operator rendered, and the last `kubectl rollout restart`. `None` where members change
/// by restarts.
pub fn template_hash_of<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let hash = annotation(labels::TEMPLATE_HASH)?;
    let restart = annotation(ROLLOUT_RESTART);
    Some(restart.map_or_else(|| hash.to_owned(), |at| format!("{hash} {at}")))
}

/// The Secret in a rendered pod template with the certificate that members present to clients.
pub fn client_port_secret(template: &Value) -> Option<String> {
    let mut volumes = template["spec"]["volumes"].as_array().into_iter().flatten();
    let volume = volumes.find(|volume| volume["name"] == pod::CLIENT_PORT_VOLUME)?;
    volume["secret"]["secretName"].as_str().map(str::to_owned)
}

/// Sets only the number of replicas and the retention of volumes; the pod template stays as an earlier operator
/// version rendered it.
pub fn replicas_only(name: &str, replicas: u16) -> DesiredObject {
    let body = json!({
        "spec": {
            "replicas": replicas,
            "persistentVolumeClaimRetentionPolicy": retention(),
        },
    });
    merge(name, body)
}

/// Sets only the list in the pod template of an ensemble whose members change at run time, and the number of replicas; the
/// rest of the template stays as an earlier operator version rendered it.
pub fn list_only(name: &str, voters: &Voters, version: u64, replicas: u16) -> DesiredObject {
    let mut object = replicas_only(name, replicas);
    let annotations = &mut object.body["spec"]["template"]["metadata"]["annotations"];
    name_list(annotations, voters, version);
    object
}

fn name_list(annotations: &mut Value, voters: &Voters, version: u64) {
    annotations[labels::VOTERS] = json!(voters.to_string());
    annotations[labels::LIST_VERSION] = json!(format!("{version:x}"));
}

/// Removes a newcomer that somebody else left in the pod template. A merge removes the annotation whichever
/// manager owns it.
pub fn without_newcomer(name: &str) -> DesiredObject {
    let annotations = json!({ INITIALIZE: null });
    merge(
        name,
        json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } }),
    )
}

/// Takes out of the pod template what an earlier one left there: see [`written::left_over`].
pub fn without_left_over(name: &str, patch: &Value) -> DesiredObject {
    merge(name, patch.clone())
}

fn merge(name: &str, body: Value) -> DesiredObject {
    DesiredObject {
        kind: ObjectKind::StatefulSet,
        name: name.to_owned(),
        body,
        write: Write::Merge,
    }
}

/// Volumes belong to the operator: [`crate::plan::reclaim`] decides about them, and Kubernetes deletes no
/// volume when a person deletes or scales the StatefulSet.
fn retention() -> Value {
    json!({ "whenDeleted": "Retain", "whenScaled": "Retain" })
}

/// The whole StatefulSet. `inputs` is its [`inputs_hash`]; `sizes` are those in the claim templates: the API
/// server rejects any change of them.
pub fn stateful_set(
    ensemble: &ValidEnsemble,
    revision: &Revision,
    inputs: &str,
    replicas: u16,
    sizes: ClaimSizes<'_>,
) -> DesiredObject {
    let (mut metadata, body) = parts(ensemble, revision, inputs, replicas, sizes);
    written::remember(&mut metadata, &body);
    apply(
        ObjectKind::StatefulSet,
        ensemble.name.clone(),
        metadata,
        body,
    )
}

/// The whole StatefulSet with the pod template that an earlier operator version wrote, to undo somebody else's
/// change. Members that run that template do not restart. The list of an ensemble whose members change at run time is that of
/// the whole: the earlier template may have an older one.
pub fn put_back(
    ensemble: &ValidEnsemble,
    template: &Value,
    rendered_by: &str,
    whole: DesiredObject,
) -> DesiredObject {
    let mut body = whole.body;
    let mut metadata = body["metadata"].take();
    let now = std::mem::replace(&mut body["spec"]["template"], template.clone());
    if template_hash(template).is_some() {
        let annotations = &mut body["spec"]["template"]["metadata"]["annotations"];
        for list in [labels::VOTERS, labels::LIST_VERSION] {
            annotations[list] = now["metadata"]["annotations"][list].clone();
        }
    }
    metadata["annotations"][labels::RENDERED_BY] = json!(rendered_by);
    if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations.remove(labels::APPLIED_HASH);
    }
    written::remember(&mut metadata, &body);
    apply(
        ObjectKind::StatefulSet,
        ensemble.name.clone(),
        metadata,
        body,
    )
}

/// The name of the configuration revision in a pod template.
pub fn revision_name(template: &Value) -> Option<&str> {
    template["metadata"]["annotations"][labels::CONFIG_REVISION].as_str()
}

/// The metadata of the StatefulSet, and the rest of it: that of observers differs in a few fields.
pub(super) fn parts(
    ensemble: &ValidEnsemble,
    revision: &Revision,
    inputs: &str,
    replicas: u16,
    sizes: ClaimSizes<'_>,
) -> (Value, Value) {
    let mut meta = metadata(ensemble, &ensemble.name);
    meta["annotations"] = json!({
        labels::INPUTS_HASH: inputs,
        labels::RENDERED_BY: ensemble.context.version,
    });
    let class = ensemble.storage_class.as_ref();
    let mut claims = vec![claim_template(ensemble, DATA, sizes.data, class)];
    if let (Some(log), Some(size)) = (&ensemble.transaction_log, sizes.log) {
        claims.push(claim_template(ensemble, LOG, size, log.class.as_ref()));
    }
    let mut body = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "spec": {
            "replicas": replicas,
            "serviceName": members_service(&ensemble.name),
            "podManagementPolicy": "Parallel",
            "updateStrategy": { "type": "OnDelete" },
            "selector": { "matchLabels": labels::selector(&ensemble.name) },
            "persistentVolumeClaimRetentionPolicy": retention(),
            "volumeClaimTemplates": claims,
            "template": {
                "metadata": {
                    "labels": pod_labels(ensemble),
                    "annotations": pod_annotations(ensemble, revision),
                },
            },
        },
    });
    // The macro copies its arguments; the large pod spec is moved in instead.
    body["spec"]["template"]["spec"] = pod_spec(ensemble, revision);
    if let Some(version) = revision.version {
        let template = &mut body["spec"]["template"];
        let hash = short_hash(template);
        let annotations = &mut template["metadata"]["annotations"];
        annotations[labels::TEMPLATE_HASH] = json!(hash);
        name_list(annotations, &revision.voters, version);
    }
    (meta, body)
}

fn claim_template(
    ensemble: &ValidEnsemble,
    name: &str,
    size: &Quantity,
    class: Option<&String>,
) -> Value {
    let mut claim = json!({
        "metadata": { "name": name, "labels": labels::selector(&ensemble.name) },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": size } },
        },
    });
    if let Some(class) = class {
        claim["spec"]["storageClassName"] = json!(class);
    }
    claim
}

#[cfg(test)]
mod volume_tests;

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod keeps the annotations of its template, so a template that asks for another restart is told from that of its pods,
    /// whatever their lists are.
    #[test]
    fn another_rollout_restart_is_another_template_at_run_time() {
        let template = |annotations: Value| json!({ "metadata": { "annotations": annotations } });
        let made = json!({ labels::TEMPLATE_HASH: "abc", labels::VOTERS: "1,2,3" });
        let (mut listed, mut restarted) = (made.clone(), made.clone());
        listed[labels::VOTERS] = json!("1,2,3,4,5");
        restarted[ROLLOUT_RESTART] = json!("2026-01-01T00:00:00Z");
        let hash = |annotations: &Value| template_hash(&template(annotations.clone()));
        assert_eq!(hash(&made), hash(&listed));
        assert_ne!(hash(&made), hash(&restarted));
        assert_eq!(hash(&json!({ ROLLOUT_RESTART: "now" })), None);
    }
}
