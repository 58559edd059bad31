//! Events about elections: what changed between two statuses.

use bellwether_api::LeaderElectionStatus;
use bellwether_api::election::{ConditionType, Reason};
use bellwether_api::events::EventReason;
use bellwether_election::terms::sentence;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::{Event, EventType};

/// The node and the token of the leader.
fn node(status: &LeaderElectionStatus) -> Option<(&str, Option<&str>)> {
    let leader = status.leader.as_ref()?;
    Some((&leader.node, leader.fencing_token.as_deref()))
}

/// The node and the token of the old status's leader, if its term ended.
pub(super) fn ended<'s>(
    old: Option<&'s LeaderElectionStatus>,
    new: &LeaderElectionStatus,
) -> Option<(&'s str, Option<&'s str>)> {
    let led = old.and_then(node)?;
    (node(new) != Some(led)).then_some(led)
}

/// The events that a written status is worth, given the one before.
pub(super) fn events(old: Option<&LeaderElectionStatus>, new: &LeaderElectionStatus) -> Vec<Event> {
    let mut events = Vec::new();
    let cause = ended(old, new).and_then(|_| new.history.first()?.cause);
    let why = |identity: &str| {
        let sentence = cause.and_then(|cause| sentence(cause, identity));
        sentence.map_or_else(String::new, |sentence| format!(" {sentence}"))
    };
    match (old.and_then(|old| old.leader.as_ref()), &new.leader) {
        (_, Some(leader)) if old.and_then(node) != node(new) => {
            let token = match &leader.fencing_token {
                Some(token) => format!(" with fencing token {token}"),
                None => String::new(),
            };
            let (before, why) = match &new.previous_leader {
                Some(previous) => (
                    format!("; before it {} led", previous.identity),
                    why(&previous.identity),
                ),
                None => Default::default(),
            };
            let note = format!("{} leads{token}{before}.{why}", leader.identity);
            events.push(event(
                EventType::Normal,
                EventReason::LeaderChanged,
                "Elect",
                note,
            ));
        }
        (Some(lost), None) => {
            let note = format!(
                "{} no longer leads, and nobody else does yet.{}",
                lost.identity,
                why(&lost.identity)
            );
            events.push(event(
                EventType::Warning,
                EventReason::LeaderLost,
                "Elect",
                note,
            ));
        }
        _ => {}
    }
    // A mirror that never saw anything has lost nothing.
    let saw = old.is_some_and(|old| old.observed_zxid.is_some() && old.stale_since.is_none());
    if new.stale_since.is_some() && saw {
        let note = condition(new, ConditionType::Synced)
            .map(|condition| condition.message.clone())
            .unwrap_or_default();
        events.push(event(
            EventType::Warning,
            EventReason::MirrorStale,
            "Watch",
            note,
        ));
    }
    // Published once, and again only for another reason.
    if let Some(failed) = failed_projection(new)
        && old.and_then(failed_projection).map(|old| &old.reason) != Some(&failed.reason)
    {
        let note = failed.message.clone();
        events.push(event(
            EventType::Warning,
            EventReason::ProjectionFailed,
            "Project",
            note,
        ));
    }
    events.extend(rollout(old, new));
    let rival =
        |status| condition(status, ConditionType::SoleLeader).filter(|c| c.status == "False");
    if let (Some(rival), None) = (rival(new), old.and_then(rival)) {
        let note = rival.message.clone();
        events.push(event(
            EventType::Warning,
            EventReason::RivalLeader,
            "Ask",
            note,
        ));
    }
    events.extend(bridged(old, new));
    events
}

fn condition(status: &LeaderElectionStatus, type_: ConditionType) -> Option<&Condition> {
    let mut conditions = status.conditions.iter();
    conditions.find(|condition| condition.type_ == type_.as_str())
}

/// A rollout that begins, ends, or cannot go on. That it waits for a pod or the next leader belongs to its course.
fn rollout(old: Option<&LeaderElectionStatus>, new: &LeaderElectionStatus) -> Option<Event> {
    let (before, now) = (old.and_then(rolled_out), rolled_out(new)?);
    let was = |reason: &str| before.is_some_and(|before| before.reason == reason);
    if was(&now.reason) {
        return None;
    }
    let stops = [
        Reason::EvictionRefused,
        Reason::WorkloadUnusable,
        Reason::RolloutForbidden,
    ];
    let (type_, reason) = if stops.iter().any(|stop| stop.as_str() == now.reason) {
        (EventType::Warning, EventReason::RolloutStopped)
    } else if now.reason == Reason::Replaced.as_str() && before.is_some() {
        (EventType::Normal, EventReason::RolledOut)
    } else if now.reason == Reason::Replacing.as_str() && was(Reason::Replaced.as_str()) {
        (EventType::Normal, EventReason::RollingOut)
    } else {
        return None;
    };
    Some(event(type_, reason, "RollOut", now.message.clone()))
}

/// A bridge that has come to a side, or that holds neither lock.
fn bridged(old: Option<&LeaderElectionStatus>, new: &LeaderElectionStatus) -> Option<Event> {
    let before = old.and_then(|old| condition(old, ConditionType::Bridged));
    let now = condition(new, ConditionType::Bridged)?;
    if before.is_some_and(|before| before.reason == now.reason) {
        return None;
    }
    let (type_, reason) = if now.status == "True" {
        (EventType::Normal, EventReason::Crossed)
    } else if now.reason == Reason::TwoMayLead.as_str() {
        (EventType::Warning, EventReason::TwoMayLead)
    } else {
        return None;
    };
    Some(event(type_, reason, "Cross", now.message.clone()))
}

fn rolled_out(status: &LeaderElectionStatus) -> Option<&Condition> {
    condition(status, ConditionType::RolledOut)
}

fn failed_projection(status: &LeaderElectionStatus) -> Option<&Condition> {
    // For a moment after each change of the leader its projections show the one before: nothing failed.
    let is_moment = |condition: &Condition| condition.reason == Reason::Following.as_str();
    condition(status, ConditionType::Projected)
        .filter(|condition| condition.status == "False" && !is_moment(condition))
}

fn event(type_: EventType, reason: EventReason, action: &str, mut note: String) -> Event {
    // The API server refuses notes of more than 1 kB.
    note.truncate(note.floor_char_boundary(1000));
    Event {
        type_,
        reason: reason.as_str().to_owned(),
        note: Some(note),
        action: action.to_owned(),
        secondary: None,
    }
}

#[cfg(test)]
pub(in crate::election) mod tests {
    use bellwether_api::election::{Leader, PreviousLeader};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    /// A status with this condition only.
    pub(in crate::election) fn told(
        type_: ConditionType,
        status: &str,
        reason: &str,
    ) -> LeaderElectionStatus {
        LeaderElectionStatus {
            conditions: vec![Condition {
                type_: type_.as_str().to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message: String::new(),
                observed_generation: None,
                last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
            }],
            ..LeaderElectionStatus::default()
        }
    }

    fn led_by(identity: &str, token: i64) -> LeaderElectionStatus {
        let leader = Leader {
            identity: identity.to_owned(),
            node: "n".to_owned(),
            fencing_token: Some(token.to_string()),
            ..Leader::default()
        };
        LeaderElectionStatus {
            leader: Some(leader),
            observed_zxid: Some(token.to_string()),
            ..LeaderElectionStatus::default()
        }
    }

    fn reasons(old: Option<&LeaderElectionStatus>, new: &LeaderElectionStatus) -> Vec<String> {
        events(old, new)
            .into_iter()
            .map(|event| event.reason)
            .collect()
    }

    #[test]
    fn each_change_is_told_once() {
        let nobody = LeaderElectionStatus::default();
        let a = led_by("a", 1);
        assert_eq!(reasons(None, &a), ["LeaderChanged"]);
        assert_eq!(reasons(Some(&a), &a), [""; 0]);
        assert_eq!(reasons(Some(&a), &led_by("a", 2)), ["LeaderChanged"]);
        assert_eq!(reasons(Some(&a), &nobody), ["LeaderLost"]);
        assert_eq!(reasons(Some(&nobody), &nobody), [""; 0]);
        let stale = LeaderElectionStatus {
            stale_since: Some(Time(jiff::Timestamp::UNIX_EPOCH)),
            ..a.clone()
        };
        assert_eq!(reasons(Some(&a), &stale), ["MirrorStale"]);
        assert_eq!(reasons(Some(&stale), &stale), [""; 0]);
        assert_eq!(reasons(Some(&stale), &a), [""; 0]);
        let never = LeaderElectionStatus {
            observed_zxid: None,
            ..nobody
        };
        let blind = LeaderElectionStatus {
            leader: None,
            observed_zxid: None,
            ..stale
        };
        assert_eq!(reasons(Some(&never), &blind), [""; 0]);
        assert_eq!(reasons(None, &blind), [""; 0]);
    }

    #[test]
    fn a_change_tells_what_ended_the_term_before() {
        let change = |status: LeaderElectionStatus, cause: Option<&str>| {
            let change = serde_json::json!({ "time": "2026-01-01T00:00:00Z", "cause": cause });
            LeaderElectionStatus {
                history: vec![serde_json::from_value(change).unwrap()],
                ..status
            }
        };
        let note = |old: &LeaderElectionStatus, new: &LeaderElectionStatus| {
            let mut events = events(Some(old), new);
            events.remove(0).note.unwrap()
        };
        let (a, nobody) = (led_by("a", 1), LeaderElectionStatus::default());
        let mut b = led_by("b", 2);
        b.previous_leader = Some(PreviousLeader {
            identity: "a".to_owned(),
            ..PreviousLeader::default()
        });
        assert_eq!(
            note(&a, &change(b.clone(), Some("Evicted"))),
            "b leads with fencing token 2; before it a led. The pod of a was evicted."
        );
        assert_eq!(
            note(&a, &change(nobody.clone(), Some("Restarted"))),
            "a no longer leads, and nobody else does yet. The containers of a ended or were restarted."
        );
        assert_eq!(
            note(&a, &change(b.clone(), None)),
            "b leads with fencing token 2; before it a led."
        );
        // Another cause may yet be found.
        assert_eq!(
            note(&a, &change(b.clone(), Some("ReleasedOrExpired"))),
            "b leads with fencing token 2; before it a led."
        );
        assert_eq!(ended(Some(&a), &b), Some(("n", Some("1"))));
        assert_eq!(ended(Some(&a), &a), None);
        assert_eq!(ended(Some(&nobody), &b), None);
    }

    #[test]
    fn a_projection_that_fails_is_told_once_for_each_reason() {
        let with = |status: &str, reason: &str| told(ConditionType::Projected, status, reason);
        let (good, taken) = (with("True", "UpToDate"), with("False", "NameTaken"));
        assert_eq!(reasons(Some(&good), &taken), ["ProjectionFailed"]);
        assert_eq!(reasons(Some(&taken), &taken), [""; 0]);
        assert_eq!(
            reasons(Some(&taken), &with("False", "Forbidden")),
            ["ProjectionFailed"]
        );
        assert_eq!(
            reasons(Some(&taken), &with("Unknown", "NotObserved")),
            [""; 0]
        );
    }

    #[test]
    fn a_rival_is_told_once_and_again_after_it_had_gone() {
        let with = |status: &str| told(ConditionType::SoleLeader, status, "");
        for (old, new, expected) in [
            ("True", "False", &["RivalLeader"][..]),
            ("Unknown", "False", &["RivalLeader"]),
            ("False", "False", &[]),
            ("False", "True", &[]),
        ] {
            assert_eq!(
                reasons(Some(&with(old)), &with(new)),
                expected,
                "{old} {new}"
            );
        }
    }

    #[test]
    fn a_bridge_is_told_when_it_has_come_to_a_side_or_holds_nothing() {
        let with = |status: &str, reason: &str| told(ConditionType::Bridged, status, reason);
        let ahead = with("False", "CandidatesAhead");
        let crossed = with("True", "KubernetesLeads");
        let two = with("False", "TwoMayLead");
        assert_eq!(reasons(None, &ahead), [""; 0]);
        assert_eq!(reasons(Some(&ahead), &crossed), ["Crossed"]);
        assert_eq!(reasons(Some(&crossed), &crossed), [""; 0]);
        assert_eq!(reasons(Some(&crossed), &two), ["TwoMayLead"]);
        assert_eq!(reasons(Some(&two), &two), [""; 0]);
    }

    #[test]
    fn a_rollout_is_told_when_it_begins_ends_or_cannot_go_on() {
        let with = |reason: &str| told(ConditionType::RolledOut, "", reason);
        for (old, new, expected) in [
            ("Replaced", "Replacing", Some("RollingOut")),
            ("Replacing", "Replacing", None),
            ("Replacing", "LeaderUnknown", None),
            ("LeaderUnknown", "Replacing", None),
            ("Replacing", "EvictionRefused", Some("RolloutStopped")),
            ("EvictionRefused", "Replacing", None),
            ("Replacing", "Replaced", Some("RolledOut")),
        ] {
            let found = reasons(Some(&with(old)), &with(new));
            assert_eq!(
                found,
                expected.into_iter().collect::<Vec<_>>(),
                "{old} {new}"
            );
        }
        let none = LeaderElectionStatus::default();
        assert_eq!(reasons(Some(&none), &with("Replaced")), [""; 0]);
    }

    #[test]
    fn a_note_is_cut_at_a_character() {
        let long = led_by(&"ä".repeat(900), 1);
        let note = events(None, &long)[0].note.clone().unwrap();
        assert!(note.len() <= 1000);
    }
}
