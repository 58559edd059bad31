//! The forecast of a change against the life of an ensemble under the real operator in which nothing goes
//! wrong: the same pods restart, come and go, in the same order.
//!
//! Both run the real planner and the real executor. What this test holds together is what these act on: the
//! small world of the forecast, and the API server, controllers, kubelets and servers of the simulation.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::process::{Command, Stdio};

use bellwether_api::{ZooKeeperEnsemble, ZooKeeperEnsembleSpec};
use bellwether_ensemble::forecast::{Event, forecast};
use bellwether_ensemble::validate::{Context, ValidEnsemble, validate};
use bellwether_ensemble::world::faults::NoFaults;
use bellwether_ensemble::world::{Pod, World};
use bellwether_ensemble::{ServerId, plan};
use bellwether_simulation::life::Story;
use serde_json::{Value, json};

/// A life in which the user asks for the one and then for the other. A life replaces the clock of its
/// process, so it has a process of its own.
fn live(seed: u64, changes: [&Value; 2]) -> Story {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
    command.args(["--child", "--seed", &seed.to_string()]);
    for fields in changes {
        command.args(["--apply", &fields.to_string()]);
    }
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// What happened to pods from the second change on, and who led: before it, and after each election since.
fn happened(story: &Story) -> (Vec<String>, Vec<ServerId>) {
    let is_change = |line: &String| line.contains(" DEED Spec(");
    let change = story.lines.iter().position(is_change).unwrap();
    let (before, after) = story.lines.split_at(change);
    let elected = |line: &String| {
        let (_, server) = line.split_once("server ")?;
        let id = server.strip_suffix(" leads and serves")?.parse().ok()?;
        Some(ServerId(id))
    };
    let first = before.iter().filter_map(elected).next_back();
    let leaders = first.into_iter().chain(after.iter().filter_map(elected));
    let leaders = leaders.collect();
    let mut events = Vec::new();
    let mut restarts = "";
    for line in after {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, actor, verb, "Pod", pod] = words[..] else {
            continue;
        };
        match (actor, verb) {
            ("statefulset-controller", "Create") if restarts == pod => restarts = "",
            ("statefulset-controller", "Create") => events.push(format!("{pod} is created")),
            ("statefulset-controller", "Delete") => events.push(format!("{pod} is removed")),
            (_, "Delete") => {
                restarts = pod;
                events.push(format!("{pod} restarts"));
            }
            _ => {}
        }
    }
    (events, leaders)
}

fn valid(fields: &Value) -> ValidEnsemble {
    let spec: ZooKeeperEnsembleSpec = serde_json::from_value(fields.clone()).unwrap();
    let mut ensemble = ZooKeeperEnsemble::new("zk", spec);
    ensemble.metadata.namespace = Some("default".to_owned());
    let context = Context {
        member_image: "bellwether:1".to_owned(),
        version: "1".to_owned(),
        ..Context::default()
    };
    validate(&ensemble, &context).unwrap()
}

/// The events of pods among all.
fn of_pods(events: &[Event]) -> Vec<String> {
    let event = |event: &Event| match event {
        Event::Create { pod } => Some(format!("{pod} is created")),
        Event::Remove { pod, .. } => Some(format!("{pod} is removed")),
        Event::Restart { pod, .. } => Some(format!("{pod} restarts")),
        Event::Configure { .. } | Event::Agree { .. } | Event::Grow { .. } => None,
    };
    events.iter().filter_map(event).collect()
}

/// Lets passes follow until nothing moves any more. Who wins an election depends on the last writes and on
/// milliseconds, so where the world elects a leader, the one that the life elected takes its place.
fn settle(world: &mut World<NoFaults>, mut leaders: &[ServerId]) {
    let mut quiet = 0;
    while quiet < 8 {
        let (plan, epoch) = (plan(&world.ensemble, &world.observe()), world.epoch);
        let moved = world.pass(&plan).unwrap();
        quiet = if moved { 0 } else { quiet + 1 };
        if let (true, [leader, rest @ ..]) = (world.epoch != epoch, leaders) {
            lead(world, *leader);
            leaders = rest;
        }
    }
}

/// All who serve follow this leader, if it is one of them.
fn lead(world: &mut World<NoFaults>, leader: ServerId) {
    let serves = |pod: &Pod| pod.following.is_some();
    if world.pods.get(&leader).is_some_and(serves) {
        for pod in world.pods.values_mut().filter(|pod| serves(pod)) {
            pod.following = Some(leader);
        }
    }
}

/// What happens to pods in the world of the forecast under these leaders.
fn foretold(old: &Value, new: &Value, leaders: &[ServerId]) -> Vec<String> {
    let mut world = World::new(valid(old), NoFaults);
    settle(&mut world, &[]);
    lead(&mut world, leaders[0]);
    world.events.clear();
    world.ensemble = valid(new);
    settle(&mut world, &leaders[1..]);
    of_pods(&world.events)
}

/// The forecast up to the end of the first leader: it knows no later one.
fn forecast_until_election(old: &Value, new: &Value, leader: ServerId) -> Vec<String> {
    let forecast = forecast(Some(&valid(old)), &valid(new), Some(leader));
    assert!(forecast.complete, "{forecast:?}");
    let leads = |event: &Event| matches!(event, Event::Restart { leads: true, .. });
    let last = forecast.events.iter().position(leads).unwrap();
    of_pods(&forecast.events[..=last])
}

#[test]
fn the_forecast_of_a_change_is_what_the_operator_does() {
    let three = json!({ "replicas": 3 });
    let changes = [
        (three.clone(), json!({ "replicas": 5 })),
        (json!({ "replicas": 5 }), three.clone()),
        (json!({ "replicas": 1 }), three.clone()),
        (
            three.clone(),
            json!({ "replicas": 3, "config": { "snapCount": 5000 } }),
        ),
        (
            three,
            json!({ "replicas": 3, "image": "mirror.example/zookeeper:3.9.5" }),
        ),
    ];
    for (old, new) in &changes {
        for seed in 1..=2 {
            let story = live(seed, [old, new]);
            let what = format!("seed {seed}, {old} -> {new}");
            assert!(story.violations.is_empty(), "{what}: {}", story.text());
            let (happened, leaders) = happened(&story);
            assert_eq!(
                happened,
                foretold(old, new, &leaders),
                "{what}: {leaders:?}"
            );
            let begin = forecast_until_election(old, new, leaders[0]);
            assert_eq!(happened[..begin.len()], begin, "{what}: {leaders:?}");
        }
    }
}
