//! How large volumes are: growth, and one that fills up.

use std::time::Duration;

use anyhow::{Error, Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::load::Load;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

use crate::disks::claims;

const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn volumes_grow_where_their_class_lets_them(world: &World) -> Result<()> {
    // A class that lets claims ask for more. Its volumes are directories and cannot grow by themselves:
    // the test reports the new capacity, as a storage driver would.
    with_class(world, &json!({ "allowVolumeExpansion": true }), grow)
}

/// Runs a test with a StorageClass of its own, which differs from the cluster's in these fields.
fn with_class(
    world: &World,
    differs: &Value,
    test: impl FnOnce(&World, &str) -> Result<()>,
) -> Result<()> {
    let class = world.namespace.as_str();
    let mut object = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": { "name": class },
        "provisioner": "bellwether.dev/local",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    for (field, value) in differs.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    world.kubectl.apply(&object)?;
    let outcome = test(world, class);
    world.kubectl.run(&["delete", "storageclass", class])?;
    outcome
}

fn grow(world: &World, class: &str) -> Result<()> {
    let mut spec = Ensemble::small(1);
    spec["storage"]["storageClassName"] = json!(class);
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(1)?;
    let before = ensemble.uids();
    ensemble.patch(&json!({ "storage": { "size": "512Mi" } }))?;
    until("the status says that the volume grows", PATIENCE, || {
        let (progressing, reason, _) = ensemble.condition("Progressing")?;
        let message = ensemble.status()?["message"].to_string();
        let good =
            progressing == "True" && reason == "VolumesGrowing" && message.contains("data-main-0");
        if good {
            Ok(())
        } else {
            Err(format!("{reason}: {message}"))
        }
    })?;
    let claim = claims(world)?.remove("data-main-0").unwrap_or_default();
    ensure!(
        claim["spec"]["resources"]["requests"]["storage"] == "512Mi",
        "the claim is {claim}"
    );
    let capacity = json!({ "status": { "capacity": { "storage": "512Mi" } } }).to_string();
    world.run(&[
        "patch",
        "pvc",
        "data-main-0",
        "--subresource=status",
        "--type=merge",
        "-p",
        &capacity,
    ])?;
    until("the growth is over", PATIENCE, || {
        let (progressing, reason, message) = ensemble.condition("Progressing")?;
        if progressing == "False" {
            Ok(())
        } else {
            Err(format!("{reason}: {message}"))
        }
    })?;
    ensure!(before == ensemble.uids(), "growth restarted a member");
    Ok(())
}

/// The volume has a size that holds, and something that is not ZooKeeper's own fills it.
pub(crate) fn a_nearly_full_volume_shows_before_it_hurts(world: &World) -> Result<()> {
    let parameters = json!({ "parameters": { "enforceSize": "true" } });
    with_class(world, &parameters, fill)
}

fn fill(world: &World, class: &str) -> Result<()> {
    let clients = world.clients()?;
    let mut spec = Ensemble::small(1);
    spec["storage"]["storageClassName"] = json!(class);
    spec["storage"]["size"] = json!("32Mi");
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(1)?;
    let before = ensemble.uids();
    let load = Load::start(clients, ensemble, 1)?;
    let shell = |command: &str| {
        let exec = ["exec", "main-0", "-c", "zookeeper", "--", "sh", "-c"];
        world.run(&[&exec[..], &[command]].concat())
    };
    let size = shell("df -k --output=size /data | tail -n 1")?;
    ensure!(
        size.trim() == "32768",
        "the volume does not have the size that was asked for: {size}"
    );
    let healthy = || {
        let (degraded, reason, message) = ensemble.condition("Degraded")?;
        let (is_ready, ..) = ensemble.condition("Ready")?;
        if is_ready == "True" && degraded == "False" {
            Ok(())
        } else {
            Err(format!(
                "Ready={is_ready} Degraded={degraded} {reason}: {message}"
            ))
        }
    };
    until("nothing is wrong", PATIENCE, healthy)?;
    shell("head -c 27000000 /dev/zero >/data/filler")?;
    // An ensemble that changes is looked at at once. At rest this takes some minutes, as tests of the operator's pace
    // show.
    world.run(&["annotate", "zke/main", "example.com/looked-at=now"])?;
    until("the status says which volume fills up", PATIENCE, || {
        let (degraded, reason, message) = ensemble.condition("Degraded")?;
        let good = degraded == "True"
            && reason == "VolumeNearlyFull"
            && message.contains("data volume of main-0");
        if good {
            Ok(())
        } else {
            Err(format!("{degraded} {reason}: {message}"))
        }
    })?;
    let (ready, reason, message) = ensemble.condition("Ready").map_err(Error::msg)?;
    ensure!(ready == "True", "it does not serve: {reason}: {message}");
    load.wait_writes(20)?;
    shell("rm /data/filler")?;
    until("nothing is wrong any more", PATIENCE, healthy)?;
    ensure!(ensemble.uids() == before, "a member was restarted");
    load.finish(1)?.assert_safe()
}

pub(crate) fn a_class_that_cannot_grow_is_told_and_harms_nothing(world: &World) -> Result<()> {
    let ensemble = world.small_ensemble(1)?;
    ensemble.patch(&json!({ "storage": { "size": "512Mi" } }))?;
    until("the status says why", PATIENCE, || {
        let (degraded, reason, message) = ensemble.condition("Degraded")?;
        let good = degraded == "True"
            && reason == "VolumeCannotGrow"
            && message.contains("StorageClass standard");
        if good {
            Ok(())
        } else {
            Err(format!("{degraded} {reason}: {message}"))
        }
    })?;
    ensemble.wait_ready(1)?;
    let claim = claims(world)?.remove("data-main-0").unwrap_or_default();
    ensure!(
        claim["spec"]["resources"]["requests"]["storage"] == "256Mi",
        "the claim is {claim}"
    );

    let smaller = ensemble.try_patch(&json!({ "storage": { "size": "255Mi" } }))?;
    let words = "spec.storage.size";
    ensure!(
        smaller.as_ref().is_err_and(|why| why.contains(words)),
        "{smaller:?}"
    );
    ensemble.patch(&json!({ "storage": { "size": "256Mi" } }))?;
    until("it is no trouble any more", PATIENCE, || {
        let (degraded, reason, message) = ensemble.condition("Degraded")?;
        if reason == "VolumeCannotGrow" {
            Err(format!("{degraded} {reason}: {message}"))
        } else {
            Ok(())
        }
    })
}
