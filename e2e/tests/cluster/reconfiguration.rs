//! Members that change at run time: `spec.membershipChange: Reconfiguration`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::history::{deletions, restarts};
use bellwether_e2e::load::Load;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::json;

/// How long one part of a change may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Three members with lists in files are switched by one roll; then the ensemble grows and shrinks under writes, and nobody
/// restarts for it but a leader that leaves.
pub(crate) fn members_come_and_go_without_a_restart(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.ensemble("main", Ensemble::small(3))?;
    ensemble.wait_ready(3)?;
    let load = Load::start(clients, ensemble, 5)?;
    ensemble.patch(&json!({ "membershipChange": "Reconfiguration" }))?;
    ensemble.wait_ready(3)?;
    let counts = restarts(&deletions(&world.pods.history()));
    ensure!(
        counts.len() == 3 && counts.values().all(|n| *n == 1),
        "restarts by pod: {counts:?}"
    );
    let refused = ensemble.try_patch(&json!({ "membershipChange": "RollingRestart" }))?;
    let why = refused.err().unwrap_or_default();
    ensure!(why.contains("cannot go back"), "the way back: {why}");
    ensemble.patch(&json!({ "observers": { "replicas": 1 } }))?;
    ensemble.wait_observers(3, 1)?;
    observes(ensemble)?;
    let mut before = ensemble.uids();
    for size in [5, 3, 1, 3] {
        let leader = ensemble.wait_leader()?;
        ensemble.scale(size)?;
        ensemble.wait_ready(size)?;
        let after = ensemble.uids();
        let leaves = |pod: &String| (size..5).any(|ordinal| *pod == ensemble.pod(ordinal));
        let stays = |(pod, _): &(&String, &String)| !leaves(pod);
        let kept: BTreeMap<_, _> = before.iter().filter(stays).collect();
        let same = kept.iter().all(|(pod, uid)| after.get(*pod) == Some(*uid));
        ensure!(
            same,
            "to {size}, led by {leader}: {before:?} became {after:?}"
        );
        let list: Vec<u16> = (1..=size).collect();
        until("the status has the list", PATIENCE, || {
            let status = ensemble.status()?;
            match status["voters"] == json!(list) {
                true => Ok(()),
                false => Err(status.to_string()),
            }
        })?;
        before = after;
    }
    observes(ensemble)?;
    let verdict = load.finish(3)?;
    eprintln!(
        "3 to 5, 3, 1 and 3 at run time: {} writes, longest gap {} s",
        verdict.acknowledged,
        verdict.longest_gap()
    );
    verdict.assert_safe()
}

/// The list names the observer, or it would follow the leader and take part in every write.
fn observes(ensemble: Ensemble<'_>) -> Result<()> {
    until("the observer observes", PATIENCE, || {
        let status = ensemble.status()?;
        let members = status["members"].as_array().into_iter().flatten();
        let mut named = members.filter(|m| m["name"] == "main-observer-0");
        match named.any(|m| m["role"] == "Observer") {
            true => Ok(()),
            false => Err(status["members"].to_string()),
        }
    })
}

/// Within which time after a request for another size the operator is killed, in milliseconds: a change lasts longer.
const KILLED_WITHIN: u64 = 6000;

/// In a long search, many members come and go under writes, and each time the operator is killed at a moment of chance: no write is
/// lost, and nobody restarts but a leader that leaves.
pub(crate) fn members_come_and_go_while_the_operator_is_killed(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let mut spec = Ensemble::small(3);
    spec["membershipChange"] = json!("Reconfiguration");
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(3)?;
    let load = Load::start(clients, ensemble, 9)?;
    for size in [9, 3, 1, 5, 3] {
        let begin = Instant::now();
        ensemble.scale(size)?;
        let moment = Duration::from_millis(fastrand::u64(0..KILLED_WITHIN));
        std::thread::sleep(moment);
        world.kill_operator()?;
        ensemble.wait_ready(size)?;
        eprintln!(
            "to {size}, with the operator killed after {moment:?}: {:?}",
            begin.elapsed()
        );
    }
    let verdict = load.finish(3)?;
    eprintln!(
        "{} writes, longest gap {} s, {} leader changes",
        verdict.acknowledged,
        verdict.longest_gap(),
        verdict.leader_changes()
    );
    verdict.assert_safe()
}
