//! What the API server does not take.

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
