//! The connections between learners and leaders: who closes them, and who stops hearing the other.

use std::time::Duration;

use super::network::{LinkId, Message, Packet, Port};
use super::process::{Role, Stage};
use super::types::ProcessId;
use super::{Event, Zoo};

#[derive(Debug)]
pub(super) struct Link {
    pub(super) learner: ProcessId,
    pub(super) leader: ProcessId,
    /// The ends that are open: learner, leader.
    pub(super) open: [bool; 2],
    /// Since when each end hears nothing, as a number that its time-out carries.
    pub(super) silence: [Option<u64>; 2],
}

impl Zoo {
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
        if let Some(learning) = process.learning()
            && learning.link == Some(link)
            && learning.pending.is_some()
        {
            learning.lost = true;
            return;
        }
        if process.learning().is_some_and(|l| l.link == Some(link)) {
            self.leave(at, "lost its leader");
        } else if process
            .leading()
            .is_some_and(|l| l.learners.remove(&link).is_some())
        {
            self.check_followers(at);
        }
    }

    pub(super) fn packet(&mut self, at: ProcessId, link: LinkId, packet: Packet) {
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
        // Also those that it had not yet heard of.
        let connected =
            |peer: &&ProcessId| self.process(**peer).peers.open.values().any(|p| *p == id);
        let peers: Vec<ProcessId> = self.alive.iter().filter(connected).copied().collect();
        let server = self.process(id).id();
        for peer in peers {
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
}
