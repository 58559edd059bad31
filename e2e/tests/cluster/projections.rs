//! What elections are projected to: what is refused, and Leases.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bellwether_e2e::clients::Client;
use bellwether_e2e::election::Election;
use bellwether_e2e::wait::{throughout, until};
use bellwether_e2e::world::World;
use serde_json::{Value, json};

use crate::scenarios::expect_refusal;

const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) fn manifest(name: &str, path: &str, projections: Value) -> Value {
    let mut object = Election::manifest(name, "main", path, json!({ "type": "Kazoo" }));
    if projections["service"].is_object() || projections["podLabels"].is_object() {
        let selector = json!({ "matchLabels": { "app": "candidate" } });
        object["spec"]["podBinding"] = json!({ "selector": selector });
    }
    object["spec"]["projections"] = projections;
    object
}

/// An object of the API as it is now; `None` if it does not exist.
pub(crate) fn get(world: &World, kind: &str, name: &str) -> Result<Option<Value>, String> {
    let arguments = [
        "-n",
        &world.namespace,
        "get",
        kind,
        name,
        "--ignore-not-found",
        "-o",
        "json",
    ];
    let text = world.kubectl.run(&arguments).map_err(|e| e.to_string())?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|e| e.to_string())
}

/// Waits until an object fits, and returns it.
pub(crate) fn wait_object(
    world: &World,
    kind: &str,
    name: &str,
    fits: impl Fn(&Value) -> bool,
) -> Result<Value> {
    until(
        &format!("the {kind} {name} is as it should be"),
        PATIENCE,
        || match get(world, kind, name)? {
            Some(object) if fits(&object) => Ok(object),
            Some(object) => Err(object.to_string()),
            None => Err("it does not exist".to_owned()),
        },
    )
}

pub(crate) fn wait_gone(world: &World, kind: &str, name: &str) -> Result<()> {
    until(
        &format!("the {kind} {name} is gone"),
        PATIENCE,
        || match get(world, kind, name)? {
            None => Ok(()),
            Some(object) => Err(object.to_string()),
        },
    )
}

pub(crate) fn patch(world: &World, name: &str, spec: &Value) -> Result<()> {
    let body = json!({ "spec": spec }).to_string();
    world.run(&["patch", "le", name, "--type=merge", "-p", &body])?;
    Ok(())
}

fn leader(election: &Election<'_>) -> Result<String, String> {
    let status = election.status()?;
    let identity = status["leader"]["identity"].as_str();
    identity.map(str::to_owned).ok_or("nobody leads".to_owned())
}

/// The sentence of a condition.
fn message(election: &Election<'_>, type_: &str) -> Result<String, String> {
    let status = election.status()?;
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions
        .into_iter()
        .find(|condition| condition["type"] == type_);
    Ok(found.unwrap_or_default()["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

pub(crate) fn what_is_wrong_about_projections_is_refused(world: &World) -> Result<()> {
    let port = json!([{ "name": "http", "port": 80 }]);
    let cases: &[(&str, Value, &[&str])] = &[
        (
            "short",
            json!({ "lease": { "leaseDurationSeconds": 1 } }),
            &["leaseDurationSeconds"],
        ),
        (
            "name",
            json!({ "lease": { "name": "No_Name" } }),
            &["lease.name"],
        ),
        ("ports", json!({ "service": {} }), &["ports"]),
        ("no port", json!({ "service": { "ports": [] } }), &["ports"]),
        (
            "same port",
            json!({ "service": { "ports": [
                { "name": "a", "port": 80 }, { "name": "b", "port": 80 },
            ] } }),
            &["must differ in port or protocol"],
        ),
        (
            "same name",
            json!({ "service": { "ports": [
                { "name": "a", "port": 80 }, { "name": "a", "port": 81 },
            ] } }),
            &["Duplicate value"],
        ),
        (
            "stale",
            json!({ "service": { "ports": port, "onStale": "Forget" } }),
            &["onStale", "Keep"],
        ),
        (
            "kept",
            json!({ "service": { "ports": port, "onStale": "Remove", "keepForSeconds": 60 } }),
            &["keepForSeconds needs onStale: Keep"],
        ),
        (
            "annotation",
            json!({ "service": { "ports": port, "annotations": { "zookeeper.bellwether.dev/a": "b" } } }),
            &["take them out"],
        ),
        (
            "protocol",
            json!({ "service": { "ports": [{ "name": "a", "port": 80, "protocol": "SCTP" }] } }),
            &["protocol", "UDP"],
        ),
        (
            "port 0",
            json!({ "service": { "ports": [{ "name": "a", "port": 80, "targetPort": 0 }] } }),
            &["targetPort"],
        ),
        (
            "number as text",
            json!({ "service": { "ports": [{ "name": "a", "port": 80, "targetPort": "8080" }] } }),
            &["targetPort"],
        ),
        (
            "name of a port",
            json!({ "service": { "ports": [{ "name": "a", "port": 80, "targetPort": "a--b" }] } }),
            &["targetPort"],
        ),
        (
            "values",
            json!({ "podLabels": { "leaderValue": "same", "otherValue": "same" } }),
            &["must differ"],
        ),
        (
            "reserved",
            json!({ "podLabels": { "key": "app.kubernetes.io/name" } }),
            &["reserved for Kubernetes", "another key"],
        ),
        (
            "ours",
            json!({ "podLabels": { "key": "zookeeper.bellwether.dev/election-uid" } }),
            &["another key"],
        ),
        (
            "value",
            json!({ "podLabels": { "leaderValue": "not a value" } }),
            &["leaderValue"],
        ),
    ];
    for (what, projections, words) in cases {
        let object = manifest("wrong", "/e", projections.clone());
        expect_refusal(what, world.try_apply(&object)?, words)?;
    }
    // All at once: every mistake is named.
    let mut all = manifest(
        "wrong",
        "/e",
        json!({
            "lease": { "leaseDurationSeconds": 1 },
            "service": { "name": "1st", "ports": [{ "name": "UPPER", "port": 70000 }] },
            "podLabels": { "leaderValue": "not a value" },
        }),
    );
    all["spec"]["podBinding"] = json!({ "identityPattern": "" });
    let words = [
        "leaseDurationSeconds",
        "service.name",
        "ports[0].name",
        "ports[0].port",
        "leaderValue",
        "identityPattern",
    ];
    expect_refusal("all", world.try_apply(&all)?, &words)?;
    let mut object = manifest("wrong", "/e", json!({}));
    object["spec"]["podBinding"] = json!({ "identityPattern": "(.*)" });
    expect_refusal(
        "pattern",
        world.try_apply(&object)?,
        &["group named pod or ip"],
    )?;
    // Without a selector any pod of the namespace could be named by a znode.
    let selector = json!({ "matchLabels": { "app": "candidate" } });
    for projections in [
        json!({ "podLabels": {} }),
        json!({ "service": { "ports": port } }),
    ] {
        object["spec"]["projections"] = projections;
        for binding in [
            Value::Null,
            json!({ "selector": {} }),
            json!({ "identityPattern": "(?P<pod>.*)" }),
        ] {
            object["spec"]["podBinding"] = binding;
            let refused = world.try_apply(&object)?;
            expect_refusal("no selector", refused, &["need podBinding.selector"])?;
        }
    }
    // The status reports what the API's rules cannot check.
    object["spec"]["projections"] = json!({ "podLabels": {} });
    object["spec"]["podBinding"] = json!({ "selector": selector, "identityPattern": "(?P<pod>" });
    world.apply(&object)?;
    let election = world.election_handle("wrong");
    election.wait_condition("LeaderBound", "Unknown", "PatternInvalid")?;
    election.wait_condition("Projected", "False", "PatternInvalid")?;
    object["spec"]["projections"] = json!({ "podLabels": { "key": "team" } });
    object["spec"]["podBinding"] = json!({ "selector": selector });
    world.apply(&object)?;
    election.wait_condition("Projected", "False", "LabelNotAllowed")?;
    Ok(())
}

fn candidate<'w>(world: &'w World, hosts: &str, path: &str, id: &str) -> Result<Client<'w>> {
    let arguments = ["--hosts", hosts, "--path", path, "--id", id];
    world.clients()?.python(id, "kazoo_election.py", &arguments)
}

pub(crate) fn a_lease_follows_the_leader_and_expires_when_the_mirror_is_blind(
    world: &World,
) -> Result<()> {
    let hosts = world.small_ensemble(1)?.members(1);
    let path = "/app/election";
    let lease = json!({ "lease": { "leaseDurationSeconds": 6 } });
    world.apply(&manifest("app", path, lease))?;
    let election = world.election_handle("app");
    // There is no leader: the Lease has no holder.
    wait_object(world, "lease", "app", |lease| {
        lease["spec"]["holderIdentity"] == ""
    })?;
    let mut candidates = Vec::new();
    for id in ["a", "b"] {
        candidates.push(candidate(world, &hosts, path, id)?);
    }
    let held = |by: String| move |lease: &Value| lease["spec"]["holderIdentity"] == by.as_str();
    let first = until("somebody leads", PATIENCE, || leader(&election))?;
    let lease = wait_object(world, "lease", "app", held(first.clone()))?;
    let status = election.status().map_err(anyhow::Error::msg)?;
    let token = "zookeeper.bellwether.dev/fencing-token";
    ensure!(
        lease["metadata"]["annotations"][token] == status["leader"]["fencingToken"],
        "{lease} has not the token of {status}"
    );
    ensure!(lease["spec"]["acquireTime"].is_string(), "{lease}");
    // It is renewed while nothing else happens.
    let renewed = lease["spec"]["renewTime"].clone();
    wait_object(world, "lease", "app", |lease| {
        lease["spec"]["renewTime"] != renewed
    })?;
    election.wait_condition("Projected", "True", "UpToDate")?;

    // A foreign Lease is left alone and reported.
    let foreign = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": "taken" },
        "spec": { "holderIdentity": "somebody", "leaseDurationSeconds": 30 },
    });
    world.apply(&foreign)?;
    let before = get(world, "lease", "taken").map_err(anyhow::Error::msg)?;
    let operators = world.operators()?;
    world.apply(&manifest(
        "greedy",
        path,
        json!({ "lease": { "name": "taken" } }),
    ))?;
    let greedy = world.election_handle("greedy");
    greedy.wait_condition("Projected", "False", "NameTaken")?;
    let sentence = message(&greedy, "Projected").map_err(anyhow::Error::msg)?;
    ensure!(
        sentence.contains("Lease taken") && sentence.contains("choose another name"),
        "{sentence}"
    );
    // An event that is not sent yet is lost with the operator, which other tests kill.
    let events = until("an event tells it, too", PATIENCE, || {
        let all = [
            "get",
            "events",
            "-o",
            "name",
            "--field-selector",
            "reason=ProjectionFailed",
        ];
        let events = world.run(&all).map_err(|e| e.to_string())?;
        if !events.is_empty() || world.operators().map_err(|e| e.to_string())? != operators {
            return Ok(events);
        }
        Err("there is none".to_owned())
    })?;
    ensure!(events.lines().count() <= 1, "told more than once: {events}");
    world.run(&["delete", "le", "greedy"])?;

    // Another leader is another holder.
    let place = candidates.iter().position(|client| client.id() == first);
    candidates
        .remove(place.context("the leader is none of ours")?)
        .kill()?;
    let second = candidates[0].id().to_owned();
    let lease = wait_object(world, "lease", "app", held(second.clone()))?;
    ensure!(lease["spec"]["leaseTransitions"] == 1, "{lease}");

    // A Lease that was deleted by hand comes back.
    world.take_away(&["lease/app"])?;
    wait_object(world, "lease", "app", held(second.clone()))?;

    // Without sight it is not renewed, and expires.
    world.run(&["delete", "zke", "main", "--wait=false"])?;
    election.wait_condition("Synced", "False", "EnsembleNotFound")?;
    election.wait_condition("Projected", "Unknown", "NotObserved")?;
    let last = get(world, "lease", "app")
        .map_err(anyhow::Error::msg)?
        .context("it is gone")?;
    throughout("the Lease is left alone", Duration::from_secs(8), || {
        let now = get(world, "lease", "app")?.unwrap_or_default();
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        if version(&now) == version(&last) {
            Ok(())
        } else {
            Err(now.to_string())
        }
    })?;
    ensure!(last["spec"]["holderIdentity"] == second.as_str(), "{last}");

    // Another name moves it, switching off removes it.
    patch(
        world,
        "app",
        &json!({ "projections": { "lease": { "name": "other" } } }),
    )?;
    wait_gone(world, "lease", "app")?;
    patch(world, "app", &json!({ "projections": null }))?;
    until(
        "nothing is said of projections",
        PATIENCE,
        || match election.condition("Projected") {
            Err(_) => Ok(()),
            Ok(said) => Err(format!("{said:?}")),
        },
    )?;
    let after = get(world, "lease", "taken").map_err(anyhow::Error::msg)?;
    ensure!(
        before == after,
        "the foreign Lease was {before:?} and is {after:?}"
    );
    Ok(())
}
