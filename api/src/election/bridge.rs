//! How an election moves from ZooKeeper to a Lease.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps the candidates in ZooKeeper and those that elect by a Lease from leading at the same time, while an application moves
/// from the one to the other. Bellwether holds at least one of the two locks at every moment: the Lease, or a znode before all
/// candidates. The administrator has to allow it, in `bridges.enabled` of the operator's chart, and the identity of the mirror
/// has to be allowed to create and delete znodes there.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bridge {
    /// The name of the Lease in this namespace by which the application elects.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    #[x_kube(validation = Rule::new("self == oldSelf").message("bridge.lease is immutable: the bridge holds this Lease; take the bridge out before you name another one"))]
    pub lease: String,

    /// Whose candidates shall lead. A change of it crosses over once the side that led does not lead any more.
    pub side: BridgeSide,
}

/// Where the candidates are that shall lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum BridgeSide {
    /// In ZooKeeper. The bridge holds the Lease.
    ZooKeeper,
    /// At the Lease. The bridge's znode is before all candidates in ZooKeeper.
    Kubernetes,
}
