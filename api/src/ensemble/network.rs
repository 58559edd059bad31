//! Who may connect to the members.

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most peers in `network.clientsFrom` and in `network.metricsFrom`.
pub const MAX_PEERS: usize = 50;

/// Who may connect to the members.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.policy) || self.policy != 'Disabled' || !has(self.clientsFrom) && !has(self.metricsFrom)")
        .message("without a NetworkPolicy clientsFrom and metricsFrom have no effect: leave them out, or policy: Disabled")
)]
pub struct Network {
    /// Whether the operator keeps a NetworkPolicy, named `NAME-members`, that lets only members reach the ports between
    /// servers, only the operator the control port, and clients the client port. Default: `Enabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<MembersPolicy>,
    /// Who may connect to the client ports, 2181 and 2281, as peers of a NetworkPolicy. Default: everybody. The operator always may, for
    /// elections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 50))]
    #[x_kube(validation = Rule::new(PEERS_RULE).message(PEERS))]
    pub clients_from: Option<Vec<NetworkPolicyPeer>>,
    /// Who may read the metrics of `metrics.enabled`, on port 7000, as peers of a NetworkPolicy. Default: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 50))]
    #[x_kube(validation = Rule::new(PEERS_RULE).message(PEERS))]
    pub metrics_from: Option<Vec<NetworkPolicyPeer>>,
}

const PEERS_RULE: &str = "self.all(peer, has(peer.ipBlock) ? !has(peer.podSelector) && !has(peer.namespaceSelector) : has(peer.podSelector) || has(peer.namespaceSelector))";

/// What is wrong with a peer of the wrong shape.
pub const PEERS: &str = "each peer is an ipBlock, or a podSelector, a namespaceSelector or both";

/// Whether there is a NetworkPolicy of the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MembersPolicy {
    /// The operator keeps one.
    #[default]
    Enabled,
    /// The operator deletes its own: others decide who may connect.
    Disabled,
}
