//! The harm that each rule prevents, for the rules that the model check does not cover.

use bellwether_api::ensemble::ReclaimPolicy;
use bellwether_ensemble::rules::{Rule, Rules};

use super::{World, story};

fn without(size: i32, rule: Rule) -> World {
    let mut world = World::started(size);
    world.rules = Rules::ALL.without(rule);
    world
}

#[test]
fn without_the_claims_first_a_step_begins_that_no_claim_knows() {
    let mut world = without(3, Rule::ClaimsFirst);
    world.faults().claims_frozen = true;
    world.scale(5);
    story(&mut world);
    assert_eq!(world.records()[0], "1,2,3");
    assert_ne!(world.list(), "1,2,3");
}

#[test]
fn without_an_end_of_the_permission_a_lost_disk_votes() {
    let mut world = World::new(3);
    world.rules = Rules::ALL.without(Rule::PermissionEnds);
    while world.leader().is_none() {
        world.reconcile().unwrap();
    }
    world.mute_all();
    for _ in 0..3 {
        world.reconcile();
    }
    assert_eq!(world.permission().0, "1,2,3");
    world.lose_claim(1);
    world.lose_claim(2);
    story(&mut world);
    assert!(world.leader().is_some());
}

#[test]
fn without_joining_time_members_that_copy_are_killed_in_turn() {
    let mut world = without(3, Rule::JoiningTime);
    world.elect(3);
    world.configure("snapCount", "5000");
    world.copy(0);
    for _ in 0..30 {
        world.reconcile();
    }
    assert_eq!(world.restarts()[0], 1);
}

#[test]
fn without_known_idleness_a_silent_member_that_may_serve_is_killed() {
    let mut world = without(3, Rule::IdleIsKnown);
    world.configure("snapCount", "5000");
    world.mute_all();
    story(&mut world);
    assert_ne!(world.restarts(), [0, 0, 0]);
}

#[test]
fn with_two_leaders_and_without_the_rule_a_member_restarts() {
    let mut world = without(5, Rule::OneLeader);
    world.elect(3);
    world.configure("snapCount", "200000");
    while world.look().is_none() {
        world.reconcile().unwrap();
    }
    world.split(&[0, 1], Some(1));
    world.copy(4);
    world.wait(600);
    assert!(world.look().is_some(), "{}", world.message());
}

#[test]
fn without_the_rule_of_volumes_that_of_a_leaver_is_deleted_while_another_is_away() {
    let mut world = without(5, Rule::DeleteLeaversOnly);
    world.scale(3);
    story(&mut world);
    world.reclaim(ReclaimPolicy::Delete);
    world.lose_node(1);
    world.wait(120);
    story(&mut world);
    assert_eq!(world.owned().1, [0, 1, 2]);
}

#[test]
fn without_taking_back_a_foreign_list_stays() {
    let mut world = without(3, Rule::TakeBack);
    let first = world.template();
    world.scale(5);
    story(&mut world);
    world.undo(first);
    story(&mut world);
    assert!(world.trouble().is_some());
}
