//! Changes of the leader when the pods of an application are replaced.
//!
//! Five candidates of an application's election get another template: as a StatefulSet and as a Deployment that Kubernetes rolls,
//! as a StatefulSet whose pods Bellwether replaces, and as a Deployment with the deletion cost that it sets. Which pod leads before
//! differs from one repetition to the next, in the same way for all.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::in_namespace;
use crate::clients::pod_of;
use crate::election::Election;
use crate::ensemble::Ensemble;
use crate::kubectl::Kubectl;
use crate::wait::until;
use crate::watch::Event;
use crate::world::World;

const SIZE: usize = 5;
const JAVA: &str = "java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC";
const PATIENCE: Duration = Duration::from_secs(300);

/// Whose election it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// A program with kazoo's election, which ends its session when it is told to end.
    Kazoo,
    /// A program with Curator's latch, whose session lives on for as long as the ensemble grants.
    Curator,
    /// The masters of Spark, which say nothing of themselves: a candidate's pod is known by the address of its connection.
    Spark,
}

impl FromStr for Application {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "kazoo" => Self::Kazoo,
            "curator" => Self::Curator,
            "spark" => Self::Spark,
            other => bail!("there is no application {other}"),
        })
    }
}

impl Application {
    fn dialect(self) -> Value {
        json!({ "type": match self {
            Self::Kazoo => "Kazoo",
            Self::Curator | Self::Spark => "CuratorLatch",
        } })
    }

    /// The directory of the candidates.
    fn path(self) -> &'static str {
        match self {
            Self::Kazoo | Self::Curator => "/app",
            Self::Spark => "/spark/leader_election",
        }
    }

    /// A pod with one candidate, ready when the candidate has begun.
    fn pod(self, hosts: &str) -> Value {
        let (image, program, probe) = match self {
            Self::Kazoo => (
                "clients",
                format!(
                    "python3 /clients/kazoo_election.py --hosts {hosts} --path /app --id $(hostname)"
                ),
                json!({ "exec": { "command": ["true"] }, "initialDelaySeconds": 2 }),
            ),
            Self::Curator => (
                "clients",
                format!("{JAVA} -Dsession=6000 LatchClient {hosts} /app $(hostname)"),
                json!({ "exec": { "command": ["true"] }, "initialDelaySeconds": 2 }),
            ),
            Self::Spark => (
                "spark",
                format!(
                    "{JAVA} -Dspark.deploy.recoveryMode=ZOOKEEPER -Dspark.deploy.zookeeper.url={hosts} \
                     -Dspark.deploy.zookeeper.dir=/spark org.apache.spark.deploy.master.Master \
                     --host $(hostname -i) --webui-port 8080"
                ),
                json!({ "httpGet": { "port": 8080 } }),
            ),
        };
        let mut pod = pod_of(image, "web", &["sh", "-c", &format!("exec {program}")]);
        // A candidate that is told to end gives its session back, if it does so at all.
        pod["spec"]["terminationGracePeriodSeconds"] = json!(10);
        pod["spec"]["containers"][0]["readinessProbe"] = probe;
        pod["spec"]["containers"][0]["readinessProbe"]["periodSeconds"] = json!(1);
        pod
    }
}

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
    /// For how long nobody led.
    leaderless: Duration,
    wall: Duration,
}

/// Measures every way so often, and prints the table.
///
/// # Errors
/// When a run could not be carried out.
pub fn run(kubectl: &Kubectl, repetitions: u16, application: Application) -> Result<()> {
    let mut rolled = Vec::new();
    println!("  run  way                      leader changes  without a leader s  wall s");
    for repetition in 1..=repetitions {
        for way in WAYS {
            let namespace = format!("bench-rollouts-{}-{repetition}", way as u8);
            let one = in_namespace(kubectl, &namespace, |world| {
                once(world, application, way, repetition)
            })?;
            println!("{repetition:5}  {}", line(&one));
            rolled.push(one);
        }
    }
    println!();
    for way in WAYS {
        let of_way = || rolled.iter().filter(|one| one.way == way);
        let changes: Vec<usize> = of_way().map(|one| one.changes).collect();
        let leaderless = median(of_way().map(|one| one.leaderless));
        let wall = median(of_way().map(|one| one.wall));
        println!(
            "{way}: the leader changed {changes:?} times; medians: {leaderless:.2} s without a leader, {wall:.1} s in all"
        );
    }
    Ok(())
}

/// The one in the middle, in seconds.
fn median(times: impl Iterator<Item = Duration>) -> f64 {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times
        .get(times.len() / 2)
        .map_or(0.0, Duration::as_secs_f64)
}

fn line(one: &Rolled) -> String {
    let (without, wall) = (one.leaderless.as_secs_f64(), one.wall.as_secs_f64());
    let way = one.way.to_string();
    format!("{way:24} {:14} {without:19.2} {wall:7.1}", one.changes)
}

/// The workload of candidates, of this version.
fn workload(application: Application, way: Way, hosts: &str, version: u32) -> Value {
    let mut template = application.pod(hosts);
    template["spec"]["containers"][0]["env"] =
        json!([{ "name": "VERSION", "value": version.to_string() }]);
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

fn once(world: &World, application: Application, way: Way, repetition: u16) -> Result<Rolled> {
    let mut spec = Ensemble::small(1);
    // Spark asks for a minute.
    spec["config"]["maxSessionTimeout"] = json!(6000);
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(1)?;
    let hosts = ensemble.service();
    world.apply(&workload(application, way, &hosts, 1))?;
    let mut object = Election::manifest("app", "main", application.path(), application.dialect());
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
    wait_all(world, &election)?;
    // Another pod leads in each repetition.
    for _ in 0..repetition % 5 {
        let leader = wait_all(world, &election)?;
        world.run(&["delete", "pod", &leader.pod])?;
        until("another candidate leads", PATIENCE, || {
            let token = Election::token(&election.status()?);
            (token > leader.token)
                .then_some(())
                .ok_or(format!("{token} leads"))
        })?;
    }
    wait_all(world, &election)?;
    let (began, wall) = (SystemTime::now(), Instant::now());
    world.apply(&workload(application, way, &hosts, 2))?;
    until("every pod is a new one", PATIENCE, || {
        let pods = pods(world);
        let is_new = |pod: &&Value| {
            pod["spec"]["containers"][0]["env"][0]["value"] == "2"
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let new = pods.iter().filter(is_new).count();
        (new == SIZE && pods.len() == SIZE)
            .then_some(())
            .ok_or(format!("{new} of {} pods are new", pods.len()))
    })?;
    wait_all(world, &election)?;
    if way == Way::Bellwether {
        election.wait_condition("RolledOut", "True", "Replaced")?;
    }
    let wall = wall.elapsed();
    let (changes, leaderless) = leaders(world, began);
    Ok(Rolled {
        way,
        changes,
        leaderless,
        wall,
    })
}

/// The pods of the workload.
fn pods(world: &World) -> Vec<Value> {
    let mut pods = world.pods.all();
    pods.retain(|pod| pod["metadata"]["labels"]["app"] == "web");
    pods
}

/// Who leads.
struct Leader {
    pod: String,
    token: u64,
}

/// Waits until each pod has one candidate, and one of them leads.
fn wait_all(world: &World, election: &Election<'_>) -> Result<Leader> {
    until("all candidates stand", PATIENCE, || {
        let status = election.status()?;
        let pods = pods(world);
        let of = |candidate: &Value| {
            let pod = pods.iter().find(|pod| is_in(candidate, pod))?;
            pod["metadata"]["name"].as_str().map(str::to_owned)
        };
        let candidates = status["candidates"].as_array().into_iter().flatten();
        let stand: BTreeSet<_> = candidates.filter_map(of).collect();
        let leader = of(&status["leader"]);
        match leader {
            Some(pod) if stand.len() == SIZE && status["candidateCount"] == SIZE => Ok(Leader {
                pod,
                token: Election::token(&status),
            }),
            leader => Err(format!("{leader:?} leads {stand:?}: {status}")),
        }
    })
}

/// How often another term began since then, and for how long nobody led: the status named no leader, or one whose pod had ended
/// while its session lived on.
fn leaders(world: &World, began: SystemTime) -> (usize, Duration) {
    let pods = world.pods.history();
    let mut changes = 0;
    let mut leaderless = Duration::ZERO;
    let mut none_since = None;
    // The token of the leader, and its pod.
    let mut led: Option<(u64, Option<String>)> = None;
    for event in world.elections.history() {
        let status = &event.object["status"];
        if status["leader"].is_null() {
            none_since.get_or_insert(event.at);
            continue;
        }
        let token = Election::token(status);
        let mut since = none_since.take();
        let is_next = led.as_ref().is_none_or(|(last, _)| *last != token);
        if is_next {
            let pod = led.and_then(|(_, pod)| pod);
            since = since
                .into_iter()
                .chain(pod.and_then(|pod| end(&pods, &pod)))
                .min();
            led = Some((token, None));
        }
        // The address of a connection may be known later than the leader.
        if let Some((_, pod @ None)) = &mut led {
            *pod = uid(&pods, &status["leader"], event.at);
        }
        if event.at < began {
            continue;
        }
        changes += usize::from(is_next);
        if let Some(since) = since {
            leaderless += event.at.duration_since(since).unwrap_or_default();
        }
    }
    (changes, leaderless)
}

/// The uid of the pod that a candidate runs in, as it was then.
fn uid(pods: &[Event], candidate: &Value, at: SystemTime) -> Option<String> {
    let seen = pods.iter().rev().filter(|event| event.at <= at);
    let mut of = seen.filter(|event| is_in(candidate, &event.object));
    of.next().map(|event| event.uid().to_owned())
}

/// When the pod's containers had ended.
fn end(pods: &[Event], uid: &str) -> Option<SystemTime> {
    let mut of = pods.iter().filter(|event| event.uid() == uid);
    let has_ended = |event: &&Event| {
        let container = &event.object["status"]["containerStatuses"][0];
        event.deleted || container["state"]["terminated"].is_object()
    };
    of.find(has_ended).map(|event| event.at)
}

/// Whether a candidate runs in this pod: it bears its name, or is connected from its address.
fn is_in(candidate: &Value, pod: &Value) -> bool {
    let address = &pod["status"]["podIP"];
    candidate["identity"] == pod["metadata"]["name"]
        || address.is_string() && candidate["clientAddress"] == *address
}
