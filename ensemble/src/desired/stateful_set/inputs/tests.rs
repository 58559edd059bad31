//! The hash of what the user asks for keeps its value: another value restarts every member of every running
//! ensemble as soon as the operator is upgraded.

use std::collections::BTreeMap;

use bellwether_api::ZooKeeperEnsembleSpec;
use serde_json::Value;

use super::*;
use crate::desired::config;
use crate::encryption::Encryption;
use crate::ids::Voters;
use crate::validate::example;

fn ensemble(spec: &Value) -> ValidEnsemble {
    example(serde_json::from_value(spec.clone()).unwrap())
}

fn hash(ensemble: &ValidEnsemble) -> String {
    let voters = Voters::first(ensemble.size, ensemble.id_offset);
    let revision = config::render(ensemble, &voters, None, Encryption::NONE).revision;
    inputs_hash(ensemble, &revision, ClaimSizes::wanted(ensemble))
}

/// A spec with every field set that changes the pod template.
fn full() -> Value {
    json!({
        "replicas": 5,
        "observers": { "replicas": 2 },
        "image": "registry.example/zookeeper:3.9.5",
        "version": "3.9.5",
        "imagePullPolicy": "IfNotPresent",
        "imagePullSecrets": [{ "name": "registry" }],
        "storage": {
            "size": "20Gi",
            "storageClassName": "fast",
            "reclaimPolicy": "Delete",
            "transactionLog": { "size": "5Gi", "storageClassName": "faster" },
        },
        "config": { "snapCount": 200_000, "additional": { "globalOutstandingLimit": "2000" } },
        "jvm": { "heap": "2Gi", "additionalOptions": ["-XX:+UseG1GC"] },
        "metrics": { "enabled": true },
        "idOffset": 10,
        "paused": true,
        "pod": {
            "labels": { "team": "a" },
            "annotations": { "note": "b" },
            "resources": { "requests": { "memory": "3Gi" } },
            "tolerations": [{ "key": "dedicated", "operator": "Exists" }],
            "nodeSelector": { "disk": "ssd" },
            "priorityClassName": "high",
        },
    })
}

#[test]
fn the_full_spec_has_no_field_that_the_api_does_not_know() {
    let spec: ZooKeeperEnsembleSpec = serde_json::from_value(full()).unwrap();
    assert_eq!(serde_json::to_value(spec).unwrap(), full());
}

/// The values are those of released operators. A test that fails here says that an upgrade would restart
/// everything: keep the old value for specs that do not use what is new.
#[test]
fn the_hash_of_existing_ensembles_does_not_change() {
    let mut restarted = ensemble(&json!({ "replicas": 3 }));
    restarted.restart_at = Some("2026-01-01T00:00:00Z".to_owned());
    let found = BTreeMap::from([
        ("plain", hash(&ensemble(&json!({ "replicas": 3 })))),
        ("one", hash(&ensemble(&json!({ "replicas": 1 })))),
        (
            "metrics",
            hash(&ensemble(
                &json!({ "replicas": 3, "metrics": { "enabled": true } }),
            )),
        ),
        (
            "log",
            hash(&ensemble(
                &json!({ "replicas": 3, "storage": { "transactionLog": { "size": "5Gi" } } }),
            )),
        ),
        ("restarted", hash(&restarted)),
        ("full", hash(&ensemble(&full()))),
    ]);
    let expected = BTreeMap::from(
        [
            ("plain", "7df5da7721"),
            ("one", "5413f23924"),
            ("metrics", "432f0f2fd9"),
            ("log", "956e34830b"),
            ("restarted", "3dd29062bc"),
            ("full", "55a0e94a85"),
        ]
        .map(|(name, hash)| (name, hash.to_owned())),
    );
    assert_eq!(found, expected);
}
