//! Admission webhooks: those that refuse writes for a time, and those that change objects on their way, the status
//! among them.

use bellwether_api_server::{Admission, Kind, Opinion, Review, Verb};
use serde_json::{Value, json};

use crate::acts::Injection;

/// The kind of this name, of those that webhooks look at.
fn kind_of(name: &str) -> Kind {
    match name {
        "Pod" => Kind::POD,
        "PersistentVolumeClaim" => Kind::CLAIM,
        _ => Kind::STATEFUL_SET,
    }
}

/// The name of the webhook that refuses writes of a kind.
fn refuser(kind: &str) -> String {
    format!("policy.example/{kind}")
}

/// From now on every write of a kind is refused, except those of kubelets and the scheduler, which do not
/// write the object itself.
pub(super) fn refuse(admission: &mut Admission, name: &str, answers: bool) {
    let kind = kind_of(name);
    admission.add_webhook(&refuser(name), move |review| {
        let by_a_node = ["kubelet", "scheduler"].contains(&review.actor);
        if review.kind != kind || !review.subresource.is_empty() || by_a_node {
            return Opinion::Allow;
        }
        if answers {
            Opinion::Deny("not now".to_owned())
        } else {
            Opinion::Fail("context deadline exceeded".to_owned())
        }
    });
}

/// No write of this kind is refused any more.
pub(super) fn allow(admission: &mut Admission, name: &str) {
    admission.remove_webhook(&refuser(name));
}

/// From now on objects of a kind are changed when they are written: pods when they are created, StatefulSets at
/// every write, their pod templates with them.
pub(super) fn change(admission: &mut Admission, name: &str, injection: Injection) {
    let kind = kind_of(name);
    admission.add_webhook("mesh.example", move |review| {
        let writes = match kind {
            Kind::POD => review.verb == Verb::Create,
            _ => review.verb != Verb::Delete,
        };
        if review.kind == kind && review.subresource.is_empty() && writes {
            inject(review, injection);
        }
        Opinion::Allow
    });
}

/// From now on a webhook replaces these fields of every status that the operators write. Such a
/// life has to fail: it shows that the status is judged.
pub(super) fn falsify_status(admission: &mut Admission, fields: Value) {
    admission.add_webhook("falsifier.example", move |review| {
        let by_operator = review.actor.starts_with("operator-");
        if review.kind == Kind::ENSEMBLE && review.subresource == "status" && by_operator {
            for (key, value) in fields.as_object().into_iter().flatten() {
                review.object["status"][key] = value.clone();
            }
        }
        Opinion::Allow
    });
}

fn inject(review: &mut Review<'_>, injection: Injection) {
    let object = &mut *review.object;
    let pod = if review.kind == Kind::POD {
        object
    } else {
        object["metadata"]["labels"]["mesh.example/seen"] = json!("true");
        &mut object["spec"]["template"]
    };
    match injection {
        Injection::Label => pod["metadata"]["labels"]["mesh.example/side"] = json!("server"),
        Injection::Annotation => {
            pod["metadata"]["annotations"]["mesh.example/status"] = json!("injected");
        }
        Injection::Container { first } => {
            if let Some(containers) = pod["spec"]["containers"].as_array_mut() {
                add(containers, first);
            }
        }
    }
}

fn add(containers: &mut Vec<Value>, first: bool) {
    if containers.iter().any(|c| c["name"] == "proxy") {
        return;
    }
    let proxy = json!({ "name": "proxy", "image": "mesh.example/proxy:1" });
    let at = if first { 0 } else { containers.len() };
    containers.insert(at, proxy);
}
