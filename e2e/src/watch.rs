//! A kind of object in one namespace, kept current by a watch, with its history.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

/// How long a watch waits after an error before it asks again.
const PAUSE: Duration = Duration::from_millis(500);

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Event {
    /// When it arrived.
    pub at: SystemTime,
    /// Whether this event is the deletion of the object.
    pub deleted: bool,
    /// The object after it.
    pub object: Value,
}

impl Event {
    /// The object's name.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The object's uid.
    pub fn uid(&self) -> &str {
        self.object["metadata"]["uid"].as_str().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Value>,
    history: Vec<Event>,
}

impl State {
    fn note(&mut self, object: &DynamicObject, deleted: bool) {
        let Ok(value) = serde_json::to_value(object) else {
            return;
        };
        self.record(object.name_any(), value, deleted);
    }

    fn record(&mut self, name: String, object: Value, deleted: bool) {
        if deleted {
            self.objects.remove(&name);
        } else {
            self.objects.insert(name, object.clone());
        }
        self.history.push(Event {
            at: SystemTime::now(),
            deleted,
            object,
        });
    }

    /// After the watch began again with a list: what is not in it was deleted in between.
    fn forget_all_but(&mut self, listed: &BTreeSet<String>) {
        let names = self.objects.keys().filter(|name| !listed.contains(*name));
        for name in names.cloned().collect::<Vec<_>>() {
            let object = self.objects.get(&name).cloned().unwrap_or_default();
            self.record(name, object, true);
        }
    }
}

/// A running watch; it ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    state: Arc<Mutex<State>>,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All watches of this process share a connection to the API server.
fn connection() -> Result<&'static (Runtime, Client)> {
    static CONNECTION: OnceLock<Result<(Runtime, Client), String>> = OnceLock::new();
    let connect = || -> Result<(Runtime, Client)> {
        let runtime = Runtime::new().context("starting the runtime of the watches")?;
        let client = runtime
            .block_on(Client::try_default())
            .context("reading how to reach the API server")?;
        Ok((runtime, client))
    };
    CONNECTION
        .get_or_init(|| connect().map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|error| anyhow::anyhow!("{error}"))
}

impl Watch {
    /// Watches all objects of a kind in a namespace.
    ///
    /// # Errors
    /// When the environment does not say how to reach the API server.
    pub fn start<K>(namespace: &str) -> Result<Self>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let (runtime, client) = connection()?;
        let kind = ApiResource::erase::<K>(&());
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &kind);
        let state = Arc::new(Mutex::new(State::default()));
        let task = runtime.spawn(follow(api, Arc::clone(&state)));
        Ok(Self {
            state,
            task: task.abort_handle(),
        })
    }

    /// An object as last seen.
    pub fn get(&self, name: &str) -> Option<Value> {
        lock(&self.state).objects.get(name).cloned()
    }

    /// All objects as last seen.
    pub fn all(&self) -> Vec<Value> {
        lock(&self.state).objects.values().cloned().collect()
    }

    /// Every change so far.
    pub fn history(&self) -> Vec<Event> {
        lock(&self.state).history.clone()
    }
}

async fn follow(api: Api<DynamicObject>, state: Arc<Mutex<State>>) {
    let mut changes = pin!(watcher(api, watcher::Config::default()));
    let mut listed = BTreeSet::new();
    while let Some(change) = changes.next().await {
        match change {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                listed.insert(object.name_any());
                lock(&state).note(&object, false);
            }
            Ok(watcher::Event::InitDone) => lock(&state).forget_all_but(&listed),
            Ok(watcher::Event::Apply(object)) => lock(&state).note(&object, false),
            Ok(watcher::Event::Delete(object)) => lock(&state).note(&object, true),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
