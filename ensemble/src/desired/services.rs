//! The Services and the disruption budget.

use bellwether_api::labels;
use serde_json::{Value, json};

use super::config::{CLIENT_PORT, ELECTION_PORT, QUORUM_PORT, SECURE_CLIENT, SECURE_CLIENT_PORT};
use super::{DesiredObject, ObjectKind, apply, members_service, metadata};
use crate::client_tls::ClientTls;
use crate::validate::ValidEnsemble;

/// The Service of clients: every member that serves, observers among them.
///
/// `tls` is what every member has: a port that only some have would lead clients nowhere.
pub fn client_service(ensemble: &ValidEnsemble, tls: ClientTls) -> DesiredObject {
    let body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "spec": {
            "type": "ClusterIP",
            "selector": labels::selector(&ensemble.name),
            "ports": client_ports(tls),
        },
    });
    let metadata = metadata(ensemble, &ensemble.name);
    apply(ObjectKind::Service, ensemble.name.clone(), metadata, body)
}

/// The headless Service, which names every member. Members that are not ready are named too:
/// they need each other's addresses to become ready.
pub fn headless_service(ensemble: &ValidEnsemble, tls: ClientTls) -> DesiredObject {
    let mut ports = client_ports(tls);
    ports.extend([
        json!({ "name": "quorum", "port": QUORUM_PORT, "targetPort": "quorum" }),
        json!({ "name": "election", "port": ELECTION_PORT, "targetPort": "election" }),
    ]);
    let name = members_service(&ensemble.name);
    let body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": labels::selector(&ensemble.name),
            "ports": ports,
        },
    });
    let metadata = metadata(ensemble, &name);
    apply(ObjectKind::Service, name, metadata, body)
}

/// The ports on which clients connect.
fn client_ports(tls: ClientTls) -> Vec<Value> {
    let port = |name, port| json!({ "name": name, "port": port, "targetPort": name });
    let plaintext = tls.takes_plaintext().then(|| port("client", CLIENT_PORT));
    let secure = tls.takes_tls();
    let secure = secure.then(|| port(SECURE_CLIENT, SECURE_CLIENT_PORT));
    plaintext.into_iter().chain(secure).collect()
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
