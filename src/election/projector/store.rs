//! What elections own in the cluster: objects, and labels of pods.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bellwether_api::LeaderElection;
use bellwether_api::labels::ELECTION_UID;
use bellwether_election::projection::{AppliedLabels, applied_labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::super::Key;
use super::feed::{Kind, WatchEvent};
use super::job::Objects;
use super::requests::{Cached, OwnedObject};

/// A pod that is labelled.
#[derive(Default)]
struct Labelled {
    version: u64,
    /// The uids of the elections that labelled it.
    by: BTreeSet<String>,
}

/// The objects and the labels of all elections.
#[derive(Default)]
pub(super) struct ProjectionStore {
    /// By the uid of the election, and the object's kind, namespace and name.
    owned: HashMap<String, BTreeMap<(Kind, String), OwnedObject>>,
    /// The objects that the running list of each kind has contained so far.
    listing: HashMap<Kind, HashSet<(String, String)>>,
    pods: HashMap<Key, Labelled>,
    /// By the uid of the election, its namespace, and the pod's name.
    applied_labels: HashMap<String, (String, BTreeMap<String, AppliedLabels>)>,
    /// The labelled pods that the running list has contained so far; `None` while no list runs.
    listing_pods: Option<HashSet<Key>>,
    labels_known: bool,
    /// Elections whose labels are being removed.
    releasing: HashSet<String>,
}

impl ProjectionStore {
    /// Whether all labelled pods are known.
    pub(super) fn labels_known(&self) -> bool {
        self.labels_known
    }

    /// The labels that an election has set on pods, by the pods' names.
    pub(super) fn applied_labels(&self, uid: &str) -> BTreeMap<String, AppliedLabels> {
        let applied_labels = self.applied_labels.get(uid);
        applied_labels
            .map(|(_, applied_labels)| applied_labels.clone())
            .unwrap_or_default()
    }

    /// Whether an election has labels on pods or objects.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.applied_labels.contains_key(uid) || self.owned.contains_key(uid)
    }

    /// The objects of an election.
    pub(super) fn owned(&self, uid: &str) -> Vec<OwnedObject> {
        let owned = self.owned.get(uid);
        owned
            .map(|owned| owned.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Applies an event of an object. Returns the uids of the elections that have to be looked at again, and
    /// whether their cached objects have to be dropped because one was deleted.
    pub(super) fn observe_owned_object(
        &mut self,
        kind: Kind,
        event: WatchEvent<Box<ObjectMeta>>,
    ) -> Vec<(String, bool)> {
        match event {
            WatchEvent::ListStarted => {
                self.listing.insert(kind, HashSet::new());
                Vec::new()
            }
            WatchEvent::Applied(meta) => {
                let Some((uid, owned)) = owned(kind, &meta) else {
                    return Vec::new();
                };
                if let Some(listing) = self.listing.get_mut(&kind) {
                    listing.insert((uid.clone(), owned.name.clone()));
                }
                let name = (kind, owned.name.clone());
                self.owned
                    .entry(uid.clone())
                    .or_default()
                    .insert(name, owned);
                vec![(uid, false)]
            }
            WatchEvent::Deleted(meta) => owned(kind, &meta)
                .and_then(|(uid, owned)| self.object_gone(uid, kind, owned.name))
                .into_iter()
                .collect(),
            WatchEvent::ListFinished => {
                let listed = self.listing.remove(&kind).unwrap_or_default();
                let known = self.owned.iter().flat_map(|(uid, owned)| {
                    let names = owned.keys().filter(|(one, _)| *one == kind);
                    names.map(|(_, name)| (uid.clone(), name.clone()))
                });
                let gone: Vec<_> = known.filter(|known| !listed.contains(known)).collect();
                gone.into_iter()
                    .filter_map(|(uid, name)| self.object_gone(uid, kind, name))
                    .collect()
            }
            WatchEvent::Failed { .. } => Vec::new(),
        }
    }

    fn object_gone(&mut self, uid: String, kind: Kind, name: String) -> Option<(String, bool)> {
        let owned = self.owned.get_mut(&uid)?;
        owned.remove(&(kind, name))?;
        if owned.is_empty() {
            self.owned.remove(&uid);
        }
        Some((uid, true))
    }

    /// Whether the watches have seen a newer version of a cached object.
    pub(super) fn is_outdated(&self, uid: &str, objects: &Objects) -> bool {
        self.outdated(uid, Kind::Lease, &objects.lease)
            || self.outdated(uid, Kind::Service, &objects.service)
            || self.outdated(uid, Kind::EndpointSlice, &objects.slice)
    }

    /// Drops the cached objects that are outdated, so that they are read again.
    pub(super) fn outdate(&self, uid: &str, objects: &mut Objects) {
        if self.outdated(uid, Kind::Lease, &objects.lease) {
            objects.lease = Cached::Unread;
        }
        if self.outdated(uid, Kind::Service, &objects.service) {
            objects.service = Cached::Unread;
        }
        if self.outdated(uid, Kind::EndpointSlice, &objects.slice) {
            objects.slice = Cached::Unread;
        }
    }

    fn outdated<K: Resource>(&self, uid: &str, kind: Kind, known: &Cached<K>) -> bool {
        let Cached::Present(object) = known else {
            return false;
        };
        let meta = object.meta();
        let name = meta.name.clone().unwrap_or_default();
        let owned = self
            .owned
            .get(uid)
            .and_then(|owned| owned.get(&(kind, name)));
        owned.is_some_and(|owned| {
            version(Some(&owned.version)) > version(meta.resource_version.as_deref())
        })
    }

    /// Applies an event of a labelled pod. Returns the uids of the elections that have to be looked at again.
    pub(super) fn observe_labelled_pod(
        &mut self,
        event: WatchEvent<Box<ObjectMeta>>,
    ) -> BTreeSet<String> {
        match event {
            WatchEvent::ListStarted => {
                self.listing_pods = Some(HashSet::new());
                BTreeSet::new()
            }
            WatchEvent::Applied(meta) => {
                if let Some(listing) = &mut self.listing_pods {
                    listing.insert(Key::of(&meta));
                }
                self.labelled(&meta)
            }
            WatchEvent::Deleted(mut meta) => {
                // The pod may be deleted or may only have lost the label; in both cases it has no labels of ours.
                meta.managed_fields = None;
                let changed = self.labelled(&meta);
                let current = self.pods.get(&Key::of(&meta));
                if current.is_some_and(|pod| pod.by.is_empty()) {
                    self.pods.remove(&Key::of(&meta));
                }
                changed
            }
            WatchEvent::ListFinished => {
                let listed = self.listing_pods.take().unwrap_or_default();
                let gone: Vec<Key> = self
                    .pods
                    .keys()
                    .filter(|key| !listed.contains(key))
                    .cloned()
                    .collect();
                let mut changed: BTreeSet<String> = gone
                    .iter()
                    .flat_map(|key| self.pod_gone(&key.namespace, &key.name))
                    .collect();
                if !self.labels_known {
                    self.labels_known = true;
                    changed.extend(self.applied_labels.keys().cloned());
                }
                changed
            }
            WatchEvent::Failed { .. } => BTreeSet::new(),
        }
    }

    /// Stores a version of a pod, unless a newer one is known.
    pub(super) fn labelled(&mut self, meta: &ObjectMeta) -> BTreeSet<String> {
        let key = Key::of(meta);
        let now = version(meta.resource_version.as_deref());
        let pod = self.pods.entry(key.clone()).or_default();
        if now < pod.version {
            return BTreeSet::new();
        }
        pod.version = now;
        let applied_labels = applied_labels(meta);
        let by: BTreeSet<String> = applied_labels.keys().cloned().collect();
        let before = std::mem::replace(&mut pod.by, by);
        let mut changed = BTreeSet::new();
        for uid in before {
            if !applied_labels.contains_key(&uid) {
                self.remove_label(&uid, &key.name);
                changed.insert(uid);
            }
        }
        for (uid, applied) in applied_labels {
            let of = self.applied_labels.entry(uid.clone());
            let (_, of) = of.or_insert_with(|| (key.namespace.clone(), BTreeMap::new()));
            if of.get(&key.name) != Some(&applied) {
                of.insert(key.name.clone(), applied);
                changed.insert(uid);
            }
        }
        changed
    }

    /// Removes a pod that was deleted.
    pub(super) fn pod_gone(&mut self, namespace: &str, name: &str) -> BTreeSet<String> {
        let key = Key {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let by = self.pods.remove(&key).unwrap_or_default().by;
        for uid in &by {
            self.remove_label(uid, name);
        }
        by
    }

    fn remove_label(&mut self, uid: &str, pod: &str) {
        if let Some((_, applied_labels)) = self.applied_labels.get_mut(uid) {
            applied_labels.remove(pod);
            if applied_labels.is_empty() {
                self.applied_labels.remove(uid);
            }
        }
    }

    /// Elections that do not exist any more and have labels on pods: namespace, uid, and labels. From now on
    /// their labels count as being removed, which those of at most so many elections do at one time.
    pub(super) fn orphaned_labels(
        &mut self,
        known: &HashMap<String, Arc<LeaderElection>>,
        most: usize,
    ) -> Vec<(String, String, BTreeMap<String, AppliedLabels>)> {
        if !self.labels_known {
            return Vec::new();
        }
        let orphaned: Vec<_> = self
            .applied_labels
            .iter()
            .filter(|(uid, _)| !known.contains_key(*uid) && !self.releasing.contains(*uid))
            .map(|(uid, (namespace, applied_labels))| {
                (namespace.clone(), uid.clone(), applied_labels.clone())
            })
            .take(most.saturating_sub(self.releasing.len()))
            .collect();
        let uids = orphaned.iter().map(|(_, uid, _)| uid.clone());
        self.releasing.extend(uids);
        orphaned
    }

    /// The labels of an election were removed.
    pub(super) fn released(&mut self, uid: &str) {
        self.releasing.remove(uid);
    }
}

/// The election that an object belongs to, and what a deletion needs. An object belongs to an election if
/// both its label and its owner reference name it.
fn owned(kind: Kind, meta: &ObjectMeta) -> Option<(String, OwnedObject)> {
    let uid = meta.labels.as_ref()?.get(ELECTION_UID)?;
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let is_ours = |uid: &str| {
        owners
            .iter()
            .any(|owner| owner.uid == uid && owner.controller == Some(true))
    };
    let owned = OwnedObject {
        kind,
        name: meta.name.clone()?,
        uid: meta.uid.clone()?,
        version: meta.resource_version.clone()?,
    };
    is_ours(uid).then(|| (uid.clone(), owned))
}

/// Resource versions are numbers that grow.
fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}
