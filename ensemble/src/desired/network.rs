//! Who may connect to the members.

use bellwether_api::ensemble::MembersPolicy;
use bellwether_api::labels;
use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use serde_json::{Value, json};

use super::config::{CLIENT_PORT, ELECTION_PORT, METRICS_PORT, QUORUM_PORT, SECURE_CLIENT_PORT};
use super::stateful_set::{CONTROL_PORT, PROBE_PORT};
use super::{DesiredObject, ObjectKind, apply, metadata};
use crate::validate::ValidEnsemble;

/// Both, whether or not the members listen on them: a change of TLS would otherwise have to change the policy in step.
const CLIENT_PORTS: &[u16] = &[CLIENT_PORT, SECURE_CLIENT_PORT];

/// The name of the NetworkPolicy.
pub fn policy_name(ensemble: &str) -> String {
    format!("{ensemble}-members")
}

/// The NetworkPolicy of all members, observers among them; `None` if the spec wants none.
///
/// It says who may connect to members, and nothing about whom they may connect to. The kubelet's probes need no rule: a
/// policy does not apply to the node of a pod.
pub fn policy(ensemble: &ValidEnsemble) -> Option<DesiredObject> {
    if ensemble.network.policy == Some(MembersPolicy::Disabled) {
        return None;
    }
    let members = json!({ "matchLabels": labels::selector(&ensemble.name) });
    let operator = ensemble.context.operator_pods.as_ref().map(|pods| {
        json!([{
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": pods.namespace } },
            "podSelector": { "matchLabels": pods.labels },
        }])
    });
    let clients = peers(ensemble.network.clients_from.as_deref());
    // As a client of elections.
    let operator_as_client = clients.as_ref().and(operator.clone());
    // In pods that an earlier operator version made, the program answers on the port of the probes.
    let mut ingress = vec![
        rule(
            Some(json!([{ "podSelector": members }])),
            &[QUORUM_PORT, ELECTION_PORT],
        ),
        rule(operator, &[CONTROL_PORT, PROBE_PORT]),
        rule(clients, CLIENT_PORTS),
    ];
    ingress.extend(operator_as_client.map(|from| rule(Some(from), CLIENT_PORTS)));
    if ensemble.metrics {
        let readers = peers(ensemble.network.metrics_from.as_deref());
        ingress.push(rule(readers, &[METRICS_PORT]));
    }
    let body = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "spec": { "podSelector": members, "policyTypes": ["Ingress"], "ingress": ingress },
    });
    let name = policy_name(&ensemble.name);
    let metadata = metadata(ensemble, &name);
    Some(apply(ObjectKind::NetworkPolicy, name, metadata, body))
}

/// As JSON; `None` means everybody.
fn peers(list: Option<&[NetworkPolicyPeer]>) -> Option<Value> {
    list.map(|peers| json!(peers))
}

/// Lets `from` connect to these ports; `None` means everybody.
fn rule(from: Option<Value>, ports: &[u16]) -> Value {
    let ports = ports
        .iter()
        .map(|port| json!({ "port": port, "protocol": "TCP" }));
    let mut rule = json!({ "ports": ports.collect::<Vec<_>>() });
    if let Some(from) = from {
        rule["from"] = from;
    }
    rule
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bellwether_api::ZooKeeperEnsembleSpec;

    use super::*;
    use crate::validate::{OperatorPods, example};

    /// The policy of an ensemble with these `spec.network` and `spec.metrics`.
    fn of(network: Value, metrics: Value, in_a_pod: bool) -> Option<DesiredObject> {
        let mut valid = example(ZooKeeperEnsembleSpec {
            replicas: 3,
            network: serde_json::from_value(network).unwrap(),
            metrics: serde_json::from_value(metrics).unwrap(),
            ..Default::default()
        });
        let labels = [("app.kubernetes.io/component", "operator")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        valid.context.operator_pods = in_a_pod.then(|| OperatorPods {
            namespace: "bellwether".to_owned(),
            labels: BTreeMap::from(labels),
        });
        policy(&valid)
    }

    /// Who may connect to which ports, a line for each rule.
    fn rules(policy: &DesiredObject) -> String {
        let rules = policy.body["spec"]["ingress"].as_array().unwrap();
        let line = |rule: &Value| {
            let ports = rule["ports"].as_array().unwrap().iter();
            let ports: Vec<String> = ports.map(|port| port["port"].to_string()).collect();
            let from = rule
                .get("from")
                .map_or("everybody".to_owned(), Value::to_string);
            format!("{}: {from}\n", ports.join(", "))
        };
        rules.iter().map(line).collect()
    }

    #[test]
    fn by_default_only_clients_connect_from_elsewhere() {
        let policy = of(Value::Null, Value::Null, true).unwrap();
        assert_eq!(policy.name, "zk-members");
        let all = labels::selector("zk");
        assert_eq!(
            policy.body["spec"]["podSelector"],
            json!({ "matchLabels": all })
        );
        assert_eq!(policy.body["spec"]["policyTypes"], json!(["Ingress"]));
        insta::assert_snapshot!(rules(&policy), @r#"
        2888, 3888: [{"podSelector":{"matchLabels":{"app.kubernetes.io/instance":"zk","app.kubernetes.io/managed-by":"bellwether","app.kubernetes.io/name":"zookeeper"}}}]
        8078, 8079: [{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"bellwether"}},"podSelector":{"matchLabels":{"app.kubernetes.io/component":"operator"}}}]
        2181, 2281: everybody
        "#);
    }

    #[test]
    fn clients_and_readers_of_metrics_are_those_of_the_spec_and_the_operator() {
        let network = json!({
            "clientsFrom": [{ "namespaceSelector": { "matchLabels": { "team": "shop" } } }],
            "metricsFrom": [{ "ipBlock": { "cidr": "10.0.0.0/8" } }],
        });
        let policy = of(network, json!({ "enabled": true }), true).unwrap();
        insta::assert_snapshot!(rules(&policy), @r#"
        2888, 3888: [{"podSelector":{"matchLabels":{"app.kubernetes.io/instance":"zk","app.kubernetes.io/managed-by":"bellwether","app.kubernetes.io/name":"zookeeper"}}}]
        8078, 8079: [{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"bellwether"}},"podSelector":{"matchLabels":{"app.kubernetes.io/component":"operator"}}}]
        2181, 2281: [{"namespaceSelector":{"matchLabels":{"team":"shop"}}}]
        2181, 2281: [{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"bellwether"}},"podSelector":{"matchLabels":{"app.kubernetes.io/component":"operator"}}}]
        7000: [{"ipBlock":{"cidr":"10.0.0.0/8"}}]
        "#);
    }

    /// The control port wants the operator's certificate from everybody who connects. Clients stay those of the spec.
    #[test]
    fn an_operator_that_runs_in_no_pod_may_connect_from_anywhere() {
        let network = json!({ "clientsFrom": [{ "podSelector": {} }] });
        let policy = of(network, Value::Null, false).unwrap();
        insta::assert_snapshot!(rules(&policy), @r#"
        2888, 3888: [{"podSelector":{"matchLabels":{"app.kubernetes.io/instance":"zk","app.kubernetes.io/managed-by":"bellwether","app.kubernetes.io/name":"zookeeper"}}}]
        8078, 8079: everybody
        2181, 2281: [{"podSelector":{}}]
        "#);
    }

    #[test]
    fn a_spec_that_wants_no_policy_has_none() {
        assert_eq!(of(json!({ "policy": "Disabled" }), Value::Null, true), None);
    }
}
