//! Whole changes, planned step by step in a small world: a StatefulSet controller, pods that start,
//! and servers that elect and follow as ZooKeeper's do. Each change is one readable golden text.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "roll/by_hand.rs"]
mod by_hand;
#[path = "roll/faults.rs"]
mod faults;
#[path = "roll/loss.rs"]
mod loss;
#[path = "roll/reclaim.rs"]
mod reclaim;
#[path = "roll/switched_off.rs"]
mod switched_off;
#[path = "roll/tls.rs"]
mod tls;
#[path = "roll/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bellwether_ensemble::volume_report::Usage;
use world::World;

/// Runs a change to its end and returns the story.
fn story(world: &mut World) -> String {
    let mut text = String::new();
    let mut last = String::new();
    for _ in 0..400 {
        let Some(line) = world.reconcile() else { break };
        if line != last {
            let _ = writeln!(text, "{line}");
            last = line;
        }
    }
    text.push_str(&world.summary());
    text
}

#[test]
fn three_members_start() {
    let mut world = World::new(3);
    insta::assert_snapshot!(story(&mut world));
}

#[test]
fn growing_from_three_to_five_restarts_the_leader_last_in_each_step() {
    let mut world = World::started(3);
    world.elect(2);
    world.scale(5);
    insta::assert_snapshot!(story(&mut world));
    assert!(world.leader_was_last_in_every_step());
    assert_eq!(world.size(), 5);
}

#[test]
fn growing_from_one_to_three_keeps_the_old_member_as_leader_first() {
    let mut world = World::started(1);
    world.scale(3);
    insta::assert_snapshot!(story(&mut world));
    assert_eq!(world.size(), 3);
}

#[test]
fn shrinking_from_five_to_three_with_a_leaver_that_leads() {
    let mut world = World::started(5);
    world.elect(5);
    world.scale(3);
    insta::assert_snapshot!(story(&mut world));
    assert_eq!(world.size(), 3);
}

#[test]
fn a_configuration_change_restarts_each_member_once_and_the_leader_last() {
    let mut world = World::started(5);
    world.elect(2);
    world.configure("snapCount", "5000");
    insta::assert_snapshot!(story(&mut world));
    assert!(world.leader_was_last_in_every_step());
    assert_eq!(world.restarts(), [1, 1, 1, 1, 1]);
}

#[test]
fn a_change_is_not_reported_ready_before_it_is_done() {
    let mut world = World::started(3);
    world.configure("snapCount", "5000");
    world.reconcile();
    assert!(!world.message().starts_with("All "), "{}", world.message());
}

#[test]
fn a_new_target_in_the_middle_turns_the_chain_round_with_two_voter_sets_at_most() {
    for after in (1..60).step_by(2) {
        let mut world = World::started(3);
        world.scale(5);
        for _ in 0..after {
            world.reconcile();
        }
        world.scale(3);
        story(&mut world);
        assert_eq!(world.size(), 3, "turned round after {after} passes");
    }
}

#[test]
fn every_odd_pair_of_sizes_ends_in_the_wanted_size() {
    for from in [1, 3, 5] {
        for to in [1, 3, 5, 7] {
            for leader in BTreeSet::from([1, from / 2 + 1, from]) {
                let mut world = World::started(from);
                world.elect(leader);
                world.scale(to);
                story(&mut world);
                assert_eq!(world.size(), to, "{from} -> {to} led by {leader}");
            }
        }
    }
}

#[test]
fn a_bad_image_costs_one_member_and_reverting_heals() {
    let mut world = World::started(3);
    world.image("bad");
    story(&mut world);
    assert_eq!(world.down(), 1);
    assert!(
        world.message().contains("ImagePullBackOff"),
        "{}",
        world.message()
    );
    world.image("good");
    story(&mut world);
    assert_eq!(world.down(), 0);
}

#[test]
fn unknown_leader_blocks_the_roll() {
    let mut world = World::started(3);
    world.configure("snapCount", "5000");
    world.mute_all();
    story(&mut world);
    assert_eq!(world.restarts(), [0, 0, 0]);
    assert!(
        world.message().contains("does not know its role"),
        "{}",
        world.message()
    );
}

#[test]
fn a_member_that_copies_a_large_snapshot_is_given_time() {
    let mut world = World::started(3);
    world.elect(3);
    world.configure("snapCount", "5000");
    world.copy(0);
    for _ in 0..30 {
        world.reconcile();
    }
    assert_eq!(world.restarts(), [0, 0, 0], "{}", world.message());
    assert!(
        world.message().contains("zk-0 to join"),
        "{}",
        world.message()
    );
    // The copy never ends: a restart may help, and costs nothing.
    world.wait(60);
    while world.restarts() == [0, 0, 0] {
        world.reconcile().unwrap();
    }
    assert_eq!(world.restarts(), [1, 0, 0]);
    world.faults().copying.clear();
    story(&mut world);
    assert_eq!(world.restarts(), [1, 1, 1]);
}

#[test]
fn members_that_elect_a_leader_and_copy_its_data_are_not_restarted_in_turn() {
    let mut world = World::started(3);
    world.elect(3);
    world.configure("snapCount", "5000");
    for ordinal in 0..3 {
        world.copy(ordinal);
    }
    for _ in 0..30 {
        world.reconcile();
    }
    assert_eq!(world.restarts(), [0, 0, 0], "{}", world.message());
    world.faults().copying.clear();
    story(&mut world);
    assert_eq!(world.restarts(), [1, 1, 1]);
}

#[test]
fn one_member_of_which_nothing_is_heard_does_not_stop_a_roll_for_ever() {
    for (size, restarts) in [(3, vec![0, 0, 0]), (5, vec![1, 0, 1, 1, 1])] {
        let mut world = World::started(size);
        world.elect(3);
        world.configure("snapCount", "5000");
        world.silence(1);
        for _ in 0..30 {
            world.reconcile();
        }
        assert!(
            world.restarts().iter().all(|n| *n == 0),
            "{}",
            world.message()
        );
        world.wait(60);
        story(&mut world);
        assert_eq!(world.restarts(), restarts, "{}", world.message());
    }
}

#[test]
fn a_paused_ensemble_is_left_alone() {
    let mut world = World::started(3);
    world.pause();
    world.scale(5);
    story(&mut world);
    assert_eq!(world.size(), 3);
    assert_eq!(world.restarts(), [0, 0, 0]);
}

#[test]
fn a_new_operator_version_restarts_nothing() {
    let mut world = World::started(3);
    world.upgrade_operator();
    story(&mut world);
    assert_eq!(world.restarts(), [0, 0, 0]);
    world.scale(5);
    story(&mut world);
    assert_eq!(world.size(), 5);
}

#[test]
fn a_crash_of_any_member_at_any_moment_does_not_stop_the_chain() {
    for victim in 1..=5 {
        for moment in (0..40).step_by(3) {
            let mut world = World::started(3);
            world.scale(5);
            for _ in 0..moment {
                world.reconcile();
            }
            world.crash(victim);
            story(&mut world);
            assert_eq!(
                world.size(),
                5,
                "server {victim} crashed after {moment} passes"
            );
        }
    }
}

#[test]
fn an_ensemble_created_again_on_its_volumes_starts_with_its_last_members() {
    for from in [1, 3, 5] {
        for to in [1, 3, 5, 7] {
            let mut world = World::started(from);
            let before = world.newest();
            world.recreate(to);
            let first = world.reconcile().unwrap();
            let list: Vec<String> = (1..=from).map(|i| i.to_string()).collect();
            let list = format!("{{{}}}", list.join(","));
            assert!(first.contains(&list), "{from} -> {to}: {first}");
            story(&mut world);
            assert_eq!(world.size(), to, "{from} -> {to}");
            assert!(world.newest() > before, "{from} -> {to}: a new history");
        }
    }
}

#[test]
fn a_statefulset_deleted_in_the_middle_of_a_chain_comes_back_and_the_chain_goes_on() {
    for orphan in [true, false] {
        for (from, to) in [(3, 5), (5, 3), (1, 3), (3, 1)] {
            for moment in [2, 6, 11, 17, 24, 32] {
                let mut world = World::started(from);
                world.scale(to);
                for _ in 0..moment {
                    world.reconcile();
                }
                let before = world.newest();
                world.delete_set(orphan);
                story(&mut world);
                let what = format!("{from} -> {to}, orphan {orphan}, after {moment} passes");
                assert_eq!(world.size(), to, "{what}");
                assert!(world.newest() >= before, "{what}");
            }
        }
    }
}

#[test]
fn no_step_begins_while_a_claim_does_not_carry_its_list() {
    let mut world = World::started(3);
    world.scale(5);
    world.faults().claims_frozen = true;
    story(&mut world);
    assert_eq!(world.size(), 3);
    assert_eq!(world.records(), ["1,2,3"; 3]);
    world.faults().claims_frozen = false;
    world.scale(5);
    story(&mut world);
    assert_eq!(world.size(), 5);
}

#[test]
fn while_a_step_is_under_way_every_claim_carries_both_lists() {
    let mut world = World::started(3);
    world.scale(5);
    while world.list() == "1,2,3" {
        world.reconcile().unwrap();
    }
    assert_eq!(world.records()[..3], ["1,2,3 > 1,2,3,4"; 3]);
    while world.leader_list() == "1,2,3" {
        world.reconcile().unwrap();
    }
    // The newcomer's claim too, before any write can be acknowledged with it under the new list.
    assert_eq!(world.records(), ["1,2,3 > 1,2,3,4"; 4]);
}

#[test]
fn claims_of_a_step_that_an_earlier_operator_began_get_both_lists() {
    let mut world = World::started(3);
    world.scale(5);
    while world.list() == "1,2,3" {
        world.reconcile().unwrap();
    }
    world.forget_begun_lists();
    world.reconcile().unwrap();
    assert_eq!(world.records()[..3], ["1,2,3 > 1,2,3,4"; 3]);
}

/// The write that only the newcomers of a step acknowledged is not lost when everything but their claims is.
#[test]
fn an_ensemble_is_not_started_without_those_that_a_step_had_added() {
    let mut world = World::started(1);
    world.scale(3);
    while world.list() != "1,2,3" || world.leader_list() != "1,2,3" {
        world.reconcile().unwrap();
    }
    world.write(&[1, 2]);
    let newest = world.newest();
    world.recreate(3);
    world.lose_claim(1);
    story(&mut world);
    assert_eq!(world.leader(), Some(3), "{}", world.message());
    assert!(world.newest() > newest);
}

#[test]
fn every_claim_carries_the_list_that_was_finished_last() {
    let mut world = World::started(3);
    assert_eq!(world.records(), ["1,2,3", "1,2,3", "1,2,3"]);
    world.scale(5);
    story(&mut world);
    assert_eq!(world.records(), ["1,2,3,4,5"; 5]);
    world.scale(3);
    story(&mut world);
    // Claims of former members carry it too, which identifies them as former members.
    assert_eq!(world.records(), ["1,2,3"; 5]);
}

#[test]
fn a_member_that_lost_its_claim_comes_back_and_the_ensemble_starts_without_it() {
    let mut world = World::started(3);
    world.lose_claim(1);
    story(&mut world);
    assert_eq!(world.size(), 3);
    world.recreate(3);
    world.lose_claim(2);
    story(&mut world);
    assert_eq!(world.size(), 3);
}

#[test]
fn nothing_is_created_when_a_majority_of_the_last_members_has_no_volume() {
    let mut world = World::started(5);
    world.recreate(3);
    for ordinal in [0, 2, 3] {
        world.lose_claim(ordinal);
    }
    insta::assert_snapshot!(story(&mut world));
    assert_eq!(world.newest(), 1 << 32);
}

#[test]
fn the_epoch_of_every_voter_is_recorded_and_a_leaver_loses_its_record() {
    let mut world = World::started(3);
    assert_eq!(world.epochs(), [(1, 1), (2, 1), (3, 1)]);
    world.elect(2);
    story(&mut world);
    assert_eq!(world.epochs(), [(1, 2), (2, 2), (3, 2)]);
    world.scale(1);
    story(&mut world);
    let left = world.epochs();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].1 > 2, "{left:?}");
}

#[test]
fn a_nearly_full_volume_is_told_before_it_hurts() {
    let mut world = World::started(3);
    assert_eq!(world.trouble(), None);
    world.faults().usage = Some(Usage {
        total: 8 << 30,
        free: 1 << 30,
    });
    world.reconcile();
    let (reason, message) = world.trouble().unwrap();
    assert_eq!(reason, "VolumeNearlyFull");
    assert!(
        message.contains("the data volume of zk-1 is 87 % full, of 8 GiB"),
        "{message}"
    );
    // The ensemble still serves.
    assert!(world.message().starts_with("All "), "{}", world.message());

    // A graver trouble does not hide it.
    world.crash(2);
    world.wait(120);
    world.reconcile();
    let (reason, message) = world.trouble().unwrap();
    assert_eq!(reason, "MemberDown");
    assert!(
        message.contains(". Also: the data volume of zk-0 is 87 % full"),
        "{message}"
    );
}

#[test]
fn a_lost_majority_of_disks_is_told_precisely_and_nothing_is_done() {
    let mut world = World::started(3);
    world.lose_claim(1);
    world.lose_claim(2);
    story(&mut world);
    let (reason, message) = world.trouble().unwrap();
    assert_eq!(reason, "DisksLost");
    for words in [
        "the disks of zk-1, zk-2 are empty",
        "zk-0 (epoch 1)",
        "2 of 3 are needed",
    ] {
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(world.down(), 3);
    assert_eq!(world.restarts(), [0, 0, 0]);
}

#[test]
fn the_permission_to_start_empty_ends_when_a_member_is_ready_though_none_can_be_asked() {
    let mut world = World::new(3);
    while world.leader().is_none() {
        world.reconcile().unwrap();
    }
    world.mute_all();
    for _ in 0..3 {
        world.reconcile();
    }
    assert_eq!(world.permission().0, "");
    world.wait(60);
    world.reconcile();
    let (reason, message) = world.trouble().unwrap();
    assert_eq!(reason, "MembersUnreachable");
    for words in [
        "zk-0 (silent), zk-1 (silent), zk-2 (silent)",
        "port 8078",
        "NetworkPolicy",
    ] {
        assert!(message.contains(words), "{message}");
    }
    // A disk that is lost now counts as lost, not as new.
    world.lose_claim(1);
    world.lose_claim(2);
    story(&mut world);
    assert!(!world.has_database(1) && !world.has_database(2));
    assert_eq!(world.leader(), None);
}

#[test]
fn a_permission_that_expired_is_not_opened_again() {
    let mut world = World::new(3);
    world.reconcile();
    assert_eq!(world.permission().0, "1,2,3");
    world.wait(601);
    world.reconcile();
    assert_eq!(world.permission().0, "");
    world.reconcile();
    assert_eq!(world.permission().0, "");
}

#[test]
fn a_permission_is_not_renewed_while_a_server_that_runs_cannot_be_asked() {
    for muted in [false, true] {
        let mut world = World::new(3);
        world.image("slow");
        world.reconcile();
        if muted {
            world.mute_all();
        }
        for _ in 0..3 {
            world.wait(250);
            world.reconcile();
        }
        let open = world.permission().0 == "1,2,3";
        assert_eq!(open, !muted);
    }
}
