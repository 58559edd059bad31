//! The kind `LeaderElection`: a mirror of an election that applications hold in znodes.
//!
//! The spec says where the election is and in which dialect it is held; the status says who leads,
//! who waits, and with what fencing token. Bellwether only reads the znodes: it never takes part, but for the bridge of an
//! election that moves to a Lease.

mod bridge;
mod connection;
mod dialect;
mod dialects;
mod guidance;
mod handover;
mod identity;
mod leadership_check;
mod projections;
mod reasons;
pub mod recipe;
mod status;

use std::borrow::Cow;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

pub use bridge::{Bridge, BridgeSide};
pub use connection::{
    Authentication, AuthenticationType, CaSecretRef, Connection, ConnectionTls, EnsembleRef,
    SecretRef,
};
pub use dialect::{
    CandidateOrder, CustomOptions, Dialect, JsonOptions, LeaderRule, SequenceOptions,
};
pub use dialects::DialectType;
pub use handover::{DEFAULT_HANDOVER_TIMEOUT, Handover, HandoverMethod, HandoverRequest};
pub use identity::{IdentityDecoder, IdentityOptions};
pub use leadership_check::{DEFAULT_CHECK_PERIOD, LeadershipCheck, LeadershipQuestion};
pub use projections::{
    DEFAULT_LEASE_DURATION, DEFAULT_ROLE_KEY, LeaseProjection, OnStale, PodBinding,
    PodLabelsProjection, PortProtocol, ProjectedPort, Projections, RolloutProjection,
    ServiceProjection, WorkloadKind, WorkloadRef,
};
pub use reasons::{ConditionType, Reason};
pub use status::{
    Candidate, EndOfTerm, Exclusivity, IdentitySource, LastActive, Leader, LeaderElectionStatus,
    PreviousLeader, Transition, format_session,
};

/// How many candidates a status lists if the spec does not say.
pub const DEFAULT_MAX_CANDIDATES: i32 = 50;

/// Where an election is held and how its znodes are to be read.
///
/// One object is one election for its whole life: `ensembleRef`, `path` and the chroot of a
/// connection are immutable, because fencing tokens of two ensembles, or of two paths, must never be
/// compared with each other.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "zookeeper.bellwether.dev",
    version = "v1alpha1",
    kind = "LeaderElection",
    plural = "leaderelections",
    namespaced,
    status = "LeaderElectionStatus",
    shortname = "le",
    category = "zookeeper",
    derive = "PartialEq",
    doc = "LeaderElection mirrors an election that applications hold in ZooKeeper: who leads, who waits, and with what fencing token. It is a hint that lags behind ZooKeeper by a moment; a consumer that must be safe checks the fencing token.",
    printcolumn(
        name = "Leader",
        type_ = "string",
        json_path = ".status.leader.identity",
        description = "The identity of the leader"
    ),
    printcolumn(
        name = "Candidates",
        type_ = "integer",
        json_path = ".status.candidateCount",
        description = "How many candidates there are, the leader among them"
    ),
    printcolumn(
        name = "Transitions",
        type_ = "integer",
        json_path = ".status.leaderTransitions",
        description = "How often the leader's identity changed"
    ),
    printcolumn(
        name = "Synced",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Synced\")].status",
        description = "Whether the mirror sees the election"
    ),
    printcolumn(
        name = "Token",
        type_ = "string",
        json_path = ".status.leader.fencingToken",
        description = "The leader's fencing token",
        priority = 1
    ),
    printcolumn(
        name = "Dialect",
        type_ = "string",
        json_path = ".status.dialect",
        description = "The recipe that the election is read in",
        priority = 1
    ),
    printcolumn(
        name = "Path",
        type_ = "string",
        json_path = ".spec.path",
        description = "The znode of the election",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
// What most elections leave out is boxed: an operator holds thousands of specs in memory.
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.ensembleRef) != has(self.connection)").message("give either ensembleRef, for an ensemble that Bellwether runs, or connection, for one that it does not"))]
#[x_kube(validation = Rule::new("has(self.ensembleRef) == has(oldSelf.ensembleRef)").message("ensembleRef cannot become connection or the other way: create another LeaderElection"))]
#[x_kube(validation = Rule::new("!has(self.connection) || self.connection == null || !has(self.authentication) || self.authentication == null || (has(self.connection.tls) && self.connection.tls != null)").message("authentication beside connection needs connection.tls: a password is not sent in clear"))]
#[x_kube(validation = Rule::new(projections::or_selects("!has(self.projections) || self.projections == null || !(has(self.projections.service) && self.projections.service != null || has(self.projections.podLabels) && self.projections.podLabels != null || has(self.projections.rollout) && self.projections.rollout != null)")).message("projections.service, projections.podLabels and projections.rollout need podBinding.selector with at least one label: it says which pods the candidates may be"))]
#[x_kube(validation = Rule::new(projections::or_selects("!has(self.handover) || self.handover == null")).message("handover needs podBinding.selector with at least one label: it says which pods the candidates may be"))]
#[x_kube(validation = Rule::new(projections::or_selects("!has(self.leadershipCheck) || self.leadershipCheck == null")).message("leadershipCheck needs podBinding.selector with at least one label: it says which pods the candidates may be"))]
#[x_kube(validation = Rule::new("!has(self.bridge) || self.bridge == null || !has(self.ensembleRef) || self.ensembleRef == null || !has(self.ensembleRef.namespace)").message("bridge works in an ensemble of the same namespace, without ensembleRef.namespace: the grant of another namespace is to read"))]
#[x_kube(validation = Rule::new("!has(self.bridge) || self.bridge == null || self.dialect.type != 'Auto'").message("bridge needs a dialect by name: the bridge stands for election in it"))]
#[allow(
    clippy::duplicated_attributes,
    reason = "each printcolumn has its own type_"
)]
pub struct LeaderElectionSpec {
    /// The ensemble that holds the election. Either this or `connection`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("ensembleRef is immutable: create another LeaderElection for an election in another ensemble"))]
    pub ensemble_ref: Option<EnsembleRef>,

    /// How to reach a ZooKeeper that Bellwether does not run and that holds the election. The administrator has to
    /// allow its hosts, in `connections.allowedHosts` of the operator's chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Box<Connection>>,

    /// As whom the mirror reads. Default: as anybody, who may read what ACLs open to the world. Beside
    /// `connection` it needs `connection.tls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,

    /// The absolute path of the election's znode.
    ///
    /// In some dialects it is the leader's node itself, in the others the parent of the candidates' nodes. It
    /// does not have to exist yet.
    #[schemars(
        description = dialect::rules::path_description(),
        length(min = 2, max = 1024),
        regex(pattern = r"^(/[^/\x00-\x1f\x7f-\x9f]+)+$")
    )]
    #[x_kube(validation = Rule::new("self == oldSelf").message("path is immutable: create another LeaderElection for another election"))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(name, name == '.' || name == '..')").message("path must not hold '.' or '..': ZooKeeper has no relative paths"))]
    pub path: String,

    /// The recipe that the applications follow.
    pub dialect: Dialect,

    /// How the identity is read, where the dialect's own way does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityOptions>,

    /// Objects that say who leads, for consumers that read no `LeaderElection`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projections: Option<Box<Projections>>,

    /// How the leader is asked to let another candidate lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Box<Handover>>,

    /// How the candidates' pods are asked whether they lead, so that two that do are noticed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leadership_check: Option<Box<LeadershipCheck>>,

    /// How the election moves to a Lease, or back, without candidates of both leading at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<Box<Bridge>>,

    /// How it is found out which pod a candidate runs in, where a projection, a handover or a check has to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_binding: Option<Box<PodBinding>>,

    /// How many candidates the status lists, the first in the queue first. The count of candidates
    /// is exact whatever this is.
    #[serde(default = "default_max_candidates")]
    #[schemars(range(min = 1, max = 500))]
    pub max_candidates: i32,

    /// Whether the operator's metrics have series for this election alone: whether it has a leader, for how long it had
    /// none, and what ended its leaders' terms; the latter where `podBinding.selector` says which pods the candidates may be.
    /// The administrator limits how many elections may have series (`metrics.electionSeries` of the operator's chart).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_series: bool,
}

impl LeaderElectionSpec {
    /// What holds the election, in a word for messages: the name of the ensemble, after its namespace if the spec names one, or
    /// the hosts.
    pub fn holder(&self) -> Cow<'_, str> {
        match (&self.ensemble_ref, &self.connection) {
            (Some(ensemble), _) => match &ensemble.namespace {
                Some(namespace) => format!("{namespace}/{}", ensemble.name).into(),
                None => ensemble.name.as_str().into(),
            },
            (None, Some(connection)) => connection.connect_string.as_str().into(),
            (None, None) => "".into(),
        }
    }

    /// Whether something is done about who leads, beside telling it in the status, or the leader's pod has to be known.
    pub fn is_acted_on(&self) -> bool {
        self.projections.is_some() || self.needs_pods()
    }

    /// Whether the leader's pod has to be known.
    pub fn needs_pods(&self) -> bool {
        let projections = self.projections.as_ref();
        self.handover.is_some()
            || self.leadership_check.is_some()
            || projections.is_some_and(|all| all.need_pods())
            || self.measures_pods()
    }

    /// Whether series of its own tell of the leader's pod, too.
    fn measures_pods(&self) -> bool {
        let binding = self.pod_binding.as_ref();
        self.own_series && binding.is_some_and(|binding| binding.selects())
    }
}

fn default_max_candidates() -> i32 {
    DEFAULT_MAX_CANDIDATES
}

#[cfg(test)]
mod tests {
    use kube::core::CustomResourceExt;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_crd_is_what_the_documentation_promises() {
        let crd = LeaderElection::crd();
        assert_eq!(
            crd.metadata.name.as_deref(),
            Some("leaderelections.zookeeper.bellwether.dev")
        );
        assert_eq!(crd.spec.names.short_names, Some(vec!["le".to_owned()]));
        assert_eq!(
            crd.spec.names.categories,
            Some(vec!["zookeeper".to_owned()])
        );
        let columns: Vec<_> = crd.spec.versions[0]
            .additional_printer_columns
            .iter()
            .flatten()
            .map(|column| (column.name.as_str(), column.priority.unwrap_or(0)))
            .collect();
        let expected = [
            ("Leader", 0),
            ("Candidates", 0),
            ("Transitions", 0),
            ("Synced", 0),
            ("Token", 1),
            ("Dialect", 1),
            ("Path", 1),
            ("Age", 0),
        ];
        assert_eq!(columns, expected);
    }

    #[test]
    fn lists_in_the_status_are_merged_by_key() {
        let crd = serde_json::to_value(LeaderElection::crd()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        let status = &schema["status"]["properties"];
        assert_eq!(status["candidates"]["x-kubernetes-list-type"], "map");
        assert_eq!(
            status["candidates"]["x-kubernetes-list-map-keys"],
            json!(["node"])
        );
        assert_eq!(
            status["conditions"]["x-kubernetes-list-map-keys"],
            json!(["type"])
        );
        let spec = &schema["spec"]["properties"];
        assert_eq!(spec["maxCandidates"]["default"], json!(50));
        assert_eq!(spec["maxCandidates"]["maximum"].as_f64(), Some(500.0));
        let rules = spec["dialect"]["x-kubernetes-validations"]
            .as_array()
            .unwrap();
        assert_eq!(rules.len(), 8);
        assert_eq!(
            spec["dialect"]["properties"]["type"]["enum"]
                .as_array()
                .unwrap()
                .len(),
            DialectType::ALL.len()
        );
        assert!(
            spec["path"]["x-kubernetes-validations"]
                .as_array()
                .unwrap()
                .len()
                == 2
        );
    }

    #[test]
    fn the_number_of_candidates_has_a_default() {
        let spec: LeaderElectionSpec = serde_json::from_value(json!({
            "ensembleRef": {"name": "main"},
            "path": "/zkroot",
            "dialect": {"type": "Sequence", "sequence": {"prefix": "leader"}},
        }))
        .unwrap();
        assert_eq!(spec.max_candidates, DEFAULT_MAX_CANDIDATES);
        assert_eq!(spec.dialect.type_, DialectType::Sequence);
    }

    #[test]
    fn the_words_of_the_api_are_those_of_serde() {
        for dialect in DialectType::ALL {
            assert_eq!(
                serde_json::to_value(dialect).unwrap(),
                json!(dialect.as_str())
            );
        }
    }
}
