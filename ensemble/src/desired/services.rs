//! The Services and the disruption budget.

use bellwether_api::labels;
use serde_json::json;

use super::config::{CLIENT_PORT, ELECTION_PORT, QUORUM_PORT};
use super::{DesiredObject, ObjectKind, apply, members_service, metadata};
use crate::validate::ValidEnsemble;

/// The Service of clients: every member that serves, observers among them.
pub fn client_service(ensemble: &ValidEnsemble) -> DesiredObject {
    let body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "spec": {
            "type": "ClusterIP",
            "selector": labels::selector(&ensemble.name),
            "ports": [{ "name": "client", "port": CLIENT_PORT, "targetPort": "client" }],
        },
    });
    let metadata = metadata(ensemble, &ensemble.name);
    apply(ObjectKind::Service, ensemble.name.clone(), metadata, body)
}

/// The headless Service, which names every member. Members that are not ready are named too:
/// they need each other's addresses to become ready.
pub fn headless_service(ensemble: &ValidEnsemble) -> DesiredObject {
    let name = members_service(&ensemble.name);
    let body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": labels::selector(&ensemble.name),
            "ports": [
                { "name": "client", "port": CLIENT_PORT, "targetPort": "client" },
                { "name": "quorum", "port": QUORUM_PORT, "targetPort": "quorum" },
                { "name": "election", "port": ELECTION_PORT, "targetPort": "election" },
            ],
        },
    });
    let metadata = metadata(ensemble, &name);
    apply(ObjectKind::Service, name, metadata, body)
}

/// The disruption budget: others may take away one member at a time. The operator itself deletes
/// pods by its own, stricter rule.
pub fn pod_disruption_budget(ensemble: &ValidEnsemble) -> DesiredObject {
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "spec": {
            "maxUnavailable": 1,
            "selector": {
                "matchLabels": labels::selector(&ensemble.name),
                // Observers do not vote, so the disruption budget ignores them.
                "matchExpressions": [{
                    "key": labels::COMPONENT,
                    "operator": "NotIn",
                    "values": [labels::COMPONENT_OBSERVER],
                }],
            },
        },
    });
    let (name, metadata) = (ensemble.name.clone(), metadata(ensemble, &ensemble.name));
    apply(ObjectKind::PodDisruptionBudget, name, metadata, body)
}
