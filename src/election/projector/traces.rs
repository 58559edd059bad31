//! What elections have left in the cluster: objects, and labels of pods.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bellwether_api::LeaderElection;
use bellwether_api::labels::ELECTION_UID;
use bellwether_election::projection::{Mark, marks};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::super::Key;
use super::feed::{Kind, News};
use super::job::Objects;
use super::requests::{Known, Owned};

/// A pod that is labelled.
#[derive(Default)]
struct Labelled {
    version: u64,
    /// The uids of the elections that labelled it.
    by: BTreeSet<String>,
}

/// All that is known of what elections have left.
#[derive(Default)]
pub(super) struct Traces {
    /// By the uid of the election, and the object's kind, namespace and name.
    owned: HashMap<String, BTreeMap<(Kind, String), Owned>>,
    /// The objects that the list under way has told.
    listing: HashMap<Kind, HashSet<(String, String)>>,
    pods: HashMap<Key, Labelled>,
    /// By the uid of the election, its namespace, and the pod's name.
    marks: HashMap<String, (String, BTreeMap<String, Mark>)>,
    /// The labelled pods that the list under way has told, if one is.
    listing_pods: Option<HashSet<Key>>,
    labels_known: bool,
    /// Elections whose labels are being taken back.
    releasing: HashSet<String>,
}

impl Traces {
    /// Whether all labelled pods are known.
    pub(super) fn labels_known(&self) -> bool {
        self.labels_known
    }

    /// What an election has set on pods.
    pub(super) fn marks(&self, uid: &str) -> BTreeMap<String, Mark> {
        let marks = self.marks.get(uid);
        marks.map(|(_, marks)| marks.clone()).unwrap_or_default()
    }

    /// Whether an election has labels on pods or objects.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.marks.contains_key(uid) || self.owned.contains_key(uid)
    }

    /// The objects of an election.
    pub(super) fn owned(&self, uid: &str) -> Vec<Owned> {
        let owned = self.owned.get(uid);
        owned
            .map(|owned| owned.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Takes up news about objects. The uids of the elections that have to be looked at again, and
    /// whether what is known of their objects is nothing any more because one is gone.
    pub(super) fn learn_owned(
        &mut self,
        kind: Kind,
        news: News<Box<ObjectMeta>>,
    ) -> Vec<(String, bool)> {
        match news {
            News::Listing => {
                self.listing.insert(kind, HashSet::new());
                Vec::new()
            }
            News::Is(meta) => {
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
            News::Gone(meta) => owned(kind, &meta)
                .and_then(|(uid, owned)| self.object_gone(uid, kind, owned.name))
                .into_iter()
                .collect(),
            News::Listed => {
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
            News::Failed { .. } => Vec::new(),
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

    /// Whether an object is another one, or a newer version, than is known of it.
    pub(super) fn is_outdated(&self, uid: &str, objects: &Objects) -> bool {
        self.outdated(uid, Kind::Lease, &objects.lease)
            || self.outdated(uid, Kind::Service, &objects.service)
            || self.outdated(uid, Kind::EndpointSlice, &objects.slice)
    }

    /// Forgets what is outdated, so that it is read again.
    pub(super) fn outdate(&self, uid: &str, objects: &mut Objects) {
        if self.outdated(uid, Kind::Lease, &objects.lease) {
            objects.lease = Known::Unread;
        }
        if self.outdated(uid, Kind::Service, &objects.service) {
            objects.service = Known::Unread;
        }
        if self.outdated(uid, Kind::EndpointSlice, &objects.slice) {
            objects.slice = Known::Unread;
        }
    }

    fn outdated<K: Resource>(&self, uid: &str, kind: Kind, known: &Known<K>) -> bool {
        let Known::Is(object) = known else {
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

    /// Takes up news about labelled pods. The uids of the elections that have to be looked at again.
    pub(super) fn learn_labelled(&mut self, news: News<Box<ObjectMeta>>) -> BTreeSet<String> {
        match news {
            News::Listing => {
                self.listing_pods = Some(HashSet::new());
                BTreeSet::new()
            }
            News::Is(meta) => {
                if let Some(listing) = &mut self.listing_pods {
                    listing.insert(key(&meta));
                }
                self.labelled(&meta)
            }
            News::Gone(mut meta) => {
                // It may live on without our label, or be gone; either way nothing is set on it.
                meta.managed_fields = None;
                let changed = self.labelled(&meta);
                let current = self.pods.get(&key(&meta));
                if current.is_some_and(|pod| pod.by.is_empty()) {
                    self.pods.remove(&key(&meta));
                }
                changed
            }
            News::Listed => {
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
                    changed.extend(self.marks.keys().cloned());
                }
                changed
            }
            News::Failed { .. } => BTreeSet::new(),
        }
    }

    /// A pod as it is now, or was; what is older than what is known is ignored.
    pub(super) fn labelled(&mut self, meta: &ObjectMeta) -> BTreeSet<String> {
        let key = key(meta);
        let now = version(meta.resource_version.as_deref());
        let pod = self.pods.entry(key.clone()).or_default();
        if now < pod.version {
            return BTreeSet::new();
        }
        pod.version = now;
        let marks = marks(meta);
        let by: BTreeSet<String> = marks.keys().cloned().collect();
        let before = std::mem::replace(&mut pod.by, by);
        let mut changed = BTreeSet::new();
        for uid in before {
            if !marks.contains_key(&uid) {
                self.take_mark(&uid, &key.name);
                changed.insert(uid);
            }
        }
        for (uid, mark) in marks {
            let of = self.marks.entry(uid.clone());
            let (_, of) = of.or_insert_with(|| (key.namespace.clone(), BTreeMap::new()));
            if of.get(&key.name) != Some(&mark) {
                of.insert(key.name.clone(), mark);
                changed.insert(uid);
            }
        }
        changed
    }

    /// A pod is gone.
    pub(super) fn pod_gone(&mut self, namespace: &str, name: &str) -> BTreeSet<String> {
        let key = Key {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let by = self.pods.remove(&key).unwrap_or_default().by;
        for uid in &by {
            self.take_mark(uid, name);
        }
        by
    }

    fn take_mark(&mut self, uid: &str, pod: &str) {
        if let Some((_, marks)) = self.marks.get_mut(uid) {
            marks.remove(pod);
            if marks.is_empty() {
                self.marks.remove(uid);
            }
        }
    }

    /// Elections that are not known and have labels on pods: namespace, uid, and what they have set.
    /// They count as being taken care of from now on.
    pub(super) fn strangers(
        &mut self,
        known: &HashMap<String, Arc<LeaderElection>>,
    ) -> Vec<(String, String, BTreeMap<String, Mark>)> {
        if !self.labels_known {
            return Vec::new();
        }
        let strangers: Vec<_> = self
            .marks
            .iter()
            .filter(|(uid, _)| !known.contains_key(*uid) && !self.releasing.contains(*uid))
            .map(|(uid, (namespace, marks))| (namespace.clone(), uid.clone(), marks.clone()))
            .collect();
        let uids = strangers.iter().map(|(_, uid, _)| uid.clone());
        self.releasing.extend(uids);
        strangers
    }

    /// An election was taken care of.
    pub(super) fn released(&mut self, uid: &str) {
        self.releasing.remove(uid);
    }
}

/// The election that an object belongs to, and what has to be known to delete it. Only an object that
/// both says so and is owned by it belongs to an election.
fn owned(kind: Kind, meta: &ObjectMeta) -> Option<(String, Owned)> {
    let uid = meta.labels.as_ref()?.get(ELECTION_UID)?;
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let is_ours = |uid: &str| {
        owners
            .iter()
            .any(|owner| owner.uid == uid && owner.controller == Some(true))
    };
    let owned = Owned {
        kind,
        name: meta.name.clone()?,
        uid: meta.uid.clone()?,
        version: meta.resource_version.clone()?,
    };
    is_ours(uid).then(|| (uid.clone(), owned))
}

fn key(meta: &ObjectMeta) -> Key {
    Key {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

/// Resource versions are numbers that grow.
fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}
