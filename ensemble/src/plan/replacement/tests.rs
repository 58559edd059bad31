//! Who is replaced, and when nobody is.
#![allow(clippy::unwrap_used, reason = "a test may")]

use bellwether_api::ensemble::MemberRole;

use super::*;
use crate::observation::{ClaimObservation, ServerReport};
use crate::plan::example::{Running, ago, claim, first, looks, serves};

/// Three members, led by the third; the second cannot run for so many seconds.
fn broken(since: i64) -> Running {
    let mut running = Running::new(3, 0);
    let pod = running.voter(1);
    pod.server = ServerReport::Unreachable("it does not run".to_owned());
    pod.state = PodState::Failing {
        reason: "CrashLoopBackOff".to_owned(),
        message: String::new(),
    };
    (pod.ready, pod.unready_since) = (false, Some(ago(since)));
    running
}

/// The same, and a person asks for its replacement.
fn asked(since: i64) -> Running {
    let mut running = broken(since);
    running.ensemble.replace_member = Some("zk-1:uid of zk 1".to_owned());
    running
}

/// The claims and the pod that are deleted.
fn deleted(running: &Running) -> Option<Vec<String>> {
    match running.plan().step {
        Some(Step::Replace { claims, pod, .. }) => Some(
            claims
                .into_iter()
                .chain(pod)
                .map(|seen| seen.name)
                .collect(),
        ),
        Some(other) => panic!("{other:?}"),
        None => None,
    }
}

/// Why the request waits.
fn told(running: &Running) -> String {
    let troubles = running.report().troubles.into_iter();
    let mut own = troubles.filter(|t| t.reason == Reason::ReplacementWaits);
    own.next()
        .map_or_else(String::new, |trouble| trouble.message)
}

#[test]
fn a_member_that_cannot_run_starts_again_with_an_empty_volume_when_a_person_says_so() {
    assert_eq!(deleted(&broken(100_000)), None);
    let mut running = asked(600);
    let names = |names: &[&str]| Some(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
    assert_eq!(deleted(&running), names(&["data-zk-1", "zk-1"]));
    assert_eq!(told(&running), "");
    // Its transaction log goes with it.
    running.observation.log_claims = vec![ClaimObservation {
        name: "datalog-zk-1".to_owned(),
        ..claim("zk", 1, None)
    }];
    let expected = names(&["datalog-zk-1", "data-zk-1", "zk-1"]);
    assert_eq!(deleted(&running), expected);
    // The claims wait for the pod.
    running.observation.log_claims[0].terminating = true;
    running.observation.claims[1].terminating = true;
    assert_eq!(deleted(&running), names(&["zk-1"]));
    // Another claim is in its place.
    running.observation.claims[1] = claim("zk", 1, None);
    running.observation.claims[1].uid = "another".to_owned();
    assert_eq!(deleted(&running), None);
    assert_eq!(told(&running), "");
}

#[test]
fn nobody_is_replaced_whose_data_may_be_needed_or_who_may_run() {
    type Edit = fn(&mut Running);
    let cases: [(Edit, &str); 8] = [
        (
            |r| serves(r.voter(1), MemberRole::Follower, 1),
            "zk-1 serves",
        ),
        (|r| r.voter(1).ready = true, "zk-1 serves"),
        (|r| r.voter(1).terminating = true, "delete the Node"),
        (
            |r| r.voter(1).state = PodState::Running,
            "not known whether",
        ),
        (|r| r.voter(1).unready_since = Some(ago(30)), "by itself"),
        (|r| looks(r.voter(0), 30), "may be needed"),
        (|r| looks(r.voter(2), 30), "no one member leads"),
        (
            |r| r.ensemble.replace_member = Some("zk-3:uid".to_owned()),
            "zk-3 is no member of {1,2,3}",
        ),
    ];
    for (edit, words) in cases {
        let mut running = asked(600);
        edit(&mut running);
        assert_eq!(deleted(&running), None, "{words}");
        let told = told(&running);
        assert!(told.contains(words), "{words}: {told}");
    }
    for wrong in ["", "zk-1", "zk-1:", "main-1:uid", "zk-x:uid", ":"] {
        let mut running = asked(600);
        running.ensemble.replace_member = Some(wrong.to_owned());
        assert_eq!(deleted(&running), None, "{wrong}");
        assert!(
            wrong == "zk-1:" || told(&running).contains("unique id"),
            "{wrong}"
        );
    }
}

#[test]
fn a_policy_replaces_after_its_time_who_does_not_run_at_all() {
    let policy = |running: &mut Running| {
        running.ensemble.replace_after = Some(SignedDuration::from_mins(30));
    };
    for (since, replaced) in [(1700, false), (1801, true)] {
        let mut running = broken(since);
        policy(&mut running);
        assert_eq!(deleted(&running).is_some(), replaced, "{since}");
        assert_eq!(told(&running), "");
    }
    // A server that runs and looks for a leader may be copying data.
    let mut running = broken(10_000);
    policy(&mut running);
    running.voter(1).state = PodState::Running;
    looks(running.voter(1), 10_000);
    assert_eq!(deleted(&running), None);
    // Of three one is left.
    let mut running = broken(10_000);
    policy(&mut running);
    looks(running.voter(0), 10_000);
    let deletes = matches!(running.plan().step, Some(Step::Replace { .. }));
    assert!(!deletes);
    assert_eq!(first(3), running.set().template.clone().unwrap().voters);
}
