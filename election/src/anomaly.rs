//! What looks wrong about the znodes of an election.
//!
//! Nothing here changes who leads: the libraries follow their rule whatever the znodes look like, and the
//! mirror shows what they do. An anomaly only asks a person to look.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bellwether_api::election::recipe::Order;
use bellwether_api::election::{Exclusivity, IdentitySource};

use crate::bridge;
use crate::reading::{Candidacy, RankedCandidate, Reading};
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

/// What several nodes have in common, although each should belong to another candidate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Common {
    /// The session that owns them.
    Session(i64),
    /// The id in their names that a client looks for after a create whose reply was lost.
    Guid(String),
    /// The identity in their data, in several sessions.
    Identity(String),
}

/// What looks wrong about the first candidates of an election, the gravest first. `children` is the number of
/// children of the leader's node where the path is that node, else 0.
pub(crate) fn anomalies(rules: &Rules, reading: &Reading, children: i32) -> Vec<Anomaly> {
    let mut found = Vec::new();
    let leader = reading.leader();
    let together = reading.exclusivity == Exclusivity::MultiLeader;
    if let Some(candidacy) = leader.and_then(|candidate| candidate.znode.candidacy())
        && candidacy.session == 0
        && rules.expiry().is_none()
        && !is_bridge(rules, candidacy)
    {
        found.push(Anomaly::NonEphemeral { children });
    }
    if !together {
        found.extend(duplicates(rules, &reading.candidates));
        found.extend(order_anomaly(rules, leader, &reading.candidates));
    }
    let unusual = |sequence: &i32| *sequence < 0 || *sequence >= NEARLY_OVERFLOWN;
    let mut sequences = reading
        .candidates
        .iter()
        .filter_map(|candidate| candidate.sequence);
    if let Some(sequence) = sequences.find(unusual) {
        found.push(Anomaly::SequenceOverflow { sequence });
    }
    let candidates = reading
        .candidates
        .iter()
        .chain(leader.filter(|candidate| !in_queue(reading, candidate)));
    let count = candidates
        .filter(|candidate| candidate.znode.candidacy().is_none())
        .count();
    if count > 0 {
        found.push(Anomaly::Unreadable { count });
    }
    found
}

/// Whether a znode is that of the election's bridge, which has to outlive the operator.
fn is_bridge(rules: &Rules, candidacy: &Candidacy) -> bool {
    rules.spec().bridge.is_some() && candidacy.identity.text.starts_with(bridge::IDENTITY)
}

fn in_queue(reading: &Reading, leader: &RankedCandidate) -> bool {
    reading
        .candidates
        .iter()
        .any(|candidate| candidate.node == leader.node)
}

/// Groups of nodes that belong to the same candidate. Readers are left out: a client may read several times.
fn duplicates(rules: &Rules, candidates: &[RankedCandidate]) -> Vec<Anomaly> {
    let mut groups: BTreeMap<Common, Vec<&RankedCandidate>> = BTreeMap::new();
    for candidate in candidates.iter().filter(|candidate| !candidate.shared) {
        if let Some(guid) = &candidate.guid {
            groups
                .entry(Common::Guid(guid.clone()))
                .or_default()
                .push(candidate);
        }
        let Some(candidacy) = candidate.znode.candidacy() else {
            continue;
        };
        if candidacy.session != 0 {
            groups
                .entry(Common::Session(candidacy.session))
                .or_default()
                .push(candidate);
        }
        if names_one_client(rules, candidacy) {
            let identity = Common::Identity(candidacy.identity.text.clone());
            groups.entry(identity).or_default().push(candidate);
        }
    }
    let mut found: Vec<Anomaly> = Vec::new();
    for (common, candidates) in groups {
        let nodes: Vec<String> = candidates
            .iter()
            .map(|candidate| candidate.node.clone())
            .collect();
        // Nodes that were reported for one reason are not reported again for another.
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

/// Whether only one client can rightly have this identity. Clients on one machine share its address, which
/// some libraries write if they are given nothing else.
fn names_one_client(rules: &Rules, candidacy: &Candidacy) -> bool {
    let told = !matches!(
        candidacy.identity.source,
        IdentitySource::Raw | IdentitySource::Session
    );
    let address = rules.host_identity() && candidacy.identity.text.parse::<IpAddr>().is_ok();
    told && !address
}

/// Whether another candidate was created before the leader. Checked only where the order of the queue is that
/// of the sequence numbers and decides who leads.
fn order_anomaly(
    rules: &Rules,
    leader: Option<&RankedCandidate>,
    candidates: &[RankedCandidate],
) -> Option<Anomaly> {
    let leader = leader.filter(|leader| {
        candidates
            .first()
            .is_some_and(|candidate| candidate.node == leader.node)
    });
    let candidacy = leader?.znode.candidacy()?;
    if rules.data_decides()
        || rules
            .order()
            .is_none_or(|order| order == Order::CreationZxid)
    {
        return None;
    }
    let read = candidates
        .iter()
        .filter_map(|candidate| Some((candidate, candidate.znode.candidacy()?)));
    let (earliest, oldest) = read.min_by_key(|(_, candidacy)| candidacy.czxid)?;
    (oldest.czxid < candidacy.czxid).then(|| Anomaly::OrderAnomaly {
        earliest: earliest.node.clone(),
    })
}
