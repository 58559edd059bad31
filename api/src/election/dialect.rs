//! The dialect of an election: which row of the table of dialects, with the options that the row needs.

pub(super) mod rules;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dialects::DialectType;
use super::recipe::Options;

/// An absolute path of a znode other than the root, without control characters.
const ABSOLUTE_PATH: &str = r"^(/[^/\x00-\x1f\x7f-\x9f]+)+$";

/// A dialect with its options.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::options(Options::Sequence),
    validation = rules::options(Options::Json),
    validation = rules::options(Options::Custom),
    validation = rules::acknowledgement(),
    validation = rules::leader_path(),
    validation = Rule::new("!has(self.custom) || self.custom.leaderRule != 'LeaderPath' || has(self.leaderPath)")
        .message("leaderPath is required for the leaderRule LeaderPath: name the znode whose owner leads"),
    validation = rules::only_of_one_node("membersPath")
        .message("membersPath is for dialects where path is the leader's node: elsewhere the candidates are the children of path"),
    validation = rules::only_of_one_node("epochPath")
        .message("epochPath is for dialects where path is the leader's node"),
)]
pub struct Dialect {
    /// Which recipe it is.
    #[serde(rename = "type")]
    pub type_: DialectType,

    /// Options of the dialect `Sequence`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<SequenceOptions>,

    /// Options of the dialect `SingleJson`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<Box<JsonOptions>>,

    /// Options of the dialect `Custom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<Box<CustomOptions>>,

    /// The znode that the leader creates once it has run its leader procedure: the name of a child
    /// of `path`, or an absolute path. `ZkRubyElection` has `leader_ack` if nothing else is said.
    ///
    /// Until it exists the leader is elected but not acknowledged: `LeaderElected` is False with
    /// the reason `AwaitingAcknowledgement`. An ephemeral acknowledgement counts only if the
    /// leader's own session owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^((/[^/\x00-\x1f\x7f-\x9f]+)+|[^/\x00-\x1f\x7f-\x9f]+)$")
    )]
    #[x_kube(validation = Rule::new("!self.split('/').exists(name, name == '.' || name == '..')").message("acknowledgement must not hold '.' or '..': ZooKeeper has no relative paths"))]
    pub acknowledgement: Option<String>,

    /// The absolute path of the znode where the leader registers itself, where that and not the
    /// head of the queue decides who leads.
    ///
    /// While nothing is registered, no candidate leads: the head of the queue is the next leader, and
    /// `LeaderElected` is False with the reason `AwaitingRegistration`. `Solr` needs no
    /// `leaderPath` where `path` ends in `/overseer_elect/election` or in
    /// `/leader_elect/SHARD/election`, since Solr registers leaders in a fixed place then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 2, max = 1024),
        regex(pattern = ABSOLUTE_PATH)
    )]
    #[x_kube(validation = Rule::new("!self.split('/').exists(name, name == '.' || name == '..')").message("leaderPath must not hold '.' or '..': ZooKeeper has no relative paths"))]
    pub leader_path: Option<String>,

    /// The absolute path of a znode whose children are those who may lead, for dialects where `path`
    /// is the leader's node, which says nothing of the others. For example `/brokers/ids` of Kafka,
    /// `/service/<scope>/members` of Patroni, `/hbase/backup-masters`.
    ///
    /// The status lists the leader and then the others, the oldest first; that is no order of
    /// succession. A child is known by its name. What is there of the leader's own is not listed
    /// twice: the child that its session owns, or whose name is its identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 2, max = 1024),
        regex(pattern = ABSOLUTE_PATH)
    )]
    #[x_kube(validation = Rule::new("!self.split('/').exists(name, name == '.' || name == '..')").message("membersPath must not hold '.' or '..': ZooKeeper has no relative paths"))]
    pub members_path: Option<String>,

    /// The absolute path of a znode with the application's own number of the leader's term, for dialects
    /// where `path` is the leader's node: `/controller_epoch` of Kafka. `status.leader.epoch` shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 2, max = 1024),
        regex(pattern = ABSOLUTE_PATH)
    )]
    #[x_kube(validation = Rule::new("!self.split('/').exists(name, name == '.' || name == '..')").message("epochPath must not hold '.' or '..': ZooKeeper has no relative paths"))]
    pub epoch_path: Option<String>,
}

impl From<DialectType> for Dialect {
    /// A dialect without any options.
    fn from(type_: DialectType) -> Self {
        Self {
            type_,
            ..Self::default()
        }
    }
}

/// Options of the dialect `Sequence`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SequenceOptions {
    /// What stands before the sequence number in a candidate's name, for example `leader` or
    /// `lock-`. Children with another name are counted and otherwise ignored.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[^/\x00-\x1f\x7f-\x9f]+$")
    )]
    pub prefix: String,
}

/// Options of the dialect `SingleJson`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JsonOptions {
    /// Where in the data the identity is, as JSON pointers; what several of them point at is
    /// joined with `:`. For example `["/brokerid"]`, or `["/host", "/port"]`.
    #[schemars(
        length(min = 1, max = 4),
        inner(length(min = 1, max = 256), regex(pattern = r"^(/([^/~]|~[01])*)+$"))
    )]
    pub pointers: Vec<String>,

    /// A JSON pointer to a value that tells whether the owner of the node leads, for example
    /// `/active`. If that is absent, null or false, no candidate leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^(/([^/~]|~[01])*)+$"))]
    pub active: Option<String>,

    /// A JSON pointer to the time until which the owner of the node leads, for example `/end` of
    /// kazoo's `NonBlockingLease`. From then on no candidate leads, by the operator's clock, although the
    /// node exists; nor does anybody if there is no such time in the data. As in RFC 3339; without an
    /// offset it is UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^(/([^/~]|~[01])*)+$"))]
    pub expiry: Option<String>,
}

/// Options of the dialect `Custom`.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(self.leaderRule == 'Exists') != has(self.childPattern)")
        .message("childPattern is required, except for the leaderRule Exists, where path is the leader's node"),
    validation = Rule::new("(self.leaderRule == 'DataPointer') == has(self.dataPointer)")
        .message("dataPointer is required for the leaderRule DataPointer and not allowed for any other"),
)]
pub struct CustomOptions {
    /// A regular expression (syntax of Rust's crate `regex`) that the whole name of a candidate
    /// matches. Children with another name are counted and otherwise ignored.
    ///
    /// Groups with these names have a meaning: `seq` is the sequence number, which the orders
    /// `Numeric` and `Lexical` need; `id` is the identity for the decoder `NodeName`; `guid` is
    /// what a client looks for after a create whose reply was lost, so two nodes with the same are
    /// suspicious; `sid` is the session, decimal or 16 hexadecimal digits; `label` tells kinds of
    /// candidates apart and is only for readers of the pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub child_pattern: Option<String>,

    /// How candidates are ordered. Equal ones are ordered by name.
    #[serde(default)]
    pub order: CandidateOrder,

    /// Who leads.
    #[serde(default)]
    pub leader_rule: LeaderRule,

    /// For the leader rule `DataPointer`: the JSON pointer to the value that marks the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^(/([^/~]|~[01])*)+$"))]
    pub data_pointer: Option<String>,
}

/// How the candidates of a `Custom` dialect are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum CandidateOrder {
    /// By the group `seq` as a signed number of 32 bits. A child whose `seq` is none is no
    /// candidate.
    #[default]
    Numeric,
    /// By the group `seq` as text, byte by byte.
    Lexical,
    /// By the transaction that created the node, the oldest first. Every candidate's node has to be
    /// read for that, so with more than 1000 candidates nobody is shown as the leader.
    CreationZxid,
}

/// Who leads in a `Custom` dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum LeaderRule {
    /// The first candidate in the order.
    #[default]
    First,
    /// Whoever registered in the node `leaderPath`.
    LeaderPath,
    /// `path` is itself the node of the leader; there are no children.
    Exists,
    /// The first candidate in whose data, which is JSON, the value at `dataPointer` exists and is
    /// neither null nor false. The fencing token is then the transaction that last wrote the data.
    /// Every candidate's node is watched for that, so with more than 1000 candidates nobody is
    /// shown as the leader.
    DataPointer,
}
