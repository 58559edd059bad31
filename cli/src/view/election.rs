//! An election: who leads, whether that can be read, who waits, and who led before.

use bellwether_api::LeaderElection;
use bellwether_api::election::EndOfTerm;
use kube::ResourceExt;
use serde::Serialize;

use super::{ConditionView, Tone};

/// An election in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ElectionRow {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The dialect that it is read in; before it is read, the dialect of the spec.
    pub dialect: String,
    /// The leader's identity: what an application wrote.
    pub leader: Option<String>,
    /// The leader's pod.
    pub pod: Option<String>,
    /// How many candidates there are, the leader among them.
    pub candidates: i32,
    /// The leader's fencing token in decimal.
    pub token: Option<String>,
    /// Since when the leader leads, in UTC.
    pub since: Option<String>,
    /// Whether it can be read, and why not.
    pub state: String,
    /// What the state means.
    pub tone: Tone,
}

/// All of one election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ElectionDetail {
    /// What the list says.
    #[serde(flatten)]
    pub row: ElectionRow,
    /// The znode of the election.
    pub path: String,
    /// The ensemble, or the hosts, that hold it.
    pub holder: String,
    /// How often the leader's identity changed since the mirror began, at least.
    pub transitions: i32,
    /// Every condition.
    pub conditions: Vec<ConditionView>,
    /// The candidates in the order in which they come to lead.
    pub queue: Vec<QueueEntry>,
    /// The last changes of the leader, the newest first.
    pub history: Vec<Change>,
}

/// A candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueEntry {
    /// Its place; 0 is the first.
    pub position: i32,
    /// Who it is: what an application wrote.
    pub identity: String,
    /// The name of its znode.
    pub node: String,
    /// Whether it leads.
    pub leads: bool,
    /// Since when it is there, in UTC.
    pub since: Option<String>,
}

/// A change of the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Change {
    /// When it was seen, in UTC.
    pub time: String,
    /// Who leads since then.
    pub identity: Option<String>,
    /// With what fencing token.
    pub token: Option<String>,
    /// What ended the term before, if that is known.
    pub cause: Option<EndOfTerm>,
}

impl ElectionRow {
    /// An election in a list.
    pub(crate) fn of(election: &LeaderElection) -> Self {
        let nothing = Default::default();
        let status = election.status.as_ref().unwrap_or(&nothing);
        let condition = |type_: &str| status.conditions.iter().find(|c| c.type_ == type_);
        let leader = status.leader.as_ref();
        // While the mirror is blind, all of it is what was seen last.
        let (state, tone) = match (&status.stale_since, condition("Synced")) {
            (Some(since), _) => (format!("stale since {}", since.0), Tone::Bad),
            (None, Some(synced)) if synced.status != "True" => {
                (format!("unreadable: {}", synced.reason), Tone::Bad)
            }
            (None, None) => ("not observed yet".to_owned(), Tone::Busy),
            (None, Some(_)) => match condition("LeaderElected") {
                Some(elected) if elected.status != "True" => {
                    (format!("readable: {}", elected.reason), Tone::Busy)
                }
                _ => ("readable".to_owned(), Tone::Good),
            },
        };
        let since = leader.and_then(|leader| leader.acquire_time.as_ref());
        Self {
            namespace: election.namespace().unwrap_or_default(),
            name: election.name_any(),
            dialect: status
                .dialect
                .clone()
                .unwrap_or_else(|| election.spec.dialect.type_.as_str().to_owned()),
            leader: leader.map(|leader| leader.identity.clone()),
            pod: leader.and_then(|leader| leader.pod.clone()),
            candidates: status.candidate_count,
            token: leader.and_then(|leader| leader.fencing_token.clone()),
            since: since.map(|time| format!("{:.0}", time.0)),
            state,
            tone,
        }
    }
}

impl ElectionDetail {
    /// All of an election, with as many candidates at most as `limit` says.
    pub(crate) fn of(election: &LeaderElection, limit: usize) -> Self {
        let status = election.status.clone().unwrap_or_default();
        let leading = status.leader.as_ref().map(|leader| leader.node.as_str());
        let queue = status.candidates.iter().take(limit);
        Self {
            row: ElectionRow::of(election),
            path: election.spec.path.clone(),
            holder: election.spec.holder().into_owned(),
            transitions: status.leader_transitions,
            conditions: status.conditions.iter().map(ConditionView::of).collect(),
            queue: queue
                .map(|candidate| QueueEntry {
                    position: candidate.position,
                    identity: candidate.identity.clone(),
                    node: candidate.node.clone(),
                    leads: leading == Some(candidate.node.as_str()),
                    since: candidate
                        .create_time
                        .as_ref()
                        .map(|time| format!("{:.0}", time.0)),
                })
                .collect(),
            history: status
                .history
                .iter()
                .map(|change| Change {
                    time: change.time.0.to_string(),
                    identity: change.identity.clone(),
                    token: change.fencing_token.clone(),
                    cause: change.cause,
                })
                .collect(),
        }
    }
}
