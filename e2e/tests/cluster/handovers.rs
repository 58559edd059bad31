//! Leaders of applications that are asked to hand over.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bellwether_e2e::page::program;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::json;

use crate::command_line::says;
use crate::projections::{manifest, patch};
use crate::rollouts::{at_rest, candidates, complete, ended_by, gone, rolled_out_leader_last};

const PATIENCE: Duration = Duration::from_secs(120);

/// The leader resigns when a person asks for it, and its pod runs on. A rollout asks it before its pod goes. One that does
/// not agree leads on, and the command says why.
pub(crate) fn a_leader_hands_over_on_request_and_before_its_pod_is_evicted(
    world: &World,
) -> Result<()> {
    let hosts = world.small_ensemble(1)?.service();
    world.apply(&candidates(&hosts, "1", ""))?;
    let rollout = json!({ "rollout": { "workload": { "kind": "StatefulSet", "name": "web" } } });
    let mut object = manifest("app", "/app", rollout);
    object["spec"]["podBinding"] = json!({ "selector": { "matchLabels": { "app": "web" } } });
    object["spec"]["handover"] = json!({ "http": { "port": 8088, "path": "/resign" } });
    let election = world.adopt_election(&object)?;
    let (before, first) = at_rest(&election)?;
    let past = gone(world, 0).len();

    let told = says(world, &["handover", "app"])?;
    ensure!(
        told.contains(&format!("{first} is asked to hand over")),
        "{told}"
    );
    let (after, second) = at_rest(&election)?;
    ensure!(
        told.contains(&format!("{second} leads after")),
        "{second}: {told}"
    );
    ensure!(
        after == before + 1 && second != first,
        "{first} then {second}"
    );
    ensure!(gone(world, past).is_empty(), "a pod was replaced");
    ended_by(&election, "HandedOver")?;
    election.wait_condition("HandedOver", "True", "HandedOver")?;

    // It is known by its log that the leader was asked before its pod went.
    let follow = ["-n", &world.namespace, "logs", "--follow", &second];
    let log = world
        .kubectl
        .command(&follow)
        .stdout(Stdio::piped())
        .spawn()?;
    world.apply(&candidates(&hosts, "2", ""))?;
    let (last, third) =
        rolled_out_leader_last(world, &election, past, (after, &second), "HandedOver")?;
    let log = String::from_utf8_lossy(&log.wait_with_output()?.stdout).into_owned();
    ensure!(
        log.contains("\"event\": \"resign\""),
        "{second} was not asked: {log}"
    );

    patch(
        world,
        "app",
        &json!({ "handover": { "http": { "port": 8088, "path": "/nothing" }, "timeoutSeconds": 1 } }),
    )?;
    let mut command = program(&["handover", "app"])?;
    let output = command
        .args(["-n", &world.namespace])
        .output()
        .context("run bellwether handover")?;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(!output.status.success() && told.contains("404"), "{told}");
    let (still, leader) = at_rest(&election)?;
    ensure!(still == last && leader == third, "{third} then {leader}");
    Ok(())
}

/// A node that takes no new pods while this exists.
struct Cordoned<'w>(&'w World, String);

impl Drop for Cordoned<'_> {
    fn drop(&mut self) {
        let _ = self.0.kubectl.run(&["uncordon", &self.1]);
    }
}

/// A drain of the leader's node waits, by a budget that follows the leader, until the leader has handed over to a candidate on
/// another node.
pub(crate) fn a_drained_node_costs_one_handover(world: &World) -> Result<()> {
    let hosts = world.small_ensemble(1)?.service();
    world.apply(&candidates(&hosts, "1", ""))?;
    world.apply(&json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": "leader" },
        "spec": {
            "minAvailable": 1,
            "selector": { "matchLabels": { "app": "web", "zookeeper.bellwether.dev/role": "leader" } },
        },
    }))?;
    let mut object = manifest("app", "/app", json!({ "podLabels": {} }));
    object["spec"]["podBinding"] = json!({ "selector": { "matchLabels": { "app": "web" } } });
    object["spec"]["handover"] =
        json!({ "http": { "port": 8088, "path": "/resign" }, "onCordon": true });
    let election = world.adopt_election(&object)?;
    let all_stand = || {
        until("all three stand", PATIENCE, || {
            let status = election.status()?;
            complete(&status).ok_or_else(|| status.to_string())
        })
    };
    let (before, first) = all_stand()?;
    let node_of = |pod: &str| {
        let pod = world.pods.get(pod).unwrap_or_default();
        pod["spec"]["nodeName"].as_str().map(str::to_owned)
    };
    let node = node_of(&first).context("the leader's pod has a node")?;
    let cordoned = Cordoned(world, node);
    let drain = [
        "drain",
        &cordoned.1,
        "--pod-selector=app=web",
        "--timeout=180s",
    ];
    world.kubectl.run(&drain)?;
    let (after, second) = all_stand()?;
    ensure!(
        after == before + 1 && second != first,
        "{first} then {second}"
    );
    ensure!(
        node_of(&second).as_ref() != Some(&cordoned.1),
        "{second} is on the node as well"
    );
    ended_by(&election, "HandedOver")?;
    Ok(())
}
