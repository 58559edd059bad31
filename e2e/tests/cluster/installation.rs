//! The release that all tests share, changed as a platform team changes it. These tests run alone: while
//! one of them runs, the operator is away, or works in some namespaces only.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::helm;
use bellwether_e2e::history::deletions;
use bellwether_e2e::load::Load;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::{OPERATOR_NAMESPACE, World};
use serde_json::{Value, json};

/// How long the operator may take to begin its work.
const PATIENCE: Duration = Duration::from_secs(90);
/// What selects the operator's pods.
const OPERATOR: &str = "app.kubernetes.io/name=bellwether";

/// Brings the shared release back to what it was, also when a test fails.
pub(crate) struct Shared {
    changed: bool,
}

impl Shared {
    /// For a test that is about to change it.
    pub(crate) fn changed() -> Self {
        Self { changed: true }
    }

    /// Brings it back at the end of a test.
    ///
    /// # Errors
    /// When it cannot be installed as before.
    pub(crate) fn restore(mut self) -> Result<()> {
        self.changed = false;
        helm::install(&BTreeMap::new())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.changed
            && let Err(error) = helm::install(&BTreeMap::new())
        {
            eprintln!("the shared release could not be restored: {error:#}");
        }
    }
}

pub(crate) fn a_release_is_upgraded_removed_and_installed_again_and_no_member_restarts(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(1)?;
    let before = ensemble.uids();
    let load = Load::start(clients, ensemble, 1)?;

    let shared = Shared::changed();
    the_log_filter_changes_without_a_restart(world)?;
    helm::install(&BTreeMap::from([("logFormat", json!("text"))]))?;
    wait_taken_up(world)?;
    ensure!(ensemble.uids() == before, "the upgrade restarted a member");

    // The operator's own pods meet Kubernetes' strictest standard for pods.
    let restricted = "pod-security.kubernetes.io/enforce=restricted";
    let label = ["label", "--dry-run=server", "--overwrite", "namespace"];
    let said = world
        .kubectl
        .output(&[&label[..], &[OPERATOR_NAMESPACE, restricted]].concat())?;
    let warnings = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(
        said.status.success() && !warnings.contains("violate"),
        "the operator's pods are not restricted: {warnings}"
    );

    helm::uninstall()?;
    world.kubectl.run(&[
        "get",
        "crd",
        "zookeeperensembles.zookeeper.bellwether.dev",
        "leaderelections.zookeeper.bellwether.dev",
    ])?;
    load.wait_writes(20)?;
    ensure!(
        ensemble.uids() == before,
        "the ensemble did not outlive the release"
    );

    shared.restore()?;
    wait_taken_up(world)?;
    ensemble.wait_ready(1)?;
    let done = deletions(&world.pods.history());
    ensure!(done.is_empty(), "members were restarted: {done:?}");
    ensure!(ensemble.uids() == before, "members were replaced");
    load.finish(1)?.assert_safe()
}

/// Changes what is logged, as a GitOps tool would; the running pods take it up.
fn the_log_filter_changes_without_a_restart(world: &World) -> Result<()> {
    let get = ["-n", OPERATOR_NAMESPACE, "get", "pods", "-l", OPERATOR];
    let pods = || -> Result<Vec<(String, String)>> {
        let list = world.kubectl.json(&get)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pods = list["items"].as_array().into_iter().flatten();
        let pods = pods.map(|pod| &pod["metadata"]);
        Ok(pods.map(|m| (text(&m["name"]), text(&m["uid"]))).collect())
    };
    let before = pods()?;
    let filter = "info,bellwether=debug";
    helm::install(&BTreeMap::from([("logFilter", json!(filter))]))?;
    // A kubelet brings a ConfigMap when it looks at the pod the next time, which is when the pod changes.
    let nudge = ["annotate", "pods", "-l", OPERATOR, "--overwrite"];
    world.kubectl.run(
        &[
            &["-n", OPERATOR_NAMESPACE],
            &nudge[..],
            &["example.com/looked-at=now"],
        ]
        .concat(),
    )?;
    for (pod, _) in &before {
        until(&format!("{pod} changes its filter"), PATIENCE, || {
            let logs = ["-n", OPERATOR_NAMESPACE, "logs", pod];
            let log = world.kubectl.run(&logs).map_err(|e| e.to_string())?;
            let told = |line: &&str| line.contains("taking the log filter of the file");
            let lines: Vec<&str> = log.lines().filter(told).collect();
            if lines.iter().any(|line| line.contains("bellwether=debug")) {
                Ok(())
            } else {
                Err(format!("{lines:?}"))
            }
        })?;
    }
    let after = pods()?;
    ensure!(before == after, "{before:?} became {after:?}");
    Ok(())
}

/// Waits until an operator works for the ensemble: what is taken away by hand comes back.
fn wait_taken_up(world: &World) -> Result<()> {
    world.take_away(&["poddisruptionbudget/main"])?;
    until("the disruption budget comes back", PATIENCE, || {
        let get = ["get", "poddisruptionbudget", "main"];
        world.run(&get).map(drop).map_err(|e| e.to_string())
    })
}

pub(crate) fn an_operator_of_some_namespaces_works_in_them_and_leaves_others_alone(
    world: &World,
) -> Result<()> {
    let other = World::named(&world.kubectl, &format!("{}-other", world.namespace))?;
    let result = in_one_of_two(world, &other);
    if let Err(error) = &result {
        eprintln!("the other namespace after {error:#}:\n{}", other.describe());
    }
    other.remove();
    result
}

fn in_one_of_two(world: &World, other: &World) -> Result<()> {
    let shared = Shared::changed();
    // Two, to see that one does not keep the operator from the other.
    let watched = json!([OPERATOR_NAMESPACE, world.namespace]);
    let here = BTreeMap::from([("watch.namespaces", watched)]);
    helm::install(&here)?;

    let nobody = json!({ "type": "ZkElection" });
    let there = other.ensemble("main", Ensemble::small(1))?;
    other.apply(&bellwether_e2e::election::Election::manifest(
        "nobody",
        "main",
        "/nobody",
        nobody.clone(),
    ))?;
    let ensemble = world.small_ensemble(1)?;
    let election = world.election("nobody", "/nobody", nobody)?;
    election.wait_condition("LeaderElected", "False", "NoElection")?;

    // All of that came later than the objects of the other namespace.
    ensure!(there.object().is_ok_and(|o| o["status"].is_null()));
    let made = other.run(&["get", "statefulsets,services,configmaps,pods", "-o", "name"])?;
    let made: Vec<&str> = made
        .lines()
        .filter(|l| !l.contains("kube-root-ca"))
        .collect();
    ensure!(made.is_empty(), "made in the other namespace: {made:?}");
    let mirrored = other
        .kubectl
        .json(&["-n", &other.namespace, "get", "le", "nobody"])?;
    ensure!(mirrored["status"].is_null(), "mirrored: {mirrored}");

    assert_rights(world, other)?;

    // The same objects are worked on as soon as the release works everywhere.
    let before = ensemble.uids();
    shared.restore()?;
    there.wait_ready(1)?;
    ensemble.wait_ready(1)?;
    ensure!(
        ensemble.uids() == before,
        "a member restarted when the release came to work everywhere"
    );
    Ok(())
}

/// The operator reads Secrets by their name where it works, and nowhere else.
fn assert_rights(world: &World, other: &World) -> Result<()> {
    let operator = format!("--as=system:serviceaccount:{OPERATOR_NAMESPACE}:bellwether");
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "credentials" },
        "stringData": { "username": "u", "password": "p" },
    });
    for namespace in [world, other] {
        namespace.apply(&secret)?;
    }
    let read = ["get", "secret", "credentials", "-o", "name", &operator];
    world.run(&read)?;
    let refused = |what: &str, result: Result<String>| match result {
        Err(error) if error.to_string().contains("Forbidden") => Ok(()),
        Err(error) => Err(error),
        Ok(answer) => Err(anyhow::anyhow!("the operator may {what}: {answer}")),
    };
    refused("read a Secret of another namespace", other.run(&read))?;
    let list = ["get", "secrets", "-o", "name", &operator];
    refused("list Secrets", world.run(&list))?;
    for kinds in ["zke", "pods", "configmaps"] {
        let list = ["get", kinds, "-o", "name", &operator];
        world.run(&list)?;
        refused("list in another namespace", other.run(&list))?;
    }
    let bound: Value = world.kubectl.json(&["get", "clusterrolebindings"])?;
    let items = bound["items"].as_array().into_iter().flatten();
    let ours: Vec<&str> = items
        .filter(|b| b["metadata"]["labels"]["app.kubernetes.io/instance"] == helm::RELEASE)
        .filter_map(|b| b["metadata"]["name"].as_str())
        .collect();
    let expected = ["cluster", "reviews"];
    let expected = expected.map(|of| format!("{OPERATOR_NAMESPACE}-bellwether-{of}"));
    ensure!(ours == expected, "bound in the cluster: {ours:?}");
    Ok(())
}
