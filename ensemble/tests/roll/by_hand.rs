//! What people and nodes do to an ensemble while, or instead of what, the operator does.

use super::{World, story};

#[test]
fn a_member_that_fits_on_no_node_does_not_keep_the_ensemble_from_shrinking() {
    for ordinal in [3, 4] {
        let mut world = World::started(5);
        world.lose_node(ordinal);
        world.wait(120);
        world.scale(3);
        story(&mut world);
        // The step waits for every member except the next leaver.
        if ordinal == 4 {
            assert_eq!(world.size(), 3);
        } else {
            assert_eq!(world.list(), "1,2,3,4,5");
        }
    }
}

#[test]
fn a_leaver_that_is_made_anew_in_the_middle_and_cannot_run_blocks_nothing() {
    let mut world = World::started(5);
    world.lose_node(4);
    world.wait(120);
    world.scale(3);
    while world.list() != "1,2,3,4" {
        world.reconcile().unwrap();
    }
    // The pod that the StatefulSet makes now has the new template.
    world.delete_pod(4);
    story(&mut world);
    assert_eq!(world.size(), 3, "{}", world.message());
}

/// The pod template of each server list on the way from three to five members.
fn templates(world: &mut World) -> Vec<serde_json::Value> {
    let mut all = vec![world.template()];
    while world.reconcile().is_some() {
        if all.last() != Some(&world.template()) {
            all.push(world.template());
        }
    }
    all
}

#[test]
fn an_earlier_template_that_is_put_back_is_taken_back() {
    for (size, undone) in [(5, 0), (5, 1), (3, 0), (3, 1)] {
        let mut world = World::started(3);
        world.elect(2);
        world.scale(5);
        let templates = templates(&mut world);
        assert_eq!(templates.len(), 3);
        let before = world.restarts();
        world.undo(templates[undone].clone());
        if size == 3 {
            world.scale(3);
        }
        story(&mut world);
        assert_eq!(world.size(), size, "undone to step {undone}");
        if size == 5 && undone == 0 {
            assert_eq!(world.restarts(), before, "nobody had to restart");
        }
    }
}

#[test]
fn a_template_that_is_put_back_while_a_step_is_under_way_is_taken_back() {
    for passes in 1..12 {
        let mut world = World::started(3);
        let first = world.template();
        world.scale(5);
        while world.list() != "1,2,3,4,5" {
            world.reconcile().unwrap();
        }
        for _ in 0..passes {
            world.reconcile();
        }
        world.undo(first);
        story(&mut world);
        assert_eq!(
            world.size(),
            5,
            "after {passes} passes: {}",
            world.message()
        );
    }
}

#[test]
fn two_lists_that_must_not_live_together_stop_everything_until_a_person_acts() {
    let mut world = World::started(3);
    let first = world.template();
    world.scale(5);
    story(&mut world);
    let (last, before) = (world.template(), world.restarts());
    // Two pods that are made with the list of three could commit by themselves.
    world.undo(first);
    world.delete_pod(0);
    world.delete_pod(1);
    story(&mut world);
    assert_eq!(world.restarts(), before, "{}", world.message());
    let (reason, message) = world.trouble().unwrap();
    assert_eq!(reason, "UnknownState");
    assert!(message.contains("need not share a server"), "{message}");
    // The list that most run is put back.
    world.undo(last);
    story(&mut world);
    assert_eq!(world.size(), 5, "{}", world.message());
}

/// The template of a larger ensemble returns while the operator is not looking, and pods are created from it.
#[test]
fn a_list_that_was_taken_back_is_not_put_back_again() {
    for remade in [vec![0], vec![0, 1], vec![2]] {
        let mut world = World::started(5);
        let larger = world.template();
        world.scale(3);
        story(&mut world);
        world.undo(larger);
        for ordinal in &remade {
            world.delete_pod(*ordinal);
        }
        let mut lists = vec![world.list()];
        for _ in 0..200 {
            world.reconcile();
            if lists.last() != Some(&world.list()) {
                lists.push(world.list());
            }
        }
        let blocked = world.trouble().is_some();
        // Two members are no majority of the list of five, but the third alone is no majority of three.
        assert_eq!(
            blocked,
            remade.len() == 2,
            "{remade:?}: {}",
            world.message()
        );
        assert!(lists.len() <= 2, "{remade:?}: {lists:?}");
        if !blocked {
            assert_eq!((world.list().as_str(), world.size()), ("1,2,3", 3));
        }
    }
}

#[test]
fn a_foreign_list_that_everybody_who_stays_runs_removes_nobody() {
    let mut world = World::started(3);
    let first = world.template();
    world.scale(5);
    story(&mut world);
    world.undo(first);
    for ordinal in [0, 1, 2] {
        world.delete_pod(ordinal);
    }
    story(&mut world);
    assert_eq!(world.trouble().unwrap().0, "UnknownState");
    assert_eq!(world.restarts().len(), 5, "{}", world.message());
}

#[test]
fn a_restart_that_is_no_longer_asked_for_is_no_other_request() {
    let mut world = World::started(3);
    world.ask_for_restart(Some("2026-01-01"));
    story(&mut world);
    assert_eq!(world.restarts(), [1, 1, 1]);
    world.ask_for_restart(None);
    story(&mut world);
    assert_eq!(world.restarts(), [1, 1, 1]);
    world.configure("snapCount", "5000");
    story(&mut world);
    assert_eq!(world.restarts(), [2, 2, 2]);
    world.ask_for_restart(Some("2026-01-02"));
    story(&mut world);
    assert_eq!(world.restarts(), [3, 3, 3]);
}

#[test]
fn two_leaders_are_told_and_nobody_restarts() {
    let mut world = World::started(5);
    world.elect(3);
    world.configure("snapCount", "200000");
    while world.look().is_none() {
        world.reconcile().unwrap();
    }
    world.split(&[0, 1], Some(1));
    assert_eq!(world.look(), None);
    let (reason, message) = world.trouble().unwrap();
    assert_eq!(reason, "TwoLeaders");
    let words = [
        "zk-1 (epoch 3, server list 1,2,3,4,5)",
        "zk-2 (epoch 2, server list 1,2,3,4,5)",
    ];
    assert!(words.iter().all(|w| message.contains(w)), "{message}");
}

#[test]
fn a_member_of_a_later_epoch_than_the_leader_is_told() {
    let mut world = World::started(5);
    world.elect(3);
    world.reconcile();
    world.wait(120);
    world.split(&[0], None);
    assert_eq!(world.look(), None);
    let (reason, message) = world.trouble().unwrap();
    assert_eq!(reason, "MemberDown");
    let words = "zk-0 looks for a leader and cannot follow zk-2: it served in epoch 3";
    assert!(message.contains(words), "{message}");
    assert!(message.contains("after the leader's 2"), "{message}");
}

#[test]
fn an_image_that_somebody_else_set_is_put_back_also_after_an_upgrade() {
    for upgraded in [false, true] {
        let mut world = World::started(3);
        if upgraded {
            world.upgrade_operator();
            story(&mut world);
        }
        let before = world.template();
        world.set_image("other");
        world.reconcile();
        assert_eq!(world.trouble().unwrap().0, "TemplateEdited");
        story(&mut world);
        assert_eq!(world.template(), before, "upgraded: {upgraded}");
        assert_eq!(world.restarts(), [0, 0, 0], "upgraded: {upgraded}");
        assert_eq!(world.trouble(), None);
    }
}

#[test]
fn an_image_that_is_undone_after_an_upgrade_is_put_back() {
    let mut world = World::started(3);
    let first = world.template();
    world.image("newer");
    story(&mut world);
    world.upgrade_operator();
    story(&mut world);
    let (last, before) = (world.template(), world.restarts());
    world.undo(first);
    story(&mut world);
    assert_eq!(world.template(), last);
    assert_eq!(world.restarts(), before);
}
