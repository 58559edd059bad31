//! A new ensemble: from `kubectl apply` until it serves.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::in_namespace;
use super::table::median;
use crate::history::is_ready;
use crate::kubectl::Kubectl;
use crate::world::World;

/// The size of the ensemble.
const SIZE: usize = 3;
/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often what a watch has seen is looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// What happens to every pod, and whether it has.
type Step = (&'static str, fn(&Value) -> bool);

/// All steps, in order.
const STEPS: [Step; 6] = [
    ("created", |_| true),
    ("scheduled", |pod| pod["spec"]["nodeName"].is_string()),
    ("prepares", |pod| {
        let state = preparation(pod);
        state["running"].is_object() || state["terminated"].is_object()
    }),
    ("prepared", |pod| preparation(pod)["terminated"].is_object()),
    ("runs", |pod| server(pod)["running"].is_object()),
    ("serves", is_ready),
];

/// The state of the container that prepares the volume.
fn preparation(pod: &Value) -> &Value {
    &pod["status"]["initContainerStatuses"][0]["state"]
}

/// The state of the server.
fn server(pod: &Value) -> &Value {
    let containers = pod["status"]["containerStatuses"].as_array();
    let mut containers = containers.into_iter().flatten();
    let server = containers.find(|container| container["name"] == "zookeeper");
    server.map_or(&Value::Null, |server| &server["state"])
}

/// Measures it, and prints each run and the medians.
///
/// # Errors
/// When an ensemble does not start.
pub fn run(kubectl: &Kubectl, repetitions: u16) -> Result<()> {
    let names = STEPS.iter().map(|(name, _)| format!("{name:>10}"));
    println!("== From apply, with all defaults, until every pod of {SIZE} ..., in s\n");
    println!("          {}     Ready", names.collect::<String>());
    let mut runs: Vec<Vec<f64>> = Vec::new();
    for repetition in 1..=repetitions {
        let namespace = format!("bench-start-{repetition}");
        let seconds = in_namespace(kubectl, &namespace, once)?;
        println!("{}", line(&repetition.to_string(), &seconds));
        runs.push(seconds);
    }
    let of_step = |step: usize| {
        median(
            runs.iter()
                .filter_map(|run| run.get(step))
                .copied()
                .collect(),
        )
    };
    let medians: Vec<f64> = (0..=STEPS.len()).map(of_step).collect();
    println!("{}", line("median", &medians));
    Ok(())
}

/// When every pod was at each step, and when the ensemble was Ready, in seconds since `apply`.
fn once(world: &World) -> Result<Vec<f64>> {
    let spec = json!({ "replicas": SIZE, "storage": { "reclaimPolicy": "Delete" } });
    let begin = Instant::now();
    world.ensemble("main", spec)?;
    let mut reached = Vec::new();
    while reached.len() <= STEPS.len() {
        let pods = world.pods.all();
        let now = match STEPS.get(reached.len()) {
            Some((_, is_there)) => pods.iter().filter(|pod| is_there(pod)).count() == SIZE,
            None => world
                .ensembles
                .get("main")
                .is_some_and(|object| is_ready(&object)),
        };
        if now {
            reached.push(begin.elapsed().as_secs_f64());
        } else {
            ensure!(begin.elapsed() < PATIENCE, "it does not start: {pods:?}");
            sleep(INTERVAL);
        }
    }
    Ok(reached)
}

fn line(run: &str, seconds: &[f64]) -> String {
    let seconds = seconds.iter().map(|seconds| format!("{seconds:>10.1}"));
    format!("{run:>10}{}", seconds.collect::<String>())
}
