//! Scenario 15: everything can be deleted in any order.

use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::json;

/// How long a deletion may take: a pod has 30 s to end.
const PATIENCE: Duration = Duration::from_secs(90);

/// Every deletion ends: of an election without its ensemble, of an ensemble with an election, and
/// of an ensemble that never came up. The volumes are deleted or stay as the spec says. No object
/// of the operator carries a finalizer, so all of them can be deleted without the operator as well.
pub(crate) fn scenario_15_ensembles_elections_and_namespaces_are_deleted_in_any_order(
    world: &World,
) -> Result<()> {
    let dialect = || json!({ "type": "ZkElection" });
    // The election first, then its ensemble, whose volumes are kept.
    let mut spec = Ensemble::small(1);
    spec["storage"]["reclaimPolicy"] = json!("Retain");
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(1)?;
    let first = world.election("first", "/first", dialect())?;
    first.wait_condition("LeaderElected", "False", "NoElection")?;
    assert_no_finalizers(world)?;
    delete(world, "le/first")?;
    let second = world.election("second", "/second", dialect())?;
    second.wait_condition("LeaderElected", "False", "NoElection")?;
    // The ensemble first, and its election says that it cannot see.
    delete(world, "zke/main")?;
    wait_no_members(world)?;
    ensure!(
        claims(world)? == ["data-main-0"],
        "Retain left {:?}",
        claims(world)?
    );
    until("the election says so", PATIENCE, || {
        let object = world.elections.get("second").ok_or("it is gone")?;
        let conditions = object["status"]["conditions"].as_array().cloned();
        let synced = conditions
            .into_iter()
            .flatten()
            .find(|c| c["type"] == "Synced");
        match synced {
            Some(c) if c["status"] == "False" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;
    delete(world, "le/second")?;
    // On the volumes that were kept, this time to be deleted with it; both at once.
    world.ensemble("main", Ensemble::small(1))?.wait_ready(1)?;
    world.election("third", "/third", dialect())?;
    world.run(&[
        "delete",
        "zke/main",
        "le/third",
        &format!("--timeout={}s", PATIENCE.as_secs()),
    ])?;
    wait_no_members(world)?;
    until("the volume is deleted", PATIENCE, || match claims(world) {
        Ok(names) if names.is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    // An ensemble that never comes up, with an election that cannot be read: the whole namespace.
    let mut never = Ensemble::small(3);
    never["image"] = json!("docker.io/library/zookeeper:there-is-no-such-tag");
    world.ensemble("main", never)?;
    world.election("fourth", "/fourth", dialect())?;
    until("it exists", PATIENCE, || {
        let pods = world.pods.all().len();
        if pods == 3 {
            Ok(())
        } else {
            Err(format!("{pods} pods"))
        }
    })?;
    assert_no_finalizers(world)?;
    let timeout = format!("--timeout={}s", PATIENCE.as_secs());
    world
        .kubectl
        .run(&["delete", "namespace", &world.namespace, &timeout])?;
    Ok(())
}

fn delete(world: &World, object: &str) -> Result<()> {
    let timeout = format!("--timeout={}s", PATIENCE.as_secs());
    world.run(&["delete", object, &timeout]).map(drop)
}

fn wait_no_members(world: &World) -> Result<()> {
    until("the members are gone", PATIENCE, || {
        let pods = world.pods.all().len();
        if pods == 0 {
            Ok(())
        } else {
            Err(format!("{pods} pods"))
        }
    })
}

fn claims(world: &World) -> Result<Vec<String>> {
    let names = ["get", "pvc", "-o", "jsonpath={.items[*].metadata.name}"];
    let names = world.run(&names)?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// Neither the two kinds nor anything that an ensemble owns waits for the operator to be deleted.
fn assert_no_finalizers(world: &World) -> Result<()> {
    let kinds = "zke,le,statefulsets,configmaps,services,poddisruptionbudgets,pods";
    let list = world
        .kubectl
        .json(&["-n", &world.namespace, "get", kinds])?;
    for object in list["items"].as_array().into_iter().flatten() {
        let metadata = &object["metadata"];
        ensure!(
            metadata["finalizers"].is_null(),
            "{} {} has finalizers {}",
            object["kind"],
            metadata["name"],
            metadata["finalizers"]
        );
    }
    Ok(())
}
