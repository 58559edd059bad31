//! Sizes: from nothing to three, and a size changed while the ensemble starts.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
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

pub(crate) fn a_size_change_one_second_after_creation_is_carried_out(world: &World) -> Result<()> {
    let ensemble = world.ensemble("main", Ensemble::small(1))?;
    // Not a wait for anything: the second is what the test is about.
    thread::sleep(Duration::from_secs(1));
    ensemble.scale(3)?;
    ensemble.wait_ready(3)
}
