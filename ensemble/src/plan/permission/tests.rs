//! Who may start with an empty disk and a vote, until when, and which epochs are on record.
#![allow(clippy::unwrap_used, reason = "a test may")]

use super::*;
use crate::desired::parse_bootstrap;
use crate::plan::example::{Running, ago, away, first, looks, runs, serves, silent, volumes};
use bellwether_api::ensemble::MemberRole;

type Edit = fn(&mut Running);

/// The permission as it is written now.
fn written(running: &Running) -> BootstrapPermission {
    let all = running.plan().objects;
    let object = all.into_iter().find(|o| o.name == "zk-bootstrap").unwrap();
    parse_bootstrap(|key| object.body["data"][key].as_str())
}

fn recorded(running: &mut Running) -> &mut BootstrapPermission {
    running.observation.bootstrap.get_or_insert_default()
}

/// Three members that start for the first time; the permission ends in so many seconds.
fn starting(left: i64) -> Running {
    let mut running = Running::new(3, 0);
    for ordinal in 0..3 {
        looks(running.voter(ordinal), 3);
    }
    recorded(&mut running).initialize = Some(first(3));
    recorded(&mut running).until = Some(ago(-left));
    running
}

#[test]
fn the_first_permission_ends_for_good_when_a_member_serves_or_it_expires() {
    assert_eq!(written(&starting(1)).initialize, Some(first(3)));
    let ends: [Edit; 4] = [
        |r| r.voter(0).ready = true,
        |r| serves(r.voter(0), MemberRole::Follower, 1),
        |r| recorded(r).until = Some(ago(0)),
        |r| recorded(r).until = None,
    ];
    for (number, edit) in ends.into_iter().enumerate() {
        let mut running = starting(1);
        edit(&mut running);
        let now = written(&running);
        assert_eq!((now.initialize, now.until), (None, None), "{number}");
    }
}

#[test]
fn a_permission_is_renewed_when_half_of_its_time_is_over_and_every_server_can_be_asked() {
    for (left, until) in [(299, 600), (300, 300), (600, 600)] {
        assert_eq!(written(&starting(left)).until, Some(ago(-until)), "{left}");
    }
    let mut running = starting(299);
    silent(running.voter(1), 1);
    assert_eq!(written(&running).until, Some(ago(-299)));
    // One that does not run yet is not silent.
    away(running.voter(1), 3);
    running.voter(1).state = crate::observation::PodState::Starting;
    assert_eq!(written(&running).until, Some(ago(-600)));
}

#[test]
fn the_newcomer_beside_one_member_may_start_empty_until_the_step_is_finished() {
    let two = || Some(Voters::from_iter([ServerId(2)]));
    let mut running = Running::stepping(1, 2, &[1]);
    looks(running.voter(1), 3);
    assert_eq!(written(&running).initialize, two());
    let new = running.set().template.clone().unwrap();
    runs(running.voter(0), &new);
    assert_eq!(written(&running).initialize, two());
    runs(running.voter(1), &new);
    serves(running.voter(1), MemberRole::Follower, 1);
    assert_eq!(written(&running).initialize, None);
    // Beside a larger list its empty vote could decide.
    running.voter(0).revision = Some(Running::new(3, 0).set().template.clone().unwrap());
    looks(running.voter(0), 3);
    assert_eq!(written(&running).initialize, None);
}

#[test]
fn the_highest_epoch_of_each_voter_that_serves_is_recorded() {
    let mut running = Running::new(3, 0);
    recorded(&mut running).epochs = [(ServerId(1), 7), (ServerId(2), 1), (ServerId(9), 3)].into();
    serves(running.voter(0), MemberRole::Follower, 5);
    serves(running.voter(1), MemberRole::Follower, 5);
    serves(running.voter(2), MemberRole::Leader, 5);
    running.voter(2).volumes = Some(volumes(true, Some(6)));
    // A recorded epoch never decreases, and a server that no list names has none.
    let epochs = [(ServerId(1), 7), (ServerId(2), 5), (ServerId(3), 6)];
    assert_eq!(written(&running).epochs, epochs.into());
    // A member that does not serve keeps its recorded epoch, whatever epoch its disk has.
    looks(running.voter(1), 3);
    running.voter(1).volumes = Some(volumes(true, Some(9)));
    assert_eq!(written(&running).epochs.get(&ServerId(2)), Some(&1));
    // Epoch 0, before the first transaction, is not recorded.
    let mut new = Running::new(3, 0);
    for ordinal in 0..3 {
        new.voter(ordinal).volumes = None;
        let role = new.voter(ordinal).server.role();
        serves(new.voter(ordinal), role, 0);
    }
    assert!(written(&new).epochs.is_empty());
}

#[test]
fn a_member_whose_loss_is_accepted_has_no_record_until_that_is_over() {
    let mut running = starting(600);
    recorded(&mut running).epochs = [(ServerId(1), 2), (ServerId(2), 2)].into();
    recorded(&mut running).acceptance = Some(Acceptance {
        token: "1-2".to_owned(),
        at: ago(10),
        by: None,
        members: first(2),
        lost: first(2),
        over: false,
    });
    for ordinal in 0..2 {
        running.voter(ordinal).volumes = Some(volumes(false, None));
    }
    assert!(written(&running).epochs.is_empty());
    recorded(&mut running).acceptance.as_mut().unwrap().over = true;
    let epochs = [(ServerId(1), 2), (ServerId(2), 2)];
    assert_eq!(written(&running).epochs, epochs.into());
}
