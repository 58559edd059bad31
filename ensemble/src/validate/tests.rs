//! What is refused, what is understood, and with which words.

use super::*;
use std::collections::BTreeMap;

use bellwether_api::ZooKeeperEnsembleSpec;
use bellwether_api::ensemble::{Config, Jvm, TransactionLog};
use serde_json::Value;

pub(super) fn context() -> Context {
    Context {
        member_image: "bellwether".to_owned(),
        version: "test".to_owned(),
        ..Context::default()
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

#[test]
fn with_a_catalogue_only_its_images_run() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let context = Context {
        catalogue: Catalogue {
            repository: "registry.example.com/zookeeper".to_owned(),
            digests: BTreeMap::from([("3.9.5".to_owned(), digest.clone())]),
        },
        ..context()
    };
    let image = |version: Option<&str>, image: Option<&str>| {
        let spec = ZooKeeperEnsembleSpec {
            replicas: 3,
            version: version.map(str::to_owned),
            image: image.map(str::to_owned),
            ..Default::default()
        };
        let valid = validate(&ZooKeeperEnsemble::new("zk", spec), &context);
        valid.map(|valid| (valid.image, valid.release.unwrap_or_default()))
    };
    let listed = format!("registry.example.com/zookeeper:3.9.5@{digest}");
    for version in [None, Some("3.9.5")] {
        let (image, release) = image(version, None).unwrap();
        assert_eq!(
            (image.as_str(), release.as_str()),
            (listed.as_str(), "3.9.5")
        );
    }
    let refused = invalid_message(&image(Some("3.8.6"), None).unwrap_err());
    assert!(refused.contains("use 3.9.5"), "{refused}");
    // An image of the user's own is the business of the admission policy.
    assert_eq!(image(Some("3.8.6"), Some("own:1")).unwrap().0, "own:1");
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

/// Each line of `pods.jsonl` is the part of a spec about pods, and the field at which the validation of
/// Kubernetes 1.34 (`ValidatePodTemplateSpec`) refuses it, or null where it accepts it.
#[test]
fn pods_are_refused_where_the_api_server_refuses_them_and_nowhere_else() {
    let mut wrong = Vec::new();
    for line in include_str!("pods.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let pod: Pod = serde_json::from_value(case["pod"].clone()).unwrap();
        let mut spec = ZooKeeperEnsembleSpec {
            replicas: 3,
            ..Default::default()
        };
        spec.pod = Some(pod);
        let found: Vec<String> = match validate(&ZooKeeperEnsemble::new("zk", spec), &context()) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.into_iter().map(|p| p.field).collect(),
        };
        let refused = case["refused"].as_str();
        if found.is_empty() != refused.is_none()
            || found.iter().any(|f| Some(f.as_str()) != refused)
        {
            wrong.push(format!("{line}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_memory_limit_holds_the_heap_and_what_the_virtual_machine_needs() {
    let with = |limit: &str, heap: &str| {
        problems(|s| {
            s.jvm = Some(Jvm {
                heap: Some(heap.to_owned()),
                ..Default::default()
            });
            let limits = serde_json::json!({"resources": {"limits": {"memory": limit}}});
            s.pod = Some(serde_json::from_value(limits).unwrap());
        })
    };
    assert!(with("1Gi", "2Gi").contains("use 2112Mi or more"));
    assert!(with("575Mi", "512Mi").contains("spec.pod.resources.limits"));
    assert_eq!(with("576Mi", "512Mi"), "");
    assert_eq!(with("3Gi", "2Gi"), "");
}

#[test]
fn the_volume_of_the_log_holds_one_file_of_it() {
    let with = |size: &str, log: Option<&str>, file: Option<i32>| {
        problems(|s| {
            s.storage = Some(Storage {
                size: Some(Quantity(size.to_owned())),
                transaction_log: log.map(|size| TransactionLog {
                    size: Some(Quantity(size.to_owned())),
                    ..Default::default()
                }),
                ..Default::default()
            });
            s.config = Some(Config {
                pre_alloc_size: file,
                ..Default::default()
            });
        })
    };
    assert!(with("63Mi", None, None).contains("spec.storage.size"));
    assert_eq!(with("64Mi", None, None), "");
    assert_eq!(with("32Mi", None, Some(1024)), "");
    assert!(with("8Gi", Some("32Mi"), None).contains("spec.storage.transactionLog.size"));
    assert_eq!(with("32Mi", Some("64Mi"), None), "");
    assert!(with("large", None, None).contains("use a size such as"));
    assert!(with("-8Gi", None, None).contains("use a size such as"));
}

#[test]
fn names_that_no_object_can_have_are_refused() {
    let secrets = |names: &[&str]| {
        let secrets = names.iter().map(|name| LocalObjectReference {
            name: (*name).to_owned(),
        });
        problems(|s| s.image_pull_secrets = secrets.collect())
    };
    assert_eq!(secrets(&["registry", "other.registry"]), "");
    assert!(secrets(&["registry", "My Registry"]).contains("spec.imagePullSecrets[1].name"));
    assert!(secrets(&[""]).contains("spec.imagePullSecrets[0].name"));
    assert!(secrets(&["a", "a"]).contains("named twice"));
    let class = |class: &str| {
        problems(|s| {
            s.storage = Some(Storage {
                storage_class_name: Some(class.to_owned()),
                ..Default::default()
            });
        })
    };
    assert_eq!(class("fast.ssd"), "");
    assert!(class("Fast").contains("spec.storage.storageClassName"));
}

#[test]
fn a_setting_is_judged_alike_in_the_file_and_as_an_option() {
    let option = |option: &str| {
        problems(|s| {
            s.jvm = Some(Jvm {
                additional_options: vec![option.to_owned()],
                ..Default::default()
            });
        })
    };
    assert!(option("-Dzookeeper.forceSync=no").contains("the operator owns"));
    assert!(option("-Dzookeeper.snapCount=5").contains("field of its own"));
    assert!(option("-Dzookeeper.globalOutstandingLimits=5").contains("check the spelling"));
    assert!(option("-Dzookeeper.globalOutstandingLimit=many").contains("no whole number"));
    assert!(option("-XX:MaxHeapSize=1g").contains("jvm.heap"));
    assert!(option("@/conf/options").contains("starts with '-'"));
    assert_eq!(option("-Dzookeeper.globalOutstandingLimit=2000"), "");
    assert_eq!(option("-XX:+UseG1GC"), "");
    let setting = problems(|s| {
        s.config = Some(Config {
            additional: BTreeMap::from([("globalOutstandingLimit".to_owned(), "2k".to_owned())]),
            ..Default::default()
        });
    });
    assert!(setting.contains("spec.config.additional[globalOutstandingLimit]"));
}
