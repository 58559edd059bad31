//! The controllers that Kubernetes brings along, against the store alone.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::time::Duration;

use bellwether_api_server::{Delete, Kind, Opinion, Propagation, Quota, Store, Verb};
use bellwether_simulation::controllers::Controllers;
use serde_json::{Value, json};
use tokio::time::advance;

const USER: &str = "user";

fn set(replicas: u32, retention: &Value) -> Value {
    json!({
        "metadata": { "name": "zk", "namespace": "shop" },
        "spec": {
            "replicas": replicas,
            "serviceName": "zk-members",
            "podManagementPolicy": "Parallel",
            "updateStrategy": { "type": "OnDelete" },
            "persistentVolumeClaimRetentionPolicy": retention,
            "selector": { "matchLabels": { "app": "zk" } },
            "template": {
                "metadata": { "labels": { "app": "zk" } },
                "spec": { "containers": [{ "name": "zookeeper", "image": "zk:1" }] },
            },
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            }],
        },
    })
}

fn names(store: &Store, kind: Kind) -> Vec<String> {
    let objects = store.list(kind, Some("shop"));
    objects.map(|object| object.name().to_owned()).collect()
}

fn messages(store: &Store) -> Vec<String> {
    let events = store.list(Kind::EVENT, None);
    let text = |event: &Value| event["message"].as_str().unwrap().to_owned();
    events.map(|event| text(event)).collect()
}

/// What a scheduler and a kubelet say of pods that run.
fn run_pods(store: &mut Store) {
    for name in names(store, Kind::POD) {
        store.bind("scheduler", ("shop", &name), "node-1").unwrap();
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let running = |status: &mut Value| {
            *status = json!({ "phase": "Running", "conditions": ready });
        };
        store
            .update_status("kubelet", Kind::POD, ("shop", &name), running)
            .unwrap();
    }
}

fn started(replicas: u32, retention: &Value) -> (Store, Controllers) {
    let mut store = Store::new(7);
    let mut controllers = Controllers::default();
    store
        .create(USER, Kind::STATEFUL_SET, set(replicas, retention))
        .unwrap();
    controllers.step(&mut store);
    run_pods(&mut store);
    controllers.step(&mut store);
    (store, controllers)
}

const RETAIN: Value = Value::Null;

#[tokio::test(start_paused = true)]
async fn a_set_makes_pods_and_claims_and_says_so() {
    let (mut store, mut controllers) = started(3, &RETAIN);
    assert_eq!(names(&store, Kind::POD), ["zk-0", "zk-1", "zk-2"]);
    assert_eq!(
        names(&store, Kind::CLAIM),
        ["data-zk-0", "data-zk-1", "data-zk-2"]
    );
    let pod = store.get(Kind::POD, "shop", "zk-1").unwrap();
    let set = store.get(Kind::STATEFUL_SET, "shop", "zk").unwrap();
    let revision = set["status"]["updateRevision"].as_str().unwrap();
    assert_eq!(pod.label("controller-revision-hash"), Some(revision));
    assert_eq!(
        pod.label("statefulset.kubernetes.io/pod-name"),
        Some("zk-1")
    );
    assert_eq!(pod["spec"]["hostname"], "zk-1");
    assert_eq!(pod["spec"]["subdomain"], "zk-members");
    assert_eq!(
        pod["spec"]["volumes"][0],
        json!({ "name": "data", "persistentVolumeClaim": { "claimName": "data-zk-1" } })
    );
    assert_eq!(pod.controller().unwrap()["uid"], set.uid());
    for (field, count) in [
        ("replicas", 3),
        ("readyReplicas", 3),
        ("updatedReplicas", 3),
        ("observedGeneration", 1),
    ] {
        assert_eq!(set["status"][field], count, "{field}");
    }
    let claim = store.get(Kind::CLAIM, "shop", "data-zk-0").unwrap();
    assert_eq!(claim["status"]["phase"], "Bound");
    assert!(claim.owners().is_empty());
    assert!(messages(&store).contains(&"create Pod zk-1 in StatefulSet zk successful".to_owned()));
    let quiet = store.revision();
    assert_eq!(controllers.step(&mut store), None);
    assert_eq!(store.revision(), quiet);
}

#[tokio::test(start_paused = true)]
async fn a_new_template_changes_no_pod_before_it_is_deleted() {
    let (mut store, mut controllers) = started(2, &RETAIN);
    let at = ("shop", "zk");
    let image =
        |set: &mut Value| set["spec"]["template"]["spec"]["containers"][0]["image"] = "zk:2".into();
    store.update(USER, Kind::STATEFUL_SET, at, image).unwrap();
    controllers.step(&mut store);
    let set = store.get(Kind::STATEFUL_SET, "shop", "zk").unwrap().clone();
    assert_eq!(set["metadata"]["generation"], 2);
    assert_eq!(set["status"]["observedGeneration"], 2);
    assert_ne!(
        set["status"]["currentRevision"],
        set["status"]["updateRevision"]
    );
    assert_eq!(set["status"].get("updatedReplicas"), None);
    let old = store.get(Kind::POD, "shop", "zk-0").unwrap().clone();
    store
        .delete(
            USER,
            Kind::POD,
            ("shop", "zk-0"),
            &Delete::exactly(old.uid()),
        )
        .unwrap();
    controllers.step(&mut store);
    // It has its time to end; nothing takes its place before.
    let ending = store.get(Kind::POD, "shop", "zk-0").unwrap();
    assert!(ending.is_terminating() && ending.uid() == old.uid());
    assert_eq!(ending["metadata"]["deletionGracePeriodSeconds"], 30);
    store
        .delete(
            "kubelet",
            Kind::POD,
            ("shop", "zk-0"),
            &Delete::now(old.uid()),
        )
        .unwrap();
    controllers.step(&mut store);
    let new = store.get(Kind::POD, "shop", "zk-0").unwrap();
    assert_eq!(new["spec"]["containers"][0]["image"], "zk:2");
    assert_eq!(
        new.label("controller-revision-hash"),
        set["status"]["updateRevision"].as_str()
    );
    // Back to the first template: its revision is the newest again.
    let image =
        |set: &mut Value| set["spec"]["template"]["spec"]["containers"][0]["image"] = "zk:1".into();
    store.update(USER, Kind::STATEFUL_SET, at, image).unwrap();
    controllers.step(&mut store);
    let back = store.get(Kind::STATEFUL_SET, "shop", "zk").unwrap();
    assert_eq!(
        back["status"]["updateRevision"],
        set["status"]["currentRevision"]
    );
    assert_eq!(names(&store, Kind::CONTROLLER_REVISION).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_smaller_set_deletes_the_highest_pods_and_keeps_their_claims() {
    let (mut store, mut controllers) = started(3, &RETAIN);
    store
        .update(USER, Kind::STATEFUL_SET, ("shop", "zk"), |set| {
            set["spec"]["replicas"] = 1.into()
        })
        .unwrap();
    controllers.step(&mut store);
    let ending: Vec<bool> = store
        .list(Kind::POD, None)
        .map(|pod| pod.is_terminating())
        .collect();
    assert_eq!(ending, [false, true, true]);
    let writes = store.writes().len();
    controllers.step(&mut store);
    assert_eq!(
        store.writes().len(),
        writes,
        "pods that end are not deleted again"
    );
    assert_eq!(names(&store, Kind::CLAIM).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_told_and_tried_again_at_growing_intervals() {
    let mut store = Store::new(7);
    let mut controllers = Controllers::default();
    store.admission.quotas.push(Quota {
        name: "few".to_owned(),
        namespace: "shop".to_owned(),
        kind: Kind::POD,
        most: 1,
    });
    store
        .create(USER, Kind::STATEFUL_SET, set(2, &RETAIN))
        .unwrap();
    let mut waits = Vec::new();
    for _ in 0..4 {
        let due = controllers.step(&mut store).unwrap();
        let wait = due - tokio::time::Instant::now();
        waits.push(wait.as_millis());
        advance(wait).await;
    }
    assert_eq!(names(&store, Kind::POD), ["zk-0"]);
    assert!(waits.is_sorted_by(|one, other| one < other), "{waits:?}");
    let told = "create Pod zk-1 in StatefulSet zk failed error: pods \"zk-1\" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1";
    assert!(
        messages(&store).contains(&told.to_owned()),
        "{:?}",
        messages(&store)
    );
    store.admission.quotas.clear();
    advance(Duration::from_secs(1)).await;
    controllers.step(&mut store);
    assert_eq!(names(&store, Kind::POD), ["zk-0", "zk-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_refuses_and_changes_objects() {
    let mut store = Store::new(7);
    store.admission.add_webhook("policy.example.org", |review| {
        if review.kind == Kind::CLAIM && review.verb == Verb::Create {
            return Opinion::Deny("no".to_owned());
        }
        review.object["metadata"]["annotations"]["seen"] = "yes".into();
        Opinion::Allow
    });
    let mut controllers = Controllers::default();
    let made = store
        .create(USER, Kind::STATEFUL_SET, set(1, &RETAIN))
        .unwrap();
    assert_eq!(made["metadata"]["annotations"]["seen"], "yes");
    controllers.step(&mut store);
    let why = "admission webhook \"policy.example.org\" denied the request: no";
    let told = format!(
        "create Pod zk-0 in StatefulSet zk failed error: failed to create PVC data-zk-0: {why}"
    );
    assert!(messages(&store).contains(&told), "{:?}", messages(&store));
}

#[tokio::test(start_paused = true)]
async fn what_a_set_owns_goes_with_it_and_claims_in_use_go_last() {
    let delete = json!({ "whenDeleted": "Delete", "whenScaled": "Retain" });
    let (mut store, mut controllers) = started(2, &delete);
    let claim = store.get(Kind::CLAIM, "shop", "data-zk-0").unwrap();
    assert_eq!(claim.owners()[0]["kind"], "StatefulSet");
    store
        .delete(USER, Kind::STATEFUL_SET, ("shop", "zk"), &Delete::default())
        .unwrap();
    controllers.step(&mut store);
    assert!(store.list(Kind::POD, None).all(|pod| pod.is_terminating()));
    assert!(
        store
            .list(Kind::CLAIM, None)
            .all(|claim| claim.is_terminating())
    );
    assert!(names(&store, Kind::CONTROLLER_REVISION).is_empty());
    for pod in store.list(Kind::POD, None).cloned().collect::<Vec<_>>() {
        store
            .delete(
                "kubelet",
                Kind::POD,
                ("shop", pod.name()),
                &Delete::now(pod.uid()),
            )
            .unwrap();
        controllers.step(&mut store);
    }
    assert_eq!(store.list(Kind::CLAIM, None).count(), 0);
    assert_eq!(store.list(Kind::VOLUME, None).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn dependents_stay_or_go_first_as_it_is_asked_for() {
    let (mut store, mut controllers) = started(2, &RETAIN);
    let policy = |policy| Delete {
        propagation_policy: Some(policy),
        ..Delete::default()
    };
    store
        .delete(
            USER,
            Kind::STATEFUL_SET,
            ("shop", "zk"),
            &policy(Propagation::Orphan),
        )
        .unwrap();
    controllers.step(&mut store);
    assert_eq!(store.list(Kind::STATEFUL_SET, None).count(), 0);
    assert!(
        store
            .list(Kind::POD, None)
            .all(|pod| pod.owners().is_empty() && !pod.is_terminating())
    );
    // A new set of this name takes them in.
    let made = store
        .create(USER, Kind::STATEFUL_SET, set(2, &RETAIN))
        .unwrap();
    controllers.step(&mut store);
    assert!(
        store
            .list(Kind::POD, None)
            .all(|pod| pod.controller().unwrap()["uid"] == made.uid())
    );
    store
        .delete(
            USER,
            Kind::STATEFUL_SET,
            ("shop", "zk"),
            &policy(Propagation::Foreground),
        )
        .unwrap();
    controllers.step(&mut store);
    let waiting = store.get(Kind::STATEFUL_SET, "shop", "zk").unwrap();
    assert!(waiting.is_terminating());
    for pod in store.list(Kind::POD, None).cloned().collect::<Vec<_>>() {
        assert!(pod.is_terminating());
        store
            .delete(
                "kubelet",
                Kind::POD,
                ("shop", pod.name()),
                &Delete::now(pod.uid()),
            )
            .unwrap();
    }
    controllers.step(&mut store);
    assert_eq!(store.list(Kind::STATEFUL_SET, None).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_behind_makes_no_pod_twice() {
    let (mut store, mut controllers) = started(1, &RETAIN);
    let cache = &mut controllers.stateful_sets.cache;
    cache.set_lag(Kind::POD, Duration::from_secs(5));
    let old = store.get(Kind::POD, "shop", "zk-0").unwrap().clone();
    store
        .delete(USER, Kind::POD, ("shop", "zk-0"), &Delete::now(old.uid()))
        .unwrap();
    // It does not see yet that the pod is gone.
    assert!(controllers.step(&mut store).is_some());
    assert!(store.get(Kind::POD, "shop", "zk-0").is_none());
    advance(Duration::from_secs(5)).await;
    controllers.step(&mut store);
    let new = store
        .get(Kind::POD, "shop", "zk-0")
        .unwrap()
        .uid()
        .to_owned();
    // It does not see the new one either, and tries again.
    store
        .update(USER, Kind::STATEFUL_SET, ("shop", "zk"), |set| {
            set["metadata"]["labels"]["a"] = "b".into()
        })
        .unwrap();
    controllers.step(&mut store);
    assert_eq!(store.get(Kind::POD, "shop", "zk-0").unwrap().uid(), new);
    let refused = store
        .writes()
        .iter()
        .filter(|w| w.result.as_ref().is_err_and(|(code, _)| *code == 409));
    assert!(refused.count() > 0);
}

#[tokio::test(start_paused = true)]
async fn claims_grow_where_their_class_allows_it_and_never_shrink() {
    let mut store = Store::new(7);
    let mut controllers = Controllers::default();
    for (name, grows) in [("grows", true), ("fixed", false)] {
        let class = json!({ "metadata": { "name": name }, "allowVolumeExpansion": grows });
        store.create(USER, Kind::STORAGE_CLASS, class).unwrap();
        let claim = json!({
            "metadata": { "name": name, "namespace": "shop" },
            "spec": {
                "storageClassName": name,
                "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } },
            },
        });
        store.create(USER, Kind::CLAIM, claim).unwrap();
    }
    controllers.step(&mut store);
    let mut ask = |name: &str, size: &str| {
        store.update(USER, Kind::CLAIM, ("shop", name), |claim| {
            claim["spec"]["resources"]["requests"]["storage"] = size.into();
        })
    };
    let refused = ask("fixed", "2Gi").unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    ask("grows", "2Gi").unwrap();
    assert_eq!(ask("grows", "1Gi").unwrap_err().code, 422);
    controllers.step(&mut store);
    let claim = store.get(Kind::CLAIM, "shop", "grows").unwrap();
    assert_eq!(claim["status"]["capacity"]["storage"], "2Gi");
}

#[tokio::test(start_paused = true)]
async fn an_eviction_asks_the_budget() {
    let (mut store, mut controllers) = started(3, &RETAIN);
    let budget = json!({
        "metadata": { "name": "zk", "namespace": "shop" },
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "zk" } } },
    });
    store.create(USER, Kind::DISRUPTION_BUDGET, budget).unwrap();
    let options = Delete::default();
    assert!(store.evict(USER, ("shop", "zk-0"), &options).is_ok());
    controllers.step(&mut store);
    let refused = store.evict(USER, ("shop", "zk-1"), &options).unwrap_err();
    assert_eq!(refused.code, 429);
    assert!(
        !store
            .get(Kind::POD, "shop", "zk-1")
            .unwrap()
            .is_terminating()
    );
}
