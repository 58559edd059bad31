//! What the operator reports about an ensemble: phase, conditions, members.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::waiting::{ChangeStatus, MemberState, WaitingFor};
use crate::vocabulary::vocabulary;

/// What the operator last saw and decided. It can be rebuilt from the world at any time; nothing
/// is decided from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZooKeeperEnsembleStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the operator is doing, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// What is the case and what happens next, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How many voters' pods exist; for the scale subresource.
    #[serde(default)]
    pub replicas: i32,
    /// How many voters serve.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Serving voters of those wanted at this point of a change, such as `3/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// The label selector of the voters' pods; for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The pod that leads, as its own server says. Absent while none leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The ZooKeeper version that is wanted, or the image where the spec gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The configuration revision (a ConfigMap) that new pods get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_revision: Option<String>,
    /// The server ids that vote under that revision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub voters: Vec<i32>,
    /// The change that is under way. Absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeStatus>,
    /// The observers. Absent where none is wanted and none exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observers: Option<ObserversStatus>,
    /// Every member: the voters by ordinal, then the observers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub members: Vec<MemberStatus>,
    /// What the volume claims ask for. Absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageStatus>,
    /// How the members' servers speak to each other. Absent while no member has a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsStatus>,
    /// The certificate that the members present to the operator and to each other. Absent before it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateStatus>,
    /// The last loss of data that a person accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_loss_accepted: Option<DataLossAccepted>,
    /// `Ready`, `Available`, `Progressing` and `Degraded`; and `VersionRecommended` where the ZooKeeper
    /// version is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// How far encryption has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TlsStatus {
    /// Between servers: `Disabled`, `Accepted` (they speak plaintext and accept both), `Preferred` (they speak TLS and accept
    /// both) or `Required`. While they change, that of the members that are furthest from `Required`.
    pub servers: String,
    /// From clients: `Disabled`, `Optional` (each member has a port for plaintext and one for TLS) or `Required`. While it
    /// changes, that of the members that are furthest from `Required`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<String>,
}

/// A certificate that the operator replaces before its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// The id of the authority that signed it.
    pub authority: String,
    /// The id of another authority that members trust as well, while theirs is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also_trusted: Option<String>,
    /// When it ends, in UTC.
    pub until: String,
}

/// A loss of data that a person accepted, by the annotation `zookeeper.bellwether.dev/accept-data-loss`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataLossAccepted {
    /// The token, which names the loss.
    pub token: String,
    /// When the operator recorded it, in UTC.
    pub at: String,
    /// The program that set the annotation. Which person ran it is in the API server's audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The server ids of the members whose disks were lost.
    pub lost: Vec<i32>,
    /// The server ids of those that were permitted to start with an empty disk and vote.
    pub permitted: Vec<i32>,
    /// Whether the ensemble has served since, so that it permits nothing any more.
    pub over: bool,
}

/// What the volume claims ask for, which `spec.storage` cannot go below.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageStatus {
    /// The largest size that a claim of a data volume asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub size: Option<String>,
    /// The largest size that a claim of a transaction-log volume asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub transaction_log_size: Option<String>,
}

/// How many observers there are. They are counted nowhere else in the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObserversStatus {
    /// How many observer pods exist.
    pub replicas: i32,
    /// How many observers serve.
    pub ready_replicas: i32,
    /// Serving observers of those that are wanted, such as `2/2`.
    pub ready: String,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// The pod.
    pub name: String,
    /// The server id, which is the content of its `myid`.
    pub server_id: i32,
    /// Its role in the ensemble, as the server itself says.
    pub role: MemberRole,
    /// The epoch of the last transaction that it saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// The id of the last transaction that it saw, in hexadecimal as ZooKeeper prints it. It is
    /// refreshed when something else changes, not by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zxid: Option<String>,
    /// The configuration revision that the pod runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_revision: Option<String>,
    /// What becomes of it.
    #[serde(default)]
    pub state: MemberState,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
    /// `state` and `waitingFor` in words, with the reason of a restart.
    pub verdict: String,
    /// The node that the pod runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberRole {
    /// It orders all transactions.
    Leader,
    /// It votes and serves.
    Follower,
    /// It serves and never votes.
    Observer,
    /// It answers, but takes part in no quorum: it looks for a leader.
    Looking,
    /// It does not answer.
    Down,
}

impl MemberRole {
    /// Whether a member in this role takes part in the ensemble and serves clients.
    pub fn serves(self) -> bool {
        !matches!(self, Self::Looking | Self::Down)
    }
}

impl std::fmt::Display for MemberRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Observer => "observer",
            Self::Looking => "looking",
            Self::Down => "down",
        })
    }
}

vocabulary! {
    /// What the operator is doing, in one word.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub enum Phase {
        /// The ensemble starts for the first time, or all of it starts again.
        Starting,
        /// Every member serves as the spec wants.
        Ready,
        /// Members are being added, one at a time.
        Growing,
        /// Members are being removed, one at a time.
        Shrinking,
        /// Members restart one after the other, the leader last.
        Rolling,
        /// Members are missing, and nothing but their return is needed.
        Recovering,
        /// The operator cannot go on; `message` says why.
        Blocked,
        /// The spec says `paused`.
        Paused,
        /// The spec is refused; the ensemble runs on as it was.
        Invalid,
        /// The ensemble is being deleted.
        Deleting,
    }
}

vocabulary! {
    /// The types of an ensemble's conditions.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
    pub enum ConditionType {
        /// Every member that the spec asks for serves, under the configuration that it asks for.
        Ready,
        /// A leader leads a majority: clients can read and write.
        Available,
        /// The operator is carrying out a change.
        Progressing,
        /// Something is wrong that a person should know. Of several, the gravest gives the reason; the message
        /// tells of the others too.
        Degraded,
        /// The ZooKeeper release has no known vulnerability or other flaw.
        VersionRecommended,
        /// Nothing goes on before a person does something. Present only while that is so, which is how tools
        /// that follow kstatus tell a failure from work under way.
        Stalled,
    }
}

vocabulary! {
    /// The reasons of an ensemble's conditions.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
    pub enum Reason {
        /// Every wanted member serves under the wanted configuration.
        AllMembersServing,
        /// A leader leads a majority.
        QuorumServing,
        /// No leader, or too few members that follow it.
        NoQuorum,
        /// The ensemble starts.
        Starting,
        /// Members are being added.
        Growing,
        /// Members are being removed.
        Shrinking,
        /// Members restart one after the other.
        Rolling,
        /// A member does not serve.
        MemberDown,
        /// A member is to be replaced by one with an empty volume, and cannot be yet.
        ReplacementWaits,
        /// Members are ready by the word of Kubernetes, and the operator cannot ask their servers.
        MembersUnreachable,
        /// A pod cannot run: image, scheduling or a crash.
        PodFailing,
        /// A container beside ZooKeeper's does not run; the server itself does not depend on it.
        ContainerFailing,
        /// The users of clients, the authorities of their certificates, or the certificate for them, are missing or cannot be used.
        CredentialsUnusable,
        /// Nothing to do.
        Stable,
        /// The spec says `paused`.
        Paused,
        /// The spec breaks a rule.
        InvalidSpec,
        /// What runs is not what the operator understands, so it does not touch it.
        UnknownState,
        /// Somebody else changed a pod template, which is put back.
        TemplateEdited,
        /// Two members say at the same time that they lead.
        TwoLeaders,
        /// Volume claims of an earlier ensemble exist, and may hold its data.
        VolumesLeftOver,
        /// Too few of the last members have their volume.
        VolumesLost,
        /// A majority of the members has an empty disk.
        DisksLost,
        /// A person accepted that data is lost, and the ensemble starts again with what is left.
        DataLossAccepted,
        /// A volume has little room left.
        VolumeNearlyFull,
        /// The members' certificate ends soon, and the operator could not replace it.
        CertificateExpiring,
        /// Volumes are growing to the size that the spec asks for.
        VolumesGrowing,
        /// The spec asks for larger volumes, and these cannot grow.
        VolumeCannotGrow,
        /// The spec asks for smaller volumes than there are.
        VolumeCannotShrink,
        /// The API server refused what the operator wanted to write.
        ApplyFailed,
        /// Nothing is wrong.
        Healthy,
        /// The ZooKeeper release has no known flaw.
        NoKnownFlaw,
        /// The ZooKeeper release has a known flaw; another one should be used.
        KnownFlaw,
    }
}
