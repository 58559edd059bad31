//! The fields of a spec for its members' pods, checked as the API server checks a pod
//! (`pkg/apis/core/validation` of Kubernetes). With a pod template that it rejects, a member that restarts
//! would not get a new pod.

use std::collections::BTreeMap;

use bellwether_api::ensemble::{Pod, PodUser, USERS};
use bellwether_api::labels;
use k8s_openapi::api::core::v1::{LocalObjectReference, Toleration};

use super::names::{self, is_dns_subdomain, is_key, is_label_value};
use super::{Problems, affinity, resources};

/// The most characters of all annotations of an object together.
const ANNOTATIONS: usize = 256 * 1024;
/// The largest id of a user or a group.
const MAX_ID: i64 = i32::MAX as i64;
/// The annotation by which a ReplicaSet's controller chooses the pod to delete first; the API server validates
/// it in any pod.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The annotation of a pod that the kubelet runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Checks all that is said of the pods of an ensemble.
pub(super) fn check(ensemble: &str, pod: &Pod, heap_mib: u32, problems: &mut Problems) {
    let field = "spec.pod.labels";
    for key in pod.labels.keys() {
        if key.starts_with("app.kubernetes.io/") || key.contains("bellwether.dev/") {
            problems.add(
                field,
                format!("{key}: the operator selects pods by this label"),
            );
        }
    }
    labels_of(field, &pod.labels, problems);
    annotations(&pod.annotations, problems);
    labels_of("spec.pod.nodeSelector", &pod.node_selector, problems);
    for (index, toleration) in pod.tolerations.iter().enumerate() {
        tolerate(index, toleration, problems);
    }
    if let Some(all) = &pod.resources {
        resources::check(all, heap_mib, problems);
    }
    if let Some(wanted) = &pod.affinity {
        let mut of_pod = pod.labels.clone();
        of_pod.extend(labels::selector(ensemble));
        affinity::check(wanted, &of_pod, problems);
    }
    if let Some(user) = &pod.user {
        let PodUser {
            id,
            group,
            assigned,
        } = *user;
        if assigned && (id.is_some() || group.is_some()) {
            problems.add("spec.pod.user", USERS);
        }
        for (field, id, least) in [("id", id, 1), ("group", group, 0)] {
            if let Some(id) = id.filter(|id| !(least..=MAX_ID).contains(id)) {
                let problem = format!("{id} is outside {least} to {MAX_ID}");
                problems.add(format!("spec.pod.user.{field}"), problem);
            }
        }
    }
    if let Some(name) = pod
        .priority_class_name
        .as_deref()
        .filter(|name| !is_dns_subdomain(name))
    {
        let problem = format!(
            "{name:?} can be the name of no PriorityClass: {}",
            names::NO_NAME
        );
        problems.add("spec.pod.priorityClassName", problem);
    }
}

/// Checks labels that an object has or is selected by.
pub(super) fn labels_of(field: &str, labels: &BTreeMap<String, String>, problems: &mut Problems) {
    for (key, value) in labels {
        if !is_key(key) {
            problems.add(field, format!("{key:?}: {}", names::NO_KEY));
        }
        if !is_label_value(value) {
            problems.add(field, format!("{value:?} of {key}: {}", names::NO_VALUE));
        }
    }
}

fn annotations(annotations: &BTreeMap<String, String>, problems: &mut Problems) {
    let field = "spec.pod.annotations";
    for (key, value) in annotations {
        if key.contains("bellwether.dev/") {
            problems.add(
                field,
                format!("{key}: this annotation belongs to the operator"),
            );
        }
        if !is_key(&key.to_lowercase()) {
            problems.add(field, format!("{key:?}: {}", names::NO_KEY));
        }
        if key == DELETION_COST && !is_deletion_cost(value) {
            let what = "use a whole number of 32 bits without '+' and leading zeros";
            problems.add(field, format!("{value:?} of {key}: {what}"));
        }
        if key == MIRROR {
            let what = "only a kubelet sets it, on a pod that it runs from a file";
            problems.add(field, format!("{key}: {what}: leave it out"));
        }
    }
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.len()).sum();
    if size > ANNOTATIONS {
        let problem = format!("{size} characters in all: at most {ANNOTATIONS} may be");
        problems.add(field, problem);
    }
}

fn is_deletion_cost(value: &str) -> bool {
    let first = value == "0" || value.starts_with(|c: char| c == '-' || ('1'..='9').contains(&c));
    first && value.parse::<i32>().is_ok()
}

fn tolerate(index: usize, toleration: &Toleration, problems: &mut Problems) {
    let mut add = |field: &str, problem: String| {
        problems.add(format!("spec.pod.tolerations[{index}].{field}"), problem);
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (key, value) = (text(&toleration.key), text(&toleration.value));
    let (operator, effect) = (text(&toleration.operator), text(&toleration.effect));
    if !key.is_empty() && !is_key(&key) {
        add("key", format!("{key:?}: {}", names::NO_KEY));
    }
    match operator.as_str() {
        "" | "Equal" if key.is_empty() => add(
            "operator",
            "without a key, which means every taint, the operator is Exists".to_owned(),
        ),
        "" | "Equal" if !is_label_value(&value) => {
            add("value", format!("{value:?}: {}", names::NO_VALUE));
        }
        "Exists" if !value.is_empty() => add(
            "value",
            format!("{value:?}: with the operator Exists there is no value"),
        ),
        "" | "Equal" | "Exists" => {}
        other => add("operator", format!("{other:?}: use Exists or Equal")),
    }
    let effects = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !effects.contains(&effect.as_str()) {
        let problem = format!("{effect:?}: use NoSchedule, PreferNoSchedule or NoExecute");
        add("effect", problem);
    } else if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        let problem = "with tolerationSeconds the effect is NoExecute: no other one has a time";
        add("effect", problem.to_owned());
    }
}

/// Checks the names of Secrets: a Secret with an invalid name cannot exist, and server-side apply rejects two
/// items of one name.
pub(super) fn pull_secrets(secrets: &[LocalObjectReference], problems: &mut Problems) {
    for (index, secret) in secrets.iter().enumerate() {
        let field = format!("spec.imagePullSecrets[{index}].name");
        let name = &secret.name;
        if !is_dns_subdomain(name) {
            let problem = format!("{name:?} can be the name of no Secret: {}", names::NO_NAME);
            problems.add(field, problem);
        } else if secrets[..index].iter().any(|other| other.name == *name) {
            problems.add(field, format!("{name:?} is named twice: name it once"));
        }
    }
}
