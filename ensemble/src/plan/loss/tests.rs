//! What counts as a loss, which token identifies it, and which members may vote after it is accepted.
#![allow(clippy::unwrap_used, reason = "a test may")]

use super::*;
use crate::observation::ServerReport;
use crate::plan::example::{Running, ago, away, first, looks, serves, volumes};

/// Five members that look for a leader. Those of these ordinals have an empty disk; the others served last
/// in an epoch that is their ordinal.
fn empty(ordinals: &[u16]) -> Running {
    let mut running = Running::new(5, 0);
    for ordinal in 0..5u16 {
        let has = !ordinals.contains(&ordinal);
        let pod = running.voter(usize::from(ordinal));
        looks(pod, 10);
        pod.volumes = Some(volumes(has, has.then_some(u64::from(ordinal))));
    }
    running
}

fn permission(running: &mut Running) -> &mut BootstrapPermission {
    running.observation.bootstrap.get_or_insert_default()
}

/// The reason and the message of the trouble.
fn trouble(running: &Running) -> Option<(Reason, String)> {
    running.report().trouble().map(|t| (t.reason, t.message))
}

fn is_lost(running: &Running) -> bool {
    trouble(running).is_some_and(|(reason, _)| reason == Reason::DisksLost)
}

/// The token in the message.
fn token_of(running: &Running) -> String {
    let (_, message) = trouble(running).unwrap();
    let (_, rest) = message.split_once("accept-data-loss=").unwrap();
    rest.split('.').next().unwrap().to_owned()
}

/// The loss is accepted: once with the annotation, then on record.
fn accepted(ordinals: &[u16]) -> Running {
    let mut running = empty(ordinals);
    let token = token_of(&running);
    running.ensemble.accept_data_loss = Some(AcceptRequest { token, by: None });
    let plan = running.plan();
    permission(&mut running).acceptance = plan.accepted;
    running.ensemble.accept_data_loss = None;
    running
}

/// The members that may start empty and vote.
fn permitted(running: &Running) -> String {
    let plan = running.plan();
    let all = plan.objects.iter();
    let object = all.into_iter().find(|o| o.name == "zk-bootstrap").unwrap();
    object.body["data"]["initialize"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

type Change = fn(&mut Running);

#[test]
fn a_majority_is_lost_when_too_few_of_the_others_are_left() {
    assert!(!is_lost(&empty(&[])));
    assert!(!is_lost(&empty(&[1, 2])));
    assert!(is_lost(&empty(&[1, 2, 3])));
    // Each of these leaves no judgement, or none yet.
    let changes: [Change; 5] = [
        |r| {
            serves(
                r.voter(0),
                bellwether_api::ensemble::MemberRole::Follower,
                1,
            )
        },
        |r| r.voter(1).volumes = None,
        |r| {
            r.template(4, None);
        },
        |r| r.set().template.as_mut().unwrap().initialize = Some(ServerId(2)),
        |r| permission(r).initialize = Some(first(5)),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut running = empty(&[1, 2, 3]);
        change(&mut running);
        assert!(!is_lost(&running), "{number}");
    }
}

#[test]
fn a_loss_says_what_is_gone_what_is_left_and_what_to_do() {
    let mut running = empty(&[1, 2, 3]);
    permission(&mut running).epochs = [(ServerId(2), 4)].into();
    let token = token_of(&running);
    assert!(token.starts_with("2-3-4-"), "{token}");
    let message = format!(
        "No leader can be elected: the disks of zk-1, zk-2, zk-3 are empty, and an empty member does not \
         vote. zk-0 (epoch 0), zk-4 (epoch 4) still have theirs; 3 of 5 are needed. Writes that only the \
         empty members had acknowledged are gone with their disks. Nothing is decided without a person: \
         bring the lost volumes back, or accept the loss: kubectl annotate zke zk \
         zookeeper.bellwether.dev/accept-data-loss={token}. Then zk-1 starts empty and votes."
    );
    assert_eq!(trouble(&running), Some((Reason::DisksLost, message)));
    permission(&mut running).epochs = [(ServerId(2), 5)].into();
    let (_, message) = trouble(&running).unwrap();
    assert!(
        message.contains("Members served in epoch 5, of which nothing is left."),
        "{message}"
    );
    let (_, message) = trouble(&empty(&[0, 1, 2, 3, 4])).unwrap();
    assert!(
        message.contains("No other member has data; 3 of 5"),
        "{message}"
    );
    assert!(
        message.ends_with("Then zk-0, zk-1, zk-2 start empty and vote."),
        "{message}"
    );
}

#[test]
fn a_token_names_one_loss_and_no_other() {
    let token = token_of(&empty(&[1, 2, 3]));
    let changes: [Change; 5] = [
        |r| r.ensemble.uid = "another".to_owned(),
        |r| r.observation.claims[1].uid = "another".to_owned(),
        |r| r.voter(4).volumes = Some(volumes(true, Some(9))),
        |r| r.voter(0).volumes = Some(volumes(false, None)),
        |r| {
            permission(r).acceptance = Some(Acceptance {
                token: "2-3-4-before".to_owned(),
                at: ago(1000),
                by: None,
                members: first(1),
                lost: first(1),
                over: true,
            });
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut running = empty(&[1, 2, 3]);
        change(&mut running);
        assert_ne!(token_of(&running), token, "{number}");
    }
    // Changes that do not belong to the loss leave its token as it is.
    let mut same = empty(&[1, 2, 3]);
    same.observation.claims[0].uid = "another".to_owned();
    same.observation.now += jiff::SignedDuration::from_secs(9);
    assert_eq!(token_of(&same), token);
}

#[test]
fn an_annotation_accepts_only_the_loss_that_it_names() {
    let mut running = empty(&[1, 2, 3]);
    let token = token_of(&running);
    let ask = |running: &mut Running, token: &str| {
        let by = Some("kubectl-annotate".to_owned());
        let token = token.to_owned();
        running.ensemble.accept_data_loss = Some(AcceptRequest { token, by });
    };
    ask(&mut running, "2-3-4-other");
    let plan = running.plan();
    assert_eq!(plan.accepted, None);
    let wrong = "says \"2-3-4-other\", which accepts nothing of this.";
    assert!(
        plan.report.message.ends_with(wrong),
        "{}",
        plan.report.message
    );
    ask(&mut running, &token);
    let expected = Acceptance {
        token: token.clone(),
        at: running.observation.now,
        by: Some("kubectl-annotate".to_owned()),
        members: Voters::from_iter([ServerId(2)]),
        lost: [2, 3, 4].map(ServerId).into_iter().collect(),
        over: false,
    };
    assert_eq!(running.plan().accepted, Some(expected));
    assert_eq!(permitted(&running), "2");
    assert_eq!(
        running.report().phase,
        bellwether_api::ensemble::Phase::Recovering
    );
    let (reason, message) = trouble(&running).unwrap();
    assert_eq!(reason, Reason::DataLossAccepted);
    let expected = format!(
        "The loss of the disks of zk-1, zk-2, zk-3 was accepted at 1970-01-02T03:46:40Z through \
         kubectl-annotate with the token {token}. zk-1 starts empty and votes; the newest of zk-0 \
         (epoch 0), zk-4 (epoch 4) is to lead."
    );
    assert_eq!(message, expected);
    // While a member does not say what is on its disk, it is too early.
    running.voter(4).volumes = None;
    let plan = running.plan();
    assert_eq!(plan.accepted, None);
    let wait = "or wait: the loss can be accepted when zk-4 reports what is on its disk.";
    assert!(
        plan.report.message.contains(wait),
        "{}",
        plan.report.message
    );
}

#[test]
fn an_accepted_loss_stays_on_record_and_is_accepted_once() {
    let running = accepted(&[1, 2, 3]);
    let plan = running.plan();
    assert_eq!(plan.accepted, None);
    assert!(plan.report.accepted.is_some());
    let (reason, _) = trouble(&running).unwrap();
    assert_eq!(reason, Reason::DataLossAccepted);
    // An acceptance ends when the ensemble serves, or no longer lacks a majority.
    let changes: [Change; 2] = [
        |r| {
            serves(
                r.voter(0),
                bellwether_api::ensemble::MemberRole::Follower,
                5,
            )
        },
        |r| {
            for ordinal in [1, 2, 3] {
                r.voter(ordinal).volumes = Some(volumes(true, Some(1)));
            }
            let acceptance = permission(r).acceptance.as_mut().unwrap();
            acceptance.members = Voters::default();
        },
    ];
    for change in changes {
        let mut running = accepted(&[1, 2, 3]);
        change(&mut running);
        assert!(running.report().accepted.unwrap().over);
        assert_eq!(permitted(&running), "");
    }
    // A second live list leaves it open.
    let mut unclear = accepted(&[1, 2, 3]);
    unclear.template(4, None);
    assert!(!unclear.report().accepted.unwrap().over);
}

#[test]
fn a_member_keeps_the_permission_until_its_database_is_made() {
    let cases: [(bool, Change); 6] = [
        (true, |_| {}),
        (false, |r| r.voter(1).volumes = Some(volumes(true, None))),
        // A running member that reports no volumes may serve without the operator seeing it.
        (false, |r| r.voter(1).volumes = None),
        (true, |r| {
            r.voter(1).volumes = None;
            r.voter(1).terminating = true;
        }),
        (true, |r| {
            r.voter(1).volumes = None;
            r.voter(1).state = PodState::Starting;
        }),
        (true, |r| {
            r.observation.pods.remove(1);
        }),
    ];
    for (number, (pending, change)) in cases.into_iter().enumerate() {
        let mut running = accepted(&[1, 2, 3]);
        change(&mut running);
        assert_eq!(permitted(&running) == "2", pending, "{number}");
    }
}

/// The permission is written; zk-1 waits since before.
fn told() -> Running {
    let mut running = accepted(&[1, 2, 3]);
    let permission = permission(&mut running);
    permission.initialize = Some(Voters::from_iter([ServerId(2)]));
    permission.until = Some(ago(-600));
    running
}

#[test]
fn an_empty_member_restarts_once_its_permission_is_written() {
    let running = told();
    let why = "its disk is empty, and the accepted loss lets it start with a vote";
    assert_eq!(
        running.restart(),
        Some(("zk-1".to_owned(), Expect::Idle, why.to_owned()))
    );
    let keep: [Change; 9] = [
        |r| permission(r).initialize = None,
        |r| permission(r).until = Some(ago(0)),
        |r| r.voter(1).volumes = Some(volumes(true, None)),
        |r| r.voter(1).state = PodState::Starting,
        |r| r.voter(1).ready = true,
        |r| r.voter(1).terminating = true,
        |r| away(r.voter(1), 10_000),
        // It started since then, and needs a moment.
        |r| {
            r.voter(1).created = ago(50);
            permission(r).acceptance.as_mut().unwrap().at = ago(51);
        },
        |r| r.voter(1).server = ServerReport::Unreachable(String::new()),
    ];
    for (number, change) in keep.into_iter().enumerate() {
        let mut running = told();
        change(&mut running);
        assert_eq!(running.restart(), None, "{number}");
    }
    for (created, accepted_at) in [(60, 61), (50, 50), (50, 49)] {
        let mut running = told();
        running.voter(1).created = ago(created);
        permission(&mut running).acceptance.as_mut().unwrap().at = ago(accepted_at);
        assert_eq!(
            running.restarts().as_deref(),
            Some("zk-1"),
            "{created} {accepted_at}"
        );
    }
}

#[test]
fn a_loss_that_grows_is_another_one_with_those_that_were_permitted_first() {
    for (over, permitted) in [(false, "1,5"), (true, "1,3")] {
        let mut running = accepted(&[2, 3, 4]);
        let acceptance = permission(&mut running).acceptance.as_mut().unwrap();
        acceptance.members = Voters::from_iter([ServerId(5)]);
        acceptance.over = over;
        running.voter(0).volumes = Some(volumes(false, None));
        assert!(is_lost(&running));
        let token = token_of(&running);
        running.ensemble.accept_data_loss = Some(AcceptRequest { token, by: None });
        let accepted = running.plan().accepted.unwrap();
        assert_eq!(accepted.members.to_string(), permitted, "{over}");
        assert_eq!(accepted.lost.to_string(), "1,3,4,5");
    }
}
