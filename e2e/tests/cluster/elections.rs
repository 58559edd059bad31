//! The mirror against the client libraries: the status says what the library itself says.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bellwether_e2e::clients::Client;
use bellwether_e2e::election::Election;
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

use crate::tls::authority;

const PATIENCE: Duration = Duration::from_secs(90);

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

/// Before and after the leader's process is killed.
fn compare(contests: &mut [Contest<'_>]) -> Result<()> {
    let mut first = Vec::new();
    for contest in &mut *contests {
        first.push(contest.agree()?);
    }
    for contest in &mut *contests {
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
    Ok(())
}

/// After ZooKeeper itself has another leader: sessions move, elections need not.
fn compare_after_another_leader_of_zookeeper(
    world: &World,
    contests: &mut [Contest<'_>],
) -> Result<()> {
    let object = world.ensembles.get("main").unwrap_or_default();
    let leader = object["status"]["leader"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    world.take_away(&["pod", &leader])?;
    until("ZooKeeper has another leader", PATIENCE, || {
        let object = world.ensembles.get("main").unwrap_or_default();
        match object["status"]["leader"].as_str() {
            Some(other) if other != leader => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;
    for contest in contests {
        contest.agree()?;
    }
    Ok(())
}

pub(crate) fn curator_status_equals_what_curator_itself_reports(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
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
    compare(&mut contests)
}

pub(crate) fn kazoo_status_equals_what_kazoo_itself_reports(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let mut contests = Vec::new();
    let kinds = [
        ("kazoo-election", "kazoo_election.py"),
        ("kazoo-lock", "kazoo_lock.py"),
    ];
    for (name, program) in kinds {
        let path = format!("/{name}");
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
    compare(&mut contests)
}

/// Locks are elections too: go-zookeeper's, and Curator's mutex.
pub(crate) fn lock_status_equals_what_go_zookeeper_and_curator_report(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    let hosts = ensemble.members(3);
    let mut go = Vec::new();
    let mut mutex = Vec::new();
    for id in ["a", "b", "c"] {
        go.push(clients.go_lock(&format!("go-{id}"), &hosts, "/go/lock")?);
        let id = format!("mutex-{id}");
        mutex.push(clients.java(&id, "MutexClient", &hosts, "/curator/mutex")?);
    }
    let contest = |name, path, dialect: &str, candidates| {
        Ok::<_, anyhow::Error>(Contest {
            election: world.election(name, path, json!({ "type": dialect }))?,
            candidates,
            token: 0,
        })
    };
    let mut contests = [
        contest("go", "/go/lock", "GoZkLock", go)?,
        contest("mutex", "/curator/mutex", "CuratorLock", mutex)?,
    ];
    compare(&mut contests)?;
    compare_after_another_leader_of_zookeeper(world, &mut contests)
}

/// Clients of an ensemble that takes no plaintext. Two libraries in one directory: each takes the lock over from the other,
/// and both and the status list everybody in one order.
pub(crate) fn clients_of_all_libraries_and_the_mirror_connect_over_tls(
    world: &World,
) -> Result<()> {
    let mut spec = Ensemble::small(1);
    spec["tls"] = json!({ "clients": "Required" });
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(1)?;
    // An authority of the members is none of clients.
    let programs = world.clients()?;
    let stranger = programs.over_tls(&authority(world, "main-authorities")?)?;
    let script = "import ssl, socket\ncontext = ssl.create_default_context(cafile='/tmp/ca.pem')\ntry:\n  \
                  context.wrap_socket(socket.create_connection(('main', 2281), 5), server_hostname='main')\n  \
                  print('trusted')\nexcept ssl.SSLCertVerificationError as error:\n  print(error.verify_message)";
    let said = stranger.output(&["python3", "-c", script])?;
    ensure!(
        said.contains("issuer certificate") || said.contains("self-signed"),
        "{said}"
    );
    let clients = programs.over_tls(&authority(world, "main-client")?)?;

    let hosts = ensemble.members(1).replace(":2181", ":2281");
    let contest = |name, path, dialect: &str, candidates| {
        Ok::<_, anyhow::Error>(Contest {
            election: world.election(name, path, json!({ "type": dialect }))?,
            candidates,
            token: 0,
        })
    };
    let path = "/shared/lock";
    let mut shared = contest("shared", path, "CuratorLock", Vec::new())?;
    for id in ["java-1", "rust-2", "java-3", "rust-4"] {
        shared.candidates.push(if id.starts_with("java") {
            clients.java(id, "MutexClient", &hosts, path)?
        } else {
            clients.rust_lock(id, &hosts, path)?
        });
        shared.agree()?;
    }
    let go = clients.go_lock("go", &hosts, "/go/lock")?;
    contest("go", "/go/lock", "GoZkLock", vec![go])?.agree()?;
    let arguments = ["--hosts", &hosts, "--path", "/kazoo/lock", "--id", "kazoo"];
    let kazoo = clients.python("kazoo", "kazoo_lock.py", &arguments)?;
    contest("kazoo", "/kazoo/lock", "Kazoo", vec![kazoo])?.agree()?;
    let support = clients.java("zookeeper", "SupportClient", &hosts, "/support")?;
    contest("support", "/support", "ZkElection", vec![support])?.agree()?;

    for next in ["rust-2", "java-3", "rust-4"] {
        shared.kill_leader()?;
        let status = shared.agree()?;
        ensure!(status["leader"]["identity"] == next, "{next}: {status}");
    }
    Ok(())
}

/// The recipes that come with ZooKeeper itself: its lock, whose candidates say nothing but their session,
/// and its `LeaderElectionSupport`.
pub(crate) fn zookeepers_own_recipes_agree_with_the_status(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let start = |class: &str, path: &str| {
        let of = |id: &str| clients.java(&format!("{}-{id}", &path[1..]), class, &hosts, path);
        ["a", "b", "c"]
            .map(of)
            .into_iter()
            .collect::<Result<Vec<_>>>()
    };
    let mut support = Contest {
        candidates: start("SupportClient", "/support")?,
        election: world.election("support", "/support", json!({ "type": "ZkElection" }))?,
        token: 0,
    };
    let mut holders = start("WriteLockClient", "/lock")?;
    let lock = world.election("lock", "/lock", json!({ "type": "ZkWriteLock" }))?;
    for left in [3, 2] {
        let status = support.agree()?;
        ensure!(status["candidateCount"] == left, "{status}");
        support.kill_leader()?;
        let all: Vec<&Client<'_>> = holders.iter().collect();
        let (status, leader) = lock.wait_agrees_on_sessions(&all)?;
        ensure!(status["candidateCount"] == left, "{status}");
        let place = holders.iter().position(|holder| holder.id() == leader);
        holders
            .remove(place.context("the leader is none of ours")?)
            .kill()?;
    }
    support.agree()?;
    let (status, leader) = lock.wait_agrees_on_sessions(&[&holders[0]])?;
    ensure!(leader == holders[0].id(), "{leader} leads: {status}");
    Ok(())
}

/// kazoo's lock without an ephemeral node: a holder whose process died keeps the lock until its
/// node is removed. kazoo reports the same holder, and the status reports what is odd.
pub(crate) fn a_lock_that_outlives_its_holder_is_shown_as_held(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let election = world.election("lasting", "/kazoo/lasting", json!({ "type": "Kazoo" }))?;
    let start = |id: &str, more: &[&str]| {
        let mut arguments = vec!["--hosts", &hosts, "--path", "/kazoo/lasting", "--id", id];
        arguments.extend(more);
        clients.python(id, "kazoo_lock.py", &arguments)
    };
    let holder = start("holder", &["--persistent"])?;
    holder.wait_event("leader")?;
    let second = start("second", &[])?;
    election.wait_agrees(&[&holder, &second], 2)?;
    let third = start("third", &[])?;
    let before = election.wait_agrees(&[&holder, &second, &third], 3)?;
    election.wait_condition("QueueHealthy", "False", "NonEphemeral")?;

    // The holder's session ends no later than the third's, whose end can be seen.
    holder.kill()?;
    third.kill()?;
    let held = election.wait_queue(&["holder", "second"])?;
    ensure!(held["leader"] == before["leader"], "{before} then {held}");
    until("kazoo says the same", PATIENCE, || {
        let view = second.last_view().unwrap_or_default();
        let same = view["leader"] == "holder" && view["queue"] == json!(["holder", "second"]);
        if same && view["hasLeadership"] == false {
            Ok(())
        } else {
            Err(view.to_string())
        }
    })?;
    election.wait_condition("QueueHealthy", "False", "NonEphemeral")?;

    let node = held["leader"]["node"].as_str().unwrap_or_default();
    let remove = format!(
        "from kazoo.client import KazooClient as K; k = K('{hosts}'); k.start(); \
         k.delete('/kazoo/lasting/{node}'); print('removed')"
    );
    clients.output(&["python3", "-c", &remove])?;
    let after = election.wait_agrees(&[&second], 1)?;
    ensure!(Election::token(&after) > Election::token(&held), "{after}");
    election.wait_condition("QueueHealthy", "True", "Orderly")
}

/// Until 5.3 a Curator latch leaves the queue and joins its end after each reconnection; since 5.4
/// it keeps its place. For both, the status equals what they report themselves.
pub(crate) fn two_generations_of_curators_latch_reconnect(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let mut spec = Ensemble::small(1);
    spec["config"]["maxSessionTimeout"] = json!(60_000);
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(1)?;
    let hosts = ensemble.members(1);
    // The sessions outlive the time without a serving member.
    let start = |classes: &str, path: &str, id: &str| {
        let classes = format!("{classes}:/clients/classes:/clients/java");
        let options = ["-Xmx48m", "-Dsession=60000", "-cp", &classes];
        clients.java_with(id, &options, &["LatchClient", &hosts, path, id])
    };
    let mut contests = Vec::new();
    for (name, classes) in [("new", "/clients/lib/*"), ("old", "/clients/curator-5.3/*")] {
        let path = format!("/curator/{name}");
        let candidates = ["a", "b"].map(|id| start(classes, &path, &format!("{name}-{id}")));
        contests.push(Contest {
            election: world.election(name, &path, json!({ "type": "CuratorLatch" }))?,
            candidates: candidates.into_iter().collect::<Result<_>>()?,
            token: 0,
        });
    }
    let before = contests.iter_mut().map(Contest::agree);
    let before = before.collect::<Result<Vec<_>>>()?;
    ensemble.delete_pod(&ensemble.pod(0))?;
    for client in contests.iter().flat_map(|contest| &contest.candidates) {
        until("the latches are connected again", PATIENCE, || {
            let said = |line: &Value| line["state"] == "reconnected";
            if client.lines().iter().any(said) {
                Ok(())
            } else {
                Err(format!("{} is not", client.id()))
            }
        })?;
    }
    until("the old latches have new nodes", PATIENCE, || {
        let status = contests[1].election.status()?;
        if Election::token(&status) > Election::token(&before[1]) {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })?;
    let [new, old] = &mut contests[..] else {
        anyhow::bail!("there are two contests")
    };
    let (new, old) = (new.agree()?, old.agree()?);
    ensure!(
        new["leader"] == before[0]["leader"] && new["terms"] == before[0]["terms"],
        "the new latch moved: {} then {new}",
        before[0]
    );
    ensure!(
        old["terms"].as_i64() > before[1]["terms"].as_i64(),
        "the old latch did not move: {} then {old}",
        before[1]
    );
    Ok(())
}
