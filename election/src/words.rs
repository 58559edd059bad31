//! The sentences of conditions: what is the case, then what happens next.

use bellwether_api::conditions::{ConditionStatus, NewCondition};
use bellwether_api::election::{
    ConditionType, LeaderElectionSpec, LeaderElectionStatus, Reason, format_session,
};

use crate::anomaly::Anomaly;
use crate::decode::presentable;
use crate::reading::Reading;

/// How many names a sentence lists at most.
const MAX_NAMES: usize = 5;

pub(crate) fn condition(
    type_: ConditionType,
    status: ConditionStatus,
    reason: Reason,
    what: &str,
) -> NewCondition {
    let outlook = reason.outlook();
    let message = if outlook.is_empty() {
        what.to_owned()
    } else {
        format!("{what} {outlook}")
    };
    NewCondition {
        type_: type_.as_str(),
        status,
        reason: reason.as_str(),
        message,
    }
}

/// The conditions of an election that the mirror sees, whose status is otherwise complete.
pub(crate) fn seen(
    spec: &LeaderElectionSpec,
    reading: &Reading,
    status: &LeaderElectionStatus,
    regressed: bool,
) -> Vec<NewCondition> {
    let watching = format!(
        "The mirror watches {} in {}.",
        spec.path, spec.ensemble_ref.name
    );
    vec![
        condition(
            ConditionType::Synced,
            ConditionStatus::True,
            Reason::Watching,
            &watching,
        ),
        elected(spec, reading, status),
        queue(reading, status, regressed),
    ]
}

/// The conditions of an election that the mirror cannot see.
pub(crate) fn blind(
    reason: Reason,
    detail: &str,
    status: &LeaderElectionStatus,
) -> Vec<NewCondition> {
    let last = match &status.leader {
        Some(leader) => format!("The last known leader is {}.", leader.identity),
        None => "No leader is known.".to_owned(),
    };
    let unknown =
        |type_, what: &str| condition(type_, ConditionStatus::Unknown, Reason::NotObserved, what);
    vec![
        condition(
            ConditionType::Synced,
            ConditionStatus::False,
            reason,
            detail,
        ),
        unknown(ConditionType::LeaderElected, &last),
        unknown(
            ConditionType::QueueHealthy,
            "The znodes of the election cannot be seen.",
        ),
    ]
}

fn elected(
    spec: &LeaderElectionSpec,
    reading: &Reading,
    status: &LeaderElectionStatus,
) -> NewCondition {
    let decide =
        |status, reason, what: &str| condition(ConditionType::LeaderElected, status, reason, what);
    let Some(leader) = &status.leader else {
        let (reason, what) = if !reading.exists {
            (Reason::NoElection, format!("{} does not exist.", spec.path))
        } else if reading.unmatched > 0 {
            let dialect = spec.dialect.type_.as_str();
            let children = counted(reading.unmatched, "child", "children");
            let what = format!(
                "{} has {children}, but none with the name of a candidate in the dialect {dialect}.",
                spec.path
            );
            (Reason::NoMatchingChildren, what)
        } else {
            (
                Reason::NoCandidates,
                format!("{} has no candidates.", spec.path),
            )
        };
        return decide(ConditionStatus::False, reason, &what);
    };
    let token = match &leader.fencing_token {
        Some(token) => format!(", fencing token {token}"),
        None => String::new(),
    };
    if leader.acknowledged == Some(false) {
        let named = spec.dialect.acknowledgement.as_deref().unwrap_or_default();
        let why = if reading.foreign_acknowledgement {
            format!("{named} belongs to another session")
        } else {
            format!("{named} does not exist")
        };
        let what = format!(
            "{} is elected with node {}{token}, but has not acknowledged: {why}.",
            leader.identity,
            presentable(&leader.node),
        );
        return decide(
            ConditionStatus::False,
            Reason::AwaitingAcknowledgement,
            &what,
        );
    }
    let what = format!(
        "{} leads with node {}{token}.",
        leader.identity,
        presentable(&leader.node)
    );
    decide(ConditionStatus::True, Reason::Elected, &what)
}

fn queue(reading: &Reading, status: &LeaderElectionStatus, regressed: bool) -> NewCondition {
    let mut findings: Vec<(Reason, String)> = Vec::new();
    if regressed {
        let token = status
            .leader
            .as_ref()
            .and_then(|leader| leader.fencing_token.as_deref());
        let largest = status.max_fencing_token.as_deref();
        let what = format!(
            "The leader's fencing token {} is smaller than {}, which an earlier leader had.",
            token.unwrap_or_default(),
            largest.unwrap_or_default(),
        );
        findings.push((Reason::FencingTokenRegressed, what));
    }
    findings.extend(reading.anomalies.iter().map(finding));
    let Some((gravest, _)) = findings.first() else {
        let what = "Nothing about the znodes of the election looks wrong.";
        return condition(
            ConditionType::QueueHealthy,
            ConditionStatus::True,
            Reason::Orderly,
            what,
        );
    };
    let message: Vec<_> = findings
        .iter()
        .take(MAX_NAMES)
        .map(|(reason, what)| format!("{what} {}", reason.outlook()))
        .collect();
    NewCondition {
        type_: ConditionType::QueueHealthy.as_str(),
        status: ConditionStatus::False,
        reason: gravest.as_str(),
        message: message.join(" "),
    }
}

fn finding(anomaly: &Anomaly) -> (Reason, String) {
    match anomaly {
        Anomaly::NonEphemeral { children } => {
            let hint = if *children > 0 {
                let children = counted(*children as usize, "child", "children");
                format!(" It has {children}: if those are the candidates, another dialect fits.")
            } else {
                String::new()
            };
            let what = format!("The leader's node is not ephemeral.{hint}");
            (Reason::NonEphemeral, what)
        }
        Anomaly::DuplicateCandidate { session, nodes } => {
            let what = format!(
                "Session {} holds {} nodes of this election: {}.",
                format_session(*session),
                nodes.len(),
                names(nodes),
            );
            (Reason::DuplicateCandidate, what)
        }
        Anomaly::OrderAnomaly { earliest } => {
            let what = format!(
                "{} was created before the leader's node.",
                presentable(earliest)
            );
            (Reason::OrderAnomaly, what)
        }
        Anomaly::SequenceOverflow { sequence } => (
            Reason::SequenceOverflow,
            format!("A candidate has the sequence number {sequence}."),
        ),
        Anomaly::Unreadable { count } => {
            let nodes = counted(*count, "candidate's node", "candidates' nodes");
            (
                Reason::Unreadable,
                format!("The ACL does not let the mirror read {nodes}."),
            )
        }
    }
}

fn names(nodes: &[String]) -> String {
    let shown: Vec<_> = nodes
        .iter()
        .take(MAX_NAMES)
        .map(|node| presentable(node))
        .collect();
    let more = nodes.len().saturating_sub(MAX_NAMES);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{more}", shown.join(", "))
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
