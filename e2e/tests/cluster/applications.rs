//! The mirror against whole applications: the status says what the application itself reports.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bellwether_e2e::clients::Client;
use bellwether_e2e::election::Election;
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

/// Takes out the process that leads, as the status says.
fn take_leader<'w>(status: &Value, processes: &mut Vec<Client<'w>>) -> Result<Client<'w>> {
    let leader = &status["leader"]["identity"];
    let place = processes.iter().position(|process| leader == process.id());
    let place = place.with_context(|| format!("{leader} is none of ours"))?;
    Ok(processes.remove(place))
}

/// Another one leads than before, by a new node.
fn ensure_succession(before: &Value, after: &Value) -> Result<()> {
    let (old, new) = (&before["leader"], &after["leader"]);
    ensure!(
        old["identity"] != new["identity"],
        "{old} still leads: {new}"
    );
    // On a machine that is too busy the old leader may have lost a session and led again before it
    // was killed: the previous leader's token may then be newer.
    let previous = &after["previousLeader"]["fencingToken"];
    let previous: u64 = previous.as_str().unwrap_or_default().parse()?;
    ensure!(
        (Election::token(before)..Election::token(after)).contains(&previous),
        "{old} led before: {after}"
    );
    ensure!(
        Election::token(after) > Election::token(before),
        "the fencing token did not grow: {old} then {new}"
    );
    ensure!(
        after["leaderTransitions"].as_i64() > before["leaderTransitions"].as_i64(),
        "leaderTransitions did not grow: {before} then {after}"
    );
    Ok(())
}

/// Two processes that know the leader: each takes over from the other once, and the one that was
/// killed comes back in between. `count` gives the number of candidates for a number of processes.
fn hand_over_and_back<'w>(
    election: &Election<'w>,
    ids: [&str; 2],
    count: impl Fn(usize) -> usize,
    start: impl Fn(&str) -> Result<Client<'w>>,
) -> Result<()> {
    let agree = |processes: &[Client<'w>]| {
        let all: Vec<_> = processes.iter().collect();
        all.iter().try_for_each(|process| process.wait_view())?;
        election.wait_agrees(&all, count(all.len()))
    };
    let mut processes = vec![start(ids[0])?, start(ids[1])?];
    let first = agree(&processes)?;
    let leader = take_leader(&first, &mut processes)?;
    leader.kill()?;
    let second = agree(&processes)?;
    ensure_succession(&first, &second)?;
    processes.push(start(leader.id())?);
    let joined = agree(&processes)?;
    ensure!(
        Election::token(&joined) >= Election::token(&second),
        "the fencing token fell: {second} then {joined}"
    );
    take_leader(&joined, &mut processes)?.kill()?;
    ensure_succession(&joined, &agree(&processes)?)
}

/// Every Kafka broker reports who the controller is, and one reports that it is the controller. The
/// status lists all brokers that have registered.
pub(crate) fn kafka_status_equals_what_the_brokers_report(world: &World) -> Result<()> {
    let pod = world.application("kafka")?;
    let hosts = format!("{}/kafka", world.small_ensemble(1)?.members(1));
    let dialect = json!({
        "type": "SingleJson",
        "json": { "pointers": ["/brokerid"] },
        "membersPath": "/kafka/brokers/ids",
        "epochPath": "/kafka/controller_epoch",
    });
    let election = world.election("controller", "/kafka/controller", dialect)?;
    hand_over_and_back(
        &election,
        ["1", "2"],
        |brokers| brokers,
        |id| {
            let program = ["KafkaBroker", &hosts, id, &format!("909{id}")];
            pod.java_with(id, &["-Xmx160m"], &program)
        },
    )?;
    // Kafka counts its controllers from 1; this is the third.
    until(
        "the epoch is the controller's",
        Duration::from_secs(10),
        || match election.status()? {
            status if status["leader"]["epoch"] == "3" => Ok(()),
            status => Err(status["leader"].to_string()),
        },
    )
}

/// Solr's nodes say who the overseer is, and one of them that it oversees. All of them are in a queue.
pub(crate) fn solr_status_equals_what_the_nodes_report(world: &World) -> Result<()> {
    let pod = world.application("solr")?;
    let hosts = world.small_ensemble(1)?.members(1);
    let dialect = json!({ "type": "Solr" });
    let election = world.election("overseer", "/overseer_elect/election", dialect)?;
    let ids = ["127.0.0.1:8981_solr", "127.0.0.1:8982_solr"];
    hand_over_and_back(
        &election,
        ids,
        |nodes| nodes,
        |id| {
            let port = id
                .trim_start_matches("127.0.0.1:")
                .trim_end_matches("_solr");
            pod.java_with(id, &["-Xmx160m"], &["SolrNode", &hosts, id, port])
        },
    )
}

/// Processes that know only of themselves: the second takes over from the first, and one that came later
/// from the second.
fn anonymous_hand_over<'w>(
    election: &Election<'w>,
    start: impl Fn(u16) -> Result<Client<'w>>,
) -> Result<()> {
    let agree = |processes: &[Client<'w>]| {
        let all: Vec<_> = processes.iter().collect();
        all.iter().try_for_each(|process| process.wait_view())?;
        election.wait_agrees_on_sessions(&all)
    };
    let mut processes = vec![start(1)?, start(2)?];
    let (mut before, mut leader) = agree(&processes)?;
    let mut kill = |processes: &mut Vec<Client<'w>>| {
        let place = processes.iter().position(|process| process.id() == leader);
        processes
            .remove(place.context("an unknown leader")?)
            .kill()?;
        let (after, next) = agree(processes)?;
        ensure_succession(&before, &after)?;
        (before, leader) = (after, next);
        Ok::<_, anyhow::Error>(())
    };
    kill(&mut processes)?;
    processes.push(start(3)?);
    agree(&processes)?;
    kill(&mut processes)
}

/// Spark's masters are an anonymous election: each says only whether it is alive or on standby, and
/// what its sessions are.
pub(crate) fn spark_status_equals_what_the_masters_report(world: &World) -> Result<()> {
    let pod = world.application("spark")?;
    // Spark asks for sessions of a minute; what the ensemble grants decides how soon a death is seen.
    let mut spec = Ensemble::small(1);
    spec["config"]["maxSessionTimeout"] = json!(6000);
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(1)?;
    let hosts = ensemble.members(1);
    let dialect = json!({ "type": "CuratorLatch" });
    let election = world.election("masters", "/spark/leader_election", dialect)?;
    anonymous_hand_over(&election, |number| {
        let (id, port) = (format!("master-{number}"), format!("707{number}"));
        let program = ["SparkMaster", &hosts, "/spark", &id, &port];
        pod.java_with(&id, &["-Xmx128m"], &program)
    })
}

/// Flink's job managers wait in an anonymous latch; the one whose dispatcher was granted leadership
/// publishes its address with the id of its term, which it also logs.
pub(crate) fn flink_status_equals_what_the_job_managers_report(world: &World) -> Result<()> {
    let pod = world.application("flink")?;
    let hosts = world.small_ensemble(1)?.members(1);
    let leader = "/flink/default/leader/dispatcher/connection_info";
    let dialect = json!({ "type": "CuratorLatch", "leaderPath": leader });
    let mut object = Election::manifest("latch", "main", "/flink/default/leader/latch", dialect);
    object["spec"]["identity"] = json!({ "decoder": "Flink" });
    let election = world.adopt_election(&object)?;
    // As Flink's own scripts do.
    let options = [
        "-Xmx160m",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "--add-opens=java.base/java.net=ALL-UNNAMED",
        "--add-opens=java.base/java.util=ALL-UNNAMED",
    ];
    anonymous_hand_over(&election, |number| {
        let (id, port) = (format!("manager-{number}"), format!("809{number}"));
        pod.java_with(&id, &options, &["FlinkJobManager", &hosts, &id, &port])
    })?;
    let status = election.status().map_err(anyhow::Error::msg)?;
    let address = status["leader"]["identity"].as_str().unwrap_or_default();
    ensure!(
        address.starts_with("pekko.tcp://flink@127.0.0.1:") && address.contains("/dispatcher_"),
        "{status}"
    );
    Ok(())
}

/// Patroni's members take the leader key; one that returns under the leader's name has to create
/// the key again, which is another term of the same leader.
pub(crate) fn patroni_status_equals_what_its_members_are_told(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let dialect = json!({ "type": "SingleText" });
    let election = world.election("patroni", "/service/batman/leader", dialect)?;
    let start = |id: &str| {
        let arguments = ["--hosts", &hosts, "--scope", "batman", "--id", id];
        clients.python(id, "patroni_member.py", &arguments)
    };
    let mut members = vec![start("pg-a")?, start("pg-b")?];
    let first = election.wait_agrees(&members.iter().collect::<Vec<_>>(), 1)?;
    take_leader(&first, &mut members)?.kill()?;
    let second = election.wait_agrees(&members.iter().collect::<Vec<_>>(), 1)?;
    ensure_succession(&first, &second)?;

    // At once, while the key of the old process still exists; no other member runs that could take it.
    let leader = take_leader(&second, &mut members)?;
    leader.kill()?;
    members.push(start(leader.id())?);
    until("the key is a new one", Duration::from_secs(60), || {
        let token = Election::token(&election.status()?);
        let old = Election::token(&second);
        if token > old {
            Ok(())
        } else {
            Err(format!("the token is {token}, it was {old}"))
        }
    })?;
    let third = election.wait_agrees(&members.iter().collect::<Vec<_>>(), 1)?;
    ensure!(
        third["leaderTransitions"] == second["leaderTransitions"]
            && third["terms"].as_i64() > second["terms"].as_i64(),
        "another term of the same leader: {second} then {third}"
    );

    members.push(start("pg-c")?);
    let leader = take_leader(&third, &mut members)?;
    leader.stop()?;
    let last = election.wait_agrees(&members.iter().collect::<Vec<_>>(), 1)?;
    ensure_succession(&third, &last)
}
