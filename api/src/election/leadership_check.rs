//! How pods are asked whether they lead.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// How often pods are asked, in seconds, if the spec does not say.
pub const DEFAULT_CHECK_PERIOD: i32 = 5;

/// How every pod that `podBinding.selector` allows is asked whether it leads. A pod that says so while another one leads by the
/// znodes is told in the condition `SoleLeader`. The administrator has to allow the port, in `leadershipChecks.ports` of the
/// operator's chart.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadershipCheck {
    /// The request that a pod answers.
    pub http: LeadershipQuestion,

    /// How often each pod is asked, in seconds. For half a minute after a change of the leader, and while a pod claims the lead
    /// wrongly, it is every second.
    #[serde(default = "default_period")]
    #[schemars(range(min = 1, max = 300))]
    pub period_seconds: i32,
}

/// A GET request to a pod, in clear. An answer of 200 to 299 says that it leads, any other answer that it does not; no
/// redirection is followed.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadershipQuestion {
    /// The port of the pod.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,

    /// The path, with the query if there is one.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/[!-~]*$"))]
    pub path: String,
}

fn default_period() -> i32 {
    DEFAULT_CHECK_PERIOD
}
