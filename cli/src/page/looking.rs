//! Watches that are open while a browser shows the page, and some seconds longer. At other times
//! nothing is kept, and no request is sent.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use bellwether_api::{LeaderElection, ZooKeeperEnsemble, labels};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::store::{Key, Listed, Store, Trouble};
use crate::view::election::ElectionRow;
use crate::view::ensemble::PodFacts;
use bellwether::scoped::api;

/// How many pages may be open on one replica.
const VIEWERS: usize = 32;
/// For how long watches stay open after the last page was closed: who reloads need not wait for all the
/// lists again.
const LINGER: Duration = Duration::from_secs(30);
/// How long after a failure everything is read again.
const RETRY: Duration = Duration::from_secs(3);
/// How often the API server is asked for one object, since a watch whose peer vanished reports nothing.
const PROBE: Duration = Duration::from_secs(5);
/// How many objects one answer of the API server lists at most.
const PAGE: u32 = 100;

/// What pages look through.
#[derive(Clone)]
pub(super) struct Window {
    client: Client,
    /// Where the operator works; one `None` is everywhere.
    namespaces: Arc<Vec<Option<String>>>,
    room: Arc<Semaphore>,
    linger: Duration,
    running: Arc<Mutex<Option<Arc<Shared>>>>,
}

/// What the watches fill and the pages read.
pub(super) struct Shared {
    store: RwLock<Store>,
    changed: watch::Sender<()>,
}

/// One page that is open.
pub(super) struct Viewer {
    shared: Arc<Shared>,
    /// Tells of changes.
    pub changes: watch::Receiver<()>,
    _room: OwnedSemaphorePermit,
}

impl Viewer {
    /// Reads what is known.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Store) -> T) -> T {
        self.shared.read(read)
    }
}

impl Shared {
    fn read<T>(&self, read: impl FnOnce(&Store) -> T) -> T {
        read(&self.store.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self) -> RwLockWriteGuard<'_, Store> {
        self.store.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Store)) {
        change(&mut self.write());
        self.changed.send_replace(());
    }
}

impl Window {
    /// No request is sent before a page is opened.
    pub(super) fn new(client: Client, namespaces: Vec<Option<String>>) -> Self {
        Self {
            client,
            namespaces: Arc::new(namespaces),
            room: Arc::new(Semaphore::new(VIEWERS)),
            linger: LINGER,
            running: Arc::default(),
        }
    }

    /// The same with another time for which watches stay open.
    #[cfg(test)]
    pub(super) fn lingering(self, linger: Duration) -> Self {
        Self { linger, ..self }
    }

    /// Begins to look; `None` if too many do.
    pub(super) fn look(&self) -> Option<Viewer> {
        let room = self.room.clone().try_acquire_owned().ok()?;
        let mut running = self.running();
        let shared = running.get_or_insert_with(|| self.open()).clone();
        Some(Viewer {
            changes: shared.changed.subscribe(),
            shared,
            _room: room,
        })
    }

    fn running(&self) -> MutexGuard<'_, Option<Arc<Shared>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Arc<Shared> {
        let mut store = Store::default();
        let mut watches = Vec::new();
        for namespace in self.namespaces.iter() {
            for follow in [
                start::<ZooKeeperEnsemble>,
                start::<Pod>,
                start::<LeaderElection>,
            ] {
                watches.push((follow, namespace.clone()));
            }
            store.loading.extend([
                source::<ZooKeeperEnsemble>(namespace.as_deref()),
                source::<Pod>(namespace.as_deref()),
                source::<LeaderElection>(namespace.as_deref()),
            ]);
        }
        let shared = Arc::new(Shared {
            store: RwLock::new(store),
            changed: watch::Sender::new(()),
        });
        let (window, kept) = (self.clone(), shared.clone());
        tokio::spawn(async move {
            // All of them end when the set is dropped.
            let mut tasks = JoinSet::new();
            for (follow, namespace) in watches {
                follow(&mut tasks, window.client.clone(), kept.clone(), namespace);
            }
            let namespace = window.namespaces.first().cloned().flatten();
            tasks.spawn(probe(window.client.clone(), kept.clone(), namespace));
            tracing::debug!("somebody looks at the page");
            loop {
                kept.changed.closed().await;
                tokio::time::sleep(window.linger).await;
                // While this lock is held, no page can begin to look.
                let mut running = window.running();
                if kept.changed.is_closed() {
                    *running = None;
                    tracing::debug!("nobody looks at the page any more");
                    return;
                }
            }
        });
        shared
    }
}

/// A kind that is watched, and what is kept of it.
trait Kept: Resource<Scope = NamespaceResourceScope, DynamicType = ()> {
    /// What is kept of an object.
    type Row;
    /// Which of them are asked for.
    fn selector() -> Option<String> {
        None
    }
    /// Takes what is kept.
    fn row(self) -> Self::Row;
    /// Where it is kept.
    fn table(store: &mut Store) -> &mut BTreeMap<Key, Self::Row>;
}

impl Kept for ZooKeeperEnsemble {
    type Row = Self;
    fn row(mut self) -> Self {
        self.metadata.managed_fields = None;
        self
    }
    fn table(store: &mut Store) -> &mut BTreeMap<Key, Self> {
        &mut store.ensembles
    }
}

impl Kept for Pod {
    type Row = PodFacts;
    fn selector() -> Option<String> {
        let (name, manager) = (labels::NAME_VALUE, labels::MANAGED_BY_VALUE);
        Some(format!(
            "{}={name},{}={manager}",
            labels::NAME,
            labels::MANAGED_BY
        ))
    }
    fn row(self) -> PodFacts {
        PodFacts::of(&self)
    }
    fn table(store: &mut Store) -> &mut BTreeMap<Key, PodFacts> {
        &mut store.pods
    }
}

impl Kept for LeaderElection {
    type Row = Listed;
    fn row(self) -> Listed {
        Listed {
            row: ElectionRow::of(&self),
            version: self.resource_version().unwrap_or_default(),
        }
    }
    fn table(store: &mut Store) -> &mut BTreeMap<Key, Listed> {
        &mut store.elections
    }
}

/// What a watch is called in messages.
fn source<K: Kept>(namespace: Option<&str>) -> String {
    let kind = K::plural(&());
    match namespace {
        Some(namespace) => format!("{kind} in {namespace}"),
        None => kind.into_owned(),
    }
}

fn start<K>(tasks: &mut JoinSet<()>, client: Client, shared: Arc<Shared>, namespace: Option<String>)
where
    K: Kept + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    tasks.spawn(async move {
        let source = source::<K>(namespace.as_deref());
        // After a failure all is read again, so that a store without trouble is current.
        loop {
            let error = follow::<K>(&client, &shared, namespace.as_deref(), &source).await;
            let message = format!("{source} cannot be watched: {error}");
            fail(&shared, source.clone(), message);
            tokio::time::sleep(RETRY).await;
        }
    });
}

/// Follows one kind until something goes wrong, and says what.
async fn follow<K>(
    client: &Client,
    shared: &Shared,
    namespace: Option<&str>,
    source: &str,
) -> String
where
    K: Kept + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut config = watcher::Config::default().page_size(PAGE);
    config.label_selector = K::selector();
    // One object that cannot be read does not hide the others.
    let api: Api<DeserializeGuard<K>> = api(client, namespace);
    let mut events = std::pin::pin!(watcher(api, config));
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        let key = |object: &DeserializeGuard<K>| {
            (object.namespace().unwrap_or_default(), object.name_any())
        };
        match event {
            Err(error) => return error.to_string(),
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                let key = key(&object);
                listed.insert(key.clone());
                // Pages are notified when the list is complete.
                keep(&mut shared.write(), key, object.0.ok());
            }
            Ok(watcher::Event::InitDone) => {
                let listed = std::mem::take(&mut listed);
                let here = |key: &Key| namespace.is_none_or(|namespace| namespace == key.0);
                shared.change(|store| {
                    K::table(store).retain(|key, _| !here(key) || listed.contains(key));
                    store.loading.remove(source);
                    store.troubles.remove(source);
                });
            }
            Ok(watcher::Event::Apply(object)) => {
                shared.change(|store| keep(store, key(&object), object.0.ok()));
            }
            Ok(watcher::Event::Delete(object)) => {
                shared.change(|store| keep::<K>(store, key(&object), None));
            }
        }
    }
    "the watch ended".to_owned()
}

fn keep<K: Kept>(store: &mut Store, key: Key, object: Option<K>) {
    match object {
        Some(object) => K::table(store).insert(key, object.row()),
        None => K::table(store).remove(&key),
    };
}

/// Asks for one ensemble now and then.
async fn probe(client: Client, shared: Arc<Shared>, namespace: Option<String>) {
    const NAME: &str = "probe";
    let api: Api<ZooKeeperEnsemble> = api(&client, namespace.as_deref());
    loop {
        let one = ListParams::default().limit(1);
        let failure = match tokio::time::timeout(PROBE, api.list_metadata(&one)).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {} s", PROBE.as_secs())),
        };
        match failure {
            Some(why) => fail(
                &shared,
                NAME.to_owned(),
                format!("the API server cannot be asked: {why}"),
            ),
            None if shared.read(|store| store.troubles.contains_key(NAME)) => {
                shared.change(|store| drop(store.troubles.remove(NAME)));
            }
            None => {}
        }
        tokio::time::sleep(PROBE).await;
    }
}

/// Remembers since when something does not work.
fn fail(shared: &Shared, what: String, message: String) {
    shared.change(|store| {
        let since = Timestamp::now().to_string();
        let trouble = store.troubles.entry(what).or_insert_with(|| Trouble {
            since,
            message: String::new(),
        });
        trouble.message = message;
    });
}
