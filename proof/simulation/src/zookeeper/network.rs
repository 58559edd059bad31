//! Names, cuts, connections and messages between servers.
//!
//! Connections are TCP's: what is sent while a link is cut arrives when it heals, unless one side gave
//! up before. Heartbeats are no events: when a side of a connection stops hearing the other, the
//! moment at which it gives up is known at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellwether_ensemble::ServerId;

use super::election::Notification;
use super::links::Link;
use super::process::{Copy, Role};
use super::types::{Entry, ListId, ProcessId};
use super::{Event, Timer, Zoo};

/// A learner's connection to a leader.
pub(super) type LinkId = u64;

/// Which of a server's ports a message goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Port {
    Election,
    Quorum,
}

/// What one server sends to another.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// A server opens a connection between election ports and says who it is.
    Dial(ServerId),
    Notice(Notification),
    /// The connection between election ports is gone.
    ElectionClosed(ServerId),
    /// Belongs to a learner's connection to its leader.
    Quorum(LinkId, Packet),
}

/// What a learner and its leader send each other.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    /// `FOLLOWERINFO` and `OBSERVERINFO`.
    Register {
        id: ServerId,
        observer: bool,
        accepted: i64,
    },
    /// `LEADERINFO`.
    Epoch(i64),
    /// `ACKEPOCH`.
    Promise {
        current: i64,
        last: i64,
    },
    /// The copying begins and will take until then.
    Copying {
        until: Duration,
        bytes: u64,
    },
    /// `DIFF`, `TRUNC` or `SNAP` with what belongs to it, and `NEWLEADER`.
    Copy(Copy),
    /// The acknowledgement of `NEWLEADER`.
    Copied,
    /// `UPTODATE`, with the list of the leader.
    UpToDate(Option<ListId>),
    Propose(Entry),
    Ack(i64),
    Commit(i64),
    Inform(Entry),
    /// A client's write.
    Request(u64),
    Closed,
}

/// A server's connections between election ports.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// The process at the other end.
    pub(super) open: BTreeMap<ServerId, ProcessId>,
    /// The newest notification that could not be sent.
    pub(super) unsent: BTreeMap<ServerId, Notification>,
    /// The last one sent; it is sent again on a new connection.
    pub(super) sent: BTreeMap<ServerId, Notification>,
    /// Attempts that wait for a silent address.
    pub(super) dialing: BTreeMap<ServerId, Duration>,
    /// Connections to processes that ended without closing them.
    pub(super) doomed: BTreeMap<ServerId, ProcessId>,
}

#[derive(Debug, Default)]
pub(super) struct Network {
    /// What each name resolves to, from when on.
    names: BTreeMap<String, Vec<(Duration, Option<ProcessId>)>>,
    /// No message passes from the first to the second.
    cuts: BTreeSet<(ProcessId, ProcessId)>,
    /// No message passes to or from these.
    isolated: BTreeSet<ProcessId>,
    held: Vec<(ProcessId, ProcessId, Port, Message)>,
    /// When the last message on its way arrives.
    arrivals: BTreeMap<(ProcessId, ProcessId, Port), Duration>,
    pub(super) links: BTreeMap<LinkId, Link>,
    pub(super) last_link: LinkId,
}

/// What an attempt to connect meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Connected,
    Refused,
    Silent,
}

impl Network {
    pub(super) fn resolve(&self, host: &str, now: Duration) -> Option<ProcessId> {
        let records = self.names.get(host)?;
        records.iter().rev().find(|(from, _)| *from <= now)?.1
    }

    pub(super) fn is_cut(&self, from: ProcessId, to: ProcessId) -> bool {
        self.isolated.contains(&from)
            || self.isolated.contains(&to)
            || self.cuts.contains(&(from, to))
    }

    pub(super) fn linked(&self, link: LinkId) -> Option<(ProcessId, ProcessId)> {
        self.links.get(&link).map(|l| (l.learner, l.leader))
    }
}

impl Zoo {
    /// The name resolves to this process, or to nothing, from `at` on. `at` may be in the future: DNS
    /// and the servers' caches are late. What is said later replaces what was said before and is not
    /// due yet: the record that removes an ended pod's address must not remove the address of the next.
    pub fn resolve(&mut self, host: &str, to: Option<ProcessId>, at: Duration) {
        let records = self.network.names.entry(host.to_owned()).or_default();
        records.retain(|(from, _)| *from <= at);
        let place = records.partition_point(|(from, _)| *from <= at);
        records.insert(place, (at, to));
        let now = self.now;
        let old = records
            .partition_point(|(from, _)| *from <= now)
            .saturating_sub(1);
        records.drain(..old);
    }

    /// From now on no message passes from `from` to `to`.
    pub fn cut(&mut self, now: Duration, from: ProcessId, to: ProcessId) {
        self.advance(now);
        self.network.cuts.insert((from, to));
        self.look_at_links();
    }

    /// From now on no message passes between the two.
    pub fn cut_both(&mut self, now: Duration, a: ProcessId, b: ProcessId) {
        self.cut(now, a, b);
        self.cut(now, b, a);
    }

    /// Messages pass between the two again.
    pub fn heal(&mut self, now: Duration, a: ProcessId, b: ProcessId) {
        self.advance(now);
        self.network.cuts.remove(&(a, b));
        self.network.cuts.remove(&(b, a));
        self.release();
    }

    /// From now on no message passes to or from the process, as when its node is off the network. A
    /// process that is killed afterwards closes no connection: this is how a node is lost.
    pub fn isolate(&mut self, now: Duration, process: ProcessId) {
        self.advance(now);
        self.network.isolated.insert(process);
        self.look_at_links();
    }

    /// The end of an isolation.
    pub fn join(&mut self, now: Duration, process: ProcessId) {
        self.advance(now);
        self.network.isolated.remove(&process);
        self.release();
    }

    /// Whether no message passes to or from the process. Clients and the operator reach it in the
    /// simulation all the same: the caller decides whether they do.
    pub fn is_isolated(&self, process: ProcessId) -> bool {
        self.network.isolated.contains(&process)
    }

    /// Sends again what is held and can arrive.
    fn release(&mut self) {
        for (from, to, port, message) in std::mem::take(&mut self.network.held) {
            if self.network.is_cut(from, to) {
                self.network.held.push((from, to, port, message));
            } else {
                // Before everything that was sent later and is on its way.
                self.schedule(self.now, Event::Deliver { from, to, message });
            }
        }
        self.look_at_links();
    }

    pub(super) fn send(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        port: Port,
        message: Message,
        longer: Duration,
    ) {
        let latency = self.between(self.timing.latency);
        let last = self.network.arrivals.entry((from, to, port)).or_default();
        let at = (self.now + latency + longer).max(*last);
        *last = at;
        self.schedule(
            at,
            Event::Arrive {
                from,
                to,
                port,
                message,
            },
        );
    }

    /// A message has crossed the network, if nothing is in its way.
    pub(super) fn arrive(&mut self, from: ProcessId, to: ProcessId, port: Port, message: Message) {
        if self.network.is_cut(from, to) {
            self.network.held.push((from, to, port, message));
        } else {
            self.happen(Event::Deliver { from, to, message });
        }
    }

    pub(super) fn deliver(&mut self, from: ProcessId, to: ProcessId, message: Message) {
        if !self.process(to).alive {
            return;
        }
        match message {
            Message::Dial(id) => self.dialed(to, id, from),
            Message::Notice(notice) => self.notice(to, notice),
            Message::ElectionClosed(id) => {
                let open = &mut self.process_mut(to).peers.open;
                if open.get(&id) == Some(&from) {
                    open.remove(&id);
                }
            }
            Message::Quorum(link, packet) => self.packet(to, link, packet),
        }
    }

    /// What a connection from one process to another meets now.
    pub(super) fn reach(&self, from: ProcessId, to: ProcessId) -> Reach {
        let tls = |process| self.process(process).settings().tls;
        let listens = self.process(to).alive && !matches!(self.process(to).role, Role::Loading);
        if self.network.is_cut(from, to) || self.network.is_cut(to, from) {
            Reach::Silent
        } else if listens && tls(to).accepts(tls(from)) {
            Reach::Connected
        } else {
            Reach::Refused
        }
    }

    pub(super) fn forget_arrivals(&mut self, id: ProcessId) {
        self.network
            .arrivals
            .retain(|(from, to, _), _| *from != id && *to != id);
    }

    pub(super) fn timer(&mut self, id: ProcessId, after: Duration, timer: Timer) {
        let generation = self.process(id).generation;
        self.schedule(
            self.now + after,
            Event::Timer {
                process: id,
                generation,
                timer,
            },
        );
    }
}
