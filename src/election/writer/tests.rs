//! The writer against an API server in memory.

use bellwether_api::LeaderElectionSpec;
use bellwether_api::election::{Dialect, DialectType, EnsembleRef};
use bellwether_api_server::{Action, ApiServer, Kind, Recorder};
use bellwether_election::{NodeStat, Rules, Sight, Snapshot, read_election};
use serde_json::{Value, json};
use std::time::Duration;
use tracing_subscriber::layer::SubscriberExt as _;

use super::super::Key;
use super::super::messages::Seen;
use super::super::noticed::Noticed;
use super::super::sighting::Sighting;
use super::*;
use crate::lease::Holder;
use crate::traces::tests::{ALONE, Kept};

/// How long a test waits for something to happen, and for something not to happen.
const DEADLINE: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_millis(300);

const AT: (&str, &str) = ("default", "one");

/// A writer at work, and the handles to it.
struct Bench {
    server: ApiServer,
    requests: Recorder,
    inputs: mpsc::Sender<WriterInput>,
    lease: Holder,
}

impl Bench {
    async fn new(held: bool) -> Self {
        let (server, requests) = (ApiServer::new(1, 1), Recorder::default());
        server.set_faults(requests.clone());
        let object = serde_json::to_value(object()).unwrap();
        server
            .store()
            .create("user", Kind::ELECTION, object)
            .unwrap();
        let client = server.client("writer");
        let (lease, is_held) = Holder::held(held);
        let (inputs, inbox) = mpsc::channel(16);
        let reporter = Reporter {
            controller: "test".to_owned(),
            instance: None,
        };
        let (updates, _) = mpsc::unbounded_channel();
        tokio::spawn(
            Writer::new(client, is_held, reporter, updates, Metrics::default()).run(inbox),
        );
        let bench = Self {
            server,
            requests,
            inputs,
            lease,
        };
        bench.show().await;
        bench
    }

    /// Sends the writer what the watch of the API server would send.
    async fn show(&self) {
        let object = Arc::new(self.object());
        self.inputs.send(WriterInput::Object(object)).await.unwrap();
    }

    fn object(&self) -> LeaderElection {
        let store = self.server.store();
        let object = store.get(Kind::ELECTION, AT.0, AT.1).unwrap();
        serde_json::from_value(Value::clone(object)).unwrap()
    }

    /// Sends the writer what a mirror would send: who leads.
    async fn see(&self, leader: &str, czxid: i64) {
        let rules = Rules::new(Arc::new(object().spec), None).unwrap();
        let stat = NodeStat {
            czxid,
            ephemeral_owner: 1,
            ..NodeStat::default()
        };
        let candidacy = rules.candidacy("leader", &stat, leader.as_bytes());
        let snapshot = Snapshot::Node {
            candidacy,
            children: 0,
            zxid: czxid,
        };
        let seen = Seen {
            key: Key::of(&object().metadata),
            uid: self.object().uid().unwrap(),
            generation: Some(1),
            sight: Sight::Seen(Box::new(read_election(&rules, &snapshot))),
            sighting: Sighting::new(),
            noticed: Noticed::event(&Key::of(&object().metadata)),
        };
        self.inputs
            .send(WriterInput::Seen(Box::new(seen)))
            .await
            .unwrap();
    }

    fn status(&self) -> LeaderElectionStatus {
        self.object().status.unwrap_or_default()
    }

    /// How often the election was read or its status was to be written.
    fn asked(&self, action: Action) -> usize {
        let calls = self.requests.calls().into_iter();
        let same = calls.filter(|call| call.kind == Kind::ELECTION && call.action == action);
        same.count()
    }

    /// The reasons of the events.
    fn events(&self) -> Vec<String> {
        let store = self.server.store();
        let events = store.list(Kind::EVENT, None);
        events
            .map(|event| event["reason"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let give_up = Instant::now() + DEADLINE;
        while !holds(self) {
            assert!(Instant::now() < give_up, "never: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn leads(&self, leader: &str) {
        let holds = |bench: &Self| {
            bench
                .status()
                .leader
                .is_some_and(|current| current.identity == leader)
        };
        self.until(leader, holds).await;
    }
}

fn object() -> LeaderElection {
    let spec = LeaderElectionSpec {
        ensemble_ref: Some(EnsembleRef {
            name: "main".to_owned(),
            namespace: None,
        }),
        connection: None,
        authentication: None,
        path: "/leader".to_owned(),
        dialect: Dialect::from(DialectType::SingleText),
        identity: None,
        handover: None,
        leadership_check: None,
        bridge: None,
        projections: None,
        pod_binding: None,
        max_candidates: 50,
        own_series: false,
    };
    let mut object = LeaderElection::new("one", spec);
    object.metadata.namespace = Some("default".to_owned());
    object
}

#[tokio::test]
async fn what_did_not_change_is_not_written() {
    let bench = Bench::new(true).await;
    bench.see("a", 1).await;
    bench.leads("a").await;
    bench.show().await;
    bench.see("a", 1).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(bench.asked(Action::Update), 1);
    bench
        .until("an event", |bench| !bench.events().is_empty())
        .await;
    assert_eq!(bench.events(), ["LeaderChanged"]);
}

#[tokio::test]
async fn an_event_is_a_trace_until_its_status_is_written_and_tells_no_identity() {
    let _alone = ALONE.lock().await;
    let (kept, traces) = Kept::start();
    let taking = tracing_subscriber::registry().with(traces.layer());
    let _taking = tracing::subscriber::set_default(taking);
    let bench = Bench::new(true).await;
    bench.see("client-7", 1).await;
    bench.leads("client-7").await;
    bench.see("client-8", 2).await;
    bench.leads("client-8").await;
    bench.until("four spans", |_| kept.spans().len() == 4).await;
    let spans = kept.spans();
    for trace in spans.chunks(2) {
        let [write, event] = trace else {
            panic!("{trace:?}")
        };
        assert_eq!(
            (&*write.name, &*event.name),
            ("write status", "election event")
        );
        assert_eq!(write.parent_span_id, event.span_context.span_id());
        assert_eq!(write.span_context.trace_id(), event.span_context.trace_id());
        assert!(event.start_time <= write.start_time && write.end_time <= event.end_time);
        let attributes = format!("{:?} {:?}", event.attributes, write.attributes);
        for part in ["default", "one", "Bool(true)", "done"] {
            assert!(attributes.contains(part), "no {part}: {attributes}");
        }
        assert!(!attributes.contains("client-"), "{attributes}");
    }
    assert_ne!(
        spans[1].span_context.trace_id(),
        spans[3].span_context.trace_id()
    );
}

#[tokio::test]
async fn nothing_is_written_without_the_lease_and_at_once_with_it() {
    let bench = Bench::new(false).await;
    bench.see("a", 1).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(bench.asked(Action::Update), 0);
    bench.lease.hold_for_ever();
    bench.leads("a").await;
    bench.lease.lose();
    bench.see("b", 2).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(bench.status().leader.unwrap().identity, "a");
}

#[tokio::test]
async fn after_a_conflict_the_status_is_computed_from_the_new_object() {
    let bench = Bench::new(true).await;
    bench.see("a", 1).await;
    bench.leads("a").await;
    // Another replica wrote two terms in between, and our watch has not brought that yet.
    let wrote = |status: &mut Value| {
        status["terms"] = json!(3);
        status["leaderTransitions"] = json!(2);
    };
    bench
        .server
        .store()
        .update_status("other", Kind::ELECTION, AT, wrote)
        .unwrap();
    bench.see("b", 9).await;
    bench.leads("b").await;
    let status = bench.status();
    assert_eq!((status.terms, status.leader_transitions), (4, 3));
    assert_eq!(
        (bench.asked(Action::Update), bench.asked(Action::Get)),
        (3, 1)
    );
}

#[tokio::test]
async fn changes_of_the_leader_are_paced_and_the_last_one_is_written() {
    let bench = Bench::new(true).await;
    for term in 1..=50 {
        bench.see(&format!("client-{term}"), term).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bench.leads("client-50").await;
    assert!(
        bench.asked(Action::Update) <= 6,
        "{} writes",
        bench.asked(Action::Update)
    );
}

#[tokio::test]
async fn what_was_seen_by_another_spec_is_not_written() {
    let bench = Bench::new(true).await;
    let edit = |object: &mut Value| object["spec"]["maxCandidates"] = json!(49);
    bench
        .server
        .store()
        .update("user", Kind::ELECTION, AT, edit)
        .unwrap();
    bench.show().await;
    bench.see("a", 1).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(bench.asked(Action::Update), 0);
}
