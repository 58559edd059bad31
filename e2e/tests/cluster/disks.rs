//! Volumes: kept, taken up again, lost.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, ensure};
use bellwether_e2e::clients::Clients;
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::load::Load;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

use crate::command_line::says;

const PATIENCE: Duration = Duration::from_secs(120);
/// How long a replacement may take: an operator waits for a minute for a member that may come up by itself, and other tests
/// replace the operator.
const REPLACED: Duration = Duration::from_secs(420);

/// A small ensemble whose volumes stay.
fn retained(size: u16) -> Value {
    let mut spec = Ensemble::small(size);
    spec["storage"]["reclaimPolicy"] = json!("Retain");
    spec
}

/// The volume claims that are not being deleted, by name.
pub(crate) fn claims(world: &World) -> Result<BTreeMap<String, Value>> {
    let list = world
        .kubectl
        .json(&["-n", &world.namespace, "get", "pvc"])?;
    let all = list["items"].as_array().cloned().unwrap_or_default();
    Ok(all
        .into_iter()
        .filter(|c| c["metadata"]["deletionTimestamp"].is_null())
        .map(|c| {
            let name = c["metadata"]["name"].as_str().unwrap_or_default();
            (name.to_owned(), c)
        })
        .collect())
}

/// Deletes the ensemble and waits until nothing of it runs.
fn delete(world: &World) -> Result<()> {
    world.run(&["delete", "zke", "main", "--timeout=60s"])?;
    until("its pods are gone", PATIENCE, || {
        let left = ["main-0", "main-1", "main-2"].map(|p| world.pods.get(p).is_some());
        if left.contains(&true) || world.ensembles.get("main").is_some() {
            return Err(format!("pods: {left:?}"));
        }
        Ok(())
    })
}

pub(crate) fn an_ensemble_created_again_with_another_size_serves_its_data(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.ensemble("main", retained(3))?;
    ensemble.wait_ready(3)?;
    let load = Load::start(clients, ensemble, 3)?;
    load.wait_writes(50)?;
    delete(world)?;
    ensure!(claims(world)?.len() == 3, "the claims are gone");
    let ensemble = world.ensemble("main", retained(1))?;
    ensemble.wait_ready(1)?;
    let verdict = load.finish(1)?;
    verdict.assert_safe()
}

pub(crate) fn a_statefulset_deleted_by_hand_in_a_change_comes_back(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(1)?;
    let load = Load::start(clients, ensemble, 3)?;
    ensemble.scale(3)?;
    until("the change is under way", PATIENCE, || {
        match world.pods.get("main-1") {
            Some(_) => Ok(()),
            None => Err("there is no pod main-1".to_owned()),
        }
    })?;
    let uid = || {
        let get = [
            "get",
            "statefulset",
            "main",
            "--output=jsonpath={.metadata.uid}",
        ];
        world.run(&get).map_err(|e| e.to_string())
    };
    let first = uid().map_err(anyhow::Error::msg)?;
    world.take_away(&["statefulset/main", "--cascade=orphan"])?;
    until("there is another StatefulSet", PATIENCE, || match uid()? {
        same if same == first => Err(same),
        _ => Ok(()),
    })?;
    ensemble.wait_ready(3)?;
    load.finish(3)?.assert_safe()
}

pub(crate) fn a_deleted_ensemble_leaves_no_claims_if_told_so(world: &World) -> Result<()> {
    world.small_ensemble(1)?;
    ensure!(claims(world)?.len() == 1, "there is no claim");
    delete(world)?;
    until("its claims are gone", PATIENCE, || {
        let names: Vec<String> = claims(world)
            .map_err(|e| e.to_string())?
            .into_keys()
            .collect();
        if names.is_empty() {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
}

pub(crate) fn an_old_copy_of_a_volume_is_refused(world: &World) -> Result<()> {
    let shell = |command: &str| {
        let exec = ["exec", "main-0", "-c", "zookeeper", "--", "sh", "-c"];
        world.run(&[&exec[..], &[command]].concat())
    };
    let ensemble = world.small_ensemble(1)?;
    until_recorded(world, "1=1\n")?;
    shell("cp -r /data/version-2 /data/backup")?;
    let first = ensemble.uids();
    world.take_away(&["pod/main-0"])?;
    until("it serves in the next epoch", PATIENCE, || {
        ensemble.is_ready(1).and_then(|()| {
            let again = ensemble.uids() != first;
            again.then_some(()).ok_or("the same pod".to_owned())
        })
    })?;
    until_recorded(world, "1=2\n")?;
    shell("rm -rf /data/version-2 && mv /data/backup /data/version-2")?;
    world.take_away(&["pod/main-0"])?;
    until("the status says why", PATIENCE, || {
        let (degraded, reason, message) = ensemble.condition("Degraded")?;
        let good = degraded == "True"
            && message.contains("main-0")
            && message.contains("older than it should be");
        if good {
            Ok(())
        } else {
            Err(format!("{degraded} {reason}: {message}"))
        }
    })?;
    // The way back to a backup of all members, as the runbook says.
    world.take_away(&["configmap/main-bootstrap"])?;
    until(
        "the permission is there again, and closed",
        PATIENCE,
        || {
            let data = permission(world)?;
            match data["initialize"].as_str() {
                Some("") if data["epochs"].is_null() => Ok(()),
                _ => Err(data.to_string()),
            }
        },
    )?;
    world.take_away(&["pod/main-0"])?;
    ensemble.wait_ready(1)
}

/// What the bootstrap ConfigMap says.
fn permission(world: &World) -> Result<Value, String> {
    let map = ["get", "configmap", "main-bootstrap", "-o", "json"];
    let map = world.run(&map).map_err(|e| e.to_string())?;
    let map: Value = serde_json::from_str(&map).map_err(|e| e.to_string())?;
    Ok(map["data"].clone())
}

fn until_recorded(world: &World, epochs: &str) -> Result<()> {
    until("the epoch is recorded", PATIENCE, || {
        let data = permission(world)?;
        match data["epochs"].as_str() {
            Some(recorded) if recorded == epochs => Ok(()),
            _ => Err(data.to_string()),
        }
    })
}

/// How many writes of the load a client reads.
fn writes(clients: &Clients<'_>, ensemble: Ensemble<'_>) -> Result<usize> {
    let program = "import sys; from kazoo.client import KazooClient; \
                   c = KazooClient(hosts=sys.argv[1]); c.start(60); \
                   print(len(c.get_children('/e2e/writes')))";
    let text = clients.output(&["python3", "-c", program, &ensemble.service()])?;
    text.trim().parse().context(text)
}

pub(crate) fn a_lost_majority_of_disks_is_told_and_a_person_can_accept_it(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    Load::start(clients, ensemble, 3)?
        .finish(3)?
        .assert_safe()?;
    let before = writes(&clients, ensemble)?;
    for ordinal in ["1", "2"] {
        let claim = format!("data-main-{ordinal}");
        world.take_away(&["pvc", &claim])?;
    }
    world.take_away(&["pod/main-1", "pod/main-2"])?;
    let told = |words: &[&str]| {
        until("the status says what is lost", PATIENCE, || {
            let (degraded, reason, message) = ensemble.condition("Degraded")?;
            let good = reason == "DisksLost" && words.iter().all(|w| message.contains(w));
            good.then_some(message.clone())
                .ok_or(format!("{degraded} {reason}: {message}"))
        })
    };
    let message = told(&[
        "disks of main-1, main-2 are empty",
        "main-0 (epoch ",
        "accept-data-loss=2-3-",
    ])?;
    let token = message.split("accept-data-loss=").nth(1);
    let token = token.and_then(|rest| rest.split(". ").next());
    let token = token.context("there is no token")?;
    let before_all = ensemble.uids();
    let accept = |token: &str| {
        let annotation = format!("zookeeper.bellwether.dev/accept-data-loss={token}");
        world.run(&["annotate", "zke", "main", "--overwrite", &annotation])
    };
    accept("2-3-0000000000")?;
    told(&["2-3-0000000000", "accepts nothing of this"])?;
    ensure!(
        before_all == ensemble.uids(),
        "a wrong token restarted a member"
    );
    let nobody = permission(world).map_err(Error::msg)?;
    ensure!(nobody["initialize"] == "", "{nobody}");
    accept(token)?;
    ensemble.wait_ready(3)?;
    // Only one empty member may vote: with it the survivor has a majority of three.
    let status = ensemble.status().map_err(Error::msg)?;
    let accepted = &status["dataLossAccepted"];
    ensure!(
        accepted["token"] == token
            && accepted["lost"] == json!([2, 3])
            && accepted["permitted"] == json!([2])
            && accepted["by"] == "kubectl-annotate",
        "the status says {accepted}"
    );
    let closed = permission(world).map_err(Error::msg)?;
    ensure!(closed["initialize"] == "", "{closed}");
    until("the acceptance is over", PATIENCE, || {
        let status = ensemble.status()?;
        let over = status["dataLossAccepted"]["over"] == true;
        over.then_some(()).ok_or(status.to_string())
    })?;
    until("there is an event", PATIENCE, || {
        let query = ["get", "events.events.k8s.io", "-o", "json"];
        let events = world.run(&query).map_err(|e| e.to_string())?;
        let good = events.contains("\"DataLossAccepted\"") && events.contains(token);
        good.then_some(()).ok_or("none".to_owned())
    })?;
    let after = writes(&clients, ensemble)?;
    ensure!(after == before, "{before} writes before, {after} after");
    Ok(())
}

pub(crate) fn a_transaction_log_has_a_volume_of_its_own_and_its_loss_is_refused(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let mut spec = Ensemble::small(3);
    spec["storage"]["transactionLog"] = json!({ "size": "128Mi" });
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(3)?;
    Load::start(clients, ensemble, 3)?
        .finish(3)?
        .assert_safe()?;
    let before = writes(&clients, ensemble)?;
    let count = claims(world)?.len();
    ensure!(count == 6, "{count} claims");
    let files = |directory: &str| {
        let list = format!("ls {directory}/version-2");
        let exec = ["exec", "main-1", "-c", "zookeeper", "--", "sh", "-c"];
        world.run(&[&exec[..], &[&list]].concat())
    };
    let (data, log) = (files("/data")?, files("/datalog")?);
    ensure!(
        data.contains("snapshot.") && !data.contains("log."),
        "{data}"
    );
    ensure!(log.contains("log.") && !log.contains("snapshot."), "{log}");
    for (log, words) in [
        (json!({ "size": "64Mi" }), "cannot shrink"),
        (Value::Null, "is set when the ensemble is created, or never"),
    ] {
        let refused = ensemble.try_patch(&json!({ "storage": { "transactionLog": log } }))?;
        let good = refused.as_ref().is_err_and(|why| why.contains(words));
        ensure!(good, "{log}: {refused:?}");
    }

    // Without its log a snapshot is an old copy.
    world.take_away(&["pvc/datalog-main-1"])?;
    world.take_away(&["pod/main-1"])?;
    until("the status says what is lost", PATIENCE, || {
        let (degraded, reason, message) = ensemble.condition("Degraded")?;
        let words = ["main-1", "the transaction log volume is new"];
        let good = degraded == "True" && words.iter().all(|w| message.contains(w));
        good.then_some(())
            .ok_or(format!("{degraded} {reason}: {message}"))
    })?;
    world.take_away(&["pvc/data-main-1", "pvc/datalog-main-1"])?;
    world.take_away(&["pod/main-1"])?;
    ensemble.wait_ready(3)?;
    let after = writes(&clients, ensemble)?;
    ensure!(after == before, "{before} writes before, {after} after");
    Ok(())
}

/// A member whose server ends over a broken disk is replaced by one with an empty volume, when a person says so: the others serve on,
/// and none of them restarts.
pub(crate) fn a_member_whose_disk_is_broken_is_replaced_on_request(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let mut spec = Ensemble::small(3);
    spec["membershipChange"] = json!("Reconfiguration");
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(3)?;
    let load = Load::start(clients, ensemble, 3)?;
    let leader = ensemble.wait_leader()?;
    let broken = (0..3).map(|ordinal| ensemble.pod(ordinal));
    let broken = broken.into_iter().find(|pod| *pod != leader);
    let broken = broken.context("all lead")?;
    let others = |mut uids: BTreeMap<String, String>| {
        uids.remove(&broken);
        uids
    };
    let before = others(ensemble.uids());
    let claim = || -> Result<String> {
        let name = format!("pvc/data-{broken}");
        let uid = "jsonpath={.metadata.uid}";
        world.run(&["get", &name, "-o", uid])
    };
    let old = claim()?;
    // ZooKeeper reads the epoch when it starts, and exits if that is no number. The server ends in the background, since the
    // end of its container would end the command, too.
    let spoil = "echo x > /data/version-2/currentEpoch; (sleep 1; kill -TERM 1) > /dev/null 2>&1 &";
    let exec = ["exec", &broken, "-c", "zookeeper", "--", "sh", "-c"];
    world.run(&[&exec[..], &[spoil]].concat())?;
    until("the status tells of the pod", PATIENCE, || {
        let (degraded, reason, message) = ensemble.condition("Degraded")?;
        let good = reason == "PodFailing" && message.contains(&broken);
        good.then_some(())
            .ok_or(format!("{degraded} {reason}: {message}"))
    })?;
    let request = ["replace", "main", &broken];
    says(world, &[&request[..], &["--dry-run"]].concat())?;
    ensure!(claim()? == old, "a dry run deleted the claim");
    eprint!("{}", says(world, &request)?);
    until("another claim is in its place", REPLACED, || {
        let now = claim().map_err(|e| e.to_string())?;
        (now != old).then_some(()).ok_or(now)
    })?;
    ensemble.wait_ready(3)?;
    let after = others(ensemble.uids());
    ensure!(before == after, "{before:?} became {after:?}");
    let verdict = load.finish(3)?;
    eprintln!("longest gap {} s", verdict.longest_gap());
    verdict.assert_safe()
}
