//! The mirror against the client libraries: the status says what the library itself says.

use anyhow::{Result, ensure};
use bellwether_e2e::clients::Client;
use bellwether_e2e::election::Election;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

/// One election with its candidates.
struct Contest<'w> {
    election: Election<'w>,
    candidates: Vec<Client<'w>>,
    token: u64,
}

impl Contest<'_> {
    fn agree(&mut self) -> Result<Value> {
        let clients: Vec<&Client<'_>> = self.candidates.iter().collect();
        let status = self.election.wait_agrees(&clients, clients.len())?;
        let token = Election::token(&status);
        ensure!(
            token >= self.token,
            "the token went from {} to {token}",
            self.token
        );
        self.token = token;
        Ok(status)
    }

    /// Kills the process that leads; the others must come to agree on another leader.
    fn kill_leader(&mut self) -> Result<()> {
        let status = self.agree()?;
        let leader = status["leader"]["identity"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let place = self.candidates.iter().position(|c| c.id() == leader);
        let Some(place) = place else {
            anyhow::bail!("{leader:?} is no candidate of ours")
        };
        self.candidates.remove(place).kill()
    }
}

/// Before and after the leader's process is killed, and after ZooKeeper itself has another leader.
fn compare(world: &World, mut contests: Vec<Contest<'_>>) -> Result<()> {
    let mut first = Vec::new();
    for contest in &mut contests {
        first.push(contest.agree()?);
    }
    for contest in &mut contests {
        contest.kill_leader()?;
    }
    for (contest, before) in contests.iter_mut().zip(&first) {
        let after = contest.agree()?;
        let (old, new) = (&before["leader"]["identity"], &after["leader"]["identity"]);
        ensure!(old != new, "the killed leader {old} still leads");
        ensure!(
            Election::token(&after) > Election::token(before),
            "the fencing token did not grow: {} then {}",
            before["leader"],
            after["leader"]
        );
        ensure!(
            after["leaderTransitions"].as_i64() > before["leaderTransitions"].as_i64(),
            "leaderTransitions did not grow: {after}"
        );
        ensure!(
            after["previousLeader"]["identity"] == *old,
            "previousLeader is {}, it was {old}",
            after["previousLeader"]
        );
    }
    // ZooKeeper's own leader changes: sessions move, elections need not.
    let object = world.ensembles.get("main").unwrap_or_default();
    let leader = object["status"]["leader"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    world.run(&["delete", "pod", &leader, "--wait=false"])?;
    bellwether_e2e::wait::until(
        "ZooKeeper has another leader",
        std::time::Duration::from_secs(90),
        || {
            let object = world.ensembles.get("main").unwrap_or_default();
            match object["status"]["leader"].as_str() {
                Some(other) if other != leader => Ok(()),
                other => Err(format!("{other:?}")),
            }
        },
    )?;
    for contest in &mut contests {
        contest.agree()?;
    }
    Ok(())
}

pub(crate) fn curator_status_equals_what_curator_itself_reports(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    let hosts = ensemble.members(3);
    let kinds = [
        ("latch", "LatchClient", "CuratorLatch"),
        ("selector", "SelectorClient", "CuratorLock"),
    ];
    let mut contests = Vec::new();
    for (name, class, dialect) in kinds {
        let path = format!("/curator/{name}");
        let mut candidates = Vec::new();
        for id in ["a", "b", "c"] {
            candidates.push(clients.java(&format!("{name}-{id}"), class, &hosts, &path)?);
        }
        let election = world.election(name, &path, json!({ "type": dialect }))?;
        contests.push(Contest {
            election,
            candidates,
            token: 0,
        });
    }
    compare(world, contests)
}

pub(crate) fn kazoo_status_equals_what_kazoo_itself_reports(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    let hosts = ensemble.members(3);
    let mut contests = Vec::new();
    for (name, program) in [("election", "kazoo_election.py"), ("lock", "kazoo_lock.py")] {
        let path = format!("/kazoo/{name}");
        let mut candidates = Vec::new();
        for id in ["a", "b", "c"] {
            let id = format!("{name}-{id}");
            let arguments = ["--hosts", &hosts, "--path", &path, "--id", &id];
            candidates.push(clients.python(&id, program, &arguments)?);
        }
        let election = world.election(name, &path, json!({ "type": "Kazoo" }))?;
        contests.push(Contest {
            election,
            candidates,
            token: 0,
        });
    }
    compare(world, contests)
}
