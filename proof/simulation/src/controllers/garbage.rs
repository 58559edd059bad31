//! The garbage collector: dependents go with their owners, before them, or stay.

use std::sync::Arc;
use std::time::Duration;

use bellwether_api_server::{
    Cache, Change, Delete, Event, Kind, Object, Propagation, Refusal, Store,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::earlier;

const ACTOR: &str = "generic-garbage-collector";
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// The garbage collector.
#[derive(Debug, Default)]
pub struct GarbageCollector {
    /// The cache that it reads from, which may be behind. Before a deletion it reads the object from the store.
    pub cache: Cache,
    /// How far it has looked at the changes of each kind.
    seen: Vec<u64>,
    /// When it looks again, since a write was refused.
    again: Option<Instant>,
}

/// When a write that was refused is tried again.
const RETRY: Duration = Duration::from_secs(1);

impl GarbageCollector {
    /// Does what is due.
    pub fn step(&mut self, store: &mut Store) -> Option<Instant> {
        let mut due = None;
        let mut matters = false;
        for (index, kind) in Kind::all().enumerate() {
            let (reached, wake) = self.cache.reached(kind, store);
            due = earlier(due, wake);
            if index == self.seen.len() {
                self.seen.push(0);
            }
            let from = std::mem::replace(&mut self.seen[index], reached);
            if store.changed(kind) <= from {
                continue;
            }
            matters |= match store.events_since(kind, from) {
                Ok(mut events) => events.any(|e| e.revision <= reached && is_of_owners(e)),
                Err(_) => true,
            };
        }
        let now = Instant::now();
        if matters || self.again.is_some_and(|at| at <= now) {
            let done = self.collect(store);
            self.again = (!done).then(|| now + RETRY);
        }
        earlier(due, self.again)
    }

    /// Looks at every object. Returns whether no write was refused.
    fn collect(&mut self, store: &mut Store) -> bool {
        let mut done = true;
        let mut objects = Vec::new();
        for kind in Kind::all().filter(|kind| !matches!(*kind, Kind::EVENT | Kind::LEASE)) {
            let listed = self.cache.list(store, kind, None);
            objects.extend(listed.into_iter().map(|object| (kind, object)));
        }
        // Leases are written every few seconds, and few of them have owners.
        for lease in self.cache.list(store, Kind::LEASE, None) {
            if !lease.owners().is_empty() {
                objects.push((Kind::LEASE, lease));
            }
        }
        for (kind, object) in &objects {
            if object.is_terminating() {
                let has = |finalizer| object.finalizers().any(|other| other == finalizer);
                if has(ORPHAN) {
                    done &= orphan(store, *kind, object, &objects);
                } else if has(FOREGROUND) {
                    done &= foreground(store, *kind, object, &objects);
                }
            } else if !object.owners().is_empty() {
                done &= attempt(store, *kind, object, &objects);
            }
        }
        done
    }
}

/// Whether a write needs no retry; 404 and 409 need none, since the change that caused them is looked at anyway.
fn is_done<T>(result: &Result<T, Refusal>) -> bool {
    !matches!(result, Err(refusal) if ![404, 409].contains(&refusal.code))
}

/// Whether a change may be about owners and dependents.
fn is_of_owners(event: &Event) -> bool {
    match event.change {
        Change::Deleted => true,
        Change::Added => !event.object.owners().is_empty(),
        Change::Modified => {
            let before = event.before.as_ref();
            let owners = before.is_none_or(|before| before.owners() != event.object.owners());
            let mut finalizers = event.object.finalizers();
            owners || finalizers.any(|f| matches!(f, FOREGROUND | ORPHAN))
        }
    }
}

enum Owner {
    /// It is there, and stays.
    Solid,
    /// It is not there, or another object has its name.
    Dangling,
    /// It waits until its dependents are gone.
    Waiting,
}

fn owner(store: &Store, object: &Object, reference: &Value) -> Owner {
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let Some(kind) = Kind::named(text("apiVersion"), text("kind")) else {
        // An owner of a kind that is not known here may be anything.
        return Owner::Solid;
    };
    let namespace = if kind.resource().namespaced {
        object.namespace()
    } else {
        ""
    };
    match store.get(kind, namespace, text("name")) {
        Some(owner) if owner.uid() == text("uid") => {
            let waits = owner.is_terminating() && owner.finalizers().any(|f| f == FOREGROUND);
            if waits { Owner::Waiting } else { Owner::Solid }
        }
        _ => Owner::Dangling,
    }
}

type Objects = [(Kind, Arc<Object>)];

fn dependents<'o>(
    objects: &'o Objects,
    owner: &'o Object,
) -> impl Iterator<Item = (Kind, &'o Arc<Object>, &'o Value)> {
    objects.iter().filter_map(|(kind, object)| {
        let of = |reference: &&Value| reference["uid"] == owner.uid();
        let reference = object.owners().iter().find(of)?;
        Some((*kind, object, reference))
    })
}

/// Deletes an object that has no owner left, or whose owner waits for its deletion.
fn attempt(store: &mut Store, kind: Kind, object: &Object, objects: &Objects) -> bool {
    // As it is, not as it was seen.
    let Some(live) = store.get(kind, object.namespace(), object.name()).cloned() else {
        return true;
    };
    if live.uid() != object.uid() || live.is_terminating() || live.owners().is_empty() {
        return true;
    }
    let (mut solid, mut dangling, mut waiting) = (0, Vec::new(), Vec::new());
    for reference in live.owners() {
        let uid = reference["uid"].clone();
        match owner(store, &live, reference) {
            Owner::Solid => solid += 1,
            Owner::Dangling => dangling.push(uid),
            Owner::Waiting => waiting.push(uid),
        }
    }
    let at = (live.namespace(), live.name());
    if solid > 0 {
        let gone: Vec<Value> = dangling.into_iter().chain(waiting).collect();
        return gone.is_empty() || forget_owners(store, kind, &live, &gone);
    }
    let has_dependents = dependents(objects, &live).next().is_some();
    let has = |finalizer| live.finalizers().any(|other| other == finalizer);
    let policy = if !waiting.is_empty() && has_dependents {
        Propagation::Foreground
    } else if has(ORPHAN) {
        Propagation::Orphan
    } else if has(FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    let options = Delete {
        propagation_policy: Some(policy),
        ..Delete::exactly(live.uid())
    };
    is_done(&store.delete(ACTOR, kind, at, &options))
}

fn forget_owners(store: &mut Store, kind: Kind, object: &Object, gone: &[Value]) -> bool {
    let at = (object.namespace(), object.name());
    let uid = object.uid().to_owned();
    let written = store.update(ACTOR, kind, at, |object| {
        object["metadata"]["uid"] = uid.into();
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| !gone.contains(&owner["uid"]));
        }
    });
    is_done(&written)
}

fn remove_finalizer(store: &mut Store, kind: Kind, object: &Object, finalizer: &str) -> bool {
    let at = (object.namespace(), object.name());
    let uid = object.uid().to_owned();
    let written = store.update(ACTOR, kind, at, |object| {
        object["metadata"]["uid"] = uid.into();
        if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|other| other != finalizer);
        }
    });
    is_done(&written)
}

/// Lets the dependents of an object stay without it.
fn orphan(store: &mut Store, kind: Kind, object: &Object, objects: &Objects) -> bool {
    let gone = [json!(object.uid())];
    let mut done = true;
    for (kind, dependent, _) in dependents(objects, object) {
        done &= forget_owners(store, kind, dependent, &gone);
    }
    done && remove_finalizer(store, kind, object, ORPHAN)
}

/// Deletes the dependents of an object, and then the object once no dependent blocks it.
fn foreground(store: &mut Store, kind: Kind, object: &Object, objects: &Objects) -> bool {
    let (mut blocked, mut done) = (false, true);
    for (kind, dependent, reference) in dependents(objects, object) {
        blocked |= reference["blockOwnerDeletion"] == true;
        if !dependent.is_terminating() {
            done &= attempt(store, kind, dependent, objects);
        }
    }
    if blocked {
        return done;
    }
    done && remove_finalizer(store, kind, object, FOREGROUND)
}
