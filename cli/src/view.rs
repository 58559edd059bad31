//! What people are shown of the two kinds: one pure model, which the commands print as text and the page
//! shows in a browser.

pub(crate) mod election;
pub(crate) mod ensemble;
pub(crate) mod timeline;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

/// The meaning of a value, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tone {
    /// As it should be.
    Good,
    /// On its way, or to be watched.
    Busy,
    /// Wrong.
    Bad,
    /// Of little weight.
    Faint,
    /// As it is.
    Plain,
}

/// A condition with what it means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConditionView {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// What that means.
    pub tone: Tone,
    /// Why, in a word.
    pub reason: String,
    /// Why, and what happens next.
    pub message: String,
    /// Since when, in UTC.
    pub since: String,
}

impl ConditionView {
    /// A condition of either kind.
    pub(crate) fn of(condition: &Condition) -> Self {
        // For these conditions False is the wanted status.
        let wanted = match condition.type_.as_str() {
            "Degraded" | "Progressing" | "Stalled" => "False",
            _ => "True",
        };
        let tone = match condition.type_.as_str() {
            _ if condition.status == wanted => Tone::Good,
            "Progressing" => Tone::Busy,
            _ => Tone::Bad,
        };
        Self {
            type_: condition.type_.clone(),
            status: condition.status.clone(),
            tone,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            since: condition.last_transition_time.0.to_string(),
        }
    }
}
