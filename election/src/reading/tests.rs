//! What snapshots say, by table.

use bellwether_api::election::{DialectType, EnsembleRef, SequenceOptions};
use proptest::prelude::*;

use super::*;
use crate::anomaly::Anomaly;

fn spec(type_: DialectType, acknowledgement: Option<&str>) -> LeaderElectionSpec {
    let sequence = (type_ == DialectType::Sequence).then(|| SequenceOptions {
        prefix: "leader".to_owned(),
    });
    let acknowledgement = acknowledgement.map(str::to_owned);
    LeaderElectionSpec {
        ensemble_ref: EnsembleRef {
            name: "main".to_owned(),
        },
        path: "/zkroot".to_owned(),
        dialect: Dialect {
            type_,
            sequence,
            acknowledgement,
        },
        max_candidates: 3,
    }
}

fn member(czxid: i64, session: i64) -> Member {
    let stat = NodeStat {
        czxid,
        ephemeral_owner: session,
        ..NodeStat::default()
    };
    let dialect = spec(DialectType::ZkElection, None).dialect;
    Member::Read(Claim::read(&dialect, "node", &stat, b"someone"))
}

/// A queue `n_<sequence>` of (sequence, czxid, session).
fn queue(nodes: &[(i32, i64, i64)], acknowledgement: Option<Acknowledgement>) -> Snapshot {
    let named = |sequence: i32| format!("n_{sequence:010}");
    Snapshot::Queue {
        children: nodes.iter().map(|node| named(node.0)).collect(),
        members: nodes
            .iter()
            .map(|node| (named(node.0), member(node.1, node.2)))
            .collect(),
        acknowledgement,
        zxid: 99,
    }
}

fn read(nodes: &[(i32, i64, i64)]) -> Reading {
    read_election(&spec(DialectType::ZkElection, None), &queue(nodes, None))
}

#[test]
fn the_lowest_number_leads_and_the_count_is_exact_beyond_the_limit() {
    let reading = read(&[(4, 14, 4), (1, 11, 1), (3, 13, 3), (2, 12, 2)]);
    assert_eq!(reading.candidate_count, 4);
    let nodes: Vec<_> = reading
        .seats
        .iter()
        .map(|seat| seat.node.as_str())
        .collect();
    assert_eq!(nodes, ["n_0000000001", "n_0000000002", "n_0000000003"]);
    assert_eq!(reading.anomalies, []);
}

#[test]
fn one_session_with_two_nodes_is_a_suspected_orphan() {
    let reading = read(&[(1, 11, 7), (2, 12, 2), (3, 13, 7)]);
    let nodes = vec!["n_0000000001".to_owned(), "n_0000000003".to_owned()];
    assert_eq!(
        reading.anomalies,
        [Anomaly::DuplicateCandidate { session: 7, nodes }]
    );
}

#[test]
fn a_leader_that_came_later_is_an_order_anomaly() {
    let reading = read(&[(-5, 30, 1), (7, 10, 2)]);
    let earliest = "n_0000000007".to_owned();
    let overflow = Anomaly::SequenceOverflow { sequence: -5 };
    assert_eq!(
        reading.anomalies,
        [Anomaly::OrderAnomaly { earliest }, overflow]
    );
}

#[test]
fn a_persistent_head_is_remarked_and_still_leads() {
    let reading = read(&[(1, 11, 0), (2, 12, 2)]);
    assert_eq!(reading.seats.len(), 2);
    assert_eq!(reading.anomalies, [Anomaly::NonEphemeral { children: 0 }]);
}

#[test]
fn an_acknowledgement_counts_if_it_is_the_leaders_or_nobodys() {
    let spec = spec(DialectType::ZkElection, Some("leader_ack"));
    let nodes = [(1, 11, 7), (2, 12, 8)];
    let judged = |acknowledgement| {
        let reading = read_election(&spec, &queue(&nodes, Some(acknowledgement)));
        (reading.acknowledged, reading.foreign_acknowledgement)
    };
    assert_eq!(judged(Acknowledgement::Absent), (Some(false), false));
    assert_eq!(
        judged(Acknowledgement::Present { owner: 7 }),
        (Some(true), false)
    );
    assert_eq!(
        judged(Acknowledgement::Present { owner: 0 }),
        (Some(true), false)
    );
    assert_eq!(
        judged(Acknowledgement::Present { owner: 8 }),
        (Some(false), true)
    );
}

#[test]
fn the_acknowledgement_is_no_candidate_and_no_stranger() {
    let spec = spec(DialectType::ZkElection, Some("/zkroot/n_0000000000"));
    assert_eq!(acknowledgement(&spec), Some(Where::Child("n_0000000000")));
    let ack = Some(Acknowledgement::Present { owner: 0 });
    let reading = read_election(&spec, &queue(&[(0, 10, 0), (1, 11, 7)], ack));
    assert_eq!(reading.candidate_count, 1);
    assert_eq!(reading.unmatched, 0);
    assert_eq!(reading.seats[0].node, "n_0000000001");
}

#[test]
fn an_acknowledgement_may_be_anywhere() {
    let place = |named| {
        acknowledgement(&spec(DialectType::Kazoo, Some(named))).map(|w| match w {
            Where::Child(name) => (true, name.to_owned()),
            Where::Elsewhere(path) => (false, path.to_owned()),
        })
    };
    assert_eq!(place("ack"), Some((true, "ack".to_owned())));
    assert_eq!(place("/zkroot/ack"), Some((true, "ack".to_owned())));
    assert_eq!(
        place("/zkroot/a/b"),
        Some((false, "/zkroot/a/b".to_owned()))
    );
    assert_eq!(place("/zkroot2"), Some((false, "/zkroot2".to_owned())));
}

#[test]
fn a_hidden_candidate_keeps_its_place() {
    let mut snapshot = queue(&[(1, 11, 1), (2, 12, 2)], None);
    if let Snapshot::Queue { members, .. } = &mut snapshot {
        members.insert("n_0000000001".to_owned(), Member::Hidden);
    }
    let reading = read_election(&spec(DialectType::ZkElection, None), &snapshot);
    assert_eq!(reading.seats[0].node, "n_0000000001");
    assert_eq!(reading.anomalies, [Anomaly::Unreadable { count: 1 }]);
}

#[test]
fn the_leader_of_the_plain_recipe_is_the_node_itself() {
    let spec = spec(DialectType::SingleText, None);
    let stat = NodeStat {
        czxid: 5,
        ephemeral_owner: 9,
        ..NodeStat::default()
    };
    let claim = Claim::read(&spec.dialect, "zkroot", &stat, b"host-1");
    let reading = read_election(
        &spec,
        &Snapshot::Node {
            claim,
            children: 0,
            zxid: 5,
        },
    );
    assert_eq!(reading.candidate_count, 1);
    assert_eq!(reading.seats[0].node, "zkroot");
    assert!(!read_election(&spec, &Snapshot::Missing { zxid: 6 }).exists);
}

proptest! {
    #[test]
    fn no_snapshot_makes_it_panic(
        children in prop::collection::vec("([a-z_]{0,3}|n_|leader)-?[0-9]{0,11}", 0..12),
        czxids in prop::collection::vec(any::<(i64, i64, i64)>(), 12),
        data in prop::collection::vec(any::<u8>(), 0..40),
        owner in any::<i64>(),
    ) {
        for type_ in DialectType::ALL {
            let spec = spec(type_, Some("leader_ack"));
            let members = children.iter().zip(&czxids).map(|(child, (czxid, session, ctime))| {
                let (czxid, ctime, ephemeral_owner) = (*czxid, *ctime, *session);
                let stat = NodeStat { czxid, ctime, ephemeral_owner, ..NodeStat::default() };
                (child.clone(), Member::Read(Claim::read(&spec.dialect, child, &stat, &data)))
            });
            let snapshot = Snapshot::Queue {
                children: children.clone(),
                members: members.collect(),
                acknowledgement: Some(Acknowledgement::Present { owner }),
                zxid: 1,
            };
            let reading = read_election(&spec, &snapshot);
            prop_assert_eq!(reading.candidate_count + reading.unmatched, children.len());
            prop_assert!(reading.seats.len() <= 3);
        }
    }
}
