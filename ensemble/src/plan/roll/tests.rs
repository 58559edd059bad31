//! Which member restarts, and what each of the others waits for.
#![allow(clippy::unwrap_used, reason = "a test may")]

use bellwether_api::ensemble::MemberRole;

use super::*;
use crate::encryption::Encryption;
use crate::plan::example::{
    Running, ago, away, break_probes, claim, fails, first, looks, outdate, runs, serves, silent,
    update, volumes,
};

/// Three members, all of which have to restart; zk-2 leads.
fn changed() -> Running {
    Running::new(3, 0).outdated()
}

#[track_caller]
fn restarts(running: &Running, pod: &str, expect: Expect, why: &str) {
    let (which, what, reason) = running.restart().unwrap();
    assert_eq!((which.as_str(), what, reason.as_str()), (pod, expect, why));
}

/// Nothing restarts, and the roll waits for this.
#[track_caller]
fn waits(running: &Running, on: &str) {
    assert_eq!(running.restart(), None);
    let (message, expected) = (running.report().message, format!("Waiting for {on}."));
    assert!(message.ends_with(&expected), "{message}");
}

#[test]
fn followers_restart_by_ordinal_and_the_leader_last() {
    let mut running = changed();
    let why = "its pod template changed";
    restarts(&running, "zk-0", Expect::Follower, why);
    let verdicts = [
        "zk-0: Restart: its pod template changed",
        "zk-1: Waiting for zk-0, which restarts first",
        "zk-2: Waiting for zk-0; the leader restarts last",
    ];
    assert_eq!(running.verdicts(), verdicts);
    update(running.voter(0));
    restarts(&running, "zk-1", Expect::Follower, why);
    assert_eq!(running.verdicts()[0], "zk-0: UpToDate");
    update(running.voter(1));
    let why = "its pod template changed; it leads, and all others are done";
    restarts(&running, "zk-2", Expect::Leader, why);
    update(running.voter(2));
    assert_eq!(running.restart(), None);
    assert_eq!(
        running.verdicts(),
        ["zk-0", "zk-1", "zk-2"].map(|pod| format!("{pod}: UpToDate"))
    );
}

/// A server reads users and authorities of clients when it starts.
#[test]
fn members_with_other_users_than_there_are_now_restart_and_the_leader_last() {
    let mut running = Running::new(3, 0);
    for ordinal in 0..3 {
        running.voter(ordinal).credentials = Credentials::Outdated;
    }
    let why = "the users of clients, or the authorities of their certificates, changed";
    restarts(&running, "zk-0", Expect::Follower, why);
    for ordinal in 0..2 {
        running.voter(ordinal).credentials = Credentials::Current;
    }
    let why = format!("{why}; it leads, and all others are done");
    restarts(&running, "zk-2", Expect::Leader, &why);
}

#[test]
fn users_that_no_server_could_start_with_restart_nobody_and_are_told() {
    let mut running = Running::new(3, 0);
    running.voter(1).credentials = Credentials::Unusable("The Secret is empty".to_owned());
    assert_eq!(running.restart(), None);
    let trouble = running.report().trouble().unwrap();
    assert_eq!(trouble.reason, Reason::CredentialsUnusable);
    let begin = "Pod zk-1 says: The Secret is empty. Members that run serve on";
    assert!(trouble.message.starts_with(begin), "{}", trouble.message);
}

#[test]
fn without_the_rule_the_leader_restarts_before_the_others() {
    let mut running = changed();
    let restarts = |running: &Running| {
        let rules = crate::rules::Rules::ALL.without(Rule::LeaderLast);
        let plan = crate::plan::plan_under(rules, &running.ensemble, &running.observation);
        match plan.step {
            Some(Step::RestartMember { pod, expect, .. }) => (pod, expect),
            other => panic!("a member restarts: {other:?}"),
        }
    };
    assert_eq!(restarts(&running), ("zk-2".to_owned(), Expect::Leader));
    update(running.voter(2));
    assert_eq!(restarts(&running), ("zk-0".to_owned(), Expect::Follower));
}

#[test]
fn the_step_names_the_pod_as_it_was_judged() {
    let running = changed();
    let step = running.plan().step.unwrap();
    let expected = Step::RestartMember {
        pod: "zk-0".to_owned(),
        uid: "uid of zk-0".to_owned(),
        resource_version: "1".to_owned(),
        id: ServerId(1),
        expect: Expect::Follower,
        reason: "its pod template changed".to_owned(),
    };
    assert_eq!(step, expected);
}

/// Each of these keeps every member from restarting.
#[test]
fn the_roll_waits_for_what_is_under_way_or_unknown() {
    type Change = fn(&mut Running);
    let cases: [(&str, Change); 10] = [
        (
            "the StatefulSet controller to notice the new pod template",
            |r| {
                r.set().update_revision = None;
            },
        ),
        ("pod zk-1 to terminate", |r| r.voter(1).terminating = true),
        ("pod zk-1 to be created", |r| {
            r.observation.pods.remove(1);
        }),
        ("pod zk-1 to start", |r| {
            update(r.voter(1));
            away(r.voter(1), 10);
        }),
        ("one leader; two members report that they lead", |r| {
            serves(r.voter(0), MemberRole::Leader, 1);
        }),
        ("zk-1 to join the leader", |r| {
            update(r.voter(1));
            looks(r.voter(1), 3);
        }),
        // It may be copying the leader's data.
        ("zk-1 to join the leader", |r| looks(r.voter(1), 59)),
        ("a leader to be elected", |r| {
            for ordinal in 0..3 {
                looks(r.voter(ordinal), 3);
            }
        }),
        ("a leader to be elected", |r| {
            serves(r.voter(2), MemberRole::Follower, 1)
        }),
        ("zk-1 to answer; the operator does not know its role", |r| {
            silent(r.voter(1), 5)
        }),
    ];
    for (on, change) in cases {
        let mut running = changed();
        change(&mut running);
        waits(&running, on);
    }
}

#[test]
fn a_member_that_takes_part_in_no_quorum_restarts_first() {
    let why = "its pod template changed; it takes part in no quorum";
    let mut running = changed();
    looks(running.voter(1), 61);
    restarts(&running, "zk-1", Expect::Idle, why);
    let mut running = changed();
    fails(running.voter(1), "");
    restarts(&running, "zk-1", Expect::Idle, why);
    // A roll proceeds without a leader once the time to elect one is over.
    let mut running = changed();
    for ordinal in 0..3 {
        looks(running.voter(ordinal), 61);
    }
    restarts(&running, "zk-0", Expect::Idle, why);
    // Two of three elect one; one of three does not.
    let mut running = changed();
    looks(running.voter(0), 3);
    fails(running.voter(1), "");
    fails(running.voter(2), "");
    update(running.voter(0));
    restarts(&running, "zk-1", Expect::Idle, why);
}

#[test]
fn the_time_to_join_is_three_times_what_the_settings_allow() {
    let mut running = changed();
    let limit = |running: &mut Running, ticks: &str| {
        let settings = &mut running.ensemble.settings;
        settings.insert("initLimit".to_owned(), ticks.to_owned());
        running.template(3, None);
    };
    limit(&mut running, "20");
    looks(running.voter(0), 119);
    waits(&running, "zk-0 to join the leader");
    looks(running.voter(0), 120);
    assert_eq!(running.restarts().as_deref(), Some("zk-0"));
    // A minute at the least.
    limit(&mut running, "1");
    looks(running.voter(0), 59);
    assert_eq!(running.restarts(), None);
}

#[test]
fn a_restart_keeps_a_majority_of_those_that_serve() {
    let mut running = changed();
    silent(running.voter(1), 60);
    let why = "without it only server 3 of 1,2,3 would serve, and 2 are needed";
    waits(&running, &format!("a majority: {why}"));
    // Four of five members are enough; the silent one restarts after all others.
    let mut running = Running::new(5, 0).outdated();
    silent(running.voter(1), 60);
    assert_eq!(running.restarts().as_deref(), Some("zk-0"));
    for ordinal in [0, 2, 3, 4] {
        update(running.voter(ordinal));
    }
    waits(
        &running,
        "zk-1 to answer; the operator does not know its role",
    );
}

#[test]
fn a_member_that_has_not_been_ready_for_long_counts_as_lost() {
    let mut running = Running::new(5, 0).outdated();
    away(running.voter(1), 10_000);
    running.voter(1).unready_since = Some(ago(59));
    waits(
        &running,
        "zk-1 to answer; the operator does not know its role",
    );
    running.voter(1).unready_since = Some(ago(60));
    assert_eq!(running.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn an_updated_member_that_cannot_run_stops_the_roll() {
    for (said, words) in [
        ("", "CrashLoopBackOff"),
        ("exit code 1", "CrashLoopBackOff (exit code 1)"),
    ] {
        let mut running = changed();
        update(running.voter(0));
        fails(running.voter(0), said);
        let plan = running.plan();
        assert_eq!(plan.step, None);
        let trouble = plan.report.trouble().unwrap();
        let message = format!(
            "Pod zk-0 cannot run: {words}. No further member is restarted until it runs; correct or \
             revert the spec"
        );
        assert_eq!(
            (trouble.reason, &trouble.message),
            (Reason::PodFailing, &message)
        );
        let verdicts = [
            "zk-0: Waiting for its pod to run: CrashLoopBackOff".to_owned(),
            format!("zk-1: Waiting for a correction: {message}"),
            format!("zk-2: Waiting for a correction: {message}"),
        ];
        assert_eq!(running.verdicts(), verdicts);
    }
    let mut running = changed();
    update(running.voter(0));
    break_probes(running.voter(0));
    let trouble = running.report().trouble().unwrap();
    assert_eq!(trouble.reason, Reason::ContainerFailing);
    let end = "No further member is restarted until it runs; correct or revert the spec";
    assert!(trouble.message.ends_with(end), "{}", trouble.message);
}

/// Nothing restarts, since all are up to date; each says what it waits for.
#[test]
fn a_member_that_is_up_to_date_and_does_not_serve_says_why() {
    type Change = fn(&mut Running);
    let cases: [(&str, Change); 5] = [
        ("UpToDate", |_| {}),
        ("Waiting for zk-0 to join the leader", |r| {
            looks(r.voter(0), 3)
        }),
        ("Waiting for a leader to be elected", |r| {
            for ordinal in 0..3 {
                looks(r.voter(ordinal), 3);
            }
        }),
        ("Waiting for pod zk-0 to start", |r| away(r.voter(0), 3)),
        ("Waiting for pod zk-0 to terminate", |r| {
            r.voter(0).terminating = true
        }),
    ];
    for (verdict, change) in cases {
        let mut running = Running::new(3, 0);
        change(&mut running);
        assert_eq!(running.restart(), None);
        assert_eq!(running.verdicts()[0], format!("zk-0: {verdict}"));
    }
}

#[test]
fn a_newcomer_follows_before_an_old_member_restarts() {
    let mut running = Running::stepping(3, 4, &[3]);
    let why = "its server list changes from {1,2,3} to {1,2,3,4}";
    restarts(&running, "zk-0", Expect::Follower, why);
    looks(running.voter(3), 3);
    waits(&running, "zk-3 to join the leader");
    away(running.voter(3), 3);
    waits(&running, "pod zk-3 to start");
}

/// From three to four: 1 and 4 run the new list, and cannot join 2 and 3, which are no majority of it.
#[test]
fn where_those_that_are_updated_cannot_join_the_roll_goes_on() {
    let mut running = Running::stepping(3, 4, &[0, 3]);
    looks(running.voter(0), 3);
    looks(running.voter(3), 3);
    let why =
        "its server list changes from {1,2,3} to {1,2,3,4}; servers 1,4 cannot join before it";
    restarts(&running, "zk-1", Expect::Follower, why);
    // With one of them alone the next one would be no majority of the new list.
    away(running.voter(3), 10_000);
    silent(running.voter(3), 100);
    assert_eq!(running.restart(), None);
}

/// From one to two: neither can follow the other before both have the new list.
#[test]
fn of_one_member_that_becomes_two_the_leader_restarts_for_the_newcomer() {
    let mut running = Running::stepping(1, 2, &[1]);
    looks(running.voter(1), 3);
    assert_eq!(running.restart().unwrap().1, Expect::Leader);
    away(running.voter(1), 3);
    assert_eq!(running.restart(), None);
}

#[test]
fn a_newcomer_that_lost_its_disk_starts_again_with_its_vote() {
    let lost = |since| {
        let mut running = Running::stepping(1, 2, &[0, 1]);
        running.observation.bootstrap = Some(crate::observation::BootstrapPermission {
            initialize: Some(Voters::from_iter([ServerId(2)])),
            until: Some(ago(-600)),
            ..Default::default()
        });
        looks(running.voter(0), since);
        looks(running.voter(1), since);
        running.voter(1).volumes = Some(volumes(false, None));
        running
    };
    let mut running = lost(60);
    let why = "its disk is empty, and it has to start with a vote";
    restarts(&running, "zk-1", Expect::Idle, why);
    // One alone may only wait for the other.
    serves(running.voter(0), MemberRole::Leader, 1);
    running.voter(0).unready_since = None;
    assert_eq!(running.restart(), None);
    assert_eq!(lost(59).restart(), None);
    let mut closed = lost(60);
    closed.observation.bootstrap = None;
    assert_eq!(closed.restart(), None);
    // It may be copying the data of the other, which takes as long as its settings allow.
    let with_limit = |since| {
        let mut running = lost(since);
        let limit = ("initLimit".to_owned(), "30".to_owned());
        running.ensemble.settings.extend([limit]);
        running.render();
        running.restart()
    };
    assert_eq!(with_limit(179), None);
    assert!(with_limit(180).is_some());
}

/// From four to three the leaver was elected in the middle: 1 runs the list without it.
#[test]
fn a_leaver_that_leads_restarts_so_that_another_is_elected() {
    let mut running = Running::new(4, 0);
    let new = running.template(3, None);
    running.ensemble.size = 3;
    for pod in &mut running.observation.pods {
        outdate(pod);
    }
    runs(running.voter(0), &new);
    looks(running.voter(0), 3);
    restarts(
        &running,
        "zk-3",
        Expect::Leader,
        "it leads and is about to leave",
    );
    assert_eq!(
        running.verdicts()[1],
        "zk-1: Waiting for zk-3, which restarts first"
    );
    // It leads until it ends.
    running.voter(3).terminating = true;
    assert_eq!(running.restarts(), None);
    running.voter(3).terminating = false;
    // Its pod is removed when the others run a list without it.
    serves(running.voter(3), MemberRole::Follower, 1);
    serves(running.voter(2), MemberRole::Leader, 1);
    serves(running.voter(0), MemberRole::Follower, 1);
    let leave = "zk-3: Waiting for the others to run without it; then it leaves";
    assert_eq!(running.verdicts()[3], leave);
    assert_eq!(running.restarts().as_deref(), Some("zk-1"));
}

#[test]
fn a_leaver_is_not_waited_for() {
    let leaving = || {
        let mut running = Running::new(4, 0).outdated();
        running.template(3, None);
        running.ensemble.size = 3;
        serves(running.voter(3), MemberRole::Follower, 1);
        serves(running.voter(2), MemberRole::Leader, 1);
        running
    };
    let mut running = leaving();
    running.voter(3).terminating = true;
    assert_eq!(running.restarts().as_deref(), Some("zk-0"));
    let mut running = leaving();
    update(running.voter(3));
    fails(running.voter(3), "");
    running.voter(3).unready_since = Some(ago(100));
    assert_eq!(running.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn foreign_lists_stop_the_roll_and_say_what_to_do() {
    let mut running = Running::new(5, 0).outdated();
    running.observation.claims = (0..3).map(|o| claim("zk", o, Some(first(3)))).collect();
    let three =
        crate::desired::config::render(&running.ensemble, &first(3), None, Encryption::NONE)
            .revision;
    for ordinal in 0..2 {
        let role = running.voter(ordinal).server.role();
        running.voter(ordinal).revision = Some(three.clone());
        serves(running.voter(ordinal), role, 1);
    }
    for pod in &mut running.observation.pods {
        update(pod);
    }
    let plan = running.plan();
    assert_eq!(plan.step, None);
    let message = plan.report.trouble().unwrap().message;
    let why =
        "a majority of 1,2,3 and a majority of 1,2,3,4,5 need not share a server: two leaders";
    assert!(message.contains(why), "{message}");
}
