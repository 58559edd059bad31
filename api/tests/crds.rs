//! The CustomResourceDefinitions in the tree are those of the types: what the API server checks with CEL is
//! rendered by code, and `cargo xtask gen` writes it down.

use bellwether_api::{LeaderElection, ZooKeeperEnsemble};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::CustomResourceExt as _;

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
