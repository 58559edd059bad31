//! How a leader is asked to hand over.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long another leader is waited for after the request, in seconds, if the spec does not say.
pub const DEFAULT_HANDOVER_TIMEOUT: i32 = 30;

/// How the leader is asked to let another candidate lead. It is asked before a rollout evicts its pod, and by `kubectl bellwether
/// handover`. The administrator has to allow the port, in `handover.ports` of the operator's chart.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handover {
    /// The request that makes the leader resign.
    pub http: HandoverRequest,

    /// For how many seconds after the request another leader is waited for. After that a rollout evicts the leader's pod all
    /// the same.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 1, max = 600))]
    pub timeout_seconds: i32,

    /// Whether the leader is also asked when its node is cordoned, as `kubectl drain` does first, and another candidate runs on
    /// a node that is not. The administrator has to allow it, with `handover.onCordon` of the operator's chart.
    #[serde(default)]
    pub on_cordon: bool,
}

/// An HTTP request to the leader's pod, in clear and without a body. An answer of 200 to 299 says that the leader resigns, or
/// has; no redirection is followed.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandoverRequest {
    /// The port of the pod.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,

    /// The path, with the query if there is one.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/[!-~]*$"))]
    pub path: String,

    /// The method.
    #[serde(default)]
    pub method: HandoverMethod,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HandoverMethod {
    /// POST.
    #[default]
    Post,
    /// PUT.
    Put,
    /// DELETE.
    Delete,
}

fn default_timeout() -> i32 {
    DEFAULT_HANDOVER_TIMEOUT
}
