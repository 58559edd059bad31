//! Decisions about a ZooKeeper ensemble.
//!
//! ```text
//! ZooKeeperEnsemble --validate--> ValidEnsemble --+
//!                                                 +--plan--> Plan --status--> ZooKeeperEnsembleStatus
//! cluster, servers --(I/O)-----> Observation -----+
//! ```
//!
//! Everything here is a pure function of its arguments: no clock, no randomness, no network. The
//! rule that keeps two leaders from committing is in [`safety`], and nowhere else.

pub mod certificates;
pub mod client_tls;
pub mod creation;
pub mod desired;
pub mod encryption;
pub mod execute;
pub mod forecast;
pub mod four_letter;
pub mod ids;
pub mod observation;
pub mod plan;
pub mod quantity;
pub mod rules;
pub mod safety;
pub mod server_tls;
pub mod stage;
pub mod status;
pub mod validate;
pub mod volume_report;
pub mod world;

pub use ids::{ServerId, Voters};
pub use observation::Observation;
pub use plan::{Plan, plan};
pub use validate::{ValidEnsemble, validate};
