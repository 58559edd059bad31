//! Statuses as kubelets write them, and what follows for the server.

use serde_json::{Value, json};

use super::*;
use crate::ensemble::gather::observe_pod;

const STARTED: &str = "2026-01-01T00:00:00Z";

fn container(name: &str, state: Value) -> Value {
    let running = state.get("running").is_some();
    json!({
        "name": name,
        "image": "registry.example/image:1",
        "imageID": "",
        "ready": running,
        "started": running,
        "restartCount": 0,
        "lastState": {},
        "state": state,
    })
}

fn running(name: &str) -> Value {
    container(name, json!({ "running": { "startedAt": STARTED } }))
}

fn waiting(name: &str, reason: &str, message: &str) -> Value {
    let mut waiting = json!({ "reason": reason });
    if !message.is_empty() {
        waiting["message"] = json!(message);
    }
    container(name, json!({ "waiting": waiting }))
}

fn terminated(name: &str, code: i32, reason: &str) -> Value {
    let end = json!({
        "exitCode": code,
        "reason": reason,
        "startedAt": STARTED,
        "finishedAt": STARTED,
        "containerID": "containerd://0123",
    });
    container(name, json!({ "terminated": end }))
}

/// A container that the kubelet starts again later, and what it said when it ended last.
fn crashes(name: &str, said: &str) -> Value {
    let text = format!("back-off 5m0s restarting failed container={name} pod=main-0_default(uid)");
    let mut status = waiting(name, "CrashLoopBackOff", &text);
    status["lastState"] = terminated(name, 1, "Error")["state"].clone();
    status["lastState"]["terminated"]["message"] = json!(said);
    status
}

fn prepared() -> Value {
    terminated("prepare", 0, "Completed")
}

/// The pod of a member with these statuses. The container `sidecar` is an init container that keeps running,
/// as service meshes inject it.
fn pod(phase: &str, init: &[Value], containers: &[Value]) -> Value {
    json!({
        "metadata": { "name": "main-0", "creationTimestamp": STARTED },
        "spec": {
            "initContainers": [
                { "name": "prepare" },
                { "name": "sidecar", "restartPolicy": "Always" },
            ],
            "containers": [{ "name": "zookeeper" }, { "name": "probes" }, { "name": "proxy" }],
        },
        "status": {
            "phase": phase,
            "conditions": [{ "type": "PodScheduled", "status": "True" }],
            "initContainerStatuses": init,
            "containerStatuses": containers,
        },
    })
}

/// What is observed: `Running`, `Starting` or the reason of a failure; and the container beside the
/// server that does not run, with its reason.
fn observed(pod: Value) -> (String, Option<String>) {
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let observed = observe_pod(Rules::ALL, &pod, 0);
    let runs = observed.state == PodState::Running;
    assert_eq!(runs, !observed.is_idle(), "a server that runs may serve");
    let state = match observed.state {
        PodState::Running => "Running".to_owned(),
        PodState::Starting => "Starting".to_owned(),
        PodState::Failing { reason, .. } => reason,
    };
    let beside = observed.failing_container;
    (state, beside.map(|c| format!("{} {}", c.name, c.reason)))
}

#[test]
fn only_what_the_server_needs_decides_whether_it_runs() {
    let zookeeper = || running("zookeeper");
    let probes = || running("probes");
    let not_yet = |name| waiting(name, "PodInitializing", "");
    let later = || vec![not_yet("zookeeper"), not_yet("probes")];
    let pull = "Back-off pulling image \"registry.example/image:1\"";
    let cases: Vec<(&str, Value, &str, Option<&str>)> = vec![
        (
            "all run",
            pod("Running", &[prepared()], &[zookeeper(), probes()]),
            "Running",
            None,
        ),
        (
            "the init container runs",
            pod("Pending", &[running("prepare")], &later()),
            "Starting",
            None,
        ),
        (
            "the init container failed and is about to be started again",
            pod("Pending", &[terminated("prepare", 1, "Error")], &later()),
            "Starting",
            None,
        ),
        (
            "the init container fails again and again",
            pod("Pending", &[crashes("prepare", "another volume")], &later()),
            "CrashLoopBackOff",
            None,
        ),
        (
            "the init container's image cannot be pulled",
            pod(
                "Pending",
                &[waiting("prepare", "ImagePullBackOff", pull)],
                &later(),
            ),
            "ImagePullBackOff",
            None,
        ),
        (
            "the server's image cannot be pulled",
            pod(
                "Pending",
                &[prepared()],
                &[waiting("zookeeper", "ErrImagePull", pull), probes()],
            ),
            "ErrImagePull",
            None,
        ),
        (
            "the server's configuration names a Secret that does not exist",
            pod(
                "Pending",
                &[prepared()],
                &[
                    waiting(
                        "zookeeper",
                        "CreateContainerConfigError",
                        "secret \"s\" not found",
                    ),
                    probes(),
                ],
            ),
            "CreateContainerConfigError",
            None,
        ),
        (
            "the server is being started",
            pod(
                "Pending",
                &[prepared()],
                &[waiting("zookeeper", "ContainerCreating", ""), probes()],
            ),
            "Starting",
            None,
        ),
        (
            "the server crashes again and again",
            pod(
                "Running",
                &[prepared()],
                &[crashes("zookeeper", "no space"), probes()],
            ),
            "CrashLoopBackOff",
            None,
        ),
        (
            "the server was out of memory and is about to be started again",
            pod(
                "Running",
                &[prepared()],
                &[terminated("zookeeper", 137, "OOMKilled"), probes()],
            ),
            "Starting",
            None,
        ),
        (
            "the probes crash again and again",
            pod(
                "Running",
                &[prepared()],
                &[zookeeper(), crashes("probes", "port in use")],
            ),
            "Running",
            Some("probes CrashLoopBackOff"),
        ),
        (
            "the probes were out of memory and are about to be started again",
            pod(
                "Running",
                &[prepared()],
                &[zookeeper(), terminated("probes", 137, "OOMKilled")],
            ),
            "Running",
            Some("probes OOMKilled"),
        ),
        (
            "the image of the probes cannot be pulled",
            pod(
                "Pending",
                &[prepared()],
                &[zookeeper(), waiting("probes", "ImagePullBackOff", pull)],
            ),
            "Running",
            Some("probes ImagePullBackOff"),
        ),
        (
            "the probes start after the server",
            pod(
                "Pending",
                &[prepared()],
                &[zookeeper(), waiting("probes", "ContainerCreating", "")],
            ),
            "Running",
            None,
        ),
        (
            "a proxy that a mesh injected cannot be pulled",
            pod(
                "Pending",
                &[prepared()],
                &[
                    zookeeper(),
                    probes(),
                    waiting("proxy", "ErrImagePull", pull),
                ],
            ),
            "Running",
            Some("proxy ErrImagePull"),
        ),
        (
            "the server starts, and a proxy cannot be pulled",
            pod(
                "Pending",
                &[prepared()],
                &[
                    waiting("zookeeper", "ContainerCreating", ""),
                    probes(),
                    waiting("proxy", "ErrImagePull", pull),
                ],
            ),
            "Starting",
            Some("proxy ErrImagePull"),
        ),
        (
            "a sidecar among the init containers runs",
            pod(
                "Running",
                &[prepared(), running("sidecar")],
                &[zookeeper(), probes()],
            ),
            "Running",
            None,
        ),
        (
            "a sidecar among the init containers crashes beside the server",
            pod(
                "Running",
                &[prepared(), crashes("sidecar", "no certificate")],
                &[zookeeper(), probes()],
            ),
            "Running",
            Some("sidecar CrashLoopBackOff"),
        ),
        (
            "a sidecar among the init containers ended beside the server",
            pod(
                "Running",
                &[prepared(), terminated("sidecar", 0, "Completed")],
                &[zookeeper(), probes()],
            ),
            "Running",
            Some("sidecar Completed"),
        ),
        (
            "a sidecar among the init containers keeps the server from starting",
            pod(
                "Pending",
                &[prepared(), crashes("sidecar", "no certificate")],
                &later(),
            ),
            "CrashLoopBackOff",
            None,
        ),
        (
            "a sidecar among the init containers crashes, and the server does not run either",
            pod(
                "Running",
                &[prepared(), crashes("sidecar", "no certificate")],
                &[terminated("zookeeper", 1, "Error"), probes()],
            ),
            "CrashLoopBackOff",
            None,
        ),
    ];
    for (what, pod, state, beside) in cases {
        let expected = (state.to_owned(), beside.map(str::to_owned));
        assert_eq!(observed(pod), expected, "{what}");
    }
}

#[test]
fn a_pod_that_has_ended_or_found_no_node_fails() {
    let mut evicted = pod("Failed", &[], &[]);
    evicted["status"] = json!({
        "phase": "Failed",
        "reason": "Evicted",
        "message": "Usage of EmptyDir volume \"logs\" exceeds the limit \"1Gi\".",
        "startTime": STARTED,
    });
    assert_eq!(observed(evicted).0, "Evicted");
    let ended = [
        terminated("zookeeper", 137, "Error"),
        terminated("probes", 0, "Completed"),
    ];
    let mut failed = pod("Failed", &[prepared()], &ended);
    assert_eq!(observed(failed.clone()), ("Failed".to_owned(), None));
    // A pod that is being deleted ends, too, which is not a failure.
    failed["metadata"]["deletionTimestamp"] = json!(STARTED);
    assert_eq!(observed(failed), ("Starting".to_owned(), None));

    let mut homeless = pod("Pending", &[], &[]);
    homeless["status"]["conditions"] = json!([{
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }]);
    assert_eq!(observed(homeless), ("Unschedulable".to_owned(), None));
}

#[test]
fn a_server_goes_on_while_its_pod_is_deleted() {
    let containers = [running("zookeeper"), terminated("probes", 0, "Completed")];
    let mut going = pod("Running", &[prepared()], &containers);
    going["metadata"]["deletionTimestamp"] = json!(STARTED);
    assert_eq!(observed(going), ("Running".to_owned(), None));
}

#[test]
fn what_a_container_said_last_tells_more_than_the_kubelet() {
    let of = |containers: &[Value]| {
        let pod = pod("Running", &[prepared()], containers);
        observe(Rules::ALL, &serde_json::from_value(pod).unwrap())
    };
    let (state, _) = of(&[crashes("zookeeper", "no space left\n")]);
    let PodState::Failing { message, .. } = state else {
        panic!("{state:?}");
    };
    assert_eq!(message, "no space left");
    let (_, beside) = of(&[running("zookeeper"), crashes("probes", "port in use")]);
    assert_eq!(beside.unwrap().message, "port in use");
}
