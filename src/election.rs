//! The mirror of elections: znodes in, `LeaderElection` statuses out.
//!
//! ```text
//! LeaderElections, ensembles --watch--> registry --one session for each ensemble--> session
//!                                          |                                           | Link
//!                                          +--one task for each election--> mirror <---+
//!                                                                             | Sight
//!                                      API server <--status, events-- writer with statuses
//!                                                                       | status ^
//!                                                                       v        | what became of it
//!                      API server <--Lease, Service, labels of pods-- projector--+
//! ```
//!
//! * [`registry`] knows which elections and ensembles there are and starts and stops the others.
//! * [`zookeepers`] is what is asked of ZooKeeper, over the network or in the simulation.
//! * [`session`] keeps one ZooKeeper session for each ensemble or connection and reports when it is up or
//!   down; [`relay`] stands between it and the servers and keeps them within limits; [`credentials`] reads
//!   the Secrets that a connection names. It connects only where the administrator allows it.
//! * [`bridge`] acts for the bridge of an election that moves to a Lease, and is the only part that writes in ZooKeeper.
//! * [`budget`] is what the elections of one session may have in memory together.
//! * [`census`] asks the members from where anonymous candidates are connected.
//! * [`mirror`] follows one election: it reads whenever a watch fired, and reports what it sees.
//! * [`sighting`] is when the leader was last read: a Lease is renewed, and a Service keeps its address,
//!   only for as long as that may be believed.
//! * [`supervise`] restarts a mirror or a session that panicked.
//! * [`read`] does one read: it sets the watches together with the reads that they belong to.
//! * [`statuses`] keeps what is known of every election, computes its status once for each change, and decides
//!   when that is to be written.
//! * [`writer`] is the only one that writes statuses. It checks the operator's lease just before each write.
//! * [`series`] measures single elections for Prometheus, where their specs ask for that.
//! * [`publisher`] sends the events, one at a time, after the statuses.
//! * [`projector`] writes what elections are projected to. It receives what a status says of the znodes before
//!   the writer has written it.
//! * [`messages`] are what these parts send each other.
//!
//! The pure crate `bellwether_election` decides what is seen and what the status reports. Nothing polls: a
//! quiet election costs one read every five minutes and no write at all. If the election has a Lease or a
//! Service, the leader's node is also read several times a minute; a bridge reads both locks every four seconds.

mod admission;
mod agenda;
mod bridge;
mod budget;
mod census;
mod credentials;
mod ensembles;
mod events;
mod messages;
mod metrics;
mod mirror;
mod noticed;
mod pace;
mod projector;
mod publisher;
mod read;
mod registry;
mod relay;
mod series;
mod session;
mod sighting;
mod statuses;
mod supervise;
mod target;
mod writer;
pub(crate) mod zookeepers;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::LeaderElection;
use bellwether_election::guards::Guards;
use bellwether_election::permissions::Permissions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::events::Reporter;
use tokio::sync::mpsc;
use tracing::info;

use crate::certificates::Issuer;
use crate::ensemble::members::Members;
use crate::lease::Held;
use zookeepers::ZooKeepers;

pub(crate) use metrics::Metrics;

/// How long one request to the API server may take, retries of the client included.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);

/// How many inputs may wait for the writer before the mirrors have to wait.
const INPUTS: usize = 1024;

/// Which elections to mirror, and where their ensembles are.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Only this namespace; all of them if `None`.
    pub(crate) namespace: Option<String>,
    /// The DNS domain of the cluster, in which the names of Services end.
    pub(crate) cluster_domain: String,
    /// What elections may do beyond their namespace.
    pub(crate) permissions: Arc<Permissions>,
    /// What is done so that nothing deceives the mirror. Only the simulation can build another value than all of it.
    pub(crate) guards: Guards,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            namespace: None,
            cluster_domain: "cluster.local".to_owned(),
            permissions: Arc::default(),
            guards: Guards::ALL,
        }
    }
}

impl Scope {
    /// Where clients reach an ensemble that Bellwether runs: its client Service.
    fn connect_string(&self, ensemble: &Key, port: u16) -> String {
        let Key { namespace, name } = ensemble;
        format!("{name}.{namespace}.svc.{}:{port}", self.cluster_domain)
    }
}

/// A namespaced name: of an election, an ensemble or a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    namespace: String,
    name: String,
}

impl Key {
    /// The name in the metadata of an object.
    fn of(meta: &ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An object without its managed fields, which take more memory than all the rest and which the operator
/// does not read.
fn slim(mut object: LeaderElection) -> LeaderElection {
    object.metadata.managed_fields = None;
    object
}

/// What the mirror asks beside the API server.
#[derive(Clone)]
pub(crate) struct Outside {
    /// Signs the certificate with which it connects to ensembles.
    pub(crate) issuer: Arc<dyn Issuer>,
    /// Tells who is connected to an ensemble's members.
    pub(crate) members: Arc<dyn Members>,
    /// Opens sessions.
    pub(crate) zookeepers: Arc<dyn ZooKeepers>,
}

/// Mirrors elections until `shutdown` completes.
///
/// `lease` says whether this replica holds the operator's lease. Mirrors run on every replica, so
/// that a new holder need not read anything before it writes; only the holder writes.
///
/// # Errors
///
/// Only if a part of the mirror ended, which is a defect: whatever happens to ZooKeeper or to the
/// API server is retried.
pub(crate) async fn run(
    client: kube::Client,
    outside: Outside,
    scope: Scope,
    lease: Held,
    metrics: Metrics,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let (inputs, inputs_inbox) = mpsc::channel(INPUTS);
    let reporter = Reporter {
        controller: "bellwether".to_owned(),
        instance: None,
    };
    let (updates, updates_inbox) = mpsc::unbounded_channel();
    let projector = projector::Projector::new(
        client.clone(),
        scope.clone(),
        lease.clone(),
        inputs.clone(),
        metrics.clone(),
    );
    let writer = writer::Writer::new(
        client.clone(),
        lease.clone(),
        reporter,
        updates,
        metrics.clone(),
    );
    let kube = client.clone();
    let Outside {
        issuer,
        members,
        zookeepers,
    } = outside;
    let trust = ensembles::Trust {
        kube,
        issuer,
        members,
    };
    let registry =
        registry::Registry::new(client, lease, trust, zookeepers, scope, inputs, metrics);
    tokio::select! {
        () = shutdown => {
            info!("the mirror of elections stops");
            Ok(())
        }
        () = writer.run(inputs_inbox) => anyhow::bail!("the writer of election statuses ended"),
        () = projector.run(updates_inbox) => anyhow::bail!("the projector of elections ended"),
        () = registry.run() => anyhow::bail!("the watches of elections and ensembles ended"),
    }
}
