//! How soon consumers must learn of a change, and what is told of changes that do not end.

use super::*;

#[test]
fn another_leader_is_more_urgent_than_lost_sight() {
    let spec = spec(None);
    let a = status(&spec, Some(1), &queue(&spec, &[("a", 1)], &[]), None, at(0));
    let told = |sight: &Sight, old| {
        let new = status(&spec, Some(1), sight, Some(old), at(60));
        (urgency(Some(old), &new), new)
    };
    let (lost, blind) = told(&blind(Reason::Disconnected, 50), &a);
    assert_eq!(lost, Urgency::Sight);
    assert_eq!(
        told(&queue(&spec, &[("a", 1)], &[]), &blind).0,
        Urgency::Sight
    );
    // The leader may have changed in the meantime.
    assert_eq!(
        told(&queue(&spec, &[("b", 2)], &[]), &blind).0,
        Urgency::Leader
    );
    assert_eq!(told(&missing(&spec), &a).0, Urgency::Leader);
    assert_eq!(urgency(None, &a), Urgency::Leader);
}

#[test]
fn a_leader_that_changes_again_and_again_is_told_until_one_stays() {
    let spec = spec(None);
    let mut old = None;
    let mut told = Vec::new();
    for second in [0, 2, 4, 6, 8, 10, 20, 49, 50] {
        let leader = i32::try_from(second).unwrap().min(10);
        let sight = queue(&spec, &[("a", leader)], &[]);
        let new = status(&spec, Some(1), &sight, old.as_ref(), at(second));
        let queue = new.conditions.iter().find(|c| c.type_ == "QueueHealthy");
        told.push(queue.unwrap().reason.clone());
        old = Some(new);
    }
    let expected = [&["Orderly"; 4][..], &["Flapping"; 4], &["Orderly"]].concat();
    assert_eq!(told, expected);
    assert_eq!(flaps_until(&old.unwrap()), Some(at(50)));
}
