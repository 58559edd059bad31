//! Services and labels of pods that follow the leader.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bellwether_e2e::clients::{Client, pod};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::process;
use bellwether_e2e::wait::until;
use bellwether_e2e::watch::Watch;
use bellwether_e2e::world::World;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::projections::{get, manifest, patch, wait_gone, wait_object};

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

/// A pod that is a candidate under its own name and says that name over HTTP.
fn run_candidate(world: &World, hosts: &str, path: &str, name: &str) -> Result<()> {
    run_candidate_for(world, hosts, path, name, 6)
}

/// The same with a session that lasts for so many seconds after its client's last sign of life.
fn run_candidate_for(
    world: &World,
    hosts: &str,
    path: &str,
    name: &str,
    session: u32,
) -> Result<()> {
    let script = format!(
        "mkdir /tmp/www && echo {name} >/tmp/www/name && \
         (python3 -m http.server 8080 --directory /tmp/www >/dev/null 2>&1 &) && \
         exec python3 /clients/kazoo_election.py --hosts {hosts} --path {path} --id {name} \
         --timeout {session}"
    );
    let mut pod = pod(name, &["sh", "-c", &script]);
    pod["metadata"]["labels"] = json!({ "app": "candidate" });
    pod["spec"]["containers"][0]["ports"] = json!([{ "name": "web", "containerPort": 8080 }]);
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

/// The znode of a leader whose container died stays until its session ends. The container that is started
/// in its place is not the leader: label and Service leave the pod while the znode is still there.
pub(crate) fn a_leader_whose_container_died_is_left_before_its_session_ends(
    world: &World,
) -> Result<()> {
    // The longest session that a server with this tickTime grants.
    const SESSION: u32 = 40;
    let mut spec = Ensemble::small(1);
    spec["config"]["tickTime"] = json!(2000);
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(1)?;
    let hosts = ensemble.members(1);
    let path = "/app/election";
    let service = json!({ "ports": [{ "name": "http", "port": 80, "targetPort": "web" }] });
    let both = json!({ "service": service, "podLabels": {} });
    let object = manifest("app", path, both);
    world.apply(&object)?;
    let election = world.election_handle("app");
    run_candidate_for(world, &hosts, path, "web-0", SESSION)?;
    wait_roles(world, ROLE, &[("web-0", "leader")])?;
    election.wait_condition("Projected", "True", "UpToDate")?;
    let pod = world.pods.get("web-0").context("there is no web-0")?;
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let processes = process::of_pod(uid);
    let servers: Vec<_> = (processes.into_iter())
        .filter(|p| p.line.contains("python3"))
        .collect();
    if servers.is_empty() {
        eprintln!("the cluster's processes are elsewhere: no container can be killed");
        return Ok(());
    }
    let killed = std::time::Instant::now();
    process::signal(&servers, "KILL");
    election.wait_condition("LeaderBound", "False", "PodNotFound")?;
    let after = killed.elapsed();
    let still = election.view().map_err(anyhow::Error::msg)?.0;
    ensure!(
        still.as_deref() == Some("web-0"),
        "the session had ended: {still:?} leads"
    );
    wait_object(world, "endpointslice", "app-leader", |slice| {
        slice["endpoints"].as_array().is_none_or(Vec::is_empty)
    })?;
    eprintln!("container killed: its pod is not the leader's any more after {after:.1?}");
    until("the label went", PATIENCE, || {
        match roles(world, ROLE).get("web-0").map(String::as_str) {
            Some("leader") => Err("web-0 is labelled as the leader".to_owned()),
            _ => Ok(()),
        }
    })
}

pub(crate) fn a_service_and_labels_of_pods_follow_the_leader(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let path = "/app/election";
    let service = json!({ "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] });
    let both = json!({ "service": service, "podLabels": {} });
    let object = manifest("app", path, both);
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

    // The spec has another generation and equal contents; later changes are mirrored all the same.
    let generation = || {
        let object = get(world, "le", "app").map_err(anyhow::Error::msg)?;
        Ok::<_, anyhow::Error>(object.unwrap_or_default()["metadata"]["generation"].clone())
    };
    let before = generation()?;
    let null = json!([{ "op": "add", "path": "/spec/authentication", "value": null }]).to_string();
    world.run(&["patch", "le", "app", "--type=json", "-p", &null])?;
    ensure!(generation()? != before, "the generation is still {before}");

    // The Service reaches the leader, and the next one when its pod is gone.
    let service = wait_object(world, "service", "app", |service| {
        service["spec"]["clusterIP"].is_string() && service["spec"]["selector"].is_null()
    })?;
    let address = service["spec"]["clusterIP"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let slices = Watch::start::<EndpointSlice>(&world.namespace)?;
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

    // While the operator cannot identify the leader's pod, no pod is labelled or reached.
    let binding = |pattern: Value| json!({ "podBinding": { "identityPattern": pattern } });
    patch(world, "app", &binding(json!("(?P<pod>")))?;
    election.wait_condition("LeaderBound", "Unknown", "PatternInvalid")?;
    wait_roles(world, ROLE, &[])?;
    wait_object(world, "endpointslice", "app-leader", |slice| {
        slice["endpoints"].as_array().is_none_or(Vec::is_empty)
    })?;
    patch(world, "app", &binding(Value::Null))?;
    wait_roles(world, ROLE, &[("web-2", "leader")])?;
    election.wait_condition("Projected", "True", "UpToDate")?;
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

    // Another key moves the labels; a foreign label is left alone and reported.
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

    // Of another kind, with a port of another protocol and an annotation: made anew, and it reaches the same pod.
    let ports = json!([{ "name": "http", "port": 80, "targetPort": 8080 }, { "name": "udp", "port": 80, "protocol": "UDP" }]);
    let headless = json!({ "headless": true, "annotations": { "team": "blue" }, "ports": ports });
    patch(
        world,
        "app",
        &json!({ "projections": { "service": headless } }),
    )?;
    wait_object(world, "service", "app", |service| {
        service["spec"]["clusterIP"] == "None"
            && service["metadata"]["annotations"]["team"] == "blue"
    })?;
    wait_object(world, "endpointslice", "app-leader", |slice| {
        slice["endpoints"][0]["targetRef"]["name"] == "web-2"
            && slice["ports"][1]["protocol"] == "UDP"
    })?;
    election.wait_condition("Projected", "True", "UpToDate")?;

    // A port that the leader's pod does not name is told, and left out.
    let ports = json!([{ "name": "http", "port": 80, "targetPort": "none" }, { "name": "tcp", "port": 8080 }]);
    patch(
        world,
        "app",
        &json!({ "projections": { "service": { "ports": ports } } }),
    )?;
    election.wait_condition("Projected", "False", "PortNotFound")?;
    wait_object(world, "endpointslice", "app-leader", |slice| {
        slice["endpoints"][0]["targetRef"]["name"] == "web-2"
            && slice["ports"].as_array().is_some_and(|all| all.len() == 1)
            && slice["ports"][0]["name"] == "tcp"
    })?;

    // Switched off, nothing stays.
    patch(world, "app", &json!({ "projections": { "service": null } }))?;
    wait_gone(world, "service", "app")?;
    wait_gone(world, "endpointslice", "app-leader")?;
    patch(world, "app", &json!({ "projections": null }))?;
    wait_roles(world, "role", &[])?;
    wait_roles(world, "zookeeper.bellwether.dev/role-labelled", &[])?;

    // A deleted election leaves nothing either, even if it was deleted while no operator ran.
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

pub(crate) fn a_service_without_sight_keeps_its_leader_or_reaches_nobody(
    world: &World,
) -> Result<()> {
    let hosts = world.small_ensemble(1)?.members(1);
    let path = "/app/election";
    for (name, on_stale) in [("keep", "Keep"), ("remove", "Remove")] {
        let ports = json!([{ "name": "http", "port": 80, "targetPort": 8080 }]);
        let service = json!({ "ports": ports, "onStale": on_stale });
        world.apply(&manifest(name, path, json!({ "service": service })))?;
    }
    // The session must outlive every pause of a busy machine: a leader whose session ends while the mirror sees it loses
    // its place in every slice.
    run_candidate_for(world, &hosts, path, "web-0", 40)?;
    let reached = |slice: &Value| slice["endpoints"][0]["targetRef"]["name"] == "web-0";
    for slice in ["keep-leader", "remove-leader"] {
        wait_object(world, "endpointslice", slice, reached)?;
    }
    // An operator that takes over knows by the status who led, and tests beside this one kill the operator.
    for name in ["keep", "remove"] {
        let election = world.election_handle(name);
        election.wait_condition("Projected", "True", "UpToDate")?;
    }

    world.run(&["delete", "zke", "main", "--wait=false"])?;
    for name in ["keep", "remove"] {
        let election = world.election_handle(name);
        election.wait_condition("Synced", "False", "EnsembleNotFound")?;
    }
    wait_object(world, "endpointslice", "remove-leader", |slice| {
        slice["endpoints"].as_array().is_none_or(Vec::is_empty)
    })?;
    let kept = get(world, "endpointslice", "keep-leader").map_err(anyhow::Error::msg)?;
    let election = get(world, "le", "keep").map_err(anyhow::Error::msg)?;
    ensure!(
        kept.as_ref().is_some_and(reached),
        "the slice is {kept:?}, and the election {election:?}"
    );
    Ok(())
}
