//! Changes of what runs: configuration, image, pause; and the absence of change.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::clients::Clients;
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::history::{
    assert_leader_last, assert_one_step_at_a_time, assert_quorum_kept, deletions, restarts,
};
use bellwether_e2e::load::{Load, Verdict};
use bellwether_e2e::wait::{throughout, until};
use bellwether_e2e::watch::Watch;
use bellwether_e2e::world::{OPERATOR_NAMESPACE, World};
use serde_json::{Value, json};

use crate::page::Page;

/// How long one part of a change may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// Changes the spec of three members under writes: each restarts exactly once, the leader last, and
/// nothing is lost.
fn roll(
    world: &World,
    ensemble: Ensemble<'_>,
    clients: Clients<'_>,
    title: &str,
    patch: &Value,
) -> Result<Verdict> {
    let before = ensemble.uids();
    let load = Load::start(clients, ensemble, 3)?;
    ensemble.patch(patch)?;
    ensemble.wait_ready(3)?;
    assert_all_replaced(&before, &ensemble)?;
    let verdict = load.finish(3)?;
    eprintln!(
        "{title}: {} writes, longest gap {} s",
        verdict.acknowledged,
        verdict.longest_gap()
    );
    verdict.assert_safe()?;
    let done = deletions(&world.pods.history());
    assert_leader_last(&done, &verdict)?;
    let counts = restarts(&done);
    ensure!(
        counts.len() == 3 && counts.values().all(|n| *n == 1),
        "restarts by pod: {counts:?}"
    );
    Ok(verdict)
}

pub(crate) fn a_version_upgrade_restarts_each_member_once_and_loses_nothing(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let mut spec = Ensemble::small(3);
    spec["version"] = json!("3.8.6");
    // Servers of both versions speak TLS with each other.
    spec["tls"] = json!({ "servers": "Required", "clients": "Disabled" });
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(3)?;
    roll(
        world,
        ensemble,
        clients,
        "3.8.6 to 3.9.5",
        &json!({ "version": "3.9.5" }),
    )?;
    let hosts = ensemble.members(1);
    let (host, port) = hosts.rsplit_once(':').unwrap_or_default();
    // A busy machine may take longer than `nc` waits.
    let ask = format!("echo srvr | nc -w 2 {host} {port}");
    until("the server runs the new version", PATIENCE, || {
        let answer = clients.output(&["sh", "-c", &ask]);
        let answer = answer.map_err(|e| e.to_string())?;
        let new = answer.contains("version: 3.9.5");
        new.then_some(()).ok_or(answer)
    })
}

/// The chain stops while the ensemble is paused, continues afterwards, and reverses when the user
/// asks for the old size in the middle of a step.
pub(crate) fn a_chain_is_paused_resumed_and_turned_round(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    let mut page = Page::open(world)?;
    if let Some(page) = &mut page {
        page.wait_card(&["Ready", "3/3", "follower", "leader"])?;
    }
    let load = Load::start(clients, ensemble, 5)?;
    ensemble.scale(5)?;
    let runs = |pod: &str, list: &str| {
        let pod = world.pods.get(pod).ok_or(format!("there is no {pod}"))?;
        let voters = &pod["metadata"]["annotations"]["zookeeper.bellwether.dev/voters"];
        if voters == list {
            Ok(())
        } else {
            Err(format!("its server list is {voters}"))
        }
    };
    // In the middle of the first step: a follower has the new list, the leader has the old one.
    until("a follower restarted", PATIENCE, || {
        runs("main-0", "1,2,3,4")
    })?;
    ensemble.patch(&json!({ "paused": true }))?;
    until("the pause is reported", PATIENCE, || {
        let status = ensemble.status()?;
        if status["phase"] == "Paused" {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })?;
    let before = ensemble.uids();
    throughout("nothing restarts", Duration::from_secs(8), || {
        let now = ensemble.uids();
        if now == before {
            Ok(())
        } else {
            Err(format!("{before:?} became {now:?}"))
        }
    })?;
    if let Some(page) = &mut page {
        let steps = [
            "Server list {1,2,3,4}",
            "Server list {1,2,3,4,5}: main-4 joins",
        ];
        page.wait_card(&steps)?;
        page.wait_card(&["Paused"])?;
        page.wait_turn("main-0", "done")?;
        page.wait_turn(&ensemble.wait_leader()?, "remaining")?;
    }
    ensemble.patch(&json!({ "paused": false }))?;
    // In the middle of the second step.
    until("the second step began", PATIENCE, || {
        runs("main-0", "1,2,3,4,5")
    })?;
    ensemble.scale(3)?;
    if let Some(page) = &mut page {
        page.wait_card(&["Shrinking to 3 in steps of one member"])?;
    }
    ensemble.wait_ready(3)?;
    if let Some(page) = &mut page {
        page.wait_card(&["Ready", "3/3"])?;
    }
    let verdict = load.finish(3)?;
    verdict.assert_safe()?;
    assert_one_step_at_a_time(&world.pods.history(), &verdict)?;
    assert_quorum_kept(&world.pods.history(), &verdict)?;
    let status = ensemble.status().map_err(anyhow::Error::msg)?;
    let voters = &status["voters"];
    ensure!(voters == &json!([1, 2, 3]), "voters are {voters}");
    Ok(())
}

pub(crate) fn an_idle_ensemble_is_not_written_to(world: &World) -> Result<()> {
    let ensemble = world.small_ensemble(3)?;
    world
        .election("idle", "/nobody", json!({ "type": "ZkElection" }))?
        .wait_condition("LeaderElected", "False", "NoElection")?;
    wait_rest(world, &ensemble, 3)?;
    let before = versions(world)?;
    let started = std::time::SystemTime::now();
    throughout("the ensemble is ready", Duration::from_secs(60), || {
        ensemble.is_ready(3)
    })?;
    let after = versions(world)?;
    let moved: Vec<String> = after
        .iter()
        .filter(|(key, version)| before.get(*key) != Some(version))
        .map(|(key, version)| format!("{key}: {:?} to {version}", before.get(key)))
        .collect();
    let told: Vec<String> = world
        .ensembles
        .history()
        .iter()
        .chain(&world.pods.history())
        .filter(|e| e.at > started)
        .map(|e| {
            let at = e.at.duration_since(started).unwrap_or_default();
            let what = &e.object["status"];
            format!("{} after {} s: {what}", e.name(), at.as_secs())
        })
        .collect();
    ensure!(
        moved.is_empty(),
        "written while idle: {}; meanwhile: {told:?}",
        moved.join(", ")
    );
    Ok(())
}

pub(crate) fn a_new_operator_does_not_touch_what_is_in_order(world: &World) -> Result<()> {
    let ensemble = world.small_ensemble(1)?;
    let idle = world.election("idle", "/nobody", json!({ "type": "ZkElection" }))?;
    idle.wait_condition("LeaderElected", "False", "NoElection")?;
    wait_rest(world, &ensemble, 1)?;
    let rest = std::time::SystemTime::now();
    let (mut before, pods) = (versions(world)?, ensemble.uids());
    // Another test may just have deleted the lease; then it is made again within seconds.
    let old = until(
        "an operator holds the lease",
        Duration::from_secs(60),
        || match operator(world).map_err(|e| e.to_string())? {
            holder if holder.is_empty() => Err("the lease has no holder".to_owned()),
            holder => Ok(holder),
        },
    )?;
    world.replace_operator()?;
    until(
        "another operator holds the lease",
        Duration::from_secs(90),
        || {
            let now = operator(world).map_err(|e| e.to_string())?;
            if now.is_empty() || now == old {
                Err(format!("{now:?} holds it"))
            } else {
                Ok(())
            }
        },
    )?;
    throughout("the ensemble is ready", Duration::from_secs(15), || {
        ensemble.is_ready(1)
    })?;
    let mut after = versions(world)?;
    // On a busy machine a member may answer the new operator's mirror too late, which the status then tells.
    let told = world.elections.history();
    let mut told = told.iter().filter(|e| e.at > rest);
    if told.any(|e| !e.object["status"]["staleSince"].is_null()) {
        eprintln!("the mirror was stale for a while");
        let election = "LeaderElection/idle";
        after.remove(election);
        before.remove(election);
    }
    ensure!(after == before, "written: {before:?} became {after:?}");
    ensure!(ensemble.uids() == pods, "a member was restarted");
    Ok(())
}

/// Waits until nothing has happened to pods and ensemble for some seconds. The last thing to happen
/// is that a follower reports the epoch of the first transaction.
fn wait_rest(world: &World, ensemble: &Ensemble<'_>, size: u16) -> Result<()> {
    until(
        "everything has come to rest",
        Duration::from_secs(90),
        || {
            ensemble.is_ready(size)?;
            let last = |watch: &Watch| watch.history().last().map(|e| e.at);
            let last = last(&world.pods).max(last(&world.ensembles));
            let rest = last.and_then(|at| at.elapsed().ok()).unwrap_or_default();
            if rest > Duration::from_secs(10) {
                Ok(())
            } else {
                Err(format!("the last event was {rest:?} ago"))
            }
        },
    )
}

/// The operator pod that holds the lease.
fn operator(world: &World) -> Result<String> {
    let lease = ["-n", OPERATOR_NAMESPACE, "get", "lease", "bellwether"];
    let holder = &world.kubectl.json(&lease)?["spec"]["holderIdentity"];
    Ok(holder.as_str().unwrap_or_default().to_owned())
}

/// Ready under the new spec means that the change is carried out, not that it is about to begin.
fn assert_all_replaced(before: &BTreeMap<String, String>, ensemble: &Ensemble<'_>) -> Result<()> {
    let after = ensemble.uids();
    let same: Vec<&String> = before
        .iter()
        .filter(|(pod, uid)| after.get(*pod) == Some(uid))
        .map(|(pod, _)| pod)
        .collect();
    ensure!(
        same.is_empty(),
        "ready before the change was carried out: {same:?} did not restart yet"
    );
    Ok(())
}

/// The resourceVersion of everything that the operator owns or reports in the namespace.
fn versions(world: &World) -> Result<BTreeMap<String, String>> {
    let kinds = "zke,le,statefulsets,configmaps,services,poddisruptionbudgets";
    let list = world
        .kubectl
        .json(&["-n", &world.namespace, "get", kinds])?;
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items
        .map(|item| {
            let key = format!(
                "{}/{}",
                text(&item["kind"]),
                text(&item["metadata"]["name"])
            );
            (key, text(&item["metadata"]["resourceVersion"]))
        })
        .collect())
}
