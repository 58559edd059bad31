//! Observers: members that serve and never vote.

use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::history::{assert_leader_last, deletions, restarts};
use bellwether_e2e::load::Load;
use bellwether_e2e::process::{self, Frozen};
use bellwether_e2e::wait::{throughout, until};
use bellwether_e2e::world::World;
use serde_json::json;

/// How long one part of the test may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// Both release lines: the observers join servers of 3.8 and are upgraded with them.
pub(crate) fn observers_serve_reads_restart_first_and_never_count(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let mut spec = Ensemble::small(3);
    spec["version"] = json!("3.8.6");
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(3)?;
    let voters = ensemble.uids();
    let load = Load::start(clients, ensemble, 3)?;

    // They come without anybody noticing.
    ensemble.patch(&json!({ "observers": { "replicas": 2 } }))?;
    ensemble.wait_observers(3, 2)?;
    let now = ensemble.uids();
    let touched = voters.iter().any(|(pod, uid)| now.get(pod) != Some(uid));
    ensure!(!touched, "{voters:?} became {now:?}");
    let status = ensemble.status().map_err(anyhow::Error::msg)?;
    let observers: Vec<(&str, i64)> = status["members"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|m| m["role"] == "Observer")
        .filter_map(|m| Some((m["name"].as_str()?, m["serverId"].as_i64()?)))
        .collect();
    ensure!(
        observers == [("main-observer-0", 101), ("main-observer-1", 102)],
        "observers are {observers:?}"
    );
    ensure!(
        status["voters"] == json!([1, 2, 3]) && status["replicas"] == 3,
        "{status}"
    );

    // A roll begins with them and ends with the leader.
    ensemble.patch(&json!({ "version": "3.9.5" }))?;
    until("the upgrade is done", PATIENCE, || {
        ensemble.is_ready(3)?;
        let after = ensemble.uids();
        match now.iter().find(|(pod, uid)| after.get(*pod) == Some(uid)) {
            Some((pod, _)) => Err(format!("{pod} has not restarted yet")),
            None => Ok(()),
        }
    })?;
    let done = deletions(&world.pods.history());
    let order: Vec<&str> = done.iter().map(|d| d.pod.as_str()).collect();
    ensure!(
        order.len() == 5 && order[..2].iter().all(|pod| pod.contains("observer")),
        "restarts in order: {order:?}"
    );
    ensure!(
        restarts(&done).values().all(|n| *n == 1),
        "restarts in order: {order:?}"
    );

    // Two of three voters hang: the third and two observers are no majority of anything.
    let after = ensemble.uids();
    if process::of_pod(&after["main-0"]).is_empty() {
        eprintln!("the cluster's processes are elsewhere: nothing can be made to hang");
    } else {
        let frozen = Frozen::servers([&after["main-0"], &after["main-1"]])?;
        let unavailable = || {
            let (available, reason, message) = ensemble.condition("Available")?;
            if available == "False" && reason == "NoQuorum" {
                Ok(())
            } else {
                Err(format!("{available} {reason} {message}"))
            }
        };
        until("the quorum is lost", PATIENCE, unavailable)?;
        throughout(
            "observers count for nothing",
            Duration::from_secs(5),
            unavailable,
        )?;
        drop(frozen);
        ensemble.wait_observers(3, 2)?;
    }

    // Each of them has every write that was acknowledged.
    let members = format!("{},{}", ensemble.members(3), ensemble.observers(2));
    let verdict = load.finish_at(&members)?;
    eprintln!(
        "with observers: {} writes, longest gap {} s",
        verdict.acknowledged,
        verdict.longest_gap()
    );
    verdict.assert_safe()?;
    assert_leader_last(&done, &verdict)?;

    // They go without anybody noticing, and their volumes with them.
    ensemble.patch(&json!({ "observers": { "replicas": 0 } }))?;
    until("the observers are gone", PATIENCE, || {
        ensemble.is_ready(3)?;
        let claims = world.run(&["get", "pvc", "-o", "name"]);
        let left = format!("{:?} {claims:?}", ensemble.uids().keys());
        if left.contains("observer") {
            Err(left)
        } else {
            Ok(())
        }
    })?;
    let last = ensemble.uids();
    let touched = last.iter().any(|(pod, uid)| after.get(pod) != Some(uid));
    ensure!(!touched && last.len() == 3, "{after:?} became {last:?}");
    Ok(())
}
