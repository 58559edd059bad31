//! What is started, waited for or refused where there is no StatefulSet.
#![allow(clippy::unwrap_used, reason = "a test may")]

use bellwether_api::ZooKeeperEnsembleSpec;
use bellwether_api::ensemble::{Storage, TransactionLog};
use jiff::Timestamp;

use super::*;
use crate::observation::{ClaimObservation, PodObservation, PodState, ServerReport};
use crate::validate::example;

fn claim(volume: &str, ordinal: u16) -> ClaimObservation {
    let voters = (volume == "data").then(|| Voters::first(3, 0));
    ClaimObservation {
        name: format!("{volume}-zk-{ordinal}"),
        ordinal,
        uid: ordinal.to_string(),
        voters,
        ..Default::default()
    }
}

/// The reason and message of the refusal of an ensemble with or without a volume for the log.
fn refused(asks: bool, data: &[u16], logs: &[u16]) -> Option<(Reason, String)> {
    let spec = ZooKeeperEnsembleSpec {
        replicas: 3,
        storage: Some(Storage {
            transaction_log: asks.then(TransactionLog::default),
            ..Default::default()
        }),
        ..Default::default()
    };
    let ensemble = example(spec);
    let all = |volume: &str, ordinals: &[u16]| {
        let claims = ordinals.iter().map(|o| claim(volume, *o));
        claims.collect::<Vec<_>>()
    };
    let observation = Observation {
        claims: all("data", data),
        log_claims: all("datalog", logs),
        ..Default::default()
    };
    let trouble = plan_start(Rules::ALL, &ensemble, &observation)
        .report
        .trouble?;
    Some((trouble.reason, trouble.message))
}

#[test]
fn a_member_without_its_transaction_log_has_lost_its_disk() {
    assert_eq!(refused(true, &[0, 1, 2], &[0, 1, 2]), None);
    assert_eq!(refused(true, &[0, 1, 2], &[0, 2]), None);
    let (reason, message) = refused(true, &[0, 1], &[0]).unwrap();
    assert_eq!(reason, Reason::VolumesLost);
    let gone = "datalog-zk-1, data-zk-2 are gone";
    assert!(message.contains(gone), "{message}");
}

#[test]
fn transaction_logs_are_not_left_behind() {
    assert_eq!(refused(false, &[0, 1, 2], &[]), None);
    for (asks, data, words) in [
        (false, &[0, 1, 2][..], "Set storage.transactionLog"),
        (true, &[], "the data volumes that go with them are gone"),
    ] {
        let (reason, message) = refused(asks, data, &[0, 1, 2]).unwrap();
        assert_eq!(reason, Reason::VolumesLeftOver);
        assert!(message.contains(words), "{message}");
    }
}

/// An observation of three members' pods and claims that outlived their StatefulSet.
fn outlived(controller: Option<&str>) -> (ValidEnsemble, Observation) {
    let ensemble = example(ZooKeeperEnsembleSpec {
        replicas: 3,
        ..Default::default()
    });
    let voters = Voters::first(3, 0);
    let revision = config::render(&ensemble, &voters, None).revision;
    let pod = |ordinal: u16| PodObservation {
        name: format!("zk-{ordinal}"),
        ordinal,
        uid: ordinal.to_string(),
        resource_version: "1".to_owned(),
        revision: Some(revision.clone()),
        controller_revision: Some("1".to_owned()),
        terminating: false,
        controller: controller.map(str::to_owned),
        silent_since: None,
        failing_container: None,
        state: PodState::Running,
        ready: true,
        unready_since: None,
        created: Timestamp::UNIX_EPOCH,
        node: None,
        server: ServerReport::Looking,
        volumes: None,
    };
    let observation = Observation {
        pods: (0..3).map(pod).collect(),
        claims: (0..3).map(|o| claim("data", o)).collect(),
        ..Default::default()
    };
    (ensemble, observation)
}

/// What is waited for; `None` where a StatefulSet is created.
fn waits(ensemble: &ValidEnsemble, observation: &Observation) -> Option<String> {
    let plan = crate::plan(ensemble, observation);
    assert!(plan.report.trouble.is_none(), "{:?}", plan.report.trouble);
    let message = plan.report.message;
    plan.objects.is_empty().then_some(message)
}

#[test]
fn pods_whose_statefulset_let_go_of_them_are_adopted() {
    let (ensemble, observation) = outlived(None);
    assert_eq!(waits(&ensemble, &observation), None);
}

#[test]
fn pods_whose_statefulset_is_gone_are_waited_for() {
    let (ensemble, observation) = outlived(Some("gone"));
    let message = waits(&ensemble, &observation).unwrap();
    assert!(message.contains("zk-0, zk-1, zk-2"), "{message}");
    assert!(message.contains("--cascade=orphan"), "{message}");
    // Without the rule they are adopted, and die a moment later.
    let rules = Rules::ALL.without(Rule::AdoptOrphansOnly);
    let plan = crate::plan::plan_under(rules, &ensemble, &observation);
    assert!(!plan.objects.is_empty());
}

#[test]
fn pods_that_are_being_deleted_are_waited_for() {
    let (ensemble, mut observation) = outlived(None);
    observation.pods[1].terminating = true;
    let message = waits(&ensemble, &observation).unwrap();
    assert!(message.contains("zk-1"), "{message}");
}

#[test]
fn pods_whose_claims_are_being_deleted_are_not_adopted() {
    let (ensemble, mut observation) = outlived(None);
    observation.claims[2].terminating = true;
    let message = waits(&ensemble, &observation).unwrap();
    assert!(message.contains("data-zk-2"), "{message}");
}

#[test]
fn what_a_deleted_ensemble_of_the_same_name_owned_is_waited_for() {
    for running in [false, true] {
        let (ensemble, mut observation) = outlived(None);
        if !running {
            observation.pods.clear();
        }
        observation.leftovers = vec!["PersistentVolumeClaim data-zk-0".to_owned()];
        let message = waits(&ensemble, &observation).unwrap();
        assert!(
            message.contains("PersistentVolumeClaim data-zk-0"),
            "{message}"
        );
    }
}
