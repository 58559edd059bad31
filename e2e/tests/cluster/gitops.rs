//! What tools rely on that apply manifests over and over.

use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::election::Election;
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

/// Runs kubectl in the namespace with an object on standard input. Its exit code and all it said.
fn feed(world: &World, arguments: &[&str], object: &Value) -> Result<(Option<i32>, String)> {
    let all = [&["-n", &world.namespace], arguments, &["-f", "-"]].concat();
    let output = world.kubectl.feed(&all, &object.to_string())?;
    let said = [output.stdout, output.stderr].concat();
    Ok((
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

/// Server-side apply, as one of several who each own some fields.
fn apply_as(world: &World, manager: &str, object: &Value) -> Result<()> {
    let manager = format!("--field-manager={manager}");
    let (code, said) = feed(world, &["apply", "--server-side", &manager], object)?;
    ensure!(code == Some(0), "{manager}: {said}");
    Ok(())
}

/// All of an object that is its users' own, and who set it when.
fn users_part(world: &World, target: &str) -> Result<Value> {
    let get = [
        "-n",
        &world.namespace,
        "get",
        target,
        "--show-managed-fields",
    ];
    let object = world.kubectl.json(&get)?;
    let meta = &object["metadata"];
    let managed = meta["managedFields"].as_array().into_iter().flatten();
    let managed: Vec<&Value> = managed.filter(|f| f["subresource"].is_null()).collect();
    Ok(json!({
        "spec": object["spec"],
        "generation": meta["generation"],
        "labels": meta["labels"],
        "annotations": meta["annotations"],
        "finalizers": meta["finalizers"],
        "managed": managed,
    }))
}

pub(crate) fn manifests_applied_again_change_nothing_and_stay_their_users(
    world: &World,
) -> Result<()> {
    let mut ensemble_manifest = Ensemble::manifest("main", Ensemble::small(1));
    ensemble_manifest["metadata"]["labels"] = json!({ "team": "storage" });
    ensemble_manifest["metadata"]["annotations"] = json!({ "example.com/source": "git" });
    let nobody = json!({ "type": "ZkElection" });
    let election_manifest = Election::manifest("idle", "main", "/nobody", nobody.clone());
    // A second owner of other fields.
    let tuning = json!({
        "apiVersion": "zookeeper.bellwether.dev/v1alpha1",
        "kind": "ZooKeeperEnsemble",
        "metadata": { "name": "main", "labels": { "tier": "gold" } },
        "spec": { "config": { "syncLimit": 7 } },
    });
    let applied = [
        ("git", &ensemble_manifest),
        ("tuning", &tuning),
        ("git", &election_manifest),
    ];
    for (manager, manifest) in applied {
        apply_as(world, manager, manifest)?;
    }
    world.run(&[
        "wait",
        "--for=condition=Ready",
        "zke/main",
        "--timeout=180s",
    ])?;
    world.run(&["wait", "--for=condition=Ready", "le/idle", "--timeout=60s"])?;
    world
        .election_handle("idle")
        .wait_condition("LeaderElected", "False", "NoElection")?;

    let targets = ["zke/main", "le/idle"];
    let before: Vec<Value> = targets
        .iter()
        .map(|target| users_part(world, target))
        .collect::<Result<_>>()?;
    for (target, part) in targets.iter().zip(&before) {
        let managers = part["managed"].as_array().into_iter().flatten();
        let strangers: Vec<&Value> = managers
            .filter(|f| f["manager"] != "git" && f["manager"] != "tuning")
            .collect();
        ensure!(
            strangers.is_empty(),
            "{target}: set by somebody else: {strangers:?}"
        );
    }
    for (manager, manifest) in applied {
        apply_as(world, manager, manifest)?;
        let manager = format!("--field-manager={manager}");
        let (code, said) = feed(world, &["diff", "--server-side", &manager], manifest)?;
        ensure!(code == Some(0), "a difference for {manager}: {said}");
    }
    let after: Vec<Value> = targets
        .iter()
        .map(|target| users_part(world, target))
        .collect::<Result<_>>()?;
    ensure!(after == before, "{before:?} became {after:?}");

    // Without server-side apply, as most do it.
    let plain = Election::manifest("plain", "main", "/nobody", nobody);
    feed(world, &["apply"], &plain)?;
    world.run(&["wait", "--for=condition=Ready", "le/plain", "--timeout=60s"])?;
    let (_, said) = feed(world, &["apply"], &plain)?;
    ensure!(said.contains("unchanged"), "{said}");
    let (code, said) = feed(world, &["diff"], &plain)?;
    ensure!(code == Some(0), "a difference: {said}");
    Ok(())
}

/// Clients find the ensemble by a ConfigMap of its own. A foreign ConfigMap of that name is left
/// alone and reported, and blocks nothing else.
pub(crate) fn clients_find_an_ensemble_by_its_config_map(world: &World) -> Result<()> {
    let theirs = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "main-client" },
        "data": { "connectString": "theirs:2181" },
    });
    world.apply(&theirs)?;
    let ensemble = world.ensemble("main", Ensemble::small(1))?;
    until(
        "it serves, and says what is wrong",
        Duration::from_secs(180),
        || {
            let (available, ..) = ensemble.condition("Available")?;
            let (degraded, reason, message) = ensemble.condition("Degraded")?;
            let told =
                degraded == "True" && reason == "ApplyFailed" && message.contains("main-client");
            let good = available == "True" && told;
            good.then_some(()).ok_or(format!(
                "Available={available}, Degraded={degraded}: {message}"
            ))
        },
    )?;
    let get = ["-n", &world.namespace, "get", "configmap", "main-client"];
    let found = world.kubectl.json(&get)?;
    ensure!(found["data"] == theirs["data"], "overwritten: {found}");

    world.take_away(&["configmap/main-client"])?;
    // Else it is looked at within a minute.
    world.run(&["annotate", "zke/main", "example.com/look=again"])?;
    ensemble.wait_ready(1)?;
    let found = world.kubectl.json(&get)?;
    ensure!(
        found["data"]["connectString"] == ensemble.service().as_str(),
        "{found}"
    );
    ensure!(
        found["metadata"]["ownerReferences"][0]["name"] == "main",
        "{found}"
    );
    // An application that takes its environment from it.
    let mut client = bellwether_e2e::clients::pod(
        "client",
        &[
            "sh",
            "-c",
            "echo srvr | nc -w 5 \"$host\" \"$port\" | grep Mode && sleep infinity",
        ],
    );
    client["spec"]["containers"][0]["envFrom"] =
        json!([{ "configMapRef": { "name": "main-client" } }]);
    world.apply(&client)?;
    until(
        "the application is answered",
        Duration::from_secs(60),
        || {
            let log = world.run(&["logs", "client"]).map_err(|e| e.to_string())?;
            log.contains("Mode: ").then_some(()).ok_or(log)
        },
    )
}
