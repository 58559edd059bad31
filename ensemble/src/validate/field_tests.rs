//! The bounds of single fields, and what of a spec and of its metadata the operator works with.

use std::collections::BTreeMap;

use bellwether_api::ZooKeeperEnsembleSpec;
use bellwether_api::ensemble::{ClientsTls, Config, Jvm, Observers, ServerMetrics};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
use serde_json::json;

use super::tests::context;
use super::*;

fn ensemble(name: &str) -> ZooKeeperEnsemble {
    let spec = ZooKeeperEnsembleSpec {
        replicas: 3,
        ..Default::default()
    };
    ZooKeeperEnsemble::new(name, spec)
}

/// The fields that are refused after this change.
fn refused(change: impl FnOnce(&mut ZooKeeperEnsembleSpec)) -> Vec<String> {
    let mut ensemble = ensemble("zk");
    change(&mut ensemble.spec);
    fields(&ensemble)
}

fn fields(ensemble: &ZooKeeperEnsemble) -> Vec<String> {
    let problems = validate(ensemble, &context()).err().unwrap_or_default();
    problems.into_iter().map(|p| p.field).collect()
}

#[test]
fn the_name_of_an_ensemble_is_one_of_services_and_pods() {
    for name in ["a", "zk", "z-k", "zk1", &"a".repeat(MAX_NAME_LENGTH)] {
        assert!(fields(&ensemble(name)).is_empty(), "{name}");
    }
    for name in [
        "",
        "-zk",
        "1zk",
        "zk-",
        "Zk",
        "z.k",
        "z_k",
        "zK",
        &"a".repeat(MAX_NAME_LENGTH + 1),
    ] {
        assert_eq!(fields(&ensemble(name)), ["metadata.name"], "{name:?}");
    }
}

#[test]
fn numbers_have_bounds_and_the_bounds_belong_to_them() {
    let offset = |n| refused(|s| s.id_offset = Some(n));
    assert!(offset(0).is_empty() && offset(80).is_empty());
    assert_eq!(
        (offset(-1), offset(81)),
        (
            vec!["spec.idOffset".to_owned()],
            vec!["spec.idOffset".to_owned()]
        )
    );
    let observers = |n| refused(|s| s.observers = Some(Observers { replicas: n }));
    assert!(observers(0).is_empty() && observers(MAX_OBSERVERS).is_empty());
    assert_eq!(observers(-1), ["spec.observers.replicas"]);
    assert_eq!(observers(MAX_OBSERVERS + 1), ["spec.observers.replicas"]);
    let heap = |heap: &str| {
        refused(|s| {
            s.jvm = Some(Jvm {
                heap: Some(heap.to_owned()),
                ..Default::default()
            });
        })
    };
    for good in ["1Mi", "512Mi", "2Gi", "999999Mi"] {
        assert!(heap(good).is_empty(), "{good}");
    }
    for bad in ["0Mi", "1000000Mi", "512", "1.5Gi", "-1Mi", "Gi", "1Ki", ""] {
        assert_eq!(heap(bad), ["spec.jvm.heap"], "{bad}");
    }
}

#[test]
fn the_largest_session_timeout_is_not_below_the_smallest() {
    let timeouts = |tick, min, max| {
        refused(|s| {
            s.config = Some(Config {
                tick_time: tick,
                min_session_timeout: min,
                max_session_timeout: max,
                ..Default::default()
            });
        })
    };
    // Without a word they are 2 and 20 ticks.
    assert!(timeouts(None, None, None).is_empty());
    assert!(timeouts(None, Some(5000), Some(5000)).is_empty());
    assert_eq!(timeouts(None, Some(5001), Some(5000)), ["spec.config"]);
    assert!(timeouts(None, None, Some(4000)).is_empty());
    assert_eq!(timeouts(None, None, Some(3999)), ["spec.config"]);
    assert!(timeouts(None, Some(40_000), None).is_empty());
    assert_eq!(timeouts(None, Some(40_001), None), ["spec.config"]);
    assert_eq!(timeouts(Some(1000), Some(20_001), None), ["spec.config"]);
}

#[test]
fn an_additional_setting_is_one_line_that_does_not_end_in_a_backslash() {
    let setting = |value: &str| {
        refused(|s| {
            let additional = BTreeMap::from([("watchManagerName".to_owned(), value.to_owned())]);
            s.config = Some(Config {
                additional,
                ..Default::default()
            });
        })
    };
    for good in ["org.example.Manager", "a\\b", &"t".repeat(1024)] {
        assert!(setting(good).is_empty(), "{good:?}");
    }
    for bad in ["true\\", "true\n", "tr\rue", &"t".repeat(1025)] {
        let found = setting(bad);
        assert_eq!(
            found,
            ["spec.config.additional[watchManagerName]"],
            "{bad:?}"
        );
    }
}

#[test]
fn the_annotations_of_a_pod_have_as_many_characters_as_the_api_server_takes() {
    let with = |characters: usize| {
        refused(|s| {
            let annotations = BTreeMap::from([("a".to_owned(), "v".repeat(characters - 1))]);
            s.pod = Some(Pod {
                annotations,
                ..Default::default()
            });
        })
    };
    assert!(with(256 * 1024).is_empty());
    assert_eq!(with(256 * 1024 + 1), ["spec.pod.annotations"]);
}

#[test]
fn the_version_is_one_of_the_supported_lines() {
    let version = |v: &str| refused(|s| s.version = Some(v.to_owned()));
    for good in ["3.9.5", "3.9.4", "3.8.99"] {
        assert!(version(good).is_empty(), "{good}");
    }
    for bad in [
        "3.7.2",
        "3.9",
        "3.9.",
        "3.9.05",
        "3.9.x",
        "3.9.5-rc1",
        "4.0.0",
        "latest",
        "",
    ] {
        assert_eq!(version(bad), ["spec.version"], "{bad}");
    }
}

#[test]
fn what_a_valid_spec_says_is_what_the_operator_works_with() {
    let mut ensemble = ensemble("zk");
    ensemble.metadata.uid = Some("uid".to_owned());
    ensemble.metadata.namespace = Some("shop".to_owned());
    ensemble.metadata.generation = Some(7);
    let notes = [
        (labels::RESTART_AT, "now"),
        (labels::ACCEPT_DATA_LOSS, " 1-2-abc \n"),
    ];
    let notes = notes.map(|(key, value)| (key.to_owned(), value.to_owned()));
    ensemble.metadata.annotations = Some(notes.into());
    let entry = |manager: &str, key: &str| ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        fields_v1: Some(FieldsV1(
            json!({ "f:metadata": { "f:annotations": { format!("f:{key}"): {} } } }),
        )),
        ..Default::default()
    };
    ensemble.metadata.managed_fields = Some(vec![
        entry("helm", labels::RESTART_AT),
        entry("kubectl-annotate", labels::ACCEPT_DATA_LOSS),
    ]);
    let spec = &mut ensemble.spec;
    spec.id_offset = Some(10);
    spec.observers = Some(Observers { replicas: 2 });
    spec.metrics = Some(ServerMetrics { enabled: true });
    spec.paused = true;
    let valid = validate(&ensemble, &context()).unwrap();
    assert_eq!((valid.size, valid.id_offset, valid.observers), (3, 10, 2));
    assert_eq!(
        (valid.uid.as_str(), valid.namespace.as_str()),
        ("uid", "shop")
    );
    assert_eq!(
        (valid.generation, valid.restart_at.as_deref()),
        (Some(7), Some("now"))
    );
    assert!(valid.metrics && valid.paused);
    let accepts = AcceptRequest {
        token: "1-2-abc".to_owned(),
        by: Some("kubectl-annotate".to_owned()),
    };
    assert_eq!(valid.accept_data_loss, Some(accepts));
    assert_eq!([11, 13].map(|id| valid.ordinal(ServerId(id))), [0, 2]);
    assert_eq!(valid.storage_size.0, "8Gi");
}

#[test]
fn who_proves_who_they_are_needs_a_port_for_tls_and_names_that_can_be() {
    let with = |authentication: serde_json::Value, clients: Option<ClientsTls>| {
        refused(|spec| {
            spec.authentication = serde_json::from_value(authentication).unwrap();
            spec.tls = Some(Tls {
                clients,
                ..Default::default()
            });
        })
    };
    let field = |name: &str| format!("spec.authentication{name}");
    let good = json!({
        "required": true,
        "users": { "secretName": "shop-zookeeper-users", "superUser": "root_1.a-b" },
        "certificates": { "configMapName": "authorities", "superUser": "CN=admin,O=\"a, b\"" },
    });
    for clients in [ClientsTls::Optional, ClientsTls::Required] {
        assert!(with(good.clone(), Some(clients)).is_empty());
    }
    for clients in [None, Some(ClientsTls::Disabled)] {
        assert_eq!(with(good.clone(), clients), [field("")]);
    }
    let bad = |authentication| with(authentication, Some(ClientsTls::Required));
    assert_eq!(bad(json!({ "required": true })), [field("")]);
    for (users, name) in [
        (
            json!({ "secretName": "A-zookeeper-users" }),
            ".users.secretName",
        ),
        (json!({ "secretName": "database" }), ".users.secretName"),
        (
            json!({ "secretName": "zookeeper-users", "superUser": "a b" }),
            ".users.superUser",
        ),
    ] {
        assert_eq!(bad(json!({ "users": users })), [field(name)]);
    }
    for subject in ["", "admin", "=admin", "CN=", "CN=a\nskipACL=yes"] {
        let certificates = json!({ "configMapName": "a", "superUser": subject });
        let name = field(".certificates.superUser");
        assert_eq!(
            bad(json!({ "certificates": certificates })),
            [name],
            "{subject:?}"
        );
    }
}

#[test]
fn a_certificate_for_clients_needs_their_port_and_a_secret_that_is_meant_for_it() {
    let with = |name: &str, clients: Option<ClientsTls>| {
        refused(|spec| {
            spec.tls = Some(Tls {
                clients,
                client_port_secret_name: Some(name.to_owned()),
                ..Default::default()
            });
        })
    };
    let required = Some(ClientsTls::Required);
    assert!(with("shop-zookeeper-tls", required).is_empty());
    for name in ["database", "A-zookeeper-tls"] {
        assert_eq!(with(name, required), ["spec.tls.clientPortSecretName"]);
    }
    for clients in [None, Some(ClientsTls::Disabled)] {
        assert_eq!(with("zookeeper-tls", clients), ["spec.tls"]);
    }
}
