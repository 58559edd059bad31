//! What an election is projected to: a Lease, a Service with its EndpointSlice, labels of pods.
//!
//! Everything here is decided from the status of the election, the pods of its namespace, and the
//! object that exists; what is done about it is a [`Step`]. Two rules hold for every input:
//!
//! * At no moment does a projection name two leaders: a slice has at most one address, and a label is
//!   taken from one pod before another gets it.
//! * An object that does not belong to the election is never changed and never deleted.

mod candidate_pods;
mod labels;
mod lease;
mod pods;
mod report;
mod service;

use std::sync::Arc;

use bellwether_api::election::{DialectType, Leader, LeaderElectionSpec, LeaderElectionStatus};
use bellwether_api::{LeaderElection, VERSION, labels as names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

pub use candidate_pods::{CandidatePods, candidate_pods};
pub use labels::{AppliedLabels, Change, Roles, applied_labels, changes, patch, role_manager};
pub use lease::{lease, lease_name};
pub(crate) use pods::latest_start;
pub use pods::{Binder, Binding, Claimant, DEFAULT_CONTAINER, NamedPort, PodFacts, Pods};
pub(crate) use report::following;
pub use report::{Failure, Projection, report};
pub use service::{SliceOf, service, service_name, slice, slice_name, uid_ahead, unreached};

/// An election with what is known about it now.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The object.
    pub object: Arc<LeaderElection>,
    /// Its status as of now, which may not be written yet.
    pub status: Arc<LeaderElectionStatus>,
    /// When the leader had to run at the latest, where that is known more exactly than from the status: a
    /// leader may renew its term.
    pub owned: Option<Timestamp>,
    /// Whether the leader was read recently enough for projections that show that it leads.
    pub is_confirmed: bool,
    /// Whether it was not read for so long that its address is not kept any more: see [`kept`].
    pub is_outlived: bool,
}

/// For how long a Service, and a rollout, believe what was read of the leader.
const SERVICE_BELIEVES: SignedDuration = SignedDuration::from_secs(15);

/// For how long what was read of the leader is believed, where a Lease or a Service says who leads or a rollout spares the
/// leader: a Lease's own duration, or less. The leader is read again three times as often.
pub fn believed(spec: &LeaderElectionSpec) -> Option<SignedDuration> {
    let projections = spec.projections.as_ref()?;
    let lease = projections
        .lease
        .as_ref()
        .map(|lease| SignedDuration::from_secs(lease.lease_duration_seconds.into()));
    let acts = projections.service.is_some() || projections.rollout.is_some();
    let others = acts.then_some(SERVICE_BELIEVES);
    lease.into_iter().chain(others).min()
}

/// The leader that projections show: none before it has acknowledged, if it has to.
pub(crate) fn shown(status: &LeaderElectionStatus) -> Option<&Leader> {
    let leader = status.leader.as_ref();
    leader.filter(|leader| leader.acknowledged != Some(false))
}

/// For how long an address is kept after the leader was last read; `None` without a limit.
pub fn kept(spec: &LeaderElectionSpec) -> Option<SignedDuration> {
    let service = spec.projections.as_ref()?.service.as_ref()?;
    let seconds = service.keep_for_seconds?;
    Some(SignedDuration::from_secs(seconds.into()))
}

impl Subject {
    /// The name of the election.
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// The namespace of the election and of everything that it is projected to.
    pub fn namespace(&self) -> &str {
        self.object
            .metadata
            .namespace
            .as_deref()
            .unwrap_or_default()
    }

    /// The uid of the election.
    pub fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The spec.
    pub fn spec(&self) -> &LeaderElectionSpec {
        &self.object.spec
    }

    /// The leader that consumers see: none before it has acknowledged, if the spec asks for an acknowledgement.
    pub fn leader(&self) -> Option<&Leader> {
        shown(&self.status)
    }

    /// The fencing token of the leader, if it has one.
    fn token(&self) -> Option<&str> {
        self.leader()?.fencing_token.as_deref()
    }

    /// When the leader had to run at the latest, if that is known.
    pub fn owned(&self) -> Option<Timestamp> {
        let acquired = self
            .leader()
            .and_then(|leader| leader.acquire_time.as_ref());
        self.owned.or(acquired.map(|time| time.0))
    }

    /// Whether the mirror is blind, or has not read the leader for too long.
    pub fn is_stale(&self) -> bool {
        self.status.stale_since.is_some() || !self.is_confirmed
    }

    /// Whether the election shows other candidates than the leader.
    pub fn shows_followers(&self) -> bool {
        let dialect = self.status.dialect.as_deref();
        !DialectType::of_one_node().any(|of_one| Some(of_one.as_str()) == dialect)
    }

    /// Whether an object is one that was made for this election.
    pub fn owns(&self, meta: &ObjectMeta) -> bool {
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        owners
            .iter()
            .any(|owner| owner.uid == self.uid() && owner.controller == Some(true))
    }

    /// The metadata of an object for this election: new, or those of an existing object with the required
    /// fields.
    fn meta(&self, name: String, live: Option<&ObjectMeta>) -> ObjectMeta {
        let mut meta = live.cloned().unwrap_or_else(|| ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace().to_owned()),
            ..ObjectMeta::default()
        });
        if !self.owns(&meta) {
            let owners = meta.owner_references.get_or_insert_default();
            owners.push(OwnerReference {
                api_version: format!("{}/{VERSION}", bellwether_api::GROUP),
                kind: "LeaderElection".to_owned(),
                name: self.name().to_owned(),
                uid: self.uid().to_owned(),
                controller: Some(true),
                block_owner_deletion: None,
            });
        }
        let labels = meta.labels.get_or_insert_default();
        for (key, value) in [
            (names::ELECTION_UID, self.uid()),
            (names::MANAGED_BY, names::MANAGED_BY_VALUE),
        ] {
            labels.insert(key.to_owned(), value.to_owned());
        }
        meta
    }
}

/// Writes the fencing token of the leader that an object shows onto it, or takes the one before away.
fn say_token(meta: &mut ObjectMeta, token: Option<&str>) {
    let annotations = meta.annotations.get_or_insert_default();
    match token {
        Some(token) => annotations.insert(names::FENCING_TOKEN.to_owned(), token.to_owned()),
        None => annotations.remove(names::FENCING_TOKEN),
    };
    if annotations.is_empty() {
        meta.annotations = None;
    }
}

/// What has to be done about one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<K> {
    /// Nothing: it is as it should be, or it should be left as it is.
    Nothing,
    /// It has to be created. If it exists by then, that fails.
    Create(Box<K>),
    /// It has to be replaced. The uid and the resource version are those that were looked at.
    Replace(Box<K>),
    /// It cannot be changed into what it should be: it has to be deleted, and created again.
    Delete,
    /// An object of that name does not belong to the election.
    Taken,
}

impl<K: PartialEq> Step<K> {
    /// The step from an existing object of this election, if there is one, to another.
    fn towards(live: Option<&K>, wanted: K) -> Self {
        match live {
            None => Self::Create(Box::new(wanted)),
            Some(live) if *live == wanted => Self::Nothing,
            Some(_) => Self::Replace(Box::new(wanted)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
