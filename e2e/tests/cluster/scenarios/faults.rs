//! Scenarios 11 and 12: what fails in the middle.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::history::{deletions, is_ready};
use bellwether_e2e::load::Load;
use bellwether_e2e::process::{self, Frozen};
use bellwether_e2e::wait::{throughout, until};
use bellwether_e2e::world::World;
use serde_json::{Value, json};

/// How long one part of a scenario may take.
const PATIENCE: Duration = Duration::from_secs(180);
/// The uid of every volume claim, by name.
fn claims(world: &World) -> Result<BTreeMap<String, String>> {
    let list = world
        .kubectl
        .json(&["-n", &world.namespace, "get", "pvc"])?;
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items
        .map(|c| (text(&c["metadata"]["name"]), text(&c["metadata"]["uid"])))
        .collect())
}

/// All pods at once, a quorum, and all nodes: with the disks intact the ensemble comes back without
/// anybody's help, and nothing that was acknowledged is missing.
pub(crate) fn scenario_11_all_pods_killed_quorum_lost_and_nodes_restarted(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    let load = Load::start(clients, ensemble, 3)?;

    // All pods at once, as if somebody had deleted them by force.
    let before = ensemble.uids();
    let delete = ["delete", "pods", "-l", MEMBERS, "--grace-period=0"];
    world.run(&[&delete[..], &["--force", "--wait=false"]].concat())?;
    // The status may still describe the old pods, whose servers run on for a moment.
    until("all pods are new ones, and ready", PATIENCE, || {
        let after = ensemble.uids();
        let new = after.len() == 3 && after.iter().all(|(p, u)| before.get(p) != Some(u));
        let ready = after.keys().all(|name| {
            let pod = world.pods.get(name);
            pod.is_some_and(|pod| is_ready(&pod))
        });
        if new && ready {
            Ok(())
        } else {
            Err(format!("{after:?}"))
        }
    })?;
    ensemble.wait_ready(3)?;
    load.wait_writes(10)?;

    if process::of_pod(&uid(&ensemble, "main-0")?).is_empty() {
        eprintln!("the cluster's processes are elsewhere: no quorum is lost, no node restarts");
    } else {
        // Two of three hang: no quorum. They come to themselves again: quorum regained.
        let known = deletions(&world.pods.history()).len();
        let frozen = Frozen::servers([&uid(&ensemble, "main-0")?, &uid(&ensemble, "main-2")?])?;
        until("the status says that nobody leads", PATIENCE, || {
            let (available, reason, message) = ensemble.condition("Available")?;
            if available == "False" && reason == "NoQuorum" {
                Ok(())
            } else {
                Err(format!("{available} {reason} {message}"))
            }
        })?;
        drop(frozen);
        ensemble.wait_ready(3)?;
        load.wait_writes(10)?;
        let done = deletions(&world.pods.history());
        ensure!(done.len() == known, "restarted without need: {done:?}");

        // Power is lost on all nodes: no pod is deleted, but all its processes end, its sandbox too.
        let uids = ensemble.uids();
        let processes: Vec<_> = uids.values().flat_map(|u| process::of_pod(u)).collect();
        process::signal(&processes, "KILL");
        until("the power is noticed to be gone", PATIENCE, || {
            let status = ensemble.status()?;
            if status["leader"].is_null() {
                Ok(())
            } else {
                Err(status.to_string())
            }
        })?;
        ensemble.wait_ready(3)?;
        load.wait_writes(10)?;
        ensure!(ensemble.uids() == uids, "pods were replaced");
    }
    let verdict = load.finish(3)?;
    eprintln!("the worst: longest gap {} s", verdict.longest_gap());
    verdict.assert_safe()
}

/// Selects the members' pods.
const MEMBERS: &str = "app.kubernetes.io/name=zookeeper";

fn uid(ensemble: &Ensemble<'_>, pod: &str) -> Result<String> {
    let uid = ensemble.uids().remove(pod);
    uid.ok_or_else(|| anyhow::anyhow!("there is no pod {pod}"))
}

/// Members that cannot resolve the others' names wait for them; the first member with a new disk joins.
/// Neither starts an ensemble of its own. Another cluster domain is a unit test of the rendered files.
pub(crate) fn scenario_12_no_dns_at_boot_and_ordinal_0_loses_its_volume(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    let load = Load::start(clients, ensemble, 3)?;
    load.wait_writes(50)?;

    // Without the headless Service no member has a name. The pause keeps the operator from making
    // it again at once.
    ensemble.patch(&json!({ "paused": true }))?;
    until("the pause is reported", PATIENCE, || {
        match ensemble.status()?["phase"].as_str() {
            Some("Paused") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;
    world.take_away(&["service/main-members"])?;
    let before = ensemble.uids();
    world.take_away(&["pods", "-l", MEMBERS])?;
    until("servers answer without names", PATIENCE, || {
        let pods = ensemble.uids();
        let new = pods.iter().all(|(p, u)| before.get(p) != Some(u));
        let status = ensemble.status()?;
        let members = status["members"].as_array().cloned().unwrap_or_default();
        let looking = members.iter().filter(|m| m["role"] == "Looking").count();
        if new && looking == 3 {
            Ok(())
        } else {
            Err(format!("{pods:?}: {status}"))
        }
    })?;
    throughout("nobody leads", Duration::from_secs(8), || {
        let status = ensemble.status()?;
        if status["leader"].is_null() {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })?;
    ensemble.patch(&json!({ "paused": false }))?;
    ensemble.wait_ready(3)?;
    load.wait_writes(10)?;

    // The volume of ordinal 0 is lost with its pod.
    let (pod, claim) = (uid(&ensemble, "main-0")?, claims(world)?);
    world.take_away(&["pvc/data-main-0"])?;
    world.take_away(&["pod/main-0"])?;
    world.wait_replaced("main-0", &pod)?;
    ensemble.wait_ready(3)?;
    load.wait_writes(10)?;
    let now = claims(world)?;
    ensure!(
        now.get("data-main-0") != claim.get("data-main-0"),
        "the volume was not lost: {now:?}"
    );
    let verdict = load.finish(3)?;
    verdict.assert_safe()
}
