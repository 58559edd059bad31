//! A node that does not exist: its pods are marked as running with addresses at which members are played.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::interval;

use super::members::{Members, address};

/// The node's name.
pub(super) const NODE: &str = "fleet";
/// How many requests are under way at once.
const PARALLEL: usize = 32;
/// How often the node says that it is there.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Runs the pods of this namespace from now on.
pub(super) async fn start(client: &Client, namespace: &str, members: &Members) -> Result<()> {
    join(client).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let members = members.clone();
    let turns = Arc::new(Semaphore::new(PARALLEL));
    tokio::spawn(async move {
        let changes = watcher(pods.clone(), watcher::Config::default()).default_backoff();
        let mut changed = changes.applied_objects().boxed();
        while let Some(pod) = changed.next().await {
            let Ok(pod) = pod else { continue };
            let (pods, members, turns) = (pods.clone(), members.clone(), turns.clone());
            let secrets = secrets.clone();
            tokio::spawn(async move {
                let _turn = turns.acquire().await;
                // The next change of the pod, such as a condition of the scheduler, is another try.
                if let Err(error) = attend(&pods, &secrets, &members, &pod).await {
                    eprintln!("pod {}: {error}", pod.name_any());
                }
            });
        }
    });
    Ok(())
}

/// Makes the node and keeps it ready.
async fn join(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let merge = PatchParams::default();
    // The scheduler must not choose it for pods that have to run.
    let taint = json!({ "key": "bellwether.dev/fleet", "effect": "NoSchedule" });
    let node = json!({ "metadata": { "name": NODE }, "spec": { "taints": [taint] } });
    let node = serde_json::from_value(node)?;
    if let Err(error) = nodes.create(&PostParams::default(), &node).await
        && !matches!(&error, kube::Error::Api(status) if status.code == 409)
    {
        return Err(error.into());
    }
    let amounts = json!({ "pods": "100000", "cpu": "10000", "memory": "10000Gi" });
    let ready = |now: &str| {
        json!({ "status": {
            "capacity": amounts, "allocatable": amounts,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Played", "message": "",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
        }})
    };
    let time = "1970-01-01T00:00:00Z";
    nodes
        .patch_status(NODE, &merge, &Patch::Merge(ready(time)))
        .await?;
    let lease = ApiResource::from_gvk(&GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease"));
    let leases: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), "kube-node-lease", &lease);
    tokio::spawn(async move {
        let mut tick = interval(HEARTBEAT);
        loop {
            tick.tick().await;
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": NODE },
                "spec": {
                    "holderIdentity": NODE, "leaseDurationSeconds": 40,
                    "renewTime": now(),
                },
            });
            let apply = PatchParams::apply("fleet").force();
            if let Err(error) = leases.patch(NODE, &apply, &Patch::Apply(lease)).await {
                eprintln!("the node's lease: {error}");
            }
        }
    });
    Ok(())
}

fn now() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string()
}

/// Takes a pod one step further.
async fn attend(
    pods: &Api<Pod>,
    secrets: &Api<Secret>,
    members: &Members,
    pod: &Pod,
) -> Result<(), kube::Error> {
    let name = pod.name_any();
    let Some((ensemble, ordinal)) = numbers(&name) else {
        return Ok(());
    };
    if pod.metadata.deletion_timestamp.is_some() {
        members.stop(ensemble, ordinal);
        let at_once = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: pod.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        return unless_gone(pods.delete(&name, &at_once).await.map(drop));
    }
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    if phase == Some("Running") {
        return Ok(());
    }
    let spec = pod.spec.as_ref();
    if spec.and_then(|s| s.node_name.as_ref()).is_none() {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
            "target": { "apiVersion": "v1", "kind": "Node", "name": NODE },
        });
        let bound: Result<Value, _> = pods
            .create_subresource("binding", &name, &PostParams::default(), &binding)
            .await;
        return unless_gone(bound.map(drop));
    }
    if !members.has_identity(ensemble)
        && let Some(name) = identity_of(pod)
        && let Some(secret) = secrets.get_opt(name).await?
        && let Some(data) = secret.data
        && let Err(error) = members.identify(ensemble, &data)
    {
        eprintln!("the certificate in the Secret {name}: {error}");
    }
    let voters = pod.annotations().get("zookeeper.bellwether.dev/voters");
    members.start(ensemble, ordinal, voters.map_or("", String::as_str));
    let status = running(pod, &address(ensemble, ordinal).to_string());
    let (merge, status) = (PatchParams::default(), Patch::Merge(status));
    unless_gone(pods.patch_status(&name, &merge, &status).await.map(drop))
}

/// The Secret with the certificate of a pod's member. Pods that an earlier operator version made have none.
fn identity_of(pod: &Pod) -> Option<&str> {
    let mut volumes = pod.spec.as_ref()?.volumes.iter().flatten();
    let identity = volumes.find(|volume| volume.name == "identity")?;
    identity.secret.as_ref()?.secret_name.as_deref()
}

/// A pod that another change overtook needs nothing more.
fn unless_gone(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        other => other,
    }
}

fn running(pod: &Pod, address: &str) -> Value {
    let time = now();
    let container = |name: &str, image: Option<&String>, ends: bool| {
        let state = match ends {
            true => {
                json!({ "terminated": { "exitCode": 0, "startedAt": time, "finishedAt": time } })
            }
            false => json!({ "running": { "startedAt": time } }),
        };
        json!({
            "name": name, "image": image, "imageID": "", "ready": true, "started": !ends,
            "restartCount": 0, "state": state,
        })
    };
    let spec = pod.spec.clone().unwrap_or_default();
    let first: Vec<Value> = spec
        .init_containers
        .iter()
        .flatten()
        .map(|c| container(&c.name, c.image.as_ref(), c.restart_policy.is_none()))
        .collect();
    let others: Vec<Value> = spec
        .containers
        .iter()
        .map(|c| container(&c.name, c.image.as_ref(), false))
        .collect();
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
    let conditions =
        conditions.map(|of| json!({ "type": of, "status": "True", "lastTransitionTime": time }));
    json!({ "status": {
        "phase": "Running", "startTime": time, "hostIP": "10.99.0.1", "podIP": address,
        "podIPs": [{ "ip": address }], "conditions": conditions,
        "initContainerStatuses": first, "containerStatuses": others,
    }})
}

/// The ensemble and the ordinal of a pod: `e00012-2`.
pub(super) fn numbers(pod: &str) -> Option<(u32, u32)> {
    let (ensemble, ordinal) = pod.strip_prefix('e')?.split_once('-')?;
    Some((ensemble.parse().ok()?, ordinal.parse().ok()?))
}
