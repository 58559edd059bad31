//! The kind `ZooKeeperEnsemble`: what a user may ask for, and what the operator reports.

mod authentication;
mod elections;
mod grammar;
mod guidance;
pub mod jvm;
mod network;
pub mod settings;
pub mod status;
mod tls;
pub mod versions;
pub mod waiting;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use authentication::{
    Authentication, ClientCertificates, NO_SUBJECT, NO_USERS, NOBODY, USERS_SUFFIX, Users,
    WITHOUT_TLS,
};
pub use elections::{EVERY_NAMESPACE, Elections, MAX_NAMESPACES, NO_NAMESPACE};
pub use network::{MAX_PEERS, MembersPolicy, Network, PEERS};
pub use status::{MemberRole, MemberStatus, Phase, ZooKeeperEnsembleStatus};
pub use tls::{
    CERTIFICATE_SUFFIX, ClientsTls, IssuerReference, NO_CERTIFICATE, NO_CLIENT_PORT, ServersTls,
    TWO_SOURCES, Tls,
};
pub use waiting::{Awaited, ChangeStatus, MemberState, WaitingFor};

/// The ZooKeeper version of an ensemble that names neither a version nor an image.
pub const DEFAULT_VERSION: &str = "3.9.5";
/// The repository of the official image, used when only a version is given.
pub const DEFAULT_IMAGE_REPOSITORY: &str = "docker.io/library/zookeeper";
/// The largest ensemble. Every write waits for a majority, so more voters make writes slower and
/// add little safety beyond seven.
pub const MAX_REPLICAS: i32 = 13;
/// The most observers of an ensemble, so that every server id stays within what ZooKeeper takes.
pub const MAX_OBSERVERS: i32 = 50;
/// The size of a new file of the transaction log if the spec does not say, in KiB: ZooKeeper's default.
pub const DEFAULT_PRE_ALLOC_SIZE: i32 = 65_536;
/// The longest name of an ensemble. The pods' `controller-revision-hash` label, which has the name
/// of the StatefulSet in it, is limited to 63 characters.
pub const MAX_NAME_LENGTH: usize = 40;

/// A ZooKeeper ensemble of an odd number of servers. Bellwether writes each server's `myid` and
/// `zoo.cfg`, and orders every change so that the leader restarts last and no acknowledged write
/// is lost.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "zookeeper.bellwether.dev",
    version = "v1alpha1",
    kind = "ZooKeeperEnsemble",
    plural = "zookeeperensembles",
    shortname = "zke",
    category = "zookeeper",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "ZooKeeperEnsembleStatus",
    doc = "A ZooKeeper ensemble of an odd number of servers. Bellwether writes each server's myid and zoo.cfg, and orders every change so that the leader restarts last and no acknowledged write is lost.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Size",
        type_ = "integer",
        description = "Members that the spec asks for",
        json_path = ".spec.replicas"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        description = "Members that serve, of those that exist",
        json_path = ".status.ready"
    ),
    printcolumn(
        name = "Leader",
        type_ = "string",
        description = "The pod that leads",
        json_path = ".status.leader"
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        description = "What the operator is doing",
        json_path = ".status.phase"
    ),
    printcolumn(
        name = "Observers",
        type_ = "string",
        description = "Observers that serve, of those that are wanted",
        json_path = ".status.observers.ready",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Version",
        type_ = "string",
        description = "The ZooKeeper version or image that is wanted",
        json_path = ".status.version",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        description = "What happens next",
        json_path = ".status.message",
        priority = 1
    ),
    validation = Rule::new("self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("the name of an ensemble becomes the name of Services and pods: use at most 40 lower-case letters, digits and '-', starting with a letter"),
    validation = Rule::new("quantity(has(self.spec.storage) && has(self.spec.storage.size) ? (type(self.spec.storage.size) == int ? string(self.spec.storage.size) : self.spec.storage.size) : '8Gi').compareTo(quantity(has(oldSelf.spec.storage) && has(oldSelf.spec.storage.size) ? (type(oldSelf.spec.storage.size) == int ? string(oldSelf.spec.storage.size) : oldSelf.spec.storage.size) : '8Gi')) >= 0 || has(oldSelf.status) && has(oldSelf.status.storage) && has(oldSelf.status.storage.size) && quantity(has(self.spec.storage) && has(self.spec.storage.size) ? (type(self.spec.storage.size) == int ? string(self.spec.storage.size) : self.spec.storage.size) : '8Gi').compareTo(quantity(oldSelf.status.storage.size)) >= 0")
        .message("storage.size cannot shrink: no volume can. Ask for the size that the claims ask for, or more")
        .field_path(".spec.storage.size"),
    validation = Rule::new("!(has(self.spec.storage) && has(self.spec.storage.transactionLog) && has(oldSelf.spec.storage) && has(oldSelf.spec.storage.transactionLog)) || quantity(has(self.spec.storage) && has(self.spec.storage.transactionLog) && has(self.spec.storage.transactionLog.size) ? (type(self.spec.storage.transactionLog.size) == int ? string(self.spec.storage.transactionLog.size) : self.spec.storage.transactionLog.size) : '8Gi').compareTo(quantity(has(oldSelf.spec.storage) && has(oldSelf.spec.storage.transactionLog) && has(oldSelf.spec.storage.transactionLog.size) ? (type(oldSelf.spec.storage.transactionLog.size) == int ? string(oldSelf.spec.storage.transactionLog.size) : oldSelf.spec.storage.transactionLog.size) : '8Gi')) >= 0 || has(oldSelf.status) && has(oldSelf.status.storage) && has(oldSelf.status.storage.transactionLogSize) && quantity(has(self.spec.storage) && has(self.spec.storage.transactionLog) && has(self.spec.storage.transactionLog.size) ? (type(self.spec.storage.transactionLog.size) == int ? string(self.spec.storage.transactionLog.size) : self.spec.storage.transactionLog.size) : '8Gi').compareTo(quantity(oldSelf.status.storage.transactionLogSize)) >= 0")
        .message("storage.transactionLog.size cannot shrink: no volume can. Ask for the size that the claims ask for, or more")
        .field_path(".spec.storage.transactionLog.size")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.idOffset) ? self.idOffset : 0) == (has(oldSelf.idOffset) ? oldSelf.idOffset : 0)")
        .message("idOffset is immutable: it is part of every member's identity on its volume"),
    validation = Rule::new("(has(self.storage) && has(self.storage.storageClassName) ? self.storage.storageClassName : '') == (has(oldSelf.storage) && has(oldSelf.storage.storageClassName) ? oldSelf.storage.storageClassName : '')")
        .message("storage.storageClassName is immutable: a StatefulSet cannot change its volume claims"),
    validation = Rule::new(grammar::log_file_rule())
        .message("the volume of the transaction log must hold one file of config.preAllocSize (by default 65536 KiB): ask for a larger volume, or a smaller preAllocSize")
        .field_path(".storage"),
    validation = Rule::new(grammar::heap_rule())
        .message("pod.resources.limits: memory must hold jvm.heap (by default 512Mi) and 64Mi beside it for the virtual machine, or the kernel kills the server when the heap is full")
        .field_path(".pod.resources.limits"),
    validation = Rule::new("!has(self.authentication) || has(self.tls) && has(self.tls.clients) && self.tls.clients != 'Disabled'")
        .message(WITHOUT_TLS)
        .field_path(".authentication"),
    validation = Rule::new("!has(oldSelf.membershipChange) || oldSelf.membershipChange != 'Reconfiguration' || has(self.membershipChange) && self.membershipChange == 'Reconfiguration'")
        .message(NO_WAY_BACK)
        .field_path(".membershipChange"),
    validation = Rule::new("(has(self.storage) && has(self.storage.transactionLog)) == (has(oldSelf.storage) && has(oldSelf.storage.transactionLog))")
        .message("storage.transactionLog is set when the ensemble is created, or never: a StatefulSet cannot change its volume claims"),
    validation = Rule::new("!(has(self.storage) && has(self.storage.transactionLog)) || !(has(oldSelf.storage) && has(oldSelf.storage.transactionLog)) || (has(self.storage.transactionLog.storageClassName) ? self.storage.transactionLog.storageClassName : '') == (has(oldSelf.storage.transactionLog.storageClassName) ? oldSelf.storage.transactionLog.storageClassName : '')")
        .message("storage.transactionLog.storageClassName is immutable: a StatefulSet cannot change its volume claims"),
)]
pub struct ZooKeeperEnsembleSpec {
    /// How many voting members the ensemble has: odd, 1 to 13. An even ensemble tolerates no more
    /// failures than one member fewer. How a change is carried out is up to `membershipChange`.
    #[x_kube(
        validation = Rule::new("self >= 1")
            .message("an ensemble has at least 1 member; to remove it, delete the ZooKeeperEnsemble"),
        validation = Rule::new("self <= 13")
            .message("at most 13 members are supported, since every write waits for a majority; use 13 or fewer"),
        validation = Rule::new("self < 1 || self > 13 || self % 2 == 1").message(Message::Expression(
            "'an even ensemble tolerates no more failures than one member fewer; use ' + {2: '1 or 3', 4: '3 or 5', 6: '5 or 7', 8: '7 or 9', 10: '9 or 11', 12: '11 or 13'}[self]".to_owned())),
    )]
    pub replicas: i32,

    /// How the server list changes when `replicas` does. `RollingRestart` restarts members, one at a time;
    /// `Reconfiguration` restarts nobody. An ensemble goes from the first to the second by one roll, and not back.
    /// Default: RollingRestart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub membership_change: Option<MembershipChange>,

    /// Members that serve clients and never vote: more of them make reads faster and writes no
    /// slower. A change of their number restarts no member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observers: Option<Observers>,

    /// The ZooKeeper version, which is also the tag of the official image. Default: 3.9.5. Releases
    /// that may lose data are refused; those with other known flaws are reported by the condition
    /// `VersionRecommended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self.matches('^3[.](8|9)[.](0|[1-9][0-9]*)$')")
        .message("version must be a ZooKeeper release 3.8.x or 3.9.x, such as 3.9.5"),
        validation = Rule::new(versions::version_rule()).message(Message::Expression(versions::version_message())))]
    #[schemars(length(max = 32))]
    pub version: Option<String>,

    /// The whole image reference, for a mirror or an image of your own. It must keep the official
    /// image's contract: uid 1000, `/conf`, `/data`, and `zkServer.sh` on the PATH.
    /// A tag like one of the official image's says which release it is, where `version` does not;
    /// releases that may lose data are refused.
    /// One with an archive of classes (`docs/benchmarks.md`) starts in half the time.
    /// Default: `docker.io/library/zookeeper:<version>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(validation = Rule::new(versions::image_rule()).message(Message::Expression(versions::image_message())))]
    pub image: Option<String>,

    /// When the kubelet pulls the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,

    /// Secrets with credentials for the image's registry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// Each member's volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,

    /// Settings of `zoo.cfg`. A change restarts every member once, the leader last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Config>,

    /// The Java virtual machine of every member. A change restarts every member once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jvm: Option<Jvm>,

    /// Labels, scheduling and resources of the members' pods. A change restarts every member once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,

    /// What ZooKeeper's servers measure. A change restarts every member once, the leader last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<ServerMetrics>,

    /// Encryption and mutual authentication. A change restarts members in rolls, the leader last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,

    /// How clients prove who they are, and whether they have to. A change restarts every member once, the leader last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,

    /// Who may connect to the members. A change restarts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,

    /// Whose elections may be mirrored from this ensemble. Default: those of its own namespace. A change restarts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elections: Option<Elections>,

    /// What becomes of a member whose node or disk is gone for good. Default: it waits for its volume, unless a person asks for
    /// its replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Replacement>,

    /// Added to every server id: ordinal i is server id i + 1 + idOffset. For an ensemble whose
    /// servers' ids must not meet those of another one. Immutable. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 80))]
    pub id_offset: Option<i32>,

    /// While true the operator changes nothing: it applies no object and restarts no member. It
    /// goes on reporting status.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// The least and the most minutes after which a member is replaced: long enough for a node to come back, and a week.
pub const LEAST_REPLACED_AFTER: i32 = 5;
/// See [`LEAST_REPLACED_AFTER`].
pub const MOST_REPLACED_AFTER: i32 = 10_080;

/// When a member is replaced without being asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replacement {
    /// After how many minutes in which its pod cannot run (it finds no node, or its server ends again and again) a member's
    /// volumes are deleted, and it starts with empty ones and copies everything from the others: 5 to 10080. Only while one member leads and
    /// a majority serves without it.
    #[schemars(range(min = 5, max = 10080))]
    pub after_minutes: i32,
}

/// How the server list changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MembershipChange {
    /// Each member has the list in a file, and restarts with another one, in steps of one member.
    #[default]
    RollingRestart,
    /// The members agree on another list while they run (ZooKeeper's `reconfig`), any number of members at once.
    Reconfiguration,
}

/// Why an ensemble whose members change at run time stays so.
pub const NO_WAY_BACK: &str = "membershipChange cannot go back to RollingRestart: ZooKeeper has given the server list a version, \
                               and a member that restarts with a list without one finds no leader. For lists in files create the \
                               ensemble again on its volumes";
/// Members that serve clients and never vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Observers {
    /// How many: any number, 0 to 50. They are pods of their own, named `NAME-observer-0` and so on,
    /// with server ids from 101 plus `idOffset`; each has a volume like a voter's.
    #[schemars(range(min = 0, max = 50))]
    pub replicas: i32,
}

/// What ZooKeeper's servers measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerMetrics {
    /// Whether every member serves ZooKeeper's own metrics to Prometheus, at `/metrics` on port 7000,
    /// named `metrics`. It costs the servers a little of every request. Default: false.
    #[serde(default)]
    pub enabled: bool,
}

/// When the kubelet pulls an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// At every start of a pod.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// Never: the node must have it.
    Never,
}

/// Each member's volume. Its class cannot change while the ensemble exists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// The size of each member's volume. It may grow where the StorageClass has
    /// `allowVolumeExpansion`; it cannot shrink. Default: 8Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("type(self) == int ? self > 0 : isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))")
        .message("storage.size must be a size such as 20Gi"))]
    pub size: Option<Quantity>,
    /// The StorageClass. Default: the cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = grammar::NAME))]
    pub storage_class_name: Option<String>,
    /// What becomes of volumes when the ensemble is deleted, and of the volume of a member that
    /// leaves through a smaller `replicas`. Default: Retain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_policy: Option<ReclaimPolicy>,
    /// A volume of its own for each member's transaction log, so that its writes do not wait for
    /// those of snapshots. It is set when the ensemble is created, or never. Default: the log is on
    /// the same volume as the snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction_log: Option<TransactionLog>,
}

/// Each member's volume for the transaction log. Its class cannot change while the ensemble exists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransactionLog {
    /// The size of each volume. It may grow where the StorageClass has `allowVolumeExpansion`; it
    /// cannot shrink. Default: 8Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("type(self) == int ? self > 0 : isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))")
        .message("storage.transactionLog.size must be a size such as 20Gi"))]
    pub size: Option<Quantity>,
    /// The StorageClass. Default: the cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = grammar::NAME))]
    pub storage_class_name: Option<String>,
}

/// What becomes of volumes that no member uses any more. With `Delete` they are deleted when the size
/// change that removed their members is done, and all of them with the ensemble; never because of what
/// happens to the StatefulSet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReclaimPolicy {
    /// They stay. An ensemble of the same name takes them up again, whatever its size; so does a
    /// member that comes back.
    #[default]
    Retain,
    /// They are deleted.
    Delete,
}

/// What is wrong with session timeouts with which no server starts.
pub const SESSION_TIMEOUTS: &str = "minSessionTimeout (by default 2 ticks) must not exceed \
                                    maxSessionTimeout (by default 20 ticks)";

/// Settings of `zoo.cfg`, in ZooKeeper's own names and units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.minSessionTimeout) ? self.minSessionTimeout : 2 * (has(self.tickTime) ? self.tickTime : 2000)) <= (has(self.maxSessionTimeout) ? self.maxSessionTimeout : 20 * (has(self.tickTime) ? self.tickTime : 2000))")
        .message(SESSION_TIMEOUTS)
)]
pub struct Config {
    /// The unit of ZooKeeper's time, in milliseconds. Default: 2000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 60000))]
    pub tick_time: Option<i32>,
    /// Ticks that a follower may take to connect to the leader and sync. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub init_limit: Option<i32>,
    /// Ticks that a follower may lag behind the leader; a hung leader is noticed after this time.
    /// Default: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub sync_limit: Option<i32>,
    /// The shortest session timeout that a client may ask for, in milliseconds. Default: 2 ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600000))]
    pub min_session_timeout: Option<i32>,
    /// The longest session timeout that a client may ask for, in milliseconds. Default: 20 ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600000))]
    pub max_session_timeout: Option<i32>,
    /// Connections that one client address may hold to one member; 0 is no limit. Default: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100000))]
    pub max_client_cnxns: Option<i32>,
    /// Transactions between two snapshots. Default: 100000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 100000000))]
    pub snap_count: Option<i32>,
    /// Size of a new transaction log file, in KiB. Default: 65536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 64, max = 4194304))]
    pub pre_alloc_size: Option<i32>,
    /// Snapshots that the purge keeps. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 3, max = 1000))]
    pub autopurge_snap_retain_count: Option<i32>,
    /// Hours between two purges of old snapshots and logs. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8760))]
    pub autopurge_purge_interval: Option<i32>,
    /// Further keys of `zoo.cfg`. ZooKeeper ignores a misspelt key silently, so only known keys are
    /// accepted; keys that the operator owns are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 1024}))]
    #[x_kube(
        validation = Rule::new(settings::reserved_rule()).message(Message::Expression(settings::reserved_message())),
        validation = Rule::new(settings::known_rule()).message(Message::Expression(settings::known_message())),
        validation = Rule::new("self.all(k, size(self[k]) <= 1024 && !self[k].contains('\\n') && !self[k].contains('\\r') && !self[k].endsWith('\\\\'))")
            .message("a value in config.additional must be one line of at most 1024 characters that does not end in a backslash"),
        validation = Rule::new(settings::values::rule()).message(settings::values::SENTENCE),
    )]
    pub additional: BTreeMap<String, String>,
}

/// The Java virtual machine of every member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Jvm {
    /// The heap, as minimum and maximum alike: a whole number with Mi or Gi. Default: 512Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]{0,5}(Mi|Gi)$')")
        .message("jvm.heap must be a whole number with Mi or Gi, such as 512Mi"))]
    #[schemars(length(max = 16))]
    pub heap: Option<String>,
    /// Further options of the virtual machine, one each, such as `-XX:+UseG1GC`. A property
    /// `-Dzookeeper.KEY` is judged like the key of `zoo.cfg`: one that the operator owns, that has a field
    /// of its own or that ZooKeeper does not know is refused. Other options may tune the virtual machine
    /// (`-XX:`, `-Xlog`, `-Xss` and others), Java's network and its TLS (`-Djdk.tls.` and others); not change
    /// the heap, load other code, start programs, or read further options from a file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    #[x_kube(
        validation = Rule::new("self.all(o, o.matches('^-[^ \\t\\n\\r]{1,511}$'))").message(jvm::FORM),
        validation = Rule::new(jvm::refused_rule()).message(Message::Expression(jvm::refused_message())),
        validation = Rule::new(jvm::known_rule()).message(Message::Expression(jvm::known_message())),
    )]
    pub additional_options: Vec<String>,
}

/// Labels, scheduling and resources of the members' pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Labels added to every pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[x_kube(
        validation = Rule::new("self.all(k, !k.startsWith('app.kubernetes.io/') && !k.contains('bellwether.dev/'))")
            .message("pod.labels must not set app.kubernetes.io/ or bellwether.dev/ labels: the operator selects pods by them"),
        validation = Rule::new(grammar::keys_rule("k")).message(grammar::KEYS),
    )]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = grammar::label_value()))]
    pub labels: BTreeMap<String, String>,
    /// Annotations added to every pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[x_kube(
        validation = Rule::new("self.all(k, !k.contains('bellwether.dev/'))")
            .message("pod.annotations must not set bellwether.dev/ annotations: they belong to the operator"),
        validation = Rule::new(grammar::keys_rule("k.lowerAscii()")).message(grammar::KEYS),
    )]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,
    /// Requests and limits of the ZooKeeper container. Default: requests of 100m CPU and of memory
    /// one and a half times the heap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new(grammar::requests_rule()).message("pod.resources: a request of cpu or memory must not be more than its limit"))]
    pub resources: Option<ResourceRequirements>,
    /// Taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Where the pods may run. Default: spread over nodes as far as there are enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[x_kube(validation = Rule::new(grammar::keys_rule("k")).message(grammar::KEYS))]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = grammar::label_value()))]
    pub node_selector: BTreeMap<String, String>,
    /// The pods' PriorityClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = grammar::NAME))]
    pub priority_class_name: Option<String>,
    /// As which user the containers run. Default: user and group 1000, as the official image has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<PodUser>,
}

/// What is wrong with ids that are given and assigned.
pub const USERS: &str =
    "either the cluster assigns the ids or they are given: leave out assigned, or id and group";

/// As which user the containers run; never as root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("!(has(self.assigned) && self.assigned && (has(self.id) || has(self.group)))").message(USERS))]
pub struct PodUser {
    /// The user id. Default: 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub id: Option<i64>,
    /// The group id, which also the files on volumes get. Default: 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub group: Option<i64>,
    /// Whether the cluster assigns both ids, as OpenShift does by its default constraints. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assigned: bool,
}
