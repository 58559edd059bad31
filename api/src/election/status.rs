//! The status of a `LeaderElection`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::vocabulary::vocabulary;

/// What the mirror saw last, and whether it still sees.
///
/// While `staleSince` is set, everything but the conditions is what was true at that time.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
// One owner for the whole: a record of who owns which field of which candidate is almost as long as the
// status itself, and the API server works it out anew with every change of a leader.
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LeaderElectionStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The dialect that the election was read in. With `Auto` it is what was detected, and absent
    /// until something was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,

    /// Whether at most one client can lead at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusivity: Option<Exclusivity>,

    /// Who leads. Absent if nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,

    /// Who led before: the leader before the present one, or the last one if no candidate leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_leader: Option<PreviousLeader>,

    /// The last changes of the leader, the newest first, at most 10: who led since when, and with what
    /// fencing token. Changes that followed each other faster than the mirror could read are not all
    /// there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Transition>,

    /// The candidates in the order in which they come to lead, at most `spec.maxCandidates`. The
    /// leader is the first of them, unless a registration node or the candidates' data decides.
    /// With `dialect.membersPath` those behind the leader are in no order of succession.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["node".to_owned()]))]
    pub candidates: Vec<Candidate>,

    /// How many candidates there are, the leader among them.
    #[serde(default)]
    pub candidate_count: i32,

    /// How many children of the path are no candidates in this dialect. They do no harm.
    #[serde(default)]
    pub unmatched_children: i32,

    /// The one that was active last by Hadoop's breadcrumb, a znode that outlives sessions. It is the
    /// leader as a rule. Where it is somebody else, the holder of the lock has to fence it first, and
    /// leads only then. Absent after a clean exit, and in other dialects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_active: Option<LastActive>,

    /// How many other sessions watch the leader's node, where all candidates share one: all of them
    /// wake up and try when it goes (a herd), where a sequential recipe wakes one. Counted when the
    /// leader changes and every few minutes, in ensembles that Bellwether runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watchers: Option<i32>,

    /// How often the leader's identity changed since the mirror began. A lower bound: changes that
    /// followed each other faster than the mirror could read count as one.
    #[serde(default)]
    pub leader_transitions: i32,

    /// How many terms of leadership the mirror saw. A new leader node is a new term, also if the
    /// same identity leads again.
    #[serde(default)]
    pub terms: i32,

    /// The largest fencing token that any leader had, in decimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_fencing_token: Option<String>,

    /// The newest transaction (zxid, decimal) that this status reflects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_zxid: Option<String>,

    /// When the leader's node last changed, by the operator's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,

    /// Since when the mirror cannot see. Absent while it sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_since: Option<Time>,

    /// `Synced`, `LeaderElected`, `QueueHealthy`, with the dialect `Auto` `DialectDetected`, with
    /// projections `Projected`, with those that need pods `LeaderBound`, and with a rollout `RolledOut`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}

/// The leader of an election.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// Who it is, at most 253 characters, free of control characters.
    pub identity: String,
    /// Where the identity comes from.
    pub identity_source: IdentitySource,
    /// The name of its znode.
    pub node: String,
    /// The session that owns the node, in hexadecimal. Absent if the node is not ephemeral.
    #[serde(default, rename = "sessionID", skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// When it began to lead: when its node was created, by the clock of the ZooKeeper server, or, if it waited in a queue,
    /// when the mirror noticed that its turn had come. Of a leader that the mirror found when it began to look, when the
    /// node was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<MicroTime>,
    /// The address that the node's data tells beside the identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The IP address from which its session is connected. Only where nothing but the session
    /// identifies it, in ensembles that Bellwether runs; the server's list of connections tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_address: Option<String>,
    /// The application's own name for this term of leadership, where the node's data or the one at
    /// `dialect.epochPath` tells one. It is for people; what fences is the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// The fencing token in decimal: the zxid that created the node. Every new leader has a larger
    /// one. Compare it as a number. Where the candidates' data decides who leads (leader rule
    /// `DataPointer`) it is the zxid that last wrote the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<String>,
    /// Whether the leader acknowledged that it leads. Only where the spec names an acknowledgement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<bool>,
    /// The name of the pod that it runs in. Only with a projection that has to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
}

/// A leader that no longer leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviousLeader {
    /// Who it was.
    pub identity: String,
    /// The name of its znode.
    pub node: String,
    /// Its fencing token in decimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<String>,
}

/// The one that was active last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastActive {
    /// Who it is.
    pub identity: String,
    /// The address that the breadcrumb tells beside the identity: where it would be fenced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The zxid that last wrote the breadcrumb, in decimal.
    pub zxid: String,
}

/// A change of the leader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    /// When the mirror saw it, by the operator's clock.
    pub time: Time,
    /// Who leads since then. Absent: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The name of its znode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its fencing token in decimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<String>,
    /// What ended the term of the leader before, where a projection or a handover has to know that leader's pod. Absent where
    /// nobody led before, and where its pod was not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<EndOfTerm>,
}

vocabulary! {
    /// What ended the term of a leader, as far as its pod and what Bellwether did tell.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    pub enum EndOfTerm {
        /// Bellwether asked it to hand over, within the handover's timeout.
        HandedOver,
        /// Bellwether evicted its pod in a rollout.
        RolledOut,
        /// Its pod was evicted: a node was drained, a taint or a pod of a higher priority displaced it.
        Evicted,
        /// Its pod was deleted in another way, or had ended.
        Deleted,
        /// Its containers ended, or others run in their place.
        Restarted,
        /// Its pod ran on: it gave up the lead, or its session expired. ZooKeeper does not tell which.
        ReleasedOrExpired,
    }
}

/// A candidate in the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// The name of its znode.
    pub node: String,
    /// Its place in the queue; 0 is the first.
    pub position: i32,
    /// The sequence number in its name. For display only: numbers start again when the parent is
    /// created again, so they are no fencing tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<i32>,
    /// Who it is.
    pub identity: String,
    /// The address that the node's data tells beside the identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The session that owns the node, in hexadecimal.
    #[serde(default, rename = "sessionID", skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The IP address from which its session is connected, under the same conditions as the
    /// leader's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_address: Option<String>,
    /// When its node was created, by the clock of the ZooKeeper server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_time: Option<MicroTime>,
    /// The zxid that created the node, in decimal: its fencing token once it leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub czxid: Option<String>,
}

/// Where an identity comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IdentitySource {
    /// The node's data, as text.
    #[default]
    Data,
    /// A value in the node's data, which is JSON.
    Json,
    /// A field of the node's data, which is a protobuf message.
    Protobuf,
    /// A value in the node's data, which are serialized Java objects.
    JavaSerialization,
    /// The node's data is not text: its first bytes in hexadecimal.
    Raw,
    /// The candidate is anonymous: the id of its session.
    Session,
    /// There is neither data nor a session, or the node may not be read, or the spec wants it so:
    /// the node's name or a part of it.
    NodeName,
}

/// Whether at most one client can lead at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Exclusivity {
    /// At most one.
    Exclusive,
    /// Several at the same time, as now: readers of a lock, or an application whose replicas all
    /// lead. No leader is shown.
    MultiLeader,
    /// Both is possible in this dialect, and what is there now does not tell.
    Unknown,
}

/// A session id as ZooKeeper's own tools print it: hexadecimal, as an unsigned number.
pub fn format_session(id: i64) -> String {
    format!("{id:#x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_a_server_with_a_large_id_is_printed_unsigned() {
        assert_eq!(format_session(0x0010_003f_2a1b_0004), "0x10003f2a1b0004");
        assert_eq!(format_session(-1), "0xffffffffffffffff");
    }

    #[test]
    fn an_empty_status_is_short() {
        let text = serde_json::to_string(&LeaderElectionStatus::default()).unwrap();
        assert_eq!(
            text,
            r#"{"candidateCount":0,"unmatchedChildren":0,"leaderTransitions":0,"terms":0}"#
        );
    }
}
