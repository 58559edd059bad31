//! An application that moves its election from ZooKeeper to a Lease, and back.

use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::clients::pod;
use bellwether_e2e::election::Election;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

use crate::projections::{patch, wait_object};
use crate::scenarios::expect_refusal;

const PATIENCE: Duration = Duration::from_secs(90);

/// What a candidate at a Lease may do.
fn rights(namespace: &str) -> [Value; 3] {
    let lease = json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"] });
    let events = json!({ "apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"] });
    let api = "rbac.authorization.k8s.io/v1";
    [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "moves" } }),
        json!({ "apiVersion": api, "kind": "Role", "metadata": { "name": "moves" }, "rules": [lease, events] }),
        json!({
            "apiVersion": api,
            "kind": "RoleBinding",
            "metadata": { "name": "moves" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "moves" },
            "subjects": [{ "kind": "ServiceAccount", "name": "moves", "namespace": namespace }],
        }),
    ]
}

/// A candidate of client-go, which gives its Lease up when it ends.
fn candidate(namespace: &str) -> Value {
    let command = [
        "/clients/go_lease",
        "--namespace",
        namespace,
        "--lease",
        "moves",
        "--id",
        "new",
    ];
    let mut object = pod("new", &command);
    object["spec"]["serviceAccountName"] = json!("moves");
    object["spec"]["terminationGracePeriodSeconds"] = json!(10);
    object
}

/// One side leads at every moment, also while the operator is killed: a candidate of kazoo, then one of client-go, and then one of
/// kazoo again, which has waited behind the bridge's znode.
pub(crate) fn an_election_moves_to_a_lease_and_back(world: &World) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.members(1);
    let stands = |id: &str| {
        let arguments = ["--hosts", &hosts, "--path", "/moves", "--id", id];
        clients.python(id, "kazoo_election.py", &arguments)
    };
    let old = stands("old")?;
    old.wait_event("leader")?;
    let mut object = Election::manifest("moves", "main", "/moves", json!({ "type": "Kazoo" }));
    object["spec"]["bridge"] = json!({ "lease": "moves", "side": "ZooKeeper" });
    let election = world.adopt_election(&object)?;
    // As the documentation says it.
    let reached =
        r#"--for=jsonpath={.status.conditions[?(@.type=="Bridged")].reason}=ZooKeeperLeads"#;
    world.run(&["wait", "le/moves", reached, "--timeout=90s"])?;

    let mut other = object.clone();
    other["spec"]["bridge"]["lease"] = json!("other");
    let words = ["bridge.lease is immutable"];
    expect_refusal("another Lease", world.try_apply(&other)?, &words)?;

    for right in rights(&world.namespace) {
        world.apply(&right)?;
    }
    // The API server's admission knows the ServiceAccount a moment later.
    let new = candidate(&world.namespace);
    until("the pod is taken", PATIENCE, || {
        world.apply(&new).map_err(|error| error.to_string())
    })?;
    let held_by = |who: &str| {
        wait_object(world, "lease", "moves", |lease| {
            let holder = lease["spec"]["holderIdentity"].as_str();
            holder.is_some_and(|holder| holder.starts_with(who))
        })
    };
    let leads = |who: &str| {
        until(&format!("{who} leads in ZooKeeper"), PATIENCE, || {
            let (leader, queue) = election.view()?;
            let leads = leader
                .as_ref()
                .is_some_and(|leader| leader.starts_with(who));
            leads.then_some(()).ok_or_else(|| format!("{queue:?}"))
        })
    };
    patch(
        world,
        "moves",
        &json!({ "bridge": { "lease": "moves", "side": "Kubernetes" } }),
    )?;
    election.wait_condition("Bridged", "False", "CandidatesAhead")?;
    leads("old")?;
    held_by("bellwether-bridge/")?;
    world.kill_operator()?;
    old.stop()?;
    election.wait_condition("Bridged", "True", "KubernetesLeads")?;
    held_by("new")?;
    leads("bellwether-bridge/")?;
    election.wait_condition("QueueHealthy", "True", "Orderly")?;

    let late = stands("late")?;
    patch(
        world,
        "moves",
        &json!({ "bridge": { "lease": "moves", "side": "ZooKeeper" } }),
    )?;
    election.wait_condition("Bridged", "False", "LeaseHeld")?;
    world.kill_operator()?;
    let (_, queue) = election.view().map_err(anyhow::Error::msg)?;
    ensure!(queue.len() == 2 && queue[1] == "late", "{queue:?}");
    world.run(&["delete", "pod", "new"])?;
    late.wait_event("leader")?;
    held_by("bellwether-bridge/")?;
    leads("late")?;
    election.wait_condition("Bridged", "True", "ZooKeeperLeads")?;
    late.stop()?;
    Ok(())
}
