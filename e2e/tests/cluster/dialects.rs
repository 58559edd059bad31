//! Dialects that are detected, that are registered elsewhere, and that users describe.

use std::time::{Duration, Instant};

use anyhow::{Error, Result, ensure};
use bellwether_e2e::clients::{Client, Clients};
use bellwether_e2e::election::Election;
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

use crate::scenarios::expect_refusal;
use crate::tls::authority;

const PATIENCE: Duration = Duration::from_secs(90);

/// How long a lease counts: longer than it takes to see it and to try for it again.
const LEASE: Duration = Duration::from_secs(60);

/// A client that owns these nodes.
fn owner<'w>(clients: &Clients<'w>, hosts: &str, id: &str, nodes: &[&str]) -> Result<Client<'w>> {
    let mut arguments = vec!["--hosts", hosts, "--id", id];
    for node in nodes {
        arguments.extend(["--node", node]);
    }
    let client = clients.python(id, "znodes.py", &arguments)?;
    client.wait_event("ready")?;
    Ok(client)
}

/// Waits until the status fits, and returns it.
fn wait_status(
    election: &Election<'_>,
    what: &str,
    fits: impl Fn(&Value) -> bool,
) -> Result<Value> {
    until(what, PATIENCE, || {
        let status = election.status()?;
        if fits(&status) {
            Ok(status)
        } else {
            Err(status.to_string())
        }
    })
}

fn led_by<'s>(identity: &'s str) -> impl Fn(&Value) -> bool + 's {
    move |status| status["leader"]["identity"] == identity && status["staleSince"].is_null()
}

/// A spec that leaves the dialect open: it is detected, and stays when everybody left and when the
/// operator is another process.
pub(crate) fn an_election_in_an_open_dialect_is_detected_and_stays_so(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let election = world.election("open", "/app/election", json!({ "type": "Auto" }))?;
    election.wait_condition("DialectDetected", "False", "NotDetected")?;
    let arguments = ["--hosts", &hosts, "--path", "/app/election", "--id", "a"];
    let candidate = clients.python("a", "kazoo_election.py", &arguments)?;
    let status = election.wait_agrees(&[&candidate], 1)?;
    ensure!(status["dialect"] == "Kazoo", "the dialect is {status}");
    election.wait_condition("DialectDetected", "True", "Detected")?;
    candidate.stop()?;
    election.wait_condition("LeaderElected", "False", "NoCandidates")?;
    world.kill_operator()?;
    // A latch alone would be of another dialect; the one that was detected stays.
    let latch = "/app/election/_c_6aa2b1b5-6f0d-4b83-9a24-7a9c1f1f6a10-latch-0000000001=b";
    let stranger = owner(&clients, &hosts, "b", &[latch])?;
    let status = wait_status(&election, "the stranger is counted", |status| {
        status["unmatchedChildren"] == 1
    })?;
    ensure!(status["dialect"] == "Kazoo", "the dialect became {status}");
    election.wait_condition("DialectDetected", "True", "Detected")?;
    stranger.stop()?;
    Ok(())
}

/// Anonymous candidates are distinguished by their sessions, and the members report from where
/// those are connected.
pub(crate) fn anonymous_candidates_have_the_address_of_their_connection(
    world: &World,
) -> Result<()> {
    // Members are asked for their connections over TLS, too.
    let mut spec = Ensemble::small(1);
    spec["tls"] = json!({ "clients": "Required" });
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(1)?;
    let clients = world
        .clients()?
        .over_tls(&authority(world, "main-client")?)?;
    let hosts = ensemble.members(1).replace(":2181", ":2281");
    let election = world.election("anonymous", "/latch", json!({ "type": "CuratorLatch" }))?;
    let node = |number: u8| {
        format!("/latch/_c_6aa2b1b5-6f0d-4b83-9a24-7a9c1f1f6a1{number}-latch-000000000{number}=")
    };
    let first = owner(&clients, &hosts, "first", &[&node(1)])?;
    let second = owner(&clients, &hosts, "second", &[&node(2)])?;
    let pod = world.pods.get("clients").unwrap_or_default();
    let address = &pod["status"]["podIP"];
    ensure!(
        address.is_string(),
        "the clients' pod has no address: {pod}"
    );
    let known = |status: &Value| {
        let queue = status["candidates"].as_array();
        status["leader"]["identitySource"] == "Session"
            && status["leader"]["clientAddress"] == *address
            && queue.is_some_and(|q| q.iter().all(|c| c["clientAddress"] == *address))
    };
    let led = wait_status(&election, "both have an address", |status| {
        known(status) && status["candidateCount"] == 2
    })?;
    first.kill()?;
    let next = wait_status(&election, "the second leads, with its address", |status| {
        known(status) && status["candidateCount"] == 1
    })?;
    ensure!(
        led["leader"]["sessionID"] != next["leader"]["sessionID"],
        "{led} became {next}"
    );
    second.stop()?;
    Ok(())
}

/// Solr's overseer: the head of the queue leads once it has registered itself, and no sooner.
pub(crate) fn an_election_whose_leader_registers_itself_follows_the_registration(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let queue = "/overseer_elect/election";
    let node = |id: &str, number: u8| format!("{queue}/{{session}}-{id}-n_000000000{number}=");
    let leader = "/overseer_elect/leader";
    let registered = |id: &str, number: u8| {
        format!(r#"{leader}={{"id":"{{session}}-{id}-n_000000000{number}"}}"#)
    };
    let election = world.election("overseer", queue, json!({ "type": "Solr" }))?;
    election.wait_condition("LeaderElected", "False", "NoElection")?;
    let second = owner(&clients, &hosts, "second", &[&node("host-b", 5)])?;
    election.wait_condition("LeaderElected", "False", "AwaitingRegistration")?;
    let first = [node("host-a", 4), registered("host-a", 4)];
    let first = owner(&clients, &hosts, "first", &[&first[0], &first[1]])?;
    // The leader is shown at once, and the queue that goes with it within a second.
    let queue = |status: &Value| {
        let candidates = status["candidates"].as_array().into_iter().flatten();
        let identities = candidates.map(|candidate| candidate["identity"].as_str());
        identities.eq([Some("host-a"), Some("host-b")])
    };
    let status = wait_status(&election, "host-a leads, and host-b is next", |status| {
        led_by("host-a")(status) && queue(status)
    })?;
    let token = Election::token(&status);
    first.kill()?;
    // Its node in the queue and its registration go together, with its session.
    election.wait_condition("LeaderElected", "False", "AwaitingRegistration")?;
    second.stop()?;
    let nodes = [node("host-b", 6), registered("host-b", 6)];
    let second = owner(&clients, &hosts, "again", &[&nodes[0], &nodes[1]])?;
    let status = wait_status(&election, "host-b leads", led_by("host-b"))?;
    ensure!(Election::token(&status) > token, "the token fell: {status}");
    second.stop()?;
    Ok(())
}

/// A user's own dialect: a broken pattern is reported and can be corrected; the oldest member
/// leads; and another spec lets the data decide.
pub(crate) fn an_election_of_the_users_own_making_is_read_as_described(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let custom = |options: Value| json!({ "type": "Custom", "custom": options });
    let broken = custom(json!({ "childPattern": "member-(", "order": "CreationZxid" }));
    let election = world.election("own", "/app/members", broken)?;
    election.wait_condition("Synced", "False", "InvalidSpec")?;
    let oldest = json!({ "childPattern": "member-(?P<id>.+)", "order": "CreationZxid" });
    world.election("own", "/app/members", custom(oldest))?;
    election.wait_condition("LeaderElected", "False", "NoElection")?;
    let z = owner(
        &clients,
        &hosts,
        "z",
        &[r#"/app/members/member-z={"up":false}"#],
    )?;
    let a = owner(
        &clients,
        &hosts,
        "a",
        &[r#"/app/members/member-a={"up":true}"#],
    )?;
    let node = |name: &'static str| move |status: &Value| status["leader"]["node"] == name;
    wait_status(&election, "the oldest leads", |status| {
        node("member-z")(status) && status["candidateCount"] == 2
    })?;
    let marked = json!({
        "childPattern": "member-(?P<id>.+)",
        "order": "CreationZxid",
        "leaderRule": "DataPointer",
        "dataPointer": "/up",
    });
    world.election("own", "/app/members", custom(marked))?;
    wait_status(&election, "the marked one leads", node("member-a"))?;
    z.stop()?;
    a.stop()?;
    Ok(())
}

/// What the API server refuses, with what to do instead.
pub(crate) fn options_of_another_dialect_of_election_are_refused(world: &World) -> Result<()> {
    let cases: &[(Value, &[&str])] = &[
        (json!({ "type": "Sequence" }), &["sequence is required"]),
        (
            json!({ "type": "Kazoo", "sequence": { "prefix": "x" } }),
            &["not allowed for any other"],
        ),
        (json!({ "type": "SingleJson" }), &["json is required"]),
        (
            json!({ "type": "SingleJson", "json": { "pointers": ["brokerid"] } }),
            &["pointers"],
        ),
        (json!({ "type": "Custom" }), &["custom is required"]),
        (
            json!({ "type": "Custom", "custom": { "order": "CreationZxid" } }),
            &["childPattern is required"],
        ),
        (
            json!({ "type": "Custom", "custom": { "childPattern": "a", "leaderRule": "LeaderPath" } }),
            &["leaderPath is required"],
        ),
        (
            json!({ "type": "Custom", "custom": { "childPattern": "a" }, "leaderPath": "/a" }),
            &["leaderPath is for dialects with a queue"],
        ),
        (
            json!({ "type": "Custom", "custom": { "leaderRule": "Exists" }, "acknowledgement": "a" }),
            &["acknowledgement is for dialects with a queue"],
        ),
        (
            json!({ "type": "HBaseMaster", "leaderPath": "/a" }),
            &["leaderPath is for dialects with a queue"],
        ),
        (
            json!({ "type": "Solr", "leaderPath": "/a/../b" }),
            &["leaderPath must not hold"],
        ),
    ];
    for (dialect, words) in cases {
        let object = Election::manifest("refused", "main", "/app", dialect.clone());
        expect_refusal(&dialect.to_string(), world.try_apply(&object)?, words)?;
    }
    let mut object = Election::manifest("refused", "main", "/app", json!({ "type": "Kazoo" }));
    object["spec"]["identity"] = json!({ "decoder": "Json" });
    expect_refusal(
        "identity",
        world.try_apply(&object)?,
        &["pointers are required"],
    )?;
    object["spec"]["identity"] = json!({ "decoder": "Json", "pointers": ["/id"] });
    world.apply(&object)
}

/// kazoo's `NonBlockingLease` writes the end of the lease into a persistent znode. After that time
/// the election has no leader, although no znode changes.
pub(crate) fn a_lease_of_kazoo_counts_until_its_end(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let dialect = json!({
        "type": "SingleJson",
        "json": { "pointers": ["/holder"], "expiry": "/end" },
    });
    let election = world.election("lease", "/leases/nightly/lease_holder", dialect)?;
    let take = |holder: &str, seconds: u32| {
        let program = format!(
            "import datetime as d; from kazoo.client import KazooClient as K; k = K('{hosts}'); \
             k.start(); print(bool(k.NonBlockingLease('/leases/nightly', \
             d.timedelta(seconds={seconds}), identifier='{holder}')))"
        );
        clients.output(&["python3", "-c", &program])
    };
    let end = Instant::now() + LEASE;
    let taken = take("one", u32::try_from(LEASE.as_secs())?)?;
    ensure!(taken.trim() == "True", "the lease was not given: {taken}");
    let first = election.wait_queue(&["one"])?;
    ensure!(Instant::now() < end, "it took too long to see the lease");
    let refused = take("two", 600)?;
    ensure!(refused.trim() == "False", "the lease was given twice");
    election.wait_condition("LeaderElected", "False", "NotActive")?;
    // kazoo writes whole seconds.
    let early = end - Duration::from_secs(1);
    ensure!(Instant::now() > early, "the lease was over too soon");
    let status = election.status().map_err(Error::msg)?;
    ensure!(status["leader"].is_null(), "somebody leads: {status}");
    let again = take("two", 600)?;
    ensure!(again.trim() == "True", "the lease was not given: {again}");
    let second = election.wait_queue(&["two"])?;
    ensure!(
        Election::token(&second) > Election::token(&first),
        "{first} then {second}"
    );
    election.wait_condition("QueueHealthy", "True", "Orderly")
}

/// The status shows the last active node by Hadoop's breadcrumb beside the owner of the lock, and
/// keeps it when the lock is deleted.
pub(crate) fn hadoops_breadcrumb_is_shown_beside_the_lock(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let path = "/hadoop-ha/hdfs/ActiveStandbyElectorLock";
    let election = world.election("hdfs", path, json!({ "type": "HadoopElector" }))?;
    // ActiveNodeInfo of HAZKInfo.proto: nameservice, namenode, host, port and port of the controller.
    let program = |steps: &str| {
        format!(
            "from kazoo.client import KazooClient as K; k = K('{hosts}'); k.start(); \
             info = lambda n: b'\\n\\x04hdfs\\x12\\x03nn' + n + b'\\x1a\\x03nn' + n + b'\\x20\\xd4\\x3e\\x28\\xd3\\x3e'; \
             lock = '{path}'; crumb = '/hadoop-ha/hdfs/ActiveBreadCrumb'; {steps}; print('done')"
        )
    };
    let run = |steps: &str| clients.output(&["python3", "-c", &program(steps)]);
    let last = |identity: &str| {
        until("the status shows who was active last", PATIENCE, || {
            let status = election.status()?;
            let shown = &status["lastActive"]["identity"];
            (shown == identity).then_some(()).ok_or(shown.to_string())
        })
    };
    run("k.create(lock, info(b'0'), makepath=True); k.create(crumb, info(b'0'))")?;
    election.wait_queue(&["nn0"])?;
    last("nn0")?;
    // The lock is deleted without a clean exit; another node takes it but has not fenced the first yet.
    run("k.delete(lock)")?;
    election.wait_condition("LeaderElected", "False", "NoElection")?;
    last("nn0")?;
    run("k.create(lock, info(b'1'))")?;
    election.wait_queue(&["nn1"])?;
    last("nn0")?;
    election.wait_condition("LeaderElected", "False", "AwaitingAcknowledgement")?;
    run("k.set(crumb, info(b'1'))")?;
    last("nn1")?;
    election.wait_condition("LeaderElected", "True", "Elected")?;
    // A clean exit takes the breadcrumb first, while the lock stays.
    run("k.delete(crumb)")?;
    until(
        "nobody was active last, and somebody leads",
        PATIENCE,
        || {
            let status = election.status()?;
            let gone = status["lastActive"].is_null() && status["leader"]["identity"] == "nn1";
            gone.then_some(()).ok_or(status["lastActive"].to_string())
        },
    )?;
    run("k.delete(lock)")?;
    until("nobody was active last", PATIENCE, || {
        let status = election.status()?;
        let gone = status["lastActive"].is_null() && status["leader"].is_null();
        gone.then_some(()).ok_or(status["lastActive"].to_string())
    })
}
