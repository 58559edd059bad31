//! The history of a StatefulSet's template, in ControllerRevisions.

use std::sync::Arc;

use bellwether_api_server::{Cache, Kind, Object, Refusal, Store};
use serde_json::{Value, json};

use super::stateful_sets::{ACTOR, owner_reference};

/// The revision that pods are made of, the one that they were made of before, and how often a name was
/// taken already.
pub(super) struct Revisions {
    pub(super) current: String,
    pub(super) update: String,
    pub(super) collisions: i64,
    all: Vec<Arc<Object>>,
}

/// Finds the revisions of a set, and makes one if its template is new.
pub(super) fn find(
    store: &mut Store,
    cache: &mut Cache,
    set: &Object,
) -> Result<Revisions, Refusal> {
    let all = cache.list(store, Kind::CONTROLLER_REVISION, Some(set.namespace()));
    let of_set = |object: &Arc<Object>| object.controller().is_some_and(|o| o["uid"] == set.uid());
    let mut all: Vec<Arc<Object>> = all.into_iter().filter(of_set).collect();
    all.sort_by_key(|r| (number(r), r.name().to_owned()));
    let mut template = set["spec"]["template"].clone();
    template["$patch"] = "replace".into();
    let data = json!({ "spec": { "template": template } });
    let next = all.last().map_or(0, number) + 1;
    let mut collisions = set["status"]["collisionCount"].as_i64().unwrap_or(0);
    let equal = all.iter().rposition(|revision| revision["data"] == data);
    let update = match equal {
        Some(index) if index + 1 == all.len() => all[index].name().to_owned(),
        Some(index) => {
            let name = all[index].name().to_owned();
            let at = (set.namespace(), name.as_str());
            store.update(ACTOR, Kind::CONTROLLER_REVISION, at, |revision| {
                revision["revision"] = next.into();
            })?;
            name
        }
        None => create(store, set, &data, next, &mut collisions)?,
    };
    let current = set["status"]["currentRevision"]
        .as_str()
        .unwrap_or_default();
    let current = match all.iter().any(|revision| revision.name() == current) {
        true => current.to_owned(),
        false => update.clone(),
    };
    Ok(Revisions {
        current,
        update,
        collisions,
        all,
    })
}

fn number(revision: &Arc<Object>) -> i64 {
    revision["revision"].as_i64().unwrap_or(0)
}

fn create(
    store: &mut Store,
    set: &Object,
    data: &Value,
    number: i64,
    collisions: &mut i64,
) -> Result<String, Refusal> {
    loop {
        let hash = hash(&format!("{data}{collisions}"));
        let name = format!("{}-{hash}", set.name());
        let mut labels = set["spec"]["template"]["metadata"]["labels"].clone();
        labels["controller.kubernetes.io/hash"] = hash.into();
        let revision = json!({
            "metadata": {
                "name": name,
                "namespace": set.namespace(),
                "labels": labels,
                "ownerReferences": [owner_reference(set)],
            },
            "data": data,
            "revision": number,
        });
        match store.create(ACTOR, Kind::CONTROLLER_REVISION, revision) {
            Ok(_) => return Ok(name),
            Err(refusal) if refusal.is_already_exists() => {
                let known = store.get(Kind::CONTROLLER_REVISION, set.namespace(), &name);
                if known.is_some_and(|known| known["data"] == *data) {
                    return Ok(name);
                }
                *collisions += 1;
            }
            Err(refusal) => return Err(refusal),
        }
    }
}

/// A short name of a text, of letters that make no words.
fn hash(text: &str) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let fnv = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(16_777_619);
    let hash = text.as_bytes().iter().fold(2_166_136_261, fnv);
    let letter = |digit: u8| char::from(LETTERS[usize::from(digit) % LETTERS.len()]);
    hash.to_string().bytes().map(letter).collect()
}

/// Deletes revisions that no pod has, beyond the limit of the set.
pub(super) fn truncate(
    store: &mut Store,
    set: &Object,
    revisions: &Revisions,
    pods: &[Arc<Object>],
) {
    let limit = set["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let of_pod = |name: &str| {
        pods.iter()
            .any(|p| p.label("controller-revision-hash") == Some(name))
    };
    let old: Vec<&Arc<Object>> = revisions
        .all
        .iter()
        .filter(|r| r.name() != revisions.current && r.name() != revisions.update)
        .filter(|r| !of_pod(r.name()))
        .collect();
    for revision in old.iter().take(old.len().saturating_sub(limit)) {
        let at = (revision.namespace(), revision.name());
        let _ = store.delete(ACTOR, Kind::CONTROLLER_REVISION, at, &Default::default());
    }
}
