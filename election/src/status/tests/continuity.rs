//! What stays of a status, and what does not, when the spec changes or a term is interrupted.

use bellwether_api::conditions::ConditionStatus;
use bellwether_api::election::{PodLabelsProjection, Projections};
use jiff::SignedDuration;

use super::*;
use crate::terms::Outlook;

/// An election whose dialect is left open, seen with these children.
fn open(children: &[&str]) -> (LeaderElectionSpec, Sight) {
    let mut spec = spec(None);
    spec.dialect = DialectType::Auto.into();
    let mut rules = rules(&spec);
    let names: Vec<String> = children.iter().map(|&name| name.to_owned()).collect();
    rules.detect(&names);
    let candidacy = |node: &String| {
        let stat = NodeStat {
            czxid: 4_294_967_297,
            ephemeral_owner: 7,
            ..NodeStat::default()
        };
        (
            node.clone(),
            CandidateNode::from(rules.candidacy(node, &stat, b"a")),
        )
    };
    let snapshot = Snapshot::Queue {
        znodes: names.iter().map(candidacy).collect(),
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
    // All candidates left and the spec changed: there are no names to detect the dialect by.
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

/// An election whose leader's pod is labelled.
fn labelling() -> LeaderElectionSpec {
    let mut spec = spec(None);
    spec.projections = Some(Box::new(Projections {
        pod_labels: Some(PodLabelsProjection::default()),
        ..Projections::default()
    }));
    spec
}

#[test]
fn what_became_of_the_projections_of_another_generation_is_not_told_of_this_one() {
    let spec = labelling();
    let seen = queue(&spec, &[("a", 1)], &[]);
    let projected = Projection {
        outlook: None,
        last: None,
        conditions: vec![words::condition(
            ConditionType::Projected,
            ConditionStatus::True,
            Reason::UpToDate,
            "",
        )],
        node: Some("leader0000000001".to_owned()),
        token: Some("4294967297".to_owned()),
        pod: None,
    };
    let told = |generation, projection, old: Option<&LeaderElectionStatus>| {
        let new = status_and_done(&spec, Some(generation), &seen, done(projection), old, at(0));
        let ready = new.conditions.iter().find(|c| c.type_ == "Ready").unwrap();
        (ready.status.clone(), new)
    };
    let (ready, old) = told(1, Some(&projected), None);
    assert_eq!(ready, "True");
    // The same generation after a restart of the operator, and another one.
    assert_eq!(told(1, None, Some(&old)).0, "True");
    assert_eq!(told(2, None, Some(&old)).0, "False");
}

#[test]
fn projections_of_another_leader_are_not_told_of_this_one() {
    let spec = labelling();
    let projected = |leader: Option<&Leader>| Projection {
        outlook: None,
        last: None,
        node: leader.map(|leader| leader.node.clone()),
        token: leader.and_then(|leader| leader.fencing_token.clone()),
        pod: leader.map(|leader| format!("pod-of-{}", leader.identity)),
        conditions: [ConditionType::LeaderBound, ConditionType::Projected]
            .map(|type_| words::condition(type_, ConditionStatus::True, Reason::UpToDate, ""))
            .into(),
    };
    let told = |sight: &Sight, projection: Option<&Projection>, old: Option<&_>| {
        status_and_done(&spec, Some(1), sight, done(projection), old, at(0))
    };
    let words = |status: &LeaderElectionStatus| -> Vec<String> {
        let types = ["LeaderBound", "Projected", "Ready"];
        let found = types.map(|type_| status.conditions.iter().find(|c| c.type_ == type_).unwrap());
        let mut words: Vec<_> = found.map(|c| format!("{}/{}", c.status, c.reason)).into();
        words.extend(status.leader.as_ref().and_then(|leader| leader.pod.clone()));
        words
    };
    let following = ["Unknown/Following", "False/Following", "False/NotProjected"];
    let of = |pod: &str| {
        let told = ["True/UpToDate", "True/UpToDate", "True/Current", pod];
        told.map(str::to_owned).to_vec()
    };
    let (a, b) = (
        queue(&spec, &[("a", 1)], &[]),
        queue(&spec, &[("b", 2)], &[]),
    );
    let leads = told(&a, None, None);
    let of_a = projected(leads.leader.as_ref());
    let led = told(&a, Some(&of_a), Some(&leads));
    assert_eq!(words(&led), of("pod-of-a"));
    // The projector, or the operator that was started again, does not know of b yet.
    for projection in [Some(&of_a), None] {
        assert_eq!(words(&told(&b, projection, Some(&led))), following);
        assert_eq!(
            words(&told(&missing(&spec), projection, Some(&led))),
            following
        );
    }
    let next = told(&b, Some(&of_a), Some(&led));
    let of_b = projected(next.leader.as_ref());
    assert_eq!(words(&told(&b, Some(&of_b), Some(&next))), of("pod-of-b"));
    // What failed for a is told until it is known whether it fails for b.
    let mut failed = of_a.clone();
    failed.conditions[1].status = ConditionStatus::False;
    let failing = told(&a, Some(&failed), Some(&led));
    assert_eq!(
        words(&told(&b, Some(&failed), Some(&failing)))[1],
        "False/UpToDate"
    );
    let gone = told(&missing(&spec), Some(&projected(None)), Some(&led));
    assert_eq!(
        words(&gone),
        ["True/UpToDate", "True/UpToDate", "True/Current"]
    );
}

#[test]
fn a_candidate_leads_since_its_turn_came_and_not_since_it_joined() {
    let spec = spec(None);
    let acquired = |status: &LeaderElectionStatus| {
        let time = status.leader.as_ref().unwrap().acquire_time.as_ref();
        time.unwrap().0
    };
    let both = queue(&spec, &[("a", 1), ("b", 2)], &[]);
    let b = queue(&spec, &[("b", 2)], &[]);
    // How long a has led is not known to one who looks for the first time.
    let first = status(&spec, Some(1), &both, None, at(500));
    assert_eq!(acquired(&first), at(0) + SignedDuration::from_millis(1));
    let second = status(&spec, Some(1), &b, Some(&first), at(600));
    assert_eq!(acquired(&second), at(600));
    let later = status(&spec, Some(1), &b, Some(&second), at(700));
    assert_eq!(acquired(&later), at(600));
    // While the mirror was blind the turn may have come at any time.
    let blind = status(
        &spec,
        Some(1),
        &blind(Reason::Disconnected, 650),
        Some(&first),
        at(652),
    );
    let seen = status(&spec, Some(1), &b, Some(&blind), at(700));
    assert_eq!(acquired(&seen), at(650));
    // A node that was made a moment ago, by a clock that is ahead.
    let c = queue(&spec, &[("c", 800_000)], &[]);
    let new = status(&spec, Some(1), &c, Some(&later), at(790));
    assert_eq!(acquired(&new), at(800));
}

/// A node of the leader that outlives sessions, as ZooKeeper reports it: created by one transaction, last
/// written by another.
fn lasting(spec: &LeaderElectionSpec, data: &str, czxid: i64, mzxid: i64) -> Sight {
    let rules = rules(spec);
    let stat = NodeStat {
        czxid,
        mzxid,
        pzxid: czxid,
        ctime: 1_800_000_000_000 + czxid,
        mtime: 1_800_000_000_000 + mzxid,
        ..NodeStat::default()
    };
    let snapshot = Snapshot::Node {
        candidacy: rules.candidacy("leader", &stat, data.as_bytes()),
        children: 0,
        zxid: stat.newest(),
    };
    Sight::Seen(Box::new(read_election(&rules, &snapshot)))
}

fn single(dialect: serde_json::Value) -> LeaderElectionSpec {
    let mut spec = spec(None);
    spec.dialect = serde_json::from_value(dialect).unwrap();
    spec
}

fn token(status: &LeaderElectionStatus) -> &str {
    let leader = status.leader.as_ref().unwrap();
    leader.fencing_token.as_deref().unwrap()
}

fn is_healthy(status: &LeaderElectionStatus) -> bool {
    let queue = status.conditions.iter().find(|c| c.type_ == "QueueHealthy");
    queue.unwrap().reason != "FencingTokenRegressed"
}

#[test]
fn the_token_of_a_lasting_node_grows_with_each_leader_that_writes_it() {
    let spec = single(serde_json::json!({"type": "SingleText"}));
    let base = 4_294_967_296;
    let seen = |data, mzxid| lasting(&spec, data, base, base + mzxid);
    let a = status(&spec, Some(1), &seen("a", 5), None, at(0));
    assert_eq!(token(&a), (base + 5).to_string());
    // A second write of the same leader belongs to the same term.
    let again = status(&spec, Some(1), &seen("a", 6), Some(&a), at(1));
    assert_eq!(again, a);
    let b = status(&spec, Some(1), &seen("b", 9), Some(&again), at(2));
    assert_eq!((token(&b), b.terms), ((base + 9).to_string().as_str(), 2));
    assert_eq!((b.leader_transitions, is_healthy(&b)), (1, true));
    let back = status(&spec, Some(1), &seen("a", 12), Some(&b), at(3));
    assert_eq!(
        (token(&back), back.terms),
        ((base + 12).to_string().as_str(), 3)
    );
    assert_eq!(back.history.len(), 3);
    // A node that was deleted and created by the same client between two reads is another term.
    let anew = status(
        &spec,
        Some(1),
        &lasting(&spec, "a", base + 20, base + 20),
        Some(&back),
        at(4),
    );
    assert_eq!(
        (token(&anew), anew.terms),
        ((base + 20).to_string().as_str(), 4)
    );
}

#[test]
fn a_lasting_registration_has_a_token_of_its_own_for_each_leader() {
    let mut spec = spec(None);
    spec.path = "/overseer_elect/election".to_owned();
    spec.dialect = DialectType::Solr.into();
    let rules = rules(&spec);
    let seen = |data: &str, mzxid| {
        let stat = NodeStat {
            czxid: 10,
            mzxid,
            ..NodeStat::default()
        };
        let candidacy = rules.registration("/overseer_elect/leader", &stat, data.as_bytes());
        let snapshot = Snapshot::Queue {
            children: Vec::new(),
            znodes: HashMap::new(),
            acknowledgement: None,
            registration: Some(Registration::Present(CandidateNode::from(candidacy))),
            zxid: mzxid,
        };
        Sight::Seen(Box::new(read_election(&rules, &snapshot)))
    };
    let a = status(&spec, Some(1), &seen(r#"{"id":"a"}"#, 10), None, at(0));
    let b = status(&spec, Some(1), &seen(r#"{"id":"b"}"#, 14), Some(&a), at(1));
    assert_eq!((token(&a), token(&b)), ("10", "14"));
    assert_eq!((b.terms, b.leader_transitions), (2, 1));
}

#[test]
fn two_leaders_with_one_token_are_never_silent() {
    let spec = single(serde_json::json!({"type": "SingleText"}));
    let a = status(&spec, Some(1), &lasting(&spec, "a", 7, 7), None, at(0));
    // Only a ZooKeeper that was restored from a backup may do this.
    let b = status(&spec, Some(1), &lasting(&spec, "b", 7, 7), Some(&a), at(1));
    let shared = LeaderElectionStatus {
        previous_leader: a.leader.as_ref().map(previous),
        ..b
    };
    assert!(regressed(&shared));
    assert!(!regressed(&a));
}

#[test]
fn a_lease_that_is_renewed_by_deleting_and_creating_goes_on() {
    let dialect = serde_json::json!({"type": "SingleJson",
        "json": {"pointers": ["/holder"], "expiry": "/end"}});
    let spec = single(dialect);
    let seen = |holder: &str, end: u32, zxid| {
        let data = format!(r#"{{"holder": "{holder}", "end": "2027-01-15T08:01:{end:02}"}}"#);
        lasting(&spec, &data, zxid, zxid)
    };
    let reading = |sight: &Sight| match sight {
        Sight::Seen(reading) => reading.clone(),
        Sight::Blind(_) => unreachable!(),
    };
    let a = status(&spec, Some(1), &seen("a", 10, 81), None, at(0));
    let renewed = status(&spec, Some(1), &seen("a", 20, 90), Some(&a), at(5));
    assert_eq!(renewed, a, "a renewal changes nothing that is told");
    let b = status(&spec, Some(1), &seen("b", 40, 99), Some(&renewed), at(9));
    assert_eq!((token(&b), b.terms, b.leader_transitions), ("99", 2, 1));
    // A leader that was reported as lost begins another term when it comes back.
    let gone = status(&spec, Some(1), &missing(&spec), Some(&renewed), at(9));
    let back = status(&spec, Some(1), &seen("a", 40, 99), Some(&gone), at(10));
    assert_eq!((token(&back), back.terms), ("99", 2));

    // A leader's node may be missing for a second, but not after the end of its term.
    let noon = at(60);
    let later = |ms| {
        noon.checked_add(jiff::SignedDuration::from_millis(ms))
            .unwrap()
    };
    let gone = reading(&missing(&spec));
    let mut tenure = crate::Tenure::default();
    assert_eq!(
        tenure.holds_back(&gone, noon),
        None,
        "nothing was seen before"
    );
    assert_eq!(tenure.holds_back(&reading(&seen("a", 10, 81)), noon), None);
    assert_eq!(tenure.holds_back(&gone, later(0)), Some(later(1000)));
    assert_eq!(tenure.holds_back(&gone, later(999)), Some(later(1000)));
    assert_eq!(tenure.holds_back(&gone, later(1000)), None);
    assert_eq!(tenure.holds_back(&reading(&seen("a", 1, 81)), noon), None);
    assert_eq!(tenure.holds_back(&gone, later(700)), Some(later(1000)));
    assert_eq!(tenure.holds_back(&gone, later(1001)), None);
    // A leader whose data sets no end of its term is not waited for.
    let plain = single(serde_json::json!({"type": "SingleText"}));
    assert_eq!(
        tenure.holds_back(&reading(&lasting(&plain, "a", 1, 1)), noon),
        None
    );
    assert_eq!(tenure.holds_back(&gone, later(1)), None);
}

#[test]
fn a_change_tells_what_ended_the_term_before() {
    let spec = spec(None);
    let sights = [
        queue(&spec, &[("a", 1), ("b", 2)], &[]),
        queue(&spec, &[("b", 2)], &[]),
        missing(&spec),
    ];
    let first = status(&spec, Some(1), &sights[0], None, at(0));
    let leader = first.leader.as_ref().unwrap();
    let outlook = Outlook {
        node: leader.node.clone(),
        token: leader.fencing_token.clone(),
        cause: Some(EndOfTerm::Evicted),
        has_ended: false,
    };
    let known = Projection {
        outlook: Some(outlook.clone()),
        ..Projection::default()
    };
    let next = |sight: &Sight, old: &LeaderElectionStatus, known: Option<&Projection>| {
        let next = status_and_done(&spec, Some(1), sight, done(known), Some(old), at(9));
        (next.history[0].cause, next)
    };
    let evicted = Some(EndOfTerm::Evicted);
    assert_eq!(next(&sights[0], &first, Some(&known)).0, None);
    let (cause, second) = next(&sights[1], &first, Some(&known));
    assert_eq!((cause, second.history.len()), (evicted, 2));
    let (cause, mut unexplained) = next(&sights[1], &first, None);
    assert_eq!(cause, None);
    // What is known of an earlier leader does not explain the end of a later one.
    let (cause, nobody) = next(&sights[2], &second, Some(&known));
    assert_eq!((cause, nobody.history.len()), (None, 3));
    let (cause, nobody) = next(&sights[2], &first, Some(&known));
    assert_eq!(cause, evicted);
    // Nobody's term ended when the next one began.
    assert_eq!(next(&sights[1], &nobody, Some(&known)).0, None);

    // It becomes known when the next one leads, or was thought to be something else.
    let late = Projection {
        last: Some(outlook),
        ..Projection::default()
    };
    for before in [None, Some(EndOfTerm::ReleasedOrExpired)] {
        unexplained.history[0].cause = before;
        let (cause, told) = next(&sights[1], &unexplained, Some(&late));
        assert_eq!((cause, told.history.len()), (evicted, 2));
        let leader = first.leader.as_ref().unwrap();
        let told = end_of_term(&told, &leader.node, leader.fencing_token.as_deref());
        assert_eq!(told, evicted);
    }
}
