//! The order in which the pods of an application are replaced: the leader last.
//!
//! Kubernetes knows ordinals and ages of pods, not leaders, so that a rolling update of five candidates changes the leader
//! up to five times (kubernetes#51907). Where the workload leaves the deletion of its pods to others, as a StatefulSet
//! with `OnDelete` does, these rules change it once:
//!
//! 1. Followers go first. The leader goes when no other pod of an older revision is left and every other pod is available.
//! 2. A pod of the new revision is available when it has been ready for the workload's `minReadySeconds` and is a candidate
//!    again. Until it is, it counts as one that is
//!    being replaced, and no more than `max_unavailable` pods are replaced at a time. So a broken image stops after so many
//!    followers, while the leader runs the revision before.
//! 3. A pod of an older revision that is ready goes only while fewer than `max_unavailable` others are unavailable. One that
//!    is not ready goes first and without that condition: it serves no requests, and after an undone rollout it is the pod to
//!    replace.
//! 4. While it is not known who leads, no pod is evicted.

mod told;
mod workload;

use std::time::Duration;

pub use told::{Outcome, told};
pub use workload::{
    REVISION, Unled, daemon_set, leadership, owner, stateful_set, unled, workload_pods,
};

/// A time without a leader that is shorter than this counts as a change of the leader, which is waited for. After it the pods
/// are replaced in the ordinary order: a revision that elects nobody must be replaceable by one that does.
pub const HANDOVER: Duration = Duration::from_secs(30);

/// A workload whose pods are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its uid, which its pods name as that of their owner.
    pub uid: String,
    /// The revision that all pods should have.
    pub revision: String,
    /// Whether that revision is the one of the present spec: the controller has seen the newest change.
    pub is_observed: bool,
    /// How many pods there should be.
    pub replicas: usize,
    /// How many of them may be replaced at a time, at least 1.
    pub max_unavailable: usize,
    /// How long a pod has to be ready before it is available.
    pub min_ready: Duration,
    /// After which time without knowing who leads the pods are replaced in the ordinary order; `None` for never.
    pub goes_on_after: Option<Duration>,
}

/// A pod of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadPod {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its revision; `None` if it does not say, and then it counts as an older one.
    pub revision: Option<String>,
    /// Whether it is ready.
    pub is_ready: bool,
    /// Whether it has been ready for as long as the workload asks for.
    pub has_stayed_ready: bool,
    /// Whether it is being deleted.
    pub is_terminating: bool,
    /// Whether a candidate of the election is bound to it.
    pub is_candidate: bool,
}

impl WorkloadPod {
    /// Whether it has stayed ready, is not being deleted, and is a candidate if it has to be one.
    fn is_available(&self, as_candidate: bool) -> bool {
        self.is_ready
            && self.has_stayed_ready
            && !self.is_terminating
            && (!as_candidate || self.is_candidate)
    }
}

/// Who leads, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// The candidate in the pod of this name.
    Pod(String),
    /// A candidate in a pod that does not belong to the workload.
    Elsewhere,
    /// No candidate leads, for so long.
    Nobody(Duration),
    /// A candidate whose pod is not known, for so long.
    Unbound(Duration),
    /// It is not known, for so long.
    Unknown(Duration),
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: every pod has the revision.
    Done,
    /// Wait.
    Wait(Wait),
    /// Evict these pods, with these uids.
    Evict(Vec<(String, String)>),
    /// Evict the leader's pod, with this uid, if it still leads when it is asked for once more.
    EvictLeader(String, String),
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The workload's controller has not seen the newest spec.
    Observation,
    /// It is not known who leads.
    Sight,
    /// A leader leads whose pod is not known.
    Binding,
    /// No candidate leads; the next one usually does after a moment.
    Leader,
    /// The leader has to be read once more.
    Reading,
    /// The leader was asked to hand over.
    Handover,
    /// So many pods do not exist.
    Creation(usize),
    /// These pods are being deleted, or are not ready.
    Readiness(Vec<String>),
    /// These pods are ready, and have not been for `minReadySeconds`.
    Age(Vec<String>),
    /// These pods are ready and not yet candidates.
    Candidacy(Vec<String>),
}

/// What is to be done next for the pods of a workload.
pub fn step(workload: &Workload, pods: &[WorkloadPod], leadership: &Leadership) -> Step {
    if !workload.is_observed {
        return Step::Wait(Wait::Observation);
    }
    let is_outdated = |pod: &&WorkloadPod| pod.revision.as_ref() != Some(&workload.revision);
    let mut outdated: Vec<&WorkloadPod> = pods.iter().filter(is_outdated).collect();
    if outdated.is_empty() {
        return Step::Done;
    }
    outdated.retain(|pod| !pod.is_terminating);
    let leader = match follow(workload, leadership) {
        Ok(leader) => leader,
        Err(wait) => return Step::Wait(wait),
    };
    let leads = |pod: &WorkloadPod| leader.is_some_and(|leader| leader.is(pod));
    let needs_candidates = leader.is_some();
    let is_available = |pod: &WorkloadPod| pod.is_available(needs_candidates && !is_outdated(&pod));
    let missing = workload.replicas.saturating_sub(pods.len());
    let unavailable: Vec<&WorkloadPod> = pods.iter().filter(|pod| !is_available(pod)).collect();
    let is_replaced = |pod: &&&WorkloadPod| pod.is_terminating || !is_outdated(pod);
    let replaced = missing + unavailable.iter().filter(is_replaced).count();
    let others = missing + unavailable.iter().filter(|pod| !leads(pod)).count();

    // The highest ordinal first, as Kubernetes does it.
    outdated.sort_by(|a, b| ordinal(&b.name).cmp(&ordinal(&a.name)));
    let (broken, ready): (Vec<_>, Vec<_>) = outdated
        .iter()
        .copied()
        .filter(|pod| !leads(pod))
        .partition(|pod| !pod.is_ready);
    let limit = workload.max_unavailable.max(1);
    let room = match broken.is_empty() {
        true => limit.saturating_sub(others),
        false => limit.saturating_sub(replaced),
    };
    let followers = if broken.is_empty() { &ready } else { &broken };
    if !followers.is_empty() && room > 0 {
        let evicted = followers.iter().take(room);
        return Step::Evict(evicted.map(|pod| named(pod)).collect());
    }
    let last = outdated.iter().find(|pod| leads(pod));
    match last {
        Some(leader) if followers.is_empty() && others == 0 => {
            let (name, uid) = named(leader);
            Step::EvictLeader(name, uid)
        }
        _ => Step::Wait(what_is_missing(missing, &unavailable)),
    }
}

/// What is still missing although every pod has the revision; `None` if nothing is. With a known leader every pod has to be a
/// candidate again.
pub fn unsettled(
    workload: &Workload,
    pods: &[WorkloadPod],
    leadership: &Leadership,
) -> Option<Wait> {
    let needs_candidates = matches!(leadership, Leadership::Pod(_) | Leadership::Elsewhere);
    let missing = workload.replicas.saturating_sub(pods.len());
    let is_unavailable = |pod: &&WorkloadPod| !pod.is_available(needs_candidates);
    let unavailable: Vec<&WorkloadPod> = pods.iter().filter(is_unavailable).collect();
    let is_settled = missing == 0 && unavailable.is_empty();
    (!is_settled).then(|| what_is_missing(missing, &unavailable))
}

/// Where the leader is: in this pod, or in none of the workload.
#[derive(Clone, Copy)]
enum Followed<'l> {
    Pod(&'l str),
    NoPodOfThese,
}

impl Followed<'_> {
    fn is(self, pod: &WorkloadPod) -> bool {
        matches!(self, Self::Pod(name) if name == pod.name)
    }
}

/// The leader to spare; `None` where pods are replaced in the ordinary order.
fn follow<'l>(
    workload: &Workload,
    leadership: &'l Leadership,
) -> Result<Option<Followed<'l>>, Wait> {
    let given_up = |past: &Duration| workload.goes_on_after.is_some_and(|after| *past >= after);
    match leadership {
        Leadership::Pod(name) => Ok(Some(Followed::Pod(name))),
        Leadership::Elsewhere => Ok(Some(Followed::NoPodOfThese)),
        Leadership::Nobody(past) if *past >= HANDOVER => Ok(None),
        Leadership::Nobody(_) => Err(Wait::Leader),
        Leadership::Unbound(past) | Leadership::Unknown(past) if given_up(past) => Ok(None),
        Leadership::Unbound(_) => Err(Wait::Binding),
        Leadership::Unknown(_) => Err(Wait::Sight),
    }
}

fn what_is_missing(missing: usize, unavailable: &[&WorkloadPod]) -> Wait {
    let names = |pods: &[&WorkloadPod]| pods.iter().map(|pod| pod.name.clone()).collect();
    let (up, down): (Vec<_>, Vec<_>) = unavailable
        .iter()
        .copied()
        .partition(|pod| pod.is_ready && !pod.is_terminating);
    let is_young = |pod: &&WorkloadPod| !pod.has_stayed_ready;
    let young: Vec<&WorkloadPod> = up.iter().copied().filter(is_young).collect();
    match missing {
        _ if !down.is_empty() => Wait::Readiness(names(&down)),
        0 if !young.is_empty() => Wait::Age(names(&young)),
        0 => Wait::Candidacy(names(&up)),
        missing => Wait::Creation(missing),
    }
}

fn named(pod: &WorkloadPod) -> (String, String) {
    (pod.name.clone(), pod.uid.clone())
}

/// The number at the end of a name, and the name: pods of a DaemonSet have none.
fn ordinal(name: &str) -> (Option<u32>, &str) {
    let digits = name.rsplit('-').next();
    (digits.and_then(|digits| digits.parse().ok()), name)
}

#[cfg(test)]
mod tests;
