//! The demonstration: an ensemble grows from three to five under writes, and an application's
//! election appears in Kubernetes. Everything it prints was seen on the cluster.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::clients::Client;
use crate::election::Election;
use crate::ensemble::Ensemble;
use crate::history::{Deletion, assert_leader_last, deletions};
use crate::kubectl::Kubectl;
use crate::load::{Load, Verdict};
use crate::page::Camera;
use crate::world::World;

/// The namespace of the demonstration; it stays until the next one.
pub const NAMESPACE: &str = "demo";
/// The ensemble's name.
const NAME: &str = "zk";
/// How often the status is looked at while a change is shown.
const LOOK: Duration = Duration::from_millis(150);
/// How long one change may take.
const PATIENCE: Duration = Duration::from_secs(240);
/// The summary speaks of at least so many writes.
const WRITES: u64 = 1000;

/// Shows it.
///
/// # Errors
/// When something is not as it must be: a lost write, two leaders, a leader that was not last.
pub fn run(kubectl: &Kubectl) -> Result<()> {
    let started = Instant::now();
    kubectl.run(&[
        "delete",
        "namespace",
        NAMESPACE,
        "--ignore-not-found",
        "--wait",
    ])?;
    let world = World::named(kubectl, NAMESPACE)?;

    title("An ensemble of three members");
    let manifest = Ensemble::manifest(NAME, json!({ "replicas": 3 }));
    shown(&format!("kubectl apply -f - <<< '{manifest}'"));
    let applied = Instant::now();
    world.apply(&manifest)?;
    let ensemble = Ensemble::new(&world, NAME);
    follow(&world, 3, applied)?;
    println!(
        "  all three serve {:.1} s after kubectl apply",
        applied.elapsed().as_secs_f64()
    );
    print!("{}", world.run(&["get", "zookeeperensembles", NAME])?);

    title("A client that writes all the time, while three become five");
    let clients = world.clients()?;
    let load = Load::start(clients, ensemble, 5)?;
    let mut camera = Camera::from_environment()?;
    let begin = UNIX_EPOCH.elapsed()?.as_secs_f64();
    shown(&format!("kubectl scale zke/{NAME} --replicas=5"));
    let asked = Instant::now();
    ensemble.scale(5)?;
    thread::scope(|scope| -> Result<()> {
        let pictures = camera
            .as_mut()
            .map(|camera| scope.spawn(|| camera.growth()));
        follow(&world, 5, asked)?;
        match pictures.map(thread::ScopedJoinHandle::join) {
            Some(Err(_)) => bail!("the camera panicked"),
            Some(Ok(result)) => result,
            None => Ok(()),
        }
    })?;
    let took = asked.elapsed();
    let missing = WRITES.saturating_sub(load.acknowledged()?);
    if missing > 0 {
        load.wait_writes(missing)?;
    }
    let verdict = load.finish(5)?;
    print!(
        "{}",
        world.run(&["get", "zookeeperensembles", NAME, "-o", "wide"])?
    );
    let mut done = deletions(&world.pods.history());
    done.retain(|d| d.at >= begin);

    title("Three candidates of an application hold an election");
    let hosts = ensemble.service();
    let mut candidates = Vec::new();
    for id in ["alice", "bob", "carol"] {
        let arguments = ["--hosts", &hosts, "--path", "/app/election", "--id", id];
        let client = clients.python(id, "kazoo_election.py", &arguments)?;
        candidates.push(client);
    }
    let manifest = Election::manifest("app", NAME, "/app/election", json!({ "type": "Kazoo" }));
    shown(&format!("kubectl apply -f - <<< '{manifest}'"));
    world.apply(&manifest)?;
    let election = Election::new(&world, "app");
    let first = agreed(&world, &election, &candidates)?;
    println!(
        "\n  {first} leads; its process is killed without notice. Its session lives on until it times out."
    );
    let place = candidates
        .iter()
        .position(|c| c.id() == first)
        .context("an unknown leader")?;
    let killed = Instant::now();
    candidates.remove(place).kill()?;
    let second = agreed(&world, &election, &candidates)?;
    println!(
        "\n  {second} leads, {:.1} s after the kill",
        killed.elapsed().as_secs_f64()
    );
    ensure!(first != second, "{first} still leads after its death");
    if let Some(camera) = &mut camera {
        camera.election()?;
    }

    summary(&verdict, &done, took, started.elapsed())?;
    println!(
        "\nThe cluster keeps running. Look around:\n\
         \n  cargo xtask cluster kubectl -n {NAMESPACE} get zke,le,pods -o wide\
         \n  cargo xtask cluster kubectl -n {NAMESPACE} describe zke {NAME}\
         \n  cargo xtask cluster kubectl -n bellwether-system logs deployment/bellwether\
         \n\nStop it, and nothing of it is left:\n\n  cargo xtask cluster down"
    );
    Ok(())
}

fn title(text: &str) {
    println!("\n== {text}\n");
}

fn shown(command: &str) {
    println!("  $ {command}\n");
}

/// Shows each change of the status until every one of `size` members serves.
fn follow(world: &World, size: u16, since: Instant) -> Result<()> {
    let mut last = String::new();
    let generation = || -> Result<Value> {
        Ok(world
            .kubectl
            .json(&["-n", NAMESPACE, "get", "zookeeperensembles", NAME])?["metadata"]["generation"]
            .take())
    };
    let wanted = generation()?;
    loop {
        if let Some(object) = world.ensembles.get(NAME) {
            let status = &object["status"];
            let line = line(status);
            if line != last {
                println!("  {:>6.1} s  {line}", since.elapsed().as_secs_f64());
                last = line;
            }
            let ready = status["phase"] == "Ready"
                && status["observedGeneration"] == wanted
                && status["readyReplicas"] == size;
            if ready {
                return Ok(());
            }
        }
        ensure!(
            since.elapsed() < PATIENCE,
            "not ready after {} s: {last}",
            PATIENCE.as_secs()
        );
        thread::sleep(LOOK);
    }
}

/// One line of a status: what is done, and every member with its role.
fn line(status: &Value) -> String {
    let members = status["members"].as_array().into_iter().flatten().map(|m| {
        let text = |key: &str| m[key].as_str().unwrap_or("-").to_owned();
        match text("role").as_str() {
            "Leader" => format!("[{} LEADS]", text("name")),
            "Follower" => text("name"),
            role => format!("({} {})", text("name"), role.to_lowercase()),
        }
    });
    let members: Vec<String> = members.collect();
    format!(
        "{}\n            {}",
        status["message"].as_str().unwrap_or("-"),
        members.join(" ")
    )
}

/// Waits until Kubernetes shows what the candidates' own library says, and shows it.
fn agreed(world: &World, election: &Election<'_>, candidates: &[Client<'_>]) -> Result<String> {
    let all: Vec<&Client<'_>> = candidates.iter().collect();
    let status = election.wait_agrees(&all, all.len())?;
    shown("kubectl get leaderelections");
    print!("{}", world.run(&["get", "leaderelections", "-o", "wide"])?);
    let queue = status["candidates"].as_array().into_iter().flatten();
    let queue: Vec<&str> = queue.filter_map(|c| c["identity"].as_str()).collect();
    println!("  queue: {}", queue.join(", "));
    Ok(status["leader"]["identity"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

fn summary(verdict: &Verdict, done: &[Deletion], took: Duration, whole: Duration) -> Result<()> {
    title("Summary");
    println!("  acknowledged writes        {}", verdict.acknowledged);
    println!(
        "  lost writes                {}",
        verdict.verified["lostCount"]
    );
    println!("  leader changes             {}", verdict.leader_changes());
    println!(
        "  longest gap between writes {:.2} s",
        verdict.longest_gap()
    );
    println!("  total of gaps over 0.3 s   {:.2} s", verdict.total_gap());
    println!("  three to five in           {:.1} s", took.as_secs_f64());
    let mut steps: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut order = Vec::new();
    for deletion in done {
        let Some(revision) = &deletion.replaced_by else {
            continue;
        };
        if !steps.contains_key(revision.as_str()) {
            order.push(revision.as_str());
        }
        let led = verdict.leader_at(deletion.at - 0.3).as_deref() == Some(deletion.pod.as_str());
        let word = format!("{}{}", deletion.pod, if led { " (leader)" } else { "" });
        steps.entry(revision).or_default().push(word);
    }
    for (number, revision) in order.iter().enumerate() {
        println!(
            "  restarts in step {}         {}",
            number + 1,
            steps[revision].join(", ")
        );
    }
    verdict.assert_safe()?;
    ensure!(
        verdict.acknowledged >= WRITES,
        "only {} writes",
        verdict.acknowledged
    );
    assert_leader_last(done, verdict)?;
    println!("  the leader restarted last in every step, and no acknowledged write was lost");
    println!("  the whole took             {:.0} s", whole.as_secs_f64());
    Ok(())
}
