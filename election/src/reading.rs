//! From a snapshot of znodes to what it says: the queue, its head, and what looks wrong.

use std::collections::HashMap;

use bellwether_api::election::{Dialect, LeaderElectionSpec};
use jiff::Timestamp;

use crate::anomaly::{Anomaly, anomalies};
use crate::decode::Identity;
use crate::dialect::{Ranked, Shape, rank, recipe};

/// What ZooKeeper tells about a znode, as far as an election needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStat {
    /// The transaction that created it.
    pub czxid: i64,
    /// The transaction that last changed its data.
    pub mzxid: i64,
    /// The transaction that last changed its children.
    pub pzxid: i64,
    /// When it was created, in milliseconds since 1970, by the server's clock.
    pub ctime: i64,
    /// The session that owns it, or 0 if it is not ephemeral.
    pub ephemeral_owner: i64,
    /// How many children it has.
    pub children: i32,
}

impl NodeStat {
    /// The newest transaction that the stat reflects.
    pub fn newest(&self) -> i64 {
        self.czxid.max(self.mzxid).max(self.pzxid)
    }
}

/// A candidate's node as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The transaction that created the node: its fencing token.
    pub czxid: i64,
    /// When it was created, by the server's clock; `None` if that is no valid time.
    pub created: Option<Timestamp>,
    /// The session that owns it, or 0 if it is not ephemeral.
    pub session: i64,
    /// Who the candidate is.
    pub identity: Identity,
}

impl Claim {
    /// Reads a candidate's node in the given dialect.
    pub fn read(dialect: &Dialect, node: &str, stat: &NodeStat, data: &[u8]) -> Self {
        let decoder = recipe(dialect.type_).identity;
        Self {
            czxid: stat.czxid,
            created: Timestamp::from_millisecond(stat.ctime).ok(),
            session: stat.ephemeral_owner,
            identity: Identity::decode(decoder, data, stat.ephemeral_owner, node),
        }
    }
}

/// A candidate's node: what it says, or that it may not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Member {
    /// It was read.
    Read(Claim),
    /// The ACL hides it.
    Hidden,
}

/// Where the acknowledgement of an election is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where<'s> {
    /// It is a child of the election's path, with this name. Watching the children covers it.
    Child(&'s str),
    /// It is another znode, with this path.
    Elsewhere(&'s str),
}

/// Where the acknowledgement of an election is, if its spec names one.
pub fn acknowledgement(spec: &LeaderElectionSpec) -> Option<Where<'_>> {
    let named = spec.dialect.acknowledgement.as_deref()?;
    if !named.starts_with('/') {
        return Some(Where::Child(named));
    }
    let child = named
        .strip_prefix(&spec.path)
        .and_then(|rest| rest.strip_prefix('/'));
    Some(match child {
        Some(child) if !child.contains('/') => Where::Child(child),
        _ => Where::Elsewhere(named),
    })
}

/// The acknowledgement as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// It does not exist.
    Absent,
    /// It exists; the owner is the session of an ephemeral node, or 0.
    Present {
        /// The session that owns it, or 0 if it is not ephemeral.
        owner: i64,
    },
}

/// The znodes of an election at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Snapshot {
    /// The path does not exist.
    Missing {
        /// The newest transaction that was seen.
        zxid: i64,
    },
    /// The path is itself the node of the leader.
    Node {
        /// What the node says.
        claim: Claim,
        /// How many children it has: an ephemeral node has none.
        children: i32,
        /// The newest transaction that was seen.
        zxid: i64,
    },
    /// The path is the parent of a queue.
    Queue {
        /// The names of all children.
        children: Vec<String>,
        /// What was read of the first of them in the order of the dialect. A candidate that is
        /// missing here was not read because it is far behind.
        members: HashMap<String, Member>,
        /// The acknowledgement, if the spec names one.
        acknowledgement: Option<Acknowledgement>,
        /// The newest transaction that was seen.
        zxid: i64,
    },
}

/// A candidate in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The name of its node.
    pub node: String,
    /// The number in the name; `None` for the dialect without a queue.
    pub sequence: Option<i32>,
    /// What its node says.
    pub member: Member,
}

/// What a snapshot says in its dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Whether the path exists.
    pub exists: bool,
    /// The first candidates, the leader first.
    pub seats: Vec<Seat>,
    /// How many candidates there are.
    pub candidate_count: usize,
    /// How many children are no candidates.
    pub unmatched: usize,
    /// Whether the leader acknowledged, if the spec names an acknowledgement.
    pub acknowledged: Option<bool>,
    /// Whether an acknowledgement exists that is not the leader's.
    pub foreign_acknowledgement: bool,
    /// What looks wrong, the gravest first.
    pub anomalies: Vec<Anomaly>,
    /// The newest transaction that was seen.
    pub zxid: i64,
}

/// Reads a snapshot in the dialect of the spec.
pub fn read_election(spec: &LeaderElectionSpec, snapshot: &Snapshot) -> Reading {
    let mut reading = match snapshot {
        Snapshot::Missing { zxid } => Reading {
            exists: false,
            ..nothing(*zxid)
        },
        Snapshot::Node { claim, zxid, .. } => Reading {
            seats: vec![Seat {
                node: last_name(&spec.path).to_owned(),
                sequence: None,
                member: Member::Read(claim.clone()),
            }],
            candidate_count: 1,
            ..nothing(*zxid)
        },
        Snapshot::Queue {
            children,
            members,
            acknowledgement,
            zxid,
        } => read_queue(spec, children, members, *acknowledgement, *zxid),
    };
    let children = match snapshot {
        Snapshot::Node { children, .. } => *children,
        _ => 0,
    };
    reading.anomalies = anomalies(&reading.seats, children);
    reading
}

/// A path that exists with nothing in it.
fn nothing(zxid: i64) -> Reading {
    Reading {
        exists: true,
        seats: Vec::new(),
        candidate_count: 0,
        unmatched: 0,
        acknowledged: None,
        foreign_acknowledgement: false,
        anomalies: Vec::new(),
        zxid,
    }
}

fn read_queue(
    spec: &LeaderElectionSpec,
    children: &[String],
    members: &HashMap<String, Member>,
    acknowledgement: Option<Acknowledgement>,
    zxid: i64,
) -> Reading {
    let queue = rank(&spec.dialect, candidates_among(spec, children));
    let seats: Vec<Seat> = queue
        .order
        .iter()
        .take(usize::try_from(spec.max_candidates).unwrap_or(0).max(1))
        .map(|Ranked { node, sequence }| Seat {
            node: node.clone(),
            sequence: Some(*sequence),
            member: members.get(node).cloned().unwrap_or(Member::Hidden),
        })
        .collect();
    let leader = seats.first().map(|seat| match &seat.member {
        Member::Read(claim) => Some(claim.session),
        Member::Hidden => None,
    });
    let mine = |owner: i64| match leader {
        None => false,
        // An acknowledgement that outlives sessions, or a leader whose session is hidden.
        Some(None) => true,
        Some(Some(session)) => owner == 0 || owner == session,
    };
    let (acknowledged, foreign) = match acknowledgement {
        None => (None, false),
        Some(Acknowledgement::Absent) => (Some(false), false),
        Some(Acknowledgement::Present { owner }) => (Some(mine(owner)), !mine(owner)),
    };
    Reading {
        seats,
        candidate_count: queue.order.len(),
        unmatched: queue.unmatched,
        acknowledged,
        foreign_acknowledgement: foreign,
        ..nothing(zxid)
    }
}

/// The children that may be candidates: all but the acknowledgement.
pub(crate) fn candidates_among<'c>(
    spec: &LeaderElectionSpec,
    children: &'c [String],
) -> impl Iterator<Item = &'c str> {
    let acknowledgement = match acknowledgement(spec) {
        Some(Where::Child(name)) => Some(name.to_owned()),
        _ => None,
    };
    children
        .iter()
        .map(String::as_str)
        .filter(move |child| Some(*child) != acknowledgement.as_deref())
}

impl Snapshot {
    /// The children whose nodes a snapshot of this election has to hold, the leader first.
    pub fn wanted(spec: &LeaderElectionSpec, children: &[String]) -> Vec<String> {
        let wanted = usize::try_from(spec.max_candidates).unwrap_or(0).max(1);
        let queue = rank(&spec.dialect, candidates_among(spec, children));
        queue
            .order
            .into_iter()
            .take(wanted)
            .map(|ranked| ranked.node)
            .collect()
    }

    /// Whether the election of this spec is one node and not a queue.
    pub fn is_node(spec: &LeaderElectionSpec) -> bool {
        matches!(recipe(spec.dialect.type_).shape, Shape::Node)
    }
}

fn last_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
