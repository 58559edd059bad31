//! Names, cuts, connections and messages between servers.
//!
//! Connections are TCP's: what is sent while a link is cut arrives when it heals, unless one side gave
//! up before. Heartbeats are no events: when a side of a connection stops hearing the other, the
//! moment at which it gives up is known at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellwether_ensemble::ServerId;

use super::election::Notification;
use super::process::{Copy, Role, Stage};
use super::types::{Entry, ProcessId};
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
    /// `UPTODATE`.
    UpToDate,
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
}

#[derive(Debug, Default)]
pub(super) struct Network {
    /// What each name resolves to, from when on.
    names: BTreeMap<String, Vec<(Duration, Option<ProcessId>)>>,
    /// Nothing goes from the first to the second.
    cuts: BTreeSet<(ProcessId, ProcessId)>,
    /// Nothing goes to or from these.
    isolated: BTreeSet<ProcessId>,
    held: Vec<(ProcessId, ProcessId, Port, Message)>,
    /// When the last message on its way arrives.
    arrivals: BTreeMap<(ProcessId, ProcessId, Port), Duration>,
    links: BTreeMap<LinkId, Link>,
    last_link: LinkId,
}

#[derive(Debug)]
struct Link {
    learner: ProcessId,
    leader: ProcessId,
    /// The ends that are open: learner, leader.
    open: [bool; 2],
    /// Since when each end hears nothing, as a number that its time-out carries.
    silence: [Option<u64>; 2],
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
    /// and the servers' caches are late.
    pub fn resolve(&mut self, host: &str, to: Option<ProcessId>, at: Duration) {
        let records = self.network.names.entry(host.to_owned()).or_default();
        let place = records.partition_point(|(from, _)| *from <= at);
        records.insert(place, (at, to));
        let now = self.now;
        let old = records
            .partition_point(|(from, _)| *from <= now)
            .saturating_sub(1);
        records.drain(..old);
    }

    /// Nothing goes from `from` to `to` any more.
    pub fn cut(&mut self, now: Duration, from: ProcessId, to: ProcessId) {
        self.advance(now);
        self.network.cuts.insert((from, to));
        self.look_at_links();
    }

    /// Nothing goes between the two any more.
    pub fn cut_both(&mut self, now: Duration, a: ProcessId, b: ProcessId) {
        self.cut(now, a, b);
        self.cut(now, b, a);
    }

    /// Everything goes between the two again.
    pub fn heal(&mut self, now: Duration, a: ProcessId, b: ProcessId) {
        self.advance(now);
        self.network.cuts.remove(&(a, b));
        self.network.cuts.remove(&(b, a));
        self.release();
    }

    /// Nothing goes to or from the process, as when its node is off the network. A process that is
    /// killed afterwards closes no connection: this is how a node is lost.
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
        if self.network.is_cut(from, to) || self.network.is_cut(to, from) {
            Reach::Silent
        } else if self.process(to).alive && !matches!(self.process(to).role, Role::Loading) {
            Reach::Connected
        } else {
            Reach::Refused
        }
    }

    /// Opens a learner's connection to a leader.
    pub(super) fn open_link(&mut self, learner: ProcessId, leader: ProcessId) -> LinkId {
        self.network.last_link += 1;
        let id = self.network.last_link;
        let link = Link {
            learner,
            leader,
            open: [true; 2],
            silence: [None; 2],
        };
        self.network.links.insert(id, link);
        self.look_at_links();
        id
    }

    pub(super) fn packet_to_learner(&mut self, link: LinkId, packet: Packet, longer: Duration) {
        if let Some((learner, leader)) = self.network.linked(link) {
            self.send(
                leader,
                learner,
                Port::Quorum,
                Message::Quorum(link, packet),
                longer,
            );
        }
    }

    pub(super) fn packet_to_leader(&mut self, link: LinkId, packet: Packet) {
        if let Some((learner, leader)) = self.network.linked(link) {
            let message = Message::Quorum(link, packet);
            self.send(learner, leader, Port::Quorum, message, Duration::ZERO);
        }
    }

    /// One end closes; the other hears of it when the network lets it.
    pub(super) fn close_link(&mut self, link: LinkId, by: ProcessId) {
        let Some(l) = self.network.links.get_mut(&link) else {
            return;
        };
        let end = usize::from(l.leader == by);
        let other = if end == 1 { l.learner } else { l.leader };
        if !std::mem::take(&mut l.open[end]) {
            return;
        }
        let closed = Message::Quorum(link, Packet::Closed);
        if l.open[1 - end] {
            self.send(by, other, Port::Quorum, closed, Duration::ZERO);
        } else {
            self.network.links.remove(&link);
        }
    }

    /// The other end was closed.
    fn link_closed(&mut self, link: LinkId, at: ProcessId) {
        if let Some(l) = self.network.links.get_mut(&link) {
            l.open[usize::from(l.leader == at)] = false;
            if l.open == [false; 2] {
                self.network.links.remove(&link);
            }
        }
        self.lose_link(link, at);
    }

    /// An end that is closed, by the other or by a time-out.
    fn lose_link(&mut self, link: LinkId, at: ProcessId) {
        let process = self.process_mut(at);
        if process.learning().is_some_and(|l| l.link == Some(link)) {
            self.leave(at, "lost its leader");
        } else if process
            .leading()
            .is_some_and(|l| l.learners.remove(&link).is_some())
        {
            self.check_followers(at);
        }
    }

    fn packet(&mut self, at: ProcessId, link: LinkId, packet: Packet) {
        let knows = |end: usize| self.network.links.get(&link).is_some_and(|l| l.open[end]);
        let leads = self.network.linked(link).is_some_and(|l| l.1 == at);
        if matches!(packet, Packet::Closed) {
            return self.link_closed(link, at);
        }
        if !knows(usize::from(leads)) {
            return;
        }
        if leads {
            self.packet_at_leader(at, link, packet);
        } else {
            self.packet_at_learner(at, link, packet);
        }
    }

    /// Every connection of a process that ends is closed by its system.
    pub(super) fn close_all(&mut self, id: ProcessId) {
        let links = self.network.links.iter();
        let own = |l: &Link| l.learner == id || l.leader == id;
        let links: Vec<LinkId> = links
            .filter(|(_, l)| own(l))
            .map(|(link, _)| *link)
            .collect();
        for link in links {
            self.close_link(link, id);
        }
        let server = self.process(id).id();
        for peer in std::mem::take(&mut self.process_mut(id).peers.open).into_values() {
            let closed = Message::ElectionClosed(server);
            self.send(id, peer, Port::Election, closed, Duration::ZERO);
        }
    }

    /// Finds the ends that hear nothing, and those that hear again.
    pub(super) fn look_at_links(&mut self) {
        let links: Vec<LinkId> = self.network.links.keys().copied().collect();
        for id in links {
            for end in 0..2 {
                self.look_at_end(id, end);
            }
        }
    }

    fn look_at_end(&mut self, id: LinkId, end: usize) {
        let Some(link) = self.network.links.get(&id) else {
            return;
        };
        let (learner, leader) = (link.learner, link.leader);
        let down = self.network.is_cut(leader, learner);
        // A learner only answers pings, so that a leader which does not reach it hears nothing.
        let deaf = match end {
            0 => down || self.process(leader).frozen,
            _ => down || self.network.is_cut(learner, leader) || self.process(learner).frozen,
        };
        let known = link.silence[end].is_some();
        if deaf == known || !link.open[end] {
            return;
        }
        let own = if end == 0 { learner } else { leader };
        let settings = self.process(own).settings();
        let (tick, synced) = (settings.tick, self.is_synced(own, id));
        let limit = if synced {
            settings.sync_time()
        } else {
            settings.init_time()
        };
        let heard_before = self.between((Duration::ZERO, tick / 2));
        self.sequence += 1;
        let number = deaf.then_some(self.sequence);
        if let Some(link) = self.network.links.get_mut(&id) {
            link.silence[end] = number;
        }
        if let Some(number) = number {
            let at = self.now + limit.saturating_sub(heard_before);
            self.schedule(
                at,
                Event::Silence {
                    link: id,
                    end,
                    number,
                },
            );
        }
    }

    fn is_synced(&self, at: ProcessId, link: LinkId) -> bool {
        match &self.process(at).role {
            Role::Learning(l) => matches!(l.stage, Stage::Copied | Stage::Serving),
            Role::Leading(l) => l.learners.get(&link).is_some_and(|l| l.copied),
            _ => false,
        }
    }

    /// An end has heard nothing for too long.
    pub(super) fn silence(&mut self, id: LinkId, end: usize, number: u64) {
        let Some(link) = self.network.links.get(&id) else {
            return;
        };
        if link.silence[end] != Some(number) || !link.open[end] {
            return;
        }
        let own = if end == 0 { link.learner } else { link.leader };
        if self.process(own).frozen && self.process(own).alive {
            return self.process_mut(own).missed.push(Event::Silence {
                link: id,
                end,
                number,
            });
        }
        self.close_link(id, own);
        self.lose_link(id, own);
    }

    /// The leader's process that a learner is connected to, if both ends are open and work.
    pub(super) fn link_works(&self, id: LinkId) -> bool {
        self.network.links.get(&id).is_some_and(|l| {
            let (a, b) = (l.learner, l.leader);
            let works = |p: ProcessId| self.process(p).alive && !self.process(p).frozen;
            l.open == [true; 2]
                && works(a)
                && works(b)
                && !self.network.is_cut(a, b)
                && !self.network.is_cut(b, a)
        })
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
