//! What people read: the phase, the message, and what is wrong.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;

use bellwether_api::ensemble::Awaited;

use super::*;
use crate::observation::BootstrapPermission;
use crate::observation::ServerReport;
use crate::plan::example::{
    Running, ago, away, break_probes, fails, first, looks, outdate, runs, serves, silent, update,
};

type Change = fn(&mut Running);

/// Phase, message, and the reason of the trouble.
fn says(running: &Running) -> (Phase, String, Option<Reason>) {
    let report = running.report();
    let reason = report.trouble().map(|t| t.reason);
    (report.phase, report.message, reason)
}

#[test]
fn the_phase_and_the_message_say_what_is_the_case() {
    let all_serve = "All 3 members serve; zk-2 leads.";
    let cases: [(Phase, &str, Option<Reason>, Change); 10] = [
        (Phase::Ready, all_serve, None, |_| {}),
        (
            Phase::Recovering,
            "2 of 3 members serve: zk-0 looks for a leader.",
            None,
            |r| {
                looks(r.voter(0), 3);
                r.voter(0).created = ago(3);
            },
        ),
        (
            Phase::Recovering,
            "2 of 3 members serve: zk-0 does not answer yet.",
            None,
            |r| {
                away(r.voter(0), 59);
            },
        ),
        (
            Phase::Recovering,
            "2 of 3 members serve: zk-0 does not answer yet.",
            Some(Reason::MemberDown),
            |r| away(r.voter(0), 60),
        ),
        (
            Phase::Recovering,
            "3 of 3 members serve: zk-0 is being deleted.",
            None,
            |r| {
                r.voter(0).terminating = true;
            },
        ),
        (
            Phase::Recovering,
            "2 of 3 members serve: the pod with ordinal 0 does not exist yet.",
            None,
            |r| {
                r.observation.pods.remove(0);
            },
        ),
        (
            Phase::Recovering,
            "No member leads: zk-0 looks for a leader, zk-1 looks for a leader, zk-2 looks for a leader. \
             Members elect a leader as soon as a majority can.",
            None,
            |r| {
                for ordinal in 0..3 {
                    looks(r.voter(ordinal), 3);
                    r.voter(ordinal).ready = true;
                }
            },
        ),
        (
            Phase::Recovering,
            "Pod zk-0 cannot run: CrashLoopBackOff (why).",
            Some(Reason::PodFailing),
            |r| {
                fails(r.voter(0), "why");
            },
        ),
        (
            Phase::Recovering,
            "Pod zk-0 cannot run: CrashLoopBackOff.",
            Some(Reason::PodFailing),
            |r| {
                fails(r.voter(0), "");
            },
        ),
        (
            Phase::Rolling,
            "Restarting zk-0: its pod template changed.",
            None,
            |r| {
                outdate(r.voter(0));
            },
        ),
    ];
    for (phase, message, reason, change) in cases {
        let mut running = Running::new(3, 0);
        change(&mut running);
        assert_eq!(says(&running), (phase, message.to_owned(), reason));
    }
}

/// A roll that waits for a member whose node is lost may wait for ever.
#[test]
fn a_member_that_is_away_for_long_is_told_of_in_a_roll_too() {
    let in_a_roll = |change: fn(&mut PodObservation), seconds| {
        let mut running = Running::new(3, 0).outdated();
        away(running.voter(0), 100);
        running.voter(0).unready_since = Some(ago(seconds));
        change(running.voter(0));
        running
    };
    // A member that has not restarted yet, and a member that restarted and does not serve again.
    for change in [outdate, update] {
        assert_eq!(says(&in_a_roll(change, 59)).2, None);
        let running = in_a_roll(change, 60);
        assert_eq!(running.report().phase, Phase::Rolling);
        let trouble = running.report().trouble().unwrap();
        assert_eq!(trouble.reason, Reason::MemberDown);
        assert!(trouble.message.starts_with("2 of 3 members serve: zk-0 "));
    }
    // The others do not wait for a member that leaves.
    let mut shrinking = Running::stepping(5, 4, &[]);
    away(shrinking.voter(4), 100);
    shrinking.voter(4).unready_since = Some(ago(100));
    assert_eq!(shrinking.report().trouble(), None);
}

#[test]
fn a_start_says_how_many_members_serve() {
    let mut running = Running::new(3, 0);
    running.observation.bootstrap = Some(BootstrapPermission {
        initialize: Some(first(3)),
        until: Some(ago(-600)),
        ..Default::default()
    });
    assert_eq!(running.report().phase, Phase::Ready);
    looks(running.voter(0), 3);
    running.voter(0).created = ago(3);
    let message = "2 of 3 members serve: zk-0 looks for a leader. Members elect a leader when a majority \
                   is up.";
    assert_eq!(says(&running), (Phase::Starting, message.to_owned(), None));
}

#[test]
fn a_size_change_says_where_it_goes_and_by_which_list() {
    let restarting = "Restarting zk-0: its server list changes from {1,2,3} to {1,2,3,4}.";
    let growing = Running::stepping(3, 4, &[3]);
    let message = "Growing to 4 in steps of one member; the server list is {1,2,3,4}.";
    let expected = (Phase::Growing, format!("{message} {restarting}"), None);
    assert_eq!(says(&growing), expected);

    let mut before = Running::new(3, 0);
    before.ensemble.size = 5;
    let message = "Growing to 5 in steps of one member; the next server list is {1,2,3,4}.";
    assert_eq!(says(&before), (Phase::Growing, message.to_owned(), None));

    let mut shrinking = Running::new(5, 0);
    shrinking.ensemble.size = 3;
    let message = "Shrinking to 3 in steps of one member; the server list is {1,2,3,4,5}. Restarting zk-4: \
                   it leads and is about to leave.";
    assert_eq!(
        says(&shrinking),
        (Phase::Shrinking, message.to_owned(), None)
    );
    serves(shrinking.voter(4), MemberRole::Follower, 1);
    serves(shrinking.voter(3), MemberRole::Leader, 1);
    let message = "Shrinking to 3 in steps of one member; the next server list is {1,2,3,4}.";
    assert_eq!(
        says(&shrinking),
        (Phase::Shrinking, message.to_owned(), None)
    );

    // The last step is done, and the pod of the member that left terminates.
    let mut left = Running::new(4, 0);
    let new = left.template(3, None);
    left.ensemble.size = 3;
    for ordinal in 0..3 {
        runs(left.voter(ordinal), &new);
    }
    serves(left.voter(3), MemberRole::Follower, 1);
    serves(left.voter(2), MemberRole::Leader, 1);
    assert_eq!(left.report().phase, Phase::Shrinking);
}

#[test]
fn a_step_that_cannot_begin_says_who_is_waited_for() {
    let mut running = Running::new(3, 0);
    running.ensemble.size = 5;
    looks(running.voter(0), 3);
    running.voter(0).created = ago(3);
    let message = "Growing to 5: the next step begins when every member serves, and zk-0 looks for a \
                   leader.";
    assert_eq!(says(&running), (Phase::Growing, message.to_owned(), None));
    running.voter(0).created = ago(60);
    assert_eq!(
        says(&running),
        (Phase::Growing, message.to_owned(), Some(Reason::MemberDown))
    );
    let mut running = Running::new(5, 0);
    running.ensemble.size = 3;
    looks(running.voter(0), 3);
    let message = says(&running).1;
    assert!(
        message.starts_with("Shrinking to 3: the next step begins when"),
        "{message}"
    );
}

#[test]
fn a_member_that_is_away_is_trouble_only_where_nothing_asked_it_to_be() {
    // In a roll the members that restart are away one after the other, each for some seconds.
    let mut rolling = Running::new(3, 0).outdated();
    update(rolling.voter(0));
    away(rolling.voter(0), 100);
    rolling.voter(0).unready_since = Some(ago(30));
    assert_eq!(rolling.report().trouble(), None);
    // A member that Kubernetes counts as ready may be in the middle of an election.
    let mut electing = Running::new(3, 0);
    electing.voter(0).server = ServerReport::Looking;
    assert_eq!(electing.report().trouble(), None);
}

#[test]
fn members_that_are_ready_and_cannot_be_asked_are_named() {
    let mut running = Running::new(3, 0);
    silent(running.voter(0), 29);
    silent(running.voter(1), 29);
    assert_eq!(running.report().trouble(), None);
    silent(running.voter(0), 30);
    silent(running.voter(1), 30);
    let trouble = running.report().trouble().unwrap();
    assert_eq!(trouble.reason, Reason::MembersUnreachable);
    let names = "cannot ask zk-0 (connection refused), zk-1 (connection refused), and Kubernetes";
    assert!(trouble.message.contains(names), "{}", trouble.message);
    // A server whose pod is not ready has exited.
    running.voter(0).ready = false;
    running.voter(1).terminating = true;
    let trouble = running.report().trouble();
    assert_ne!(trouble.map(|t| t.reason), Some(Reason::MembersUnreachable));
}

#[test]
fn whether_clients_are_served_is_unknown_while_a_majority_may_serve_unseen() {
    let mut running = Running::new(3, 0);
    let leads = |pod: &PodObservation| pod.server.role() == MemberRole::Leader;
    let leader = running.observation.pods.iter().position(leads).unwrap();
    silent(running.voter(leader), 5);
    // The followers still follow one that the operator cannot ask.
    assert_eq!(running.report().availability(), Availability::Unknown);
    for ordinal in 0..3 {
        silent(running.voter(ordinal), 5);
    }
    assert_eq!(running.report().availability(), Availability::Unknown);
    running.voter(0).ready = false;
    assert_eq!(running.report().availability(), Availability::Unknown);
    running.voter(1).ready = false;
    assert_eq!(running.report().availability(), Availability::NoQuorum);
}

#[test]
fn no_trouble_hides_another() {
    let mut running = Running::new(5, 1);
    fails(running.voter(0), "");
    away(running.voter(1), 10_000);
    running.voter(1).server = ServerReport::Unreachable("connection refused".to_owned());
    fails(&mut running.observation.observers.pods[0], "");
    let refused = ("zk-9".to_owned(), "exceeded quota".to_owned());
    running.observation.refused.extend([refused]);
    let report = running.report();
    let reasons: Vec<Reason> = report.troubles.iter().map(|t| t.reason).collect();
    let failing = Reason::PodFailing;
    assert_eq!(reasons, [failing, Reason::MemberDown, failing, failing]);
    let said = report.trouble().unwrap().message;
    for words in [
        "Pod zk-0",
        "zk-1 does not answer",
        "Observer zk-observer-0",
        "exceeded quota",
    ] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn members_are_on_their_way_while_they_are_new_or_being_replaced() {
    let on_their_way = |change: Change| {
        let mut running = Running::new(3, 0);
        change(&mut running);
        running.report().on_their_way
    };
    assert!(on_their_way(|_| {}));
    assert!(on_their_way(|r| away(r.voter(0), 59)));
    assert!(!on_their_way(|r| away(r.voter(0), 60)));
    assert!(on_their_way(|r| {
        away(r.voter(0), 60);
        r.voter(0).terminating = true;
    }));
}

#[test]
fn a_container_that_fails_beside_a_server_comes_after_a_member_that_is_down() {
    let mut running = Running::new(3, 0);
    break_probes(running.voter(0));
    let expected = "Container probes of pod zk-0 does not run: CrashLoopBackOff (port in use). The server \
                    does not depend on it, but until it runs the pod is not ready, and Services send no \
                    clients to it.";
    let trouble = running.report().trouble().unwrap();
    assert_eq!(
        (trouble.reason, trouble.message.as_str()),
        (Reason::ContainerFailing, expected)
    );
    running
        .voter(0)
        .failing_container
        .as_mut()
        .unwrap()
        .message
        .clear();
    let message = running.report().trouble().unwrap().message;
    assert!(
        message.contains("does not run: CrashLoopBackOff. The"),
        "{message}"
    );
    away(running.voter(1), 60);
    let trouble = running.report().trouble().unwrap();
    assert_eq!(trouble.reason, Reason::MemberDown);
    assert!(
        trouble.message.contains("yet. Also: Container probes"),
        "{}",
        trouble.message
    );
}

#[test]
fn the_report_has_what_is_known_of_each_member() {
    let mut running = Running::new(3, 1);
    running.voter(0).node = Some("node-1".to_owned());
    running.voter(0).ready = false;
    let report = running.report();
    let revision = running.set().template.clone();
    let expected = MemberReport {
        pod: "zk-0".to_owned(),
        id: ServerId(1),
        role: MemberRole::Follower,
        zxid: Some(1 << 32),
        revision: revision.as_ref().map(|r| r.name.clone()),
        node: Some("node-1".to_owned()),
        ready: false,
        verdict: Verdict::UpToDate,
    };
    assert_eq!(report.members[0], expected);
    assert_eq!(report.revision, revision);
    assert_eq!((report.members.len(), report.missing), (3, 0));
    assert_eq!(report.availability(), Availability::Serving);
    let ids: Vec<ServerId> = report.observers.iter().map(|m| m.id).collect();
    assert_eq!(ids, [ServerId(101)]);
    running.observation.pods.truncate(1);
    let report = running.report();
    assert_eq!(report.missing, 2);
    assert_eq!(report.availability(), Availability::NoQuorum);
}

#[test]
fn the_leader_is_the_one_that_alone_says_so() {
    let mut running = Running::new(3, 0);
    let leader = |r: &Running| r.report().leader().map(|m| m.pod.clone());
    assert_eq!(leader(&running).as_deref(), Some("zk-2"));
    serves(running.voter(0), MemberRole::Leader, 2);
    assert_eq!(leader(&running), None);
    let trouble = running.report().trouble().unwrap();
    assert_eq!(trouble.reason, Reason::TwoLeaders);
    let who = "zk-0 (epoch 2, server list 1,2,3) and zk-2 (epoch 1, server list 1,2,3) say";
    assert!(trouble.message.starts_with(who), "{}", trouble.message);
    // One that is being deleted is about to stop.
    running.voter(0).terminating = true;
    assert_eq!(running.report().trouble(), None);
}

#[test]
fn a_member_that_served_in_a_later_epoch_than_the_leader_cannot_follow_it() {
    let away_text = |its: Option<u64>, ready: bool| {
        let mut running = Running::new(3, 0);
        looks(running.voter(0), 3);
        running.voter(0).ready = ready;
        running.voter(0).volumes.as_mut().unwrap().current_epoch = its;
        running.report().message
    };
    let why = "zk-0 looks for a leader and cannot follow zk-2: it served in epoch 2, after the leader's 1";
    assert!(away_text(Some(2), false).contains(why));
    for (its, ready) in [(Some(1), false), (None, false), (Some(2), true)] {
        assert!(
            !away_text(its, ready).contains("cannot follow"),
            "{its:?} {ready}"
        );
    }
}

#[test]
fn a_pause_says_what_would_be_done_and_does_nothing() {
    let mut running = Running::new(3, 0);
    running.ensemble.paused = true;
    let message = "Paused by the spec: nothing is changed or restarted.";
    let idle = (
        Phase::Paused,
        format!("{message} Nothing is to be done."),
        None,
    );
    assert_eq!(says(&running), idle);
    let mut running = running.outdated();
    running
        .observation
        .revisions
        .insert("zk-config-unused".to_owned());
    let would = "When it goes on: Restarting zk-0: its pod template changed.";
    assert_eq!(
        says(&running),
        (Phase::Paused, format!("{message} {would}"), None)
    );
    assert_eq!(running.verdicts()[0], "zk-0: Waiting for the pause to end");
    let plan = running.plan();
    assert!(plan.objects.is_empty() && plan.last.is_empty() && plan.prune.is_empty());
    assert_eq!(plan.step, None);
    running.ensemble.paused = false;
    assert_eq!(running.pruned(), ["zk-config-unused"]);
}

#[test]
fn troubles_are_told_in_one_the_gravest_first() {
    let trouble = |reason, message: &str| Trouble {
        reason,
        message: message.to_owned(),
    };
    let (down, full) = (Reason::MemberDown, Reason::VolumeNearlyFull);
    assert_eq!(Trouble::all([]), None);
    for first in ["One.", "One"] {
        let all = Trouble::all([trouble(down, first), trouble(full, "two.")]);
        assert_eq!(all, Some(trouble(down, "One. Also: two.")));
    }
}

#[test]
fn the_operator_rests_when_nothing_changes_unseen() {
    let mut report = Report::new(Phase::Ready, String::new());
    assert!(report.may_rest());
    let message = String::new();
    let reason = Reason::VolumeNearlyFull;
    report.troubles.push(Trouble { reason, message });
    assert!(!report.may_rest());
    assert!(!Report::new(Phase::Rolling, String::new()).may_rest());
}

#[test]
fn every_wait_has_a_word_of_its_own() {
    let pod = || "zk-0".to_owned();
    let all = [
        WaitingOn::Deletion(pod()),
        WaitingOn::Creation(pod()),
        WaitingOn::Start(pod()),
        WaitingOn::Join(pod()),
        WaitingOn::Answer(pod()),
        WaitingOn::Leader,
        WaitingOn::OneLeader,
        WaitingOn::Majority(pod()),
        WaitingOn::Turn(pod()),
        WaitingOn::LeaderIsLast(pod()),
        WaitingOn::Leave,
        WaitingOn::Other(pod()),
    ];
    assert_eq!(all.map(|on| on.waiting_for().what), Awaited::ALL);
    let words: BTreeSet<&str> = Awaited::ALL.iter().map(|awaited| awaited.word()).collect();
    assert_eq!(words.len(), Awaited::ALL.len());
}

#[test]
fn a_change_names_its_lists_who_restarts_and_what_is_waited_for() {
    assert_eq!(Running::new(3, 0).report().change, None);
    let mut running = Running::stepping(3, 4, &[]);
    let change = running.report().change.unwrap();
    assert_eq!((change.from, change.to), (Some(first(3)), first(4)));
    assert!(change.restarting.is_some() && change.waiting.is_none());
    looks(running.voter(3), 3);
    let change = running.report().change.unwrap();
    assert_eq!(change.restarting, None);
    let joins = WaitingOn::Join("zk-3".to_owned());
    assert_eq!(change.waiting, Some(joins));
    let rolls = Running::new(3, 0).outdated().report().change.unwrap();
    assert_eq!((rolls.from, rolls.to), (None, first(3)));
    assert_eq!(rolls.restarting.as_deref(), Some("zk-0"));
}
