//! A picture of an ensemble: all its objects, without the values that differ from history to history.
//!
//! Two histories that end with the same manifest have to end in the same picture. What may differ is taken out
//! here, each with the reason; everything else that differs is a fault.

use std::collections::BTreeMap;

use bellwether_api::labels;
use bellwether_api_server::{Kind, Object, Store};
use bellwether_ensemble::desired::bootstrap_config_map;
use bellwether_ensemble::desired::claims::{DATA, LOG};
use bellwether_ensemble::desired::observers::set_name;
use bellwether_ensemble::desired::stateful_set::ROLLOUT_RESTART;
use serde_json::{Map, Value, json};

use super::is_at_run_time;
use crate::cluster::{NAME, NAMESPACE};

/// Every object by its kind and name.
pub type Picture = BTreeMap<String, Value>;

/// Kinds whose objects only record what happened.
const HISTORY: [Kind; 3] = [Kind::LEASE, Kind::EVENT, Kind::CONTROLLER_REVISION];

/// What every write and every other order of writes makes different.
const OF_ITS_TIME: [&str; 5] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    // Who wrote a field last: a person who put a field right owns it, and the operator does too.
    "managedFields",
];

/// What the picture depends on.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The size that the user asks for.
    pub wanted: u16,
    /// How many observers the user asks for.
    pub observers: u16,
    /// Whether volumes of members that left are deleted.
    pub deletes: bool,
    /// The version of the operator that runs now.
    pub version: u32,
}

/// The picture of what is in the store.
pub fn picture(store: &Store, view: View) -> Picture {
    let set = store.get(Kind::STATEFUL_SET, NAMESPACE, NAME);
    let newest = set.and_then(|set| set["status"]["updateRevision"].as_str());
    let rendered_by = set.and_then(|set| {
        let by = set["metadata"]["annotations"][labels::RENDERED_BY].as_str();
        by.map(str::to_owned)
    });
    let namespaced = |kind: &Kind| kind.resource().namespaced && !HISTORY.contains(kind);
    let mut all = Picture::new();
    for kind in Kind::all().filter(namespaced) {
        for object in store.list(kind, Some(NAMESPACE)) {
            if kind == Kind::CLAIM && is_kept_for_later(object, view) {
                continue;
            }
            // Where no observer is wanted any more their StatefulSet stays, without pods.
            let of_observers = kind == Kind::STATEFUL_SET && object.name() == set_name(NAME);
            if of_observers && view.observers == 0 && object["spec"]["replicas"] == 0 {
                continue;
            }
            let mut shown = canonical(kind, object, newest);
            if let Some(by) = &rendered_by {
                rendered_now(&mut shown, by, view.version);
            }
            all.insert(format!("{} {}", kind.resource().name, object.name()), shown);
        }
    }
    all
}

/// The policy `Retain` keeps the volumes of members that left. A fresh ensemble never had them.
fn is_kept_for_later(claim: &Object, view: View) -> bool {
    let of = |set: &str, wanted: u16| {
        let named = |volume: &str| claim.name().strip_prefix(&format!("{volume}-{set}-"));
        let ordinal = named(DATA).or_else(|| named(LOG));
        let ordinal = ordinal.and_then(|ordinal| ordinal.parse::<u16>().ok());
        ordinal.is_some_and(|ordinal| ordinal >= wanted)
    };
    !view.deletes && (of(NAME, view.wanted) || of(&set_name(NAME), view.observers))
}

fn canonical(kind: Kind, object: &Object, newest: Option<&str>) -> Value {
    let mut shown = Value::clone(object);
    for key in OF_ITS_TIME {
        remove(&mut shown["metadata"], key);
    }
    let owners = shown["metadata"]["ownerReferences"].as_array_mut();
    for owner in owners.into_iter().flatten() {
        remove(owner, "uid");
    }
    // The hash of what was applied depends on the uid of the ensemble, which owns the object; the members' certificate
    // depends on that uid and on when it was made.
    for key in [
        labels::APPLIED_HASH,
        labels::AUTHORITY,
        labels::CLIENT_AUTHORITY,
        labels::CLIENT_AUTHORITY_UNTIL,
        labels::IDENTITY_UNTIL,
    ] {
        remove(&mut shown["metadata"]["annotations"], key);
    }
    without_what_others_added(&mut shown["metadata"], None);
    if kind == Kind::CLAIM {
        remove(&mut shown["metadata"]["annotations"], labels::LIST_VERSION);
    }
    match kind {
        Kind::STATEFUL_SET => stateful_set(&mut shown),
        Kind::POD => pod(&mut shown, newest),
        Kind::CLAIM => claim(&mut shown),
        Kind::CONFIG_MAP if object.name() == bootstrap_config_map(NAME) => bootstrap(&mut shown),
        Kind::ENSEMBLE => ensemble(&mut shown),
        _ => remove(&mut shown, "status"),
    }
    without_lists_of_their_time(&mut shown);
    without_nothing(&mut shown);
    shown
}

/// The version of a list is the zxid at which servers agreed on it, and pods carry the list of the time when they were made. The
/// hash of a template is of what is compared itself, and of the image of the operator's version.
fn without_lists_of_their_time(value: &mut Value) {
    match value {
        Value::Object(all) => {
            all.remove(labels::TEMPLATE_HASH);
            if all.remove(labels::LIST_VERSION).is_some() {
                all.remove(labels::VOTERS);
            }
            all.values_mut().for_each(without_lists_of_their_time);
        }
        Value::Array(all) => all.iter_mut().for_each(without_lists_of_their_time),
        _ => {}
    }
}

fn stateful_set(set: &mut Value) {
    // With `OnDelete` the controller never counts a set as updated, and the revisions in its status are out of date.
    let status = &set["status"];
    set["status"] =
        json!({ "replicas": status["replicas"], "readyReplicas": status["readyReplicas"] });
    let written = &mut set["metadata"]["annotations"][labels::TEMPLATE];
    let template = written
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok());
    *written = template.unwrap_or_default();
    let template = &mut set["spec"]["template"];
    let (mut metadata, mut spec) = (template["metadata"].take(), template["spec"].take());
    without_what_others_added(&mut metadata, Some(&mut spec));
    set["spec"]["template"] = json!({ "metadata": metadata, "spec": spec });
}

fn pod(pod: &mut Value, newest: Option<&str>) {
    remove(pod, "status");
    // The scheduler chooses a node by what runs where at that moment.
    remove(&mut pod["spec"], "nodeName");
    // A revision's name depends on how many templates there were.
    let at_run_time = is_at_run_time(pod);
    let revision = &mut pod["metadata"]["labels"]["controller-revision-hash"];
    // There the hash of the template without the list tells.
    *revision = json!(at_run_time || revision.as_str() == newest);
    let (mut metadata, mut spec) = (pod["metadata"].take(), pod["spec"].take());
    without_what_others_added(&mut metadata, Some(&mut spec));
    pod["metadata"] = metadata;
    pod["spec"] = spec;
}

fn claim(claim: &mut Value) {
    // Named by the claim's uid.
    remove(&mut claim["spec"], "volumeName");
    let status = &claim["status"];
    claim["status"] = json!({ "phase": status["phase"], "capacity": status["capacity"] });
}

/// The permission to start with an empty disk. Epochs count the elections that there were, so only whose
/// epochs are recorded is the same. A loss that a person accepted stays on record.
fn bootstrap(map: &mut Value) {
    let data = &mut map["data"];
    remove(data, "accepted");
    let epochs = data["epochs"].as_str().unwrap_or_default();
    let ids: Vec<&str> = epochs
        .lines()
        .filter_map(|l| Some(l.split_once('=')?.0))
        .collect();
    data["epochs"] = json!(ids);
}

/// Which generation, who leads, what was written last and where a member runs is history. A loss that a person
/// accepted stays on record.
fn ensemble(ensemble: &mut Value) {
    let status = &mut ensemble["status"];
    remove(status, "observedGeneration");
    remove(status, "dataLossAccepted");
    // The authority is named after the ensemble's uid, and the certificate ends 90 days after it was made.
    for key in ["authority", "until"] {
        remove(&mut status["certificate"], key);
    }
    let leader = status["leader"].as_str().map(str::to_owned);
    if let (Some(leader), Some(message)) = (&leader, status["message"].as_str()) {
        status["message"] = json!(message.replace(leader, "LEADER"));
    }
    status["leader"] = json!(leader.is_some());
    for member in status["members"].as_array_mut().into_iter().flatten() {
        for key in ["epoch", "zxid", "node"] {
            remove(member, key);
        }
        let serves = ["Leader", "Follower"].map(Value::from);
        if serves.contains(&member["role"]) {
            member["role"] = json!("Leader or Follower");
        }
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions: Map<String, Value> = conditions
        .map(|c| {
            let name = c["type"].as_str().unwrap_or_default().to_owned();
            let text = c["message"].as_str().unwrap_or_default();
            let text = leader
                .as_ref()
                .map_or_else(|| text.to_owned(), |l| text.replace(l, "LEADER"));
            (name, json!([c["status"], c["reason"], text]))
        })
        .collect();
    status["conditions"] = Value::Object(conditions);
}

/// A webhook changes what is written after it was installed, and `kubectl rollout restart` the template: the fresh ensemble
/// lives without both.
fn without_what_others_added(metadata: &mut Value, spec: Option<&mut Value>) {
    for map in ["labels", "annotations"] {
        if let Some(map) = metadata[map].as_object_mut() {
            map.retain(|key, _| !key.starts_with("mesh.example/") && key != ROLLOUT_RESTART);
        }
    }
    let containers = spec.and_then(|spec| spec["containers"].as_array_mut());
    if let Some(containers) = containers {
        containers.retain(|container| container["name"] != "proxy");
    }
}

/// A pod template stays as an earlier operator version rendered it (docs/decisions/0004), so it names the image
/// of that version, and nothing else of it may differ.
fn rendered_now(value: &mut Value, by: &str, version: u32) {
    match value {
        Value::Object(all) => {
            for (key, value) in all {
                if key == labels::RENDERED_BY {
                    *value = json!(version.to_string());
                } else {
                    rendered_now(value, by, version);
                }
            }
        }
        Value::Array(all) => all
            .iter_mut()
            .for_each(|value| rendered_now(value, by, version)),
        Value::String(text) if text.strip_prefix("bellwether:") == Some(by) => {
            *text = format!("bellwether:{version}");
        }
        _ => {}
    }
}

/// Removes null fields and empty lists and maps, which mean absence: the API server keeps them as they came.
fn without_nothing(value: &mut Value) {
    match value {
        Value::Object(all) => {
            all.values_mut().for_each(without_nothing);
            all.retain(|_, value| match value {
                Value::Null => false,
                Value::Object(all) => !all.is_empty(),
                Value::Array(all) => !all.is_empty(),
                _ => true,
            });
        }
        Value::Array(all) => all.iter_mut().for_each(without_nothing),
        _ => {}
    }
}

fn remove(object: &mut Value, key: &str) {
    if let Some(object) = object.as_object_mut() {
        object.remove(key);
    }
}

/// In what the pictures of a life and of a fresh ensemble differ, in words.
pub fn differences(life: &Picture, fresh: &Picture) -> Vec<String> {
    let mut found = Vec::new();
    for (name, shown) in life {
        match fresh.get(name) {
            Some(other) => compare(name, shown, other, &mut found),
            None => found.push(format!("there is {name}, and none in a fresh ensemble")),
        }
    }
    let missing = fresh.keys().filter(|name| !life.contains_key(*name));
    found.extend(missing.map(|name| format!("{name} is missing")));
    found
}

fn compare(path: &str, is: &Value, fresh: &Value, found: &mut Vec<String>) {
    match (is, fresh) {
        (Value::Object(is), Value::Object(other)) => {
            let keys = is
                .keys()
                .chain(other.keys().filter(|key| !is.contains_key(*key)));
            for key in keys {
                let none = &Value::Null;
                let (is, other) = (is.get(key).unwrap_or(none), other.get(key).unwrap_or(none));
                compare(&format!("{path}.{key}"), is, other, found);
            }
        }
        (Value::Array(is), Value::Array(other)) if is.len() == other.len() => {
            for (at, (is, other)) in is.iter().zip(other).enumerate() {
                compare(&format!("{path}[{at}]"), is, other, found);
            }
        }
        _ if is == fresh => {}
        _ => found.push(format!("{path} is {is}, and {fresh} in a fresh ensemble")),
    }
}
