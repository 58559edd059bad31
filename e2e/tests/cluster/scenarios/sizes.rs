//! Scenarios 1 to 3: sizes, up and down, under writes.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use bellwether_e2e::history::{
    assert_leader_last, assert_one_step_at_a_time, assert_quorum_kept, deletions, restarts,
};
use bellwether_e2e::load::Load;
use bellwether_e2e::world::World;
use serde_json::json;

/// Every znode is still there, and never did two ensembles exist.
pub(crate) fn scenario_01_one_to_three_with_data_keeps_every_znode(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(1)?;
    let load = Load::start(clients, ensemble, 3)?;
    load.wait_writes(100)?;
    ensemble.scale(3)?;
    ensemble.wait_ready(3)?;
    let verdict = load.finish(3)?;
    eprintln!(
        "1 to 3: {} writes, longest gap {} s",
        verdict.acknowledged,
        verdict.longest_gap()
    );
    verdict.assert_safe()?;
    assert_one_step_at_a_time(&world.pods.history(), &verdict)
}

/// Three servers become five while server 2 leads, the one in the middle, and then seven. No order
/// of restarts may give a second leader, the leader restarts last in each step, and each newcomer
/// follows before the next one comes.
pub(crate) fn scenario_02_three_to_five_to_seven_under_writes_one_member_at_a_time(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    // Under writes all members have the same data, and then the largest server id wins.
    let load = Load::start(clients, ensemble, 7)?;
    ensemble.make_leader(1, 3)?;
    let begin = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    ensemble.scale(5)?;
    ensemble.wait_ready(5)?;
    let since = |begin: f64| {
        let mut done = deletions(&world.pods.history());
        done.retain(|d| d.at >= begin);
        done
    };
    // Two steps of one member: the first three restart in both, the fourth in the second only.
    let counts: Vec<(String, usize)> = restarts(&since(begin)).into_iter().collect();
    let expected = [("main-0", 2), ("main-1", 2), ("main-2", 2), ("main-3", 1)]
        .map(|(p, n)| (p.to_owned(), n));
    ensure!(counts == expected, "restarts by pod: {counts:?}");
    ensemble.scale(7)?;
    ensemble.wait_ready(7)?;
    let verdict = load.finish(7)?;
    eprintln!(
        "3 to 5 to 7: {} writes, longest gap {} s",
        verdict.acknowledged,
        verdict.longest_gap()
    );
    verdict.assert_safe()?;
    assert_leader_last(&since(begin), &verdict)?;
    assert_one_step_at_a_time(&world.pods.history(), &verdict)?;
    assert_quorum_kept(&world.pods.history(), &verdict)?;
    let status = ensemble.status().map_err(anyhow::Error::msg)?;
    ensure!(
        status["voters"] == json!([1, 2, 3, 4, 5, 6, 7]),
        "voters are {}",
        status["voters"]
    );
    Ok(())
}

/// The leader hands over before it leaves, and a pod goes when nobody has it in its list any more.
pub(crate) fn scenario_03_five_to_three_where_the_leader_is_among_the_removed(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(5)?;
    let load = Load::start(clients, ensemble, 5)?;
    ensemble.make_leader(4, 5)?;
    let begin = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    ensemble.scale(3)?;
    ensemble.wait_ready(3)?;
    let verdict = load.finish(3)?;
    eprintln!(
        "5 to 3: {} writes, longest gap {} s",
        verdict.acknowledged,
        verdict.longest_gap()
    );
    verdict.assert_safe()?;
    let history = world.pods.history();
    let mut done = deletions(&history);
    done.retain(|d| d.at >= begin);
    assert_leader_last(&done, &verdict)?;
    assert_one_step_at_a_time(&history, &verdict)?;
    assert_quorum_kept(&history, &verdict)?;
    for leaver in done.iter().filter(|d| d.replaced_by.is_none()) {
        assert_in_no_list(world, &leaver.pod, &leaver.uid)?;
    }
    // An old copy must never vote again.
    let claims = world
        .kubectl
        .json(&["-n", &world.namespace, "get", "pvc"])?;
    let names: Vec<&str> = claims["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|c| c["metadata"]["deletionTimestamp"].is_null())
        .filter_map(|c| c["metadata"]["name"].as_str())
        .collect();
    ensure!(
        names == ["data-main-0", "data-main-1", "data-main-2"],
        "claims are {names:?}"
    );
    Ok(())
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
