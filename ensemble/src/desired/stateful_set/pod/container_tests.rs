//! What the containers of a pod may do, and what the kubelet asks them.

use std::collections::BTreeMap;

use bellwether_api::ZooKeeperEnsembleSpec;
use bellwether_api::ensemble::{ClientCertificates, Pod, PodUser, Users};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;
use crate::desired::claims::ClaimSizes;
use crate::desired::stateful_set::{inputs_hash, stateful_set};
use crate::desired::{config, observers};
use crate::encryption::Encryption;
use crate::ids::Voters;
use crate::validate::example;

/// The pods of voters and of observers.
fn pods() -> [Value; 2] {
    pods_with(Encryption::NONE, None)
}

fn pods_with(tls: Encryption, user: Option<PodUser>) -> [Value; 2] {
    let spec = ZooKeeperEnsembleSpec {
        replicas: 3,
        pod: Some(Pod {
            user,
            ..Default::default()
        }),
        ..Default::default()
    };
    let ensemble = example(spec);
    let revision = config::render(&ensemble, &Voters::first(3, 0), None, tls).revision;
    let sizes = ClaimSizes::wanted(&ensemble);
    let inputs = inputs_hash(&ensemble, &revision, sizes);
    [
        stateful_set(&ensemble, &revision, &inputs, 3, sizes),
        observers::stateful_set(&ensemble, &revision, 2, sizes),
    ]
    .map(|mut set| set.body["spec"]["template"]["spec"].take())
}

fn all<'a>(pod: &'a Value, list: &str) -> &'a [Value] {
    pod[list].as_array().unwrap()
}

fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let mut containers = all(pod, "containers").iter();
    containers.find(|c| c["name"] == name).unwrap()
}

/// Only the member program reads passwords; the server gets the file that it writes.
#[test]
fn users_and_authorities_of_clients_are_mounted_where_clients_connect_over_tls() {
    let mut ensemble = example(ZooKeeperEnsembleSpec {
        replicas: 3,
        ..Default::default()
    });
    ensemble.authentication = Authentication {
        required: true,
        users: Some(Users {
            secret_name: "people".to_owned(),
            super_user: None,
        }),
        certificates: Some(ClientCertificates {
            config_map_name: "authorities".to_owned(),
            super_user: None,
        }),
    };
    ensemble.client_port_secret = Some("zookeeper-tls".to_owned());
    let mounted = |clients: ClientTls| {
        let tls = Encryption {
            clients,
            ..Encryption::NONE
        };
        let revision = config::render(&ensemble, &Voters::first(3, 0), None, tls).revision;
        let pod = pod_spec(&ensemble, &revision);
        let containers = all(&pod, "initContainers")
            .iter()
            .chain(all(&pod, "containers"));
        let mounts = containers.flat_map(|c| all(c, "volumeMounts").iter().map(move |m| (c, m)));
        let names = ["users", "client-port", "client-authorities"];
        let of_clients = mounts.filter(|(_, m)| names.iter().any(|name| m["name"] == *name));
        let names = of_clients.map(|(c, m)| format!("{} {}", c["name"], m["mountPath"]));
        (names.collect::<Vec<_>>().join("\n").replace('"', ""), pod)
    };
    let (mounts, pod) = mounted(ClientTls::Optional);
    insta::assert_snapshot!(mounts, @r"
    prepare /etc/bellwether/users
    prepare /etc/bellwether/client-port
    prepare /etc/bellwether/client-authorities
    probes /etc/bellwether/users
    probes /etc/bellwether/client-port
    probes /etc/bellwether/client-authorities
    ");
    let volumes = all(&pod, "volumes");
    let secret = volumes.iter().find(|v| v["name"] == "users").unwrap();
    assert_eq!(secret["secret"]["secretName"], "people");
    assert_eq!(mounted(ClientTls::Disabled).0, "");
}

#[test]
fn zookeeper_is_killed_only_for_what_its_own_port_does() {
    for pod in pods() {
        let zookeeper = container(&pod, CONTAINER);
        let ports = all(zookeeper, "ports");
        let client = ports.iter().find(|p| p["name"] == "client").unwrap();
        assert_eq!(client["containerPort"], CLIENT_PORT);
        for probe in ["startupProbe", "livenessProbe"] {
            let port = json!({ "port": "client" });
            assert_eq!(zookeeper[probe]["tcpSocket"], port, "{probe}");
            assert_eq!(zookeeper[probe]["httpGet"], Value::Null, "{probe}");
        }
        assert_eq!(zookeeper["readinessProbe"]["httpGet"]["port"], PROBE_PORT);
        // A container without probes is restarted only when its program ends.
        assert_eq!(container(&pod, "probes")["livenessProbe"], Value::Null);
    }
}

#[test]
fn no_port_is_open_for_jmx() {
    for pod in pods() {
        let environment = all(container(&pod, CONTAINER), "env");
        let jmx: BTreeMap<_, _> = environment
            .iter()
            .map(|v| (v["name"].as_str().unwrap(), &v["value"]))
            .filter(|(name, _)| name.starts_with("JMX"))
            .collect();
        assert_eq!(jmx, BTreeMap::from([("JMXDISABLE", &json!("true"))]));
    }
}

#[test]
fn side_containers_and_scratch_volumes_are_limited() {
    for pod in pods() {
        let members = [&all(&pod, "initContainers")[0], container(&pod, "probes")];
        for container in members {
            let resources = &container["resources"];
            assert_eq!(resources["limits"]["memory"], MEMBER_MEMORY);
            assert_eq!(resources["limits"]["cpu"], Value::Null);
            assert_eq!(resources["requests"]["memory"], "8Mi");
        }
        let volumes = all(&pod, "volumes").iter();
        let scratch: Vec<_> = volumes.filter_map(|v| v.get("emptyDir")).collect();
        assert_eq!(scratch.len(), 3);
        for volume in scratch {
            let size = volume["sizeLimit"].as_str().unwrap();
            let size = crate::quantity::bytes(&Quantity(size.to_owned())).unwrap();
            assert!((16 << 20..8 << 30).contains(&size), "{volume}");
        }
    }
}

/// The keys reach ZooKeeper through the member program alone, and only where something is encrypted.
#[test]
fn the_certificate_is_mounted_where_it_is_read() {
    let mounts = |container: &Value, volume: &str| -> Option<bool> {
        let mut mounts = all(container, "volumeMounts").iter();
        let mount = mounts.find(|mount| mount["name"] == volume)?;
        Some(mount["readOnly"] == true)
    };
    let servers = Encryption {
        servers: ServerTls::Accepted,
        ..Encryption::NONE
    };
    let clients = Encryption {
        clients: ClientTls::Optional,
        ..Encryption::NONE
    };
    let both = [servers, clients].map(|tls| pods_with(tls, None));
    for pod in both.into_iter().flatten() {
        let prepare = &all(&pod, "initContainers")[0];
        let (zookeeper, probes) = (container(&pod, CONTAINER), container(&pod, "probes"));
        let tls = [prepare, zookeeper, probes].map(|c| mounts(c, "tls"));
        assert_eq!(tls, [Some(false), Some(true), Some(false)]);
        let identity = [prepare, zookeeper, probes].map(|c| mounts(c, "identity"));
        assert_eq!(identity, [Some(true), None, Some(true)]);
        let volumes = all(&pod, "volumes");
        let volume = |name: &str| volumes.iter().find(|v| v["name"] == name).unwrap();
        assert_eq!(volume("identity")["secret"]["optional"], false);
        assert_eq!(volume("tls")["emptyDir"]["medium"], "Memory");
    }
    for pod in pods() {
        assert_eq!(mounts(container(&pod, CONTAINER), "tls"), None);
        let mut volumes = all(&pod, "volumes").iter();
        let identity = volumes.find(|v| v["name"] == "identity").unwrap();
        assert_eq!(identity["secret"]["optional"], true);
    }
}

/// The kubelet reaches no port on loopback.
#[test]
fn a_server_with_plaintext_on_loopback_only_is_probed_on_the_port_for_tls() {
    let with = |clients| {
        let servers = ServerTls::Required;
        let [pod, _] = pods_with(Encryption { servers, clients }, None);
        let zookeeper = container(&pod, CONTAINER).clone();
        let ports = all(&zookeeper, "ports").iter();
        let ports: Vec<u64> = ports.filter_map(|p| p["containerPort"].as_u64()).collect();
        let probes = ["startupProbe", "livenessProbe"].map(|p| zookeeper[p].clone());
        (ports, probes)
    };
    let (ports, optional) = with(ClientTls::Optional);
    assert_eq!(ports, [2181, 2888, 3888, 2281]);
    let (_, required) = with(ClientTls::Required);
    for (probes, port) in [(optional, "client"), (required, "secure-client")] {
        assert!(
            probes
                .iter()
                .all(|probe| probe["tcpSocket"]["port"] == port)
        );
    }
}

#[test]
fn containers_run_as_the_user_of_the_spec_or_of_the_cluster() {
    let of = |user: Option<PodUser>| {
        let [voter, observer] = pods_with(Encryption::NONE, user);
        assert_eq!(voter["securityContext"], observer["securityContext"]);
        let context = &voter["securityContext"];
        assert_eq!(context["runAsNonRoot"], true);
        let ids = ["runAsUser", "runAsGroup", "fsGroup"].map(|field| context[field].as_i64());
        (ids, context["fsGroupChangePolicy"] == "Always")
    };
    let official = [Some(1000); 3];
    assert_eq!(of(None), (official, false));
    let user = |id, group, assigned| {
        Some(PodUser {
            id,
            group,
            assigned,
        })
    };
    assert_eq!(of(user(None, None, false)), (official, true));
    let ids = [Some(7), Some(0), Some(0)];
    assert_eq!(of(user(Some(7), Some(0), false)), (ids, true));
    assert_eq!(of(user(None, None, true)), ([None; 3], true));
}
