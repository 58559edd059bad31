//! The objects of ensembles as watches show them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether_api::{ZooKeeperEnsemble, labels};
use futures::StreamExt;
use futures::stream::{self, BoxStream, SelectAll};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::objects::{Certificate, Objects, Trim};
use crate::scoped::api;

/// The objects of all ensembles in one namespace, or in all of them.
///
/// A watch may lag behind the API server. So nothing is written or restarted on what it shows: a plan that asks
/// for anything is made again from fresh reads.
#[derive(Default)]
pub(crate) struct Stores {
    sets: Arc<Store<StatefulSet>>,
    pods: Arc<Store<Pod>>,
    maps: Arc<Store<ConfigMap>>,
    services: Arc<Store<Service>>,
    budgets: Arc<Store<PodDisruptionBudget>>,
    claims: Arc<Store<PersistentVolumeClaim>>,
    policies: Arc<Store<NetworkPolicy>>,
    certificates: Arc<Store<Certificate>>,
}

/// The version of everything that watches show of one ensemble. Equal versions mean equal objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version([u64; 8]);

/// How many objects one answer of the API server lists at most. All of them are in memory before they are trimmed.
pub(crate) const PAGE: u32 = 100;

/// An ensemble, by namespace and name.
pub(crate) type Key = (String, String);

impl Stores {
    /// Watches every kind while the stream is read; Certificates only where cert-manager is asked for any. Each item is an
    /// ensemble with a changed object.
    pub(crate) fn follow(
        &self,
        client: &Client,
        namespace: Option<&str>,
        cert_manager: bool,
    ) -> SelectAll<BoxStream<'static, Key>> {
        let sets = follow(&self.sets, api(client, namespace), Needed::Yes);
        let pods = follow(&self.pods, api(client, namespace), Needed::Yes);
        let maps = follow(&self.maps, api(client, namespace), Needed::Yes);
        let services = follow(&self.services, api(client, namespace), Needed::Yes);
        let budgets = follow(&self.budgets, api(client, namespace), Needed::Yes);
        let claims = follow(&self.claims, api(client, namespace), Needed::Yes);
        let policies = follow(&self.policies, api(client, namespace), Needed::No);
        let certificates = match cert_manager {
            true => follow(&self.certificates, api(client, namespace), Needed::No),
            false => {
                self.certificates.listed.send_replace(true);
                stream::empty().boxed()
            }
        };
        let all = [
            sets,
            pods,
            maps,
            services,
            budgets,
            claims,
            policies,
            certificates,
        ];
        stream::select_all(all)
    }

    /// Completes when every kind has been listed once. Before that, objects that exist seem to be missing.
    pub(crate) async fn listed(&self) {
        self.sets.listed().await;
        self.pods.listed().await;
        self.maps.listed().await;
        self.services.listed().await;
        self.budgets.listed().await;
        self.claims.listed().await;
        self.policies.listed().await;
        self.certificates.listed().await;
    }

    /// The objects of one ensemble, and their version.
    pub(crate) fn objects(&self, ensemble: ZooKeeperEnsemble, key: &Key) -> (Objects, Version) {
        let (sets, a) = self.sets.of(key);
        let (pods, b) = self.pods.of(key);
        let (maps, c) = self.maps.of(key);
        let (services, d) = self.services.of(key);
        let (budgets, e) = self.budgets.of(key);
        let (claims, f) = self.claims.of(key);
        let (policies, g) = self.policies.of(key);
        let (certificates, h) = self.certificates.of(key);
        let objects = Objects {
            ensemble,
            sets,
            pods,
            maps,
            services,
            budgets,
            claims,
            policies,
            certificates,
        };
        (objects, Version([a, b, c, d, e, f, g, h]))
    }

    /// The version of the objects of one ensemble.
    pub(crate) fn version(&self, key: &Key) -> Version {
        Version([
            self.sets.version(key),
            self.pods.version(key),
            self.maps.version(key),
            self.services.version(key),
            self.budgets.version(key),
            self.claims.version(key),
            self.policies.version(key),
            self.certificates.version(key),
        ])
    }
}

/// The objects of one kind, by the ensemble that they belong to.
struct Store<K> {
    state: Mutex<State>,
    /// Becomes true with the first complete list.
    listed: watch::Sender<bool>,
    kind: PhantomData<fn() -> K>,
}

#[derive(Default)]
struct State {
    groups: HashMap<Key, Group>,
    /// What a list that is under way has shown so far.
    listing: Option<HashMap<Key, Packed>>,
    /// How many changes there were.
    changes: u64,
}

/// The objects of one ensemble.
struct Group {
    /// The number of the last change.
    version: u64,
    objects: Packed,
}

/// Objects of one ensemble by name.
type Packed = BTreeMap<String, Text>;

/// An object as JSON, which takes a third of the memory of its type. An ensemble at rest is read from it every few
/// minutes.
#[derive(PartialEq)]
struct Text(Box<[u8]>);

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            listed: watch::Sender::new(false),
            kind: PhantomData,
        }
    }
}

impl<K: Resource + Serialize + DeserializeOwned> Store<K> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn listed(&self) {
        // An error means that the store is dropped, and nobody waits for it then.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    fn of(&self, key: &Key) -> (Vec<K>, u64) {
        let state = self.state();
        let group = state.groups.get(key);
        group.map_or((Vec::new(), 0), |group| {
            let objects = group.objects.values().filter_map(Text::read);
            (objects.collect(), group.version)
        })
    }

    fn version(&self, key: &Key) -> u64 {
        self.state().groups.get(key).map_or(0, |g| g.version)
    }

    /// Applies an event of a watch. Returns the ensembles whose objects changed.
    fn learn(&self, event: Event<K>) -> Vec<Key> {
        let mut state = self.state();
        match event {
            Event::Init => {
                state.listing = Some(HashMap::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                if let (Some(key), Some(listing)) = (key(&object), &mut state.listing) {
                    let group = listing.entry(key).or_default();
                    group.insert(object.name_any(), Text::of(&object));
                }
                Vec::new()
            }
            Event::InitDone => {
                let listing = state.listing.take().unwrap_or_default();
                let changed = state.replace(listing);
                self.listed.send_replace(true);
                changed
            }
            Event::Apply(object) => {
                let Some(key) = key(&object) else {
                    return Vec::new();
                };
                let mut objects = state.objects(&key);
                objects.insert(object.name_any(), Text::of(&object));
                state.change(key.clone(), objects);
                vec![key]
            }
            Event::Delete(object) => {
                let Some(key) = key(&object) else {
                    return Vec::new();
                };
                let mut objects = state.objects(&key);
                objects.remove(&object.name_any());
                state.change(key.clone(), objects);
                vec![key]
            }
        }
    }
}

impl State {
    /// Removes and returns the objects of an ensemble.
    fn objects(&mut self, key: &Key) -> Packed {
        let group = self.groups.remove(key);
        group.map(|group| group.objects).unwrap_or_default()
    }

    /// Stores the objects of an ensemble under a new version.
    fn change(&mut self, key: Key, objects: Packed) {
        self.changes += 1;
        self.groups.remove(&key);
        if !objects.is_empty() {
            let version = self.changes;
            self.groups.insert(key, Group { version, objects });
        }
    }

    /// Replaces all objects with those of a list. Returns the ensembles whose objects differ from before.
    fn replace(&mut self, mut listing: HashMap<Key, Packed>) -> Vec<Key> {
        let keys: BTreeSet<Key> = self.groups.keys().chain(listing.keys()).cloned().collect();
        let mut changed = Vec::new();
        for key in keys {
            let objects = listing.remove(&key).unwrap_or_default();
            let known = self.groups.get(&key).map(|group| &group.objects);
            if known != Some(&objects) {
                self.change(key.clone(), objects);
                changed.push(key);
            }
        }
        changed
    }
}

impl Text {
    fn of(object: &impl Serialize) -> Self {
        // Types of the API always have a text. Without one the object would seem to be missing, which leads to a
        // fresh read.
        Self(serde_json::to_vec(object).unwrap_or_default().into())
    }

    fn read<K: DeserializeOwned>(&self) -> Option<K> {
        serde_json::from_slice(&self.0).ok()
    }
}

/// The ensemble that an object belongs to, if it carries all labels that its objects carry.
fn key<K: Resource>(object: &K) -> Option<Key> {
    let found = object.labels();
    let name = found.get(labels::INSTANCE)?;
    let all = labels::selector(name);
    let carries = all.iter().all(|(key, value)| found.get(key) == Some(value));
    carries.then(|| Some((object.namespace()?, name.clone())))?
}

/// Whether ensembles can be worked on only with the objects of a kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needed {
    Yes,
    /// Where the operator has no right to list them, or the cluster has no such kind, they count as listed.
    No,
}

fn is_withheld(error: &watcher::Error) -> bool {
    use watcher::Error::InitialListFailed;
    matches!(error, InitialListFailed(kube::Error::Api(status)) if [403, 404].contains(&status.code))
}

/// Follows one kind.
fn follow<K>(store: &Arc<Store<K>>, api: Api<K>, needed: Needed) -> BoxStream<'static, Key>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Trim
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (name, by) = (labels::NAME_VALUE, labels::MANAGED_BY_VALUE);
    let selector = format!("{}={name},{}={by}", labels::NAME, labels::MANAGED_BY);
    let store = store.clone();
    let config = watcher::Config::default().labels(&selector);
    watcher(api, config.page_size(PAGE))
        .default_backoff()
        .modify(Trim::trim)
        .flat_map(move |event| {
            let changed = event.map(|event| store.learn(event));
            let changed = changed.unwrap_or_else(|error| {
                let kind = K::kind(&());
                if needed == Needed::No && is_withheld(&error) {
                    store.listed.send_replace(true);
                }
                tracing::debug!(%kind, %error, "the watch of objects of ensembles begins again");
                Vec::new()
            });
            stream::iter(changed)
        })
        .boxed()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bellwether_api_server::{ApiServer, Before, Call, Faults, Kind, Then};
    use futures::FutureExt as _;
    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::*;

    fn pod(ensemble: &str, name: &str, version: &str) -> Pod {
        let labels: Value = json!(labels::selector(ensemble));
        let pod = json!({ "metadata": {
            "name": name, "namespace": "default", "labels": labels, "uid": name, "resourceVersion": version,
        } });
        serde_json::from_value(pod).unwrap()
    }

    fn of(ensemble: &str) -> Key {
        ("default".to_owned(), ensemble.to_owned())
    }

    fn names(store: &Store<Pod>, ensemble: &str) -> Vec<String> {
        let (pods, _) = store.of(&of(ensemble));
        pods.iter().map(|pod| pod.name_any()).collect()
    }

    fn listed(pods: Vec<Pod>) -> Store<Pod> {
        let store = Store::default();
        list(&store, pods);
        store
    }

    fn list(store: &Store<Pod>, pods: Vec<Pod>) -> Vec<Key> {
        store.learn(Event::Init);
        for pod in pods {
            store.learn(Event::InitApply(pod));
        }
        store.learn(Event::InitDone)
    }

    #[test]
    fn objects_are_found_by_their_ensemble_and_every_change_has_a_new_version() {
        let store = listed(vec![pod("a", "a-0", "1"), pod("b", "b-0", "1")]);
        assert_eq!(names(&store, "a"), ["a-0"]);
        let (before, other) = (store.version(&of("a")), store.version(&of("b")));
        assert_eq!(store.learn(Event::Apply(pod("a", "a-1", "2"))), [of("a")]);
        assert_eq!(names(&store, "a"), ["a-0", "a-1"]);
        let grown = store.version(&of("a"));
        assert_ne!(grown, before);
        assert_eq!(store.version(&of("b")), other);
        assert_eq!(store.learn(Event::Delete(pod("a", "a-1", "3"))), [of("a")]);
        assert_eq!(names(&store, "a"), ["a-0"]);
        assert!(store.version(&of("a")) > grown);
    }

    #[test]
    fn a_list_replaces_what_was_known_only_when_it_is_complete() {
        let store = listed(vec![pod("a", "a-0", "1"), pod("b", "b-0", "1")]);
        let (same, gone) = (store.version(&of("b")), store.version(&of("a")));
        store.learn(Event::Init);
        store.learn(Event::InitApply(pod("b", "b-0", "1")));
        assert_eq!(names(&store, "a"), ["a-0"]);
        assert_eq!(store.learn(Event::InitDone), [of("a")]);
        assert_eq!(names(&store, "a"), Vec::<String>::new());
        assert_ne!(store.version(&of("a")), gone);
        assert_eq!(store.version(&of("b")), same);
    }

    #[test]
    fn before_the_first_list_is_complete_nothing_is_known() {
        let store = Store::default();
        assert_eq!(store.listed().now_or_never(), None);
        store.learn(Event::Init);
        store.learn(Event::InitApply(pod("a", "a-0", "1")));
        assert_eq!(store.listed().now_or_never(), None);
        list(&store, Vec::new());
        assert_eq!(store.listed().now_or_never(), Some(()));
    }

    #[test]
    fn an_object_of_something_else_belongs_to_no_ensemble() {
        let mut other = pod("a", "a-0", "1");
        other.labels_mut().remove(labels::NAME);
        let store = listed(vec![other.clone()]);
        assert_eq!(names(&store, "a"), Vec::<String>::new());
        assert!(store.learn(Event::Apply(other)).is_empty());
    }

    /// Refuses one kind.
    struct Forbids(Kind);

    impl Faults for Forbids {
        fn before(&mut self, call: &Call) -> Before {
            let then = match call.kind == self.0 {
                true => Then::Forbid,
                false => Then::CarryOut,
            };
            Before {
                then,
                ..Before::default()
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn policies_that_may_not_be_listed_hold_nothing_up() {
        let listed = async |forbidden| {
            let server = ApiServer::new(1, 1);
            server.set_faults(Forbids(forbidden));
            let stores = Stores::default();
            let changes = stores.follow(&server.client("test"), None, false);
            tokio::select! {
                () = stores.listed() => true,
                () = changes.for_each(|_| async {}) => false,
                () = sleep(Duration::from_secs(60)) => false,
            }
        };
        assert!(listed(Kind::NETWORK_POLICY).await);
        assert!(!listed(Kind::POD).await, "pods are needed");
    }
}
