use std::cell::Cell;

use bellwether_api::LeaderElectionSpec;
use bellwether_api::election::{Dialect, DialectType, EnsembleRef};
use bellwether_election::{NodeStat, Rules, Snapshot, read_election};
use serde_json::json;

use super::super::messages::Seen;
use super::*;

thread_local! {
    /// How many statuses this thread computed.
    pub(super) static COMPUTED: Cell<u32> = const { Cell::new(0) };
}

fn computed() -> u32 {
    COMPUTED.with(|computed| computed.replace(0))
}

fn key() -> Key {
    key_of(&object(1))
}

fn object(version: u32) -> LeaderElection {
    let spec = LeaderElectionSpec {
        ensemble_ref: Some(EnsembleRef {
            name: "main".to_owned(),
        }),
        connection: None,
        authentication: None,
        path: "/leader".to_owned(),
        dialect: Dialect::from(DialectType::SingleText),
        identity: None,
        projections: serde_json::from_value(json!({ "lease": {} })).unwrap(),
        pod_binding: None,
        max_candidates: 50,
    };
    let mut object = LeaderElection::new("one", spec);
    object.metadata.namespace = Some("default".to_owned());
    object.metadata.uid = Some("uid-1".to_owned());
    object.metadata.generation = Some(1);
    object.metadata.resource_version = Some(version.to_string());
    object
}

fn seen(leader: &str, czxid: i64) -> WriterInput {
    let rules = Rules::new(Arc::new(object(1).spec), None).unwrap();
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
    WriterInput::Seen(Box::new(Seen {
        key: key(),
        uid: "uid-1".to_owned(),
        generation: Some(1),
        sight: Sight::Seen(Box::new(read_election(&rules, &snapshot))),
        sighting: Sighting::new(),
        noticed: Noticed::now(),
    }))
}

fn status_of(updates: &[ElectionUpdate]) -> &Arc<LeaderElectionStatus> {
    match updates {
        [
            ElectionUpdate::Election {
                status: Some(status),
                ..
            },
        ] => status,
        other => panic!("{other:?}"),
    }
}

/// The object after this write, and what its end leads to.
fn finish(statuses: &mut Statuses, write: &StatusWrite, version: u32) -> LeaderElection {
    let mut written = object(version);
    written.status = Some(LeaderElectionStatus::clone(&write.status));
    let (change, _) = statuses.finish(&write.key, Written::Done(Box::new(written.clone())));
    assert!(change.is_some());
    written
}

#[test]
fn a_change_of_a_znode_leads_to_one_status_for_projector_and_writer() {
    let mut statuses = Statuses::new(Metrics::default());
    statuses.take(WriterInput::Object(Arc::new(object(1))));
    computed();
    let updates = statuses.take(seen("a", 1));
    let write = statuses.start(Instant::now()).unwrap();
    assert!(Arc::ptr_eq(status_of(&updates), &write.status));
    assert_eq!(write.status.leader.as_ref().unwrap().identity, "a");
    let written = finish(&mut statuses, &write, 2);
    // The watch shows the own write.
    let updates = statuses.take(WriterInput::Object(Arc::new(written)));
    assert!(updates.is_empty());
    assert!(statuses.next().is_none());
    assert_eq!(computed(), 1);
}

#[test]
fn what_is_seen_during_a_write_is_computed_from_what_was_written() {
    let mut statuses = Statuses::new(Metrics::default());
    statuses.take(WriterInput::Object(Arc::new(object(1))));
    statuses.take(seen("a", 1));
    let first = statuses.start(Instant::now()).unwrap();
    statuses.take(seen("b", 2));
    assert!(statuses.start(Instant::now()).is_none());
    finish(&mut statuses, &first, 2);
    let second = statuses.start(Instant::now()).unwrap();
    assert_eq!((first.status.terms, second.status.terms), (1, 2));
    assert_eq!(second.object.resource_version().as_deref(), Some("2"));
}

#[test]
fn the_projector_gets_what_another_client_wrote() {
    let mut statuses = Statuses::new(Metrics::default());
    statuses.take(WriterInput::Object(Arc::new(object(1))));
    statuses.take(seen("a", 1));
    let write = statuses.start(Instant::now()).unwrap();
    let mut written = finish(&mut statuses, &write, 2);
    written.metadata.resource_version = Some("3".to_owned());
    if let Some(status) = &mut written.status {
        status.leader_transitions = 7;
    }
    let updates = statuses.take(WriterInput::Object(Arc::new(written)));
    assert_eq!(status_of(&updates).leader_transitions, 7);
}
