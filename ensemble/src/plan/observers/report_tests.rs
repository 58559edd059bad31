//! The report about observers, and the objects that they need.
#![allow(clippy::unwrap_used, reason = "a test may")]

use super::*;
use crate::plan::example::{Running, away, fails, update};

/// Voters are up to date; the observers are not.
fn voters_done() -> Running {
    let mut running = Running::new(3, 2).outdated();
    running.observation.pods.iter_mut().for_each(update);
    running
}

#[test]
fn observers_restart_also_where_no_voter_has_to() {
    let mut running = voters_done();
    assert_eq!(running.restarts().as_deref(), Some("zk-observer-0"));
    let report = running.report();
    assert_eq!(report.phase, Phase::Rolling);
    let message = "All 3 members serve; zk-2 leads. 2 of 2 observers serve. Restarting zk-observer-0: its \
                   pod template changed; observers restart before voters.";
    assert_eq!(report.message, message);
    update(running.observer(0));
    update(running.observer(1));
    let report = running.report();
    assert_eq!(
        report.message,
        "All 3 members serve; zk-2 leads. 2 observers serve."
    );
    assert_eq!(
        Running::new(3, 0).report().message,
        "All 3 members serve; zk-2 leads."
    );
}

#[test]
fn observers_that_are_not_as_wanted_give_the_phase_and_the_words() {
    type Change = fn(&mut Running);
    let cases: [(Phase, &str, Change); 7] = [
        (
            Phase::Growing,
            "2 of 3 observers serve. Waiting for the observers' pod template to take effect.",
            |r| {
                r.ensemble.observers = 3;
            },
        ),
        (
            Phase::Growing,
            "1 of 2 observers serve. Waiting for pod zk-observer-1 to be created.",
            |r| {
                r.observation.observers.pods.pop();
            },
        ),
        (
            Phase::Shrinking,
            "2 of 1 observers serve. Waiting for the observers' pod template to take effect.",
            |r| {
                r.ensemble.observers = 1;
            },
        ),
        (
            Phase::Recovering,
            "1 of 2 observers serve. zk-observer-1 does not answer.",
            |r| {
                away(r.observer(1), 300);
            },
        ),
        (
            Phase::Recovering,
            "1 of 2 observers serve. zk-observer-1 looks for a leader.",
            |r| {
                r.observer(1).server = ServerReport::Looking;
            },
        ),
        (
            Phase::Growing,
            "2 of 2 observers serve. Waiting for pod zk-observer-1 to terminate.",
            |r| {
                r.observer(1).terminating = true;
            },
        ),
        (
            Phase::Recovering,
            "1 of 2 observers serve. zk-observer-1 is being deleted.",
            |r| {
                away(r.observer(1), 300);
                r.observer(1).terminating = true;
                r.observation
                    .observers
                    .overdue
                    .insert("zk-observer-1".to_owned());
            },
        ),
    ];
    for (phase, words, change) in cases {
        let mut running = Running::new(3, 2);
        change(&mut running);
        let report = running.report();
        let message = format!("All 3 members serve; zk-2 leads. {words}");
        assert_eq!((report.phase, report.message), (phase, message));
    }
}

#[test]
fn an_observer_that_starts_is_new_for_a_minute() {
    for (since, phase) in [(59, Phase::Growing), (60, Phase::Recovering)] {
        let mut running = Running::new(3, 2);
        away(running.observer(1), since);
        assert_eq!(running.report().phase, phase, "{since}");
    }
}

#[test]
fn each_observer_says_what_it_waits_for() {
    type Change = fn(&mut Running);
    let cases: [(&str, Change); 7] = [
        ("UpToDate", |_| {}),
        (
            "Waiting for the others to run without it; then it leaves",
            |r| r.ensemble.observers = 1,
        ),
        (
            "Waiting for the observers' pod template to take effect",
            |r| r.ensemble.heap_mib += 1,
        ),
        (
            "Waiting for the observers' pod template to take effect",
            |r| r.ensemble.observers = 3,
        ),
        ("Waiting for pod zk-observer-1 to terminate", |r| {
            r.observer(1).terminating = true
        }),
        ("Waiting for zk-observer-1 to join the leader", |r| {
            r.observer(1).server = ServerReport::Looking;
        }),
        ("Waiting for pod zk-observer-1 to start", |r| {
            away(r.observer(1), 10)
        }),
    ];
    for (verdict, change) in cases {
        let mut running = Running::new(3, 2);
        change(&mut running);
        let expected = format!("zk-observer-1: {verdict}");
        assert_eq!(running.verdicts()[4], expected);
    }
}

#[test]
fn an_observer_that_does_not_serve_in_time_is_trouble_for_its_clients() {
    let trouble = |since, ready: bool, leader: bool| {
        let mut running = Running::new(3, 2);
        away(running.observer(1), since);
        running.observer(1).ready = ready;
        if !leader {
            running.voter(2).server = ServerReport::Looking;
        }
        running.report().trouble().map(|t| (t.reason, t.message))
    };
    let message = "Observer zk-observer-1 does not serve. The voters do not need it, and a change waits for it \
                   for a few minutes at most. Clients that read from it do need it: see its pod's events and \
                   log.";
    assert_eq!(
        trouble(60, false, true),
        Some((Reason::MemberDown, message.to_owned()))
    );
    assert_eq!(trouble(59, false, true), None);
    assert_eq!(trouble(60, true, true), None);
    assert_eq!(trouble(60, false, false), None);
    for (said, words) in [
        ("", "CrashLoopBackOff. No"),
        ("exit 1", "CrashLoopBackOff (exit 1). No"),
    ] {
        let mut running = Running::new(3, 2);
        fails(running.observer(1), said);
        let trouble = running.report().trouble().unwrap();
        assert_eq!(trouble.reason, Reason::PodFailing);
        let start = format!("Observer zk-observer-1 cannot run: {words} voter is restarted until");
        assert!(trouble.message.starts_with(&start), "{}", trouble.message);
    }
}

#[test]
fn what_an_older_operator_rendered_for_observers_stays_until_the_user_changes_something() {
    let object = |running: &Running| {
        running
            .plan()
            .objects
            .into_iter()
            .find(|o| o.name == "zk-observer")
    };
    let is_whole =
        |running: &Running| object(running).unwrap().body["spec"]["template"].is_object();
    let mut running = Running::new(3, 2);
    assert!(is_whole(&running), "its own is rendered again");
    let set = |running: &mut Running,
               change: fn(&mut crate::observation::StatefulSetObservation)| {
        change(running.observation.observers.stateful_set.as_mut().unwrap());
    };
    set(&mut running, |s| s.rendered_by = Some("older".to_owned()));
    assert!(!is_whole(&running));
    let mut edited = running.clone();
    set(&mut edited, |s| s.edited = Some(serde_json::json!({})));
    assert!(is_whole(&edited));
    let mut changed = running.clone();
    changed.ensemble.heap_mib += 1;
    assert!(is_whole(&changed));
    let mut pruned = running.clone();
    set(&mut pruned, |s| {
        s.template.as_mut().unwrap().name = "gone".to_owned()
    });
    assert!(is_whole(&pruned));
    set(&mut running, |s| s.terminating = true);
    assert_eq!(object(&running), None);
}

#[test]
fn a_revision_that_observers_use_is_not_pruned() {
    let mut running = Running::new(3, 2);
    for name in ["of-a-pod", "of-the-template", "unused"] {
        running.observation.revisions.insert(name.to_owned());
    }
    running.observer(0).revision.as_mut().unwrap().name = "of-a-pod".to_owned();
    let set = running.observation.observers.stateful_set.as_mut().unwrap();
    set.template.as_mut().unwrap().name = "of-the-template".to_owned();
    assert_eq!(running.pruned(), ["unused"]);
    let mut starting = running.clone();
    starting.observation.observers.pods.clear();
    assert_eq!(starting.pruned(), ["of-a-pod", "unused"]);
    // Without observers, only observers that are being removed need the revision of their template.
    running.ensemble.observers = 0;
    assert_eq!(running.pruned(), ["unused"]);
    running.observation.observers.pods.clear();
    assert_eq!(running.pruned(), ["of-a-pod", "of-the-template", "unused"]);
}
