//! One scenario for each of the documents that the project implements; that of the ensemble is
//! scenario 2 in `scenarios`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bellwether_e2e::clients::Client;
use bellwether_e2e::election::Election;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// Locks and leader election: all candidates create the same node, the first one wins, and its
/// death wakes all the others.
pub(crate) fn the_unfair_election_has_one_leader_and_a_herd(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let mut all = Vec::new();
    for id in ["a", "b", "c", "d"] {
        let arguments = ["--hosts", &hosts, "--path", "/zkroot/leader", "--id", id];
        all.push(clients.python(id, "unfair.py", &arguments)?);
    }
    let election = world.election("unfair", "/zkroot/leader", json!({ "type": "SingleText" }))?;
    let mut token = 0;
    // Each round kills the leader; any of the others may win.
    while all.len() > 1 {
        let everybody: Vec<&Client<'_>> = all.iter().collect();
        let status = election.wait_agrees(&everybody, 1)?;
        ensure!(
            status["candidateCount"] == 1,
            "one node is one candidate: {status}"
        );
        let now = Election::token(&status);
        ensure!(now > token, "the fencing token went from {token} to {now}");
        token = now;
        let waiting = all.len() - 1;
        until("the herd is counted", PATIENCE, || {
            let status = election.status()?;
            if status["watchers"] == waiting {
                Ok(())
            } else {
                Err(format!("{waiting} wait, and the status is {status}"))
            }
        })?;
        let leader = status["leader"]["identity"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let place = all
            .iter()
            .position(|c| c.id() == leader)
            .context("an unknown leader")?;
        all.remove(place).kill()?;
    }
    let last = all.pop().context("nobody is left")?;
    election.wait_agrees(&[&last], 1)?;
    last.stop()?;
    // No candidate is left: the status reports no leader instead of the last one.
    until("nobody leads", PATIENCE, || {
        let (leader, queue) = election.view()?;
        if leader.is_none() && queue.is_empty() {
            Ok(())
        } else {
            Err(format!("{leader:?}"))
        }
    })?;
    election.wait_condition("LeaderElected", "False", "NoElection")
}

/// Locks and leader election: a queue; a candidate in the middle dies, and the leader stays.
pub(crate) fn the_fair_election_death_in_the_middle(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    // The unfair election's node is in the same directory: no candidate, and no disturbance.
    let start = |id: &str| {
        let client = clients.python(
            id,
            "fair.py",
            &["--hosts", &hosts, "--path", "/zkroot", "--id", id],
        )?;
        client.wait_event("candidate")?;
        Ok::<_, anyhow::Error>(client)
    };
    let arguments = [
        "--hosts",
        &hosts,
        "--path",
        "/zkroot/leader",
        "--id",
        "stranger",
    ];
    let stranger = clients.python("stranger", "unfair.py", &arguments)?;
    stranger.wait_event("leader")?;
    let (a, b, c) = (start("a")?, start("b")?, start("c")?);
    let dialect = json!({ "type": "Sequence", "sequence": { "prefix": "leader" } });
    let election = world.election("fair", "/zkroot", dialect)?;
    let first = election.wait_agrees(&[&a, &b, &c], 3)?;
    ensure!(
        first["leader"]["identity"] == "a",
        "the first in the queue leads: {first}"
    );
    ensure!(
        first["unmatchedChildren"] == 1,
        "a stranger is counted: {first}"
    );

    b.kill()?;
    let middle = election.wait_agrees(&[&a, &c], 2)?;
    let same = ["leader", "leaderTransitions", "terms"]
        .iter()
        .all(|k| middle[k] == first[k]);
    ensure!(
        same,
        "a death in the middle is no change of the leader: {first} then {middle}"
    );

    a.kill()?;
    let last = election.wait_queue(&["c"])?;
    ensure!(
        Election::token(&last) > Election::token(&first),
        "{first} then {last}"
    );
    ensure!(
        c.event("leader").is_some() || c.wait_event("leader").is_ok(),
        "c does not lead"
    );
    ensure!(last["previousLeader"]["identity"] == "a", "{last}");
    Ok(())
}

/// The official recipe: no predecessor means elected; knowing it is another thing.
pub(crate) fn the_official_recipe_with_and_without_acknowledgement(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let plain = world.election("plain", "/election", json!({ "type": "ZkElection" }))?;
    let dialect = json!({ "type": "ZkElection", "acknowledgement": "/acknowledged" });
    let strict = world.election("strict", "/election", dialect)?;
    plain.wait_condition("LeaderElected", "False", "NoElection")?;

    let start = |id: &str, go: &str| {
        let client = clients.python(
            id,
            "recipe.py",
            &[
                "--hosts",
                &hosts,
                "--path",
                "/election",
                "--id",
                id,
                "--acknowledgement",
                "/acknowledged",
                "--acknowledge-when",
                go,
            ],
        )?;
        client.wait_event("candidate")?;
        Ok::<_, anyhow::Error>(client)
    };
    let (a, b) = (start("a", "/tmp/go-a")?, start("b", "/tmp/go-b")?);
    plain.wait_agrees(&[&a, &b], 2)?;
    plain.wait_condition("LeaderElected", "True", "Elected")?;
    strict.wait_condition("LeaderElected", "False", "AwaitingAcknowledgement")?;
    let waiting = strict.wait_queue(&["a", "b"])?;
    ensure!(waiting["leader"]["acknowledged"] == false, "{waiting}");

    clients.output(&["sh", "-c", "touch /tmp/go-a && echo done"])?;
    strict.wait_condition("LeaderElected", "True", "Elected")?;
    let led = strict.wait_queue(&["a", "b"])?;
    ensure!(led["leader"]["acknowledged"] == true, "{led}");

    // The old leader's acknowledgement never speaks for the new one.
    a.kill()?;
    strict.wait_queue(&["b"])?;
    strict.wait_condition("LeaderElected", "False", "AwaitingAcknowledgement")?;
    clients.output(&["sh", "-c", "touch /tmp/go-b && echo done"])?;
    strict.wait_condition("LeaderElected", "True", "Elected")?;
    plain.wait_agrees(&[&b], 1)?;
    Ok(())
}

/// Elections with znodes, and Curator: a create whose reply was lost and that was blindly repeated
/// leaves a second node of one session, and all other candidates wait behind it.
pub(crate) fn a_second_node_of_one_session_is_shown_as_a_suspected_orphan(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let arguments = ["--hosts", &hosts, "--path", "/leader", "--prefix", "lock-"];
    let with = |id: &'static str, more: &[&'static str]| {
        let mut all = arguments.to_vec();
        all.extend(["--id", id]);
        all.extend(more);
        let client = clients.python(id, "fair.py", &all)?;
        client.wait_event("candidate")?;
        Ok::<_, anyhow::Error>(client)
    };
    let careless = with("careless", &["--blind-retry"])?;
    let other = with("other", &[])?;
    let dialect = json!({ "type": "Sequence", "sequence": { "prefix": "lock-" } });
    let election = world.election("orphan", "/leader", dialect)?;
    election.wait_condition("QueueHealthy", "False", "DuplicateCandidate")?;
    let status: Value = election.wait_queue(&["careless", "careless", "other"])?;
    ensure!(status["candidateCount"] == 3, "{status}");
    // Its session's end takes both nodes away.
    careless.kill()?;
    election.wait_queue(&["other"])?;
    election.wait_condition("QueueHealthy", "True", "Orderly")?;
    other.wait_event("leader")?;
    Ok(())
}
