//! What elections are projected to: Leases, Services, labels of pods.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bellwether_e2e::clients::{Client, pod};
use bellwether_e2e::election::Election;
use bellwether_e2e::wait::{throughout, until};
use bellwether_e2e::watch::Watch;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

use crate::scenarios::expect_refusal;

const PATIENCE: Duration = Duration::from_secs(90);
/// The default key of the label.
const ROLE: &str = "zookeeper.bellwether.dev/role";

/// Asks a URL all the time and prints each answer that differs from the one before.
const POLL: &str = r#"
import http.client, json, sys, time
def say(**f): print(json.dumps(f), flush=True)
say(event="started")
last = None
while True:
    try:
        connection = http.client.HTTPConnection(sys.argv[1], 80, timeout=0.1)
        connection.request("GET", "/name")
        name = connection.getresponse().read().decode().strip()
        connection.close()
    except OSError:
        name = None
    if name != last:
        last = name
        say(event="answer", name=name, time=time.time())
    time.sleep(0.01)
"#;

fn manifest(name: &str, path: &str, projections: Value) -> Value {
    let mut object = Election::manifest(name, "main", path, json!({ "type": "Kazoo" }));
    object["spec"]["projections"] = projections;
    object
}

/// An object of the API as it is now; `None` if it does not exist.
fn get(world: &World, kind: &str, name: &str) -> Result<Option<Value>, String> {
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
fn wait_object(
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

fn wait_gone(world: &World, kind: &str, name: &str) -> Result<()> {
    until(
        &format!("the {kind} {name} is gone"),
        PATIENCE,
        || match get(world, kind, name)? {
            None => Ok(()),
            Some(object) => Err(object.to_string()),
        },
    )
}

fn patch(world: &World, name: &str, spec: &Value) -> Result<()> {
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
            &["must differ in port"],
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
    // What the rules cannot see is told by the status.
    object["spec"]["projections"] = json!({ "podLabels": {} });
    object["spec"]["podBinding"] = json!({ "identityPattern": "(?P<pod>" });
    world.apply(&object)?;
    let election = world.election_handle("wrong");
    election.wait_condition("LeaderBound", "Unknown", "PatternInvalid")?;
    election.wait_condition("Projected", "False", "PatternInvalid")?;
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
    // Nobody leads: the Lease says so.
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

    // A Lease of somebody else is left alone and told of.
    let foreign = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": "taken" },
        "spec": { "holderIdentity": "somebody", "leaseDurationSeconds": 30 },
    });
    world.apply(&foreign)?;
    let before = get(world, "lease", "taken").map_err(anyhow::Error::msg)?;
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
        (!events.is_empty())
            .then_some(events)
            .ok_or("there is none".to_owned())
    })?;
    ensure!(events.lines().count() == 1, "told more than once: {events}");
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
    world.run(&["delete", "lease", "app"])?;
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

/// A pod that is a candidate under its own name and says that name over HTTP.
fn run_candidate(world: &World, hosts: &str, path: &str, name: &str) -> Result<()> {
    let script = format!(
        "mkdir /tmp/www && echo {name} >/tmp/www/name && \
         (python3 -m http.server 8080 --directory /tmp/www >/dev/null 2>&1 &) && \
         exec python3 /clients/kazoo_election.py --hosts {hosts} --path {path} --id {name}"
    );
    let mut pod = pod(name, &["sh", "-c", &script]);
    pod["metadata"]["labels"] = json!({ "app": "candidate" });
    world.apply(&pod)
}

/// The values of the label, by pods.
fn roles(world: &World, key: &str) -> BTreeMap<String, String> {
    let pods = world.pods.all();
    pods.iter()
        .filter_map(|pod| {
            let value = pod["metadata"]["labels"][key].as_str()?;
            Some((
                pod["metadata"]["name"].as_str()?.to_owned(),
                value.to_owned(),
            ))
        })
        .collect()
}

fn wait_roles(world: &World, key: &str, wanted: &[(&str, &str)]) -> Result<()> {
    let wanted: BTreeMap<String, String> = wanted
        .iter()
        .map(|(pod, role)| ((*pod).to_owned(), (*role).to_owned()))
        .collect();
    until(&format!("the labels are {wanted:?}"), PATIENCE, || {
        let found = roles(world, key);
        if found == wanted {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
}

/// At no moment of the history did two pods have the leader's value.
fn never_two_leaders(world: &World) -> Result<usize> {
    let mut leaders: BTreeMap<String, ()> = BTreeMap::new();
    let mut changes = 0;
    for event in world.pods.history() {
        let is_leader = event.object["metadata"]["labels"][ROLE] == "leader" && !event.deleted;
        let name = event.name().to_owned();
        if is_leader {
            changes += usize::from(leaders.insert(name, ()).is_none());
        } else {
            leaders.remove(&name);
        }
        ensure!(
            leaders.len() <= 1,
            "two pods were labelled as leaders: {leaders:?}"
        );
    }
    Ok(changes)
}

/// When a candidate's pod said that it leads.
fn said_leading(world: &World, pod: &str) -> Result<f64, String> {
    let log = world.run(&["logs", pod]).map_err(|e| e.to_string())?;
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|line| line["event"] == "leader")
        .and_then(|line| line["time"].as_f64())
        .ok_or_else(|| format!("{pod} does not say that it leads"))
}

/// When the Service first answered with this name after a time.
fn answered(poll: &Client<'_>, name: &str, after: f64) -> Result<f64, String> {
    poll.lines()
        .iter()
        .filter(|line| line["event"] == "answer" && line["name"] == name)
        .filter_map(|line| line["time"].as_f64())
        .find(|time| *time >= after)
        .ok_or_else(|| format!("last: {:?}", poll.lines().last()))
}

pub(crate) fn a_service_and_labels_of_pods_follow_the_leader(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let path = "/app/election";
    let service = json!({ "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] });
    let both = json!({ "service": service, "podLabels": {} });
    let mut object = manifest("app", path, both);
    object["spec"]["podBinding"] = json!({ "selector": { "matchLabels": { "app": "candidate" } } });
    world.apply(&object)?;
    let election = world.election_handle("app");
    election.wait_condition("LeaderBound", "False", "NoLeader")?;
    for name in ["web-0", "web-1", "web-2"] {
        run_candidate(world, &hosts, path, name)?;
        until("the candidate stands", PATIENCE, || {
            let (_, queue) = election.view()?;
            if queue.iter().any(|id| id == name) {
                Ok(())
            } else {
                Err(format!("{queue:?}"))
            }
        })?;
    }
    wait_roles(
        world,
        ROLE,
        &[
            ("web-0", "leader"),
            ("web-1", "candidate"),
            ("web-2", "candidate"),
        ],
    )?;
    election.wait_condition("LeaderBound", "True", "Bound")?;
    election.wait_condition("Projected", "True", "UpToDate")?;
    let status = election.status().map_err(anyhow::Error::msg)?;
    ensure!(status["leader"]["pod"] == "web-0", "{status}");

    // The Service reaches the leader, and the next one when its pod is gone.
    let service = wait_object(world, "service", "app", |service| {
        service["spec"]["clusterIP"].is_string() && service["spec"]["selector"].is_null()
    })?;
    let address = service["spec"]["clusterIP"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let slices = Watch::start(&world.kubectl, &world.namespace, "endpointslices")?;
    let poll = clients.spawn("poll", &["python3", "-c", POLL, &address])?;
    until("the Service reaches web-0", PATIENCE, || {
        answered(&poll, "web-0", 0.0)
    })?;
    for (pod, next) in [("web-0", "web-1"), ("web-1", "web-2")] {
        let killed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        world.run(&[
            "delete",
            "pod",
            pod,
            "--grace-period=0",
            "--force",
            "--wait=false",
        ])?;
        let reached = until("the Service reaches the next leader", PATIENCE, || {
            answered(&poll, next, killed)
        })?;
        let elected = until("the next leader says so", PATIENCE, || {
            said_leading(world, next)
        })?;
        let written = slices
            .history()
            .into_iter()
            .find(|event| event.object["endpoints"][0]["targetRef"]["name"] == next)
            .context("the slice never had its address")?;
        let written = written.at.duration_since(UNIX_EPOCH)?.as_secs_f64();
        // What lies between the slice and the Service is kube-proxy's, which gathers changes.
        println!(
            "{pod} killed: {next} led after {:.2} s; {:+.3} s later its address was in the slice, \
             {:+.3} s later the Service reached it",
            elected - killed,
            written - elected,
            reached - elected
        );
    }
    wait_roles(world, ROLE, &[("web-2", "leader")])?;
    let slices = get(world, "endpointslice", "app-leader").map_err(anyhow::Error::msg)?;
    let slice = slices.context("there is no slice")?;
    let endpoints = slice["endpoints"].as_array().cloned().unwrap_or_default();
    ensure!(
        endpoints.len() == 1 && endpoints[0]["targetRef"]["name"] == "web-2",
        "the slice is {slice}"
    );

    // A restarted operator finds everything as it should be, and writes nothing.
    let version = slice["metadata"]["resourceVersion"].clone();
    run_candidate(world, &hosts, path, "web-3")?;
    wait_roles(world, ROLE, &[("web-2", "leader"), ("web-3", "candidate")])?;
    world.kill_operator()?;
    run_candidate(world, &hosts, path, "web-4")?;
    let three = [
        ("web-2", "leader"),
        ("web-3", "candidate"),
        ("web-4", "candidate"),
    ];
    wait_roles(world, ROLE, &three)?;
    let slice = get(world, "endpointslice", "app-leader").map_err(anyhow::Error::msg)?;
    let now = slice.unwrap_or_default()["metadata"]["resourceVersion"].clone();
    ensure!(now == version, "the slice was written: {version} and {now}");

    // Another key moves the labels; a foreign label is left alone and told of.
    patch(
        world,
        "app",
        &json!({ "projections": { "podLabels": { "key": "role" } } }),
    )?;
    wait_roles(world, "role", &three)?;
    wait_roles(world, ROLE, &[])?;
    world.run(&["label", "pod", "web-3", "tier=mine"])?;
    patch(
        world,
        "app",
        &json!({ "projections": { "podLabels": { "key": "tier" } } }),
    )?;
    election.wait_condition("Projected", "False", "LabelTaken")?;
    ensure!(roles(world, "tier").get("web-3").map(String::as_str) == Some("mine"));
    patch(
        world,
        "app",
        &json!({ "projections": { "podLabels": { "key": "role" } } }),
    )?;
    wait_roles(world, "role", &three)?;

    // Switched off, nothing stays.
    patch(world, "app", &json!({ "projections": { "service": null } }))?;
    wait_gone(world, "service", "app")?;
    wait_gone(world, "endpointslice", "app-leader")?;
    patch(world, "app", &json!({ "projections": null }))?;
    wait_roles(world, "role", &[])?;
    wait_roles(world, "zookeeper.bellwether.dev/role-labelled", &[])?;

    // Nor when the election is deleted, also if nobody saw that.
    world.apply(&object)?;
    wait_roles(world, ROLE, &three)?;
    wait_object(world, "service", "app", |_| true)?;
    world.kubectl.run(&[
        "-n",
        bellwether_e2e::world::OPERATOR_NAMESPACE,
        "scale",
        "deployment/bellwether",
        "--replicas=0",
    ])?;
    let deleted = world.run(&["delete", "le", "app"]);
    world.kubectl.run(&[
        "-n",
        bellwether_e2e::world::OPERATOR_NAMESPACE,
        "scale",
        "deployment/bellwether",
        "--replicas=2",
    ])?;
    deleted?;
    wait_gone(world, "service", "app")?;
    wait_gone(world, "endpointslice", "app-leader")?;
    wait_roles(world, ROLE, &[])?;
    wait_roles(world, "zookeeper.bellwether.dev/role-labelled", &[])?;
    let changes = never_two_leaders(world)?;
    ensure!(changes >= 3, "only {changes} leaders were labelled");
    Ok(())
}
