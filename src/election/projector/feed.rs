//! The watches of the projector: pods, labelled pods, and what elections are projected to.
//!
//! Only the fields that the projector needs are kept, not whole objects: a cluster has many pods.

use std::fmt;

use bellwether_api::labels::{ELECTION_UID, ROLE_LABELLED};
use bellwether_election::projection::PodFacts;
use futures::{Stream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::super::registry::Task;
use super::super::{Key, Scope};
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

/// An event of a watch.
#[derive(Debug)]
pub(super) enum WatchEvent<T> {
    /// A list begins.
    ListStarted,
    /// This object exists.
    Applied(T),
    /// The list is complete: what it did not contain does not exist.
    ListFinished,
    /// This object was deleted.
    Deleted(T),
    /// The watch does not work for now.
    Failed {
        /// Whether the operator may not watch.
        forbidden: bool,
        /// The API server's answer.
        message: String,
    },
}

/// An event of one of the watches.
#[derive(Debug)]
pub(super) enum Observation {
    /// An object that belongs to an election.
    OwnedObject(Kind, WatchEvent<Box<ObjectMeta>>),
    /// A pod that an election labelled.
    LabelledPod(WatchEvent<Box<ObjectMeta>>),
    /// The workload that the election of this name rolls out may have changed.
    Workload(Key),
    /// A pod of the watch with this number; a pod that terminated counts as deleted.
    Pod(u64, WatchEvent<Box<PodFacts>>),
    /// The name of a node that is cordoned; one that is not any more counts as deleted.
    CordonedNode(WatchEvent<String>),
    /// The leader of the election of this name answered, or did not in time.
    Answered(Key),
}

/// Watches everything that elections are projected to, by its metadata.
pub(super) fn projected(
    client: &Client,
    scope: &Scope,
    observations: &mpsc::Sender<Observation>,
) -> Vec<Task> {
    vec![
        owned::<Lease>(client, scope, Kind::Lease, observations),
        owned::<Service>(client, scope, Kind::Service, observations),
        owned::<EndpointSlice>(client, scope, Kind::EndpointSlice, observations),
        follow(
            "labelled pods",
            metadata::<Pod>(client, scope, ROLE_LABELLED),
            observations,
            Box::new,
            Observation::LabelledPod,
        ),
    ]
}

/// Watches the nodes that are cordoned.
pub(super) fn cordoned_nodes(client: &Client, observations: &mpsc::Sender<Observation>) -> Task {
    let nodes = kube::Api::<PartialObjectMeta<Node>>::all(client.clone());
    let config = watcher::Config::default().fields("spec.unschedulable=true");
    follow(
        "cordoned nodes",
        meta(watcher(nodes, config).default_backoff()),
        observations,
        |meta| meta.name.unwrap_or_default(),
        Observation::CordonedNode,
    )
}

fn owned<K>(
    client: &Client,
    scope: &Scope,
    kind: Kind,
    observations: &mpsc::Sender<Observation>,
) -> Task
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    follow(
        "projected objects",
        metadata::<K>(client, scope, ELECTION_UID),
        observations,
        |mut meta| {
            meta.managed_fields = None;
            Box::new(meta)
        },
        move |event| Observation::OwnedObject(kind, event),
    )
}

/// Watches the pods of a namespace that a selector allows.
pub(super) fn pods(
    client: &Client,
    namespace: &str,
    selector: &str,
    pod_watch: u64,
    observations: &mpsc::Sender<Observation>,
) -> Task {
    let api = kube::Api::<Pod>::namespaced(client.clone(), namespace);
    let pods = watcher(api, watcher::Config::default().labels(selector)).default_backoff();
    let wrap = move |event| Observation::Pod(pod_watch, event);
    let observations = observations.clone();
    let task = async move {
        let mut pods = pods.boxed();
        while let Some(event) = pods.next().await {
            let event = match event {
                Ok(Event::Init) => WatchEvent::ListStarted,
                Ok(Event::InitDone) => WatchEvent::ListFinished,
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => match PodFacts::from_pod(&pod) {
                    Some(facts) => WatchEvent::Applied(Box::new(facts)),
                    None => WatchEvent::Deleted(named(&pod)),
                },
                Ok(Event::Delete(pod)) => WatchEvent::Deleted(named(&pod)),
                Err(error) => failed("pods", &error),
            };
            if observations.send(wrap(event)).await.is_err() {
                return;
            }
        }
    };
    Task(tokio::spawn(task).abort_handle())
}

fn named(pod: &Pod) -> Box<PodFacts> {
    Box::new(PodFacts {
        name: pod.name_any(),
        ..PodFacts::default()
    })
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
    let api = api::<PartialObjectMeta<K>>(client, scope.namespace.as_deref());
    meta(watcher(api, config).default_backoff())
}

/// The metadata alone.
fn meta<K>(
    events: impl Stream<Item = watcher::Result<Event<PartialObjectMeta<K>>>>,
) -> impl Stream<Item = watcher::Result<Event<ObjectMeta>>> {
    events.map(|event| {
        event.map(|event| match event {
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
            Event::Apply(object) => Event::Apply(object.metadata),
            Event::InitApply(object) => Event::InitApply(object.metadata),
            Event::Delete(object) => Event::Delete(object.metadata),
        })
    })
}

/// Sends the events of a stream of metadata until the receiver is dropped.
fn follow<T: Send + 'static>(
    what: &'static str,
    stream: impl Stream<Item = watcher::Result<Event<ObjectMeta>>> + Send + 'static,
    observations: &mpsc::Sender<Observation>,
    read: impl Fn(ObjectMeta) -> T + Send + 'static,
    wrap: impl Fn(WatchEvent<T>) -> Observation + Send + 'static,
) -> Task {
    let observations = observations.clone();
    let task = async move {
        let mut stream = Box::pin(stream);
        while let Some(event) = stream.next().await {
            let event = match event {
                Ok(Event::Init) => WatchEvent::ListStarted,
                Ok(Event::InitDone) => WatchEvent::ListFinished,
                Ok(Event::Apply(meta) | Event::InitApply(meta)) => WatchEvent::Applied(read(meta)),
                Ok(Event::Delete(meta)) => WatchEvent::Deleted(read(meta)),
                Err(error) => failed(what, &error),
            };
            if observations.send(wrap(event)).await.is_err() {
                return;
            }
        }
    };
    Task(tokio::spawn(task).abort_handle())
}

fn failed<T>(what: &str, error: &watcher::Error) -> WatchEvent<T> {
    let cause = match error {
        watcher::Error::InitialListFailed(cause) | watcher::Error::WatchStartFailed(cause) => {
            Some(cause)
        }
        _ => None,
    };
    let forbidden = matches!(cause, Some(kube::Error::Api(status)) if status.code == 403);
    if forbidden {
        // Installations without projections do not grant this right.
        debug!(what, %error, "not allowed to watch");
    } else {
        warn!(what, %error, "a watch failed");
    }
    WatchEvent::Failed {
        forbidden,
        message: error.to_string(),
    }
}
