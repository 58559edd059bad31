//! What was read from the world: the input of every decision beside the spec.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_api::ensemble::{MemberRole, Phase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use crate::certificates::Record;
use crate::encryption::Encryption;
use crate::ids::{ServerId, Voters};
use crate::volume_report::VolumeReport;

/// Everything that one reconcile read, all of it fresh.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// When it was read.
    pub now: Timestamp,
    /// The phase that the last report showed, which the next one may go on from. `None` where nobody looks at reports.
    pub phase: Option<Phase>,
    /// The members' StatefulSet, if it exists.
    pub stateful_set: Option<StatefulSetObservation>,
    /// The members' pods, by ordinal.
    pub pods: Vec<PodObservation>,
    /// The claims of the members' data volumes, former members' among them.
    pub claims: Vec<ClaimObservation>,
    /// Those of the volumes of transaction logs, if they have any of their own.
    pub log_claims: Vec<ClaimObservation>,
    /// What is on record of the members' certificate, if its ConfigMap exists.
    pub identity: Option<Record>,
    /// The permission to start with an empty disk, if its ConfigMap exists.
    pub bootstrap: Option<BootstrapPermission>,
    /// The names of the configuration revisions that exist as ConfigMaps.
    pub revisions: BTreeSet<String>,
    /// The unique id of the members' NetworkPolicy, if it exists.
    pub network_policy: Option<String>,
    /// The Certificate that cert-manager is asked for, if it exists and the operator may read it.
    pub certificate: Option<CertificateObservation>,
    /// The observers, which no decision about voters counts.
    pub observers: ObserversObservation,
    /// Pods of members and observers that Kubernetes refuses to create, and why: see [`crate::creation`].
    pub refused: BTreeMap<String, String>,
    /// Objects of a deleted ensemble of the same name, as `Kind name`: their owner reference has another
    /// uid, so the garbage collector is about to delete them.
    pub leftovers: Vec<String>,
}

/// A Certificate of cert-manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateObservation {
    /// Its unique id.
    pub uid: Option<String>,
    /// Whether the Secret has it.
    pub ready: bool,
    /// What keeps it from being made or renewed, in cert-manager's words, and since when.
    pub says: Option<(Timestamp, String)>,
}

/// The observers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObserversObservation {
    /// Their StatefulSet, if it exists.
    pub stateful_set: Option<StatefulSetObservation>,
    /// Their pods, by ordinal.
    pub pods: Vec<PodObservation>,
    /// The claims of their data volumes, former observers' among them.
    pub claims: Vec<ClaimObservation>,
    /// Those of the volumes of transaction logs.
    pub log_claims: Vec<ClaimObservation>,
    /// Pods whose deletion should have been over for a while: their nodes are lost.
    pub overdue: BTreeSet<String>,
}

/// The members' StatefulSet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatefulSetObservation {
    /// How many pods it wants.
    pub replicas: u16,
    /// The configuration revision in its pod template's annotations; `None` when they are missing or malformed:
    /// then the operator changes nothing.
    pub template: Option<Revision>,
    /// The revision of the pod template, known only once the StatefulSet controller has seen the
    /// last change of it.
    pub update_revision: Option<String>,
    /// What the pod template is told by without its server list ([`template_hash_of`]), where members change at run time.
    ///
    /// [`template_hash_of`]: crate::desired::stateful_set::template_hash_of
    pub template_hash: Option<String>,
    /// The hash of the user's wishes that the template was rendered from.
    pub inputs_hash: Option<String>,
    /// The operator version that rendered the template.
    pub rendered_by: Option<String>,
    /// The user's last request for a restart, as the pod template has it.
    pub restart: Option<String>,
    /// The Secret in its pod template with the certificate that members present to clients.
    pub client_port_secret: Option<String>,
    /// The pod template as the operator wrote it, if somebody else changed it since: see
    /// [`crate::desired::written`].
    pub edited: Option<Value>,
    /// The merge patch that takes out of the pod template what an earlier one left there: see [`crate::desired::written`].
    pub left_over: Option<Value>,
    /// The size in its claim template, which cannot change.
    pub claim_size: Option<Quantity>,
    /// The same of the volume of the transaction log.
    pub log_claim_size: Option<Quantity>,
    /// Whether it is being deleted.
    pub terminating: bool,
}

impl StatefulSetObservation {
    /// Whether the operator has to put back or take out what somebody else changed in its pod template.
    pub fn is_foreign(&self) -> bool {
        self.edited.is_some() || self.left_over.is_some()
    }
}

/// A configuration revision as a pod or the pod template carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The name of its ConfigMap.
    pub name: String,
    /// The servers that vote under it. Where members change at run time: the list of the ensemble when the pod was made.
    pub voters: Voters,
    /// The version of that list, where members change at run time: the zxid of the transaction that made it; 0 before the
    /// ensemble has served. `None` where servers have their lists in files that the operator writes.
    pub version: Option<u64>,
    /// The newcomer that may start with an empty disk and vote, where one must: see
    /// [`crate::desired::config`].
    pub initialize: Option<ServerId>,
    /// What is encrypted under it.
    pub tls: Encryption,
}

/// One member's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodObservation {
    /// Its name.
    pub name: String,
    /// Its ordinal in the StatefulSet.
    pub ordinal: u16,
    /// Its unique id, the first precondition of its deletion.
    pub uid: String,
    /// Its resource version, the second one.
    pub resource_version: String,
    /// The configuration revision that it runs, from its own annotations; it cannot change.
    pub revision: Option<Revision>,
    /// The revision of the pod template that it was made from.
    pub controller_revision: Option<String>,
    /// What that template is told by without the server list, where members change at run time.
    pub template_hash: Option<String>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// The uid of the StatefulSet that controls it. Kubernetes deletes a pod after its StatefulSet, unless that
    /// reference was removed from it (`kubectl delete --cascade=orphan`).
    pub controller: Option<String>,
    /// What the kubelet and the scheduler report about it.
    pub state: PodState,
    /// A container beside ZooKeeper's that does not run. It does not stop the server.
    pub failing_container: Option<FailingContainer>,
    /// Whether its readiness probe succeeds. The probe fails only after some seconds without a
    /// quorum, so a stuck server is unready, and one in the middle of an election still ready.
    pub ready: bool,
    /// Since when it has been unready, by the clock of [`Observation::now`]; `None` while it is ready. The
    /// operator counts from when it first saw the pod unready.
    pub unready_since: Option<Timestamp>,
    /// Since when its server has not answered this process of the operator, if it does not.
    pub silent_since: Option<Timestamp>,
    /// When it was made.
    pub created: Timestamp,
    /// The node that it runs on.
    pub node: Option<String>,
    /// What its server answers.
    pub server: ServerReport,
    /// The member program's report about the volumes; `None` when the operator has none.
    pub volumes: Option<VolumeReport>,
    /// What it presents to other members, as [`crate::certificates::presented`] has it; `None` if it does not say.
    pub presents: Option<String>,
    /// What it says of the users and the authorities of its clients.
    pub credentials: Credentials,
    /// The authority of the certificate that it presents to clients, as PEM, if that is of the user's Secret.
    pub client_authority: Option<String>,
}

/// Whether a server has the users and the authorities of clients that there are now. It reads them when it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    /// It has them, has none, or does not say.
    #[default]
    Current,
    /// It has others, and takes them up when it restarts.
    Outdated,
    /// It has others, and could not start with those that there are now: why.
    Unusable(String),
}

impl PodObservation {
    /// Whether its server takes part in a quorum, or observes one.
    pub fn serves(&self) -> bool {
        matches!(self.server, ServerReport::Serving { .. })
    }

    /// Whether its server answers at all.
    pub fn answers(&self) -> bool {
        !matches!(self.server, ServerReport::Unreachable(_))
    }

    /// Whether a restart gives it another pod template, or other users of its clients.
    ///
    /// The server list in the template of an ensemble whose members change at run time is for newcomers: a pod that was made
    /// before a change of that list only has the template that a restart would give it.
    pub fn is_outdated(&self, set: &StatefulSetObservation) -> bool {
        let list = |revision: &Option<Revision>| {
            let revision = revision.as_ref();
            revision.map(|revision| (revision.version, revision.voters.clone()))
        };
        let rest = self.template_hash.is_some() && self.template_hash == set.template_hash;
        let only_the_list = rest && list(&self.revision) != list(&set.template);
        let same = set.update_revision.is_some() && self.controller_revision == set.update_revision;
        !(same || only_the_list) || self.credentials == Credentials::Outdated
    }

    /// The version of the list that its server knows as committed, if members change at run time and it serves.
    pub fn list_version(&self) -> Option<u64> {
        self.revision.as_ref()?.version?;
        match self.server {
            ServerReport::Serving { version, .. } => Some(version),
            ServerReport::Looking | ServerReport::Unreachable(_) => None,
        }
    }

    /// Whether its server runs and cannot be asked.
    pub fn is_silent(&self) -> bool {
        self.state == PodState::Running && !self.answers() && !self.terminating
    }

    /// Whether its server runs and could not be asked for this long.
    pub fn has_been_silent(&self, long: SignedDuration, now: Timestamp) -> bool {
        let since = self.silent_since.filter(|_| self.is_silent());
        since.is_some_and(|since| now.duration_since(since) >= long)
    }

    /// Whether it is known to take part in no quorum: its container does not run, or the server
    /// itself says that it looks for a leader and its pod is not ready.
    pub fn is_idle(&self) -> bool {
        match (&self.state, &self.server) {
            (_, ServerReport::Serving { .. }) => false,
            (PodState::Failing { .. } | PodState::Starting, _) => true,
            // While another container fails, the pod is not ready whatever the server does.
            (PodState::Running, ServerReport::Looking) => {
                !self.ready && self.failing_container.is_none()
            }
            (PodState::Running, ServerReport::Unreachable(_)) => false,
        }
    }
}

/// What the kubelet and the scheduler report about a pod. Only ZooKeeper's container, and the init
/// containers before it, decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodState {
    /// On its way: scheduled or being scheduled, images pulled, containers started.
    Starting,
    /// The ZooKeeper container runs, whatever the others do.
    Running,
    /// The server cannot run as it is: image, configuration, crash or scheduling.
    Failing {
        /// The one-word reason that Kubernetes gives, such as `ImagePullBackOff`.
        reason: String,
        /// The sentence that goes with it.
        message: String,
    },
}

/// A container that does not run, in a pod whose server does not depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingContainer {
    /// The container's name.
    pub name: String,
    /// The one-word reason that Kubernetes gives, such as `CrashLoopBackOff`.
    pub reason: String,
    /// The sentence that goes with it; empty if there is none.
    pub message: String,
}

/// What a member's server answers to the four-letter words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerReport {
    /// It takes part in a quorum.
    Serving {
        /// Its role.
        role: MemberRole,
        /// The last transaction that it saw; the upper 32 bits are the epoch.
        zxid: u64,
        /// The voters that it judges quorums by, as it reports them.
        voters: Voters,
        /// The observers in that list.
        observers: BTreeSet<ServerId>,
        /// The version of that list: the zxid of the transaction that made it, or 0 for one that is in a file only.
        version: u64,
    },
    /// It answers, and takes part in no quorum.
    Looking,
    /// It does not answer, or not as a ZooKeeper server would.
    Unreachable(String),
}

impl ServerReport {
    /// The role for the status.
    pub fn role(&self) -> MemberRole {
        match self {
            Self::Serving { role, .. } => *role,
            Self::Looking => MemberRole::Looking,
            Self::Unreachable(_) => MemberRole::Down,
        }
    }

    /// The voters that it judges quorums by, if it serves.
    pub fn voters(&self) -> Option<&Voters> {
        match self {
            Self::Serving { voters, .. } => Some(voters),
            Self::Looking | Self::Unreachable(_) => None,
        }
    }

    /// The last transaction that it saw, if it serves.
    pub fn zxid(&self) -> Option<u64> {
        match self {
            Self::Serving { zxid, .. } => Some(*zxid),
            Self::Looking | Self::Unreachable(_) => None,
        }
    }
}

/// One volume claim of a member or of a former member.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimObservation {
    /// Its name.
    pub name: String,
    /// The ordinal of the pod that it belongs to.
    pub ordinal: u16,
    /// Its unique id, the precondition of every write.
    pub uid: String,
    /// Its resource version, the precondition of its deletion and of a change of its owners.
    pub resource_version: String,
    /// Its owners. Kubernetes deletes the claim with the last of them.
    pub owners: Vec<OwnerReference>,
    /// The last server list that was finished while this claim existed; `None` on a new claim, which records
    /// nothing. See [`crate::plan::volumes`].
    pub voters: Option<Voters>,
    /// The version of that list, where members change at run time.
    pub version: Option<u64>,
    /// The server list of the step that has begun since.
    pub next: Option<Voters>,
    /// Whether it is being deleted; its volume counts as lost.
    pub terminating: bool,
    /// The size that it asks for, in bytes.
    pub requested: Option<u64>,
    /// The size that its volume has, in bytes; `None` while it has none.
    pub capacity: Option<u64>,
    /// The claim's own report about a growth under way.
    pub resize: Option<String>,
    /// Its StorageClass.
    pub class: Option<String>,
    /// Whether its StorageClass lets volumes grow; `None` when that is not known.
    pub expandable: Option<bool>,
}

/// The content of the bootstrap ConfigMap: which servers may start with an empty disk, and until when; and the
/// epoch below which a disk is too old.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootstrapPermission {
    /// The servers that may start with an empty disk; `None` when no server may.
    pub initialize: Option<Voters>,
    /// The permission is void from here on.
    pub until: Option<Timestamp>,
    /// The highest epoch that each voter was seen serving in. A volume with a lower one is an old
    /// copy, and the member program refuses it.
    pub epochs: BTreeMap<ServerId, u64>,
    /// The last loss of data that a person accepted.
    pub acceptance: Option<Acceptance>,
}

impl BootstrapPermission {
    /// The servers that may start with an empty disk because the ensemble has not served yet, or grows
    /// from one member to two; not those of an accepted loss. An expired permission does not count.
    pub fn first_start(&self, now: Timestamp) -> Option<&Voters> {
        let accepted = self.acceptance.as_ref().is_some_and(|a| !a.over);
        let open = self.until.is_some_and(|until| until > now) && !accepted;
        self.initialize.as_ref().filter(|_| open)
    }
}

/// A person's decision to go on without data that is lost. See [`crate::plan::loss`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// The token that identifies the loss.
    pub token: String,
    /// When the operator recorded it.
    pub at: Timestamp,
    /// The program through which the person set the annotation, as the API server recorded it.
    pub by: Option<String>,
    /// The members that may start with an empty disk and vote.
    pub members: Voters,
    /// The members whose disks were lost.
    pub lost: Voters,
    /// Whether the ensemble has served since, or no longer needs it: then it permits nothing.
    pub over: bool,
}
