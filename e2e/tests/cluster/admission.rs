//! Rights, and what the chart's admission policies refuse beyond them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::clients;
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::helm;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

use crate::installation::Shared;

/// How long the API server may take to obey another policy.
const PATIENCE: Duration = Duration::from_secs(30);

/// The operator's identity.
const OPERATOR: &str = "system:serviceaccount:bellwether-system:bellwether";

/// The administrator of the cluster.
const ADMINISTRATOR: &str = "administrator";

/// Has the API server judge a command on an object as this user's, and keep nothing of it. Returns why it refuses.
fn judge(world: &World, user: &str, command: &[&str], object: &Value) -> Result<Option<String>> {
    let (user, namespace) = (format!("--as={user}"), world.namespace.as_str());
    let mut arguments = vec!["-n", namespace, &user];
    if user.ends_with(ADMINISTRATOR) {
        arguments.push("--as-group=system:masters");
    }
    arguments.extend(command);
    arguments.push("--dry-run=server");
    let output = world.kubectl.feed(&arguments, &object.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((!output.status.success()).then_some(said))
}

fn taken(verdict: Result<Option<String>>) -> Result<()> {
    let verdict = verdict?;
    ensure!(verdict.is_none(), "refused: {verdict:?}");
    Ok(())
}

fn refused(verdict: Result<Option<String>>, words: &str) -> Result<()> {
    let verdict = verdict?.unwrap_or_default();
    ensure!(
        verdict.contains(words),
        "not refused with {words:?}: {verdict}"
    );
    Ok(())
}

fn own(name: &str) -> Value {
    let labels = json!({ "app.kubernetes.io/managed-by": "bellwether", "app.kubernetes.io/instance": "main" });
    json!({ "name": name, "labels": labels })
}

fn map(metadata: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {} })
}

/// A StatefulSet of the operator's whose pods have this beside a container.
fn set(pod: &Value) -> Value {
    let mut set = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": own("main"),
        "spec": {
            "serviceName": "main",
            "selector": { "matchLabels": { "app": "main" } },
            "template": {
                "metadata": { "labels": { "app": "main" } },
                "spec": { "containers": [{ "name": "zookeeper", "image": "zookeeper:3.9.5" }] },
            },
        },
    });
    for (field, value) in pod.as_object().into_iter().flatten() {
        set["spec"]["template"]["spec"][field] = value.clone();
    }
    set
}

/// With the operator's token only the operator's own objects can be written.
pub(crate) fn the_operators_identity_is_of_use_for_its_own_objects_only(
    world: &World,
) -> Result<()> {
    let create = |object: &Value| judge(world, OPERATOR, &["create", "-f", "-"], object);
    let label = "only objects with the label";
    taken(create(&map(&own("main"))))?;
    refused(create(&map(&json!({ "name": "main" }))), label)?;

    let other = map(&json!({ "name": "other" }));
    world.apply(&other)?;
    refused(
        judge(
            world,
            OPERATOR,
            &["delete", "configmap", "other"],
            &Value::Null,
        ),
        label,
    )?;
    let take_over = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    refused(
        judge(world, OPERATOR, &take_over, &map(&own("other"))),
        label,
    )?;

    let secret =
        |name: &str| json!({ "volumes": [{ "name": "a", "secret": { "secretName": name } }] });
    taken(create(&set(&secret("main-identity-0a1b"))))?;
    refused(create(&set(&secret("passwords"))), "mounts no Secret")?;
    let node = json!({ "volumes": [{ "name": "a", "hostPath": { "path": "/" } }] });
    refused(create(&set(&node)), "mounts no Secret")?;
    taken(create(&set(&json!({}))))?;
    let account = json!({ "serviceAccountName": "builder" });
    refused(create(&set(&account)), "no ServiceAccount but the default")?;

    let mut pod = clients::pod("application", &["sleep", "infinity"]);
    // It waits for a node that does not exist.
    pod["spec"]["nodeSelector"] = json!({ "of": "no-node" });
    world.apply(&pod)?;
    let labels = ["label", "pod", "application", "role=leader"];
    taken(judge(world, OPERATOR, &labels, &Value::Null))?;
    let image = ["set", "image", "pod/application", "clients=other:1"];
    refused(
        judge(world, OPERATOR, &image, &Value::Null),
        "changes only labels of pods",
    )?;
    let delete = ["delete", "pod", "application"];
    refused(judge(world, OPERATOR, &delete, &Value::Null), label)
}

/// Who may edit ensembles may not give their data up; who administers the namespace may.
pub(crate) fn a_loss_of_data_is_accepted_by_those_with_the_right_to(world: &World) -> Result<()> {
    for role in ["edit", "admin"] {
        let (role_flag, user) = (
            format!("--clusterrole={role}"),
            format!("--user={role}-of-shop"),
        );
        world.run(&["create", "rolebinding", role, &role_flag, &user])?;
    }
    let mut spec = Ensemble::small(1);
    spec["paused"] = json!(true);
    world.apply(&Ensemble::manifest("main", spec))?;
    let annotate = |user: &str, annotation: &str| {
        judge(
            world,
            user,
            &["annotate", "zke", "main", annotation],
            &Value::Null,
        )
    };
    let accept = "zookeeper.bellwether.dev/accept-data-loss=token";
    // The rights of these roles come a moment after the roles.
    until("the role admin has the right", PATIENCE, || {
        taken(annotate("admin-of-shop", accept)).map_err(|e| e.to_string())
    })?;
    taken(annotate(
        "edit-of-shop",
        "zookeeper.bellwether.dev/restartedAt=now",
    ))?;
    refused(annotate("edit-of-shop", accept), "gives data up")
}

/// A member runs as another user, on the volume that was the first one's.
pub(crate) fn a_member_runs_as_the_user_of_the_spec(world: &World) -> Result<()> {
    let ensemble = world.small_ensemble(1)?;
    ensemble.patch(&json!({ "pod": { "user": { "id": 1_000_650_000, "group": 0 } } }))?;
    let ids = ["exec", "main-0", "-c", "zookeeper", "--", "id"];
    until(
        "the member runs as the other user",
        Duration::from_secs(120),
        || {
            let ids = world.run(&ids).map_err(|e| e.to_string())?;
            let is_other = ids.starts_with("uid=1000650000 gid=0");
            is_other.then_some(()).ok_or(ids)
        },
    )?;
    ensemble.wait_ready(1)
}

/// What the operator may do in a namespace, a line for each kind; in the words of `kubectl auth can-i --list`.
fn rights(world: &World) -> Result<String> {
    let user = format!("--as={OPERATOR}");
    let list = world.run(&["auth", "can-i", "--list", "--no-headers", &user])?;
    let mut lines: Vec<String> = list
        .lines()
        .filter(|line| !line.starts_with(char::is_whitespace) && !line.contains("selfsubject"))
        .map(|line| {
            line.split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .replace("[] [] ", "")
        })
        .collect();
    lines.sort();
    Ok(lines.join("\n"))
}

/// Those by default, and the lines that features change.
const RIGHTS: &str = "\
configmaps [get list watch create patch delete]
events [list]
events.events.k8s.io [create patch]
leaderelections.zookeeper.bellwether.dev [get list watch]
leaderelections.zookeeper.bellwether.dev/status [get patch update]
networkpolicies.networking.k8s.io [get list watch create patch delete]
persistentvolumeclaims [get list watch patch delete]
poddisruptionbudgets.policy [get list watch create patch]
pods [get list watch delete]
secrets [create update]
services [get list watch create patch]
statefulsets.apps [get list watch create patch]
storageclasses.storage.k8s.io [get]
subjectaccessreviews.authorization.k8s.io [create]
tokenreviews.authentication.k8s.io [create]
zookeeperensembles.zookeeper.bellwether.dev [get list watch]
zookeeperensembles.zookeeper.bellwether.dev/status [get patch update]
with rbac.secrets:
secrets [create update get]
with rbac.certManager:
certificates.cert-manager.io [get list watch create patch delete]
with rbac.projections:
endpointslices.discovery.k8s.io [get list watch create update delete]
leases.coordination.k8s.io [get list watch create update delete]
pods [get list watch delete patch]
services [get list watch create patch update delete]
with rbac.rollouts:
controllerrevisions.apps [list]
daemonsets.apps [get list watch]
pods/eviction [create]
with handover.onCordon:
nodes [list watch]
with bridges.enabled:
leases.coordination.k8s.io [get create update]
";

/// The rights by default, and what each feature adds to them; and images only from registries that are named.
pub(crate) fn rights_are_few_by_default_and_images_come_from_named_registries(
    world: &World,
) -> Result<()> {
    let shared = Shared::changed();
    let features = [
        "rbac.secrets",
        "rbac.certManager",
        "rbac.projections",
        "rbac.rollouts",
        "handover.onCordon",
        "bridges.enabled",
    ];
    let install = |on: &str| {
        let registries = json!(["docker.io/library"]);
        let mut values = BTreeMap::from([("admissionPolicies.imageRegistries", registries)]);
        values.extend(features.map(|feature| (feature, json!(feature == on))));
        helm::install(&values)
    };
    install("none")?;
    let least = rights(world)?;
    let mut found = format!("{least}\n");
    for feature in features {
        install(feature)?;
        let now = rights(world)?;
        let new = now
            .lines()
            .filter(|line| !least.lines().any(|known| known == *line));
        let new: String = new.map(|line| format!("{line}\n")).collect();
        found.push_str(&format!("with {feature}:\n{new}"));
    }
    println!("{found}");
    ensure!(found == RIGHTS, "the rights are not as expected: {found}");

    let of = |image: &str| {
        let mut spec = Ensemble::small(1);
        spec["image"] = json!(image);
        let object = Ensemble::manifest("main", spec);
        judge(world, ADMINISTRATOR, &["create", "-f", "-"], &object)
    };
    until("other registries are refused", PATIENCE, || {
        let verdict = of("elsewhere.example/library/zookeeper:3.9.5");
        refused(verdict, "one of the registries").map_err(|e| e.to_string())
    })?;
    taken(of("docker.io/library/zookeeper:3.9.5"))?;
    shared.restore()
}
