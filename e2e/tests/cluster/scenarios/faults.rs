//! Scenarios 10 to 13: what fails in the middle.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::history::{assert_leader_last, assert_one_step_at_a_time, deletions, restarts};
use bellwether_e2e::load::Load;
use bellwether_e2e::process::{self, Frozen};
use bellwether_e2e::wait::{throughout, until};
use bellwether_e2e::world::World;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// How long one part of a scenario may take.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often the operator is killed in scenario 10.
const DEATHS: usize = 6;

/// Killed again and again, each time right after something happened to a pod, the operator goes on
/// where it was: no pod restarts once more than it must, and every volume stays.
pub(crate) fn scenario_10_operator_killed_at_many_moments_of_a_scale(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    let load = Load::start(clients, ensemble, 5)?;
    let volumes = claims(world)?;
    let moved = || {
        let history = world.pods.history();
        let mut uids: Vec<&str> = history.iter().map(|e| e.uid()).collect();
        uids.sort_unstable();
        uids.dedup();
        uids.len() + deletions(&history).len()
    };
    let mut seen = moved();
    ensemble.scale(5)?;
    // A container that was killed often is started later and later, and a new pod's at once.
    let kill = || {
        world.kill_operator()?;
        world.replace_operator()
    };
    // The first time before anything happened.
    kill()?;
    for _ in 1..DEATHS {
        until("something happens to a pod", PATIENCE, || {
            let now = moved();
            if now > seen {
                seen = now;
                Ok(())
            } else {
                Err(format!("{now} events"))
            }
        })?;
        kill()?;
    }
    ensemble.wait_ready(5)?;
    let verdict = load.finish(5)?;
    eprintln!(
        "3 to 5, operator killed {DEATHS} times: longest gap {} s",
        verdict.longest_gap()
    );
    verdict.assert_safe()?;
    let done = deletions(&world.pods.history());
    assert_leader_last(&done, &verdict)?;
    assert_one_step_at_a_time(&world.pods.history(), &verdict)?;
    let counts: Vec<(String, usize)> = restarts(&done).into_iter().collect();
    let expected = [("main-0", 2), ("main-1", 2), ("main-2", 2), ("main-3", 1)]
        .map(|(p, n)| (p.to_owned(), n));
    ensure!(counts == expected, "restarts by pod: {counts:?}");
    let after = claims(world)?;
    let same = volumes.iter().all(|(n, uid)| after.get(n) == Some(uid));
    ensure!(same, "volumes: {volumes:?} became {after:?}");
    Ok(())
}

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
    until("all pods are new ones", PATIENCE, || {
        let after = ensemble.uids();
        let new = after.len() == 3 && after.iter().all(|(p, u)| before.get(p) != Some(u));
        if new {
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

        // Power lost on all nodes: no pod is deleted, all its processes are gone, its sandbox too.
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

/// Members that find nobody by name wait for them; the first member with a new disk joins. Neither
/// starts an ensemble of its own. Another cluster domain is a unit test of the rendered files.
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

/// Waits until a pod is older than the time in which it may still be starting.
fn wait_started_long_ago(world: &World, pod: &str) -> Result<()> {
    until(&format!("{pod} is no new pod"), PATIENCE, || {
        let pod = world.pods.get(pod).ok_or("it does not exist")?;
        let created = &pod["metadata"]["creationTimestamp"];
        let created: Timestamp = created
            .as_str()
            .and_then(|t| t.parse().ok())
            .ok_or("it has no time of creation")?;
        let age = Timestamp::now().duration_since(created);
        if age > SignedDuration::from_secs(62) {
            Ok(())
        } else {
            Err(format!("it is {age} old"))
        }
    })
}

/// A size change waits, and says for what, while a member does not serve or there is no quorum; it
/// goes on by itself when they are back.
pub(crate) fn scenario_13_scaling_waits_while_a_member_or_the_quorum_is_away(
    world: &World,
) -> Result<()> {
    let ensemble = world.small_ensemble(3)?;
    if process::of_pod(&uid(&ensemble, "main-0")?).is_empty() {
        eprintln!("the cluster's processes are elsewhere: nothing can be made to hang");
        return Ok(());
    }
    let frozen = |pods: &[&str]| -> Result<Frozen> {
        // A pod that was just made is on its way, and the status says nothing of it. Waiting for that
        // now keeps the time for which the servers hang far below that of their liveness probe.
        for pod in pods {
            wait_started_long_ago(world, pod)?;
        }
        let uids: Result<Vec<String>> = pods.iter().map(|p| uid(&ensemble, p)).collect();
        let frozen = Frozen::servers(&uids?)?;
        until("their absence is noticed", PATIENCE, || {
            let status = ensemble.status()?;
            let members = status["members"].as_array().cloned().unwrap_or_default();
            let down = members.iter().filter(|m| m["role"] == "Down").count();
            if down >= pods.len() {
                Ok(())
            } else {
                Err(status.to_string())
            }
        })?;
        Ok(frozen)
    };
    let blocked = |words: &[&str]| -> Result<()> {
        let pods = ensemble.uids();
        until("the status says why", PATIENCE, || {
            let (ready, _, message) = ensemble.condition("Ready")?;
            let (degraded, reason, why) = ensemble.condition("Degraded")?;
            let good = ready == "False" && degraded == "True" && reason == "MemberDown";
            if good && words.iter().all(|w| message.contains(w) && why.contains(w)) {
                Ok(())
            } else {
                Err(format!("{message}; Degraded={degraded} ({reason}): {why}"))
            }
        })?;
        throughout("nothing changes", Duration::from_secs(8), || {
            let (now, status) = (ensemble.uids(), ensemble.status()?);
            if now == pods && status["voters"] == json!([1, 2, 3]) {
                Ok(())
            } else {
                Err(format!("{pods:?} became {now:?}: {status}"))
            }
        })
    };
    // No quorum, and the user asks for more members.
    let hang = frozen(&["main-0", "main-1"])?;
    ensemble.scale(5)?;
    blocked(&["main-0", "main-1"])?;
    // Thinks better of it, and now for fewer, while still nobody leads.
    ensemble.scale(1)?;
    blocked(&["main-0", "main-1"])?;
    drop(hang);
    // It begins by itself, and goes on.
    ensemble.wait_ready(1)?;
    ensemble.scale(3)?;
    ensemble.wait_ready(3)?;
    // A quorum, but one member that is to stay does not serve.
    let hang = frozen(&["main-0"])?;
    ensemble.scale(1)?;
    blocked(&["main-0"])?;
    drop(hang);
    ensemble.wait_ready(1)
}
