//! The volumes that are rendered.

use bellwether_api::ZooKeeperEnsembleSpec;
use bellwether_api::ensemble::{Storage, TransactionLog};

use super::*;
use crate::desired::config;
use crate::encryption::Encryption;
use crate::ids::Voters;
use crate::validate::example;

fn ensemble(log: Option<&str>) -> ValidEnsemble {
    let log = log.map(|size| TransactionLog {
        size: Some(Quantity(size.to_owned())),
        storage_class_name: Some("fast".to_owned()),
    });
    let spec = ZooKeeperEnsembleSpec {
        replicas: 3,
        storage: Some(Storage {
            transaction_log: log,
            ..Default::default()
        }),
        ..Default::default()
    };
    example(spec)
}

fn render(ensemble: &ValidEnsemble) -> (String, Value) {
    let rendered = config::render(ensemble, &Voters::first(3, 0), None, Encryption::NONE);
    let sizes = ClaimSizes::wanted(ensemble);
    let inputs = inputs_hash(ensemble, &rendered.revision, sizes);
    let set = stateful_set(ensemble, &rendered.revision, &inputs, 3, sizes);
    (rendered.files["zoo-1.cfg"].clone(), set.body)
}

#[test]
fn the_transaction_log_has_its_own_volume_only_if_it_is_asked_for() {
    let (cfg, set) = render(&ensemble(None));
    assert!(!cfg.contains("dataLogDir"), "{cfg}");
    assert!(!set.to_string().contains("datalog"), "{set}");

    let (cfg, set) = render(&ensemble(Some("20Gi")));
    assert!(cfg.contains("dataLogDir=/datalog\n"), "{cfg}");
    let spec = &set["spec"];
    let claim = &spec["volumeClaimTemplates"][1];
    assert_eq!(claim["metadata"]["name"], "datalog");
    assert_eq!(claim["spec"]["storageClassName"], "fast");
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "20Gi");
    let pod = &spec["template"]["spec"];
    for (list, index, read_only) in [
        ("initContainers", 0, Value::Null),
        ("containers", 0, Value::Null),
        ("containers", 1, json!(true)),
    ] {
        let mounts = pod[list][index]["volumeMounts"].as_array().unwrap();
        let log = mounts.iter().find(|m| m["mountPath"] == "/datalog");
        assert_eq!(log.unwrap()["readOnly"], read_only, "{list} {index}");
    }
}

#[test]
fn only_the_size_in_the_claim_template_is_part_of_the_users_wishes() {
    let hash = |ensemble: &ValidEnsemble, log: Option<&str>| {
        let rendered = config::render(ensemble, &Voters::first(3, 0), None, Encryption::NONE);
        let log = log.map(|size| Quantity(size.to_owned()));
        let sizes = ClaimSizes {
            data: &ensemble.storage_size,
            log: log.as_ref(),
        };
        inputs_hash(ensemble, &rendered.revision, sizes)
    };
    let first = hash(&ensemble(Some("20Gi")), Some("20Gi"));
    assert_eq!(hash(&ensemble(Some("40Gi")), Some("20Gi")), first);
    assert_ne!(hash(&ensemble(None), None), first);
}
