use std::sync::Arc;

use bellwether_api::LeaderElectionSpec;
use bellwether_api::election::DialectType;
use serde_json::json;

use super::*;
use crate::Rules;

const OWN: &str = "bellwether-bridge/team/app/uid";

fn place(own: usize, ahead: usize) -> Place {
    let own = (0..own).map(|at| OwnZnode {
        path: format!("/e/n_{at}"),
        version: 0,
    });
    Place {
        own: own.collect(),
        ahead,
    }
}

/// What is done, and the reason that is told.
fn decided(side: BridgeSide, place: &Place, holder: &Holder) -> (Option<Act>, &'static str) {
    let (act, told) = cross(side, place, holder, "app");
    assert!(told.message.ends_with('.'), "{}", told.message);
    (act, told.reason)
}

fn other() -> Holder {
    Holder::Other("pod".to_owned())
}

#[test]
fn a_move_goes_from_one_lock_to_the_other() {
    use BridgeSide::{Kubernetes, ZooKeeper};
    let own = place(1, 0).own.remove(0);
    let steps = [
        (
            ZooKeeper,
            place(0, 2),
            Holder::Nobody,
            Some(Act::TakeLease),
            "Crossing",
        ),
        (
            ZooKeeper,
            place(0, 2),
            Holder::Bridge,
            Some(Act::RenewLease),
            "ZooKeeperLeads",
        ),
        (
            Kubernetes,
            place(0, 2),
            Holder::Bridge,
            Some(Act::CreateZnode),
            "CandidatesAhead",
        ),
        (
            Kubernetes,
            place(1, 2),
            Holder::Bridge,
            Some(Act::RenewLease),
            "CandidatesAhead",
        ),
        (
            Kubernetes,
            place(1, 0),
            Holder::Bridge,
            Some(Act::GiveUpLease(own.clone())),
            "Crossing",
        ),
        (
            Kubernetes,
            place(1, 0),
            Holder::Nobody,
            None,
            "KubernetesLeads",
        ),
        (Kubernetes, place(1, 0), other(), None, "KubernetesLeads"),
        (ZooKeeper, place(1, 0), other(), None, "LeaseHeld"),
        (
            ZooKeeper,
            place(1, 0),
            Holder::Nobody,
            Some(Act::TakeLease),
            "Crossing",
        ),
        (
            ZooKeeper,
            place(1, 0),
            Holder::Bridge,
            Some(Act::GiveUpZnode(own)),
            "Crossing",
        ),
        (
            ZooKeeper,
            place(0, 0),
            Holder::Bridge,
            Some(Act::RenewLease),
            "ZooKeeperLeads",
        ),
    ];
    for (side, place, holder, act, reason) in steps {
        let found = decided(side, &place, &holder);
        assert_eq!(found, (act, reason), "{side:?} {place:?} {holder:?}");
    }
}

#[test]
fn where_both_sides_lead_nothing_is_taken_from_either() {
    use BridgeSide::{Kubernetes, ZooKeeper};
    for (side, own, act) in [
        (ZooKeeper, 0, None),
        (ZooKeeper, 1, None),
        (Kubernetes, 0, Some(Act::CreateZnode)),
        (Kubernetes, 1, None),
    ] {
        let found = decided(side, &place(own, 1), &other());
        assert_eq!(found, (act, "TwoMayLead"), "{side:?} {own}");
    }
}

#[test]
fn a_second_znode_of_its_own_is_deleted_first() {
    let two = place(2, 0);
    let (act, _) = decided(BridgeSide::Kubernetes, &two, &Holder::Bridge);
    assert_eq!(act, Some(Act::DeleteSurplus(two.own[1].clone())));
}

/// The Lease is given up only by a bridge whose znode stands first, and the znode only by one that holds the Lease.
#[test]
fn no_lock_is_given_up_without_the_other() {
    for side in [BridgeSide::ZooKeeper, BridgeSide::Kubernetes] {
        for (own, ahead) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 3)] {
            for holder in [Holder::Nobody, Holder::Bridge, other()] {
                let (act, _) = decided(side, &place(own, ahead), &holder);
                match act {
                    Some(Act::GiveUpLease(_)) => assert!(own > 0 && ahead == 0),
                    Some(Act::GiveUpZnode(_)) => assert_eq!(holder, Holder::Bridge),
                    Some(Act::TakeLease) => assert_eq!(holder, Holder::Nobody),
                    _ => {}
                }
            }
        }
    }
}

fn lease(holder: Option<&str>, seconds: Option<i32>) -> Lease {
    Lease {
        spec: Some(LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: seconds,
            ..LeaseSpec::default()
        }),
        ..Lease::default()
    }
}

#[test]
fn a_holder_is_believed_for_as_long_as_its_lease_says() {
    let of =
        |lease: Option<&Lease>, seconds| holder(lease, OWN, SignedDuration::from_secs(seconds));
    let pod = lease(Some("pod"), Some(15));
    assert_eq!(of(None, 0), Holder::Nobody);
    assert_eq!(of(Some(&Lease::default()), 0), Holder::Nobody);
    assert_eq!(of(Some(&lease(Some(""), Some(15))), 0), Holder::Nobody);
    assert_eq!(of(Some(&lease(Some(OWN), Some(15))), 99), Holder::Bridge);
    assert_eq!(of(Some(&pod), 15), other());
    assert_eq!(of(Some(&pod), 16), Holder::Nobody);
    let without_end = lease(Some("pod"), None);
    assert_eq!(of(Some(&without_end), i64::from(i32::MAX)), other());
}

#[test]
fn the_lease_of_the_bridge_counts_transitions_and_does_not_expire() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let free = lease(Some(""), Some(1)).spec;
    let taken = held(free.as_ref(), OWN, now);
    assert_eq!(taken.lease_transitions, Some(1));
    assert_eq!(taken.lease_duration_seconds, Some(i32::MAX));
    let renewed = taken.renew_time.clone().map(|time| time.0);
    assert!(renewed > "2070-01-01T00:00:00Z".parse().ok());
    let later = now + SignedDuration::from_secs(4);
    let again = held(Some(&taken), OWN, later);
    assert_eq!(again.lease_transitions, Some(1));
    assert_eq!(again.acquire_time, taken.acquire_time);
    assert_ne!(again.renew_time, taken.renew_time);
    let given_up = released(Some(&again), later);
    assert_eq!(given_up.holder_identity.as_deref(), Some(""));
    assert_eq!(given_up.lease_duration_seconds, Some(1));
    assert_eq!(given_up.lease_transitions, Some(1));
}

/// In which dialects a bridge can stand, and that its znode is a candidate there, behind one that stood before.
#[test]
fn a_bridge_stands_in_queues_whose_first_child_leads() {
    let uid = "0c8a5c5e-5c0f-4a3b-9d0e-7b9d9d3a1f11";
    let mut stands = Vec::new();
    for type_ in DialectType::ALL {
        let spec: LeaderElectionSpec = serde_json::from_value(json!({
            "ensembleRef": { "name": "main" },
            "path": "/e",
            "dialect": {
                "type": type_,
                "sequence": { "prefix": "leader-" },
                "json": { "pointers": ["/id"] },
                "custom": { "childPattern": "n-(?P<seq>[0-9]+)", "leaderRule": "First", "order": "Numeric" },
            },
        }))
        .unwrap();
        let rules = Rules::new(Arc::new(spec), None).unwrap();
        let Some(beginning) = rules.bridge_name(uid) else {
            continue;
        };
        let children = [
            format!("{beginning}0000000007"),
            format!("{beginning}0000000003"),
        ];
        let [later, earlier] = &children;
        assert_eq!(rules.candidates(&children), [earlier, later], "{type_:?}");
        stands.push(type_.as_str());
    }
    insta::assert_snapshot!(stands.join(" "));
}
