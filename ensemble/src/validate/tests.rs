//! What is refused, what is understood, and with which words.

use super::*;
use bellwether_api::ZooKeeperEnsembleSpec;

fn context() -> Context {
    Context {
        member_image: "bellwether".to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        version: "test".to_owned(),
    }
}

/// The ensemble `shop/zk` of this spec.
pub(crate) fn example(spec: ZooKeeperEnsembleSpec) -> ValidEnsemble {
    let mut ensemble = ZooKeeperEnsemble::new("zk", spec);
    ensemble.metadata.namespace = Some("shop".to_owned());
    validate(&ensemble, &context()).unwrap()
}

fn problems(change: impl FnOnce(&mut ZooKeeperEnsembleSpec)) -> String {
    let mut spec = ZooKeeperEnsembleSpec {
        replicas: 3,
        ..Default::default()
    };
    change(&mut spec);
    let ensemble = ZooKeeperEnsemble::new("zk", spec);
    match validate(&ensemble, &context()) {
        Ok(_) => String::new(),
        Err(p) => invalid_message(&p),
    }
}

#[test]
fn three_replicas_are_a_complete_manifest() {
    let spec = ZooKeeperEnsembleSpec {
        replicas: 3,
        ..Default::default()
    };
    let valid = validate(&ZooKeeperEnsemble::new("zk", spec), &context()).unwrap();
    assert_eq!(valid.size, 3);
    assert_eq!(valid.image, "docker.io/library/zookeeper:3.9.5");
    assert_eq!(valid.heap_mib, 512);
    assert_eq!(valid.settings["autopurge.purgeInterval"], "1");
}

/// The other half of scenario 6: an old CRD lets them in, and the operator refuses them.
#[test]
fn scenario_06_even_zero_negative_and_large_sizes_are_refused_with_what_to_do() {
    for (replicas, say) in [
        (0, "delete"),
        (-1, "delete"),
        (2, "use 1 or 3"),
        (4, "use 3 or 5"),
        (15, "13 or fewer"),
    ] {
        let message = problems(|s| s.replicas = replicas);
        assert!(message.contains(say), "{replicas}: {message}");
    }
    for replicas in [1, 3, 5, 7, 9, 11, 13] {
        assert_eq!(problems(|s| s.replicas = replicas), "");
    }
}

#[test]
fn releases_that_lose_data_are_refused_by_version_and_by_tag() {
    let version = |v: &str| problems(|s| s.version = Some(v.to_owned()));
    assert!(version("3.9.3").contains("ZOOKEEPER-4925"));
    assert!(version("3.8.4").contains("use 3.9.5"));
    assert_eq!(version("3.9.4"), "");
    let image = |i: &str| problems(|s| s.image = Some(i.to_owned()));
    assert!(image("mirror/zookeeper:3.9.1-jre-17").contains("spec.image"));
    assert_eq!(image("mirror/zookeeper:3.9.5"), "");
    assert_eq!(image("mirror/my-own:3.9.3"), "");
}

#[test]
fn the_release_is_known_from_the_version_or_an_official_tag() {
    let release = |image: Option<&str>, version: Option<&str>| {
        let spec = ZooKeeperEnsembleSpec {
            replicas: 1,
            image: image.map(str::to_owned),
            version: version.map(str::to_owned),
            ..Default::default()
        };
        let valid = validate(&ZooKeeperEnsemble::new("zk", spec), &context());
        valid.unwrap().release
    };
    assert_eq!(release(None, None).as_deref(), Some("3.9.5"));
    assert_eq!(
        release(Some("a/zookeeper:3.8.5"), None).as_deref(),
        Some("3.8.5")
    );
    assert_eq!(
        release(Some("a/own:1"), Some("3.9.4")).as_deref(),
        Some("3.9.4")
    );
    assert_eq!(release(Some("a/own:1"), None), None);
}

#[test]
fn reserved_typed_and_unknown_keys_are_refused_each_with_its_own_sentence() {
    let with = |key: &str, value: &str| {
        problems(|s| {
            let additional = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            s.config = Some(Config {
                additional,
                ..Default::default()
            });
        })
    };
    assert!(with("server.4", "x").contains("belongs to the operator"));
    assert!(with("standaloneEnabled", "true").contains("belongs to the operator"));
    assert!(with("tickTime", "1").contains("field of its own"));
    assert!(with("globalOutstandingLimits", "1").contains("check the spelling"));
    assert!(with("enforceQuota", "true\nserver.9=evil").contains("one line"));
    assert_eq!(with("enforceQuota", "true"), "");
}

#[test]
fn all_problems_are_told_at_once() {
    let message = problems(|s| {
        s.replicas = 4;
        s.version = Some("3.7.1".to_owned());
    });
    assert!(message.contains("spec.replicas") && message.contains("spec.version"));
}
