//! The projector against an API server in memory.

use std::sync::{Arc, Mutex};

use bellwether_api::election::{Candidate, Leader, LeaderElectionStatus};
use bellwether_api_server::{Action, ApiServer, Before, Call, Delete, Faults, Kind, Write};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::sighting::Sighting;
use super::*;
use crate::lease::Holder;

mod handovers;
mod rollouts;

/// How long a test waits for something to happen, and for something not to happen.
const DEADLINE: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_millis(300);

/// The list of labelled pods, which is that of all namespaces, arrives last.
struct LateLabels;

impl Faults for LateLabels {
    fn before(&mut self, call: &Call) -> Before {
        let late =
            call.kind == Kind::POD && call.action == Action::List && call.namespace.is_empty();
        Before {
            delay: Duration::from_millis(if late { 100 } else { 0 }),
            ..Before::default()
        }
    }
}

const PROJECTOR: &str = "projector";
const LEASE: (Kind, &str) = (Kind::LEASE, "app");
const SERVICE: (Kind, &str) = (Kind::SERVICE, "app");
const SLICE: (Kind, &str) = (Kind::ENDPOINT_SLICE, "app-leader");

fn pod(name: &str) -> (Kind, &str) {
    (Kind::POD, name)
}

/// A projector at work, and the handles to it.
struct Bench {
    server: ApiServer,
    updates: mpsc::UnboundedSender<ElectionUpdate>,
    lease: Holder,
    inputs: Mutex<mpsc::Receiver<WriterInput>>,
    sighting: Sighting,
}

/// Runs the pod of a candidate.
fn run(server: &ApiServer, name: &str, ip: &str) {
    let mut store = server.store();
    let metadata = json!({"name": name, "namespace": "default", "labels": {"app": "candidate"}});
    let pod = json!({"metadata": metadata, "spec": {"containers": []}});
    store.create("user", Kind::POD, pod).unwrap();
    let status = json!({"podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]});
    let at = ("default", name);
    store
        .update_status("kubelet", Kind::POD, at, |now| *now = status)
        .unwrap();
}

impl Bench {
    fn new(held: bool) -> Self {
        Self::with(held, Scope::default())
    }

    /// One that holds the lease.
    fn in_scope(scope: Scope) -> Self {
        Self::with(true, scope)
    }

    fn with(held: bool, scope: Scope) -> Self {
        let server = ApiServer::new(1, 1);
        server.set_faults(LateLabels);
        run(&server, "a", "10.0.0.1");
        run(&server, "b", "10.0.0.2");
        Self::on(server, held, scope)
    }

    /// The projector that comes after this one.
    fn successor(self) -> Self {
        Self::on(self.server, true, Scope::default())
    }

    fn on(server: ApiServer, held: bool, scope: Scope) -> Self {
        let client = server.client(PROJECTOR);
        let (lease, is_held) = Holder::held(held);
        let (inputs, projected) = mpsc::channel(64);
        let (updates, inbox) = mpsc::unbounded_channel();
        let projector = Projector::new(client, scope, is_held, inputs, Metrics::default());
        tokio::spawn(projector.run(inbox));
        Self {
            server,
            updates,
            lease,
            inputs: Mutex::new(projected),
            sighting: Sighting::new(),
        }
    }

    fn show(&self, projections: Value, leader: Option<&str>) {
        let selector = json!({"matchLabels": {"app": "candidate"}});
        self.show_bound(projections, leader, json!({"selector": selector}), None);
    }

    /// Shows an election whose pods are found in this way, and since when it is not seen.
    fn show_bound(
        &self,
        projections: Value,
        leader: Option<&str>,
        binding: Value,
        stale_since: Option<Timestamp>,
    ) {
        let leader = leader.map(|identity| Leader {
            identity: identity.to_owned(),
            node: format!("node-of-{identity}"),
            ..Leader::default()
        });
        let status = LeaderElectionStatus {
            leader,
            stale_since: stale_since.map(Time),
            ..LeaderElectionStatus::default()
        };
        self.show_status(projections, binding, status);
    }

    fn show_status(&self, projections: Value, binding: Value, status: LeaderElectionStatus) {
        let object = json!({"apiVersion": "zookeeper.bellwether.dev/v1alpha1", "kind": "LeaderElection",
            "metadata": {"name": "app", "namespace": "default", "uid": "uid-1", "generation": 1},
            "spec": {"ensembleRef": {"name": "main"}, "path": "/e", "dialect": {"type": "Kazoo"},
                "projections": projections, "podBinding": binding}});
        let update = ElectionUpdate::Election {
            object: Arc::new(serde_json::from_value(object).unwrap()),
            status: (!projections.is_null()).then(|| Arc::new(status)),
            sighting: Some(self.sighting.clone()),
            owned: None,
            noticed: None,
        };
        self.updates.send(update).unwrap();
    }

    fn get(&self, (kind, name): (Kind, &str)) -> Value {
        let store = self.server.store();
        let object = store.get(kind, "default", name);
        object
            .map(|object| Value::clone(object))
            .unwrap_or_default()
    }

    /// Makes or changes an object as another client.
    fn edit(&self, (kind, name): (Kind, &str), edit: impl FnOnce(&mut Value)) -> Value {
        let mut store = self.server.store();
        let object = if store.get(kind, "default", name).is_some() {
            store.update("other", kind, ("default", name), edit)
        } else {
            let mut object = json!({"metadata": {"name": name, "namespace": "default"}});
            edit(&mut object);
            store.create("other", kind, object)
        };
        Value::clone(&object.unwrap())
    }

    /// What the projector asked to be written.
    fn writes(&self) -> Vec<String> {
        let store = self.server.store();
        let mine = store
            .writes()
            .iter()
            .filter(|write| &*write.actor == PROJECTOR);
        let told = |write: &Write| {
            format!(
                "{:?} {} {}",
                write.verb,
                write.kind.resource().name,
                write.name
            )
        };
        mine.map(told).collect()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let give_up = Instant::now() + DEADLINE;
        while !holds(self) {
            if Instant::now() >= give_up {
                panic!("never: {what}\n{:#?}", self.writes());
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn reason(&self, reason: &str) {
        self.until(reason, |bench| {
            let mut inputs = bench.inputs.lock().unwrap();
            while let Ok(input) = inputs.try_recv() {
                let WriterInput::Projected(projected) = input else {
                    continue;
                };
                let conditions = &projected.projection.conditions;
                if conditions.iter().any(|one| one.reason == reason) {
                    return true;
                }
            }
            false
        })
        .await;
    }
}

fn all() -> Value {
    json!({"lease": {}, "service": {"ports": [{"name": "http", "port": 80}]}, "podLabels": {}})
}

const ROLE: &str = "zookeeper.bellwether.dev/role";

#[tokio::test]
async fn the_deletion_cost_moves_with_the_leaders_label_and_goes_with_the_option() {
    let bench = Bench::new(true);
    let cost = |bench: &Bench, name: &str| {
        let pod = bench.get(pod(name));
        pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"].clone()
    };
    let costs = |bench: &Bench| [cost(bench, "a"), cost(bench, "b")];
    bench.show(json!({"podLabels": {}}), Some("a"));
    bench
        .until("a is labelled", |bench| {
            bench.get(pod("a"))["metadata"]["labels"][ROLE] == "leader"
        })
        .await;
    assert_eq!(costs(&bench), [Value::Null, Value::Null]);
    let costly = json!({"podLabels": {"deletionCost": true}});
    bench.show(costly.clone(), Some("a"));
    let only = |bench: &Bench, name: &str| {
        let others = ["a", "b"].into_iter().filter(|other| *other != name);
        cost(bench, name) == "100" && others.into_iter().all(|other| cost(bench, other).is_null())
    };
    bench.until("a costs", |bench| only(bench, "a")).await;
    bench.show(costly, Some("b"));
    bench.until("b costs", |bench| only(bench, "b")).await;
    bench.show(json!({"podLabels": {}}), Some("b"));
    bench
        .until("nobody costs", |bench| cost(bench, "b").is_null())
        .await;
    assert_eq!(bench.get(pod("b"))["metadata"]["labels"][ROLE], "leader");
}

#[tokio::test]
async fn everything_follows_the_leader_and_what_did_not_change_is_not_written() {
    let bench = Bench::new(true);
    bench.show(all(), Some("a"));
    let address = |bench: &Bench| bench.get(SLICE)["endpoints"][0]["addresses"][0].clone();
    let role = |bench: &Bench, name: &str| bench.get(pod(name))["metadata"]["labels"][ROLE].clone();
    bench
        .until("a leads", |bench| {
            bench.get(LEASE)["spec"]["holderIdentity"] == "a"
                && address(bench) == "10.0.0.1"
                && role(bench, "a") == "leader"
        })
        .await;
    bench.reason("Bound").await;
    let writes = bench.writes();
    bench.show(all(), Some("a"));
    sleep(QUIET).await;
    assert_eq!(bench.writes(), writes);
    bench.show(all(), Some("b"));
    bench
        .until("b leads", |bench| {
            bench.get(LEASE)["spec"]["holderIdentity"] == "b"
                && address(bench) == "10.0.0.2"
                && role(bench, "b") == "leader"
        })
        .await;
    assert_eq!(role(&bench, "a"), Value::Null);
    let labelled: Vec<String> = bench
        .writes()
        .into_iter()
        .filter(|write| write.starts_with("Apply"))
        .collect();
    assert_eq!(labelled, ["Apply Pod a", "Apply Pod a", "Apply Pod b"]);
}

#[tokio::test]
async fn a_leader_that_is_not_read_again_is_not_believed_for_longer_than_the_lease_lasts() {
    let bench = Bench::new(true);
    let projections = json!({"lease": {"leaseDurationSeconds": 1},
        "service": {"ports": [{"name": "http", "port": 80}], "onStale": "Remove"}});
    bench.show(projections, Some("a"));
    let endpoints = |bench: &Bench| bench.get(SLICE)["endpoints"].as_array().map(Vec::len);
    bench
        .until("a is reached", |bench| endpoints(bench) == Some(1))
        .await;
    let renewed = bench.get(LEASE)["spec"]["renewTime"].clone();
    // No mirror reads the leader again, as if its task had ended.
    bench
        .until("nobody is reached", |bench| endpoints(bench) == Some(0))
        .await;
    bench.reason("NotObserved").await;
    assert_eq!(bench.get(LEASE)["spec"]["renewTime"], renewed);
    bench.sighting.renew((Instant::now(), Timestamp::now()));
    let update = ElectionUpdate::Confirmed(Key {
        namespace: "default".to_owned(),
        name: "app".to_owned(),
    });
    bench.updates.send(update).unwrap();
    bench
        .until("a is reached again", |bench| endpoints(bench) == Some(1))
        .await;
    bench
        .until("the Lease is renewed", |bench| {
            bench.get(LEASE)["spec"]["renewTime"] != renewed
        })
        .await;
}

#[tokio::test]
async fn nothing_is_written_without_the_lease_and_everything_with_it() {
    let bench = Bench::new(false);
    bench.show(all(), Some("a"));
    sleep(QUIET).await;
    assert_eq!(bench.writes(), [""; 0]);
    bench.lease.hold_for_ever();
    bench
        .until("a leads", |bench| {
            bench.get(LEASE)["spec"]["holderIdentity"] == "a"
        })
        .await;
    bench.reason("UpToDate").await;
    bench.lease.lose();
    let writes = bench.writes();
    bench.show(all(), Some("b"));
    sleep(QUIET).await;
    assert_eq!(bench.writes(), writes);
}

#[tokio::test]
async fn foreign_objects_are_told_of_and_not_touched() {
    let bench = Bench::new(true);
    let (lease, service) = (bench.edit(LEASE, |_| {}), bench.edit(SERVICE, |_| {}));
    bench.show(all(), Some("a"));
    bench.reason("NameTaken").await;
    assert_eq!((bench.get(LEASE), bench.get(SERVICE)), (lease, service));
    // An address in a slice would be one of the foreign Service.
    assert_eq!(bench.get(SLICE), Value::Null);
}

#[tokio::test]
async fn after_a_conflict_it_is_decided_anew() {
    let bench = Bench::new(true);
    bench.show(json!({"lease": {}}), Some("a"));
    bench
        .until("a leads", |bench| {
            bench.get(LEASE)["spec"]["holderIdentity"] == "a"
        })
        .await;
    // From now on the watch does not bring in time what others do.
    bench.server.set_lag(0, Kind::LEASE, DEADLINE * 2);
    bench.edit(LEASE, |lease| {
        lease["metadata"]["labels"]["team"] = json!("blue")
    });
    bench.show(json!({"lease": {}}), Some("b"));
    bench
        .until("b leads", |bench| {
            bench.get(LEASE)["spec"]["holderIdentity"] == "b"
        })
        .await;
    assert_eq!(bench.get(LEASE)["metadata"]["labels"]["team"], "blue");
    let conflict = |write: &Write| matches!(&write.result, Err((409, _)));
    assert!(bench.server.store().writes().iter().any(conflict));
    // A Lease that lost its owner reference in between is foreign.
    let stolen = bench.edit(LEASE, |lease| {
        lease["metadata"]["ownerReferences"] = json!([])
    });
    bench.show(json!({"lease": {}}), Some("a"));
    bench.reason("NameTaken").await;
    assert_eq!(bench.get(LEASE), stolen);
}

#[tokio::test]
async fn labels_are_taken_back_when_they_are_switched_off() {
    let bench = Bench::new(true);
    bench.show(json!({"podLabels": {}}), Some("a"));
    let labels = |bench: &Bench| bench.get(pod("a"))["metadata"]["labels"].clone();
    bench
        .until("a is labelled", |bench| labels(bench)[ROLE] == "leader")
        .await;
    bench.show(Value::Null, None);
    bench
        .until("it is not", |bench| {
            labels(bench) == json!({"app": "candidate"})
        })
        .await;
}

#[tokio::test]
async fn a_label_that_is_not_allowed_is_not_set_and_all_else_goes_on() {
    let bench = Bench::new(true);
    let labels = |bench: &Bench| bench.get(pod("a"))["metadata"]["labels"].clone();
    bench.show(all(), Some("a"));
    bench
        .until("a is labelled", |bench| labels(bench)[ROLE] == "leader")
        .await;
    let mut other = all();
    other["podLabels"] = json!({"key": "app.example.com/role"});
    bench.show(other.clone(), Some("a"));
    bench.reason("LabelNotAllowed").await;
    // What was set under the default key is taken back, as with any other key.
    bench
        .until("it is not", |bench| {
            labels(bench) == json!({"app": "candidate"})
        })
        .await;
    bench.show(other, Some("b"));
    bench
        .until("b is reached", |bench| {
            bench.get(SLICE)["endpoints"][0]["addresses"][0] == "10.0.0.2"
                && bench.get(LEASE)["spec"]["holderIdentity"] == "b"
        })
        .await;
    let labelled = bench.get(pod("b"))["metadata"]["labels"].clone();
    assert_eq!(labelled, json!({"app": "candidate"}));
}

#[tokio::test]
async fn without_a_selector_no_pod_is_reached_or_labelled() {
    for binding in [
        Value::Null,
        json!({}),
        json!({"selector": {}}),
        json!({"identityPattern": "(?P<pod>.*)"}),
    ] {
        let bench = Bench::new(true);
        bench.show_bound(all(), Some("a"), binding.clone(), None);
        bench.reason("SelectorRequired").await;
        bench
            .until("a leads", |bench| {
                bench.get(LEASE)["spec"]["holderIdentity"] == "a"
            })
            .await;
        sleep(QUIET).await;
        let endpoints = bench.get(SLICE)["endpoints"].as_array().map(Vec::len);
        assert!(endpoints.is_none_or(|count| count == 0), "{binding}");
        let labels = bench.get(pod("a"))["metadata"]["labels"].clone();
        assert_eq!(labels, json!({"app": "candidate"}), "{binding}");
    }
}

#[tokio::test]
async fn a_pod_that_the_selector_does_not_select_is_neither_reached_nor_labelled() {
    let bench = Bench::new(true);
    let selector = json!({"matchLabels": {"app": "other"}});
    bench.show_bound(all(), Some("a"), json!({"selector": selector}), None);
    bench.reason("PodNotFound").await;
    let labels = bench.get(pod("a"))["metadata"]["labels"].clone();
    assert_eq!(labels, json!({"app": "candidate"}));
    assert_eq!(bench.get(SLICE)["endpoints"], json!([]));
}

#[tokio::test]
async fn a_pod_loses_address_and_label_when_no_selector_selects_it_any_more_also_without_sight() {
    let bench = Bench::new(true);
    bench.show(all(), Some("a"));
    let endpoints = |bench: &Bench| bench.get(SLICE)["endpoints"].as_array().map(Vec::len);
    let role = |bench: &Bench| bench.get(pod("a"))["metadata"]["labels"][ROLE].clone();
    bench
        .until("a is reached", |bench| {
            endpoints(bench) == Some(1) && role(bench) == "leader"
        })
        .await;
    let blind = Some(Timestamp::now());
    bench.show_bound(all(), Some("a"), Value::Null, blind);
    bench
        .until("it is not", |bench| {
            endpoints(bench) == Some(0) && role(bench).is_null()
        })
        .await;
}

#[tokio::test]
async fn a_successor_without_sight_keeps_the_leader_that_its_predecessor_wrote_last() {
    let led = |leader: &str, token: &str, stale_since| LeaderElectionStatus {
        leader: Some(Leader {
            identity: leader.to_owned(),
            node: format!("node-of-{leader}"),
            fencing_token: Some(token.to_owned()),
            ..Leader::default()
        }),
        stale_since,
        ..LeaderElectionStatus::default()
    };
    let selector = || json!({"selector": {"matchLabels": {"app": "candidate"}}});
    let shown = |bench: &Bench| bench.get(SLICE)["endpoints"][0]["targetRef"]["name"].clone();
    let bench = Bench::new(true);
    bench.show_status(all(), selector(), led("b", "9", None));
    bench
        .until("b is reached", |bench| shown(bench) == "b")
        .await;
    // The status with b was not written any more.
    let bench = bench.successor();
    let blind = led("a", "8", Some(Time(Timestamp::now())));
    bench.show_status(all(), selector(), blind);
    bench.reason("NotObserved").await;
    assert_eq!(shown(&bench), "b");
    let gone = bench
        .server
        .store()
        .delete("user", Kind::POD, ("default", "b"), &Delete::default());
    gone.unwrap();
    let empty = |bench: &Bench| shown(bench).is_null();
    bench.until("nobody is reached", empty).await;
}

#[tokio::test]
async fn what_an_election_left_goes_although_it_is_projected_to_nothing() {
    let bench = Bench::new(false);
    let left = ["uid-1", "uid-2"];
    for uid in left {
        bench.edit((Kind::LEASE, uid), |lease| {
            lease["metadata"]["labels"] = json!({bellwether_api::labels::ELECTION_UID: uid});
            let owner = json!({"apiVersion": "zookeeper.bellwether.dev/v1alpha1",
                "kind": "LeaderElection", "name": "app", "uid": uid, "controller": true});
            lease["metadata"]["ownerReferences"] = json!([owner]);
        });
    }
    bench.show(Value::Null, None);
    sleep(QUIET).await;
    assert_eq!(bench.writes(), [""; 0]);
    bench.lease.hold_for_ever();
    bench
        .until("its Lease is gone", |bench| {
            bench.get((Kind::LEASE, left[0])).is_null()
        })
        .await;
    // The projector leaves the Lease of an unknown election: Kubernetes deletes it by its owner reference.
    assert_eq!(bench.writes(), ["Delete Lease uid-1"]);
    // After the cleanup a new projection is carried out.
    bench.show(json!({"lease": {}}), Some("a"));
    bench
        .until("a leads", |bench| {
            bench.get(LEASE)["spec"]["holderIdentity"] == "a"
        })
        .await;
}

/// Every label of a pod takes a while, as with a slow webhook.
struct SlowPods;

impl Faults for SlowPods {
    fn before(&mut self, call: &Call) -> Before {
        let slow = call.kind == Kind::POD && call.action == Action::Apply;
        Before {
            delay: Duration::from_millis(if slow { 50 } else { 0 }),
            ..Before::default()
        }
    }
}

#[tokio::test]
async fn a_change_of_the_leader_does_not_wait_until_all_pods_are_labelled() {
    let bench = Bench::new(true);
    let names: Vec<String> = (0..100).map(|number| format!("pod-{number}")).collect();
    for (name, number) in names.iter().zip(3..) {
        run(&bench.server, name, &format!("10.0.0.{number}"));
    }
    bench.server.set_faults(SlowPods);
    let labelled = |bench: &Bench| {
        let writes = bench.writes();
        writes
            .iter()
            .filter(|write| write.starts_with("Apply Pod"))
            .count()
    };
    let queue = |leader: &str| {
        let all = std::iter::once(leader).chain(names.iter().map(String::as_str));
        let candidates = all.map(|identity| Candidate {
            identity: identity.to_owned(),
            node: format!("node-of-{identity}"),
            ..Candidate::default()
        });
        LeaderElectionStatus {
            leader: Some(Leader {
                identity: leader.to_owned(),
                node: format!("node-of-{leader}"),
                ..Leader::default()
            }),
            candidates: candidates.collect(),
            ..LeaderElectionStatus::default()
        }
    };
    let binding = json!({"selector": {"matchLabels": {"app": "candidate"}}});
    bench.show_status(all(), binding.clone(), queue("a"));
    bench
        .until("pods are labelled", |bench| labelled(bench) > 2)
        .await;
    bench.show_status(all(), binding, queue("b"));
    bench
        .until("b leads", |bench| {
            bench.get(LEASE)["spec"]["holderIdentity"] == "b"
        })
        .await;
    let labels = labelled(&bench);
    assert!(labels < 50, "{labels} labels");
    // The labels are not forgotten, and what is told says all.
    bench.reason("UpToDate").await;
    let is_b = |bench: &Bench| bench.get(pod("b"))["metadata"]["labels"][ROLE] == "leader";
    assert!(is_b(&bench));
}

#[tokio::test]
async fn a_flapping_leader_does_not_flood_the_api_server_and_the_last_one_stays() {
    let bench = Bench::new(true);
    for turn in 0..200 {
        bench.show(json!({"lease": {}}), Some(&format!("client-{turn}")));
        sleep(Duration::from_millis(5)).await;
    }
    let last = |bench: &Bench| bench.get(LEASE)["spec"]["holderIdentity"] == "client-199";
    bench.until("the last one leads", last).await;
    let writes = bench.writes().len();
    assert!(writes <= 30, "{writes} writes");
}
