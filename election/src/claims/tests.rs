use bellwether_api::election::{LeaderElectionStatus, Projections};
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::projection::tests::subject;

fn led_by(identity: Option<&str>, token: &str) -> Subject {
    let leader = identity.map(|identity| Leader {
        identity: identity.to_owned(),
        node: "n".to_owned(),
        fencing_token: Some(token.to_owned()),
        ..Leader::default()
    });
    let status = LeaderElectionStatus {
        leader,
        ..LeaderElectionStatus::default()
    };
    subject(Projections::default(), status)
}

fn pod(name: &str) -> PodFacts {
    PodFacts {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        ips: vec!["10.0.0.1".parse().unwrap()],
        ready: true,
        began: Some(Timestamp::UNIX_EPOCH),
        ..PodFacts::default()
    }
}

fn pods(all: &[PodFacts]) -> Pods {
    let mut pods = Pods::new("shop");
    for pod in all {
        pods.insert(pod.clone());
    }
    pods
}

fn answers(all: &[(&str, Answer)]) -> Vec<(String, Answer)> {
    let of = |(name, answer): &(&str, Answer)| (format!("uid-of-{name}"), answer.clone());
    all.iter().map(of).collect()
}

fn is(name: &str) -> Option<Binding> {
    Some(Binding::Pod(name.to_owned()))
}

/// The condition after these answers, as often.
fn told(
    subject: &Subject,
    binding: Option<Binding>,
    said: &[(&str, Answer)],
    times: usize,
) -> (&'static str, String) {
    let mut claims = Claims::default();
    claims.follow(subject);
    for _ in 0..times {
        claims.hear(&term(subject), &answers(said));
    }
    let all = pods(&[pod("a"), pod("b")]);
    let before = |uid: &str| (uid == "uid-of-a").then(|| "7".to_owned());
    let told = claims.told(subject, binding.as_ref(), &all, before);
    (told.reason, told.message)
}

#[test]
fn a_pod_that_claims_the_lead_of_another_is_told_at_its_second_answer() {
    let subject = led_by(Some("b"), "9");
    let both = [("a", Answer::Leads), ("b", Answer::Leads)];
    assert_eq!(told(&subject, is("b"), &both, 1).0, "NobodyElse");
    let (reason, what) = told(&subject, is("b"), &both, 2);
    assert_eq!(reason, "RivalLeader");
    for words in [
        "b leads by its znode",
        "token 9",
        "a says that it leads",
        "token 7",
    ] {
        assert!(what.contains(words), "{what}");
    }
    let one = [("a", Answer::Follows), ("b", Answer::Leads)];
    assert_eq!(told(&subject, is("b"), &one, 5).0, "NobodyElse");
    // The leader's own pod has not begun to lead.
    let none = [("a", Answer::Follows), ("b", Answer::Follows)];
    assert_eq!(told(&subject, is("b"), &none, 5).0, "NobodyElse");
}

#[test]
fn one_that_claims_the_lead_of_nobody_is_told_as_well() {
    let nobody = led_by(None, "");
    let one = [("a", Answer::Leads), ("b", Answer::Follows)];
    let (reason, what) = told(&nobody, None, &one, 2);
    assert_eq!(reason, "RivalLeader");
    assert!(what.contains("Nobody leads by the znodes"), "{what}");
}

#[test]
fn where_the_leaders_pod_is_not_known_one_claim_says_nothing_and_two_do() {
    let subject = led_by(Some("somebody"), "9");
    let one = [("a", Answer::Leads), ("b", Answer::Follows)];
    assert_eq!(
        told(&subject, Some(Binding::NotFound), &one, 5).0,
        "NoAnswer"
    );
    let both = [("a", Answer::Leads), ("b", Answer::Leads)];
    assert_eq!(
        told(&subject, Some(Binding::NotFound), &both, 2).0,
        "RivalLeader"
    );
}

#[test]
fn answers_count_under_the_leader_under_which_they_were_asked_for() {
    let (first, second) = (led_by(Some("a"), "7"), led_by(Some("b"), "9"));
    let mut claims = Claims::default();
    assert!(claims.follow(&first));
    assert!(!claims.follow(&first));
    claims.hear(&term(&first), &answers(&[("a", Answer::Leads)]));
    assert!(claims.follow(&second));
    // It was asked before the leader changed, and answers late.
    claims.hear(&term(&first), &answers(&[("a", Answer::Leads)]));
    claims.hear(
        &term(&second),
        &answers(&[("a", Answer::Leads), ("b", Answer::Leads)]),
    );
    let all = pods(&[pod("a"), pod("b")]);
    let reason = |claims: &Claims| {
        claims
            .told(&second, is("b").as_ref(), &all, |_| None)
            .reason
    };
    assert_eq!(reason(&claims), "NobodyElse");
    assert!(claims.is_doubtful(all.get("b")));
    // Once it says otherwise, it begins anew.
    claims.hear(
        &term(&second),
        &answers(&[("a", Answer::Follows), ("b", Answer::Leads)]),
    );
    claims.hear(
        &term(&second),
        &answers(&[("a", Answer::Leads), ("b", Answer::Leads)]),
    );
    assert_eq!(reason(&claims), "NobodyElse");
    claims.hear(
        &term(&second),
        &answers(&[("a", Answer::Leads), ("b", Answer::Leads)]),
    );
    assert_eq!(reason(&claims), "RivalLeader");
}

#[test]
fn a_pod_that_does_not_answer_is_told_unless_it_need_not() {
    let subject = led_by(Some("b"), "9");
    let silent = [("a", Answer::Silent), ("b", Answer::Leads)];
    let (reason, what) = told(&subject, is("b"), &silent, 3);
    assert_eq!(reason, "NoAnswer");
    assert!(what.contains(": a."), "{what}");
    let mut claims = Claims::default();
    claims.follow(&subject);
    claims.hear(&term(&subject), &answers(&[("b", Answer::Leads)]));
    for spared in [
        PodFacts {
            ready: false,
            ..pod("a")
        },
        PodFacts {
            terminating: true,
            ..pod("a")
        },
        PodFacts {
            is_on_node_network: true,
            ..pod("a")
        },
    ] {
        let all = pods(&[spared, pod("b")]);
        let told = claims.told(&subject, is("b").as_ref(), &all, |_| None);
        assert_eq!(told.reason, "NobodyElse");
    }
}

#[test]
fn nothing_is_told_of_a_leader_that_is_not_seen() {
    let mut subject = led_by(Some("b"), "9");
    subject.is_confirmed = false;
    let both = [("a", Answer::Leads), ("b", Answer::Leads)];
    assert_eq!(told(&subject, is("b"), &both, 3).0, "NotObserved");
}

#[test]
fn pods_that_run_are_asked_and_no_nodes() {
    let check = json!({"http": {"port": 8080, "path": "/leads"}});
    let check: LeadershipCheck = serde_json::from_value(check).unwrap();
    let waits = PodFacts {
        began: None,
        ..pod("waits")
    };
    let on_node = PodFacts {
        is_on_node_network: true,
        ..pod("on-node")
    };
    let found = asked(&check, &pods(&[pod("a"), waits, on_node]));
    let expected = Asked {
        uid: "uid-of-a".to_owned(),
        address: "10.0.0.1:8080".parse().unwrap(),
    };
    assert_eq!(found, [expected]);
    let many: Vec<PodFacts> = (0..100).map(|i| pod(&format!("p-{i}"))).collect();
    assert_eq!(asked(&check, &pods(&many)).len(), MAX_PODS);
}
