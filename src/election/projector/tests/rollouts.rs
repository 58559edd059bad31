//! Rollouts of workloads.

use std::sync::atomic::AtomicBool;

use bellwether_api::election::LeaderElectionStatus;
use bellwether_api_server::After;
use serde_json::{Value, json};

use super::*;

const SET: (Kind, &str) = (Kind::STATEFUL_SET, "web");

fn spec() -> Value {
    json!({"rollout": {"workload": {"kind": "StatefulSet", "name": "web"}}})
}

/// Makes the StatefulSet of the pods `a` and `b`, which are of the revision `old`. Its newest one is `new`.
fn outdated_set(bench: &Bench) {
    let template =
        json!({"metadata": {"labels": {"app": "candidate"}}, "spec": {"containers": []}});
    let set = json!({"metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "serviceName": "web", "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": {"app": "candidate"}}, "template": template}});
    bench
        .server
        .store()
        .create("user", Kind::STATEFUL_SET, set)
        .unwrap();
    let status = json!({"replicas": 2, "observedGeneration": 1, "updateRevision": "new"});
    tell(bench, |now| *now = status);
    for name in ["a", "b"] {
        own(bench, name, "old");
    }
}

/// Changes the status of the StatefulSet, as its controller.
fn tell(bench: &Bench, change: impl FnOnce(&mut Value)) {
    let mut store = bench.server.store();
    let at = ("default", "web");
    store
        .update_status("controller", Kind::STATEFUL_SET, at, change)
        .unwrap();
}

/// Makes the StatefulSet the owner of a pod, which is of this revision.
fn own(bench: &Bench, name: &str, revision: &str) {
    let uid = bench.get(SET)["metadata"]["uid"].clone();
    let mut store = bench.server.store();
    let change = |pod: &mut Value| {
        pod["metadata"]["labels"]["controller-revision-hash"] = json!(revision);
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet",
            "name": "web", "uid": uid, "controller": true}]);
    };
    store
        .update("controller", Kind::POD, ("default", name), change)
        .unwrap();
}

/// Shows an election that `leader` leads, with these candidates.
fn show(bench: &Bench, leader: &str, candidates: &[&str]) {
    let candidate = |name: &&str| Candidate {
        identity: (*name).to_owned(),
        node: format!("node-of-{name}"),
        ..Candidate::default()
    };
    let status = LeaderElectionStatus {
        dialect: Some("Kazoo".to_owned()),
        leader: Some(Leader {
            identity: leader.to_owned(),
            node: format!("node-of-{leader}"),
            ..Leader::default()
        }),
        candidates: candidates.iter().map(candidate).collect(),
        candidate_count: i32::try_from(candidates.len()).unwrap(),
        ..LeaderElectionStatus::default()
    };
    let selector = json!({"selector": {"matchLabels": {"app": "candidate"}}});
    bench.show_status(spec(), selector, status);
}

fn exists(bench: &Bench, name: &str) -> bool {
    !bench.get(pod(name)).is_null()
}

#[tokio::test]
async fn the_leaders_pod_goes_last_and_only_by_a_fresh_reading() {
    let bench = Bench::new(true);
    outdated_set(&bench);
    show(&bench, "a", &["a", "b"]);
    bench
        .until("b is evicted", |bench| !exists(bench, "b"))
        .await;
    assert!(exists(&bench, "a"));
    // The follower is back, and ready, but no candidate.
    run(&bench.server, "b", "10.0.0.3");
    own(&bench, "b", "new");
    show(&bench, "a", &["a"]);
    bench.reason("Replacing").await;
    sleep(QUIET).await;
    assert!(exists(&bench, "a"));
    // It is a candidate again, but the leader was not read for a while.
    let long_ago = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
    bench.sighting.renew((long_ago, Timestamp::now()));
    show(&bench, "a", &["a", "b"]);
    sleep(QUIET).await;
    assert!(exists(&bench, "a"));
    bench.sighting.renew((Instant::now(), Timestamp::now()));
    let key = Key {
        namespace: "default".to_owned(),
        name: "app".to_owned(),
    };
    bench.updates.send(ElectionUpdate::Confirmed(key)).unwrap();
    bench
        .until("a is evicted", |bench| !exists(bench, "a"))
        .await;
    run(&bench.server, "a", "10.0.0.4");
    own(&bench, "a", "new");
    show(&bench, "b", &["b", "a"]);
    bench.reason("Replaced").await;
}

/// The watches of StatefulSets show nothing after their lists.
struct NoNewsOfSets;

impl Faults for NoNewsOfSets {
    fn before(&mut self, call: &Call) -> Before {
        let late = call.kind == Kind::STATEFUL_SET && call.action == Action::Watch;
        Before {
            delay: Duration::from_secs(if late { 600 } else { 0 }),
            ..Before::default()
        }
    }
}

#[tokio::test]
async fn a_workload_is_read_again_before_an_eviction() {
    let bench = Bench::new(true);
    bench.server.set_faults(NoNewsOfSets);
    outdated_set(&bench);
    for name in ["a", "b"] {
        own(&bench, name, "new");
    }
    show(&bench, "a", &["a", "b"]);
    bench.reason("Replaced").await;
    let long_ago = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
    bench.sighting.renew((long_ago, Timestamp::now()));
    tell(&bench, |now| now["updateRevision"] = json!("newer"));
    // By what was read before, this pod is not of the newest revision.
    own(&bench, "b", "newer");
    bench.reason("Replacing").await;
    sleep(QUIET).await;
    assert!(exists(&bench, "a") && exists(&bench, "b"));
}

/// The answers to reads of StatefulSets take a while. Tells when one was read.
struct SlowSets(Arc<AtomicBool>);

impl Faults for SlowSets {
    fn after(&mut self, call: &Call, _code: u16) -> After {
        let is_read = call.kind == Kind::STATEFUL_SET && call.action == Action::Get;
        if is_read {
            self.0.store(true, Ordering::Relaxed);
        }
        After {
            delay: Duration::from_millis(if is_read { 300 } else { 0 }),
            ..After::default()
        }
    }
}

#[tokio::test]
async fn a_change_of_the_workload_while_it_is_read_is_not_missed() {
    let bench = Bench::new(true);
    let read = Arc::new(AtomicBool::default());
    bench.server.set_faults(SlowSets(read.clone()));
    outdated_set(&bench);
    tell(&bench, |now| now["observedGeneration"] = json!(0));
    show(&bench, "a", &["a", "b"]);
    bench
        .until("the set is read", |_| read.load(Ordering::Relaxed))
        .await;
    tell(&bench, |now| now["observedGeneration"] = json!(1));
    bench
        .until("b is evicted", |bench| !exists(bench, "b"))
        .await;
}

#[tokio::test]
async fn a_set_that_replaces_pods_itself_and_a_budget_are_told_and_nothing_is_evicted() {
    let bench = Bench::new(true);
    outdated_set(&bench);
    bench.edit(SET, |set| {
        set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"})
    });
    show(&bench, "a", &["a", "b"]);
    bench.reason("WorkloadUnusable").await;
    let budget = json!({"metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "candidate"}}}});
    let made = bench
        .server
        .store()
        .create("user", Kind::DISRUPTION_BUDGET, budget);
    made.unwrap();
    bench.edit(SET, |set| {
        set["spec"]["updateStrategy"] = json!({"type": "OnDelete"})
    });
    tell(&bench, |now| now["observedGeneration"] = json!(9));
    bench.reason("EvictionRefused").await;
    assert!(exists(&bench, "a") && exists(&bench, "b"));
}
