//! Volumes: kept, taken up again, lost.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::load::Load;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(120);

/// A small ensemble whose volumes stay.
fn retained(size: u16) -> Value {
    let mut spec = Ensemble::small(size);
    spec["storage"]["reclaimPolicy"] = json!("Retain");
    spec
}

/// The volume claims that are not being deleted, by name.
fn claims(world: &World) -> Result<BTreeMap<String, Value>> {
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

fn uid(claim: &Value) -> &str {
    claim["metadata"]["uid"].as_str().unwrap_or_default()
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

pub(crate) fn a_returned_member_takes_up_its_old_volume(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.ensemble("main", retained(3))?;
    ensemble.wait_ready(3)?;
    let before = claims(world)?;
    let load = Load::start(clients, ensemble, 3)?;
    ensemble.scale(1)?;
    ensemble.wait_ready(1)?;
    until(
        "every claim says who the last members are",
        PATIENCE,
        || {
            let claims = claims(world).map_err(|e| e.to_string())?;
            let lists: Vec<_> = claims
                .values()
                .map(|c| c["metadata"]["annotations"]["zookeeper.bellwether.dev/voters"].clone())
                .collect();
            if lists == [json!("1"), json!("1"), json!("1")] {
                Ok(())
            } else {
                Err(format!("{lists:?}"))
            }
        },
    )?;
    load.wait_writes(20)?;
    ensemble.scale(3)?;
    ensemble.wait_ready(3)?;
    let verdict = load.finish(3)?;
    eprintln!("3 to 1 to 3: longest gap {} s", verdict.longest_gap());
    verdict.assert_safe()?;
    let after = claims(world)?;
    ensure!(
        before.len() == 3
            && before
                .iter()
                .all(|(n, c)| after.get(n).map(uid) == Some(uid(c))),
        "the claims are others: {after:?}"
    );
    Ok(())
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
    world.run(&["delete", "statefulset", "main", "--cascade=orphan"])?;
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

pub(crate) fn a_member_that_lost_its_volume_comes_back_empty_and_syncs(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    let load = Load::start(clients, ensemble, 3)?;
    let old = claims(world)?.remove("data-main-1").unwrap_or_default();
    world.run(&["delete", "pvc", "data-main-1", "--wait=false"])?;
    ensemble.delete_pod("main-1")?;
    ensemble.wait_ready(3)?;
    let new = claims(world)?.remove("data-main-1").unwrap_or_default();
    ensure!(
        !uid(&new).is_empty() && uid(&new) != uid(&old),
        "the claim is {new}"
    );
    let prepared = world.run(&["logs", "main-1", "-c", "prepare"])?;
    ensure!(
        prepared.contains(r#""initialize":false"#),
        "the empty member was permitted to vote: {prepared}"
    );
    load.finish(3)?.assert_safe()
}
