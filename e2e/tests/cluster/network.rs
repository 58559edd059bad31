//! Who may connect to members, where NetworkPolicies are obeyed.

use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::clients::Clients;
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::json;

/// How long a change may take to be obeyed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connects to each address and port of its arguments, and prints those that answer.
const CONNECT: &str = "\
import socket, sys
open = []
for host, port in (a.rsplit(':', 1) for a in sys.argv[1:]):
    try:
        socket.create_connection((host, int(port)), 2).close()
        open.append(port)
    except OSError:
        pass
print('open:', *open)
";

/// The ports of a member that this pod reaches.
fn open(clients: &Clients<'_>, address: &str) -> Result<String, String> {
    let targets = [2181, 2888, 3888, 8078, 8079].map(|port| format!("{address}:{port}"));
    let mut command = vec!["python3", "-c", CONNECT];
    command.extend(targets.iter().map(String::as_str));
    let said = clients.output(&command).map_err(|e| e.to_string())?;
    Ok(said.trim().trim_start_matches("open:").trim().to_owned())
}

/// The address of the leader: only a leader listens on the port of followers.
fn leader(world: &World, ensemble: &Ensemble<'_>) -> Result<String> {
    let pod = ensemble.wait_leader()?;
    let path = "jsonpath={.status.podIP}";
    world.run(&["get", "pod", &pod, "-o", path])
}

/// By default other pods reach the client port only, with `clientsFrom` only those that it names, and the operator and
/// the members always what they need. Without the policy, every port is open. None of these changes restarts a member.
pub(crate) fn members_are_reached_by_those_whom_their_policy_lets_in(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(1)?;
    let (before, address) = (ensemble.uids(), leader(world, &ensemble)?);
    let reached = |what: &str, ports: &str| {
        until(what, PATIENCE, || match open(&clients, &address)? {
            found if found == ports => Ok(()),
            found => Err(format!("these ports are open: {found}")),
        })
    };
    reached("other pods reach the client port only", "2181")?;

    let label = json!({ "podSelector": { "matchLabels": { "team": "shop" } } });
    ensemble.patch(&json!({ "network": { "clientsFrom": [label] } }))?;
    reached("a pod that clientsFrom does not name reaches nothing", "")?;
    world.run(&["label", "pod", "clients", "team=shop"])?;
    reached("one that it names reaches the client port", "2181")?;

    ensemble.patch(&json!({ "network": { "clientsFrom": null, "policy": "Disabled" } }))?;
    reached(
        "without a policy every port is open",
        "2181 2888 3888 8078 8079",
    )?;
    ensure!(
        world
            .run(&["get", "networkpolicies", "-o", "name"])?
            .is_empty(),
        "the policy is still there"
    );
    ensemble.patch(&json!({ "network": null }))?;
    reached("the policy is there again", "2181")?;
    ensure!(ensemble.uids() == before, "a pod was replaced");

    // The operator reaches a member that starts.
    ensemble.delete_pod(&ensemble.pod(0))?;
    ensemble.wait_ready(1)
}
