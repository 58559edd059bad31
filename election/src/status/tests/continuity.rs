//! What stays of a status, and what does not, when the spec changes or a term is interrupted.

use bellwether_api::conditions::ConditionStatus;
use bellwether_api::election::{PodLabelsProjection, Projections};

use super::*;

/// An election whose dialect is left open, seen with these children.
fn open(children: &[&str]) -> (LeaderElectionSpec, Sight) {
    let mut spec = spec(None);
    spec.dialect = DialectType::Auto.into();
    let mut rules = rules(&spec);
    let names: Vec<String> = children.iter().map(|&name| name.to_owned()).collect();
    rules.detect(&names);
    let claim = |node: &String| {
        let stat = NodeStat {
            czxid: 4_294_967_297,
            ephemeral_owner: 7,
            ..NodeStat::default()
        };
        (node.clone(), Member::from(rules.claim(node, &stat, b"a")))
    };
    let snapshot = Snapshot::Queue {
        members: names.iter().map(claim).collect(),
        children: names.clone(),
        acknowledgement: None,
        registration: None,
        zxid: 4_294_967_297,
    };
    let sight = Sight::Seen(Box::new(read_election(&rules, &snapshot)));
    (spec, sight)
}

#[test]
fn a_dialect_that_is_not_detected_yet_is_not_another_one() {
    let (auto, seen) = open(&["n_0000000001"]);
    let old = status(&auto, Some(1), &seen, None, at(0));
    assert_eq!(old.terms, 1);
    // Everybody left, and the spec changed: nothing is there to detect the dialect by.
    let (auto, empty) = open(&[]);
    let new = status(&auto, Some(2), &empty, Some(&old), at(9));
    assert_eq!((new.terms, &new.dialect), (1, &None));
    assert_eq!(new.max_fencing_token, old.max_fencing_token);
    assert_eq!(new.previous_leader.unwrap().identity, "a");
}

#[test]
fn a_name_is_bounded_and_two_long_ones_stay_different() {
    let long = |end: &str| format!("{}{end}-n_0000000001", "x".repeat(300_000));
    let (auto, seen) = open(&[&long("a"), &long("b")]);
    let new = status(&auto, Some(1), &seen, None, at(0));
    assert_eq!(new.candidates.len(), 2);
    assert_ne!(new.candidates[0].node, new.candidates[1].node);
    assert_eq!(new.candidates[0].node, new.leader.clone().unwrap().node);
    assert!(serde_json::to_string(&new).unwrap().len() < 10_000);
}

#[test]
fn a_term_that_was_interrupted_has_the_leader_of_before() {
    let spec = spec(None);
    let alone = |client: &str, number| queue(&spec, &[(client, number)], &[]);
    let story = [
        ("b leads", alone("b", 1)),
        ("a leads", alone("a", 2)),
        ("nobody", queue(&spec, &[], &[])),
        ("a leads again by the same node", alone("a", 2)),
    ];
    let (_, last) = play(&spec, &story);
    assert_eq!(
        (last.terms, last.leader.unwrap().identity.as_str()),
        (2, "a")
    );
    assert_eq!(last.previous_leader.unwrap().identity, "b");
}

#[test]
fn what_became_of_the_projections_of_another_generation_is_not_told_of_this_one() {
    let mut spec = spec(None);
    spec.projections = Some(Box::new(Projections {
        pod_labels: Some(PodLabelsProjection::default()),
        ..Projections::default()
    }));
    let seen = queue(&spec, &[("a", 1)], &[]);
    let projected = Projection {
        conditions: vec![words::condition(
            ConditionType::Projected,
            ConditionStatus::True,
            Reason::UpToDate,
            "",
        )],
        ..Default::default()
    };
    let told = |generation, projection, old: Option<&LeaderElectionStatus>| {
        let new = status_and_projection(&spec, Some(generation), &seen, projection, old, at(0));
        let ready = new.conditions.iter().find(|c| c.type_ == "Ready").unwrap();
        (ready.status.clone(), new)
    };
    let (ready, old) = told(1, Some(&projected), None);
    assert_eq!(ready, "True");
    // The same generation after a restart of the operator, and another one.
    assert_eq!(told(1, None, Some(&old)).0, "True");
    assert_eq!(told(2, None, Some(&old)).0, "False");
}
