//! Which observer restarts when, and what voters wait for.
#![allow(clippy::unwrap_used, reason = "a test may")]

use bellwether_api::ensemble::MemberRole;

use super::*;
use crate::desired::claims::ClaimSizes;
use crate::desired::config;
use crate::ids::Voters;
use crate::observation::ObserversObservation;
use crate::plan::example::{Running, ago, away, break_probes, fails, outdate, pod, update};

/// Three voters and two observers that all serve; everything was changed a moment ago, and no pod has
/// restarted yet.
fn changed() -> Running {
    Running::new(3, 2).outdated()
}

/// The same after the observers have restarted.
fn observers_done() -> Running {
    let mut world = changed();
    world.observation.observers.pods.iter_mut().for_each(update);
    world
}

#[test]
fn observers_restart_before_voters_one_at_a_time() {
    let mut world = changed();
    assert_eq!(world.restarts().as_deref(), Some("zk-observer-0"));
    world.observer(0).terminating = true;
    assert_eq!(world.restarts(), None);
    world.observation.observers.pods.remove(0);
    assert_eq!(world.restarts(), None, "the StatefulSet controller is slow");
    let mut world = changed();
    update(world.observer(0));
    away(world.observer(0), 10);
    assert_eq!(world.restarts(), None);
    world.observer(0).server = ServerReport::Looking;
    assert_eq!(world.restarts(), None);
    let mut world = changed();
    update(world.observer(0));
    assert_eq!(world.restarts().as_deref(), Some("zk-observer-1"));
    update(world.observer(1));
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn an_updated_observer_that_cannot_run_stops_the_roll_and_says_why() {
    let mut world = changed();
    let observer = world.observer(0);
    update(observer);
    away(observer, 10_000);
    observer.state = PodState::Failing {
        reason: "ImagePullBackOff".to_owned(),
        message: "no such image".to_owned(),
    };
    let plan = world.plan();
    assert_eq!(plan.step, None);
    assert_eq!(plan.report.phase, Phase::Blocked);
    let trouble = plan.report.trouble.unwrap();
    assert!(
        trouble.message.contains("zk-observer-0"),
        "{}",
        trouble.message
    );
    // Reverted: it is outdated again, and free to restart at once.
    world.observer(0).controller_revision = Some("bad".to_owned());
    assert_eq!(world.restarts().as_deref(), Some("zk-observer-0"));
}

#[test]
fn voters_do_not_wait_for_ever_for_an_observer_of_a_lost_node() {
    let mut world = observers_done();
    world.observer(0).terminating = true;
    away(world.observer(0), 10_000);
    assert_eq!(world.restarts(), None, "it may just be on its way out");
    world
        .observation
        .observers
        .overdue
        .insert("zk-observer-0".to_owned());
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));

    let mut world = observers_done();
    away(world.observer(0), 299);
    assert_eq!(world.restarts(), None);
    away(world.observer(0), 301);
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
    let trouble = world.plan().report.trouble.unwrap();
    assert_eq!(trouble.reason, Reason::MemberDown);

    // An outdated one that does not answer is nobody to wait for either.
    let mut world = changed();
    away(world.observer(0), 10_000);
    update(world.observer(1));
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn without_a_leader_observers_hold_nobody_up() {
    let mut world = changed();
    update(world.observer(0));
    away(world.observer(0), 10);
    for voter in &mut world.observation.pods {
        voter.server = ServerReport::Looking;
        voter.ready = false;
    }
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn the_repair_of_a_voter_goes_before_the_restart_of_an_observer() {
    let mut world = changed();
    let voter = &mut world.observation.pods[0];
    away(voter, 10_000);
    voter.state = PodState::Failing {
        reason: "CrashLoopBackOff".to_owned(),
        message: String::new(),
    };
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn an_observer_that_could_not_join_under_the_new_list_waits_for_the_voters() {
    // From one voter to two: a majority of two is both.
    let mut world = changed();
    let two = Voters::first(2, 0);
    let old = config::render(&world.ensemble, &Voters::first(1, 0), None).revision;
    let new = config::render(&world.ensemble, &two, Some(ServerId(2))).revision;
    let hash =
        stateful_set::inputs_hash(&world.ensemble, &new, ClaimSizes::wanted(&world.ensemble));
    let set = world.observation.stateful_set.as_mut().unwrap();
    (set.replicas, set.template) = (2, Some(new.clone()));
    set.inputs_hash = Some(hash.clone());
    let set = world.observation.observers.stateful_set.as_mut().unwrap();
    (set.template, set.inputs_hash) = (Some(new.clone()), Some(hash));
    world.observation.pods = vec![
        pod("zk-0", 0, &old, MemberRole::Leader),
        pod("zk-1", 1, &new, MemberRole::Follower),
    ];
    outdate(&mut world.observation.pods[0]);
    world.observation.pods[1].server = ServerReport::Looking;
    for observer in &mut world.observation.observers.pods {
        observer.revision = Some(old.clone());
    }
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
    // The voters are done: now the observers follow.
    update(&mut world.observation.pods[0]);
    for (pod, role) in [(0, MemberRole::Leader), (1, MemberRole::Follower)] {
        let pod: &mut PodObservation = &mut world.observation.pods[pod];
        pod.revision = Some(new.clone());
        pod.server = ServerReport::Serving {
            role,
            zxid: 2,
            voters: two.clone(),
        };
    }
    world.ensemble.size = 2;
    assert_eq!(world.restarts().as_deref(), Some("zk-observer-0"));
}

#[test]
fn observers_count_in_no_majority() {
    let mut world = observers_done();
    for voter in &mut world.observation.pods {
        update(voter);
    }
    // One voter of three and two observers answer: three of five, and no majority.
    for voter in &mut world.observation.pods[..2] {
        away(voter, 10_000);
        voter.controller_revision = Some("old".to_owned());
    }
    assert_eq!(world.restarts(), None);
}

#[test]
fn ready_means_that_the_observers_serve_too() {
    let mut world = observers_done();
    for voter in &mut world.observation.pods {
        update(voter);
    }
    let report = world.plan().report;
    assert_eq!(report.phase, Phase::Ready, "{}", report.message);
    assert_eq!(report.observers.len(), 2);
    away(world.observer(1), 10);
    let report = world.plan().report;
    assert_eq!(report.phase, Phase::Growing, "{}", report.message);
    assert!(report.available);
    away(world.observer(1), 10_000);
    assert_eq!(world.plan().report.phase, Phase::Recovering);
}

#[test]
fn another_number_of_observers_changes_only_their_stateful_set() {
    let mut world = observers_done();
    for voter in &mut world.observation.pods {
        update(voter);
    }
    let before = world.plan();
    world.ensemble.observers = 5;
    let more = world.plan();
    assert_eq!(more.step, None);
    let changed: Vec<&str> = more
        .objects
        .iter()
        .filter(|o| !before.objects.contains(o))
        .map(|o| o.name.as_str())
        .collect();
    assert_eq!(changed, ["zk-observer"]);
    world.ensemble.observers = 0;
    let none = world.plan();
    let set = none.objects.iter().find(|o| o.name == "zk-observer");
    assert_eq!(set.unwrap().body["spec"]["replicas"], 0);
    world.observation.observers = ObserversObservation::default();
    assert!(world.plan().objects.iter().all(|o| o.name != "zk-observer"));
}

#[test]
fn a_failing_container_beside_a_server_does_not_free_it_for_a_restart() {
    // One of three voters is away; the others elect a leader, for which both are needed.
    let mut world = observers_done();
    let [broken, other, gone] = world.observation.pods.as_mut_slice() else {
        panic!("three voters");
    };
    break_probes(broken);
    away(gone, 10_000);
    for looking in [broken, other] {
        looking.server = ServerReport::Looking;
    }
    assert_eq!(world.restarts(), None);
    // While it serves, it restarts in its turn, with a majority beside it.
    let mut world = observers_done();
    break_probes(&mut world.observation.pods[0]);
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
    away(&mut world.observation.pods[1], 10);
    assert_eq!(world.restarts(), None);
}

#[test]
fn a_failing_container_in_an_updated_pod_stops_the_roll_and_is_named() {
    let mut world = observers_done();
    let voter = &mut world.observation.pods[0];
    update(voter);
    break_probes(voter);
    let observer = &mut changed();
    update(observer.observer(0));
    break_probes(observer.observer(0));
    for (world, pod) in [(&mut world, "zk-0"), (observer, "zk-observer-0")] {
        let plan = world.plan();
        assert_eq!(plan.step, None);
        assert_eq!(plan.report.phase, Phase::Blocked);
        let trouble = plan.report.trouble.unwrap();
        assert_eq!(trouble.reason, Reason::ContainerFailing);
        for word in ["probes", pod, "CrashLoopBackOff (port in use)"] {
            assert!(trouble.message.contains(word), "{}", trouble.message);
        }
    }
}

#[test]
fn a_failing_container_is_told_while_every_member_serves() {
    let mut world = observers_done();
    world.observation.pods.iter_mut().for_each(update);
    assert_eq!(world.plan().report.trouble, None);
    break_probes(&mut world.observation.pods[1]);
    let report = world.plan().report;
    assert_eq!(report.phase, Phase::Ready);
    assert_eq!(report.trouble.unwrap().reason, Reason::ContainerFailing);
}

#[test]
fn what_is_under_way_among_observers_is_waited_for_by_its_name() {
    type Change = fn(&mut Running);
    let cases: [(&str, Change); 6] = [
        ("the observers' pod template to take effect", |r| {
            r.observation
                .observers
                .stateful_set
                .as_mut()
                .unwrap()
                .replicas = 3;
        }),
        (
            "the StatefulSet controller to notice the observers' new pod template",
            |r| {
                r.observation
                    .observers
                    .stateful_set
                    .as_mut()
                    .unwrap()
                    .update_revision = None;
            },
        ),
        ("pod zk-observer-1 to be gone", |r| {
            r.observer(1).terminating = true
        }),
        (
            "zk-observer-1 to be created by the StatefulSet controller",
            |r| {
                r.observation.observers.pods.pop();
            },
        ),
        ("pod zk-observer-0 to start", |r| {
            update(r.observer(0));
            away(r.observer(0), 299);
        }),
        ("zk-observer-0 to join the leader", |r| {
            update(r.observer(0));
            r.observer(0).server = ServerReport::Looking;
            r.observer(0).created = ago(299);
        }),
    ];
    for (on, change) in cases {
        let mut running = changed();
        change(&mut running);
        assert_eq!(running.restart(), None, "{on}");
        let verdict = format!("zk-0: Waiting for {on}");
        assert_eq!(running.verdicts()[0], verdict);
    }
}

#[test]
fn an_observer_that_has_had_its_time_is_not_waited_for() {
    let mut running = observers_done();
    running.observer(0).server = ServerReport::Looking;
    running.observer(0).created = ago(300);
    assert_eq!(running.restarts().as_deref(), Some("zk-0"));
    away(running.observer(0), 300);
    assert_eq!(running.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn an_idle_observer_restarts_first_and_says_so() {
    let mut running = changed();
    away(running.observer(1), 10);
    running.observer(1).state = PodState::Starting;
    let why = "its pod template changed; it takes part in nothing".to_owned();
    let expected = ("zk-observer-1".to_owned(), Expect::Idle, why);
    assert_eq!(running.restart(), Some(expected));
    let running = changed();
    let why = "its pod template changed; observers restart before voters".to_owned();
    let expected = ("zk-observer-0".to_owned(), Expect::Follower, why.clone());
    assert_eq!(running.restart(), Some(expected));
    let verdicts = [
        "zk-0: Waiting for zk-observer-0; observers restart first".to_owned(),
        "zk-1: Waiting for zk-0, which restarts first".to_owned(),
        "zk-2: Waiting for zk-0; the leader restarts last".to_owned(),
        format!("zk-observer-0: Restart: {why}"),
        "zk-observer-1: UpToDate".to_owned(),
    ];
    assert_eq!(running.verdicts(), verdicts);
    let Some(Step::RestartMember { uid, id, .. }) = running.plan().step else {
        panic!("an observer restarts");
    };
    assert_eq!((uid.as_str(), id), ("uid of zk-observer-0", ServerId(101)));
}

/// Voters are up to date; the observers are not.
fn voters_done() -> Running {
    let mut running = changed();
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
            "1 of 2 observers serve. Waiting for zk-observer-1 to be created by the StatefulSet controller.",
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
            "2 of 2 observers serve. Waiting for pod zk-observer-1 to be gone.",
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
fn each_observer_says_what_it_waits_for() {
    type Change = fn(&mut Running);
    let cases: [(&str, Change); 6] = [
        ("UpToDate", |_| {}),
        (
            "Waiting for the others to run without it; then it leaves",
            |r| r.ensemble.observers = 1,
        ),
        (
            "Waiting for the observers' pod template to take effect",
            |r| r.ensemble.observers = 3,
        ),
        ("Waiting for pod zk-observer-1 to be gone", |r| {
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
        running.report().trouble.map(|t| (t.reason, t.message))
    };
    let message = "observer zk-observer-1 does not serve. The voters do not need it; clients that read from \
                   it do.";
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
        let trouble = running.report().trouble.unwrap();
        assert_eq!(trouble.reason, Reason::PodFailing);
        let start = format!("observer zk-observer-1 cannot run: {words} voter is restarted until");
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
    assert_eq!(running.plan().prune, ["unused"]);
    // Without observers, what their template names is of no use.
    running.ensemble.observers = 0;
    running.observation.observers.pods.clear();
    assert_eq!(
        running.plan().prune,
        ["of-a-pod", "of-the-template", "unused"]
    );
}
