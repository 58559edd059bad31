//! What the kubelet writes about a pod's containers.

use bellwether_api_server::{Kind, Object, Store, time_stamp};
use bellwether_ensemble::desired::stateful_set::{CONTAINER, PREPARE_CONTAINER};
use serde_json::{Value, json};

use super::{ACTOR, Sandbox, Stage};

/// The containers of a pod beside the server's.
pub(super) fn other_containers(pod: &Object) -> Vec<String> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let names = containers.filter_map(|c| c["name"].as_str());
    let others = names.filter(|name| *name != CONTAINER);
    others.map(str::to_owned).collect()
}

/// Writes a pod's status, if it differs from what was written last.
pub(super) fn write_status(store: &mut Store, sandbox: &mut Sandbox, lost: bool, beside: bool) {
    let ready = sandbox.ready && !lost && !beside;
    let same = |shown: &(Stage, bool, bool)| {
        shown.0 == sandbox.stage && (shown.1, shown.2) == (ready, beside)
    };
    if sandbox.shown.as_ref().is_some_and(same) {
        return;
    }
    sandbox.shown = Some((sandbox.stage.clone(), ready, beside));
    let (init, server) = match &sandbox.stage {
        Stage::Creating(_) => (
            waiting("PodInitializing", ""),
            waiting("PodInitializing", ""),
        ),
        Stage::Waiting {
            reason,
            message,
            init: true,
            ..
        } => (failed(reason, message), waiting("PodInitializing", "")),
        Stage::Waiting {
            reason,
            message,
            init: false,
            ..
        } => (ended(), failed(reason, message)),
        Stage::Running(_) => (
            ended(),
            json!({ "state": { "running": {} }, "ready": ready }),
        ),
        Stage::Ending(_) => (
            ended(),
            json!({ "state": { "terminated": { "exitCode": 143 } } }),
        ),
    };
    let named = |name: &str, mut status: Value| {
        status["name"] = json!(name);
        status
    };
    let running = matches!(sandbox.stage, Stage::Running(_));
    // They start with the server, and run on while it starts again.
    let other = match &sandbox.stage {
        Stage::Running(_) | Stage::Waiting { init: false, .. } => {
            json!({ "state": { "running": {} }, "ready": true })
        }
        Stage::Ending(_) => ended(),
        _ => waiting("PodInitializing", ""),
    };
    // One of them fails, where a script says so.
    let other = match beside {
        true => failed("CrashLoopBackOff", "the container ended"),
        false => other,
    };
    let others = sandbox.others.iter().map(|name| named(name, other.clone()));
    let containers: Vec<Value> = others.chain([named(CONTAINER, server)]).collect();
    let status = json!({
        "phase": if running { "Running" } else { "Pending" },
        "podIP": sandbox.address.to_string(),
        "initContainerStatuses": [named(PREPARE_CONTAINER, init)],
        "containerStatuses": containers,
        "ready": ready,
    });
    if status == sandbox.written {
        return;
    }
    sandbox.written = status.clone();
    let target = (sandbox.namespace.as_str(), sandbox.name.as_str());
    let now = time_stamp(0);
    let now = now.as_str().unwrap_or_default();
    let _ = store.update_status(ACTOR, Kind::POD, target, |live| {
        if live.is_null() {
            *live = json!({});
        }
        let word = if ready { "True" } else { "False" };
        let before = live["conditions"].as_array().into_iter().flatten();
        let since = before
            .clone()
            .find(|c| c["type"] == "Ready" && c["status"] == word);
        let since = since
            .and_then(|c| c["lastTransitionTime"].as_str())
            .unwrap_or(now)
            .to_owned();
        let scheduled = json!({ "type": "PodScheduled", "status": "True" });
        for key in [
            "phase",
            "podIP",
            "initContainerStatuses",
            "containerStatuses",
        ] {
            live[key] = status[key].clone();
        }
        live["conditions"] = json!([
            scheduled,
            { "type": "Ready", "status": word, "lastTransitionTime": since },
        ]);
    });
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({ "state": { "waiting": { "reason": reason, "message": message } } })
}

fn failed(reason: &str, message: &str) -> Value {
    let mut status = waiting(reason, message);
    status["lastState"] = json!({ "terminated": { "exitCode": 1, "message": message } });
    status
}

fn ended() -> Value {
    json!({ "state": { "terminated": { "exitCode": 0 } } })
}
