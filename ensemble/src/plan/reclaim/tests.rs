//! Which volumes are deleted, and whose property they are.
#![allow(clippy::unwrap_used, reason = "a test may")]

use super::*;
use crate::plan::example::{Running, claim, first, looks};

type Edit = fn(&mut Running);

/// Three members at rest, with the volumes of a fourth that left and of an observer that left.
fn left() -> Running {
    let mut running = Running::new(3, 1);
    running.ensemble.reclaim_policy = ReclaimPolicy::Delete;
    let observation = &mut running.observation;
    observation.claims.push(claim("zk", 3, Some(first(3))));
    observation.observers.claims = (0..2).map(|o| claim("zk-observer", o, None)).collect();
    running.render();
    running
}

fn deletes(running: &Running) -> Option<(String, ServerId)> {
    running.plan().step.map(|step| match step {
        Step::DeleteClaim { claim, id, .. } => (claim, id),
        other => panic!("{other:?}"),
    })
}

#[test]
fn volumes_of_members_and_observers_that_left_are_deleted_one_after_the_other() {
    let mut running = left();
    let plan = running.plan();
    assert_eq!(
        deletes(&running),
        Some(("data-zk-3".to_owned(), ServerId(4)))
    );
    let message = "All 3 members serve; zk-2 leads. 1 observer serves. Deleting volume claim data-zk-3: the \
                   member left, and storage.reclaimPolicy is Delete.";
    assert_eq!(plan.report.message, message);
    assert_eq!(plan.requeue, super::super::AT_ONCE);
    running.observation.claims[3].terminating = true;
    assert_eq!(
        deletes(&running),
        Some(("data-zk-observer-1".to_owned(), ServerId(102)))
    );
    running.observation.observers.claims.pop();
    assert_eq!(deletes(&running), None);
    // Volumes of transaction logs too.
    running.observation.log_claims.push(claim("zk", 4, None));
    assert_eq!(deletes(&running).unwrap().1, ServerId(5));
    running.observation.log_claims.clear();
    running
        .observation
        .observers
        .log_claims
        .push(claim("zk-observer", 4, None));
    assert_eq!(deletes(&running).unwrap().1, ServerId(105));
}

#[test]
fn a_volume_stays_while_anything_may_need_it() {
    let keep: [Edit; 6] = [
        |r| r.ensemble.reclaim_policy = ReclaimPolicy::Retain,
        |r| looks(r.voter(0), 3),
        |r| r.set().replicas = 4,
        |r| {
            let mut pod = r.voter(0).clone();
            pod.ordinal = 3;
            r.observation.pods.push(pod);
        },
        |r| r.observation.claims[0].next = Some(first(4)),
        |r| r.ensemble.size = 5,
    ];
    for (number, edit) in keep.into_iter().enumerate() {
        let mut running = left();
        running.observation.observers.claims.clear();
        edit(&mut running);
        running.render();
        assert_eq!(running.plan().step, None, "{number}");
    }
    // A volume is deleted last: when the templates are as they should be and every claim has its list.
    let first: [Edit; 2] = [
        |r| r.ensemble.heap_mib += 1,
        |r| r.observation.claims[0].voters = None,
    ];
    for (number, edit) in first.into_iter().enumerate() {
        let mut running = left();
        edit(&mut running);
        assert_eq!(running.plan().step, None, "first {number}");
    }
    let keep: [Edit; 3] = [
        |r| r.ensemble.observers = 2,
        |r| {
            r.observation
                .observers
                .stateful_set
                .as_mut()
                .unwrap()
                .replicas = 2
        },
        |r| {
            let mut pod = r.observer(0).clone();
            pod.ordinal = 1;
            r.observation.observers.pods.push(pod);
        },
    ];
    for (number, edit) in keep.into_iter().enumerate() {
        let mut running = left();
        running.observation.claims.pop();
        edit(&mut running);
        running.render();
        assert_eq!(running.plan().step, None, "observer {number}");
    }
}

#[test]
fn with_delete_the_ensemble_owns_every_claim_that_stays() {
    let owned = |edit: Edit| {
        let mut running = left();
        running.ensemble.uid = "uid".to_owned();
        running.observation.log_claims = vec![claim("log", 0, None)];
        running.observation.observers.log_claims = vec![claim("observer-log", 0, None)];
        edit(&mut running);
        plan_owners(&running.ensemble, &running.observation).len()
    };
    assert_eq!(owned(|_| {}), 8);
    assert_eq!(owned(|r| r.observation.claims[0].terminating = true), 7);
    assert_eq!(
        owned(|r| r.ensemble.reclaim_policy = ReclaimPolicy::Retain),
        0
    );
    // An ensemble that exists in a forecast only owns nothing.
    assert_eq!(owned(|r| r.ensemble.uid.clear()), 0);
}
