//! Changes of the leader when the pods of an application are replaced.
//!
//! Five candidates of kazoo's election get another template: as a StatefulSet and as a Deployment that Kubernetes rolls, as a
//! StatefulSet whose pods Bellwether replaces, and as a Deployment with the deletion cost that it sets. Which pod leads before differs from one repetition to the next, in the same
//! way for all.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use serde_json::{Value, json};

use super::in_namespace;
use crate::clients::pod;
use crate::election::Election;
use crate::ensemble::Ensemble;
use crate::kubectl::Kubectl;
use crate::wait::until;
use crate::world::World;

const SIZE: usize = 5;
const PATIENCE: Duration = Duration::from_secs(300);

/// How the pods are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Bellwether,
    StatefulSet,
    Deployment,
    /// By Kubernetes, with the deletion cost that Bellwether sets.
    CostlyDeployment,
}

const WAYS: [Way; 4] = [
    Way::Bellwether,
    Way::StatefulSet,
    Way::CostlyDeployment,
    Way::Deployment,
];

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bellwether => "StatefulSet, Bellwether",
            Self::StatefulSet => "StatefulSet, Kubernetes",
            Self::Deployment => "Deployment, Kubernetes",
            Self::CostlyDeployment => "Deployment, cost",
        })
    }
}

/// One rollout.
struct Rolled {
    way: Way,
    changes: usize,
    /// For how long the status named no leader.
    leaderless: Duration,
    wall: Duration,
}

/// Measures every way so often, and prints the table.
///
/// # Errors
/// When a run could not be carried out.
pub fn run(kubectl: &Kubectl, repetitions: u16) -> Result<()> {
    let mut rolled = Vec::new();
    println!("  run  way                      leader changes  without a leader s  wall s");
    for repetition in 1..=repetitions {
        for way in WAYS {
            let namespace = format!("bench-rollouts-{}-{repetition}", way as u8);
            let one = in_namespace(kubectl, &namespace, |world| once(world, way, repetition))?;
            println!("{repetition:5}  {}", line(&one));
            rolled.push(one);
        }
    }
    println!();
    for way in WAYS {
        let mut changes: Vec<usize> = Vec::new();
        let of_way = rolled.iter().filter(|one| one.way == way);
        changes.extend(of_way.map(|one| one.changes));
        println!("{way}: the leader changed {changes:?} times");
    }
    Ok(())
}

fn line(one: &Rolled) -> String {
    let (without, wall) = (one.leaderless.as_secs_f64(), one.wall.as_secs_f64());
    let way = one.way.to_string();
    format!("{way:24} {:14} {without:19.2} {wall:7.1}", one.changes)
}

/// The workload of candidates, of this version.
fn workload(way: Way, hosts: &str, version: u32) -> Value {
    let script = format!(
        "exec python3 /clients/kazoo_election.py --hosts {hosts} --path /app --id $(hostname)"
    );
    let mut template = pod("web", &["sh", "-c", &script]);
    // A candidate that is told to end gives its session back.
    template["spec"]["terminationGracePeriodSeconds"] = json!(10);
    template["spec"]["containers"][0]["env"] =
        json!([{ "name": "VERSION", "value": version.to_string() }]);
    // An application is ready when it has begun, not when its process exists.
    template["spec"]["containers"][0]["readinessProbe"] =
        json!({ "exec": { "command": ["true"] }, "initialDelaySeconds": 2, "periodSeconds": 1 });
    let strategy = match way {
        Way::Bellwether => "OnDelete",
        Way::StatefulSet | Way::Deployment | Way::CostlyDeployment => "RollingUpdate",
    };
    let mut spec = json!({
        "replicas": SIZE,
        "selector": { "matchLabels": { "app": "web" } },
        "template": { "metadata": { "labels": { "app": "web" } }, "spec": template["spec"] },
    });
    let kind = match way {
        Way::Deployment | Way::CostlyDeployment => "Deployment",
        Way::Bellwether | Way::StatefulSet => {
            spec["serviceName"] = json!("web");
            spec["podManagementPolicy"] = json!("Parallel");
            spec["updateStrategy"] = json!({ "type": strategy });
            "StatefulSet"
        }
    };
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": "web" }, "spec": spec })
}

fn once(world: &World, way: Way, repetition: u16) -> Result<Rolled> {
    let ensemble = world.ensemble("main", Ensemble::small(1))?;
    ensemble.wait_ready(1)?;
    let hosts = ensemble.service();
    world.apply(&workload(way, &hosts, 1))?;
    let mut object = Election::manifest("app", "main", "/app", json!({ "type": "Kazoo" }));
    object["spec"]["podBinding"] = json!({ "selector": { "matchLabels": { "app": "web" } } });
    match way {
        Way::Bellwether => {
            object["spec"]["projections"] =
                json!({ "rollout": { "workload": { "kind": "StatefulSet", "name": "web" } } });
        }
        Way::CostlyDeployment => {
            object["spec"]["projections"] = json!({ "podLabels": { "deletionCost": true } });
        }
        Way::StatefulSet | Way::Deployment => {}
    }
    let election = world.adopt_election(&object)?;
    wait_all(&election)?;
    // Another pod leads in each repetition.
    for _ in 0..repetition % 5 {
        let leader = wait_all(&election)?;
        world.run(&["delete", "pod", &leader])?;
        wait_other(&election, &leader)?;
    }
    let before = wait_all(&election)?;
    let (began, wall) = (SystemTime::now(), Instant::now());
    world.apply(&workload(way, &hosts, 2))?;
    until("every pod is a new one", PATIENCE, || {
        let all = world.pods.all();
        let is_new = |pod: &&Value| {
            pod["metadata"]["labels"]["app"] == "web"
                && pod["spec"]["containers"][0]["env"][0]["value"] == "2"
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let new = all.iter().filter(is_new).count();
        let of_workload = |pod: &&Value| pod["metadata"]["labels"]["app"] == "web";
        match new == SIZE && all.iter().filter(of_workload).count() == SIZE {
            true => Ok(()),
            false => Err(format!("{new} of {} pods are new", all.len())),
        }
    })?;
    wait_all(&election)?;
    if way == Way::Bellwether {
        election.wait_condition("RolledOut", "True", "Replaced")?;
    }
    let wall = wall.elapsed();
    let (changes, leaderless) = leaders(world, began, &before);
    Ok(Rolled {
        way,
        changes,
        leaderless,
        wall,
    })
}

/// Waits until all candidates stand and one leads, and returns that.
fn wait_all(election: &Election<'_>) -> Result<String> {
    until("all candidates stand", PATIENCE, || {
        let (leader, queue) = election.view()?;
        match leader {
            Some(leader) if queue.len() == SIZE => Ok(leader),
            leader => Err(format!("{leader:?} leads {queue:?}")),
        }
    })
}

fn wait_other(election: &Election<'_>, leader: &str) -> Result<()> {
    until("another candidate leads", PATIENCE, || {
        let now = election.view()?.0;
        match now.as_deref() {
            Some(now) if now != leader => Ok(()),
            now => Err(format!("{now:?} leads")),
        }
    })
}

/// How often the leader changed since then, and for how long the status named none.
fn leaders(world: &World, began: SystemTime, before: &str) -> (usize, Duration) {
    let mut last = before.to_owned();
    let mut changes = 0;
    let mut none_since = None;
    let mut leaderless = Duration::ZERO;
    let history = world.elections.history();
    for event in history.iter().filter(|event| event.at >= began) {
        match event.object["status"]["leader"]["identity"].as_str() {
            None => {
                none_since.get_or_insert(event.at);
            }
            Some(leader) => {
                if let Some(since) = none_since.take() {
                    leaderless += event.at.duration_since(since).unwrap_or_default();
                }
                if leader != last {
                    changes += 1;
                    leader.clone_into(&mut last);
                }
            }
        }
    }
    (changes, leaderless)
}
