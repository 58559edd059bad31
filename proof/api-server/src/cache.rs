//! A cache that follows the store, and may be behind it: that of a front end, or of a controller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::kind::Kind;
use super::object::Object;
use super::store::Store;

/// How far a cache follows the store. It holds no objects: those of the past are worked out from the changes
/// since.
#[derive(Debug, Default)]
pub struct Cache {
    /// How long after a change of a kind the cache has it.
    lag: BTreeMap<Kind, Duration>,
    /// The revision at which it stopped to follow the store.
    frozen: Option<u64>,
    /// How far it has come with each kind.
    reached: BTreeMap<Kind, u64>,
    /// The revision since which it knows the changes.
    since: u64,
}

impl Cache {
    /// Sets how long after a change of a kind the cache has it.
    pub fn set_lag(&mut self, kind: Kind, lag: Duration) {
        self.lag.insert(kind, lag);
    }

    /// Stops at a revision, or follows again.
    pub fn freeze(&mut self, at: Option<u64>) {
        self.frozen = at;
    }

    /// Restarts the cache at a revision.
    pub(crate) fn restart(&mut self, now: u64) {
        self.since = now;
        self.frozen = None;
        self.reached.clear();
    }

    /// The revision since which it knows the changes.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// The revision that it has come to with a kind, and when it comes further by itself.
    pub fn reached(&mut self, kind: Kind, store: &Store) -> (u64, Option<Instant>) {
        let lag = self.lag.get(&kind).copied().unwrap_or_default();
        let mut revision = store.revision();
        let mut wake = None;
        if !lag.is_zero() {
            let now = Instant::now();
            let known = self.reached.get(&kind).copied().unwrap_or(0);
            let hidden = store.events_since(kind, known).ok();
            if let Some(event) = hidden.and_then(|mut events| events.find(|e| e.at + lag > now)) {
                revision = event.revision - 1;
                wake = Some(event.at + lag);
            }
        }
        if let Some(frozen) = self.frozen {
            revision = revision.min(frozen);
            wake = None;
        }
        // A cache never goes back.
        let reached = self.reached.entry(kind).or_default();
        *reached = revision.max(*reached).max(self.since);
        (*reached, wake)
    }

    /// The revision of the last change of a kind that the cache has, and when it comes further by itself.
    pub fn changed(&mut self, kind: Kind, store: &Store) -> (u64, Option<Instant>) {
        let (reached, wake) = self.reached(kind, store);
        (store.changed_by(kind, reached), wake)
    }

    /// The objects of a kind as the cache has them, by namespace and name.
    pub fn list(&mut self, store: &Store, kind: Kind, within: Option<&str>) -> Vec<Arc<Object>> {
        let (revision, _) = self.reached(kind, store);
        match list_at(store, kind, within, revision) {
            Ok(objects) => objects,
            // The changes since are forgotten; a cache would not have lost them.
            Err(_) => store.list(kind, within).cloned().collect(),
        }
    }

    /// An object as the cache has it.
    pub fn get(
        &mut self,
        store: &Store,
        kind: Kind,
        (namespace, name): (&str, &str),
    ) -> Option<Arc<Object>> {
        let (revision, _) = self.reached(kind, store);
        match get_at(store, kind, (namespace, name), revision) {
            Ok(object) => object,
            Err(_) => store.get(kind, namespace, name).cloned(),
        }
    }
}

/// The objects of a kind as they were at a revision, by namespace and name.
pub(crate) fn list_at(
    store: &Store,
    kind: Kind,
    namespace: Option<&str>,
    revision: u64,
) -> Result<Vec<Arc<Object>>, u64> {
    let now = store.list(kind, namespace).cloned();
    if revision >= store.changed(kind) {
        return Ok(now.collect());
    }
    let key = |object: &Arc<Object>| (object.namespace().to_owned(), object.name().to_owned());
    let mut then: BTreeMap<_, _> = now.map(|object| (key(&object), object)).collect();
    for event in store.events_since(kind, revision)?.rev() {
        if namespace.is_some_and(|namespace| namespace != event.object.namespace()) {
            continue;
        }
        match &event.before {
            Some(before) => then.insert(key(before), before.clone()),
            None => then.remove(&key(&event.object)),
        };
    }
    Ok(then.into_values().collect())
}

/// An object as it was at a revision.
pub(crate) fn get_at(
    store: &Store,
    kind: Kind,
    (namespace, name): (&str, &str),
    revision: u64,
) -> Result<Option<Arc<Object>>, u64> {
    let mut object = store.get(kind, namespace, name).cloned();
    if revision < store.changed(kind) {
        let same = |e: &Arc<Object>| e.namespace() == namespace && e.name() == name;
        let events = store.events_since(kind, revision)?;
        if let Some(first) = events.into_iter().find(|event| same(&event.object)) {
            object.clone_from(&first.before);
        }
    }
    Ok(object)
}
