//! Encryption, where only a cluster shows it: Secrets, kubelets that show them, pods, Services, and clients.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bellwether_e2e::clients::Clients;
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::load::Load;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

use crate::soak::long;

/// How long three rolls may take, or a kubelet to show a new Secret.
const PATIENCE: Duration = Duration::from_secs(240);

/// The base64 text of a certificate of the members, as the Secret has it under this key.
fn certificate(world: &World, key: &str) -> Result<String> {
    let secrets: Value = serde_json::from_str(&world.run(&["get", "secrets", "-o", "json"])?)?;
    let secrets = secrets["items"].as_array().context("no list of Secrets")?;
    let named = |secret: &&Value| {
        let name = secret["metadata"]["name"].as_str().unwrap_or_default();
        name.starts_with("main-identity-")
    };
    let secret = secrets
        .iter()
        .find(named)
        .context("no Secret main-identity")?;
    let certificate = secret["data"][key].as_str();
    Ok(certificate.context("no certificate in it")?.to_owned())
}

/// Whether the server of this pod presents that certificate on this port.
pub(crate) fn presents(
    world: &World,
    pod: &str,
    port: u16,
    certificate: &str,
) -> Result<(), String> {
    // The dash: one certificate in some hundred has the letters END in its base64.
    let script = format!(
        "keytool -printcert -rfc -sslserver 127.0.0.1:{port} 2>&1 | \
         sed -n '/-BEGIN/,/-END/p' | tr -d '\\r' | sed '/-END/q' | base64 -w 0"
    );
    let arguments = ["exec", pod, "-c", "zookeeper", "--", "bash", "-c", &script];
    let shown = world.run(&arguments).map_err(|e| e.to_string())?;
    let same = shown.trim() == certificate;
    same.then_some(()).ok_or(format!(
        "{pod} presents another certificate on {port}: {shown}"
    ))
}

/// The certificate that this ConfigMap names as that of an authority.
pub(crate) fn authority(world: &World, config_map: &str) -> Result<String> {
    let wanted = format!("the ConfigMap {config_map} names an authority");
    until(&wanted, PATIENCE, || {
        let path = "jsonpath={.data.ca\\.crt}";
        let text = world.run(&["get", "configmap", config_map, "-o", path]);
        let text = text.map_err(|e| e.to_string())?;
        let known = text.contains("BEGIN CERTIFICATE");
        known.then_some(text).ok_or("there is none".to_owned())
    })
}

/// Where members present which certificate of their Secret.
const PORTS: [(u16, &str); 2] = [(3888, "tls.crt"), (2281, "client-port.crt")];

/// Plaintext turns into TLS between servers and for clients, under writes over TLS. Then the members' authority is
/// replaced, and every server presents new certificates without a restart. Three members in a long search: on servers
/// without a cluster, three switch each time.
pub(crate) fn all_connections_switch_to_tls_under_writes_and_another_authority_needs_no_restart(
    world: &World,
) -> Result<()> {
    let size = if long().is_some() { 3 } else { 1 };
    let plain = world.clients()?;
    let mut spec = Ensemble::small(size);
    spec["tls"] = json!({ "servers": "Disabled", "clients": "Optional" });
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(size)?;
    let clients = plain.over_tls(&authority(world, "main-client")?)?;
    let load = Load::start(clients, ensemble, size)?;
    // The cluster's DNS may learn of a pod later than its Service does.
    until("Optional takes plaintext", PATIENCE, || {
        let takes = accepts_plaintext(&plain).map_err(|e| e.to_string())?;
        takes.then_some(()).ok_or("it takes none".to_owned())
    })?;
    ensemble.patch(&json!({ "tls": { "servers": "Required", "clients": "Required" } }))?;
    until("everything is encrypted", PATIENCE, || {
        let tls = ensemble.status()?["tls"].clone();
        let done = tls == json!({ "servers": "Required", "clients": "Required" });
        done.then_some(()).ok_or(format!("TLS is {tls}"))
    })?;
    ensemble.wait_ready(size)?;
    ensure!(!accepts_plaintext(&plain)?, "plaintext is taken");
    let present = |port, certificate: &str| {
        (0..size).try_for_each(|ordinal| presents(world, &ensemble.pod(ordinal), port, certificate))
    };
    let before = ensemble.uids();
    let of = |status: &Value| {
        status["certificate"]["authority"]
            .as_str()
            .map(str::to_owned)
    };
    let old = of(&ensemble.status().map_err(anyhow::Error::msg)?);
    let trusted_by_clients = authority(world, "main-client")?;
    let mut shown = Vec::new();
    for (port, key) in PORTS {
        let certificate = certificate(world, key)?;
        until("every server presents its certificate", PATIENCE, || {
            present(port, &certificate)
        })?;
        shown.push(certificate);
    }
    ensure!(
        shown[0] != shown[1],
        "clients are shown the members' certificate"
    );
    world.run(&[
        "annotate",
        "zke/main",
        "zookeeper.bellwether.dev/replace-authority=now",
    ])?;
    let mut between = false;
    until("the members' authority is another one", PATIENCE, || {
        let status = ensemble.status()?;
        let also = &status["certificate"]["alsoTrusted"];
        between |= also.is_string();
        let done = of(&status) != old && also.is_null();
        done.then_some(()).ok_or(status["certificate"].to_string())
    })?;
    ensure!(
        between,
        "the old and the new authority were never trusted together"
    );
    for ((port, key), old) in PORTS.into_iter().zip(&shown) {
        let new = certificate(world, key)?;
        ensure!(new != *old, "{key} is the old one");
        until("every server presents the new one", PATIENCE, || {
            present(port, &new)
        })?;
    }
    ensure!(
        authority(world, "main-client")? == trusted_by_clients,
        "clients have to be told"
    );
    ensure!(ensemble.uids() == before, "a pod was replaced");
    // A member that begins with the new authority takes part.
    ensemble.delete_pod(&ensemble.pod(0))?;
    ensemble.wait_ready(size)?;
    let verdict = load.finish(size)?;
    eprintln!(
        "plaintext to TLS, and another authority: {} writes, longest gap {} s, {} leader changes",
        verdict.acknowledged,
        verdict.longest_gap(),
        verdict.leader_changes()
    );
    verdict.assert_safe()
}

/// Within which time after a request the operator is killed, in seconds: a change lasts longer.
const KILLED_WITHIN: u64 = 25;

/// In a long search, ensembles of three and five begin in plaintext and are switched on and off again under writes, and each time the operator is
/// killed at a moment of chance: no write is lost, and the leader changes at most once in each of the six rolls.
pub(crate) fn servers_are_switched_on_and_off_while_the_operator_is_killed(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    for (name, size) in [("three", 3), ("five", 5)] {
        let mut spec = Ensemble::small(size);
        spec["tls"] = json!({ "servers": "Disabled", "clients": "Disabled" });
        let ensemble = world.ensemble(name, spec)?;
        ensemble.wait_ready(size)?;
        let load = Load::start(clients, ensemble, size)?;
        for servers in ["Required", "Disabled"] {
            ensemble.patch(&json!({ "tls": { "servers": servers } }))?;
            let moment = Duration::from_secs(fastrand::u64(2..KILLED_WITHIN));
            eprintln!("{size} to {servers}: the operator is killed after {moment:?}");
            std::thread::sleep(moment);
            world.kill_operator()?;
            until(&format!("servers are {servers}"), 2 * PATIENCE, || {
                let now = ensemble.status()?["tls"]["servers"].clone();
                (now == servers).then_some(()).ok_or(now.to_string())
            })?;
            ensemble.wait_ready(size)?;
        }
        let verdict = load.finish(size)?;
        eprintln!(
            "{size} on and off: {} writes, longest gap {} s, {} leader changes",
            verdict.acknowledged,
            verdict.longest_gap(),
            verdict.leader_changes()
        );
        ensure!(
            verdict.leader_changes() <= 6,
            "the leader changed too often"
        );
        verdict.assert_safe()?;
        world.run(&["delete", &format!("zke/{name}")])?;
    }
    Ok(())
}

/// Opens as many sessions as the second argument says and keeps them; each change of a connection is a line.
const SESSIONS: &str = "
import sys, common
common.started()
sessions = [common.connect(sys.argv[1]) for _ in range(int(sys.argv[2]))]
common.say('all')
common.stop.wait()
";
/// How many sessions are open while certificates are renewed.
const OPEN: usize = 50;
/// How often they are renewed.
const RENEWED: Duration = Duration::from_secs(30);
/// How long three steps may take of which each waits for kubelets.
const REPLACED: Duration = Duration::from_secs(600);

/// In a long search, certificates are renewed again and again, and their authority is replaced, under writes and with many sessions
/// over TLS: nothing restarts, no session notices and no client has to be told.
pub(crate) fn no_client_notices_that_certificates_are_renewed(world: &World) -> Result<()> {
    let time = long().context("only a long search says for how long")?;
    let mut spec = Ensemble::small(3);
    spec["tls"] = json!({ "clients": "Required" });
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(3)?;
    let trusted = authority(world, "main-client")?;
    let clients = world.clients()?.over_tls(&trusted)?;
    let load = Load::start(clients, ensemble, 3)?;
    let hosts = ensemble.members(3).replace(":2181", ":2281");
    let number = OPEN.to_string();
    let sessions = ["python3", "-c", SESSIONS, &hosts, &number];
    let sessions = clients.spawn("sessions", &sessions)?;
    sessions.wait_event("all")?;
    let before = ensemble.uids();
    let status = ensemble.status().map_err(anyhow::Error::msg)?;
    let first = status["certificate"]["authority"].clone();
    let begin = Instant::now();
    let mut renewals = 0;
    while begin.elapsed() < time {
        let last = certificate(world, "client-port.crt")?;
        // Certificates with other names than members have now are made again.
        let names = "zookeeper.bellwether.dev/identity-names=others";
        world.run(&[
            "annotate",
            "configmap/main-authorities",
            "--overwrite",
            names,
        ])?;
        until("there is another certificate", PATIENCE, || {
            let now = certificate(world, "client-port.crt").map_err(|e| e.to_string())?;
            (now != last)
                .then_some(())
                .ok_or("it is the same".to_owned())
        })?;
        renewals += 1;
        std::thread::sleep(RENEWED);
    }
    // Each step of it waits until every member presents what it was given last, and a kubelet takes more than a minute to
    // show it: certificates that are renewed all the time would hold it up.
    let request = "zookeeper.bellwether.dev/replace-authority=now";
    world.run(&["annotate", "zke/main", request])?;
    until("the authority is replaced", REPLACED, || {
        let certificate = &ensemble.status()?["certificate"];
        let is_other = certificate["authority"] != first && certificate["alsoTrusted"].is_null();
        is_other.then_some(()).ok_or(certificate.to_string())
    })?;
    let last = certificate(world, "client-port.crt")?;
    until(
        "every server presents the last certificate",
        PATIENCE,
        || (0..3).try_for_each(|ordinal| presents(world, &ensemble.pod(ordinal), 2281, &last)),
    )?;
    ensure!(ensemble.uids() == before, "a pod was replaced");
    ensure!(
        authority(world, "main-client")? == trusted,
        "clients have to be told"
    );
    let lines = sessions.lines();
    let changes = lines.iter().filter(|line| line["event"] == "connection");
    let noticed: Vec<&Value> = changes
        .filter(|line| line["state"] != "connected")
        .collect();
    ensure!(noticed.is_empty(), "sessions noticed: {noticed:?}");
    // A client that comes later trusts what members present now.
    let late = clients.spawn("late", &["python3", "-c", SESSIONS, &hosts, "3"])?;
    late.wait_event("all")?;
    let verdict = load.finish(3)?;
    eprintln!(
        "{renewals} renewals and another authority in {} s with {OPEN} sessions: {} writes, longest gap {} s, {} leader changes",
        begin.elapsed().as_secs(),
        verdict.acknowledged,
        verdict.longest_gap(),
        verdict.leader_changes()
    );
    ensure!(verdict.leader_changes() == 0, "the leader changed");
    verdict.assert_safe()
}

/// Whether a member's port for plaintext takes a connection from another pod.
fn accepts_plaintext(clients: &Clients<'_>) -> Result<bool> {
    let script = "import socket\ntry:\n  socket.create_connection(('main-0.main-members', 2181), 5)\n  print(True)\n\
                  except OSError as error:\n  print(error)";
    let said = clients.output(&["python3", "-c", script])?;
    Ok(said.trim() == "True")
}
