//! When the leader of an election is asked to hand over, and what becomes of that.
//!
//! A person asks by an annotation on the election that holds the fencing token of the leader that is to go. So a request may
//! be repeated, and outlive the operator, without costing a second leader the lead: once another candidate leads, the
//! token is another one.

use std::collections::BTreeSet;
use std::time::Duration;

use bellwether_api::LeaderElection;
use bellwether_api::conditions::{ConditionStatus, NewCondition};
use bellwether_api::election::{ConditionType, Reason};
use bellwether_api::labels::HANDOVER;

use crate::decode::presentable;
use crate::projection::{CandidatePods, Subject};
use crate::words::condition;

/// How soon a leader that could not be asked is asked again.
pub const ASKED_AGAIN: Duration = Duration::from_secs(5);

/// How a leader was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its fencing token.
    pub token: String,
    /// How long ago it was asked for the first time.
    pub first: Duration,
    /// How long ago it was asked for the last time.
    pub last: Duration,
    /// Whether it agreed; if not, why. `None` before it answered.
    pub answer: Option<Result<(), String>>,
}

/// What is to be done about a leader that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask it.
    Ask,
    /// Wait. It has not answered yet, agreed, or could not be asked and is asked again later.
    Wait,
    /// Nothing more: it still leads after the time that the spec gives it.
    GiveUp,
}

/// What is to be done about the leader with this token, given how it was asked.
pub fn next(token: &str, asked: Option<&Asked>, timeout: Duration) -> Next {
    match asked.filter(|asked| asked.token == token) {
        None => Next::Ask,
        Some(asked) if asked.first >= timeout => Next::GiveUp,
        Some(asked) if matches!(asked.answer, Some(Err(_))) && asked.last >= ASKED_AGAIN => {
            Next::Ask
        }
        Some(_) => Next::Wait,
    }
}

/// A leader whose node is cordoned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cordoned {
    /// Its fencing token.
    pub token: String,
    /// The uid of its pod.
    pub pod: String,
    /// The node.
    pub node: String,
}

/// The leader that has to be asked since its node is among the cordoned ones. `None` where the spec does not ask for that, and
/// where no other candidate runs on a node that is in use: the lead would go from one node that is drained to another.
pub fn cordoned(
    subject: &Subject,
    pods: &CandidatePods,
    nodes: &BTreeSet<String>,
) -> Option<Cordoned> {
    let handover = subject.spec().handover.as_ref()?;
    if !handover.on_cordon || subject.is_stale() {
        return None;
    }
    let token = subject.leader()?.fencing_token.clone()?;
    let pod = pods.pod.as_ref()?;
    let node = pod.node.clone().filter(|node| nodes.contains(node))?;
    let has_place = pods.nodes.iter().any(|node| !nodes.contains(node));
    has_place.then(|| Cordoned {
        token,
        pod: pod.uid.clone(),
        node,
    })
}

/// What a person asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// That the leader with this token hands over, and it leads.
    Open(String),
    /// The same, and another candidate leads by now, or nobody.
    Done,
    /// It is not known who leads.
    Blind,
    /// Something that cannot be done, as the sentence says.
    Unusable(String),
}

/// The annotation by which a person asks for a handover.
pub fn annotation(election: &LeaderElection) -> Option<&String> {
    election.metadata.annotations.as_ref()?.get(HANDOVER)
}

/// What the annotation on the election asks for, if it is there.
pub fn request(subject: &Subject) -> Option<Request> {
    let wanted = annotation(&subject.object)?;
    let unusable = |what: String| Some(Request::Unusable(what));
    let Ok(token) = wanted.parse::<i64>() else {
        let wanted = presentable(wanted);
        return unusable(format!(
            "The annotation {HANDOVER} is {wanted}, which is no fencing token."
        ));
    };
    if subject.is_stale() {
        return Some(Request::Blind);
    }
    let Some(leader) = subject.leader() else {
        return Some(Request::Done);
    };
    match leader.fencing_token.as_deref().map(str::parse::<i64>) {
        Some(Ok(leads)) if leads == token => Some(Request::Open(leads.to_string())),
        Some(Ok(leads)) if leads > token => Some(Request::Done),
        Some(Ok(leads)) => unusable(format!(
            "The annotation {HANDOVER} has the token {token}, and the leader has {leads}, a smaller one."
        )),
        _ => unusable("The leader has no fencing token that could be compared.".to_owned()),
    }
}

/// The condition `HandedOver`. `asked` is how the leader was asked, `refusal` why it must not be or cannot be.
pub fn told(
    request: &Request,
    asked: Option<&Asked>,
    timeout: Duration,
    refusal: Option<(Reason, String)>,
) -> NewCondition {
    let say =
        |status, reason, what: &str| condition(ConditionType::HandedOver, status, reason, what);
    let not_yet = |reason, what: &str| say(ConditionStatus::False, reason, what);
    let token = match request {
        Request::Open(token) => token,
        Request::Done => {
            let what = "The leader that was to hand over leads no more.";
            return say(ConditionStatus::True, Reason::HandedOver, what);
        }
        Request::Blind => {
            let what = "It is not known who leads.";
            return say(ConditionStatus::Unknown, Reason::NotObserved, what);
        }
        Request::Unusable(what) => return not_yet(Reason::HandoverUnusable, what),
    };
    if let Some((reason, what)) = refusal {
        return not_yet(reason, &what);
    }
    let asked = asked.filter(|asked| asked.token == *token);
    let over = next(token, asked, timeout) == Next::GiveUp;
    match asked.map(|asked| &asked.answer) {
        None => not_yet(Reason::HandingOver, "The leader is about to be asked."),
        Some(None) => not_yet(Reason::HandingOver, "The leader is asked to hand over."),
        Some(Some(Ok(()))) if over => {
            let what =
                format!("The leader agreed to hand over, and still leads after {timeout:?}.");
            not_yet(Reason::HandoverFailed, &what)
        }
        Some(Some(Ok(()))) => not_yet(Reason::HandingOver, "The leader agreed to hand over."),
        Some(Some(Err(why))) => {
            let what = format!(
                "The leader could not be asked to hand over: {}.",
                why.trim_end_matches('.')
            );
            let reason = match over {
                true => Reason::HandoverFailed,
                false => Reason::HandingOver,
            };
            not_yet(reason, &what)
        }
    }
}

/// The condition `HandedOver` where the spec asks for handovers when nodes are cordoned, and the operator does not watch nodes.
pub fn unseen_nodes() -> NewCondition {
    let what =
        "The operator does not see which nodes are cordoned, so nobody is asked when one is.";
    let (status, reason) = (ConditionStatus::False, Reason::HandoverNotAllowed);
    condition(ConditionType::HandedOver, status, reason, what)
}

#[cfg(test)]
mod tests;
