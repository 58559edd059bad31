use bellwether_ensemble::plan::verdict::{Verdict, WaitingOn};
use serde_json::{Value, json};

use super::*;

fn member(name: &str, id: i32, role: &str, verdict: Verdict) -> Value {
    json!({
        "name": name, "serverId": id, "role": role, "verdict": verdict.to_string(),
        "state": verdict.state(), "waitingFor": verdict.waiting_for(),
    })
}

fn restarts(why: &str) -> Verdict {
    Verdict::Restart(why.to_owned())
}

fn waits(on: fn(String) -> WaitingOn, pod: &str) -> Verdict {
    Verdict::Waiting(on(pod.to_owned()))
}

fn timeline(size: i32, phase: &str, voters: &[i32], members: &[Value]) -> Option<Vec<String>> {
    let object = json!({
        "apiVersion": "zookeeper.bellwether.dev/v1alpha1",
        "kind": "ZooKeeperEnsemble",
        "metadata": { "name": "zk", "namespace": "shop", "generation": 2 },
        "spec": { "replicas": size },
        "status": {
            "observedGeneration": 2, "phase": phase, "voters": voters, "members": members,
            "conditions": [{
                "type": "Progressing", "status": "True", "reason": "Growing", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    });
    let timeline = Timeline::of(&serde_json::from_value(object).unwrap())?;
    assert_eq!(timeline.since.as_deref(), Some("2026-01-01T00:00:00Z"));
    let mut lines = vec![timeline.title];
    for step in timeline.steps {
        lines.push(format!("{:?} {}", step.stage, step.title));
        lines.extend(step.members.iter().map(|turn| {
            format!("  {:?} {} {}", turn.stage, turn.name, turn.note)
                .trim_end()
                .to_owned()
        }));
    }
    Some(lines)
}

#[test]
fn a_growing_ensemble_shows_the_lists_and_whose_turn_it_is() {
    let members = [
        member("zk-0", 1, "Follower", Verdict::UpToDate),
        member("zk-1", 2, "Leader", waits(WaitingOn::LeaderIsLast, "zk-2")),
        member("zk-2", 3, "Follower", restarts("its server list changes")),
        member("zk-3", 4, "Follower", Verdict::UpToDate),
    ];
    let expected = [
        "Growing to 5 in steps of one member",
        "Done Server list {1,2,3}",
        "UnderWay Server list {1,2,3,4}",
        "  Done zk-0",
        "  Done zk-3",
        "  UnderWay zk-2 Restart: its server list changes",
        "  Remaining zk-1 Waiting for zk-2; the leader restarts last",
        "Remaining Server list {1,2,3,4,5}: zk-4 joins",
    ];
    let found = timeline(5, "Growing", &[1, 2, 3, 4], &members).unwrap();
    assert_eq!(found, expected);
}

#[test]
fn a_newcomer_without_a_pod_and_a_member_on_its_way_are_under_way() {
    let members = [
        member("zk-0", 1, "Down", waits(WaitingOn::Start, "zk-0")),
        member("zk-1", 2, "Follower", waits(WaitingOn::Deletion, "zk-1")),
        member("zk-2", 3, "Leader", waits(WaitingOn::Start, "zk-0")),
    ];
    let found = timeline(5, "Growing", &[1, 2, 3, 4], &members).unwrap();
    let lines: Vec<&str> = found[3..7].iter().map(|line| line.trim_start()).collect();
    let expected = [
        "UnderWay zk-0 Waiting for pod zk-0 to start",
        "UnderWay zk-1 Waiting for pod zk-1 to terminate",
        "UnderWay zk-3 Its pod is to be created",
        "Remaining zk-2 Waiting for pod zk-0 to start",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_shrinking_ensemble_shows_who_leaves() {
    let members = [
        member("zk-0", 1, "Follower", Verdict::UpToDate),
        member("zk-1", 2, "Leader", Verdict::UpToDate),
        member("zk-2", 3, "Follower", Verdict::UpToDate),
        member("zk-3", 4, "Follower", Verdict::UpToDate),
        member("zk-4", 5, "Follower", Verdict::UpToDate),
    ];
    let found = timeline(3, "Shrinking", &[1, 2, 3, 4, 5], &members).unwrap();
    assert_eq!(found[1], "Done Server list {1,2,3,4,5}");
    let rest = [
        "Remaining Server list {1,2,3,4}: zk-4 leaves",
        "Remaining Server list {1,2,3}: zk-3 leaves",
    ];
    assert_eq!(found[7..], rest);
}

#[test]
fn a_roll_is_one_step_and_rest_is_none() {
    let restart = member("zk-0", 1, "Follower", restarts("its pod template changed"));
    let leader = member("zk-1", 2, "Leader", Verdict::UpToDate);
    let third = member("zk-2", 3, "Follower", Verdict::UpToDate);
    let found = timeline(
        3,
        "Rolling",
        &[1, 2, 3],
        &[restart, leader.clone(), third.clone()],
    );
    let found = found.unwrap();
    assert_eq!(found[0], "Members restart one at a time, the leader last");
    assert_eq!(found.len(), 5, "{found:?}");
    let first = member("zk-0", 1, "Follower", Verdict::UpToDate);
    let rest = timeline(3, "Ready", &[1, 2, 3], &[first, leader, third]);
    assert_eq!(rest, None);
}
