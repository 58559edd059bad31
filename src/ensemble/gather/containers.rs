//! What the statuses of a pod's containers say about its server.
//!
//! Only ZooKeeper's container, and the init containers before it starts, decide whether the server
//! runs. Any other container may fail while the server keeps its vote, so the member must not count
//! as idle because of it.

use bellwether_ensemble::desired::stateful_set::CONTAINER;
use bellwether_ensemble::observation::{FailingContainer, PodState};
use bellwether_ensemble::rules::{Rule, Rules};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

/// Reasons of a waiting container that pass by themselves while a pod starts.
const PASSING: &[&str] = &["PodInitializing", "ContainerCreating"];
/// The longest message of a container that is shown.
const LONGEST_MESSAGE: usize = 400;

/// The state of the server, and another container that does not run.
pub(super) fn observe(rules: Rules, pod: &Pod) -> (PodState, Option<FailingContainer>) {
    let Some(status) = pod.status.as_ref() else {
        return (PodState::Starting, None);
    };
    // The containers of a pod that is being deleted, or fails as a whole, end one after the other.
    let going = pod.metadata.deletion_timestamp.is_some();
    let state = state(status, going);
    let ends = going || matches!(state, PodState::Failing { .. });
    let other = (!ends).then(|| other_container(pod, status)).flatten();
    match other {
        Some(other) if !rules.keep(Rule::OwnContainersDecide) => {
            let FailingContainer {
                reason, message, ..
            } = other;
            (PodState::Failing { reason, message }, None)
        }
        other => (state, other),
    }
}

fn state(status: &PodStatus, going: bool) -> PodState {
    let mut containers = status.container_statuses.iter().flatten();
    let server = containers.find(|c| c.name == CONTAINER);
    if server.is_some_and(runs) {
        return PodState::Running;
    }
    let unschedulable = status.conditions.iter().flatten().find(|c| {
        c.type_ == "PodScheduled"
            && c.status == "False"
            && c.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(condition) = unschedulable {
        return PodState::Failing {
            reason: "Unschedulable".to_owned(),
            message: condition.message.clone().unwrap_or_default(),
        };
    }
    // The server starts only after its init containers, sidecars among them.
    let before = status.init_container_statuses.iter().flatten();
    if let Some(failing) = server.into_iter().chain(before).find_map(waits) {
        return PodState::Failing {
            reason: failing.reason,
            message: failing.message,
        };
    }
    // A pod that is being deleted fails too if its server exits with another code than 0.
    if status.phase.as_deref() == Some("Failed") && !going {
        return PodState::Failing {
            reason: status.reason.clone().unwrap_or_else(|| "Failed".to_owned()),
            message: status.message.clone().unwrap_or_default(),
        };
    }
    PodState::Starting
}

/// A container beside ZooKeeper's that should run and does not. An init container is one of these
/// only if it is a sidecar, which Kubernetes keeps running beside the others.
fn other_container(pod: &Pod, status: &PodStatus) -> Option<FailingContainer> {
    let spec = pod.spec.as_ref();
    let is_sidecar = |name: &str| {
        let mut init = spec.iter().flat_map(|s| s.init_containers.iter().flatten());
        init.any(|c| c.name == name && c.restart_policy.as_deref() == Some("Always"))
    };
    let sidecars = status.init_container_statuses.iter().flatten();
    let mut others = status
        .container_statuses
        .iter()
        .flatten()
        .filter(|c| c.name != CONTAINER)
        .chain(sidecars.filter(|c| is_sidecar(&c.name)));
    others.find_map(|c| waits(c).or_else(|| ended(c)))
}

fn runs(container: &ContainerStatus) -> bool {
    container
        .state
        .as_ref()
        .is_some_and(|s| s.running.is_some())
}

/// A container that waits for a reason that does not pass by itself.
fn waits(container: &ContainerStatus) -> Option<FailingContainer> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.clone()?;
    if PASSING.contains(&reason.as_str()) {
        return None;
    }
    // The container's own last message says more than "back-off restarting".
    let last = container
        .last_state
        .as_ref()
        .and_then(|s| s.terminated.as_ref())
        .and_then(|t| t.message.clone())
        .filter(|m| !m.trim().is_empty());
    let message = last.or_else(|| waiting.message.clone()).unwrap_or_default();
    Some(FailingContainer {
        name: container.name.clone(),
        reason,
        message: shorten(&message),
    })
}

/// A container that ended, before the kubelet starts it again.
fn ended(container: &ContainerStatus) -> Option<FailingContainer> {
    let end = container.state.as_ref()?.terminated.as_ref()?;
    Some(FailingContainer {
        name: container.name.clone(),
        reason: end.reason.clone().unwrap_or_else(|| "Error".to_owned()),
        message: shorten(end.message.as_deref().unwrap_or_default()),
    })
}

fn shorten(message: &str) -> String {
    message.trim().chars().take(LONGEST_MESSAGE).collect()
}

#[cfg(test)]
mod tests;
