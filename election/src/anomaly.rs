//! What looks wrong about the znodes of an election.
//!
//! Nothing here changes who leads: the libraries follow their rule whatever the znodes look like,
//! and the mirror shows what they do. It only says that a person should look.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bellwether_api::election::recipe::Order;
use bellwether_api::election::{Exclusivity, IdentitySource};

use crate::reading::{Claim, Reading, Seat};
use crate::rules::Rules;

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
    /// Several nodes are the same candidate's.
    DuplicateCandidate {
        /// What they have in common.
        common: Common,
        /// The nodes in the order of the queue.
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

/// What several nodes have in common that should each be another candidate's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Common {
    /// The session that owns them.
    Session(i64),
    /// The id in their names that a client looks for after a create whose reply was lost.
    Guid(String),
    /// The identity in their data, in several sessions.
    Identity(String),
}

/// What looks wrong about the first candidates of an election, the gravest first. `children` are
/// those of a leader's node that is no candidate's.
pub(crate) fn anomalies(rules: &Rules, reading: &Reading, children: i32) -> Vec<Anomaly> {
    let mut found = Vec::new();
    let leader = reading.leader();
    let together = reading.exclusivity == Exclusivity::MultiLeader;
    if let Some(claim) = leader.and_then(|seat| seat.member.claim())
        && claim.session == 0
        && rules.expiry().is_none()
    {
        found.push(Anomaly::NonEphemeral { children });
    }
    if !together {
        found.extend(duplicates(rules, &reading.seats));
        found.extend(order_anomaly(rules, leader, &reading.seats));
    }
    let unusual = |sequence: &i32| *sequence < 0 || *sequence >= NEARLY_OVERFLOWN;
    let mut sequences = reading.seats.iter().filter_map(|seat| seat.sequence);
    if let Some(sequence) = sequences.find(unusual) {
        found.push(Anomaly::SequenceOverflow { sequence });
    }
    let candidates = reading
        .seats
        .iter()
        .chain(leader.filter(|seat| !in_queue(reading, seat)));
    let count = candidates
        .filter(|seat| seat.member.claim().is_none())
        .count();
    if count > 0 {
        found.push(Anomaly::Unreadable { count });
    }
    found
}

fn in_queue(reading: &Reading, leader: &Seat) -> bool {
    reading.seats.iter().any(|seat| seat.node == leader.node)
}

/// Nodes that are the same candidate's. Readers are left out: a client may read several times.
fn duplicates(rules: &Rules, seats: &[Seat]) -> Vec<Anomaly> {
    let mut groups: BTreeMap<Common, Vec<&Seat>> = BTreeMap::new();
    for seat in seats.iter().filter(|seat| !seat.shared) {
        if let Some(guid) = &seat.guid {
            groups
                .entry(Common::Guid(guid.clone()))
                .or_default()
                .push(seat);
        }
        let Some(claim) = seat.member.claim() else {
            continue;
        };
        if claim.session != 0 {
            groups
                .entry(Common::Session(claim.session))
                .or_default()
                .push(seat);
        }
        if names_one_client(rules, claim) {
            let identity = Common::Identity(claim.identity.text.clone());
            groups.entry(identity).or_default().push(seat);
        }
    }
    let mut found: Vec<Anomaly> = Vec::new();
    for (common, seats) in groups {
        let nodes: Vec<String> = seats.iter().map(|seat| seat.node.clone()).collect();
        // What was said about these nodes is not said again with another reason.
        let told = found.iter().any(|anomaly| match anomaly {
            Anomaly::DuplicateCandidate { nodes: told, .. } => {
                nodes.iter().all(|node| told.contains(node))
            }
            _ => false,
        });
        if nodes.len() > 1 && !told {
            found.push(Anomaly::DuplicateCandidate { common, nodes });
        }
    }
    found
}

/// Whether no other client has this identity by right. Clients on one machine share its address,
/// which some libraries write if they are given nothing else.
fn names_one_client(rules: &Rules, claim: &Claim) -> bool {
    let told = !matches!(
        claim.identity.source,
        IdentitySource::Raw | IdentitySource::Session
    );
    let address = rules.host_identity() && claim.identity.text.parse::<IpAddr>().is_ok();
    told && !address
}

/// Whether the leader should have been another one by the order in which they came. Only where the
/// order of the queue is that of the sequence numbers, and decides.
fn order_anomaly(rules: &Rules, leader: Option<&Seat>, seats: &[Seat]) -> Option<Anomaly> {
    let leader = leader.filter(|leader| seats.first().is_some_and(|seat| seat.node == leader.node));
    let claim = leader?.member.claim()?;
    if rules.marks()
        || rules
            .order()
            .is_none_or(|order| order == Order::CreationZxid)
    {
        return None;
    }
    let read = seats
        .iter()
        .filter_map(|seat| Some((seat, seat.member.claim()?)));
    let (earliest, oldest) = read.min_by_key(|(_, claim)| claim.czxid)?;
    (oldest.czxid < claim.czxid).then(|| Anomaly::OrderAnomaly {
        earliest: earliest.node.clone(),
    })
}
