//! What a rollout depends on, as the API server and the mirror have it.

use std::time::Duration;

use bellwether_api::election::RolloutProjection;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, StatefulSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Leadership, Workload, WorkloadPod};
use crate::projection::{Binding, CandidatePods, PodFacts, Subject};

/// The label with which the controllers of StatefulSets and DaemonSets say of which revision a pod is.
pub const REVISION: &str = "controller-revision-hash";

/// A StatefulSet, or why its pods are not replaced.
///
/// # Errors
///
/// A sentence, if it is being deleted, or replaces its pods itself: with `RollingUpdate` it goes by their ordinals, also
/// with a partition, which spares a leader in the middle only together with all pods below it.
pub fn stateful_set(set: &StatefulSet, rollout: &RolloutProjection) -> Result<Workload, String> {
    let spec = set.spec.as_ref();
    let strategy = spec.and_then(|spec| spec.update_strategy.as_ref());
    let strategy = strategy.and_then(|strategy| strategy.type_.as_deref());
    check(rollout, &set.metadata, strategy)?;
    let status = set.status.as_ref();
    let revision = status.and_then(|status| status.update_revision.clone());
    let observed = status.and_then(|status| status.observed_generation);
    let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let min_ready = spec.and_then(|spec| spec.min_ready_seconds);
    Ok(workload(
        rollout,
        &set.metadata,
        (revision, observed),
        replicas,
        min_ready,
    ))
}

/// A DaemonSet with the revisions that its controller made, or why its pods are not replaced.
///
/// # Errors
///
/// A sentence, if it is being deleted, or replaces its pods itself.
pub fn daemon_set(
    set: &DaemonSet,
    revisions: &[ControllerRevision],
    rollout: &RolloutProjection,
) -> Result<Workload, String> {
    let spec = set.spec.as_ref();
    let strategy = spec.and_then(|spec| spec.update_strategy.as_ref());
    let strategy = strategy.and_then(|strategy| strategy.type_.as_deref());
    check(rollout, &set.metadata, strategy)?;
    let uid = set.metadata.uid.as_deref();
    let own = revisions
        .iter()
        .filter(|revision| uid.is_some() && owner(&revision.metadata) == uid);
    let newest = own.max_by_key(|revision| revision.revision);
    let revision =
        newest.and_then(|newest| newest.metadata.labels.as_ref()?.get(REVISION).cloned());
    let status = set.status.as_ref();
    let observed = status.and_then(|status| status.observed_generation);
    let replicas = status.map_or(0, |status| status.desired_number_scheduled);
    let min_ready = spec.and_then(|spec| spec.min_ready_seconds);
    Ok(workload(
        rollout,
        &set.metadata,
        (revision, observed),
        replicas,
        min_ready,
    ))
}

fn check(
    rollout: &RolloutProjection,
    meta: &ObjectMeta,
    strategy: Option<&str>,
) -> Result<(), String> {
    let workload = &rollout.workload;
    if meta.deletion_timestamp.is_some() {
        return Err(format!("The {workload} is being deleted."));
    }
    match strategy {
        Some("OnDelete") => Ok(()),
        other => Err(format!(
            "The {workload} has the update strategy {}, by which its own controller replaces pods, the leader among them.",
            other.unwrap_or("RollingUpdate")
        )),
    }
}

fn workload(
    rollout: &RolloutProjection,
    meta: &ObjectMeta,
    (revision, observed): (Option<String>, Option<i64>),
    replicas: i32,
    min_ready: Option<i32>,
) -> Workload {
    let revision = revision.unwrap_or_default();
    let is_observed = !revision.is_empty() && observed >= meta.generation;
    let seconds = |seconds| u64::try_from(seconds).ok().map(Duration::from_secs);
    Workload {
        uid: meta.uid.clone().unwrap_or_default(),
        revision,
        is_observed,
        replicas: usize::try_from(replicas).unwrap_or_default(),
        max_unavailable: usize::try_from(rollout.max_unavailable).unwrap_or(1).max(1),
        min_ready: min_ready.and_then(seconds).unwrap_or_default(),
        goes_on_after: rollout.go_on_after_seconds.and_then(seconds),
    }
}

/// The uid of the controller that owns an object.
pub fn owner(meta: &ObjectMeta) -> Option<&str> {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    Some(&owner.uid)
}

/// The pods of a workload among those that the election may bind.
///
/// Where the status does not show every candidate, since the dialect shows none but the leader or there are more than the
/// status lists, each pod counts as one of a candidate. The clocks of nodes may differ from `now`'s, and `minReadySeconds` then
/// lasts longer or shorter by so much, as for Kubernetes' own controllers.
pub fn workload_pods<'p>(
    workload: &Workload,
    pods: impl Iterator<Item = &'p PodFacts>,
    subject: &Subject,
    candidate_pods: &CandidatePods,
    evicted: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Vec<WorkloadPod> {
    let status = &subject.status;
    let listed = i32::try_from(status.candidates.len()).unwrap_or(i32::MAX);
    let shows_all = subject.shows_followers() && listed >= status.candidate_count;
    let own = pods.filter(|pod| pod.owner.as_deref() == Some(workload.uid.as_str()));
    own.map(|pod| WorkloadPod {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        revision: pod.revision.clone(),
        is_ready: pod.ready,
        has_stayed_ready: has_stayed_ready(pod, workload.min_ready, now),
        is_terminating: pod.terminating || evicted(&pod.uid),
        is_candidate: !shows_all || candidate_pods.bound.contains(&pod.name),
    })
    .collect()
}

fn has_stayed_ready(pod: &PodFacts, time: Duration, now: Timestamp) -> bool {
    let age = pod.ready_since.map(|since| now.duration_since(since));
    time.is_zero()
        || age
            .is_some_and(|age| age >= SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX))
}

/// Where the leader is not known, or is in no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unled {
    /// No candidate leads.
    Nobody,
    /// The leader's pod is not known.
    Unbound,
    /// It is not known who leads.
    Unknown,
}

/// What is not known of the leader; `None` if its pod is.
pub fn unled(subject: &Subject, binding: Option<&Binding>) -> Option<Unled> {
    if subject.is_stale() {
        return Some(Unled::Unknown);
    }
    match binding {
        None => Some(Unled::Nobody),
        Some(Binding::Pod(_)) => None,
        Some(_) => Some(Unled::Unbound),
    }
}

/// Who leads. `unled` is what is not known of the leader, and for how long it has not been.
pub fn leadership(
    binding: Option<&Binding>,
    pods: &[WorkloadPod],
    unled: Option<(Unled, Duration)>,
) -> Leadership {
    match (unled, binding) {
        (Some((Unled::Nobody, past)), _) => Leadership::Nobody(past),
        (Some((Unled::Unbound, past)), _) => Leadership::Unbound(past),
        (None, Some(Binding::Pod(name))) => match pods.iter().any(|pod| pod.name == *name) {
            true => Leadership::Pod(name.clone()),
            false => Leadership::Elsewhere,
        },
        (Some((Unled::Unknown, past)), _) => Leadership::Unknown(past),
        (None, _) => Leadership::Unknown(Duration::ZERO),
    }
}

#[cfg(test)]
mod tests;
