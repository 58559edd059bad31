//! Sizes: from nothing to three, from one to three, up and down.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::history::{assert_leader_last, deletions};
use bellwether_e2e::load::Load;
use bellwether_e2e::world::World;
use serde_json::json;

pub(crate) fn three_members_are_ready_from_a_spec_with_nothing_but_a_size(
    world: &World,
) -> Result<()> {
    let ensemble = world.ensemble("main", json!({ "replicas": 3 }))?;
    ensemble.wait_ready(3)?;
    let status = ensemble.status().map_err(anyhow::Error::msg)?;
    let roles: Vec<&str> = status["members"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|m| m["role"].as_str())
        .collect();
    ensure!(
        roles.iter().filter(|r| **r == "Leader").count() == 1
            && roles.iter().filter(|r| **r == "Follower").count() == 2,
        "roles are {roles:?}"
    );
    ensure!(status["ready"] == "3/3", "ready is {}", status["ready"]);
    ensure!(
        status["voters"] == json!([1, 2, 3]),
        "voters are {}",
        status["voters"]
    );
    // As a user waits for it.
    world.run(&["wait", "--for=condition=Ready", "zke/main", "--timeout=30s"])?;
    let budget = world
        .kubectl
        .json(&["-n", &world.namespace, "get", "pdb", "main"])?;
    ensure!(
        budget["spec"]["maxUnavailable"] == 1,
        "the budget is {}",
        budget["spec"]
    );
    Ok(())
}

pub(crate) fn one_member_becomes_three_under_writes_and_keeps_every_znode(
    world: &World,
) -> Result<()> {
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
    verdict.assert_safe()
}

pub(crate) fn five_members_become_three_under_writes_and_lose_nothing(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(5)?;
    let load = Load::start(clients, ensemble, 5)?;
    ensemble.scale(3)?;
    ensemble.wait_ready(3)?;
    let verdict = load.finish(3)?;
    eprintln!(
        "5 to 3: {} writes, longest gap {} s",
        verdict.acknowledged,
        verdict.longest_gap()
    );
    verdict.assert_safe()?;
    assert_leader_last(&deletions(&world.pods.history()), &verdict)?;
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

pub(crate) fn a_size_change_one_second_after_creation_is_carried_out(world: &World) -> Result<()> {
    let ensemble = world.ensemble("main", Ensemble::small(1))?;
    // Not a wait for anything: the second is what the test is about.
    thread::sleep(Duration::from_secs(1));
    ensemble.scale(3)?;
    ensemble.wait_ready(3)
}
