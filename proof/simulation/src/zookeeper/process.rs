//! A server process and the states of its life.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellwether_ensemble::ServerId;

use super::Event;
use super::disk::Database;
use super::election::{Ballot, Looking};
use super::network::{LinkId, Peers};
use super::types::{Entry, List, ListId, ProcessId, ReconfigurationId, RequestId, Settings, Start};

/// A server process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) start: Start,
    /// The voters in the server's own file, or of the list that it knows as committed, which define its majority.
    pub(super) voters: BTreeMap<ServerId, String>,
    /// The observers in that list.
    pub(super) observers: BTreeSet<ServerId>,
    /// That list, if servers agreed on it while they ran.
    pub(super) list: Option<ListId>,
    /// Its version; 0 for one that has none.
    pub(super) version: i64,
    /// A later list that it has stored and does not know as committed. It needs a majority of both then.
    pub(super) next: Option<List>,
    pub(super) alive: bool,
    pub(super) frozen: bool,
    /// What would have happened to it while it was frozen.
    pub(super) missed: Vec<Event>,
    pub(super) role: Role,
    /// Counts the roles, so that a timer of an earlier one is known.
    pub(super) generation: u64,
    /// `logicalclock`.
    pub(super) round: i64,
    /// `currentVote`.
    pub(super) vote: Ballot,
    pub(super) peers: Peers,
    pub(super) data: Database,
    /// How many entries the flush that is under way makes safe.
    pub(super) flushing: Option<usize>,
    /// The clients' writes that this server has taken and not answered.
    pub(super) requests: BTreeMap<u64, RequestId>,
}

/// What a process is doing.
#[derive(Debug)]
pub(super) enum Role {
    Loading,
    /// It ended by itself, with this message.
    Exited(String),
    Killed,
    Looking(Looking),
    /// Between two roles; other servers still see the state of the previous role.
    Leaving(State),
    Learning(Learning),
    Leading(Leading),
}

/// The state of a server, as its notifications carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Looking,
    Following,
    Leading,
    Observing,
}

/// A follower or observer.
#[derive(Debug)]
pub(super) struct Learning {
    pub(super) leader: ServerId,
    pub(super) stage: Stage,
    /// Counts the stages, for their time-outs.
    pub(super) stages: u64,
    pub(super) link: Option<LinkId>,
    pub(super) epoch: i64,
    /// What arrived between the leader's data and the message that the ensemble is up to date.
    pub(super) buffer: Vec<Buffered>,
    /// What is being written to the disk.
    pub(super) pending: Option<Copy>,
    /// Whether the leader was lost while that was being written, which is noticed at its end.
    pub(super) lost: bool,
}

/// How far a learner is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// Tries to connect.
    Connecting { tries: u32, to: Option<ProcessId> },
    /// Waits for the leader's epoch.
    Registered,
    /// Has promised the epoch.
    Promised,
    /// Copies until then.
    Copying {
        from: Duration,
        until: Duration,
        bytes: u64,
    },
    /// Has everything, and waits for the leader to serve.
    Copied,
    /// Serves.
    Serving,
}

/// A proposal or commit that a learner keeps until it serves.
#[derive(Clone, Copy, Debug)]
pub(super) enum Buffered {
    Proposal(Entry),
    Commit(i64),
    Inform(Entry),
}

/// What a leader sends to a learner that lacks something.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) kind: CopyKind,
    pub(super) entries: Vec<Entry>,
    /// `lastProcessedZxid` of the sender.
    pub(super) zxid: i64,
}

/// How a learner is brought up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyKind {
    /// The entries are added.
    Difference,
    /// What is later than this goes, and then the entries are added.
    Truncation(i64),
    /// The entries replace everything.
    Snapshot,
}

/// A leader.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) stage: Lead,
    /// Whether its port is open.
    pub(super) open: bool,
    pub(super) epoch: i64,
    /// Its history when it began: current epoch and last zxid.
    pub(super) summary: (i64, i64),
    /// The servers whose votes made it leader.
    pub(super) supporters: BTreeSet<ServerId>,
    pub(super) connecting: BTreeSet<ServerId>,
    pub(super) promised: BTreeSet<ServerId>,
    pub(super) copied: BTreeSet<ServerId>,
    pub(super) learners: BTreeMap<LinkId, Learner>,
    /// The proposals that are not committed.
    pub(super) proposals: BTreeMap<i64, Proposal>,
    pub(super) last_proposed: i64,
    /// Whether a look at the number of its followers is due.
    pub(super) checks: bool,
    pub(super) waits_for_epoch: Option<Duration>,
}

/// A proposal that is not committed.
#[derive(Clone, Debug, Default)]
pub(super) struct Proposal {
    /// Who has acknowledged it.
    pub(super) acks: BTreeSet<ServerId>,
    /// The lists of which it needs a majority each.
    pub(super) lists: Vec<BTreeSet<ServerId>>,
    /// The request for another list that it carries out.
    pub(super) of: Option<ReconfigurationId>,
}

impl Proposal {
    pub(super) fn is_decided(&self) -> bool {
        let agrees =
            |list: &BTreeSet<ServerId>| self.acks.intersection(list).count() > list.len() / 2;
        self.lists.iter().all(agrees)
    }
}

/// How far a leader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    /// Reads its data and waits for a majority that connects.
    Epoch,
    /// Waits for a majority that promises the epoch.
    Promise,
    /// Waits for a majority that has its data.
    Copies,
    /// Serves.
    Serving,
}

/// A follower or observer as its leader sees it.
#[derive(Clone, Debug)]
pub(super) struct Learner {
    pub(super) id: ServerId,
    pub(super) observer: bool,
    pub(super) accepted: i64,
    /// The last zxid, once it has promised the epoch.
    pub(super) last: Option<i64>,
    /// Whether data was sent, and everything since is.
    pub(super) forwarding: bool,
    /// Whether it has the data.
    pub(super) copied: bool,
}

impl Process {
    pub(super) fn id(&self) -> ServerId {
        self.start.id
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.start.settings
    }

    /// Whether it observes.
    pub(super) fn observes(&self) -> bool {
        self.observers.contains(&self.id())
    }

    /// Whether it votes by its own file.
    pub(super) fn votes(&self) -> bool {
        !self.observes() && self.voters.contains_key(&self.id())
    }

    /// Whether these servers are a majority of its own list.
    pub(super) fn majority<'a>(&self, ids: impl Iterator<Item = &'a ServerId>) -> bool {
        ids.filter(|id| self.voters.contains_key(id)).count() > self.voters.len() / 2
    }

    /// Whether these servers are a majority of each list by which it judges.
    pub(super) fn decides(&self, ids: &BTreeSet<ServerId>) -> bool {
        let of_next = |next: &List| {
            let named = ids.iter().filter(|id| next.voters.contains_key(id));
            named.count() > next.voters.len() / 2
        };
        self.majority(ids.iter()) && self.next.as_ref().is_none_or(of_next)
    }

    /// The host of a server that one of its lists names.
    pub(super) fn host_of(&self, id: ServerId) -> Option<&String> {
        let of_next = || self.next.as_ref()?.voters.get(&id);
        self.voters.get(&id).or_else(of_next)
    }

    /// The servers that its lists name.
    pub(super) fn known(&self) -> BTreeSet<ServerId> {
        let next = self.next.iter().flat_map(|next| next.voters.keys());
        self.voters.keys().chain(next).copied().collect()
    }

    /// The lists of which a proposal needs a majority each.
    pub(super) fn lists(&self) -> Vec<BTreeSet<ServerId>> {
        let next = self.next.as_ref().map(|next| &next.voters);
        let lists = [&self.voters].into_iter().chain(next);
        lists.map(|list| list.keys().copied().collect()).collect()
    }

    pub(super) fn state(&self) -> State {
        match &self.role {
            Role::Leading(_) => State::Leading,
            Role::Learning(_) if self.observes() => State::Observing,
            Role::Learning(_) => State::Following,
            Role::Leaving(state) => *state,
            _ => State::Looking,
        }
    }

    /// Whether clients are served.
    pub(super) fn serves(&self) -> bool {
        match &self.role {
            Role::Leading(l) => l.stage == Lead::Serving,
            Role::Learning(l) => l.stage == Stage::Serving,
            _ => false,
        }
    }

    pub(super) fn leading(&mut self) -> Option<&mut Leading> {
        match &mut self.role {
            Role::Leading(leading) => Some(leading),
            _ => None,
        }
    }

    pub(super) fn learning(&mut self) -> Option<&mut Learning> {
        match &mut self.role {
            Role::Learning(learning) => Some(learning),
            _ => None,
        }
    }
}
