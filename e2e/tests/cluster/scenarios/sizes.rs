//! Scenarios 1 to 3: sizes, up and down, under writes. The way from one to three, and every other pair of
//! sizes, is tried on servers without a cluster.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use bellwether_e2e::history::{
    Deletion, assert_leader_last, assert_one_step_at_a_time, assert_quorum_kept, deletions,
    restarts,
};
use bellwether_e2e::load::Load;
use bellwether_e2e::world::World;
use serde_json::json;

use crate::disks::claims;

/// Three servers become five while server 2 leads, the one in the middle, and three again while server 5
/// leads, which has to go. No order of restarts may give a second leader, the leader restarts last in each
/// step, each newcomer follows before the next one comes, and a pod goes when no server's list names it any
/// more.
pub(crate) fn scenario_02_three_to_five_and_back_under_writes_one_member_at_a_time(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    // Under writes all members have the same data, and then the largest server id wins.
    let load = Load::start(clients, ensemble, 5)?;
    ensemble.make_leader(1, 3)?;
    let begin = now()?;
    ensemble.scale(5)?;
    ensemble.wait_ready(5)?;
    let grown = now()?;
    let grow = between(world, begin, grown);
    // Two steps of one member: the first three restart in both, the fourth in the second only.
    let counts: Vec<(String, usize)> = restarts(&grow).into_iter().collect();
    let expected = [("main-0", 2), ("main-1", 2), ("main-2", 2), ("main-3", 1)]
        .map(|(p, n)| (p.to_owned(), n));
    ensure!(counts == expected, "restarts by pod: {counts:?}");
    ensemble.make_leader(4, 5)?;
    let turned = now()?;
    ensemble.scale(3)?;
    ensemble.wait_ready(3)?;
    let shrink = between(world, turned, now()?);
    let verdict = load.finish(3)?;
    eprintln!(
        "3 to 5 to 3: {} writes, longest gap {} s",
        verdict.acknowledged,
        verdict.longest_gap()
    );
    verdict.assert_safe()?;
    assert_leader_last(&grow, &verdict)?;
    assert_leader_last(&shrink, &verdict)?;
    assert_one_step_at_a_time(&world.pods.history(), &verdict)?;
    assert_quorum_kept(&world.pods.history(), &verdict)?;
    for leaver in shrink.iter().filter(|d| d.replaced_by.is_none()) {
        assert_in_no_list(world, &leaver.pod, &leaver.uid)?;
    }
    // An old copy must never vote again.
    let claims = claims(world)?;
    let names: Vec<&String> = claims.keys().collect();
    ensure!(
        names == ["data-main-0", "data-main-1", "data-main-2"],
        "claims are {names:?}"
    );
    let status = ensemble.status().map_err(anyhow::Error::msg)?;
    ensure!(
        status["voters"] == json!([1, 2, 3]),
        "voters are {}",
        status["voters"]
    );
    Ok(())
}

/// Seconds since 1970.
fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// The pods that were deleted from one time to another.
fn between(world: &World, begin: f64, end: f64) -> Vec<Deletion> {
    let mut done = deletions(&world.pods.history());
    done.retain(|d| (begin..end).contains(&d.at));
    done
}

/// When this pod was deleted for good, no other member had it in its server list.
fn assert_in_no_list(world: &World, pod: &str, uid: &str) -> Result<()> {
    let ordinal: u32 = pod.rsplit('-').next().unwrap_or_default().parse()?;
    let id = (ordinal + 1).to_string();
    let mut lists = std::collections::BTreeMap::new();
    for event in world.pods.history() {
        if event.uid() == uid && !event.object["metadata"]["deletionTimestamp"].is_null() {
            break;
        }
        let annotations = &event.object["metadata"]["annotations"];
        let list = annotations["zookeeper.bellwether.dev/voters"].as_str();
        if let Some(list) = list {
            lists.insert(event.name().to_owned(), list.to_owned());
        }
        if event.deleted {
            lists.remove(event.name());
        }
    }
    lists.remove(pod);
    let names_it = |list: &String| list.split(',').any(|other| other == id);
    ensure!(
        !lists.values().any(names_it),
        "{pod} was deleted while others counted on it: {lists:?}"
    );
    Ok(())
}
