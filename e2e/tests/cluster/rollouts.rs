//! Rollouts of applications: the leader's pod is the last one.

use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::clients::pod;
use bellwether_e2e::election::Election;
use bellwether_e2e::wait::{throughout, until};
use bellwether_e2e::world::World;
use serde_json::{Value, json};

use crate::projections::manifest;

const PATIENCE: Duration = Duration::from_secs(120);

/// Three candidates of kazoo's election, each under its pod's name, which resign when they are asked at port 8088.
pub(crate) fn candidates(hosts: &str, version: &str, command: &str) -> Value {
    let script = format!(
        "{command} exec python3 /clients/kazoo_election.py --hosts {hosts} --path /app --id $(hostname) --resign 8088"
    );
    let mut template = pod("web", &["sh", "-c", &script]);
    // A candidate that is told to end gives its session back.
    template["spec"]["terminationGracePeriodSeconds"] = json!(10);
    template["spec"]["containers"][0]["env"] = json!([{ "name": "VERSION", "value": version }]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 3,
            "serviceName": "web",
            "podManagementPolicy": "Parallel",
            "updateStrategy": { "type": "OnDelete" },
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": template["spec"] },
        },
    })
}

/// How often the leader changed, and who leads, when the rollout is over and all three are candidates.
pub(crate) fn at_rest(election: &Election<'_>) -> Result<(i64, String)> {
    until("the rollout is over", PATIENCE, || {
        let rolled_out = election.condition("RolledOut")?;
        let status = election.status()?;
        complete(&status)
            .filter(|_| rolled_out.0 == "True")
            .ok_or_else(|| format!("{rolled_out:?}: {status}"))
    })
}

/// How often the leader changed, and who leads, if all three are candidates.
pub(crate) fn complete(status: &Value) -> Option<(i64, String)> {
    let leader = status["leader"]["identity"].as_str()?;
    let changes = status["leaderTransitions"].as_i64()?;
    (status["candidateCount"] == 3).then(|| (changes, leader.to_owned()))
}

/// Fails unless the status says that this ended the last term.
pub(crate) fn ended_by(election: &Election<'_>, cause: &str) -> Result<()> {
    let history = election.status().map_err(anyhow::Error::msg)?["history"].take();
    let mut causes = history.as_array().into_iter().flatten();
    let told = causes.find_map(|change| change["cause"].as_str());
    ensure!(told == Some(cause), "no term ended by {cause}: {history}");
    Ok(())
}

/// Waits until every pod went, after so many before, and all are candidates again. The leader's went last, the leader
/// changed once, and the status says that its term was ended by `cause`. Returns how often it changed by then, and who leads.
pub(crate) fn rolled_out_leader_last(
    world: &World,
    election: &Election<'_>,
    past: usize,
    (before, leader): (i64, &String),
    cause: &str,
) -> Result<(i64, String)> {
    // What was told before the change still stands for a moment.
    until("the leader's pod went", PATIENCE, || {
        let gone = gone(world, past);
        (gone.len() >= 3).then_some(()).ok_or(format!("{gone:?}"))
    })?;
    let (after, next) = at_rest(election)?;
    let order = gone(world, past);
    ensure!(
        order.len() == 3 && order.last() == Some(leader),
        "{leader} led, and these went: {order:?}"
    );
    ensure!(
        after == before + 1 && next != *leader,
        "the leader changed {} times, from {leader} to {next}",
        after - before
    );
    ended_by(election, cause)?;
    Ok((after, next))
}

/// The names of the StatefulSet's pods that went, in order, after so many of them.
pub(crate) fn gone(world: &World, before: usize) -> Vec<String> {
    let mut uids = Vec::new();
    let mut names = Vec::new();
    for event in world.pods.history() {
        let going = event.deleted || !event.object["metadata"]["deletionTimestamp"].is_null();
        let of_set = event.object["metadata"]["labels"]["app"] == "web";
        if of_set && going && !uids.contains(&event.uid().to_owned()) {
            uids.push(event.uid().to_owned());
            names.push(event.name().to_owned());
        }
    }
    names.split_off(before)
}

/// A changed template replaces the followers and then the leader, which changes once. A disruption budget is heeded. A
/// template whose pods do not start costs one follower, and undoing it heals without another leader.
pub(crate) fn a_rollout_changes_the_leader_once_and_a_broken_one_never(
    world: &World,
) -> Result<()> {
    let hosts = world.small_ensemble(1)?.service();
    world.apply(&candidates(&hosts, "1", ""))?;
    let binding = json!({ "selector": { "matchLabels": { "app": "web" } } });
    let rollout = json!({ "rollout": { "workload": { "kind": "StatefulSet", "name": "web" } } });
    let mut object = manifest("app", "/app", rollout);
    object["spec"]["podBinding"] = binding;
    let election = world.adopt_election(&object)?;
    let (_, first) = at_rest(&election)?;
    // A leader in the middle is what no order by ordinals spares.
    for pod in ["web-0", "web-2"] {
        world.run(&["delete", "pod", pod])?;
    }
    until("web-1 leads", PATIENCE, || {
        let leader = election.view()?.0;
        (leader.as_deref() == Some("web-1"))
            .then_some(())
            .ok_or(format!("{leader:?}, and first {first}"))
    })?;
    let (before, leader) = at_rest(&election)?;
    let past = gone(world, 0).len();

    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": "web" },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "web" } } },
    });
    world.apply(&budget)?;
    until("the budget counts", PATIENCE, || {
        let text = world.run(&["get", "pdb", "web", "-o", "jsonpath={.status.expectedPods}"]);
        let text = text.map_err(|e| e.to_string())?;
        (text == "3").then_some(()).ok_or(text)
    })?;
    world.apply(&candidates(&hosts, "2", ""))?;
    election.wait_condition("RolledOut", "False", "EvictionRefused")?;
    ensure!(gone(world, past).is_empty(), "the budget was not heeded");
    world.run(&["delete", "pdb", "web"])?;
    let (after, second) =
        rolled_out_leader_last(world, &election, past, (before, &leader), "RolledOut")?;

    world.apply(&candidates(&hosts, "3", "exit 1;"))?;
    let stops = |message: &str| message.contains("Not ready: ");
    until("the rollout stops", PATIENCE, || {
        let message = election.message("RolledOut")?;
        stops(&message).then_some(()).ok_or(message)
    })?;
    throughout("one follower is down", Duration::from_secs(10), || {
        let gone = gone(world, past + 3);
        (gone.len() == 1 && !gone.contains(&second))
            .then_some(())
            .ok_or(format!("{gone:?}"))
    })?;
    world.run(&["rollout", "undo", "statefulset/web"])?;
    until("the follower is back", PATIENCE, || {
        let gone = gone(world, past + 3);
        (gone.len() == 2).then_some(()).ok_or(format!("{gone:?}"))
    })?;
    let (last, third) = at_rest(&election)?;
    ensure!(
        last == after && third == second,
        "an undone rollout changed the leader from {second} to {third}"
    );
    Ok(())
}
