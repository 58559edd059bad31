//! What snapshots say, by table.

use std::sync::Arc;

use bellwether_api::LeaderElectionSpec;
use bellwether_api::election::{
    CandidateOrder, CustomOptions, Dialect, EnsembleRef, JsonOptions, LeaderRule, SequenceOptions,
};
use proptest::prelude::*;

use super::*;
use crate::anomaly::Common;

fn spec(type_: DialectType, acknowledgement: Option<&str>) -> LeaderElectionSpec {
    let sequence = (type_ == DialectType::Sequence).then(|| SequenceOptions {
        prefix: "leader".to_owned(),
    });
    let acknowledgement = acknowledgement.map(str::to_owned);
    LeaderElectionSpec {
        ensemble_ref: Some(EnsembleRef {
            name: "main".to_owned(),
            namespace: None,
        }),
        connection: None,
        authentication: None,
        path: "/zkroot".to_owned(),
        dialect: Dialect {
            type_,
            sequence,
            acknowledgement,
            ..Dialect::default()
        },
        identity: None,
        handover: None,
        leadership_check: None,
        bridge: None,
        projections: None,
        pod_binding: None,
        max_candidates: 3,
        own_series: false,
    }
}

fn rules(spec: LeaderElectionSpec) -> Rules {
    Rules::new(Arc::new(spec), None).unwrap()
}

fn of(type_: DialectType) -> Rules {
    rules(spec(type_, None))
}

fn custom(options: CustomOptions) -> Rules {
    let mut spec = spec(DialectType::Custom, None);
    spec.dialect.custom = Some(Box::new(options));
    rules(spec)
}

fn stat(czxid: i64, session: i64) -> NodeStat {
    NodeStat {
        czxid,
        ephemeral_owner: session,
        ..NodeStat::default()
    }
}

/// Each candidate has different data, so that only what a test is about looks wrong.
fn member(czxid: i64, session: i64) -> CandidateNode {
    let data = format!("client {czxid}");
    let rules = of(DialectType::ZkElection);
    CandidateNode::from(rules.candidacy("node", &stat(czxid, session), data.as_bytes()))
}

/// What is read of children with these (names, czxids, sessions, data).
fn children(rules: &Rules, nodes: &[(&str, i64, i64, &str)]) -> Snapshot {
    Snapshot::Queue {
        children: nodes.iter().map(|node| node.0.to_owned()).collect(),
        znodes: nodes
            .iter()
            .map(|(name, czxid, session, data)| {
                let stat = NodeStat {
                    mzxid: czxid + 100,
                    ..stat(*czxid, *session)
                };
                let candidacy = rules.candidacy(name, &stat, data.as_bytes());
                ((*name).to_owned(), CandidateNode::from(candidacy))
            })
            .collect(),
        acknowledgement: None,
        registration: None,
        zxid: 99,
    }
}

fn nodes(reading: &Reading) -> Vec<&str> {
    reading
        .candidates
        .iter()
        .map(|candidate| candidate.node.as_str())
        .collect()
}

fn led_by(reading: &Reading) -> Option<&str> {
    reading.leader().map(|candidate| candidate.node.as_str())
}

/// A queue `n_<sequence>` of (sequence, czxid, session).
fn queue(nodes: &[(i32, i64, i64)], acknowledgement: Option<Acknowledgement>) -> Snapshot {
    let named = |sequence: i32| format!("n_{sequence:010}");
    Snapshot::Queue {
        children: nodes.iter().map(|node| named(node.0)).collect(),
        znodes: nodes
            .iter()
            .map(|node| (named(node.0), member(node.1, node.2)))
            .collect(),
        acknowledgement,
        registration: None,
        zxid: 99,
    }
}

fn read(nodes: &[(i32, i64, i64)]) -> Reading {
    read_election(&of(DialectType::ZkElection), &queue(nodes, None))
}

#[test]
fn the_lowest_number_leads_and_the_count_is_exact_beyond_the_limit() {
    let reading = read(&[(4, 14, 4), (1, 11, 1), (3, 13, 3), (2, 12, 2)]);
    assert_eq!(reading.candidate_count, 4);
    assert_eq!(
        nodes(&reading),
        ["n_0000000001", "n_0000000002", "n_0000000003"]
    );
    assert_eq!(led_by(&reading), Some("n_0000000001"));
    assert_eq!(reading.anomalies, []);
}

#[test]
fn one_session_with_two_nodes_is_a_suspected_orphan() {
    let reading = read(&[(1, 11, 7), (2, 12, 2), (3, 13, 7)]);
    let nodes = vec!["n_0000000001".to_owned(), "n_0000000003".to_owned()];
    assert_eq!(
        reading.anomalies,
        [Anomaly::DuplicateCandidate {
            common: Common::Session(7),
            nodes
        }]
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
    assert_eq!(reading.candidates.len(), 2);
    assert_eq!(reading.anomalies, [Anomaly::NonEphemeral { children: 0 }]);
}

#[test]
fn an_acknowledgement_counts_if_it_is_the_leaders_or_nobodys() {
    let rules = rules(spec(DialectType::ZkElection, Some("leader_ack")));
    let nodes = [(1, 11, 7), (2, 12, 8)];
    let judged = |acknowledgement| {
        let reading = read_election(&rules, &queue(&nodes, Some(acknowledgement)));
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
    let rules = rules(spec(DialectType::ZkElection, Some("/zkroot/n_0000000000")));
    assert_eq!(
        rules.acknowledgement(),
        Some(ZnodeLocation::Child("n_0000000000"))
    );
    let ack = Some(Acknowledgement::Present { owner: 0 });
    let reading = read_election(&rules, &queue(&[(0, 10, 0), (1, 11, 7)], ack));
    assert_eq!(reading.candidate_count, 1);
    assert_eq!(reading.unmatched, 0);
    assert_eq!(reading.candidates[0].node, "n_0000000001");
}

#[test]
fn a_hidden_candidate_keeps_its_place() {
    let mut snapshot = queue(&[(1, 11, 1), (2, 12, 2)], None);
    if let Snapshot::Queue { znodes, .. } = &mut snapshot {
        znodes.insert("n_0000000001".to_owned(), CandidateNode::Hidden);
    }
    let reading = read_election(&of(DialectType::ZkElection), &snapshot);
    assert_eq!(reading.candidates[0].node, "n_0000000001");
    assert_eq!(reading.anomalies, [Anomaly::Unreadable { count: 1 }]);
}

#[test]
fn the_leader_of_the_plain_recipe_is_the_node_itself() {
    let rules = of(DialectType::SingleText);
    let candidacy = rules.candidacy("zkroot", &stat(5, 9), b"host-1");
    let snapshot = Snapshot::Node {
        candidacy,
        children: 0,
        zxid: 5,
    };
    let reading = read_election(&rules, &snapshot);
    assert_eq!(reading.candidate_count, 1);
    assert_eq!(led_by(&reading), Some("zkroot"));
    assert!(!read_election(&rules, &Snapshot::Missing { zxid: 6 }).exists);
}

#[test]
fn a_node_whose_data_says_that_its_owner_released_it_has_no_leader() {
    let mut spec = spec(DialectType::SingleJson, None);
    spec.dialect.json = Some(Box::new(JsonOptions {
        pointers: vec!["/address".to_owned()],
        active: Some("/active".to_owned()),
        expiry: None,
    }));
    let rules = rules(spec);
    let led = |data: &str| {
        let candidacy = rules.candidacy("running", &stat(5, 9), data.as_bytes());
        let snapshot = Snapshot::Node {
            candidacy,
            children: 0,
            zxid: 5,
        };
        let reading = read_election(&rules, &snapshot);
        let identity = |candidate: &RankedCandidate| {
            candidate.znode.candidacy().unwrap().identity.text.clone()
        };
        reading.leader().map(identity)
    };
    assert_eq!(
        led(r#"{"address":"10.0.0.1:11111","active":true}"#).as_deref(),
        Some("10.0.0.1:11111")
    );
    assert_eq!(led(r#"{"address":"10.0.0.1:11111","active":false}"#), None);
    assert_eq!(led(r#"{"address":"10.0.0.1:11111"}"#), None);
    assert_eq!(led("no json"), None);
}

const WRITER: &str = "_c_6aa2b1b5-6f0d-4b83-9a24-7a9c1f1f6a10-__WRIT__";
const READER: &str = "_c_0aa2b1b5-6f0d-4b83-9a24-7a9c1f1f6a10-__READ__";

#[test]
fn readers_hold_a_lock_together_and_a_writer_alone() {
    let rules = of(DialectType::CuratorReadWrite);
    let (read, write) = (
        |n: u8| format!("{READER}000000000{n}"),
        format!("{WRITER}0000000003"),
    );
    let readers = children(
        &rules,
        &[
            (&read(1), 11, 1, "a"),
            (&read(2), 12, 1, "a"),
            (&write, 13, 3, "c"),
            (&read(4), 14, 4, "d"),
        ],
    );
    let reading = read_election(&rules, &readers);
    assert_eq!(reading.verdict, Verdict::Together { holders: 2 });
    assert_eq!(reading.exclusivity, Exclusivity::MultiLeader);
    assert_eq!(reading.anomalies, []);
    let writer = children(&rules, &[(&read(4), 14, 4, "d"), (&write, 13, 3, "c")]);
    let reading = read_election(&rules, &writer);
    assert_eq!(led_by(&reading), Some(write.as_str()));
    assert_eq!(reading.exclusivity, Exclusivity::Exclusive);
    let nobody = read_election(&rules, &children(&rules, &[]));
    assert_eq!(nobody.exclusivity, Exclusivity::Unknown);
}

#[test]
fn a_writer_that_also_reads_leads() {
    let rules = of(DialectType::CuratorReadWrite);
    let (write, read) = (format!("{WRITER}0000000003"), format!("{READER}0000000003"));
    let snapshot = children(&rules, &[(&read, 14, 3, "c"), (&write, 13, 3, "c")]);
    let reading = read_election(&rules, &snapshot);
    assert_eq!(led_by(&reading), Some(write.as_str()));
    assert_eq!(reading.anomalies, []);
}

#[test]
fn where_all_replicas_lead_no_leader_is_invented() {
    let rules = of(DialectType::ClickHouse);
    let both = [
        (
            "leader_election-0000000001",
            11,
            1,
            "r1 (multiple leaders Ok)",
        ),
        (
            "leader_election-0000000002",
            12,
            2,
            "r2 (multiple leaders Ok)",
        ),
    ];
    let reading = read_election(&rules, &children(&rules, &both));
    assert_eq!(reading.verdict, Verdict::Together { holders: 2 });
    assert_eq!(reading.exclusivity, Exclusivity::MultiLeader);
    let persistent = [("leader_election-0", 11, 0, "all (multiple leaders Ok)")];
    let reading = read_election(&rules, &children(&rules, &persistent));
    assert_eq!(reading.leader(), None);
    assert_eq!(reading.anomalies, []);
    let alone = [
        ("leader_election-0000000001", 11, 1, "r1"),
        ("leader_election-0000000002", 12, 2, "r2"),
    ];
    let reading = read_election(&rules, &children(&rules, &alone));
    assert_eq!(led_by(&reading), Some("leader_election-0000000001"));
}

#[test]
fn one_identity_in_two_sessions_is_told_unless_it_is_an_address_of_a_machine() {
    let nodes = [("n_0000000001", 11, 1, "a"), ("n_0000000002", 12, 2, "a")];
    let rules = of(DialectType::ZkElection);
    let reading = read_election(&rules, &children(&rules, &nodes));
    let twice = Anomaly::DuplicateCandidate {
        common: Common::Identity("a".to_owned()),
        nodes: vec!["n_0000000001".to_owned(), "n_0000000002".to_owned()],
    };
    assert_eq!(reading.anomalies, [twice]);
    let lock = |n: u8| format!("_c_{n}aa2b1b5-6f0d-4b83-9a24-7a9c1f1f6a10-lock-000000000{n}");
    let rules = of(DialectType::CuratorLock);
    let (one, two) = (lock(1), lock(2));
    let same_machine = [
        (one.as_str(), 11, 1, "10.0.0.1"),
        (two.as_str(), 12, 2, "10.0.0.1"),
    ];
    assert_eq!(
        read_election(&rules, &children(&rules, &same_machine)).anomalies,
        []
    );
    let anonymous = [
        ("x-1-0000000001", 11, 1, "4"),
        ("x-2-0000000002", 12, 2, "4"),
    ];
    let rules = of(DialectType::ZkWriteLock);
    assert_eq!(
        read_election(&rules, &children(&rules, &anonymous)).anomalies,
        []
    );
}

#[test]
fn the_same_id_in_two_names_is_a_suspected_orphan() {
    let guid = "6aa2b1b5-6f0d-4b83-9a24-7a9c1f1f6a10";
    let (one, two) = (
        format!("zlock#{guid}#0000000001"),
        format!("zlock#{guid}#0000000002"),
    );
    let rules = of(DialectType::Accumulo);
    let snapshot = children(&rules, &[(&one, 11, 1, ""), (&two, 12, 2, "")]);
    let reading = read_election(&rules, &snapshot);
    let twice = Anomaly::DuplicateCandidate {
        common: Common::Guid(guid.to_owned()),
        nodes: vec![one.clone(), two],
    };
    assert_eq!(led_by(&reading), Some(one.as_str()));
    assert_eq!(reading.anomalies, [twice]);
}

fn by_creation() -> Rules {
    custom(CustomOptions {
        child_pattern: Some("(?P<id>host-.+)".to_owned()),
        order: CandidateOrder::CreationZxid,
        ..CustomOptions::default()
    })
}

#[test]
fn the_oldest_node_leads_where_names_have_no_order() {
    let rules = by_creation();
    let nodes_ = [
        ("host-a", 30, 1, "a"),
        ("host-b", 10, 2, "b"),
        ("config", 1, 0, ""),
        ("host-c", 20, 3, "c"),
    ];
    let snapshot = children(&rules, &nodes_);
    let reading = read_election(&rules, &snapshot);
    assert_eq!(nodes(&reading), ["host-b", "host-c", "host-a"]);
    assert_eq!(led_by(&reading), Some("host-b"));
    assert_eq!(reading.anomalies, []);
    assert_eq!((reading.candidate_count, reading.unmatched), (3, 1));
}

#[test]
fn nobody_is_shown_where_a_hidden_node_may_be_the_oldest() {
    let rules = by_creation();
    let mut snapshot = children(&rules, &[("host-a", 30, 1, "a"), ("host-b", 10, 2, "b")]);
    if let Snapshot::Queue { znodes, .. } = &mut snapshot {
        znodes.insert("host-b".to_owned(), CandidateNode::Hidden);
    }
    let reading = read_election(&rules, &snapshot);
    assert_eq!(reading.verdict, Verdict::Hidden { count: 1 });
    assert_eq!(reading.anomalies, [Anomaly::Unreadable { count: 1 }]);
}

#[test]
fn nobody_is_shown_where_too_many_would_have_to_be_read() {
    let rules = by_creation();
    let names = |count: usize| (0..count).map(|n| format!("host-{n}")).collect::<Vec<_>>();
    assert_eq!(rules.wanted(&names(MAX_READ)).len(), MAX_READ);
    let many = names(MAX_READ + 1);
    assert_eq!(rules.wanted(&many).len(), 3);
    let snapshot = Snapshot::Queue {
        children: many,
        znodes: HashMap::new(),
        acknowledgement: None,
        registration: None,
        zxid: 1,
    };
    let reading = read_election(&rules, &snapshot);
    assert_eq!(reading.verdict, Verdict::TooMany);
    assert_eq!(reading.candidate_count, MAX_READ + 1);
}

#[test]
fn data_marks_the_leader_and_the_last_write_is_its_token() {
    let rules = custom(CustomOptions {
        child_pattern: Some("(?P<seq>[0-9]{11})".to_owned()),
        leader_rule: LeaderRule::DataPointer,
        data_pointer: Some("/elected".to_owned()),
        ..CustomOptions::default()
    });
    let nodes_ = [
        ("00000000001", 11, 1, r#"{"elected":null}"#),
        ("00000000002", 12, 2, r#"{"elected":"0000000002"}"#),
        ("00000000003", 13, 3, r#"{"elected":"x"}"#),
    ];
    let reading = read_election(&rules, &children(&rules, &nodes_));
    assert_eq!(led_by(&reading), Some("00000000002"));
    assert_eq!(
        reading.leader().unwrap().znode.candidacy().unwrap().token,
        112
    );
    assert_eq!(reading.anomalies, []);
    let none = read_election(&rules, &children(&rules, &nodes_[..1]));
    assert_eq!(none.verdict, Verdict::NotActive);
}

#[test]
fn the_registration_decides_and_not_the_head_of_the_queue() {
    let mut spec = spec(DialectType::ZkElection, None);
    spec.dialect.leader_path = Some("/leader".to_owned());
    let rules = rules(spec);
    let look = |registration| {
        let mut snapshot = queue(&[(1, 11, 7), (2, 12, 8)], None);
        if let Snapshot::Queue {
            registration: is, ..
        } = &mut snapshot
        {
            *is = Some(registration);
        }
        read_election(&rules, &snapshot)
    };
    let absent = Verdict::Unregistered { left_by: None };
    assert_eq!(look(Registration::Absent).verdict, absent);
    let candidacy = rules.registration("/leader", &stat(50, 8), b"host-2");
    let reading = look(Registration::Present(CandidateNode::from(candidacy)));
    assert_eq!(led_by(&reading), Some("/leader"));
    assert_eq!(
        reading.leader().unwrap().znode.candidacy().unwrap().session,
        8
    );
    assert_eq!(reading.anomalies, []);
    let hidden = look(Registration::Present(CandidateNode::Hidden));
    assert_eq!(led_by(&hidden), Some("/leader"));
    assert_eq!(hidden.anomalies, [Anomaly::Unreadable { count: 1 }]);
}

#[test]
fn a_registration_of_one_that_waits_in_the_queue_again_is_left_over() {
    let mut spec = spec(DialectType::CuratorLatch, None);
    spec.dialect.leader_path = Some("/connection_info".to_owned());
    let rules = rules(spec);
    let uuid = "_c_0d6b2a5a-9d4e-4a2c-9d5e-0a3d5c1b7f10-latch-";
    let names = [1, 2].map(|number| format!("{uuid}{number:010}"));
    let znodes = names
        .iter()
        .zip([(11, 7), (12, 8)])
        .map(|(name, (czxid, session))| {
            let candidacy = rules.candidacy(name, &stat(czxid, session), b"");
            (name.clone(), CandidateNode::from(candidacy))
        });
    let registered = |session| {
        let candidacy = rules.registration("/connection_info", &stat(10, session), b"host-8");
        let snapshot = Snapshot::Queue {
            children: names.to_vec(),
            znodes: znodes.clone().collect(),
            acknowledgement: None,
            registration: Some(Registration::Present(CandidateNode::from(candidacy))),
            zxid: 12,
        };
        read_election(&rules, &snapshot).verdict
    };
    let left_by = Some("host-8".to_owned());
    assert_eq!(registered(8), Verdict::Unregistered { left_by });
    // The first in the queue, a session without a candidate, and a node that outlives sessions.
    for session in [7, 9, 0] {
        assert!(
            matches!(registered(session), Verdict::Leader(_)),
            "{session}"
        );
    }
}

proptest! {
    #[test]
    fn no_snapshot_makes_it_panic(
        children in prop::collection::vec("([a-z_]{0,3}|n_|leader|V_|ballot|x-1-)-?[0-9]{0,11}", 0..12),
        stats in prop::collection::vec(any::<(i64, i64, i64)>(), 12),
        data in prop::collection::vec(any::<u8>(), 0..40),
        owner in any::<i64>(),
        registered in any::<bool>(),
    ) {
        let any = |order, leader_rule| custom(CustomOptions {
            child_pattern: Some("(?P<label>[a-z_]*)(?P<seq>-?[0-9]+)".to_owned()),
            order,
            leader_rule,
            data_pointer: Some("/elected".to_owned()),
        });
        let plain = DialectType::ALL.into_iter().filter(|type_| *type_ != DialectType::Custom);
        let all = plain
            .map(|type_| rules(spec(type_, Some("leader_ack"))))
            .chain([
                any(CandidateOrder::Numeric, LeaderRule::First),
                any(CandidateOrder::Lexical, LeaderRule::DataPointer),
                any(CandidateOrder::CreationZxid, LeaderRule::First),
            ]);
        for mut rules in all {
            rules.detect(&children);
            let znodes = children.iter().zip(&stats).map(|(child, (czxid, session, ctime))| {
                let (czxid, ctime, ephemeral_owner) = (*czxid, *ctime, *session);
                let stat = NodeStat { czxid, ctime, ephemeral_owner, ..NodeStat::default() };
                (child.clone(), CandidateNode::from(rules.candidacy(child, &stat, &data)))
            });
            let candidacy = rules.registration("/a/b", &NodeStat::default(), &data);
            let snapshot = Snapshot::Queue {
                children: children.clone(),
                znodes: znodes.collect(),
                acknowledgement: Some(Acknowledgement::Present { owner }),
                registration: registered.then_some(Registration::Present(CandidateNode::from(candidacy))),
                zxid: 1,
            };
            let reading = read_election(&rules, &snapshot);
            prop_assert_eq!(reading.candidate_count + reading.unmatched, children.len());
            prop_assert!(reading.candidates.len() <= 3);
        }
    }
}
