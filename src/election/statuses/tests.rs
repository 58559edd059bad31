//! What is sent to the projector and what is to be written, without an API server.

use bellwether_election::{NodeStat, Rules, Sight, Snapshot, read_election};
use serde_json::json;

use super::super::messages::{Projected, Seen};
use super::super::sighting::Sighting;
use super::*;

/// An election that is projected to a Lease, as the API server shows it.
fn object(version: u64, generation: i64, status: Option<LeaderElectionStatus>) -> LeaderElection {
    let object = json!({"apiVersion": "zookeeper.bellwether.dev/v1alpha1", "kind": "LeaderElection",
        "metadata": {"name": "one", "namespace": "default", "uid": "uid-1",
            "resourceVersion": version.to_string(), "generation": generation},
        "spec": {"ensembleRef": {"name": "main"}, "path": "/leader",
            "dialect": {"type": "SingleText"}, "projections": {"lease": {}}}});
    let mut object: LeaderElection = serde_json::from_value(object).unwrap();
    object.status = status;
    object
}

/// What is known of one election, and what the projector was sent since the last look.
struct Bench {
    statuses: Statuses,
    key: Key,
}

impl Bench {
    /// The API server shows the object for the first time.
    fn new() -> Self {
        let mut bench = Self {
            key: Key::of(&object(1, 1, None).metadata),
            statuses: Statuses::new(Metrics::default()),
        };
        bench.show(object(1, 1, None));
        assert_eq!(bench.sent().len(), 1);
        bench
    }

    fn show(&mut self, object: LeaderElection) {
        self.statuses.take(WriterInput::Object(Arc::new(object)));
    }

    /// A mirror of this generation sees a leader.
    fn see(&mut self, leader: &str, czxid: i64, generation: i64) {
        let rules = Rules::new(Arc::new(object(1, 1, None).spec), None).unwrap();
        let stat = NodeStat {
            czxid,
            ephemeral_owner: 1,
            ..NodeStat::default()
        };
        let snapshot = Snapshot::Node {
            candidacy: rules.candidacy("leader", &stat, leader.as_bytes()),
            children: 0,
            zxid: czxid,
        };
        self.statuses.take(WriterInput::Seen(Box::new(Seen {
            key: self.key.clone(),
            uid: "uid-1".to_owned(),
            generation: Some(generation),
            sight: Sight::Seen(Box::new(read_election(&rules, &snapshot))),
            sighting: Sighting::new(),
            noticed: Noticed::now(),
        })));
    }

    /// The statuses that the projector was sent.
    fn sent(&mut self) -> Vec<Option<Arc<LeaderElectionStatus>>> {
        let updates = self.statuses.updates();
        updates
            .map(|update| match update {
                ElectionUpdate::Election { status, .. } => status,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// The one status that the projector was sent.
    fn sent_once(&mut self) -> Arc<LeaderElectionStatus> {
        let sent = self.sent();
        let [Some(status)] = &*sent else {
            panic!("{sent:?}")
        };
        status.clone()
    }

    /// What is written next, whatever the pace.
    fn write(&mut self) -> Option<Write> {
        self.statuses.next_write(self.statuses.next_due()?)
    }

    /// The API server takes a write. Returns the object as it is then.
    fn written(&mut self, write: &Write, version: u64) -> LeaderElection {
        let status = LeaderElectionStatus::clone(&write.status);
        let now = object(version, 1, Some(status));
        self.statuses.written(write, Arc::new(now.clone()));
        now
    }

    fn computations(&self) -> usize {
        self.statuses.entries[&self.key].computations
    }
}

#[test]
fn a_change_is_computed_once_and_the_projector_is_sent_what_is_written() {
    let mut bench = Bench::new();
    bench.see("a", 1, 1);
    let sent = bench.sent_once();
    let write = bench.write().unwrap();
    assert!(write.urgency == Urgency::Leader && Arc::ptr_eq(&write.status, &sent));
    // The answer to the write, and what the watch shows of it, whichever comes first.
    let now = bench.written(&write, 2);
    bench.show(now.clone());
    assert!(bench.sent().is_empty() && bench.write().is_none());
    assert_eq!(bench.computations(), 1);
    // A label changes nothing that anything here depends on.
    let mut labelled = now;
    labelled.metadata.resource_version = Some("3".to_owned());
    labelled.metadata.labels = Some([("team".to_owned(), "blue".to_owned())].into());
    bench.show(labelled);
    bench.see("b", 2, 1);
    let sent = bench.sent_once();
    let write = bench.write().unwrap();
    assert!(Arc::ptr_eq(&write.status, &sent));
    assert_eq!(write.object.metadata.resource_version.as_deref(), Some("3"));
    let status = LeaderElectionStatus::clone(&sent);
    bench.show(object(4, 1, Some(status)));
    bench.written(&write, 4);
    assert!(bench.sent().is_empty() && bench.write().is_none());
    assert_eq!(bench.computations(), 2);
    // The projector knows what became of the projections.
    bench
        .statuses
        .take(WriterInput::Projected(Box::new(Projected {
            key: bench.key.clone(),
            uid: "uid-1".to_owned(),
            generation: Some(1),
            projection: bellwether_election::projection::Projection::default(),
        })));
    assert!(bench.sent().is_empty());
    assert_eq!(bench.computations(), 3);
}

#[test]
fn what_is_seen_during_a_write_is_computed_anew_from_what_was_written() {
    let mut bench = Bench::new();
    bench.see("a", 1, 1);
    bench.sent_once();
    let write = bench.write().unwrap();
    bench.see("b", 2, 1);
    assert_eq!(bench.sent_once().terms, 1);
    assert!(bench.write().is_none());
    bench.written(&write, 2);
    let sent = bench.sent_once();
    assert_eq!((sent.terms, sent.leader_transitions), (2, 1));
    assert!(Arc::ptr_eq(&bench.write().unwrap().status, &sent));
    assert_eq!(bench.computations(), 3);
}

#[test]
fn after_a_conflict_the_projector_is_sent_what_is_computed_from_the_new_object() {
    let mut bench = Bench::new();
    bench.see("a", 1, 1);
    bench.sent_once();
    let write = bench.write().unwrap();
    let other = LeaderElectionStatus {
        terms: 3,
        ..LeaderElectionStatus::default()
    };
    let now = object(2, 1, Some(other));
    bench.statuses.refused(write, Arc::new(now.clone()));
    bench.show(now);
    let sent = bench.sent_once();
    assert_eq!(sent.terms, 4);
    let write = bench.write().unwrap();
    assert!(Arc::ptr_eq(&write.status, &sent));
    bench.statuses.failed(write);
    assert!(Arc::ptr_eq(&bench.write().unwrap().status, &sent));
    assert_eq!(bench.computations(), 2);
}

#[test]
fn the_projector_is_sent_what_a_person_asks_of_the_leader() {
    let mut bench = Bench::new();
    let mut asks = object(2, 1, None);
    asks.annotations_mut()
        .insert("example.org/note".to_owned(), "7".to_owned());
    bench.show(asks.clone());
    assert_eq!(bench.sent(), []);
    asks.metadata.resource_version = Some("3".to_owned());
    let handover = bellwether_api::labels::HANDOVER.to_owned();
    asks.annotations_mut().insert(handover, "7".to_owned());
    bench.show(asks);
    assert_eq!(bench.sent(), [None]);
}

#[test]
fn a_reading_by_another_spec_does_not_count_and_an_older_object_does_not_come_back() {
    let mut bench = Bench::new();
    bench.see("a", 1, 1);
    bench.sent_once();
    let write = bench.write().unwrap();
    let status = LeaderElectionStatus::clone(&write.status);
    bench.show(object(3, 2, Some(status)));
    // The answer to a write comes later than the watch shows what was changed after it.
    bench.written(&write, 2);
    assert_eq!(bench.sent(), [None]);
    bench.see("b", 2, 1);
    assert_eq!(bench.sent(), [None]);
    assert!(bench.write().is_none());
    bench.see("b", 2, 2);
    let sent = bench.sent_once();
    assert_eq!(sent.observed_generation, Some(2));
    assert!(Arc::ptr_eq(&bench.write().unwrap().status, &sent));
}

#[tokio::test]
async fn what_flapped_is_told_to_be_calm_when_its_time_is_over() {
    let mut bench = Bench::new();
    let reason = |status: &LeaderElectionStatus| {
        let queue = status
            .conditions
            .iter()
            .find(|one| one.type_ == "QueueHealthy");
        queue.unwrap().reason.clone()
    };
    for leader in 1..=5 {
        bench.see(&format!("client-{leader}"), leader, 1);
        let write = bench.write().unwrap();
        let mut status = LeaderElectionStatus::clone(&write.status);
        if leader == 5 {
            assert_eq!(reason(&status), "Flapping");
            // Most of the time is over.
            for change in &mut status.history {
                change.time.0 -= jiff::SignedDuration::from_secs(39);
            }
        }
        let version = u64::try_from(leader).unwrap() + 1;
        bench
            .statuses
            .written(&write, Arc::new(object(version, 1, Some(status))));
    }
    bench.see("client-5", 5, 1);
    let due = bench.statuses.next_due().unwrap();
    tokio::time::sleep_until(due).await;
    let write = bench.statuses.next_write(due).unwrap();
    assert_eq!(reason(&write.status), "Orderly");
    bench.written(&write, 9);
    assert_eq!(bench.statuses.next_due(), None);
}
