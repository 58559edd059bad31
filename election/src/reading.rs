//! From a snapshot of znodes to what it says: the queue, who leads, and what looks wrong.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use bellwether_api::election::recipe::Order;
use bellwether_api::election::{DialectType, Exclusivity, IdentitySource};
use jiff::Timestamp;

use crate::anomaly::{Anomaly, anomalies};
use crate::decode::Identity;
use crate::dialect::{CandidateName, Detection};
use crate::rules::{MAX_READ, Place, Rules, ZnodeLocation, last_name};

/// The fields of a znode's stat that an election needs.
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
    /// When its data was last written, in milliseconds since 1970, by the server's clock.
    pub mtime: i64,
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

    /// The transaction that made its owner the leader, where the node alone makes one: an ephemeral node has
    /// one owner for its whole life, and any other node belongs to the client that wrote its data last.
    pub(crate) fn owned_by(&self) -> i64 {
        match self.ephemeral_owner {
            0 => self.czxid.max(self.mzxid),
            _ => self.czxid,
        }
    }
}

/// A candidacy: what a candidate's node contains, or the node in which a leader registered itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    /// The transaction that created the node.
    pub czxid: i64,
    /// The fencing token of a leader with this node: the transaction that created it, or, where
    /// its data makes it the leader's, the one that wrote the data.
    pub token: i64,
    /// When it was created, by the server's clock; `None` if that is no valid time.
    pub created: Option<Timestamp>,
    /// When its owner had to run at the latest, by the server's clock: when it created an ephemeral
    /// node, or last wrote one that outlives sessions.
    pub owned: Option<Timestamp>,
    /// The session that owns it, or 0 if it is not ephemeral.
    pub session: i64,
    /// Who the candidate is.
    pub identity: Identity,
    /// Whether its data lets it lead. True where the dialect does not ask the data.
    pub leads: bool,
    /// Whether its data says that all candidates lead.
    pub all_lead: bool,
    /// Until when it leads, if its data says that.
    pub expires: Option<Timestamp>,
}

/// A candidate's node: its candidacy, or that the ACL hides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CandidateNode {
    /// It was read. The reader, the list of candidates and the leader share the candidacy.
    Read(Arc<Candidacy>),
    /// The ACL hides it.
    Hidden,
}

impl From<Candidacy> for CandidateNode {
    fn from(candidacy: Candidacy) -> Self {
        Self::Read(Arc::new(candidacy))
    }
}

impl CandidateNode {
    /// The candidacy, if the node may be read.
    pub fn candidacy(&self) -> Option<&Candidacy> {
        match self {
            Self::Read(candidacy) => Some(candidacy),
            Self::Hidden => None,
        }
    }
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

/// The node in which the leader registers itself, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// It does not exist.
    Absent,
    /// It exists.
    Present(CandidateNode),
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
        candidacy: Candidacy,
        /// How many children it has: an ephemeral node has none.
        children: i32,
        /// The newest transaction that was seen.
        zxid: i64,
    },
    /// The path is the parent of a queue.
    Queue {
        /// The names of all children.
        children: Vec<String>,
        /// What was read of those that [`Rules::wanted`] names. A candidate that is missing here
        /// was not read because it is far behind.
        znodes: HashMap<String, CandidateNode>,
        /// The acknowledgement, if the rules require one.
        acknowledgement: Option<Acknowledgement>,
        /// The registration of the leader, if the rules require one.
        registration: Option<Registration>,
        /// The newest transaction that was seen.
        zxid: i64,
    },
}

/// A candidate in its place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankedCandidate {
    /// The name of its node; the path of a registration that is not among the children.
    pub node: String,
    /// The number in the name; `None` without one.
    pub sequence: Option<i32>,
    /// What a client looks for after a create whose reply was lost, if the name contains it.
    pub guid: Option<String>,
    /// The session in the name, which only counts where the node may not be read.
    pub named_session: Option<i64>,
    /// Whether it holds the election together with others of its kind.
    pub shared: bool,
    /// What its node says.
    pub znode: CandidateNode,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There are no candidates.
    Nobody,
    /// This one.
    Leader(Box<RankedCandidate>),
    /// The first candidates hold the election together.
    Together {
        /// How many they are.
        holders: usize,
    },
    /// There are candidates, but no leader is registered.
    Unregistered {
        /// Whose registration is there all the same: a candidate's that does not lead any more.
        left_by: Option<String>,
    },
    /// There are candidates, but the data of none says that it leads.
    NotActive,
    /// All candidates would have to be read to know, and there are more than [`MAX_READ`].
    TooMany,
    /// All candidates would have to be read to know, and the ACL hides some.
    Hidden {
        /// How many.
        count: usize,
    },
    /// The dialect is not known.
    UnknownDialect,
}

/// What a snapshot says in its dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The dialect that it was read in; `None` if that is not known.
    pub dialect: Option<DialectType>,
    /// What was detected, if the spec leaves the dialect open.
    pub detection: Option<Detection>,
    /// Whether the path exists.
    pub exists: bool,
    /// Who leads.
    pub verdict: Verdict,
    /// Whether at most one can lead.
    pub exclusivity: Exclusivity,
    /// The first candidates in the order in which they come to lead.
    pub candidates: Vec<RankedCandidate>,
    /// How many candidates there are.
    pub candidate_count: usize,
    /// How many children are no candidates.
    pub unmatched: usize,
    /// The znode where the leader registers itself, if that decides: a path, or a child's name.
    pub leader_path: Option<String>,
    /// The acknowledgement as the spec or the recipe names it.
    pub acknowledgement: Option<String>,
    /// Whether the leader acknowledged; `None` if the rules require no acknowledgement. Hadoop's leader does so by writing
    /// the breadcrumb.
    pub acknowledged: Option<bool>,
    /// Whether an acknowledgement exists that is not the leader's.
    pub foreign_acknowledgement: bool,
    /// What looks wrong, the gravest first.
    pub anomalies: Vec<Anomaly>,
    /// Who was active last, if the dialect has a node for that and it exists.
    pub last_active: Option<Candidacy>,
    /// From where sessions are connected, as far as that was asked for.
    pub addresses: BTreeMap<i64, IpAddr>,
    /// How many sessions watch the leader's node, if that was asked for.
    pub watchers: Option<usize>,
    /// The newest transaction that was seen.
    pub zxid: i64,
}

impl Reading {
    /// The sessions of listed candidates that nothing but their session identifies.
    pub fn anonymous(&self) -> BTreeSet<i64> {
        let leader = self.leader().into_iter();
        let candidacies = leader
            .chain(&self.candidates)
            .filter_map(|candidate| candidate.znode.candidacy());
        candidacies
            .filter(|candidacy| candidacy.identity.source == IdentitySource::Session)
            .map(|candidacy| candidacy.session)
            .collect()
    }

    /// The leader, if one candidate leads alone.
    pub fn leader(&self) -> Option<&RankedCandidate> {
        match &self.verdict {
            Verdict::Leader(candidate) => Some(candidate.as_ref()),
            _ => None,
        }
    }
}

/// Reads a snapshot by the rules of its election.
pub fn read_election(rules: &Rules, snapshot: &Snapshot) -> Reading {
    match snapshot {
        Snapshot::Missing { zxid } => Reading {
            exists: false,
            ..nothing(rules, *zxid)
        },
        Snapshot::Node {
            candidacy,
            children,
            zxid,
        } => read_node(rules, candidacy, *children, *zxid),
        Snapshot::Queue {
            children,
            znodes,
            acknowledgement,
            registration,
            zxid,
        } => {
            let registration = registration.as_ref();
            read_queue(
                rules,
                children,
                znodes,
                *acknowledgement,
                registration,
                *zxid,
            )
        }
    }
}

/// A path that exists with nothing in it.
fn nothing(rules: &Rules, zxid: i64) -> Reading {
    Reading {
        dialect: rules.dialect(),
        detection: rules.detection().cloned(),
        exists: true,
        verdict: Verdict::Nobody,
        exclusivity: if rules.may_share() || rules.place() == Place::Unknown {
            Exclusivity::Unknown
        } else {
            Exclusivity::Exclusive
        },
        candidates: Vec::new(),
        candidate_count: 0,
        unmatched: 0,
        leader_path: rules.leader_path().map(ZnodeLocation::into_name),
        acknowledgement: rules.acknowledgement_name().map(str::to_owned),
        acknowledged: None,
        foreign_acknowledgement: false,
        anomalies: Vec::new(),
        last_active: None,
        addresses: BTreeMap::new(),
        watchers: None,
        zxid,
    }
}

fn read_node(rules: &Rules, candidacy: &Candidacy, children: i32, zxid: i64) -> Reading {
    let candidate = RankedCandidate::plain(
        last_name(&rules.spec().path),
        CandidateNode::from(candidacy.clone()),
    );
    let mut reading = Reading {
        verdict: if candidacy.leads {
            Verdict::Leader(Box::new(candidate.clone()))
        } else {
            Verdict::NotActive
        },
        candidates: vec![candidate],
        candidate_count: 1,
        ..nothing(rules, zxid)
    };
    reading.anomalies = anomalies(rules, &reading, children);
    reading
}

fn read_queue(
    rules: &Rules,
    children: &[String],
    znodes: &HashMap<String, CandidateNode>,
    acknowledgement: Option<Acknowledgement>,
    registration: Option<&Registration>,
    zxid: i64,
) -> Reading {
    let Some(mut queue) = rules.rank(children) else {
        return Reading {
            verdict: if children.is_empty() {
                Verdict::Nobody
            } else {
                Verdict::UnknownDialect
            },
            unmatched: children.len(),
            ..nothing(rules, zxid)
        };
    };
    let count = queue.order.len();
    if rules.order() == Some(Order::CreationZxid) {
        let candidacy =
            |ranked: &CandidateName<'_>| znodes.get(ranked.node).and_then(CandidateNode::candidacy);
        // Candidates that were not read come last; whether one leads then is decided below.
        queue
            .order
            .sort_by_key(|ranked| candidacy(ranked).map_or(i64::MAX, |candidacy| candidacy.czxid));
    }
    let mut candidates: Vec<RankedCandidate> = queue
        .order
        .iter()
        .take(if rules.reads_all() {
            MAX_READ
        } else {
            rules.max_candidates()
        })
        .map(|ranked| RankedCandidate::from_name(ranked, znodes))
        .collect();
    let verdict = match registration {
        Some(registration) => registered(rules, registration, &candidates, count),
        None if rules.reads_all() => first_of_all(rules, &candidates, count),
        None => first(&candidates, &queue.order),
    };
    candidates.truncate(rules.max_candidates());
    let mut reading = Reading {
        verdict,
        candidates,
        candidate_count: count,
        unmatched: queue.unmatched,
        ..nothing(rules, zxid)
    };
    reading.exclusivity = match &reading.verdict {
        Verdict::Together { .. } => Exclusivity::MultiLeader,
        Verdict::Leader(candidate) if candidate.znode.candidacy().is_some() => {
            Exclusivity::Exclusive
        }
        _ => reading.exclusivity,
    };
    (reading.acknowledged, reading.foreign_acknowledgement) =
        acknowledged(reading.leader(), acknowledgement);
    reading.anomalies = anomalies(rules, &reading, 0);
    reading
}

/// Who leads in a dialect where the first candidate of the queue leads.
fn first(candidates: &[RankedCandidate], order: &[CandidateName<'_>]) -> Verdict {
    let Some(head) = candidates.first() else {
        return Verdict::Nobody;
    };
    if head
        .znode
        .candidacy()
        .is_some_and(|candidacy| candidacy.all_lead)
    {
        let holders = order.len();
        return Verdict::Together { holders };
    }
    if head.shared {
        let holders = order.iter().take_while(|ranked| ranked.shared).count();
        return Verdict::Together { holders };
    }
    Verdict::Leader(Box::new(head.clone()))
}

/// Who leads in a dialect where all candidates have to be read to know that.
fn first_of_all(rules: &Rules, candidates: &[RankedCandidate], count: usize) -> Verdict {
    if count > MAX_READ {
        return Verdict::TooMany;
    }
    let hidden = candidates
        .iter()
        .filter(|candidate| candidate.znode.candidacy().is_none())
        .count();
    if hidden > 0 {
        return Verdict::Hidden { count: hidden };
    }
    let leads = |candidate: &&RankedCandidate| {
        candidate
            .znode
            .candidacy()
            .is_some_and(|candidacy| candidacy.leads)
    };
    match candidates.iter().find(leads) {
        Some(candidate) => Verdict::Leader(Box::new(candidate.clone())),
        None if rules.data_decides() && count > 0 => Verdict::NotActive,
        None => Verdict::Nobody,
    }
}

/// Who leads where the leader registers itself.
///
/// Where a library decides by the queue, a client that loses its place in the queue and keeps its session leaves its
/// registration behind, such as Flink's `connection_info`. The registration is ignored while its session waits behind the
/// first candidate. A session that has no candidate is believed: the application may register with another session.
fn registered(
    rules: &Rules,
    registration: &Registration,
    candidates: &[RankedCandidate],
    count: usize,
) -> Verdict {
    match registration {
        Registration::Absent if count == 0 => Verdict::Nobody,
        Registration::Absent => Verdict::Unregistered { left_by: None },
        Registration::Present(CandidateNode::Read(left))
            if rules.head_leads() && waits(left.session, candidates) =>
        {
            Verdict::Unregistered {
                left_by: Some(left.identity.text.clone()),
            }
        }
        Registration::Present(znode) => {
            let node = rules
                .leader_path()
                .map(ZnodeLocation::into_name)
                .unwrap_or_default();
            Verdict::Leader(Box::new(RankedCandidate::plain(&node, znode.clone())))
        }
    }
}

/// Whether a session waits in the queue, and does not stand first in it.
fn waits(session: i64, candidates: &[RankedCandidate]) -> bool {
    let mut sessions = candidates.iter().map(|candidate| {
        candidate
            .znode
            .candidacy()
            .map(|candidacy| candidacy.session)
    });
    let first = sessions.next().flatten();
    session != 0
        && first.is_some_and(|first| first != session)
        && sessions.any(|other| other == Some(session))
}

/// Whether the leader acknowledged, and whether another client did.
fn acknowledged(
    leader: Option<&RankedCandidate>,
    acknowledgement: Option<Acknowledgement>,
) -> (Option<bool>, bool) {
    let mine = |owner: i64| match leader.map(|candidate| candidate.znode.candidacy()) {
        None => false,
        // A leader whose session is hidden, or an acknowledgement that outlives sessions.
        Some(None) => true,
        Some(Some(candidacy)) => owner == 0 || owner == candidacy.session,
    };
    match acknowledgement {
        None => (None, false),
        Some(Acknowledgement::Absent) => (Some(false), false),
        Some(Acknowledgement::Present { owner }) => (Some(mine(owner)), !mine(owner)),
    }
}

impl RankedCandidate {
    fn from_name(ranked: &CandidateName<'_>, znodes: &HashMap<String, CandidateNode>) -> Self {
        Self {
            node: ranked.node.to_owned(),
            sequence: ranked.sequence,
            guid: ranked.guid.map(str::to_owned),
            named_session: ranked.session,
            shared: ranked.shared,
            znode: znodes
                .get(ranked.node)
                .cloned()
                .unwrap_or(CandidateNode::Hidden),
        }
    }

    /// A candidate whose node is outside of any queue.
    pub(crate) fn plain(node: &str, znode: CandidateNode) -> Self {
        Self {
            node: node.to_owned(),
            sequence: None,
            guid: None,
            named_session: None,
            shared: false,
            znode,
        }
    }
}

#[cfg(test)]
mod tests;
