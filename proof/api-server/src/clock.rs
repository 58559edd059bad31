//! The wall clock of the cluster. The operators' own may be ahead of it or behind it.

use jiff::Timestamp;

/// What the clocks of API servers, controllers, kubelets and members show now.
pub fn now() -> Timestamp {
    let now = bellwether_virtual_time::cluster_time();
    Timestamp::try_from(now).unwrap_or(Timestamp::MAX)
}
