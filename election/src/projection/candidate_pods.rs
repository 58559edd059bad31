//! In which pods the candidates of an election run.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bellwether_api::election::Candidate;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::{Binder, Binding, Claimant, PodFacts, Pods, Roles, Subject, uid_ahead};

/// The pods of an election's candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CandidatePods {
    /// The pod of the leader, if there is a leader.
    pub leader: Option<Binding>,
    /// What is known about it.
    pub pod: Option<PodFacts>,
    /// The pod of a later leader, which the slice shows and the status does not: see [`uid_ahead`].
    pub ahead: Option<PodFacts>,
    /// How pods have to be labelled, if they have to be.
    pub roles: Option<Roles>,
    /// The names of the pods in which candidates run, where a rollout needs them.
    pub bound: BTreeSet<String>,
    /// The nodes on which other candidates than the leader run in pods that are ready, where a handover needs them.
    pub nodes: BTreeSet<String>,
}

impl CandidatePods {
    /// The pod that the Service is to reach: of the latest leader that is known.
    pub fn reached(&self) -> Option<&PodFacts> {
        self.ahead.as_ref().or(self.pod.as_ref())
    }

    /// No candidate has a known pod.
    pub fn nobody() -> Self {
        Self {
            leader: None,
            pod: None,
            ahead: None,
            roles: Some(Roles::default()),
            bound: BTreeSet::new(),
            nodes: BTreeSet::new(),
        }
    }
}

/// Finds the pods of the leader and, where they have to be labelled or replaced in order, of the other candidates.
///
/// `slice` is that of the election's Service, where there is one that was read.
pub fn candidate_pods(
    subject: &Subject,
    binder: &Binder,
    pods: &Pods,
    slice: Option<&EndpointSlice>,
) -> CandidatePods {
    let leader = subject.leader().map(|leader| {
        let claimant = Claimant {
            identity: &leader.identity,
            address: leader.address.as_deref(),
            connection: connection(leader.client_address.as_deref()),
            owned: subject.owned(),
        };
        binder.bind(&claimant, pods)
    });
    let pod = match &leader {
        Some(Binding::Pod(name)) => pods.get(name),
        _ => None,
    };
    let projections = subject.spec().projections.as_ref();
    let labels = projections.and_then(|projections| projections.pod_labels.as_ref());
    let leads = |candidate: &Candidate| {
        subject
            .leader()
            .is_some_and(|leader| leader.node == candidate.node)
    };
    let candidates = || {
        subject.status.candidates.iter().filter_map(|candidate| {
            let claimant = Claimant {
                identity: &candidate.identity,
                address: candidate.address.as_deref(),
                connection: connection(candidate.client_address.as_deref()),
                owned: match leads(candidate) {
                    true => subject.owned(),
                    false => candidate.create_time.as_ref().map(|time| time.0),
                },
            };
            match binder.bind(&claimant, pods) {
                Binding::Pod(name) => pods.get(&name),
                Binding::NotFound | Binding::Younger(_) | Binding::Ambiguous(_) => None,
            }
        })
    };
    let roles = labels.map(|labels| Roles::new(labels, pod, candidates()));
    let bound = match projections.is_some_and(|projections| projections.rollout.is_some()) {
        true => candidates().map(|pod| pod.name.clone()).collect(),
        false => BTreeSet::new(),
    };
    let handover = subject.spec().handover.as_ref();
    let nodes = match handover.is_some_and(|handover| handover.on_cordon) {
        true => candidates()
            .filter(|other| pod.is_none_or(|pod| pod.uid != other.uid))
            .filter(|other| other.ready && !other.terminating)
            .filter_map(|other| other.node.clone())
            .collect(),
        false => BTreeSet::new(),
    };
    CandidatePods {
        pod: pod.cloned(),
        ahead: slice
            .and_then(|slice| uid_ahead(subject, slice))
            .and_then(|uid| pods.iter().find(|pod| pod.uid == uid))
            .cloned(),
        leader,
        roles,
        bound,
        nodes,
    }
}

/// The address from which a session is connected, if the servers reported it.
fn connection(address: Option<&str>) -> Option<IpAddr> {
    address?.parse().ok()
}
