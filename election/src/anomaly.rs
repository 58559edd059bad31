//! What looks wrong about the znodes of an election.
//!
//! Nothing here changes who leads: the libraries follow their rule whatever the znodes look like,
//! and the mirror shows what they do. It only says that a person should look.

use std::collections::BTreeMap;

use crate::reading::{Claim, Member, Seat};

/// From this sequence number on the mirror warns: 80 % of what a signed 32-bit counter can hold.
const NEARLY_OVERFLOWN: i32 = i32::MAX / 5 * 4;

/// Something about the znodes that looks wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// The leader's node is not ephemeral.
    NonEphemeral {
        /// How many children it has.
        children: i32,
    },
    /// One session holds several nodes.
    DuplicateCandidate {
        /// The session.
        session: i64,
        /// Its nodes in the order of the queue.
        nodes: Vec<String>,
    },
    /// A candidate that came before the leader stands behind it.
    OrderAnomaly {
        /// The node of the candidate that came first.
        earliest: String,
    },
    /// A sequence number is negative or nearly the largest possible.
    SequenceOverflow {
        /// The number farthest from the usual.
        sequence: i32,
    },
    /// Candidates whose nodes the ACL hides.
    Unreadable {
        /// How many.
        count: usize,
    },
}

/// What looks wrong about the first candidates of an election, the gravest first.
pub(crate) fn anomalies(seats: &[Seat], children: i32) -> Vec<Anomaly> {
    let claims: Vec<(&Seat, &Claim)> = seats
        .iter()
        .filter_map(|seat| match &seat.member {
            Member::Read(claim) => Some((seat, claim)),
            Member::Hidden => None,
        })
        .collect();
    let mut found = Vec::new();
    if let Some(Seat {
        member: Member::Read(claim),
        ..
    }) = seats.first()
        && claim.session == 0
    {
        found.push(Anomaly::NonEphemeral { children });
    }
    let mut by_session: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for (seat, claim) in claims.iter().filter(|(_, claim)| claim.session != 0) {
        by_session
            .entry(claim.session)
            .or_default()
            .push(seat.node.clone());
    }
    found.extend(
        by_session
            .into_iter()
            .filter(|(_, nodes)| nodes.len() > 1)
            .map(|(session, nodes)| Anomaly::DuplicateCandidate { session, nodes }),
    );
    let earliest = claims.iter().min_by_key(|(_, claim)| claim.czxid);
    if let (Some((first, claim)), Some((earliest, oldest))) = (claims.first(), earliest)
        && seats.first() == Some(*first)
        && oldest.czxid < claim.czxid
    {
        found.push(Anomaly::OrderAnomaly {
            earliest: earliest.node.clone(),
        });
    }
    let unusual = |sequence: &i32| *sequence < 0 || *sequence >= NEARLY_OVERFLOWN;
    if let Some(sequence) = seats.iter().filter_map(|seat| seat.sequence).find(unusual) {
        found.push(Anomaly::SequenceOverflow { sequence });
    }
    let hidden = seats.len() - claims.len();
    if hidden > 0 {
        found.push(Anomaly::Unreadable { count: hidden });
    }
    found
}
