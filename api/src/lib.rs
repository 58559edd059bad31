//! The contract between Bellwether and its users: the kinds `ZooKeeperEnsemble` and
//! `LeaderElection`, their validation rules, their conditions and reasons, and the labels and
//! names of what the operator owns.
//!
//! This crate is pure: types and rules only. It talks to nothing.
#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats each type inside a private scope"
)]

pub mod conditions;
pub mod election;
pub mod ensemble;
pub mod events;
pub mod guidance;
pub mod labels;
mod vocabulary;

pub use election::{LeaderElection, LeaderElectionSpec, LeaderElectionStatus};
pub use ensemble::{ZooKeeperEnsemble, ZooKeeperEnsembleSpec, ZooKeeperEnsembleStatus};

/// The API group of both kinds.
pub const GROUP: &str = "zookeeper.bellwether.dev";
/// The served and stored version of both kinds.
pub const VERSION: &str = "v1alpha1";
/// The field manager of everything that the operator applies.
pub const FIELD_MANAGER: &str = "bellwether";
