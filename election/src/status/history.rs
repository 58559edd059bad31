//! The last changes of the leader.

use bellwether_api::election::{EndOfTerm, Leader, PreviousLeader, Transition};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::terms::Outlook;

/// How many are kept.
pub(super) const LENGTH: usize = 10;

/// The history with the present leader at its head. `cause` is what ended the last leader's term if another leads, or nobody.
///
/// Within one term only the known facts of the leader may change: an ephemeral node has one owner for its
/// whole life, and an ACL may stop hiding its data.
pub(super) fn recorded(
    mut history: Vec<Transition>,
    leader: Option<&Leader>,
    cause: Option<EndOfTerm>,
    now: Timestamp,
) -> Vec<Transition> {
    let somebody_led = history.first().is_some_and(|head| head.identity.is_some());
    let present = Transition {
        time: Time(now),
        identity: leader.map(|leader| leader.identity.clone()),
        node: leader.map(|leader| leader.node.clone()),
        fencing_token: leader.and_then(|leader| leader.fencing_token.clone()),
        cause: cause.filter(|_| somebody_led),
    };
    match (history.first_mut(), leader) {
        (None, None) => {}
        (Some(head), None) if head.identity.is_none() => {}
        (Some(head), Some(leader)) if goes_on(head, leader) => {
            head.identity = present.identity;
            head.fencing_token = present.fencing_token.or(head.fencing_token.take());
        }
        _ => {
            history.insert(0, present);
            history.truncate(LENGTH);
        }
    }
    history
}

/// Tells what ended the last term of that leader, as known by now: more than when the next one began.
pub(super) fn settle(history: &mut [Transition], last: &Outlook) {
    let after = after(history, &last.node, last.token.as_deref());
    if let Some(change) = after.and_then(|after| history.get_mut(after)) {
        change.cause = last.cause.or(change.cause);
    }
}

/// Which change ended the last term of the leader with this node and token.
pub(super) fn after(history: &[Transition], node: &str, token: Option<&str>) -> Option<usize> {
    let is_of = |change: &Transition| {
        change.node.as_deref() == Some(node) && change.fencing_token.as_deref() == token
    };
    history.iter().skip(1).position(is_of)
}

/// How many leaders within [`FLAPPING_WITHIN`] are told as flapping. No more than these fit into the [`LENGTH`] of the
/// history if nobody leads between two of them. An election that goes on flapping is written once in four seconds, so that
/// such a history spans up to 32 s.
const FLAPPING: usize = 5;
const FLAPPING_WITHIN: SignedDuration = SignedDuration::from_secs(40);

/// Until when an election with this history counts as one whose leader changes again and again; `None` if it never did.
pub(super) fn flaps_until(history: &[Transition]) -> Option<Timestamp> {
    let mut led = history.iter().filter(|change| change.identity.is_some());
    let first = led.nth(FLAPPING - 1)?.time.0;
    let last = history.first()?.time.0;
    let is_dense = last.duration_since(first) <= FLAPPING_WITHIN;
    is_dense.then(|| last.checked_add(FLAPPING_WITHIN).unwrap_or(Timestamp::MAX))
}

/// The predecessor of a leader whose term was interrupted: the last leader of another term.
pub(super) fn before(history: &[Transition], leader: &Leader) -> Option<PreviousLeader> {
    let mut earlier = history.iter().filter(|entry| !goes_on(entry, leader));
    earlier.find_map(|entry| {
        Some(PreviousLeader {
            identity: entry.identity.clone()?,
            node: entry.node.clone()?,
            fencing_token: entry.fencing_token.clone(),
        })
    })
}

/// Whether the leader is the one that the last change brought.
fn goes_on(head: &Transition, leader: &Leader) -> bool {
    let same_token = match (&head.fencing_token, &leader.fencing_token) {
        (Some(known), Some(token)) => known == token,
        _ => true,
    };
    let same_owner =
        leader.session_id.is_some() || head.identity.as_ref() == Some(&leader.identity);
    head.node.as_ref() == Some(&leader.node) && same_token && same_owner
}
