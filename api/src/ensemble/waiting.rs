//! What becomes of members in a change, in words that programs can read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::vocabulary::vocabulary;

/// What becomes of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberState {
    /// It runs what the spec asks for, and serves.
    UpToDate,
    /// The operator restarts it now.
    Restarting,
    /// It waits; `waitingFor` says what for.
    #[default]
    Waiting,
}

vocabulary! {
    /// What a member, or a change, waits for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub enum Awaited {
        /// A pod that is being deleted.
        Deletion,
        /// A pod that does not exist yet.
        Creation,
        /// A server that runs and has not answered yet.
        Start,
        /// A server that answers, to join the leader.
        Join,
        /// The answer of a server that the operator cannot ask.
        Answer,
        /// The election of a leader.
        Leader,
        /// The end of a time in which two members report that they lead.
        OneLeader,
        /// Members without which a restart would cost the majority.
        Majority,
        /// The restart of another member.
        Turn,
        /// The restart of another member, because the leader is last.
        LeaderIsLast,
        /// The restarts of the others without it; then it leaves.
        Leave,
        /// What the verdict says in words.
        Other,
    }
}

impl Awaited {
    /// The word for it in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Deletion => "deletion",
            Self::Creation => "creation",
            Self::Start => "start",
            Self::Join => "join",
            Self::Answer => "answer",
            Self::Leader => "leader",
            Self::OneLeader => "one_leader",
            Self::Majority => "majority",
            Self::Turn => "turn",
            Self::LeaderIsLast => "leader_is_last",
            Self::Leave => "leave",
            Self::Other => "other",
        }
    }
}

/// What is waited for, and in which pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingFor {
    /// What it is.
    pub what: Awaited,
    /// The pod in which it is expected, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
}

/// The change that is under way: a change of size, or a roll.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeStatus {
    /// The server ids of the list that the present step of a size change leaves. Absent in a roll.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<i32>,
    /// The server ids of the list that the present step brings to every member.
    pub to: Vec<i32>,
    /// The pod that the operator restarts now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarting: Option<String>,
    /// What the next restart or step waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_metrics_is_the_word_of_the_api_in_lower_case() {
        for awaited in Awaited::ALL {
            let mut snake = String::new();
            for letter in awaited.as_str().chars() {
                if letter.is_ascii_uppercase() && !snake.is_empty() {
                    snake.push('_');
                }
                snake.push(letter.to_ascii_lowercase());
            }
            assert_eq!(awaited.word(), snake);
        }
    }
}
