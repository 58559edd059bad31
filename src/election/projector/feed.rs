//! The watches of the projector: pods, labelled pods, and what elections are projected to.
//!
//! Only facts come in, not whole objects: a cluster has many pods.

use std::fmt;

use bellwether_api::labels::{ELECTION_UID, ROLE_LABELLED};
use bellwether_election::projection::PodFacts;
use futures::{Stream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::super::Scope;
use super::super::registry::Task;
use crate::scoped::api;

/// A kind of object that elections are projected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Lease,
    Service,
    EndpointSlice,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What a watch tells.
#[derive(Debug)]
pub(super) enum News<T> {
    /// A list begins.
    Listing,
    /// This is there.
    Is(T),
    /// The list is complete: what it did not tell is not there.
    Listed,
    /// This is gone.
    Gone(T),
    /// The watch does not work for now.
    Failed {
        /// Whether the operator may not watch.
        forbidden: bool,
        /// What the API server says.
        message: String,
    },
}

/// News from one of the watches.
#[derive(Debug)]
pub(super) enum Fact {
    /// About an object that belongs to some election.
    Owned(Kind, News<Box<ObjectMeta>>),
    /// About a pod that some election labelled.
    Labelled(News<Box<ObjectMeta>>),
    /// About a pod of the roster with this number; a pod that came to its end is gone.
    Pod(u64, News<PodFacts>),
}

/// Watches everything that elections are projected to, by its metadata.
pub(super) fn projected(client: &Client, scope: &Scope, facts: &mpsc::Sender<Fact>) -> Vec<Task> {
    vec![
        owned::<Lease>(client, scope, Kind::Lease, facts),
        owned::<Service>(client, scope, Kind::Service, facts),
        owned::<EndpointSlice>(client, scope, Kind::EndpointSlice, facts),
        follow(
            "labelled pods",
            metadata::<Pod>(client, scope, ROLE_LABELLED),
            facts,
            Box::new,
            Fact::Labelled,
        ),
    ]
}

fn owned<K>(client: &Client, scope: &Scope, kind: Kind, facts: &mpsc::Sender<Fact>) -> Task
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    follow(
        "projected objects",
        metadata::<K>(client, scope, ELECTION_UID),
        facts,
        |mut meta| {
            meta.managed_fields = None;
            Box::new(meta)
        },
        move |news| Fact::Owned(kind, news),
    )
}

/// Watches the pods of a namespace that a selector allows.
pub(super) fn pods(
    client: &Client,
    namespace: &str,
    selector: &str,
    roster: u64,
    facts: &mpsc::Sender<Fact>,
) -> Task {
    let api = kube::Api::<Pod>::namespaced(client.clone(), namespace);
    let pods = watcher(api, watcher::Config::default().labels(selector)).default_backoff();
    let wrap = move |news| Fact::Pod(roster, news);
    let facts = facts.clone();
    let task = async move {
        let mut pods = pods.boxed();
        while let Some(event) = pods.next().await {
            let news = match event {
                Ok(Event::Init) => News::Listing,
                Ok(Event::InitDone) => News::Listed,
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => match PodFacts::of(&pod) {
                    Some(facts) => News::Is(facts),
                    None => News::Gone(named(&pod)),
                },
                Ok(Event::Delete(pod)) => News::Gone(named(&pod)),
                Err(error) => failed("pods", &error),
            };
            if facts.send(wrap(news)).await.is_err() {
                return;
            }
        }
    };
    Task(tokio::spawn(task).abort_handle())
}

fn named(pod: &Pod) -> PodFacts {
    PodFacts {
        name: pod.name_any(),
        ..PodFacts::default()
    }
}

fn metadata<K>(
    client: &Client,
    scope: &Scope,
    label: &str,
) -> impl Stream<Item = watcher::Result<Event<ObjectMeta>>> + use<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    let config = watcher::Config::default().labels(label);
    watcher(
        api::<PartialObjectMeta<K>>(client, scope.namespace.as_deref()),
        config,
    )
    .default_backoff()
    .map(|event| {
        event.map(|event| match event {
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
            Event::Apply(object) => Event::Apply(object.metadata),
            Event::InitApply(object) => Event::InitApply(object.metadata),
            Event::Delete(object) => Event::Delete(object.metadata),
        })
    })
}

/// Tells what a stream of metadata tells, until nobody listens.
fn follow<T: Send + 'static>(
    what: &'static str,
    stream: impl Stream<Item = watcher::Result<Event<ObjectMeta>>> + Send + 'static,
    facts: &mpsc::Sender<Fact>,
    read: impl Fn(ObjectMeta) -> T + Send + 'static,
    wrap: impl Fn(News<T>) -> Fact + Send + 'static,
) -> Task {
    let facts = facts.clone();
    let task = async move {
        let mut stream = Box::pin(stream);
        while let Some(event) = stream.next().await {
            let news = match event {
                Ok(Event::Init) => News::Listing,
                Ok(Event::InitDone) => News::Listed,
                Ok(Event::Apply(meta) | Event::InitApply(meta)) => News::Is(read(meta)),
                Ok(Event::Delete(meta)) => News::Gone(read(meta)),
                Err(error) => failed(what, &error),
            };
            if facts.send(wrap(news)).await.is_err() {
                return;
            }
        }
    };
    Task(tokio::spawn(task).abort_handle())
}

fn failed<T>(what: &str, error: &watcher::Error) -> News<T> {
    let cause = match error {
        watcher::Error::InitialListFailed(cause) | watcher::Error::WatchStartFailed(cause) => {
            Some(cause)
        }
        _ => None,
    };
    let forbidden = matches!(cause, Some(kube::Error::Api(status)) if status.code == 403);
    if forbidden {
        // Whoever uses no projection need not grant it.
        debug!(what, %error, "not allowed to watch");
    } else {
        warn!(what, %error, "a watch failed");
    }
    News::Failed {
        forbidden,
        message: error.to_string(),
    }
}
