//! The sentences of conditions: what is the case, then what happens next.

use bellwether_api::conditions::{ConditionStatus, NewCondition};
use bellwether_api::election::{
    ConditionType, DialectType, LeaderElectionSpec, LeaderElectionStatus, Reason, format_session,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::anomaly::{Anomaly, Common};
use crate::decode::presentable;
use crate::dialect::Detection;
use crate::reading::{Reading, Verdict};
use crate::rules::MAX_READ;

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

/// How many sessions have to watch one node before a condition mentions them.
const HERD: i32 = 2;

/// The conditions of an election that the mirror sees, whose status is otherwise complete. `regressed` says that a consumer
/// would take the leader's token for an earlier one, `flaps` that the leader changes again and again.
pub(crate) fn seen(
    spec: &LeaderElectionSpec,
    reading: &Reading,
    status: &LeaderElectionStatus,
    (regressed, flaps): (bool, bool),
) -> Vec<NewCondition> {
    let watching = format!("The mirror watches {} in {}.", spec.path, spec.holder());
    let mut conditions = vec![
        condition(
            ConditionType::Synced,
            ConditionStatus::True,
            Reason::Watching,
            &watching,
        ),
        elected(spec, reading, status),
        queue(reading, status, regressed, flaps),
    ];
    conditions.extend(
        reading
            .detection
            .as_ref()
            .map(|found| detected(spec, found)),
    );
    conditions
}

/// The condition that tools wait for, given all others.
pub(crate) fn ready(projects: bool, others: &[Condition]) -> NewCondition {
    let is_true = |type_: ConditionType| {
        let mut others = others.iter();
        others.any(|other| other.type_ == type_.as_str() && other.status == "True")
    };
    let say = |status, reason, what: &str| condition(ConditionType::Ready, status, reason, what);
    if !is_true(ConditionType::Synced) {
        let what = "The election cannot be seen.";
        return say(ConditionStatus::Unknown, Reason::NotObserved, what);
    }
    if projects && !is_true(ConditionType::Projected) {
        let what = "What the status says is not projected yet.";
        return say(ConditionStatus::False, Reason::NotProjected, what);
    }
    let what = "The status says what is in ZooKeeper.";
    say(ConditionStatus::True, Reason::Current, what)
}

/// What the dialect `Auto` found.
fn detected(spec: &LeaderElectionSpec, detection: &Detection) -> NewCondition {
    let path = &spec.path;
    let (status, reason, what) = match detection {
        Detection::Found(dialect) => {
            let what = format!("The znodes are those of the dialect {}.", dialect.as_str());
            (ConditionStatus::True, Reason::Detected, what)
        }
        Detection::Nothing { sequential: 0 } => {
            let what = format!(
                "{path} has no child that looks like a candidate. Where the leader holds a node of its \
                 own there, path has to be that node's."
            );
            (ConditionStatus::False, Reason::NotDetected, what)
        }
        Detection::Nothing { sequential } => {
            let children = counted(*sequential, "child", "children");
            let what = format!(
                "{path} has {children} with a sequence number, in no dialect that is detected; \
                 Sequence with a prefix may fit."
            );
            (ConditionStatus::False, Reason::NotDetected, what)
        }
        Detection::Ambiguous { counts, unknown } => {
            let mut parts: Vec<String> = counts
                .iter()
                .map(|(dialect, count)| format!("{count} of {}", dialect.as_str()))
                .collect();
            if *unknown > 0 {
                parts.push(format!("{unknown} of no known dialect"));
            }
            let what = format!(
                "{path} has children of several dialects: {}.",
                parts.join(", ")
            );
            (ConditionStatus::False, Reason::Ambiguous, what)
        }
    };
    condition(ConditionType::DialectDetected, status, reason, &what)
}

/// The conditions of an election that the mirror cannot see.
pub(crate) fn blind(
    spec: &LeaderElectionSpec,
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
    let mut conditions = vec![
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
    ];
    if spec.dialect.type_ == DialectType::Auto {
        let last = match &status.dialect {
            Some(dialect) => format!("The znodes were those of the dialect {dialect}."),
            None => "No dialect was detected yet.".to_owned(),
        };
        conditions.push(unknown(ConditionType::DialectDetected, &last));
    }
    conditions
}

fn elected(
    spec: &LeaderElectionSpec,
    reading: &Reading,
    status: &LeaderElectionStatus,
) -> NewCondition {
    let decide =
        |status, reason, what: &str| condition(ConditionType::LeaderElected, status, reason, what);
    let unfenced = reading.last_active.as_ref().filter(|last| {
        let leader = status.leader.as_ref();
        leader.is_none_or(|leader| leader.identity != last.identity.text)
    });
    let Some(leader) = &status.leader else {
        let (reason, what) = if !reading.exists {
            let unfenced = match unfenced {
                Some(last) => format!(
                    " {} was active last: the next leader fences it first.",
                    last.identity.text
                ),
                None => String::new(),
            };
            let what = format!("{} does not exist.{unfenced}", spec.path);
            (Reason::NoElection, what)
        } else if let Some(open) = undecided(spec, reading) {
            open
        } else if reading.unmatched > 0 {
            let dialect = reading.dialect.unwrap_or(spec.dialect.type_).as_str();
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
        let status = match reading.verdict {
            Verdict::TooMany | Verdict::Hidden { .. } | Verdict::UnknownDialect => {
                ConditionStatus::Unknown
            }
            _ => ConditionStatus::False,
        };
        return decide(status, reason, &what);
    };
    let token = match &leader.fencing_token {
        Some(token) => format!(", fencing token {token}"),
        None => String::new(),
    };
    if leader.acknowledged == Some(false) {
        let named = reading.acknowledgement.as_deref().unwrap_or_default();
        let why = match &reading.last_active {
            Some(last) if unfenced.is_some() => format!(
                "is not active: it fences {} first, whom the breadcrumb names as active",
                last.identity.text
            ),
            _ if reading.acknowledgement.is_none() => {
                "is not active: it has not written the breadcrumb".to_owned()
            }
            _ if reading.foreign_acknowledgement => {
                format!("has not acknowledged: {named} belongs to another session")
            }
            _ => format!("has not acknowledged: {named} does not exist"),
        };
        let what = format!(
            "{} is elected with node {}{token}, but {why}.",
            leader.identity,
            presentable(&leader.node),
        );
        return decide(
            ConditionStatus::False,
            Reason::AwaitingAcknowledgement,
            &what,
        );
    }
    let herd = match status.watchers {
        Some(watchers) if watchers >= HERD => format!(
            " {watchers} sessions watch this node and all wake up when it goes; with a sequential \
             recipe one would."
        ),
        _ => String::new(),
    };
    let what = format!(
        "{} leads with node {}{token}.{herd}",
        leader.identity,
        presentable(&leader.node)
    );
    decide(ConditionStatus::True, Reason::Elected, &what)
}

/// Why no leader is shown although there are candidates.
fn undecided(spec: &LeaderElectionSpec, reading: &Reading) -> Option<(Reason, String)> {
    let head = reading
        .candidates
        .first()
        .map(|candidate| presentable(&candidate.node))
        .unwrap_or_default();
    Some(match &reading.verdict {
        Verdict::Nobody | Verdict::Leader(_) => return None,
        Verdict::Together { holders } => {
            let holders = counted(*holders, "client", "clients");
            (
                Reason::MultiLeader,
                format!("{holders} hold the election together, {head} first."),
            )
        }
        Verdict::Unregistered { left_by } => {
            let named = reading.leader_path.as_deref().unwrap_or_default();
            let why = match left_by {
                Some(identity) => {
                    format!("is left from {identity}, which waits in the queue again")
                }
                None => "does not exist".to_owned(),
            };
            let what = format!("{head} is the first in the queue, but {named} {why}.");
            (Reason::AwaitingRegistration, what)
        }
        Verdict::NotActive => {
            let candidacy = reading
                .candidates
                .first()
                .and_then(|candidate| candidate.znode.candidacy());
            let expired = candidacy
                .and_then(|candidacy| Some((&candidacy.identity.text, candidacy.expires?)));
            let what = match expired {
                Some((identity, end)) => format!("{identity} led until {end}."),
                None => "No candidate's data says that it leads.".to_owned(),
            };
            (Reason::NotActive, what)
        }
        Verdict::TooMany => {
            let count = reading.candidate_count;
            let what = format!(
                "All candidates would have to be read to know who leads, but there are {count}, \
                 which is more than {MAX_READ}."
            );
            (Reason::Undecidable, what)
        }
        Verdict::Hidden { count } => {
            let nodes = counted(*count, "candidate's node", "candidates' nodes");
            let what = format!(
                "All candidates have to be read to know who leads, but the ACL does not let the \
                 mirror read {nodes}."
            );
            (Reason::Undecidable, what)
        }
        Verdict::UnknownDialect => {
            let children = counted(reading.unmatched, "child", "children");
            let what = format!(
                "{} has {children}, in a dialect that is not known.",
                spec.path
            );
            (Reason::DialectUnknown, what)
        }
    })
}

fn queue(
    reading: &Reading,
    status: &LeaderElectionStatus,
    regressed: bool,
    flaps: bool,
) -> NewCondition {
    let mut findings: Vec<(Reason, String)> = Vec::new();
    if regressed {
        let token = status
            .leader
            .as_ref()
            .and_then(|leader| leader.fencing_token.as_deref());
        let largest = status.max_fencing_token.as_deref();
        let what = format!(
            "The leader's fencing token {} is not larger than {}, which an earlier leader had.",
            token.unwrap_or_default(),
            largest.unwrap_or_default(),
        );
        findings.push((Reason::FencingTokenRegressed, what));
    }
    if flaps {
        let what = "The leader changes again and again.".to_owned();
        findings.push((Reason::Flapping, what));
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
        Anomaly::DuplicateCandidate { common, nodes } => {
            let who = match common {
                Common::Session(session) => format!("Session {} holds", format_session(*session)),
                Common::Guid(guid) => format!("The client with the id {} holds", presentable(guid)),
                Common::Identity(identity) => format!("{identity} holds, in several sessions,"),
            };
            let (count, names) = (nodes.len(), names(nodes));
            let what = format!("{who} {count} nodes of this election: {names}.");
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

/// The first of these names, and how many more there are.
pub(crate) fn names(all: &[impl AsRef<str>]) -> String {
    let shown: Vec<_> = all
        .iter()
        .take(MAX_NAMES)
        .map(|name| presentable(name.as_ref()))
        .collect();
    let shown = shown.join(", ");
    match all.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use bellwether_api::conditions::merge_conditions;

    use super::*;

    #[test]
    fn an_election_is_ready_when_its_status_and_its_projections_are_current() {
        use ConditionStatus::{False, True, Unknown};
        let synced = |status| condition(ConditionType::Synced, status, Reason::Watching, "");
        let projected = |status| condition(ConditionType::Projected, status, Reason::UpToDate, "");
        let nobody = condition(ConditionType::LeaderElected, False, Reason::NoElection, "");
        for (projects, others, expected) in [
            (false, vec![synced(True), nobody.clone()], "True"),
            (false, vec![synced(False), nobody.clone()], "Unknown"),
            (true, vec![synced(True), nobody], "False"),
            (true, vec![synced(True), projected(False)], "False"),
            (true, vec![synced(True), projected(True)], "True"),
            (true, vec![synced(False), projected(Unknown)], "Unknown"),
        ] {
            let others = merge_conditions(&[], others, None, jiff::Timestamp::UNIX_EPOCH);
            let found = ready(projects, &others);
            assert_eq!(found.status.as_str(), expected, "{projects} {others:?}");
        }
    }
}
