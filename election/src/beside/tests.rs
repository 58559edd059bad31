use std::sync::Arc;

use bellwether_api::LeaderElectionSpec;
use serde_json::json;

use super::*;
use crate::{NodeStat, Snapshot, read_election};

const PATH: &str = "/app/leader";

fn rules(dialect: serde_json::Value, max_candidates: i32) -> Rules {
    let spec = json!({
        "ensembleRef": { "name": "main" },
        "path": PATH,
        "dialect": dialect,
        "maxCandidates": max_candidates,
    });
    let spec: LeaderElectionSpec = serde_json::from_value(spec).unwrap();
    Rules::new(Arc::new(spec), None).unwrap()
}

fn with_members(max_candidates: i32) -> Rules {
    let dialect = json!({ "type": "SingleText", "membersPath": "/app/members" });
    rules(dialect, max_candidates)
}

fn stat(czxid: i64, session: i64) -> NodeStat {
    NodeStat {
        czxid,
        mzxid: czxid,
        pzxid: czxid,
        ephemeral_owner: session,
        ..NodeStat::default()
    }
}

fn led(rules: &Rules, identity: &str, session: i64) -> Reading {
    let snapshot = Snapshot::Node {
        candidacy: rules.candidacy("leader", &stat(100, session), identity.as_bytes()),
        children: 0,
        zxid: 100,
    };
    read_election(rules, &snapshot)
}

/// Members with their sessions, the first one the oldest.
fn others(rules: &Rules, znodes: &[(&str, i64)]) -> OtherCandidates {
    let read = |(czxid, (name, session)): (i64, &(&str, i64))| {
        let candidacy = rules.member(name, &stat(czxid, *session), b"");
        ((*name).to_owned(), CandidateNode::from(candidacy))
    };
    OtherCandidates {
        znodes: (1..).zip(znodes).map(read).collect(),
        count: znodes.len(),
        zxid: 120,
    }
}

fn nodes(reading: &Reading) -> Vec<&str> {
    reading
        .candidates
        .iter()
        .map(|candidate| candidate.node.as_str())
        .collect()
}

#[test]
fn the_leader_is_not_listed_twice() {
    let rules = with_members(50);
    // The leader is found by its name, although another session created that node.
    let mut reading = led(&rules, "b", 7);
    reading.add_others(&rules, others(&rules, &[("c", 3), ("b", 2), ("a", 1)]));
    assert_eq!(nodes(&reading), ["leader", "c", "a"]);
    assert_eq!(reading.candidate_count, 3);
    assert_eq!(reading.zxid, 120);
    // The leader is found by its session, although it has another name there.
    let mut reading = led(&rules, "10.0.0.1:80", 2);
    reading.add_others(&rules, others(&rules, &[("c", 3), ("b", 2), ("a", 1)]));
    assert_eq!(nodes(&reading), ["leader", "c", "a"]);
    assert_eq!(reading.candidate_count, 3);
}

#[test]
fn nodes_that_outlive_sessions_are_not_all_the_leader() {
    let rules = with_members(50);
    let mut reading = led(&rules, "x", 0);
    reading.add_others(&rules, others(&rules, &[("a", 0), ("b", 0)]));
    assert_eq!(nodes(&reading), ["leader", "a", "b"]);
    assert_eq!(reading.candidate_count, 3);
}

#[test]
fn a_member_of_the_leader_nodes_name_has_another_name() {
    let rules = with_members(50);
    let mut reading = led(&rules, "x", 1);
    reading.add_others(&rules, others(&rules, &[("leader", 2)]));
    assert_eq!(nodes(&reading), ["leader", "/app/members/leader"]);
}

#[test]
fn the_list_is_bounded_and_the_count_exact() {
    let rules = with_members(2);
    let mut reading = led(&rules, "x", 9);
    let mut many = others(&rules, &[("a", 1), ("b", 2), ("c", 3)]);
    many.count = 1000;
    reading.add_others(&rules, many);
    assert_eq!(nodes(&reading), ["leader", "a"]);
    assert_eq!(reading.candidate_count, 1001);
}

#[test]
fn members_stand_where_nobody_leads() {
    let rules = with_members(50);
    let mut reading = read_election(&rules, &Snapshot::Missing { zxid: 5 });
    reading.add_others(&rules, others(&rules, &[("a", 1), ("b", 2)]));
    assert_eq!(nodes(&reading), ["a", "b"]);
    assert_eq!(reading.candidate_count, 2);
    assert_eq!(reading.leader(), None);
}

#[test]
fn a_lease_counts_until_its_end_and_not_at_it() {
    let dialect = json!({
        "type": "SingleJson",
        "json": { "pointers": ["/holder"], "expiry": "/end" },
    });
    let rules = rules(dialect, 50);
    let end: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    let at = |text: &str| {
        let data = format!(r#"{{"holder": "a", "end": "{text}"}}"#);
        let candidacy = rules.candidacy("leader", &stat(100, 0), data.as_bytes());
        read_election(
            &rules,
            &Snapshot::Node {
                candidacy,
                children: 0,
                zxid: 100,
            },
        )
    };
    for text in [
        "2026-01-01T12:00:00",
        "2026-01-01T12:00:00Z",
        "2026-01-01T14:00:00+02:00",
        "2026-01-01 12:00:00.000",
    ] {
        let mut reading = at(text);
        assert_eq!(reading.expires(), Some(end), "{text}");
        assert!(reading.anomalies.is_empty(), "{:?}", reading.anomalies);
        reading.expire(end - jiff::SignedDuration::from_millis(1));
        assert!(reading.leader().is_some(), "{text}");
        reading.expire(end);
        assert_eq!(reading.verdict, Verdict::NotActive, "{text}");
    }
    // Without a valid time there is no leader.
    for text in ["", "soon", "1767268800"] {
        assert_eq!(at(text).verdict, Verdict::NotActive, "{text}");
    }
}

#[test]
fn the_number_of_the_term_is_the_leaders_alone() {
    let dialect = json!({
        "type": "SingleText", "membersPath": "/app/members", "epochPath": "/app/epoch",
    });
    let rules = rules(dialect, 50);
    let epoch = |data: &[u8]| rules.epoch(&stat(90, 0), data);
    let mut reading = led(&rules, "b", 7);
    reading.add_epoch(epoch(b" 17\n").as_deref(), 130);
    reading.add_others(&rules, others(&rules, &[("c", 3)]));
    let told =
        |candidate: &RankedCandidate| Some(candidate.znode.candidacy()?.identity.epoch.clone());
    let epochs: Vec<_> = reading.candidates.iter().map(told).collect();
    assert_eq!(epochs, [Some(Some("17".to_owned())), Some(None)]);
    assert_eq!(told(reading.leader().unwrap()), epochs[0]);
    assert_eq!(reading.zxid, 130);
    // An empty number, one that cannot be shown as it is, and an election without a leader.
    reading.add_epoch(epoch(b"").as_deref(), 131);
    assert_eq!(
        (told(reading.leader().unwrap()), reading.zxid),
        (epochs[0].clone(), 131)
    );
    let hostile = epoch(&[0xff; 5000]).unwrap();
    assert!(hostile.chars().count() <= crate::MAX_IDENTITY && hostile.is_ascii());
    let mut nobody = read_election(&rules, &Snapshot::Missing { zxid: 5 });
    nobody.add_epoch(Some("18"), 140);
    assert_eq!((nobody.leader(), nobody.zxid), (None, 140));
}

#[test]
fn members_that_the_acl_hides_are_told() {
    let rules = with_members(50);
    let mut others = others(&rules, &[("b", 7), ("c", 3)]);
    others.znodes.push(("d".to_owned(), CandidateNode::Hidden));
    others.count = 3;
    let mut reading = led(&rules, "b", 7);
    reading.add_others(&rules, others);
    assert_eq!(reading.anomalies, [Anomaly::Unreadable { count: 1 }]);
}

#[test]
fn the_leader_is_no_further_candidate_though_the_list_is_full() {
    let rules = with_members(2);
    let mut others = others(&rules, &[("a", 1), ("b", 2), ("z", 3)]);
    others.count = 60;
    let mut reading = led(&rules, "z", 9);
    reading.add_others(&rules, others);
    assert_eq!((reading.candidates.len(), reading.candidate_count), (2, 60));
}

#[test]
fn the_owner_of_hadoops_lock_leads_when_it_has_written_the_breadcrumb() {
    let rules = rules(json!({ "type": "HadoopElector" }), 50);
    let node = |identity: &str| {
        let mut data = vec![0x0a, 4];
        data.extend(b"hdfs");
        data.extend([0x12, u8::try_from(identity.len()).unwrap()]);
        data.extend(identity.as_bytes());
        data.extend([0x1a, 1, b'h', 0x20, 1, 0x28, 1]);
        data
    };
    let seen = |breadcrumb: Option<(&str, i64)>| {
        let snapshot = Snapshot::Node {
            candidacy: rules.candidacy("lock", &stat(100, 7), &node("nn1")),
            children: 0,
            zxid: 100,
        };
        let mut reading = read_election(&rules, &snapshot);
        let candidacy = breadcrumb.map(|(identity, mzxid)| {
            let written = NodeStat {
                mzxid,
                ..stat(40, 0)
            };
            rules.breadcrumb(&written, &node(identity))
        });
        reading.add_breadcrumb(candidacy, 120);
        reading.acknowledged
    };
    for (breadcrumb, active) in [
        (None, false),
        (Some(("nn0", 90)), false),
        (Some(("nn0", 110)), false),
        // From an earlier term, which ended without a clean exit.
        (Some(("nn1", 90)), false),
        (Some(("nn1", 110)), true),
    ] {
        assert_eq!(seen(breadcrumb), Some(active), "{breadcrumb:?}");
    }
    let mut nobody = read_election(&rules, &Snapshot::Missing { zxid: 5 });
    nobody.add_breadcrumb(None, 5);
    assert_eq!(nobody.acknowledged, None);
}
