//! Which observer restarts when, and what voters wait for.
#![allow(clippy::unwrap_used, reason = "a test may")]

use bellwether_api::ensemble::MemberRole;

use super::*;
use crate::desired::claims::ClaimSizes;
use crate::desired::config;
use crate::encryption::Encryption;
use crate::ids::Voters;
use crate::observation::ObserversObservation;
use crate::plan::example::{Running, ago, away, break_probes, fails, outdate, pod, update};
use crate::plan::report::Availability;

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
    let trouble = plan.report.trouble().unwrap();
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
    let trouble = world.plan().report.trouble().unwrap();
    assert_eq!(trouble.reason, Reason::MemberDown);

    // The voters do not wait for an outdated observer that does not answer.
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
    let old = config::render(
        &world.ensemble,
        &Voters::first(1, 0),
        None,
        Encryption::NONE,
    )
    .revision;
    let new = config::render(&world.ensemble, &two, Some(ServerId(2)), Encryption::NONE).revision;
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
            observers: Default::default(),
            version: 0,
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
    assert_eq!(report.availability(), Availability::Serving);
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
        let trouble = plan.report.trouble().unwrap();
        assert_eq!(trouble.reason, Reason::ContainerFailing);
        for word in ["probes", pod, "CrashLoopBackOff (port in use)"] {
            assert!(trouble.message.contains(word), "{}", trouble.message);
        }
        let held = if pod == "zk-0" {
            "No further member"
        } else {
            "No voter"
        };
        let end = format!("{held} is restarted until it runs");
        assert!(trouble.message.contains(&end), "{}", trouble.message);
    }
}

#[test]
fn a_failing_container_is_told_while_every_member_serves() {
    let mut world = observers_done();
    world.observation.pods.iter_mut().for_each(update);
    assert_eq!(world.plan().report.trouble(), None);
    break_probes(&mut world.observation.pods[1]);
    let report = world.plan().report;
    assert_eq!(report.phase, Phase::Ready);
    assert_eq!(report.trouble().unwrap().reason, Reason::ContainerFailing);
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
        ("pod zk-observer-1 to terminate", |r| {
            r.observer(1).terminating = true
        }),
        ("pod zk-observer-1 to be created", |r| {
            r.observation.observers.pods.pop();
        }),
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

#[test]
fn an_observer_that_cannot_run_does_not_stop_the_repair_of_a_voter() {
    let mut world = changed();
    update(world.observer(0));
    fails(world.observer(0), "");
    assert_eq!(world.restarts(), None);
    fails(&mut world.observation.pods[0], "");
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
}
