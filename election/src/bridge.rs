//! The bridge between the candidates in ZooKeeper and those at a Lease: which lock it holds, and what it does next.
//!
//! The bridge holds at least one of the two locks at every moment: the Lease, or a znode before all candidates. Its znode is
//! persistent and its Lease does not expire: while no operator runs, both locks stay held, and a crossing waits.
//!
//! Two operators may act for the same bridge for a moment, and requests of one that died may arrive late. So before one lock is
//! given up, the other one is written, by the version that was read, and then the first is given up by the version that was
//! read before: of two operators that want to give up different locks, each invalidates what the other one read. The model
//! (`proof/model/src/bridge.rs`) shows that this suffices, and that each part of it is needed.

use bellwether_api::conditions::{ConditionStatus, NewCondition};
use bellwether_api::election::{BridgeSide, ConditionType, Reason};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::decode::presentable;
use crate::words::condition;

/// What every bridge's identity begins with, in a Lease and in a znode.
pub const IDENTITY: &str = "bellwether-bridge/";

/// How long the Lease of the bridge lasts, in seconds: candidates of client-go take a Lease that did not change for as long as
/// it says itself (`leaderelection.go`, `isLeaseValid`).
const LEASE_SECONDS: i32 = i32::MAX;

/// How far ahead the Lease of the bridge was renewed: candidates of fabric8 take a Lease whose last renewal is older than a
/// duration of their own (`LeaderElector.java`, `canBecomeLeader`).
const RENEWED_AHEAD: SignedDuration = SignedDuration::from_hours(50 * 365 * 24);

/// The identity of an election's bridge. It holds the uid of the election, so that the bridges of two clusters, or of an
/// election that was deleted and made again, do not give up each other's locks.
pub fn identity(namespace: &str, name: &str, uid: &str) -> String {
    format!("{IDENTITY}{namespace}/{name}/{uid}")
}

/// A znode of the bridge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnZnode {
    /// Its path.
    pub path: String,
    /// The version of its data that was read.
    pub version: i32,
}

/// What the bridge has in ZooKeeper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Its znodes, the first in the queue first. More than one are there after a creation whose answer was lost.
    pub own: Vec<OwnZnode>,
    /// How many candidates are before the first of them; all that there are if it has none.
    pub ahead: usize,
}

/// Who holds the Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// Nobody: it does not exist, names nobody, or was not renewed for its duration.
    Nobody,
    /// The bridge.
    Bridge,
    /// Somebody else.
    Other(String),
}

/// Who holds a Lease that did not change for this long.
///
/// A holder is believed for the duration that the Lease says, as client-go does; one without a duration for ever.
pub fn holder(lease: Option<&Lease>, identity: &str, unchanged_for: SignedDuration) -> Holder {
    let spec = lease.and_then(|lease| lease.spec.as_ref());
    let named = spec.and_then(|spec| spec.holder_identity.as_deref());
    let Some(named) = named.filter(|named| !named.is_empty()) else {
        return Holder::Nobody;
    };
    if named == identity {
        return Holder::Bridge;
    }
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
    let duration = seconds.map(|seconds| SignedDuration::from_secs(seconds.into()));
    match duration.is_some_and(|duration| unchanged_for > duration) {
        true => Holder::Nobody,
        false => Holder::Other(named.to_owned()),
    }
}

/// The spec of the Lease while the bridge holds it.
pub fn held(old: Option<&LeaseSpec>, identity: &str, now: Timestamp) -> LeaseSpec {
    let old = old.cloned().unwrap_or_default();
    let is_held = old.holder_identity.as_deref() == Some(identity);
    let transitions = old.lease_transitions.unwrap_or(0);
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        acquire_time: match is_held {
            true => old.acquire_time,
            false => Some(MicroTime(now)),
        },
        renew_time: Some(MicroTime(
            now.checked_add(RENEWED_AHEAD).unwrap_or(Timestamp::MAX),
        )),
        lease_transitions: Some(match is_held {
            true => transitions,
            false => transitions.saturating_add(1),
        }),
        ..old
    }
}

/// The spec of the Lease when the bridge has given it up: as client-go leaves it (`release`).
pub fn released(old: Option<&LeaseSpec>, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        renew_time: Some(MicroTime(now)),
        acquire_time: Some(MicroTime(now)),
        ..old.cloned().unwrap_or_default()
    }
}

/// What the bridge does next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// It creates its znode.
    CreateZnode,
    /// It deletes a znode that stands behind another one of its own.
    DeleteSurplus(OwnZnode),
    /// It takes the Lease, which nobody holds.
    TakeLease,
    /// It writes the Lease that it holds again, for candidates that judge by the last change alone.
    RenewLease,
    /// It gives the Lease up: it writes its znode, by the version that was read, and then the Lease, by the version that was
    /// read.
    GiveUpLease(OwnZnode),
    /// It gives its znode up: it writes the Lease, by the version that was read, and then deletes the znode, by the version
    /// that was read.
    GiveUpZnode(OwnZnode),
}

/// What the bridge does next about the side that shall lead, and what is told.
///
/// A lock is given up only where the other one is held as well: the Lease where the bridge's znode is before all candidates, the
/// znode where the bridge holds the Lease.
pub fn cross(
    side: BridgeSide,
    place: &Place,
    holder: &Holder,
    lease: &str,
) -> (Option<Act>, NewCondition) {
    use ConditionStatus::{False, True};
    let (own, ahead) = (place.own.first(), place.ahead);
    let stands_first = own.is_some() && ahead == 0;
    let before = match ahead {
        1 => "1 candidate in ZooKeeper is".to_owned(),
        more => format!("{more} candidates in ZooKeeper are"),
    };
    let two = |holder: &str| {
        format!(
            "{} holds the Lease {lease}, and the bridge has no znode before the candidates in ZooKeeper.",
            presentable(holder)
        )
    };
    let take = || {
        let what = format!("Nobody holds the Lease {lease}; the bridge takes it.");
        (
            Some(Act::TakeLease),
            bridged(False, Reason::Crossing, &what),
        )
    };
    let (act, told) = match (side, holder) {
        (BridgeSide::ZooKeeper, Holder::Nobody) => take(),
        (BridgeSide::Kubernetes, Holder::Nobody) if !stands_first => take(),
        (_, Holder::Other(holder)) if !stands_first => {
            let create = side == BridgeSide::Kubernetes && own.is_none();
            (
                create.then_some(Act::CreateZnode),
                bridged(False, Reason::TwoMayLead, &two(holder)),
            )
        }
        (BridgeSide::ZooKeeper, Holder::Bridge) => match own {
            Some(own) => (
                Some(Act::GiveUpZnode(own.clone())),
                bridged(
                    False,
                    Reason::Crossing,
                    &format!("The bridge holds the Lease {lease} and gives its znode up."),
                ),
            ),
            None => (
                Some(Act::RenewLease),
                bridged(
                    True,
                    Reason::ZooKeeperLeads,
                    &format!("The bridge holds the Lease {lease}; candidates in ZooKeeper lead."),
                ),
            ),
        },
        (BridgeSide::ZooKeeper, Holder::Other(holder)) => (
            None,
            bridged(
                False,
                Reason::LeaseHeld,
                &format!("{} holds the Lease {lease}.", presentable(holder)),
            ),
        ),
        (BridgeSide::Kubernetes, Holder::Bridge) => match own {
            None => (
                Some(Act::CreateZnode),
                bridged(
                    False,
                    Reason::CandidatesAhead,
                    &format!(
                        "The bridge holds the Lease {lease}, and stands for election in ZooKeeper; {before} before it."
                    ),
                ),
            ),
            Some(own) if ahead == 0 => (
                Some(Act::GiveUpLease(own.clone())),
                bridged(
                    False,
                    Reason::Crossing,
                    &format!(
                        "The bridge's znode is before all candidates, and it gives the Lease {lease} up."
                    ),
                ),
            ),
            Some(_) => (
                Some(Act::RenewLease),
                bridged(
                    False,
                    Reason::CandidatesAhead,
                    &format!("The bridge holds the Lease {lease}; {before} before its znode."),
                ),
            ),
        },
        (BridgeSide::Kubernetes, Holder::Nobody | Holder::Other(_)) => {
            let by = match holder {
                Holder::Other(holder) => format!("{} holds", presentable(holder)),
                _ => "nobody holds".to_owned(),
            };
            (
                None,
                bridged(
                    True,
                    Reason::KubernetesLeads,
                    &format!(
                        "The bridge's znode is before all candidates in ZooKeeper; {by} the Lease {lease}."
                    ),
                ),
            )
        }
    };
    let surplus = place.own.get(1).cloned().map(Act::DeleteSurplus);
    (surplus.or(act), told)
}

/// The condition `Bridged` where the bridge cannot do what it has to, which is told in a sentence.
pub fn failed(what: &str) -> NewCondition {
    bridged(ConditionStatus::Unknown, Reason::BridgeFailed, what)
}

/// The condition `Bridged` where the administrator does not allow bridges.
pub fn not_allowed() -> NewCondition {
    let what = "The administrator did not allow elections to move between ZooKeeper and Leases.";
    bridged(ConditionStatus::False, Reason::BridgeNotAllowed, what)
}

fn bridged(status: ConditionStatus, reason: Reason, what: &str) -> NewCondition {
    condition(ConditionType::Bridged, status, reason, what)
}

#[cfg(test)]
mod tests;
