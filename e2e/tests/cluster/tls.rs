//! Encryption between servers, where only a cluster shows it: Secrets, kubelets that show them, pods.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::load::Load;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

/// How long three rolls may take, or a kubelet to show a new Secret.
const PATIENCE: Duration = Duration::from_secs(240);

/// The base64 text of the members' certificate, as the Secret has it.
fn certificate(world: &World) -> Result<String> {
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
    let certificate = secret["data"]["tls.crt"].as_str();
    Ok(certificate.context("no certificate in it")?.to_owned())
}

/// Whether the server of this pod presents that certificate on its election port.
fn presents(world: &World, pod: &str, certificate: &str) -> Result<(), String> {
    let script = "keytool -printcert -rfc -sslserver 127.0.0.1:3888 2>&1 | \
                  sed -n '/BEGIN/,/END/p' | tr -d '\\r' | sed '/END/q' | base64 -w 0";
    let arguments = ["exec", pod, "-c", "zookeeper", "--", "bash", "-c", script];
    let shown = world.run(&arguments).map_err(|e| e.to_string())?;
    let same = shown.trim() == certificate;
    same.then_some(())
        .ok_or(format!("{pod} presents another certificate: {shown}"))
}

/// Plaintext between servers turns into TLS under writes; then the certificate is replaced, and every server presents
/// the new one without a restart.
pub(crate) fn servers_switch_to_tls_under_writes_and_renew_their_certificate_without_a_restart(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let mut spec = Ensemble::small(3);
    spec["tls"] = json!({ "servers": "Disabled" });
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(3)?;
    let load = Load::start(clients, ensemble, 3)?;
    ensemble.patch(&json!({ "tls": { "servers": "Required" } }))?;
    until("every server speaks TLS only", PATIENCE, || {
        let servers = ensemble.status()?["tls"]["servers"].clone();
        let done = servers == "Required";
        done.then_some(())
            .ok_or(format!("TLS between servers: {servers}"))
    })?;
    ensemble.wait_ready(3)?;
    let verdict = load.finish(3)?;
    eprintln!(
        "plaintext to TLS: {} writes, longest gap {} s, {} leader changes",
        verdict.acknowledged,
        verdict.longest_gap(),
        verdict.leader_changes()
    );
    verdict.assert_safe()?;

    let (before, old) = (ensemble.uids(), certificate(world)?);
    for ordinal in 0..3 {
        presents(world, &ensemble.pod(ordinal), &old).map_err(anyhow::Error::msg)?;
    }
    // The operator makes the certificate again if it does not know what the Secret holds.
    world.run(&["delete", "configmap", "main-authorities"])?;
    let new = until("the certificate is replaced", PATIENCE, || {
        let new = certificate(world).map_err(|e| e.to_string())?;
        (new != old)
            .then_some(new)
            .ok_or("it is the old one".to_owned())
    })?;
    until("every server presents it", PATIENCE, || {
        (0..3).try_for_each(|ordinal| presents(world, &ensemble.pod(ordinal), &new))
    })?;
    ensure!(ensemble.uids() == before, "a pod was replaced");
    // Servers that hold connections made with the old one take a member in that begins with the new one.
    ensemble.delete_pod(&ensemble.pod(0))?;
    ensemble.wait_ready(3)
}
