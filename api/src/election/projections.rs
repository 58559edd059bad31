//! What an election is projected to: a Lease, a Service, labels of pods.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long a projected Lease is valid without being renewed, if the spec does not say, in seconds.
pub const DEFAULT_LEASE_DURATION: i32 = 15;

/// The key of the label on candidates' pods, if the spec does not say.
pub const DEFAULT_ROLE_KEY: &str = "zookeeper.bellwether.dev/role";

/// The names of ports: letters, digits and single hyphens between them, with a letter at least (RFC 6335, section 5.1).
const PORT_NAME: &str = "^([0-9]-?)*[a-z](-?[a-z0-9])*$";

/// Objects that say who leads, for consumers that read no `LeaderElection`.
///
/// Each of them lags behind ZooKeeper by a moment, as the status does. What is taken out of the spec
/// is removed from the cluster; what belongs to somebody else is never touched.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Projections {
    /// A Lease that the leader appears to hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseProjection>,

    /// A Service that reaches the leader's pod and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceProjection>,

    /// A label on the pods of the leader and of the other candidates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_labels: Option<PodLabelsProjection>,

    /// A workload whose outdated pods the operator evicts, that of the leader last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutProjection>,
}

impl Projections {
    /// Whether it has to be known which pods the candidates are.
    pub fn need_pods(&self) -> bool {
        self.service.is_some() || self.pod_labels.is_some() || self.rollout.is_some()
    }
}

/// A `coordination.k8s.io/v1` Lease.
///
/// It is renewed while the mirror sees the election and somebody leads, so it expires by itself when
/// the mirror is blind or the operator is gone. No client may contend for it.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseProjection {
    /// The name of the Lease; the name of the `LeaderElection` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub name: Option<String>,

    /// For how many seconds the Lease is valid after a renewal. It is renewed after a third of that.
    #[serde(default = "default_lease_duration")]
    #[schemars(range(min = 5, max = 3600))]
    pub lease_duration_seconds: i32,
}

impl Default for LeaseProjection {
    fn default() -> Self {
        Self {
            name: None,
            lease_duration_seconds: DEFAULT_LEASE_DURATION,
        }
    }
}

/// A Service without a selector, and one EndpointSlice with the address of the leader's pod.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.keepForSeconds) || self.onStale == 'Keep'").message("keepForSeconds needs onStale: Keep"))]
pub struct ServiceProjection {
    /// The name of the Service; the name of the `LeaderElection` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: Option<String>,

    /// The ports that the Service has.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]))]
    #[x_kube(validation = Rule::new("self.all(one, self.exists_one(other, other.port == one.port && other.protocol == one.protocol))").message("ports must differ in port or protocol"))]
    pub ports: Vec<ProjectedPort>,

    /// Whether the Service has no address of its own, so that its name in DNS has that of the leader's pod. Clients then
    /// connect to the pod itself, and look the name up again when the leader changes. If this changes, the Service is made
    /// anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub headless: bool,

    /// Annotations of the Service. Others that it has stay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new("self.all(key, !key.startsWith('zookeeper.bellwether.dev/'))").message("annotations of the prefix zookeeper.bellwether.dev are the operator's: take them out"))]
    pub annotations: BTreeMap<String, String>,

    /// What becomes of the address while the mirror cannot see.
    #[serde(default)]
    pub on_stale: OnStale,

    /// With `onStale: Keep`, for how many seconds the address stays after the leader was last read; without a limit if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 15, max = 86400))]
    pub keep_for_seconds: Option<i32>,
}

/// A port of a projected Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectedPort {
    /// Its name.
    #[schemars(
        length(min = 1, max = 15),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// The port of the Service.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// The port of the leader's pod, as a number or by the name that a container gives it; `port` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // No rule: the API server takes the string for as long as a request may be, and the rule for too costly.
    #[schemars(extend("minimum" = 1, "maximum" = 65535, "maxLength" = 15, "pattern" = PORT_NAME))]
    pub target_port: Option<IntOrString>,
    /// Its protocol.
    #[serde(default)]
    pub protocol: PortProtocol,
}

/// The protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum PortProtocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl PortProtocol {
    /// The protocol of this word, or TCP if there is none, as Kubernetes has it; `None` for another one.
    pub fn named(word: Option<&str>) -> Option<Self> {
        let all = [Self::Tcp, Self::Udp];
        let is_it = |protocol: &Self| word.is_none_or(|word| word == protocol.as_str());
        all.into_iter().find(is_it)
    }

    /// The word that Kubernetes uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// What becomes of the leader's address while the mirror cannot see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnStale {
    /// It stays for as long as that pod exists.
    #[default]
    Keep,
    /// It is removed, and comes back when the mirror sees again.
    Remove,
}

/// A label with one value for the leader's pod and another for the pods of the other candidates.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.leaderValue != self.otherValue").message("leaderValue and otherValue must differ"))]
pub struct PodLabelsProjection {
    /// The key of the label. Other keys than the default have to be allowed by the administrator, in
    /// `projections.labelKeys` of the operator's chart: labels decide what policies select.
    #[serde(default = "default_role_key")]
    #[schemars(
        length(min = 1, max = 317),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
        )
    )]
    #[x_kube(validation = Rule::new("!self.matches('^([^/]+[.])?(kubernetes|k8s)[.]io/')").message("the prefixes kubernetes.io and k8s.io are reserved for Kubernetes: choose another key"))]
    #[x_kube(validation = Rule::new("!self.startsWith('zookeeper.bellwether.dev/') || self == 'zookeeper.bellwether.dev/role'").message("of the prefix zookeeper.bellwether.dev only zookeeper.bellwether.dev/role may be used: choose another key"))]
    pub key: String,

    /// Its value on the leader's pod.
    #[serde(default = "default_leader_value")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub leader_value: String,

    /// Its value on the pods of the other candidates, of those that `status.candidates` lists.
    #[serde(default = "default_other_value")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub other_value: String,

    /// Whether the leader's pod also has the annotation `controller.kubernetes.io/pod-deletion-cost`, by which a Deployment
    /// that is rolled or scaled down deletes other pods first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deletion_cost: bool,
}

impl Default for PodLabelsProjection {
    fn default() -> Self {
        Self {
            key: default_role_key(),
            leader_value: default_leader_value(),
            other_value: default_other_value(),
            deletion_cost: false,
        }
    }
}

/// The pods of a StatefulSet or DaemonSet with the update strategy `OnDelete` are evicted when they are of an older revision:
/// the followers first, each waited for until it is ready and a candidate again, and the leader last. So a rollout changes
/// the leader once.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutProjection {
    /// The workload, in the election's namespace. Of its pods those are replaced that `podBinding.selector` selects.
    pub workload: WorkloadRef,

    /// How many pods may be unavailable at a time.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_unavailable: i32,

    /// After how many seconds in which it is not known which pod leads the pods are replaced in the ordinary order, from the
    /// highest ordinal on; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 86400))]
    pub go_on_after_seconds: Option<i32>,
}

/// A workload by its kind and name.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRef {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its name.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub name: String,
}

impl fmt::Display for WorkloadRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.name)
    }
}

/// A kind of workload that leaves the deletion of its pods to others with the update strategy `OnDelete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkloadKind {
    /// A StatefulSet.
    StatefulSet,
    /// A DaemonSet.
    DaemonSet,
}

/// How it is found out which pod a candidate runs in. Only pods of the election's namespace count.
///
/// Unless `identityPattern` says otherwise, these are tried in order, and the first that fits a pod
/// decides: the identity is a pod's name; a host in the identity, such as `10.1.2.3` in
/// `10.1.2.3:8983_solr`, is a pod's IP address, its hostname or its name in DNS; a host in the
/// leader's `address` is; the `clientAddress` of its session is. If it fits several pods, the
/// candidate is bound to none.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodBinding {
    /// Which pods may be bound. A Service, labels of pods and a rollout need it, and it has to name at least one label: who
    /// may write a znode names a pod there, and must not reach any pod of the namespace by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,

    /// A regular expression that finds the pod in the identity: the group `pod` is the pod's name,
    /// the group `ip` its IP address. Nothing else but `clientAddress` is tried then. For example
    /// `^scheduler@(?P<pod>[^:]+):\d+$`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("self.contains('?P<pod>') || self.contains('?P<ip>') || self.contains('?<pod>') || self.contains('?<ip>')").message("identityPattern must have a group named pod or ip, such as (?P<pod>[^:]+)"))]
    pub identity_pattern: Option<String>,
}

/// The rule in CEL that one of these holds: what needs no pods, or [`PodBinding::selects`].
pub(super) fn or_selects(needs_no_pods: &str) -> String {
    format!(
        "{needs_no_pods} || (has(self.podBinding) && self.podBinding != null && has(self.podBinding.selector) && self.podBinding.selector != null && (has(self.podBinding.selector.matchLabels) && size(self.podBinding.selector.matchLabels) > 0 || has(self.podBinding.selector.matchExpressions) && size(self.podBinding.selector.matchExpressions) > 0))"
    )
}

impl PodBinding {
    /// Whether a selector says which pods may be bound. An empty one selects every pod, so it says nothing.
    pub fn selects(&self) -> bool {
        self.selector.as_ref().is_some_and(|selector| {
            let labels = selector.match_labels.as_ref();
            let expressions = selector.match_expressions.as_ref();
            labels.is_some_and(|labels| !labels.is_empty())
                || expressions.is_some_and(|expressions| !expressions.is_empty())
        })
    }
}

fn one() -> i32 {
    1
}

fn default_lease_duration() -> i32 {
    DEFAULT_LEASE_DURATION
}

fn default_role_key() -> String {
    DEFAULT_ROLE_KEY.to_owned()
}

fn default_leader_value() -> String {
    "leader".to_owned()
}

fn default_other_value() -> String {
    "candidate".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_without_any_label_selects_nothing_in_particular() {
        for (binding, selects) in [
            (json!({}), false),
            (json!({"selector": {}}), false),
            (
                json!({"selector": {"matchLabels": {}, "matchExpressions": []}}),
                false,
            ),
            (json!({"selector": {"matchLabels": {"app": "a"}}}), true),
            (
                json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}),
                true,
            ),
        ] {
            let binding: PodBinding = serde_json::from_value(binding).unwrap();
            assert_eq!(binding.selects(), selects, "{binding:?}");
        }
    }

    #[test]
    fn everything_has_a_default_but_the_ports() {
        let all: Projections =
            serde_json::from_value(json!({"lease": {}, "podLabels": {}})).unwrap();
        assert_eq!(all.lease, Some(LeaseProjection::default()));
        assert_eq!(all.pod_labels, Some(PodLabelsProjection::default()));
        assert!(serde_json::from_value::<Projections>(json!({"service": {}})).is_err());
    }
}
