//! What fails by itself: leaders, operators, volumes.

use std::time::Duration;

use anyhow::{Error, Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::{OPERATOR_NAMESPACE, World};
use serde_json::json;

/// Status, lease, ConfigMaps, Services and disruption budget: all of it is made again from what runs,
/// and no member notices.
pub(crate) fn the_operators_own_state_deleted_by_hand_heals_and_restarts_nothing(
    world: &World,
) -> Result<()> {
    let ensemble = world.small_ensemble(1)?;
    let pods = ensemble.uids();
    let status = ensemble.status().map_err(anyhow::Error::msg)?;
    let revision = status["configRevision"].as_str().unwrap_or_default();
    world.take_away(&[
        "service/main",
        "service/main-members",
        "poddisruptionbudget/main",
        "configmap/main-bootstrap",
        &format!("configmap/{revision}"),
    ])?;
    let clear = [
        "patch",
        "zke/main",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"phase":null,"leader":null,"members":null,"conditions":null,"voters":null}}"#,
    ];
    world.run(&clear)?;
    let lease = ["lease", "bellwether", "--wait=false"];
    world
        .kubectl
        .run(&[&["-n", OPERATOR_NAMESPACE, "delete"], &lease[..]].concat())?;
    until(
        "everything is there again",
        Duration::from_secs(120),
        || {
            ensemble.is_ready(1)?;
            let names = [
                "get",
                "services,poddisruptionbudgets,configmaps",
                "-o",
                "name",
            ];
            let names = world.run(&names).map_err(|e| e.to_string())?;
            let lease = ["-n", OPERATOR_NAMESPACE, "get", "lease", "bellwether"];
            world.kubectl.run(&lease).map_err(|e| e.to_string())?;
            let wanted = [
                "service/main",
                "service/main-members",
                "poddisruptionbudget.policy/main",
                "configmap/main-bootstrap",
                &format!("configmap/{revision}"),
            ];
            match wanted.iter().find(|w| !names.lines().any(|n| n == **w)) {
                None => Ok(()),
                Some(missing) => Err(format!("{missing} is missing")),
            }
        },
    )?;
    // Nothing is permitted to start with an empty disk because a ConfigMap was deleted.
    let bootstrap = [
        "get",
        "configmap",
        "main-bootstrap",
        "-o",
        "jsonpath={.data}",
    ];
    let data = world.run(&bootstrap)?;
    ensure!(
        !data.contains("\"initialize\":\"1\""),
        "the permission came back: {data}"
    );
    ensure!(ensemble.uids() == pods, "a member was restarted");
    Ok(())
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
    world.take_away(&["pod/main-0"])?;
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

pub(crate) fn a_pod_that_kubernetes_refuses_to_create_is_told_of(world: &World) -> Result<()> {
    let ensemble = world.small_ensemble(1)?;
    world.apply(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "one" },
        "spec": { "hard": { "pods": "1" } },
    }))?;
    ensemble.scale(3)?;
    let degraded = |what: &str, good: &dyn Fn(&str, &str) -> bool| {
        until(what, Duration::from_secs(60), || {
            let (status, reason, message) = ensemble.condition("Degraded")?;
            good(&status, &message)
                .then_some(())
                .ok_or(format!("Degraded={status} ({reason}): {message}"))
        })
    };
    degraded("the status tells of the pod", &|status, message| {
        let words = ["main-1", "exceeded quota: one"];
        status == "True" && words.iter().all(|word| message.contains(word))
    })?;
    let status = ensemble.status().map_err(Error::msg)?;
    ensure!(
        status["ready"] == "1/2" && status["leader"] == "main-0",
        "{status}"
    );
    world.run(&["delete", "resourcequota", "one"])?;
    ensemble.wait_ready(3)?;
    // The volumes share the machine's disk, so Degraded may be true for how full that is.
    degraded("the status tells of it no more", &|_, message| {
        !message.contains("quota")
    })
}
