//! Losses that a person accepts.

use crate::story;
use crate::world::World;

/// Five members of which 2, 3 and 4 lost their disks. Member 5 has a write that member 1 lacks.
fn lost() -> World {
    let mut world = World::started(5);
    world.write(&[4]);
    for ordinal in [1, 2, 3] {
        world.lose_claim(ordinal);
    }
    story(&mut world);
    world
}

#[test]
fn an_accepted_loss_lets_only_as_many_empty_members_vote_as_a_majority_needs() {
    let mut world = lost();
    let token = world.token().unwrap();
    assert!(token.starts_with("2-3-4-"), "{token}");
    world.accept(&token);
    world.reconcile();
    assert!(world.accepts());
    let (permitted, accepted) = world.permission();
    assert_eq!(permitted, "2");
    let accepted = accepted.unwrap();
    assert_eq!((accepted.token, accepted.over), (token, false));
    assert_eq!(world.trouble().unwrap().0, "DataLossAccepted");
    let newest = world.newest();
    while world.leader().is_none() {
        world.reconcile().unwrap();
        assert!(!world.accepts(), "it is accepted once");
    }
    // Of the survivors the one with the newest data.
    assert_eq!(world.leader(), Some(5));
    story(&mut world);
    assert!(world.newest() > newest);
    assert_eq!(world.size(), 5);
    assert_eq!(world.restarts(), [0, 1, 0, 0, 0]);
    let (permitted, accepted) = world.permission();
    assert_eq!(permitted, "");
    assert!(accepted.unwrap().over);
    assert_eq!(world.trouble(), None);
}

#[test]
fn a_wrong_token_accepts_nothing_and_is_told() {
    let mut world = lost();
    world.accept("2-3-4-0000000000");
    story(&mut world);
    let (reason, message) = world.trouble().unwrap();
    assert_eq!(reason, "DisksLost");
    assert!(
        message.contains("\"2-3-4-0000000000\", which accepts nothing of this"),
        "{message}"
    );
    assert_eq!(world.permission(), (String::new(), None));
    assert_eq!(world.restarts(), [0; 5]);
}

#[test]
fn a_token_that_stays_in_a_manifest_accepts_no_later_loss() {
    let mut world = lost();
    let token = world.token().unwrap();
    world.accept(&token);
    story(&mut world);
    assert_eq!(world.size(), 5);
    // The very same members again.
    for ordinal in [1, 2, 3] {
        world.lose_claim(ordinal);
    }
    story(&mut world);
    assert_eq!(world.trouble().unwrap().0, "DisksLost");
    assert_ne!(world.token().unwrap(), token);
    assert_eq!(world.permission().0, "");
    assert_eq!(world.leader(), None);
}

#[test]
fn a_loss_that_grew_before_it_was_accepted_has_another_token() {
    let mut world = lost();
    let token = world.token().unwrap();
    world.lose_claim(4);
    story(&mut world);
    world.accept(&token);
    story(&mut world);
    assert_eq!(world.trouble().unwrap().0, "DisksLost");
    assert_eq!(world.permission(), (String::new(), None));
}

#[test]
fn a_loss_that_grows_while_it_is_carried_out_ends_the_permission() {
    let mut world = lost();
    world.accept(&world.token().unwrap());
    world.reconcile();
    assert_eq!(world.permission().0, "2");
    world.lose_claim(4);
    story(&mut world);
    assert_eq!(world.trouble().unwrap().0, "DisksLost");
    assert_eq!(world.permission().0, "");
    // Accepted again, with the members that were permitted before and one more.
    world.accept(&world.token().unwrap());
    story(&mut world);
    assert_eq!(world.size(), 5);
    let accepted = world.permission().1.unwrap();
    assert_eq!(
        (accepted.lost.to_string(), accepted.members.to_string()),
        ("2,3,4,5".to_owned(), "2,3".to_owned())
    );
}

#[test]
fn nothing_is_accepted_while_a_member_does_not_say_what_is_on_its_disk() {
    let mut world = lost();
    let token = world.token().unwrap();
    world.faults().silent.insert(4);
    world.accept(&token);
    story(&mut world);
    let (reason, message) = world.trouble().unwrap();
    assert_eq!(reason, "DisksLost");
    assert!(
        message.contains("when zk-4 reports what is on its disk"),
        "{message}"
    );
    assert_eq!(world.permission(), (String::new(), None));
    world.faults().silent.clear();
    for _ in 0..100 {
        world.reconcile();
    }
    assert_eq!(world.size(), 5);
}

#[test]
fn an_ensemble_of_which_no_disk_is_left_begins_anew_when_that_is_accepted() {
    let mut world = World::started(3);
    for ordinal in [0, 1, 2] {
        world.lose_claim(ordinal);
    }
    story(&mut world);
    let (_, message) = world.trouble().unwrap();
    assert!(message.contains("No other member has data"), "{message}");
    world.accept(&world.token().unwrap());
    story(&mut world);
    assert_eq!(world.size(), 3);
    assert_eq!(world.restarts(), [1, 1, 0]);
    // The recorded epochs of the lost disks would make every member refuse its new data.
    assert!(
        world
            .epochs()
            .iter()
            .all(|(_, epoch)| *epoch == world.newest() >> 32)
    );
}

#[test]
fn a_paused_ensemble_accepts_nothing() {
    let mut world = lost();
    world.accept(&world.token().unwrap());
    world.pause();
    story(&mut world);
    assert!(!world.accepts());
    assert_eq!(world.permission(), (String::new(), None));
    // The status does not report an accepted loss.
    let (reason, message) = world.trouble().unwrap();
    assert_eq!(reason, "DisksLost", "{message}");
    assert!(world.told_accepted().is_none());
}

#[test]
fn a_permission_that_is_lost_on_the_way_is_told_to_the_member_again() {
    let mut world = lost();
    world.accept(&world.token().unwrap());
    // The kubelet shows the new pod the earlier permission.
    world.faults().stale_permission = true;
    for _ in 0..20 {
        world.reconcile();
    }
    assert_eq!(world.leader(), None);
    world.faults().stale_permission = false;
    for _ in 0..100 {
        world.reconcile();
    }
    assert_eq!(world.size(), 5);
    assert_eq!(world.restarts(), [0, 2, 0, 0, 0]);
}
