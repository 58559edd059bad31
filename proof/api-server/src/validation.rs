//! What the API server does not take.

use bellwether_ensemble::quantity::bytes;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

use super::kind::Kind;
use super::refusal::Flaw;

/// What is wrong with an object, or with a change of it.
pub(crate) fn check(kind: Kind, after: &Value, before: Option<&Value>) -> Vec<Flaw> {
    let Some(before) = before else {
        return Vec::new();
    };
    match kind {
        Kind::STATEFUL_SET => stateful_set(before, after),
        Kind::CLAIM => claim(before, after),
        Kind::CONTROLLER_REVISION if before["data"] != after["data"] => {
            vec![Flaw::invalid("data", "Invalid value: field is immutable")]
        }
        Kind::CONFIG_MAP | Kind::SECRET => immutable_data(before, after),
        _ => Vec::new(),
    }
}

/// The fields of a StatefulSet's spec that may change.
const CHANGEABLE: &[&str] = &[
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
    "revisionHistoryLimit",
];

fn stateful_set(before: &Value, after: &Value) -> Vec<Flaw> {
    let (Some(before), Some(after)) = (before["spec"].as_object(), after["spec"].as_object())
    else {
        return Vec::new();
    };
    let mut names = before.keys().chain(after.keys());
    let changed = names
        .any(|name| !CHANGEABLE.contains(&name.as_str()) && before.get(name) != after.get(name));
    if !changed {
        return Vec::new();
    }
    let told = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    vec![Flaw::forbidden("spec", told)]
}

fn immutable_data(before: &Value, after: &Value) -> Vec<Flaw> {
    if before["immutable"] != Value::Bool(true) {
        return Vec::new();
    }
    let mut flaws = Vec::new();
    if after["immutable"] != Value::Bool(true) {
        let told = "field is immutable when `immutable` is set";
        flaws.push(Flaw::forbidden("immutable", told));
    }
    for field in ["data", "binaryData"] {
        if before[field] != after[field] {
            let told = "field is immutable when `immutable` is set";
            flaws.push(Flaw::forbidden(field, told));
        }
    }
    flaws
}

/// How many bytes a claim asks for.
pub(crate) fn requested(claim: &Value) -> Option<u64> {
    size(&claim["spec"]["resources"]["requests"]["storage"])
}

fn size(storage: &Value) -> Option<u64> {
    bytes(&Quantity(storage.as_str()?.to_owned()))
}

fn claim(before: &Value, after: &Value) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let bound = before["status"]["phase"] == "Bound";
    let without_what_may_change = |claim: &Value| {
        let mut spec = claim["spec"].clone();
        if bound {
            spec["resources"]["requests"]["storage"] = Value::Null;
        }
        // It is set once.
        if before["spec"]["volumeName"].is_null() {
            spec["volumeName"] = Value::Null;
        }
        spec
    };
    if without_what_may_change(before) != without_what_may_change(after) {
        let told = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        flaws.push(Flaw::forbidden("spec", told));
    }
    let (old, new) = (requested(before), requested(after));
    let capacity = size(&before["status"]["capacity"]["storage"]);
    if bound && new < old && new <= capacity {
        let told = "field can not be less than status.capacity";
        flaws.push(Flaw::forbidden("spec.resources.requests.storage", told));
    }
    flaws
}

/// Whether the spec of a pod changes in more than may change.
pub(crate) fn pod(before: &Value, after: &Value) -> Option<Flaw> {
    let without_what_may_change = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for list in ["containers", "initContainers"] {
            let items = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in items.into_iter().flatten() {
                container["image"] = Value::Null;
            }
        }
        for field in ["activeDeadlineSeconds", "tolerations"] {
            spec[field] = Value::Null;
        }
        spec
    };
    let told = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    let changed = without_what_may_change(before) != without_what_may_change(after);
    changed.then(|| Flaw::forbidden("spec", told))
}
