//! The command line of people, against a cluster: its status is true, its plans come true, and its
//! actions take effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::page::program;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(180);
/// What no bundle may hold.
const SECRET: &str = "nobody-may-read-this";

/// What a command prints, in the namespace of the test. It has to succeed.
pub(crate) fn says(world: &World, words: &[&str]) -> Result<String> {
    let mut command = program(words)?;
    command.args(["-n", &world.namespace]);
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{words:?}: {errors}{text}");
    Ok(text)
}

/// How often each pod is made, at first or in the place of another.
type Made = BTreeMap<String, usize>;

/// How often a plan makes each pod.
fn planned(plan: &str) -> Made {
    let mut made = Made::new();
    for line in plan.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [number, "pod", pod, rest @ ..] = &words[..]
            && number.ends_with('.')
            && rest
                .iter()
                .any(|word| ["created", "restarts:", "restarts"].contains(word))
        {
            *made
                .entry(pod.trim_end_matches(',').to_owned())
                .or_default() += 1;
        }
    }
    made
}

/// What became of it: pods that are in the history after so many events, and not before.
fn made(world: &World, before: usize) -> Made {
    let history = world.pods.history();
    let known: BTreeSet<&str> = history[..before].iter().map(|event| event.uid()).collect();
    let mut seen = BTreeMap::new();
    for event in &history[before..] {
        let (name, uid) = (event.name().to_owned(), event.uid().to_owned());
        let is_member = event.object["metadata"]["labels"]["app.kubernetes.io/name"] == "zookeeper";
        if is_member && !known.contains(&*uid) {
            seen.insert(uid, name);
        }
    }
    let mut made = Made::new();
    for name in seen.into_values() {
        *made.entry(name).or_default() += 1;
    }
    made
}

pub(crate) fn people_see_plan_and_act(world: &World) -> Result<()> {
    let ensemble = world.small_ensemble(1)?;
    let status: Value = serde_json::from_str(&says(world, &["status", "main", "-o", "json"])?)?;
    ensure!(
        status["status"]["phase"] == "Ready" && status["pods"]["main-0"]["ready"] == true,
        "{status}"
    );
    let status = says(world, &["status", "main"])?;
    ensure!(status.contains("\nleader\tmain-0\n"), "{status}");

    // Pause, resume, restart.
    let paused = |paused: bool| {
        until("the spec says so", PATIENCE, || {
            match ensemble.object()? {
                object if object["spec"]["paused"] == paused => Ok(()),
                object => Err(object["spec"].to_string()),
            }
        })
    };
    says(world, &["pause", "main"])?;
    paused(true)?;
    says(world, &["resume", "main"])?;
    paused(false)?;
    let before = ensemble.uids();
    says(world, &["restart", "main", "--dry-run"])?;
    let said = says(world, &["restart", "main"])?;
    ensure!(said.contains("only member restarts"), "{said}");
    until("it has restarted", PATIENCE, || {
        let now = ensemble.uids();
        let all = now.len() == 1 && before.iter().all(|(pod, uid)| now.get(pod) != Some(uid));
        all.then_some(())
            .ok_or(format!("{before:?} became {now:?}"))
    })?;
    ensemble.wait_ready(1)?;

    // The plan names every pod that is made or restarted, as often as that happens.
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("three.json");
    fs::write(
        &file,
        Ensemble::manifest("main", Ensemble::small(3)).to_string(),
    )?;
    let plan = says(world, &["plan", &file.to_string_lossy()])?;
    ensure!(plan.contains("/main: 1 -> 3 members\n"), "{plan}");
    let before = world.pods.history().len();
    ensemble.scale(3)?;
    ensemble.wait_ready(3)?;
    let (planned, made) = (planned(&plan), made(world, before));
    ensure!(
        planned == made,
        "planned {planned:?}, and it was {made:?}:\n{plan}"
    );

    // Elections, and the support bundle.
    let election = world.election("app", "/app", json!({ "type": "Kazoo" }))?;
    election.wait_condition("LeaderElected", "False", "NoElection")?;
    let elections = says(world, &["elections"])?;
    ensure!(elections.contains("app\tKazoo\t"), "{elections}");
    let timeline = says(world, &["timeline", "--since", "1h"])?;
    ensure!(timeline.contains("Changes: 0, elections: 0"), "{timeline}");
    world.apply(
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": { "name": "secret" },
        "stringData": { "password": SECRET }}),
    )?;
    let bundle = folder.path().join("bundle.tar.gz");
    says(world, &["support-bundle", "-o", &bundle.to_string_lossy()])?;
    let tar = |words: &str| -> Result<String> {
        let output = Command::new("tar").arg(words).arg(&bundle).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (names, content) = (tar("-tzf")?, tar("-xzOf")?);
    for part in ["members/main-0", "members/main-2"] {
        ensure!(names.contains(part), "there is no {part} in {names}");
    }
    ensure!(content.contains("Zookeeper version:"), "no server answered");
    // In base64 it begins like this.
    let hidden = ["bm9ib2R5LW1heS1yZWFkLXRoaX", SECRET];
    ensure!(
        hidden.iter().all(|text| !content.contains(text)),
        "it holds a Secret"
    );
    Ok(())
}
