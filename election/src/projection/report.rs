//! What the status says about projections.

use bellwether_api::conditions::{ConditionStatus, NewCondition};
use bellwether_api::election::{ConditionType, Leader, Reason};

use super::{Binding, Subject};
use crate::decode::presentable;
use crate::terms::Outlook;
use crate::words::condition;

/// How many names or failures a sentence lists at most.
const MAX_LISTED: usize = 5;

/// What became of the projections of an election.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projection {
    /// The node of the leader that this is about.
    pub node: Option<String>,
    /// Its fencing token, which distinguishes leaders that have the same node.
    pub token: Option<String>,
    /// The leader's pod, if it is known.
    pub pod: Option<String>,
    /// `LeaderBound`, `Projected`, `RolledOut`, `HandedOver` and `SoleLeader`.
    pub conditions: Vec<NewCondition>,
    /// What would have ended the leader's term if it led no more, where pods are known.
    pub outlook: Option<Outlook>,
    /// What ended the term of the leader before.
    pub last: Option<Outlook>,
}

impl Projection {
    /// Whether this is about that leader, or about nobody if nobody leads.
    pub fn is_of(&self, leader: Option<&Leader>) -> bool {
        self.node.as_ref() == leader.map(|leader| &leader.node)
            && self.token.as_ref() == leader.and_then(|leader| leader.fencing_token.as_ref())
    }
}

/// Why a projection is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason for the condition `Projected`.
    pub reason: Reason,
    /// A sentence that says what is the case.
    pub what: String,
}

/// What the status reports about projections.
///
/// `binding` is the pod of the leader, if there is a leader and a projection needs its pod; its error
/// is why pods cannot be found. `failures` lists the writes that failed. `others` are the conditions of a rollout and a handover.
pub fn report(
    subject: &Subject,
    binding: Option<&Result<Binding, Failure>>,
    failures: &[Failure],
    others: impl IntoIterator<Item = NewCondition>,
) -> Projection {
    let mut projection = Projection {
        node: subject.leader().map(|leader| leader.node.clone()),
        token: subject.token().map(str::to_owned),
        ..Projection::default()
    };
    if let Some(Ok(Binding::Pod(pod))) = binding {
        projection.pod = Some(pod.clone());
    }
    let wanted = subject.spec().projections.as_ref();
    if subject.spec().needs_pods() {
        projection.conditions.push(bound(subject, binding));
    }
    if wanted.is_some() {
        // Projections that need pods fail while the pods are unknown.
        let unknown = binding.and_then(|binding| binding.as_ref().err());
        let failures: Vec<_> = failures.iter().chain(unknown).collect();
        projection.conditions.push(projected(subject, &failures));
    }
    projection.conditions.extend(others);
    projection
}

/// What the status reports of these conditions while the projections show another leader than it does.
pub(crate) fn following<'c>(
    types: impl Iterator<Item = &'c str>,
    leader: Option<&Leader>,
) -> Vec<NewCondition> {
    let what = match leader {
        Some(leader) => format!("{} leads since a moment ago.", leader.identity),
        None => "Nobody leads since a moment ago.".to_owned(),
    };
    let say = |type_, status| condition(type_, status, Reason::Following, &what);
    let told = types.filter_map(|type_| match type_ {
        _ if type_ == ConditionType::LeaderBound.as_str() => {
            Some(say(ConditionType::LeaderBound, ConditionStatus::Unknown))
        }
        _ if type_ == ConditionType::SoleLeader.as_str() => {
            Some(say(ConditionType::SoleLeader, ConditionStatus::Unknown))
        }
        _ if type_ == ConditionType::Projected.as_str() => {
            Some(say(ConditionType::Projected, ConditionStatus::False))
        }
        _ => None,
    });
    told.collect()
}

fn bound(subject: &Subject, binding: Option<&Result<Binding, Failure>>) -> NewCondition {
    let say =
        |status, reason, what: &str| condition(ConditionType::LeaderBound, status, reason, what);
    if let Some(Err(Failure { reason, what })) = binding {
        return say(ConditionStatus::Unknown, *reason, what);
    }
    let Some(leader) = subject.leader() else {
        return say(
            ConditionStatus::False,
            Reason::NoLeader,
            "There is no leader that could have a pod.",
        );
    };
    if subject.is_stale() {
        let what = "Whether the last known leader still leads cannot be seen.";
        return say(ConditionStatus::Unknown, Reason::NotObserved, what);
    }
    let identity = &leader.identity;
    let namespace = subject.namespace();
    match binding {
        Some(Ok(Binding::Pod(pod))) => say(
            ConditionStatus::True,
            Reason::Bound,
            &format!("{identity} runs in the pod {pod}."),
        ),
        Some(Ok(Binding::Younger(pod))) => {
            let what = format!(
                "{identity} fits the pod {pod}, but what runs there now started after the leader's node was made, so it does not lead. The pod is known again when a candidate leads whose pod runs."
            );
            say(ConditionStatus::False, Reason::PodNotFound, &what)
        }
        Some(Ok(Binding::Ambiguous(pods))) => {
            let listed: Vec<_> = pods
                .iter()
                .take(MAX_LISTED)
                .map(|pod| presentable(pod))
                .collect();
            let what = format!(
                "{identity} fits {} pods of {namespace}: {}.",
                pods.len(),
                listed.join(", ")
            );
            say(ConditionStatus::False, Reason::PodAmbiguous, &what)
        }
        _ => say(
            ConditionStatus::False,
            Reason::PodNotFound,
            &format!("{identity} fits no pod of {namespace}."),
        ),
    }
}

fn projected(subject: &Subject, failures: &[&Failure]) -> NewCondition {
    let say =
        |status, reason, what: &str| condition(ConditionType::Projected, status, reason, what);
    if let Some(first) = failures.first() {
        let sentences: Vec<_> = failures
            .iter()
            .take(MAX_LISTED)
            .map(|failure| failure.what.as_str())
            .collect();
        return say(ConditionStatus::False, first.reason, &sentences.join(" "));
    }
    if subject.is_stale() {
        let what = "The mirror cannot see who leads: a Lease is not renewed, and labels stay.";
        return say(ConditionStatus::Unknown, Reason::NotObserved, what);
    }
    let what = "Every projection says what the status says.";
    say(ConditionStatus::True, Reason::UpToDate, what)
}
