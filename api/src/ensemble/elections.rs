//! Whose elections may be mirrored from an ensemble.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most namespaces in `elections.namespaces`.
pub const MAX_NAMESPACES: usize = 200;
/// What is wrong with a name that no namespace can have.
pub const NO_NAMESPACE: &str = "each is the name of a namespace, or * for all of them";
/// Stands for every namespace.
pub const EVERY_NAMESPACE: &str = "*";

/// Whose elections may be mirrored from an ensemble.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Elections {
    /// Namespaces, beside the ensemble's own, whose `LeaderElection`s may name this ensemble; `*` admits all of them. Whoever may
    /// create a `LeaderElection` there sees names and data of the znodes that the mirror can read here.
    #[schemars(
        length(max = 200),
        inner(
            length(max = 63),
            regex(pattern = r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$")
        )
    )]
    pub namespaces: Vec<String>,
}
