//! What fails by itself: leaders, operators, volumes.

use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::history::{assert_leader_last, deletions};
use bellwether_e2e::load::Load;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::json;

pub(crate) fn deleting_the_leaders_pod_heals(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    let load = Load::start(clients, ensemble, 3)?;
    let leader = ensemble.wait_leader()?;
    ensemble.delete_pod(&leader)?;
    until("another member leads", Duration::from_secs(60), || {
        let status = ensemble.status()?;
        match status["leader"].as_str() {
            Some(other) if other != leader => Ok(()),
            other => Err(format!("the leader is {other:?}")),
        }
    })?;
    ensemble.wait_ready(3)?;
    let verdict = load.finish(3)?;
    eprintln!("leader deleted: longest gap {} s", verdict.longest_gap());
    verdict.assert_safe()?;
    // It came back under the same configuration, so nobody else had to restart.
    let done = deletions(&world.pods.history());
    ensure!(
        done.len() == 1 && done[0].pod == leader,
        "deleted pods: {done:?}"
    );
    Ok(())
}

pub(crate) fn a_size_change_survives_the_death_of_every_operator_pod(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    let load = Load::start(clients, ensemble, 5)?;
    ensemble.scale(5)?;
    // In the middle: the first newcomer exists and the last one does not.
    until("the change is under way", Duration::from_secs(60), || {
        let pods = ensemble.uids();
        if pods.contains_key("main-3") {
            Ok(())
        } else {
            Err(format!("{pods:?}"))
        }
    })?;
    world.kill_operator()?;
    until("a member was restarted", Duration::from_secs(120), || {
        let done = deletions(&world.pods.history());
        if done.is_empty() {
            Err("none yet".to_owned())
        } else {
            Ok(())
        }
    })?;
    world.kill_operator()?;
    ensemble.wait_ready(5)?;
    let verdict = load.finish(5)?;
    eprintln!(
        "3 to 5, operator killed twice: longest gap {} s",
        verdict.longest_gap()
    );
    verdict.assert_safe()?;
    assert_leader_last(&deletions(&world.pods.history()), &verdict)
}

pub(crate) fn the_volume_of_another_ensemble_is_refused(world: &World) -> Result<()> {
    // The volume of `main-0` ends up as that of an ensemble with another identity: the mark on it is
    // changed from inside, as a restored backup would.
    let mut spec = Ensemble::small(1);
    spec["storage"]["reclaimPolicy"] = json!("Retain");
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(1)?;
    let mark =
        r#"echo '{"ensemble":"elsewhere/other","serverId":1,"format":1}' > /data/bellwether.json"#;
    world.run(&["exec", "main-0", "-c", "zookeeper", "--", "sh", "-c", mark])?;
    world.run(&["delete", "pod", "main-0", "--wait=false"])?;
    until(
        "the member refuses the volume",
        Duration::from_secs(90),
        || {
            let pod = world
                .pods
                .get("main-0")
                .ok_or("there is no pod".to_owned())?;
            let state = &pod["status"]["initContainerStatuses"][0];
            let said = format!("{} {}", state["state"], state["lastState"]);
            let good = said.contains("another ensemble") && said.contains("elsewhere/other");
            if good { Ok(()) } else { Err(said) }
        },
    )?;
    // The ensemble's own status says so too, in words that a person can act on.
    until("the status says why", Duration::from_secs(90), || {
        let status = ensemble.status()?;
        let (degraded, reason, message) = ensemble.condition("Degraded")?;
        let text = format!("{degraded} {reason} {message} {}", status["message"]);
        if degraded == "True" && text.contains("main-0") {
            Ok(())
        } else {
            Err(text)
        }
    })
}
