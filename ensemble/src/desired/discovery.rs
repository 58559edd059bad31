//! What applications need to know of an ensemble, for them to mount or to take as environment variables.

use serde_json::json;

use super::config::CLIENT_PORT;
use super::{DesiredObject, ObjectKind, apply, metadata};
use crate::validate::ValidEnsemble;

/// The name of the ConfigMap that clients read.
pub fn client_config_map(ensemble: &str) -> String {
    format!("{ensemble}-client")
}

/// The ConfigMap that clients read. It names the client Service and no member, so it never changes in the life
/// of an ensemble and never restarts an application that restarts on its changes. The keys `type`, `host`,
/// `port` and `uri` are those of the Service Binding specification for Kubernetes.
pub fn client_config(ensemble: &ValidEnsemble) -> DesiredObject {
    let name = client_config_map(&ensemble.name);
    let host = format!(
        "{}.{}.svc.{}",
        ensemble.name, ensemble.namespace, ensemble.context.cluster_domain
    );
    let connect = format!("{host}:{CLIENT_PORT}");
    let body = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": {
            "type": "zookeeper",
            "host": host,
            "port": CLIENT_PORT.to_string(),
            "uri": format!("zookeeper://{connect}"),
            "connectString": connect,
        },
    });
    let metadata = metadata(ensemble, &name);
    apply(ObjectKind::ConfigMap, name, metadata, body)
}

#[cfg(test)]
mod tests {
    use bellwether_api::ZooKeeperEnsembleSpec;

    use super::*;
    use crate::desired::stateful_set::{CONTROL_PORT, PROBE_PORT};
    use crate::validate::example;

    fn of_size(replicas: i32) -> DesiredObject {
        client_config(&example(ZooKeeperEnsembleSpec {
            replicas,
            ..Default::default()
        }))
    }

    #[test]
    fn clients_are_told_the_service_and_nothing_that_changes() {
        let object = of_size(3);
        assert_eq!(object.name, "zk-client");
        let text = serde_json::to_string_pretty(&object.body["data"]).unwrap();
        insta::assert_snapshot!(text, @r#"
        {
          "connectString": "zk.shop.svc.cluster.local:2181",
          "host": "zk.shop.svc.cluster.local",
          "port": "2181",
          "type": "zookeeper",
          "uri": "zookeeper://zk.shop.svc.cluster.local:2181"
        }
        "#);
        assert_eq!(object, of_size(5), "another size is told to clients");
    }

    #[test]
    fn the_charts_network_policy_names_the_ports_that_the_operator_needs() {
        let policy = include_str!("../../../charts/bellwether/templates/networkpolicy.yaml");
        for port in [CLIENT_PORT, CONTROL_PORT, PROBE_PORT] {
            assert!(policy.contains(&format!("- port: {port}\n")), "{port}");
        }
    }

    #[test]
    fn the_cluster_domain_is_in_the_address() {
        let mut valid = example(ZooKeeperEnsembleSpec {
            replicas: 1,
            ..Default::default()
        });
        valid.context.cluster_domain = "example.internal".to_owned();
        let data = client_config(&valid).body["data"].clone();
        assert_eq!(data["host"], "zk.shop.svc.example.internal");
        assert_eq!(data["connectString"], "zk.shop.svc.example.internal:2181");
    }
}
