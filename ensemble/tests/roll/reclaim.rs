//! What becomes of volumes.

use bellwether_api::ensemble::ReclaimPolicy;
use serde_json::json;

use super::{World, story};

#[test]
fn the_statefulset_never_deletes_a_volume() {
    let keeps = json!({ "whenDeleted": "Retain", "whenScaled": "Retain" });
    for policy in [ReclaimPolicy::Retain, ReclaimPolicy::Delete] {
        let mut world = World::new(3);
        world.reclaim(policy);
        story(&mut world);
        assert_eq!(world.retention(), keeps);
    }
    // Also where another operator version rendered the rest of it.
    let mut world = World::started(3);
    world.upgrade_operator();
    world.forget_retention();
    story(&mut world);
    assert_eq!(world.retention(), keeps);
    assert_eq!(world.restarts(), [0, 0, 0]);
}

#[test]
fn volumes_belong_to_the_ensemble_as_long_as_the_policy_says_delete() {
    let mut world = World::started(3);
    assert_eq!(world.owned(), (vec![], vec![0, 1, 2]));
    world.add_owner(1, "StatefulSet");
    world.reclaim(ReclaimPolicy::Delete);
    story(&mut world);
    assert_eq!(world.owned(), (vec![0, 1, 2], vec![0, 1, 2]));
    // The owner that only the StatefulSet controller removes stays.
    assert_eq!(world.owners(1), ["StatefulSet", "ZooKeeperEnsemble"]);
    world.reclaim(ReclaimPolicy::Retain);
    story(&mut world);
    assert_eq!(world.owned(), (vec![], vec![0, 1, 2]));
    assert_eq!(world.owners(1), ["StatefulSet"]);
    assert_eq!(world.restarts(), [0, 0, 0]);
}

#[test]
fn volumes_of_leavers_are_deleted_when_all_is_done() {
    let mut world = World::started(5);
    world.reclaim(ReclaimPolicy::Delete);
    world.scale(3);
    while let Some(line) = world.reconcile() {
        let deleted = world.owned().1.len() < 5;
        assert!(!deleted || world.list() == "1,2,3", "{line}");
    }
    assert_eq!(world.size(), 3);
    assert_eq!(world.owned(), (vec![0, 1, 2], vec![0, 1, 2]));
    // A member that comes later begins with an empty volume.
    world.scale(5);
    story(&mut world);
    assert_eq!(world.size(), 5);
}

#[test]
fn volumes_of_leavers_stay_where_the_policy_says_so() {
    let mut world = World::started(5);
    world.scale(3);
    story(&mut world);
    assert_eq!(world.owned(), (vec![], vec![0, 1, 2, 3, 4]));
}

#[test]
fn no_volume_is_deleted_while_a_member_that_stays_does_not_serve() {
    let mut world = World::started(5);
    world.scale(3);
    story(&mut world);
    world.reclaim(ReclaimPolicy::Delete);
    world.lose_node(1);
    world.wait(120);
    story(&mut world);
    assert_eq!(world.owned().1, [0, 1, 2, 3, 4]);
}
