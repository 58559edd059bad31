use bellwether_api::election::RolloutProjection;
use serde_json::{Value, json};

use super::*;
use crate::rollout::{Outcome, Wait, told};

fn rollout(kind: &str) -> RolloutProjection {
    serde_json::from_value(
        json!({"workload": {"kind": kind, "name": "web"}, "goOnAfterSeconds": 60}),
    )
    .unwrap()
}

fn set(spec: Value, status: Value) -> Result<Workload, String> {
    let set = json!({"metadata": {"uid": "set", "generation": 3}, "spec": spec, "status": status});
    stateful_set(
        &serde_json::from_value(set).unwrap(),
        &rollout("StatefulSet"),
    )
}

fn sets_spec(strategy: &str) -> Value {
    json!({"replicas": 5, "minReadySeconds": 10, "selector": {}, "serviceName": "web", "template": {},
        "updateStrategy": {"type": strategy}})
}

#[test]
fn a_stateful_set_is_known_when_its_controller_has_seen_it() {
    let spec = || sets_spec("OnDelete");
    let seen = set(
        spec(),
        json!({"replicas": 5, "observedGeneration": 3, "updateRevision": "web-1"}),
    );
    let expected = Workload {
        uid: "set".to_owned(),
        revision: "web-1".to_owned(),
        is_observed: true,
        replicas: 5,
        max_unavailable: 1,
        min_ready: Duration::from_secs(10),
        goes_on_after: Some(Duration::from_secs(60)),
    };
    assert_eq!(seen, Ok(expected));
    for unseen in [
        json!({"replicas": 5, "observedGeneration": 2, "updateRevision": "web-1"}),
        json!({"replicas": 5, "observedGeneration": 3}),
        Value::Null,
    ] {
        assert!(!set(spec(), unseen).unwrap().is_observed);
    }
    let refused = set(sets_spec("RollingUpdate"), Value::Null).unwrap_err();
    assert!(refused.contains("RollingUpdate"), "{refused}");
}

#[test]
fn the_revision_of_a_daemon_set_is_the_newest_that_it_owns() {
    let revision = |number: i64, owner: &str, hash: &str| {
        json!({"metadata": {"labels": {REVISION: hash},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web",
                "uid": owner, "controller": true}]}, "revision": number})
    };
    let revisions = json!([
        revision(4, "set", "b"),
        revision(3, "set", "a"),
        revision(9, "other", "c")
    ]);
    let set = json!({"metadata": {"uid": "set", "generation": 1},
        "spec": {"selector": {}, "template": {}, "updateStrategy": {"type": "OnDelete"}},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
            "numberMisscheduled": 0, "numberReady": 2}});
    let revisions: Vec<ControllerRevision> = serde_json::from_value(revisions).unwrap();
    let set: DaemonSet = serde_json::from_value(set).unwrap();
    let workload = daemon_set(&set, &revisions, &rollout("DaemonSet")).unwrap();
    assert_eq!((workload.revision.as_str(), workload.replicas), ("b", 2));
    assert!(workload.is_observed);
    assert!(
        !daemon_set(&set, &[], &rollout("DaemonSet"))
            .unwrap()
            .is_observed
    );
}

#[test]
fn a_pod_has_to_stay_ready_for_the_time_that_the_workload_asks_for() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let pod = |since| PodFacts {
        ready: true,
        ready_since: since,
        ..PodFacts::default()
    };
    let ten = Duration::from_secs(10);
    assert!(has_stayed_ready(&pod(Some(at(5))), ten, at(15)));
    assert!(!has_stayed_ready(&pod(Some(at(6))), ten, at(15)));
    assert!(!has_stayed_ready(&pod(None), ten, at(15)));
    assert!(has_stayed_ready(&pod(None), Duration::ZERO, at(15)));
}

#[test]
fn a_leader_in_another_workload_is_elsewhere_and_one_without_a_pod_is_unbound() {
    let pods = [WorkloadPod {
        name: "web-0".to_owned(),
        uid: "1".to_owned(),
        revision: None,
        is_ready: true,
        has_stayed_ready: true,
        is_terminating: false,
        is_candidate: true,
    }];
    let pod = |name: &str| Binding::Pod(name.to_owned());
    let past = Duration::from_secs(7);
    for (binding, unled, expected) in [
        (
            Some(pod("web-0")),
            None,
            Leadership::Pod("web-0".to_owned()),
        ),
        (Some(pod("db-0")), None, Leadership::Elsewhere),
        (None, Some((Unled::Nobody, past)), Leadership::Nobody(past)),
        (
            Some(Binding::NotFound),
            Some((Unled::Unbound, past)),
            Leadership::Unbound(past),
        ),
        (
            Some(pod("web-0")),
            Some((Unled::Unknown, past)),
            Leadership::Unknown(past),
        ),
    ] {
        assert_eq!(leadership(binding.as_ref(), &pods, unled), expected);
    }
}

#[test]
fn the_sentences_of_a_rollout() {
    let workload = set(
        sets_spec("OnDelete"),
        json!({"replicas": 5, "observedGeneration": 3, "updateRevision": "web-1"}),
    )
    .unwrap();
    let pods: Vec<WorkloadPod> = (0..4)
        .map(|ordinal| WorkloadPod {
            name: format!("web-{ordinal}"),
            uid: ordinal.to_string(),
            revision: (ordinal > 1).then(|| "web-1".to_owned()),
            is_ready: true,
            has_stayed_ready: true,
            is_terminating: false,
            is_candidate: true,
        })
        .collect();
    let names = |pods: &[&str]| pods.iter().map(|pod| (*pod).to_owned()).collect::<Vec<_>>();
    let named = rollout("StatefulSet").workload;
    let sentences: Vec<String> = [
        Outcome::Done,
        Outcome::Evicted(names(&["web-3", "web-2"])),
        Outcome::EvictedLeader("web-0".to_owned()),
        Outcome::Refused(
            "web-3".to_owned(),
            "The budget web needs 5 pods.".to_owned(),
        ),
        Outcome::Waits(Wait::Observation),
        Outcome::Waits(Wait::Sight),
        Outcome::Waits(Wait::Binding),
        Outcome::Waits(Wait::Leader),
        Outcome::Waits(Wait::Reading),
        Outcome::Waits(Wait::Creation(1)),
        Outcome::Waits(Wait::Readiness(names(&["web-3"]))),
        Outcome::Waits(Wait::Age(names(&["web-3"]))),
        Outcome::Waits(Wait::Candidacy(names(&["web-3"]))),
    ]
    .iter()
    .map(|outcome| {
        let told = told(&named, Some((&workload, &pods)), outcome);
        format!("{:?} {}: {}", told.status, told.reason, told.message)
    })
    .collect();
    insta::assert_yaml_snapshot!(sentences);
}
