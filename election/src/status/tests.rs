//! Stories of elections, as the statuses that the mirror writes.

use std::collections::HashMap;
use std::sync::Arc;

use bellwether_api::election::{Dialect, DialectType, EnsembleRef, SequenceOptions, Transition};
use proptest::prelude::*;

use super::*;
use crate::reading::{
    Acknowledgement, CandidateNode, NodeStat, Registration, Snapshot, read_election,
};
use crate::rules::Rules;

mod continuity;
mod haste;

/// What is done is the outcome of projections.
fn done(projection: Option<&Projection>) -> Done<'_> {
    Done {
        projection,
        ..Done::default()
    }
}

fn spec(acknowledgement: Option<&str>) -> LeaderElectionSpec {
    LeaderElectionSpec {
        ensemble_ref: Some(EnsembleRef {
            name: "main".to_owned(),
            namespace: None,
        }),
        connection: None,
        authentication: None,
        path: "/zkroot".to_owned(),
        dialect: Dialect {
            type_: DialectType::Sequence,
            sequence: Some(SequenceOptions {
                prefix: "leader".to_owned(),
            }),
            acknowledgement: acknowledgement.map(str::to_owned),
            ..Dialect::default()
        },
        identity: None,
        handover: None,
        leadership_check: None,
        bridge: None,
        projections: None,
        pod_binding: None,
        max_candidates: 50,
        own_series: false,
    }
}

fn rules(spec: &LeaderElectionSpec) -> Rules {
    Rules::new(Arc::new(spec.clone()), None).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// A queue of (name of the client, number); number and zxid of creation go together, and the
/// session is the first letter of the name.
fn queue(spec: &LeaderElectionSpec, clients: &[(&str, i32)], strangers: &[&str]) -> Sight {
    queue_at(spec, clients, strangers, None, 0)
}

fn queue_at(
    spec: &LeaderElectionSpec,
    clients: &[(&str, i32)],
    strangers: &[&str],
    acknowledgement: Option<Acknowledgement>,
    zxid: i64,
) -> Sight {
    let rules = rules(spec);
    let mut children: Vec<String> = strangers.iter().map(|&name| name.to_owned()).collect();
    let mut znodes = HashMap::new();
    let mut newest = zxid;
    for (client, number) in clients {
        let node = format!("leader{number:010}");
        let czxid = 4_294_967_296 + i64::from(*number);
        let stat = NodeStat {
            czxid,
            ctime: 1_800_000_000_000 + i64::from(*number),
            ephemeral_owner: 0x1000_0000 + i64::from(client.as_bytes()[0]),
            ..NodeStat::default()
        };
        let candidacy = rules.candidacy(&node, &stat, client.as_bytes());
        znodes.insert(node.clone(), CandidateNode::from(candidacy));
        children.push(node);
        newest = newest.max(czxid);
    }
    let snapshot = Snapshot::Queue {
        children,
        znodes,
        acknowledgement,
        registration: None,
        zxid: newest,
    };
    Sight::Seen(Box::new(read_election(&rules, &snapshot)))
}

fn missing(spec: &LeaderElectionSpec) -> Sight {
    Sight::Seen(Box::new(read_election(
        &rules(spec),
        &Snapshot::Missing { zxid: 1 },
    )))
}

fn blind(reason: Reason, second: i64) -> Sight {
    let detail = "The ensemble main does not answer.".to_owned();
    Sight::Blind(Blindness {
        reason,
        detail,
        since: at(second),
    })
}

/// One line of what a status says.
fn line(status: &LeaderElectionStatus) -> String {
    let leader = status
        .leader
        .as_ref()
        .map_or("-", |leader| leader.identity.as_str());
    let waiting: Vec<_> = status
        .candidates
        .iter()
        .skip(1)
        .map(|candidate| candidate.identity.as_str())
        .collect();
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .map(|condition| {
            format!(
                "{}={}/{}",
                condition.type_, condition.status, condition.reason
            )
        })
        .collect();
    format!(
        "{leader} [{}] of {} transitions={} terms={} max={} stale={} | {}",
        waiting.join(" "),
        status.candidate_count,
        status.leader_transitions,
        status.terms,
        status
            .max_fencing_token
            .as_deref()
            .map_or("-".to_owned(), |max| {
                (max.parse::<i64>().unwrap() - 4_294_967_296).to_string()
            }),
        status.stale_since.as_ref().map_or("-".to_owned(), |since| {
            (since.0.as_second() - 1_800_000_000).to_string()
        }),
        conditions.join(" "),
    )
}

/// Plays a story, ten seconds a step, and returns one line for each status and the last status.
fn play(spec: &LeaderElectionSpec, story: &[(&str, Sight)]) -> (String, LeaderElectionStatus) {
    let mut lines = String::new();
    let mut old = None;
    for ((title, sight), step) in story.iter().zip(1..) {
        let new = status(spec, Some(1), sight, old.as_ref(), at(step * 10));
        let again = status(spec, Some(1), sight, Some(&new), at(step * 10 + 5));
        assert_eq!(
            again, new,
            "{title}: saying the same again must change nothing"
        );
        lines.push_str(&format!("{title}\n    {}\n", line(&new)));
        old = Some(new);
    }
    (lines, old.unwrap_or_default())
}

#[test]
fn the_story_of_a_fair_queue() {
    let spec = spec(None);
    let story = [
        ("nobody came yet", missing(&spec)),
        (
            "the parent exists, with unrelated children",
            queue(&spec, &[], &["config", "docs"]),
        ),
        ("only the parent", queue(&spec, &[], &[])),
        ("a leads", queue(&spec, &[("a", 0)], &["config"])),
        (
            "b and c wait",
            queue(&spec, &[("a", 0), ("b", 1), ("c", 2)], &["config"]),
        ),
        (
            "b dies in the middle",
            queue(&spec, &[("a", 0), ("c", 2)], &["config"]),
        ),
        ("a dies", queue(&spec, &[("c", 2)], &["config"])),
        ("c gives up", queue(&spec, &[], &["config"])),
        ("c comes back", queue(&spec, &[("c", 3)], &["config"])),
        ("the mirror loses sight", blind(Reason::Disconnected, 95)),
        ("and its session", blind(Reason::SessionExpired, 99)),
        ("c is still there", queue(&spec, &[("c", 3)], &["config"])),
        ("the parent is deleted", missing(&spec)),
    ];
    let (lines, _) = play(&spec, &story);
    insta::assert_snapshot!(lines);
}

#[test]
fn a_death_in_the_middle_changes_the_queue_and_nothing_about_the_leader() {
    let spec = spec(None);
    let full = queue(&spec, &[("a", 0), ("b", 1), ("c", 2)], &[]);
    let before = status(&spec, Some(1), &full, None, at(0));
    let without_b = queue(&spec, &[("a", 0), ("c", 2)], &[]);
    let after = status(&spec, Some(1), &without_b, Some(&before), at(60));
    assert_eq!(after.candidate_count, 2);
    assert_eq!(after.leader, before.leader);
    assert_eq!(after.previous_leader, before.previous_leader);
    assert_eq!((after.leader_transitions, after.terms), (0, 1));
    assert_eq!(after.last_transition_time, before.last_transition_time);
    assert_eq!(urgency(Some(&before), &after), Urgency::Queue);
}

#[test]
fn the_story_of_an_acknowledged_election() {
    let spec = spec(Some("leader_ack"));
    let seen = |clients: &[(&str, i32)], ack| queue_at(&spec, clients, &[], Some(ack), 0);
    let owned_by = |client: u8| Acknowledgement::Present {
        owner: 0x1000_0000 + i64::from(client),
    };
    let story = [
        (
            "a is elected",
            seen(&[("a", 0), ("b", 1)], Acknowledgement::Absent),
        ),
        (
            "a acknowledges",
            seen(&[("a", 0), ("b", 1)], owned_by(b'a')),
        ),
        (
            "a stepped down and left its acknowledgement",
            seen(&[("b", 1)], owned_by(b'a')),
        ),
        ("which goes", seen(&[("b", 1)], Acknowledgement::Absent)),
        ("b acknowledges", seen(&[("b", 1)], owned_by(b'b'))),
        ("nobody is left", seen(&[], Acknowledgement::Absent)),
    ];
    let (lines, last) = play(&spec, &story);
    insta::assert_snapshot!(lines);
    assert_eq!(last.leader, None);
}

#[test]
fn the_whole_status_of_a_queue() {
    let spec = spec(Some("/acks/leader"));
    let clients = [("alpha.example:80", 7), ("beta.example:80", 9)];
    let ack = Some(Acknowledgement::Present { owner: 0 });
    let (_, last) = play(
        &spec,
        &[("", queue_at(&spec, &clients, &["config"], ack, 0))],
    );
    insta::assert_snapshot!(serde_yaml::to_string(&last).unwrap());
}

#[test]
fn a_fencing_token_that_went_back_is_never_silent() {
    let spec = spec(None);
    let story = [
        ("a leads", queue(&spec, &[("a", 100)], &[])),
        (
            "the ensemble was restored from a backup",
            queue(&spec, &[("b", 7)], &[]),
        ),
        ("the mirror cannot see", blind(Reason::Disconnected, 25)),
        ("still smaller", queue(&spec, &[("b", 7)], &[])),
        ("as large again", queue(&spec, &[("c", 101)], &[])),
    ];
    let (lines, _) = play(&spec, &story);
    insta::assert_snapshot!(lines);
}

#[test]
fn the_same_client_with_a_new_node_is_a_new_term_but_no_transition() {
    let spec = spec(None);
    let story = [
        ("a leads", queue(&spec, &[("a", 1)], &[])),
        ("a leads with another node", queue(&spec, &[("a", 2)], &[])),
    ];
    let (_, last) = play(&spec, &story);
    assert_eq!((last.leader_transitions, last.terms), (0, 2));
}

#[test]
fn a_zxid_alone_is_not_worth_a_write() {
    let spec = spec(None);
    let old = status(&spec, Some(1), &queue(&spec, &[("a", 1)], &[]), None, at(0));
    let later = queue_at(&spec, &[("a", 1)], &[], None, 5_000_000_000);
    assert_eq!(status(&spec, Some(1), &later, Some(&old), at(50)), old);
}

#[test]
fn another_dialect_starts_counting_anew() {
    let spec = spec(None);
    let old = status(&spec, Some(1), &queue(&spec, &[("a", 1)], &[]), None, at(0));
    let mut other = spec;
    other.dialect = DialectType::ZkElection.into();
    let new = status(
        &other,
        Some(2),
        &queue(&other, &[], &["config"]),
        Some(&old),
        at(9),
    );
    assert_eq!((new.leader_transitions, new.terms), (0, 0));
    assert_eq!(
        (&new.max_fencing_token, &new.previous_leader),
        (&None, &None)
    );
    assert_eq!(new.observed_generation, Some(2));
}

#[test]
fn an_election_that_was_never_seen_says_so() {
    let (_, last) = play(&spec(None), &[("", blind(Reason::EnsembleNotFound, 1))]);
    assert_eq!(last.stale_since, Some(Time(at(1))));
    let synced = &last.conditions[0];
    assert_eq!(
        (synced.status.as_str(), synced.reason.as_str()),
        ("False", "EnsembleNotFound")
    );
    assert_eq!(last.conditions[1].status, "Unknown");
    assert_eq!(last.leader, None);
}

/// A queue of the given names, all written by one client each, in an election whose leader
/// registers itself.
fn registered(rules: &Rules, children: &[&str], registration: Option<(&str, i64)>) -> Sight {
    let stat = |czxid: i64, ephemeral_owner: i64| NodeStat {
        czxid,
        ephemeral_owner,
        ..NodeStat::default()
    };
    let candidacies = children.iter().zip(1..).map(|(child, number)| {
        let candidacy = rules.candidacy(child, &stat(number, number), b"");
        ((*child).to_owned(), CandidateNode::from(candidacy))
    });
    let registration = match registration {
        None => Registration::Absent,
        Some((data, czxid)) => {
            let stat = stat(czxid, 1);
            let candidacy = rules.registration("/overseer_elect/leader", &stat, data.as_bytes());
            Registration::Present(CandidateNode::from(candidacy))
        }
    };
    let snapshot = Snapshot::Queue {
        children: children.iter().map(|&child| child.to_owned()).collect(),
        znodes: candidacies.collect(),
        acknowledgement: None,
        registration: Some(registration),
        zxid: 100,
    };
    Sight::Seen(Box::new(read_election(rules, &snapshot)))
}

#[test]
fn the_story_of_a_leader_that_registers_itself() {
    let mut spec = spec(None);
    spec.path = "/overseer_elect/election".to_owned();
    spec.dialect = DialectType::Solr.into();
    let rules = rules(&spec);
    let (a, b) = (
        "72057-10.0.0.1:8983_solr-n_0000000004",
        "72058-10.0.0.2:8983_solr-n_0000000005",
    );
    let leader = |name: &str| format!(r#"{{"id":"{name}"}}"#);
    let base = 4_294_967_296;
    let story = [
        ("nobody came yet", registered(&rules, &[], None)),
        (
            "a is first, and runs its procedure",
            registered(&rules, &[a, b], None),
        ),
        (
            "a registers",
            registered(&rules, &[a, b], Some((&leader(a), base + 10))),
        ),
        (
            "b jumped the queue, a still leads",
            registered(
                &rules,
                &["72058-10.0.0.2:8983_solr-n_0000000004", a],
                Some((&leader(a), base + 10)),
            ),
        ),
        ("a is gone", registered(&rules, &[b], None)),
        (
            "b registers",
            registered(&rules, &[b], Some((&leader(b), base + 20))),
        ),
    ];
    let (lines, _) = play(&spec, &story);
    insta::assert_snapshot!(lines);
}

#[test]
fn a_detected_dialect_stays_when_everybody_left_and_while_the_mirror_is_blind() {
    let mut spec = spec(None);
    spec.dialect = DialectType::Auto.into();
    let mut rules = rules(&spec);
    let mut look = |children: &[&str]| {
        let children: Vec<String> = children.iter().map(|&child| child.to_owned()).collect();
        rules.detect(&children);
        let snapshot = Snapshot::Queue {
            children,
            znodes: HashMap::new(),
            acknowledgement: None,
            registration: None,
            zxid: 1,
        };
        Sight::Seen(Box::new(read_election(&rules, &snapshot)))
    };
    let story = [
        ("nobody came yet", look(&[])),
        (
            "of two dialects",
            look(&["n_0000000001", "V_0000000002", "x0000000003"]),
        ),
        ("of an unknown one", look(&["x0000000003"])),
        ("of one", look(&["n_0000000001", "config"])),
        ("nobody is left", look(&[])),
        ("others came", look(&["V_0000000002"])),
        ("the mirror cannot see", blind(Reason::Disconnected, 70)),
    ];
    let (lines, last) = play(&spec, &story);
    assert_eq!(last.dialect.as_deref(), Some("ZkElection"));
    insta::assert_snapshot!(lines);
}

#[test]
fn what_an_earlier_spec_named_does_not_pass_for_detected() {
    let spec = spec(None);
    let named = status(&spec, Some(1), &queue(&spec, &[("a", 1)], &[]), None, at(0));
    assert_eq!(named.dialect.as_deref(), Some("Sequence"));
    let mut open = spec;
    open.dialect = DialectType::Auto.into();
    let blind = blind(Reason::Disconnected, 1);
    let new = status(&open, Some(2), &blind, Some(&named), at(1));
    assert_eq!(new.dialect, None);
    assert_eq!(new.leader, named.leader);
}

#[test]
fn the_history_tells_who_led_since_when_the_newest_first() {
    let spec = spec(None);
    let mut story = vec![
        ("a leads", queue(&spec, &[("a", 1), ("b", 2)], &[])),
        ("a is away for a moment", blind(Reason::Disconnected, 15)),
        ("b leads", queue(&spec, &[("b", 2)], &[])),
        ("nobody leads", queue(&spec, &[], &[])),
        ("a leads again", queue(&spec, &[("a", 3)], &[])),
    ];
    let (_, last) = play(&spec, &story);
    let told = |status: &LeaderElectionStatus| -> Vec<(i64, Option<String>, Option<i64>)> {
        let since = |t: &Transition| t.time.0.as_second() - 1_800_000_000;
        let token = |t: &Transition| number(t.fencing_token.as_deref()).map(|n| n - 4_294_967_296);
        let of = |t: &Transition| (since(t), t.identity.clone(), token(t));
        status.history.iter().map(of).collect()
    };
    let (a, b) = (Some("a".to_owned()), Some("b".to_owned()));
    let expected = [
        (50, a.clone(), Some(3)),
        (40, None, None),
        (30, b, Some(2)),
        (10, a, Some(1)),
    ];
    assert_eq!(told(&last), expected);
    for number in 4..20 {
        story.push(("another one", queue(&spec, &[("c", number)], &[])));
    }
    let (_, last) = play(&spec, &story);
    assert_eq!(last.history.len(), history::LENGTH);
    assert_eq!(
        last.history[0].fencing_token,
        last.leader.unwrap().fencing_token
    );
}

proptest! {
    /// For anything that the mirror sees, in any order: counters only grow, the largest token never falls,
    /// and a smaller token is always reported.
    #[test]
    fn tokens_never_fall_in_silence(
        steps in prop::collection::vec(
            prop::option::of(prop::collection::btree_map(0_i32..20, 0_usize..3, 0..4)), 1..30,
        ),
    ) {
        let spec = spec(None);
        let mut old: Option<LeaderElectionStatus> = None;
        for (step, second) in steps.into_iter().zip(0..) {
            let sight = match &step {
                None => blind(Reason::Disconnected, second),
                Some(clients) => {
                    let clients: Vec<_> =
                        clients.iter().map(|(number, who)| (["a", "b", "c"][*who], *number)).collect();
                    queue(&spec, &clients, &[])
                }
            };
            let new = status(&spec, Some(1), &sight, old.as_ref(), at(second));
            if let Some(old) = &old {
                prop_assert!(new.terms >= old.terms);
                prop_assert!(new.leader_transitions >= old.leader_transitions);
                let max = |s: &LeaderElectionStatus| number(s.max_fencing_token.as_deref());
                prop_assert!(max(&new) >= max(old));
                if step.is_none() {
                    prop_assert_eq!(&new.leader, &old.leader);
                    prop_assert!(new.stale_since.is_some());
                }
                let head = new.history.first().and_then(|head| head.fencing_token.clone());
                prop_assert_eq!(head, new.leader.as_ref().and_then(|l| l.fencing_token.clone()));
                let ordered = new.history.is_sorted_by(|a, b| a.time.0 >= b.time.0);
                prop_assert!(ordered && new.history.len() <= history::LENGTH);
                let tokens = new.history.windows(2).all(|w| w[0].fencing_token != w[1].fencing_token);
                prop_assert!(tokens, "two entries of one term: {:?}", new.history);
                let fell = new.leader.is_some() && regressed(&new);
                let said = new.conditions[2].reason == "FencingTokenRegressed";
                prop_assert_eq!(step.is_some() && fell, said);
            }
            old = Some(new);
        }
    }
}

#[test]
fn what_became_of_projections_is_told_and_stands_until_it_is_known_anew() {
    let mut spec = spec(None);
    let projections = bellwether_api::election::Projections {
        pod_labels: Some(bellwether_api::election::PodLabelsProjection::default()),
        ..bellwether_api::election::Projections::default()
    };
    spec.projections = Some(Box::new(projections));
    let sight = queue(&spec, &[("a", 1)], &[]);
    let of = |node: &str| Projection {
        outlook: None,
        last: None,
        node: Some(node.to_owned()),
        token: Some("4294967297".to_owned()),
        pod: Some("pod-a".to_owned()),
        conditions: vec![words::condition(
            ConditionType::LeaderBound,
            bellwether_api::conditions::ConditionStatus::True,
            Reason::Bound,
            "",
        )],
    };
    let tell =
        |spec: &LeaderElectionSpec, sight, projection, old: Option<&LeaderElectionStatus>| {
            status_and_done(spec, Some(1), sight, done(projection), old, at(1))
        };
    let bound = |status: &LeaderElectionStatus| {
        let pod = status.leader.as_ref().and_then(|leader| leader.pod.clone());
        let types = status.conditions.iter();
        (pod, types.filter(|one| one.type_ == "LeaderBound").count())
    };
    let here = (Some("pod-a".to_owned()), 1);
    let of_a = of("leader0000000001");
    let told = tell(&spec, &sight, Some(&of_a), None);
    assert_eq!(bound(&told), here);
    // An operator that just started knows nothing yet, and writes nothing.
    assert_eq!(tell(&spec, &sight, None, Some(&told)), told);
    // The pod of one leader is not that of the next.
    let next = queue(&spec, &[("b", 2)], &[]);
    let of_a = of("leader0000000001");
    assert_eq!(
        bound(&tell(&spec, &next, Some(&of_a), Some(&told))),
        (None, 1)
    );
    assert_eq!(bound(&tell(&spec, &next, None, Some(&told))), (None, 1));
    // The same holds if both lead with a node of the same name.
    let same_node = Projection {
        token: Some("4294967290".to_owned()),
        ..of("leader0000000001")
    };
    let of_another = tell(&spec, &sight, Some(&same_node), Some(&told));
    assert_eq!(bound(&of_another), (None, 1));
    // Without projections the status reports nothing of them.
    spec.projections = None;
    assert_eq!(
        bound(&tell(&spec, &sight, Some(&of_a), Some(&told))),
        (None, 0)
    );
    assert_eq!(
        bound(&tell(
            &spec,
            &blind(Reason::Disconnected, 1),
            None,
            Some(&told)
        )),
        (None, 0)
    );
}

#[test]
fn a_bridge_is_told_and_stays_told_until_the_spec_changes() {
    let mut spec = spec(None);
    let blind = Sight::Blind(Blindness {
        reason: Reason::Disconnected,
        detail: "Gone.".to_owned(),
        since: at(0),
    });
    let bridged = crate::bridge::failed("ZooKeeper is away.");
    let told = |spec: &_, generation, bridged, old: Option<&LeaderElectionStatus>| {
        let done = Done {
            bridged,
            ..Done::default()
        };
        status_and_done(spec, Some(generation), &blind, done, old, at(1))
    };
    let reason = |status: &LeaderElectionStatus| {
        let mut all = status.conditions.iter();
        let found = all.find(|condition| condition.type_ == "Bridged");
        found.map(|condition| condition.reason.clone())
    };
    assert_eq!(reason(&told(&spec, 1, Some(&bridged), None)), None);
    spec.bridge =
        serde_json::from_value(serde_json::json!({ "lease": "app", "side": "ZooKeeper" })).unwrap();
    let first = told(&spec, 1, Some(&bridged), None);
    assert_eq!(reason(&first).as_deref(), Some("BridgeFailed"));
    assert_eq!(told(&spec, 1, None, Some(&first)), first);
    assert_eq!(reason(&told(&spec, 2, None, Some(&first))), None);
}
