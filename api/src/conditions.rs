//! Conditions: their statuses and the one rule of how they change.
//!
//! Types and reasons are enums beside the kind that they belong to; this file holds what is common.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The status of a condition, as Kubernetes spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The operator cannot tell.
    Unknown,
}

impl ConditionStatus {
    /// The word that the API carries.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A condition as decided now, before it is merged with what the object already carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    /// The type, in PascalCase.
    pub type_: &'static str,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one PascalCase word from the kind's enum of reasons.
    pub reason: &'static str,
    /// A sentence that says what is the case and what happens next.
    pub message: String,
}

/// Merges freshly decided conditions with the old ones.
///
/// The result holds exactly the conditions in `new`, in that order. The transition time moves only
/// when the *status* of a condition changes (API conventions, "typical status properties").
pub fn merge_conditions(
    old: &[Condition],
    new: Vec<NewCondition>,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    new.into_iter()
        .map(|condition| {
            let status = condition.status.as_str();
            let since = old
                .iter()
                .find(|o| o.type_ == condition.type_ && o.status == status)
                .map_or(Time(now), |o| o.last_transition_time.clone());
            Condition {
                type_: condition.type_.to_owned(),
                status: status.to_owned(),
                reason: condition.reason.to_owned(),
                message: condition.message,
                observed_generation: generation,
                last_transition_time: since,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: ConditionStatus, message: &str) -> NewCondition {
        NewCondition {
            type_: "Ready",
            status,
            reason: "Because",
            message: message.to_owned(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let first = merge_conditions(
            &[],
            vec![ready(ConditionStatus::False, "a")],
            Some(1),
            at(1),
        );
        let same = merge_conditions(
            &first,
            vec![ready(ConditionStatus::False, "b")],
            Some(2),
            at(2),
        );
        assert_eq!(same[0].last_transition_time.0, at(1));
        assert_eq!(same[0].message, "b");
        assert_eq!(same[0].observed_generation, Some(2));
        let moved = merge_conditions(
            &same,
            vec![ready(ConditionStatus::True, "b")],
            Some(2),
            at(3),
        );
        assert_eq!(moved[0].last_transition_time.0, at(3));
    }

    #[test]
    fn a_condition_that_is_no_longer_decided_is_gone() {
        let first = merge_conditions(&[], vec![ready(ConditionStatus::True, "")], None, at(1));
        assert!(merge_conditions(&first, vec![], None, at(2)).is_empty());
    }
}
