//! The Kubernetes objects of an ensemble, as they should be.

pub mod certificate;
pub mod claims;
pub mod config;
pub mod discovery;
pub mod network;
pub mod observers;
pub mod services;
pub mod stateful_set;
pub mod written;

use std::collections::BTreeMap;

use bellwether_api::labels;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::ids::ServerId;
use crate::observation::{Acceptance, BootstrapPermission};
use crate::quantity;
use crate::validate::ValidEnsemble;

/// The kinds that the operator writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// `v1` ConfigMap.
    ConfigMap,
    /// `v1` Service.
    Service,
    /// `policy/v1` PodDisruptionBudget.
    PodDisruptionBudget,
    /// `v1` PersistentVolumeClaim.
    PersistentVolumeClaim,
    /// `apps/v1` StatefulSet.
    StatefulSet,
    /// `networking.k8s.io/v1` NetworkPolicy.
    NetworkPolicy,
    /// `cert-manager.io/v1` Certificate.
    Certificate,
}

/// How an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Server-side apply of the whole.
    Apply,
    /// A merge patch of what is given; the rest stays.
    Merge,
}

/// One object as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredObject {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name; the namespace is the ensemble's.
    pub name: String,
    /// The whole object, or for [`Write::Merge`] the patch.
    pub body: Value,
    /// How to write it.
    pub write: Write,
}

/// The name of the headless Service, which gives every member its DNS name.
pub fn members_service(ensemble: &str) -> String {
    format!("{ensemble}-members")
}

/// The name of the ConfigMap with the permission to start with an empty disk.
pub fn bootstrap_config_map(ensemble: &str) -> String {
    format!("{ensemble}-bootstrap")
}

/// The name of the pod with this ordinal.
pub fn pod_name(ensemble: &str, ordinal: u16) -> String {
    format!("{ensemble}-{ordinal}")
}

/// The first ten hexadecimal digits of the SHA-256 of a value as JSON; objects hash by sorted keys.
pub fn short_hash(value: &impl Serialize) -> String {
    // Serialization fails only for maps whose keys are not strings, and callers pass no such map.
    let json = serde_json::to_vec(value).unwrap_or_default();
    let digest = Sha256::digest(json);
    let number = digest.iter().take(5).fold(0, |n, b| n << 8 | u64::from(*b));
    format!("{number:010x}")
}

/// Metadata of an owned object: labels and the owner, so that deletion follows the ensemble's.
pub(crate) fn metadata(ensemble: &ValidEnsemble, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": ensemble.namespace,
        "labels": labels::selector(&ensemble.name),
        "ownerReferences": [{
            "apiVersion": format!("{}/{}", bellwether_api::GROUP, bellwether_api::VERSION),
            "kind": "ZooKeeperEnsemble",
            "name": ensemble.name,
            "uid": ensemble.uid,
            "controller": true,
        }],
    })
}

/// Completes an object for server-side apply: adds its metadata, and the hash of the whole as an
/// annotation.
pub(crate) fn apply(
    kind: ObjectKind,
    name: String,
    metadata: Value,
    mut body: Value,
) -> DesiredObject {
    body["metadata"] = metadata;
    let hash = short_hash(&body);
    body["metadata"]["annotations"][labels::APPLIED_HASH] = Value::String(hash);
    DesiredObject {
        kind,
        name,
        body,
        write: Write::Apply,
    }
}

/// The ConfigMap with the permission to start with an empty disk.
pub fn bootstrap(ensemble: &ValidEnsemble, permission: &BootstrapPermission) -> DesiredObject {
    let name = bootstrap_config_map(&ensemble.name);
    let initialize = permission
        .initialize
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let until = permission
        .until
        .map(|t| t.as_second().to_string())
        .unwrap_or_default();
    let mut body = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": { "initialize": initialize, "until": until },
    });
    if !permission.epochs.is_empty() {
        let all = permission.epochs.iter();
        let lines: Vec<String> = all.map(|(id, epoch)| format!("{id}={epoch}\n")).collect();
        body["data"]["epochs"] = json!(lines.concat());
    }
    if let Some(a) = &permission.acceptance {
        let text = json!({
            "token": a.token,
            "at": a.at.as_second(),
            "by": a.by,
            "members": a.members.to_string(),
            "lost": a.lost.to_string(),
            "over": a.over,
        });
        body["data"]["accepted"] = json!(text.to_string());
    }
    let metadata = metadata(ensemble, &name);
    apply(ObjectKind::ConfigMap, name, metadata, body)
}

/// Reads the bootstrap ConfigMap, whose values `get` returns by key.
pub fn parse_bootstrap<'a>(get: impl Fn(&str) -> Option<&'a str>) -> BootstrapPermission {
    let until = get("until").and_then(|seconds| seconds.parse().ok());
    BootstrapPermission {
        initialize: get("initialize").and_then(|voters| voters.parse().ok()),
        until: until.and_then(|seconds| Timestamp::from_second(seconds).ok()),
        epochs: get("epochs").map(parse_epochs).unwrap_or_default(),
        acceptance: get("accepted").and_then(parse_acceptance),
    }
}

/// Reads the epochs of the bootstrap ConfigMap: a server id and an epoch in each line, such as `2=7`.
/// Malformed lines are ignored; the next observation of that server records its epoch again.
fn parse_epochs(text: &str) -> BTreeMap<ServerId, u64> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .filter_map(|(id, epoch)| Some((ServerId(id.parse().ok()?), epoch.parse().ok()?)))
        .collect()
}

/// Reads the accepted loss of the bootstrap ConfigMap; `None` if the text is malformed: then no loss is
/// accepted.
fn parse_acceptance(text: &str) -> Option<Acceptance> {
    let value: Value = serde_json::from_str(text).ok()?;
    let word = |key: &str| value[key].as_str();
    Some(Acceptance {
        token: word("token")?.to_owned(),
        at: Timestamp::from_second(value["at"].as_i64()?).ok()?,
        by: word("by").map(str::to_owned),
        members: word("members")?.parse().ok()?,
        lost: word("lost")?.parse().ok()?,
        over: value["over"].as_bool()?,
    })
}

/// Whether `desired` has to be written, given what is there.
///
/// It has to if the object that was last applied has another hash, or if a field that it sets has another value
/// by now. Fields that others added do not matter.
pub fn needs_write(desired: &DesiredObject, live: Option<&Value>) -> bool {
    let Some(live) = live else { return true };
    if desired.write == Write::Merge {
        // A merge replaces the whole list of owners.
        let owners = |object: &Value| {
            object["metadata"]["ownerReferences"]
                .as_array()
                .map(Vec::len)
        };
        let loses = owners(&desired.body).is_some_and(|n| owners(live).unwrap_or(0) != n);
        return loses || !is_part_of(&desired.body, live);
    }
    let hash = |v: &Value| v["metadata"]["annotations"][labels::APPLIED_HASH].clone();
    hash(&desired.body) != hash(live) || !has_all(&desired.body, live)
}

/// Whether every field that `desired` sets has the same value in `live`. Items of a list carry neither
/// `apiVersion` nor `kind`, so these two are not compared.
fn has_all(desired: &Value, live: &Value) -> bool {
    let type_meta = ["apiVersion", "kind"];
    desired.as_object().is_some_and(|fields| {
        fields
            .iter()
            .filter(|(key, _)| !type_meta.contains(&key.as_str()))
            .all(|(key, value)| is_part_of(value, &live[key]))
    })
}

fn is_part_of(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part.iter().all(|(key, value)| {
            // The API server drops empty lists and maps.
            whole.get(key).map_or_else(
                || is_empty(value),
                |w| is_part_of(value, w) || says_the_amounts(key, value, w),
            )
        }),
        (Value::Array(part), Value::Array(whole)) if is_named(part) => part.iter().all(|p| {
            let mut all = whole.iter();
            all.any(|w| p["name"] == w["name"] && is_part_of(p, w))
        }),
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(p, w)| is_part_of(p, w))
        }
        _ => part == whole,
    }
}

/// Whether the items of a list have names: then others may add items, such as a container or an environment
/// variable, and an apply keeps them.
fn is_named(list: &[Value]) -> bool {
    !list.is_empty() && list.iter().all(|item| item["name"].is_string())
}

/// Whether a field consists of amounts, such as `cpu: 500m`, and `live` has the same amounts in any spelling.
fn says_the_amounts(field: &str, desired: &Value, live: &Value) -> bool {
    let same = |desired: &Value, live: &Value| {
        let both = desired.as_str().zip(live.as_str());
        both.is_some_and(|(desired, live)| quantity::same(desired, live))
    };
    match field {
        "requests" | "limits" => {
            let mut amounts = desired.as_object().into_iter().flatten();
            amounts.all(|(key, amount)| same(amount, &live[key]))
        }
        "sizeLimit" => same(desired, live),
        _ => false,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.values().all(is_empty),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired() -> DesiredObject {
        let body = json!({"spec": {"ports": [{"port": 1}], "x": {}}});
        let metadata = json!({"name": "a"});
        apply(ObjectKind::Service, "a".to_owned(), metadata, body)
    }

    #[test]
    fn an_object_is_written_only_when_something_we_set_differs() {
        let desired = desired();
        assert!(needs_write(&desired, None));
        let mut live = desired.body.clone();
        live["metadata"]["uid"] = json!("1");
        live["spec"]["ports"][0]["protocol"] = json!("TCP");
        live["spec"].as_object_mut().unwrap().remove("x");
        assert!(!needs_write(&desired, Some(&live)));
        let mut drifted = live.clone();
        drifted["spec"]["ports"][0]["port"] = json!(2);
        assert!(needs_write(&desired, Some(&drifted)));
        let mut older = live.clone();
        older["metadata"]["annotations"][labels::APPLIED_HASH] = json!("other");
        assert!(needs_write(&desired, Some(&older)));
        let mut other = live;
        other["spec"]["ports"] = json!([]);
        assert!(needs_write(&desired, Some(&other)));
    }

    #[test]
    fn what_the_api_server_writes_in_other_words_is_not_written_again() {
        let resources =
            json!({"requests": {"memory": "3072Mi", "cpu": "0.5"}, "limits": {"cpu": "1000m"}});
        let body = json!({"spec": {"containers": [{"name": "a", "env": [{"name": "A", "value": "1"}],
            "resources": resources}], "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "2048Mi"}}]}});
        let desired = apply(
            ObjectKind::StatefulSet,
            "a".to_owned(),
            json!({"name": "a"}),
            body,
        );
        let mut live = desired.body.clone();
        live["spec"]["containers"][0]["resources"] =
            json!({"requests": {"memory": "3Gi", "cpu": "500m"}, "limits": {"cpu": "1"}});
        live["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = json!("2Gi");
        assert!(!needs_write(&desired, Some(&live)));
        let mut smaller = live.clone();
        smaller["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = json!("1Gi");
        assert!(needs_write(&desired, Some(&smaller)));
        // Items that others add to a list of named items stay.
        let mut more = live.clone();
        more["spec"]["containers"][0]["env"] =
            json!([{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]);
        more["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "sidecar"}));
        assert!(!needs_write(&desired, Some(&more)));
        more["spec"]["containers"][0]["env"][1]["value"] = json!("3");
        assert!(needs_write(&desired, Some(&more)));
        live["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("4Gi");
        assert!(needs_write(&desired, Some(&live)));
    }
}
