//! The CustomResourceDefinitions in the tree are those of the types: what the API server checks with CEL is
//! rendered by code, and `cargo xtask gen` writes it down.

use bellwether_api::{LeaderElection, ZooKeeperEnsemble};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::CustomResourceExt as _;
use serde_json::Value;

#[test]
fn the_definitions_in_the_tree_are_those_of_the_types() {
    for (text, definition) in [
        (
            include_str!("../../crds/zookeeperensembles.zookeeper.bellwether.dev.yaml"),
            ZooKeeperEnsemble::crd(),
        ),
        (
            include_str!("../../crds/leaderelections.zookeeper.bellwether.dev.yaml"),
            LeaderElection::crd(),
        ),
    ] {
        let written: CustomResourceDefinition = serde_yaml::from_str(text).unwrap();
        let same = written == definition;
        assert!(
            same,
            "run `cargo xtask gen`: {:?}",
            definition.metadata.name
        );
    }
}

/// `kubectl` reads a word without quotes as YAML 1.1 has it: `Off` is `false` there.
#[test]
fn no_value_of_a_field_is_a_boolean_in_yaml() {
    fn words(schema: &Value, found: &mut Vec<String>) {
        if let Some(values) = schema["enum"].as_array() {
            found.extend(values.iter().filter_map(|v| v.as_str().map(str::to_owned)));
        }
        match schema {
            Value::Object(fields) => fields.values().for_each(|field| words(field, found)),
            Value::Array(items) => items.iter().for_each(|item| words(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for definition in [ZooKeeperEnsemble::crd(), LeaderElection::crd()] {
        words(&serde_json::to_value(definition).unwrap(), &mut found);
    }
    assert!(found.iter().any(|word| word == "Retain"), "{found:?}");
    let booleans = [
        "y", "n", "yes", "no", "on", "off", "true", "false", "null", "~",
    ];
    for word in found {
        let reads_otherwise = booleans.contains(&word.to_lowercase().as_str());
        assert!(!reads_otherwise, "{word}");
    }
}
