use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::projection::PodFacts;

const TIMEOUT: Duration = Duration::from_secs(30);

fn asked(token: &str, first: u64, last: u64, agreed: bool) -> Asked {
    Asked {
        token: token.to_owned(),
        first: Duration::from_secs(first),
        last: Duration::from_secs(last),
        answer: Some(agreed.then_some(()).ok_or_else(|| "no answer".to_owned())),
    }
}

fn unanswered(token: &str, seconds: u64) -> Asked {
    Asked {
        answer: None,
        ..asked(token, seconds, seconds, true)
    }
}

fn subject(annotation: Option<&str>, token: Value) -> Subject {
    let annotations = annotation.map(|token| json!({ HANDOVER: token }));
    let object: LeaderElection = serde_json::from_value(json!({
        "metadata": { "name": "app", "annotations": annotations },
        "spec": {
            "ensembleRef": { "name": "main" }, "path": "/e", "dialect": { "type": "Kazoo" },
            "handover": { "http": { "port": 8080, "path": "/resign" } },
        },
        "status": {
            "leader": { "identity": "a", "node": "n", "fencingToken": token, "identitySource": "Data" },
        },
    }))
    .unwrap();
    Subject {
        status: Arc::new(object.status.clone().unwrap()),
        object: Arc::new(object),
        owned: None,
        is_confirmed: true,
        is_outlived: false,
    }
}

#[test]
fn a_leader_is_asked_once_if_it_agrees_and_every_few_seconds_if_it_does_not() {
    for (before, expected) in [
        (None, Next::Ask),
        // It was another term that was asked.
        (Some(asked("6", 3, 3, true)), Next::Ask),
        (Some(asked("7", 3, 3, true)), Next::Wait),
        (Some(asked("7", 29, 29, true)), Next::Wait),
        (Some(asked("7", 30, 30, true)), Next::GiveUp),
        (Some(unanswered("7", 6)), Next::Wait),
        (Some(asked("7", 3, 3, false)), Next::Wait),
        (Some(asked("7", 6, 5, false)), Next::Ask),
        (Some(asked("7", 30, 5, false)), Next::GiveUp),
    ] {
        assert_eq!(next("7", before.as_ref(), TIMEOUT), expected, "{before:?}");
    }
}

#[test]
fn a_request_is_for_one_term() {
    let token = |token: &str| json!(token);
    assert_eq!(request(&subject(None, token("7"))), None);
    let open = Request::Open("7".to_owned());
    assert_eq!(request(&subject(Some("7"), token("7"))), Some(open));
    assert_eq!(
        request(&subject(Some("7"), token("9"))),
        Some(Request::Done)
    );
    // Written in another way, it is the same number.
    let padded = Request::Open("7".to_owned());
    assert_eq!(request(&subject(Some("+07"), token("7"))), Some(padded));
    let mut nobody = subject(Some("7"), token("7"));
    Arc::make_mut(&mut nobody.status).leader = None;
    assert_eq!(request(&nobody), Some(Request::Done));
    let mut blind = subject(Some("7"), token("7"));
    blind.is_confirmed = false;
    assert_eq!(request(&blind), Some(Request::Blind));
    for (annotation, leads, words) in [
        ("now", token("7"), "no fencing token"),
        ("9", token("7"), "a smaller one"),
        ("7", Value::Null, "has no fencing token"),
    ] {
        match request(&subject(Some(annotation), leads)) {
            Some(Request::Unusable(why)) => assert!(why.contains(words), "{why}"),
            other => panic!("{annotation}: {other:?}"),
        }
    }
}

#[test]
fn a_leader_on_a_cordoned_node_is_asked_if_another_candidate_has_a_better_place() {
    let all = |nodes: &[&str]| nodes.iter().map(|node| (*node).to_owned()).collect();
    let pods = |others: &[&str]| CandidatePods {
        pod: Some(PodFacts {
            uid: "uid".to_owned(),
            node: Some("n1".to_owned()),
            ..PodFacts::default()
        }),
        nodes: all(others),
        ..CandidatePods::nobody()
    };
    let with = |on_cordon: bool| {
        let mut subject = subject(None, json!("7"));
        let object = Arc::make_mut(&mut subject.object);
        object.spec.handover.as_mut().unwrap().on_cordon = on_cordon;
        subject
    };
    let asked = Cordoned {
        token: "7".to_owned(),
        pod: "uid".to_owned(),
        node: "n1".to_owned(),
    };
    let due = |others: &[&str], nodes: &[&str]| cordoned(&with(true), &pods(others), &all(nodes));
    assert_eq!(due(&["n2"], &["n1"]), Some(asked.clone()));
    assert_eq!(due(&["n1", "n2", "n3"], &["n1", "n2"]), Some(asked));
    // Its node is in use; the others are no better; there is no other.
    assert_eq!(due(&["n2"], &["n2"]), None);
    assert_eq!(due(&["n1", "n2"], &["n1", "n2"]), None);
    assert_eq!(due(&[], &["n1"]), None);
    assert_eq!(cordoned(&with(false), &pods(&["n2"]), &all(&["n1"])), None);
    let mut blind = with(true);
    blind.is_confirmed = false;
    assert_eq!(cordoned(&blind, &pods(&["n2"]), &all(&["n1"])), None);
}

#[test]
fn the_sentences_of_a_handover() {
    let open = || Request::Open("7".to_owned());
    let refused = |reason, what: &str| Some((reason, what.to_owned()));
    let cases = [
        (Request::Done, None, None),
        (Request::Blind, None, None),
        (
            Request::Unusable("The annotation is no token.".to_owned()),
            None,
            None,
        ),
        (open(), None, None),
        (open(), Some(asked("7", 3, 3, true)), None),
        (open(), Some(asked("7", 3, 3, false)), None),
        (open(), Some(asked("7", 30, 30, true)), None),
        (open(), Some(asked("7", 30, 5, false)), None),
        (
            open(),
            None,
            refused(
                Reason::HandoverNotAllowed,
                "Leaders may not be asked at port 8080 of their pods.",
            ),
        ),
    ];
    let sentences: Vec<String> = cases
        .into_iter()
        .map(|(request, asked, refusal)| {
            let told = told(&request, asked.as_ref(), TIMEOUT, refusal);
            format!("{:?} {}: {}", told.status, told.reason, told.message)
        })
        .collect();
    insta::assert_yaml_snapshot!(sentences);
}

proptest! {
    /// Whatever the annotation holds, at most the leader that it names is asked.
    #[test]
    fn no_other_leader_is_asked(annotation in "\\PC{0,20}|-?[0-9]{1,20}", leads in any::<i64>()) {
        let leads = leads.to_string();
        if let Some(Request::Open(token)) = request(&subject(Some(&annotation), json!(leads))) {
            prop_assert_eq!(&token, &leads);
            prop_assert_eq!(annotation.parse::<i64>().ok(), leads.parse().ok());
        }
    }
}
