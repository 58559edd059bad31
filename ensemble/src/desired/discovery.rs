//! What applications need to know of an ensemble, for them to mount or to take as environment variables.

use serde_json::json;

use super::config::{CLIENT_PORT, SECURE_CLIENT_PORT};
use super::{DesiredObject, ObjectKind, apply, metadata};
use crate::client_tls::ClientTls;
use crate::observation::Observation;
use crate::validate::ValidEnsemble;

/// The name of the ConfigMap that clients read.
pub fn client_config_map(ensemble: &str) -> String {
    format!("{ensemble}-client")
}

/// The ConfigMap that clients read. It names the client Service and no member, so it never changes in the life
/// of an ensemble but with TLS, and never restarts an application that restarts on its changes. The keys `type`, `host`,
/// `port` and `uri` are those of the Service Binding specification for Kubernetes.
///
/// `tls` is what every member has, and `authority` the certificate that clients over TLS have to trust. `None` while that is
/// not known: the ConfigMap is complete from the beginning.
pub fn client_config(
    ensemble: &ValidEnsemble,
    tls: ClientTls,
    authority: Option<&str>,
) -> Option<DesiredObject> {
    let name = client_config_map(&ensemble.name);
    let host = format!(
        "{}.{}.svc.{}",
        ensemble.name, ensemble.namespace, ensemble.context.cluster_domain
    );
    let port = match tls.takes_plaintext() {
        true => CLIENT_PORT,
        false => SECURE_CLIENT_PORT,
    };
    let connect = format!("{host}:{port}");
    let mut data = json!({
        "type": "zookeeper",
        "host": host,
        "port": port.to_string(),
        "uri": format!("zookeeper://{connect}"),
        "connectString": connect,
    });
    if tls.takes_tls() {
        data["secureConnectString"] = json!(format!("{host}:{SECURE_CLIENT_PORT}"));
        data["ca.crt"] = json!(authority?);
    }
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data });
    let metadata = metadata(ensemble, &name);
    Some(apply(ObjectKind::ConfigMap, name, metadata, body))
}

/// The certificate of the authority that clients have to trust: that of the user's Secret, as the members say, or the one on
/// record. `None` if it is not known, or members do not agree yet.
pub fn client_authority<'a>(
    ensemble: &ValidEnsemble,
    observation: &'a Observation,
) -> Option<&'a str> {
    if ensemble.client_port_secret.is_none() {
        let record = observation.identity.as_ref()?;
        return Some(&record.clients.as_ref()?.certificate);
    }
    let mut told = observation
        .pods
        .iter()
        .map(|pod| pod.client_authority.as_deref());
    let first = told.next()??;
    told.all(|other| other == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use bellwether_api::ZooKeeperEnsembleSpec;

    use super::*;
    use crate::certificates::Record;
    use crate::desired::stateful_set::{CONTROL_PORT, PROBE_PORT};
    use crate::plan::example::Running;
    use crate::validate::example;

    fn of(replicas: i32, tls: ClientTls, record: Option<&Record>) -> Option<DesiredObject> {
        let ensemble = example(ZooKeeperEnsembleSpec {
            replicas,
            ..Default::default()
        });
        let observation = Observation {
            identity: record.cloned(),
            ..Default::default()
        };
        let authority = client_authority(&ensemble, &observation);
        client_config(&ensemble, tls, authority)
    }

    /// The operator does not read the user's Secret.
    #[test]
    fn whom_to_trust_by_the_users_certificate_is_what_all_members_say() {
        let mut running = Running::new(3, 0);
        running.ensemble.client_port_secret = Some("zookeeper-tls".to_owned());
        let mut told = |authorities: [Option<&str>; 3]| {
            for (ordinal, authority) in authorities.into_iter().enumerate() {
                running.observation.pods[ordinal].client_authority = authority.map(str::to_owned);
            }
            client_authority(&running.ensemble, &running.observation).map(str::to_owned)
        };
        assert_eq!(told([Some("a"); 3]), Some("a".to_owned()));
        assert_eq!(told([Some("a"), Some("b"), Some("a")]), None);
        assert_eq!(told([Some("a"), None, Some("a")]), None);
        assert_eq!(told([None; 3]), None);
    }

    fn of_size(replicas: i32) -> DesiredObject {
        of(replicas, ClientTls::Disabled, None).unwrap()
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
    fn clients_over_tls_are_told_the_port_and_whom_to_trust_as_soon_as_it_is_known() {
        let mut record = crate::certificates::example();
        let told =
            |tls, record: &Record| of(3, tls, Some(record)).map(|map| map.body["data"].clone());
        let data = told(ClientTls::Optional, &record).unwrap();
        assert_eq!(data["connectString"], "zk.shop.svc.cluster.local:2181");
        assert_eq!(
            data["secureConnectString"],
            "zk.shop.svc.cluster.local:2281"
        );
        assert_eq!(data["ca.crt"], record.clients.clone().unwrap().certificate);
        let data = told(ClientTls::Required, &record).unwrap();
        assert_eq!(data["connectString"], "zk.shop.svc.cluster.local:2281");
        assert_eq!(data["port"], "2281");
        record.clients = None;
        assert_eq!(told(ClientTls::Optional, &record), None);
        assert_eq!(of(3, ClientTls::Optional, None), None);
    }

    #[test]
    fn the_charts_network_policy_names_the_ports_that_the_operator_needs() {
        let policy = include_str!("../../../charts/bellwether/templates/networkpolicy.yaml");
        for port in [CLIENT_PORT, SECURE_CLIENT_PORT, CONTROL_PORT, PROBE_PORT] {
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
        let map = client_config(&valid, ClientTls::Disabled, None).unwrap();
        let data = &map.body["data"];
        assert_eq!(data["host"], "zk.shop.svc.example.internal");
        assert_eq!(data["connectString"], "zk.shop.svc.example.internal:2181");
    }
}
