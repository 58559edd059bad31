//! The projector against a stand-in for the API server that keeps objects and lists pods.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bellwether_api::election::{Leader, LeaderElectionStatus};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::lease::Holder;

/// How long a test waits for something to happen, and for something not to happen.
const DEADLINE: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_millis(300);

/// What the API server holds, by path, and the writes that it was asked for.
#[derive(Default)]
struct World {
    objects: BTreeMap<String, Value>,
    version: u64,
    writes: Vec<String>,
}

impl World {
    fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let known = self.objects.get(path);
        let uid = known.map(|known| known["metadata"]["uid"].clone());
        object["metadata"]["uid"] = uid.unwrap_or_else(|| json!(format!("uid-of-{path}")));
        self.objects.insert(path.to_owned(), object.clone());
        object
    }
}

type Shared = Arc<Mutex<World>>;

fn refuse(code: u16, reason: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "code": code, "message": reason});
    let code = StatusCode::from_u16(code).unwrap();
    (code, status.to_string()).into_response()
}

fn is_single(path: &str) -> bool {
    // A list in a namespace ends in the name of the kind.
    !["/leases", "/services", "/endpointslices", "/pods"]
        .iter()
        .any(|kind| path.ends_with(kind))
}

async fn answer(State(world): State<Shared>, method: Method, uri: Uri, body: Bytes) -> Response {
    if uri.path() == "/api/v1/pods" {
        // The list of labelled pods arrives last.
        sleep(Duration::from_millis(100)).await;
    }
    let mut world = world.lock().unwrap();
    let path = uri.path().to_owned();
    let query = uri.query().unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    if method == Method::GET && !is_single(&path) {
        if query.contains("watch=") {
            let nothing = futures::stream::pending::<Result<Bytes, Infallible>>();
            return Body::from_stream(nothing).into_response();
        }
        let items: Vec<&Value> = world
            .objects
            .iter()
            // The list of pods contains all pods; the list of labelled pods is empty.
            .filter(|(at, _)| match path.ends_with("/leases") {
                true => at.contains("/leases/"),
                false => at.contains("/pods/") && path.ends_with("namespaces/default/pods"),
            })
            .map(|(_, object)| object)
            .collect();
        let list = json!({"kind": "List", "apiVersion": "v1",
            "metadata": {"resourceVersion": "1"}, "items": items});
        return list.to_string().into_response();
    }
    if method != Method::GET {
        world.writes.push(format!("{method} {path}"));
    }
    let expected = body["metadata"]["resourceVersion"].clone();
    let current = world.objects.get(&path).cloned();
    match (method.as_str(), current) {
        ("GET", Some(object)) => object.to_string().into_response(),
        ("POST", _) => {
            let name = body["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{path}/{name}");
            if world.objects.contains_key(&path) {
                return refuse(409, "AlreadyExists");
            }
            world.put(&path, body).to_string().into_response()
        }
        (_, None) => refuse(404, "NotFound"),
        ("PUT" | "PATCH", Some(object)) => {
            if expected != object["metadata"]["resourceVersion"] {
                return refuse(409, "Conflict");
            }
            if method == Method::PUT {
                return world.put(&path, body).to_string().into_response();
            }
            let mut object = object;
            let labels = body["metadata"]["labels"].clone();
            let fields = labels.as_object().into_iter().flatten();
            let fields: serde_json::Map<_, _> = fields
                .map(|(key, _)| (format!("f:{key}"), json!({})))
                .collect();
            let manager = query
                .split('&')
                .find_map(|part| part.strip_prefix("fieldManager="));
            object["metadata"]["managedFields"] = match labels.is_null() {
                true => json!([]),
                false => json!([{"manager": manager, "operation": "Apply",
                    "fieldsV1": {"f:metadata": {"f:labels": fields}}}]),
            };
            object["metadata"]["labels"] = labels;
            world.put(&path, object).to_string().into_response()
        }
        ("DELETE", Some(object)) => {
            let wanted = &body["preconditions"];
            let fits = |key: &str| wanted[key] == object["metadata"][key];
            if !fits("uid") || !fits("resourceVersion") {
                return refuse(409, "Conflict");
            }
            world.objects.remove(&path);
            object.to_string().into_response()
        }
        other => panic!("{other:?}"),
    }
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/app";
const SERVICE: &str = "/api/v1/namespaces/default/services/app";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/app-leader";

fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

/// A projector at work, and the handles to it.
struct Bench {
    world: Shared,
    updates: mpsc::UnboundedSender<ElectionUpdate>,
    lease: Holder,
    inputs: Mutex<mpsc::Receiver<WriterInput>>,
    sighting: Sighting,
}

impl Bench {
    fn new(held: bool) -> Self {
        let world = Shared::default();
        for (name, ip) in [("a", "10.0.0.1"), ("b", "10.0.0.2")] {
            let pod = json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}});
            world.lock().unwrap().put(&pod_path(name), pod);
        }
        let router = Router::new().fallback(answer).with_state(world.clone());
        let client = Client::new(router, "default");
        let (lease, is_held) = Holder::held(held);
        let (inputs, projected) = mpsc::channel(64);
        let (updates, inbox) = mpsc::unbounded_channel();
        let scope = Scope::default();
        let projector = Projector::new(client, scope, is_held, inputs, Metrics::default());
        tokio::spawn(projector.run(inbox));
        Self {
            world,
            updates,
            lease,
            inputs: Mutex::new(projected),
            sighting: Sighting::new(),
        }
    }

    fn show(&self, projections: Value, leader: Option<&str>) {
        let object = json!({"apiVersion": "zookeeper.bellwether.dev/v1alpha1", "kind": "LeaderElection",
            "metadata": {"name": "app", "namespace": "default", "uid": "uid-1", "generation": 1},
            "spec": {"ensembleRef": {"name": "main"}, "path": "/e", "dialect": {"type": "Kazoo"},
                "projections": projections}});
        let leader = leader.map(|identity| Leader {
            identity: identity.to_owned(),
            node: format!("node-of-{identity}"),
            ..Leader::default()
        });
        let status = LeaderElectionStatus {
            leader,
            ..LeaderElectionStatus::default()
        };
        let update = ElectionUpdate::Election {
            object: Arc::new(serde_json::from_value(object).unwrap()),
            status: (!projections.is_null()).then(|| Arc::new(status)),
            sighting: Some(self.sighting.clone()),
            owned: None,
            noticed: None,
        };
        self.updates.send(update).unwrap();
    }

    fn get(&self, path: &str) -> Value {
        let world = self.world.lock().unwrap();
        world.objects.get(path).cloned().unwrap_or_default()
    }

    fn writes(&self) -> Vec<String> {
        self.world.lock().unwrap().writes.clone()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let give_up = Instant::now() + DEADLINE;
        while !holds(self) {
            if Instant::now() >= give_up {
                let world = self.world.lock().unwrap();
                panic!("never: {what}\n{:#?}\n{:?}", world.objects, world.writes);
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
async fn everything_follows_the_leader_and_what_did_not_change_is_not_written() {
    let bench = Bench::new(true);
    bench.show(all(), Some("a"));
    let address = |bench: &Bench| bench.get(SLICE)["endpoints"][0]["addresses"][0].clone();
    let role =
        |bench: &Bench, pod: &str| bench.get(&pod_path(pod))["metadata"]["labels"][ROLE].clone();
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
        .filter(|write| write.starts_with("PATCH"))
        .collect();
    let patched = |name| format!("PATCH {}", pod_path(name));
    assert_eq!(labelled, [patched("a"), patched("a"), patched("b")]);
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
    let foreign = |kind: &str, api: &str| json!({"apiVersion": api, "kind": kind, "metadata": {"name": "app"}});
    let lease = bench
        .world
        .lock()
        .unwrap()
        .put(LEASE, foreign("Lease", "coordination.k8s.io/v1"));
    let service = bench
        .world
        .lock()
        .unwrap()
        .put(SERVICE, foreign("Service", "v1"));
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
    let mut edited = bench.get(LEASE);
    edited["metadata"]["labels"]["team"] = json!("blue");
    bench.world.lock().unwrap().put(LEASE, edited);
    bench.show(json!({"lease": {}}), Some("b"));
    bench
        .until("b leads", |bench| {
            bench.get(LEASE)["spec"]["holderIdentity"] == "b"
        })
        .await;
    assert_eq!(bench.get(LEASE)["metadata"]["labels"]["team"], "blue");
    // A Lease that lost its owner reference in between is foreign.
    let mut stolen = bench.get(LEASE);
    stolen["metadata"]["ownerReferences"] = json!([]);
    let stolen = bench.world.lock().unwrap().put(LEASE, stolen);
    bench.show(json!({"lease": {}}), Some("a"));
    bench.reason("NameTaken").await;
    assert_eq!(bench.get(LEASE), stolen);
}

#[tokio::test]
async fn labels_are_taken_back_when_they_are_switched_off() {
    let bench = Bench::new(true);
    bench.show(json!({"podLabels": {}}), Some("a"));
    let labels = |bench: &Bench| bench.get(&pod_path("a"))["metadata"]["labels"].clone();
    bench
        .until("a is labelled", |bench| labels(bench)[ROLE] == "leader")
        .await;
    bench.show(Value::Null, None);
    bench
        .until("it is not", |bench| labels(bench).is_null())
        .await;
}

#[tokio::test]
async fn what_an_election_left_goes_although_it_is_projected_to_nothing() {
    let bench = Bench::new(false);
    let left = |uid: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {
            "name": uid, "namespace": "default", "labels": {bellwether_api::labels::ELECTION_UID: uid},
            "ownerReferences": [{"apiVersion": "zookeeper.bellwether.dev/v1alpha1",
                "kind": "LeaderElection", "name": "app", "uid": uid, "controller": true}]}})
    };
    let path = |uid: &str| LEASE.replace("app", uid);
    for uid in ["uid-1", "uid-2"] {
        bench.world.lock().unwrap().put(&path(uid), left(uid));
    }
    bench.show(Value::Null, None);
    sleep(QUIET).await;
    assert_eq!(bench.writes(), [""; 0]);
    bench.lease.hold_for_ever();
    bench
        .until("its Lease is gone", |bench| {
            bench.get(&path("uid-1")).is_null()
        })
        .await;
    // The projector leaves the Lease of an unknown election: Kubernetes deletes it by its owner reference.
    assert_eq!(bench.writes(), [format!("DELETE {}", path("uid-1"))]);
    // After the cleanup a new projection is carried out.
    bench.show(json!({"lease": {}}), Some("a"));
    bench
        .until("a leads", |bench| {
            bench.get(LEASE)["spec"]["holderIdentity"] == "a"
        })
        .await;
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
