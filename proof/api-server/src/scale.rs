//! The scale subresource.

use bytes::Bytes;
use serde_json::{Value, json};

use super::kind::Kind;
use super::merge::merge_patch;
use super::object::{Object, written};
use super::refusal::Refusal;
use super::request::Action;
use super::store::{Store, Verb};
use super::write::Target;

/// The scale of an object.
pub(crate) fn of(kind: Kind, object: &Object) -> Value {
    let selector = match kind {
        Kind::ENSEMBLE => object["status"]["selector"].clone(),
        _ => {
            let labels = object["spec"]["selector"]["matchLabels"].as_object();
            let pairs = labels.into_iter().flatten();
            let pairs =
                pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
            pairs.collect::<Vec<_>>().join(",").into()
        }
    };
    let metadata = &object["metadata"];
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": { "replicas": object["spec"]["replicas"].as_i64().unwrap_or(0) },
        "status": {
            "replicas": object["status"]["replicas"].as_i64().unwrap_or(0),
            "selector": selector,
        },
    })
}

/// Changes the replicas of an object.
pub(crate) fn change(
    store: &mut Store,
    target: &Target<'_>,
    action: Action,
    given: &Value,
) -> Result<(u16, Bytes), Refusal> {
    let target = Target {
        verb: if action == Action::Update {
            Verb::Update
        } else {
            Verb::Patch
        },
        ..*target
    };
    let kind = target.kind;
    let before = store.existing(&target)?;
    let mut scale = of(kind, &before);
    merge_patch(&mut scale, given);
    let object = store.update_as(&target, |object| {
        for key in ["uid", "resourceVersion"] {
            object["metadata"][key] = scale["metadata"][key].clone();
        }
        object["spec"]["replicas"] = scale["spec"]["replicas"].clone();
        Ok(())
    })?;
    Ok((200, written(&of(kind, &object))))
}
