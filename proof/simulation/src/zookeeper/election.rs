//! The election of a leader, as `FastLeaderElection` and `QuorumCnxManager` do it.
//!
//! Every server judges by the list in its own file: whose votes it takes, who may lead, and what a
//! majority is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellwether_ensemble::ServerId;

use super::network::{Message, Port, Reach};
use super::process::{Learning, Process, Role, Stage, State};
use super::types::{ListId, ProcessId};
use super::{Event, Timer, Zoo};

/// What a server without a vote has for its id, zxid and epoch.
const NONE: i64 = i64::MIN;
/// `finalizeWait`: how long a server waits for a better vote once it has a majority.
const FINAL_WAIT: Duration = Duration::from_millis(200);
/// `minNotificationInterval`.
const SHORTEST_NOTIFICATION: Duration = Duration::from_millis(200);

/// Whom a server would have lead. The order of the fields is the order of votes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ballot {
    pub(super) epoch: i64,
    pub(super) zxid: i64,
    pub(super) leader: i64,
}

/// A vote as one server has it of another.
#[derive(Clone, Copy, Debug)]
struct Vote {
    ballot: Ballot,
    round: i64,
    state: State,
}

/// What servers tell each other on their election ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notification {
    pub(super) from: ServerId,
    /// The list that the sender knows as committed, if servers agreed on it while they ran.
    pub(super) list: Option<ListId>,
    pub(super) ballot: Ballot,
    pub(super) round: i64,
    pub(super) state: State,
    /// Whether it answers one of a server that looks, or of one without a vote.
    pub(super) answers: bool,
}

/// A server that looks for a leader.
#[derive(Debug)]
pub(super) struct Looking {
    proposal: Ballot,
    /// `recvset`: the votes of this round.
    votes: BTreeMap<ServerId, Vote>,
    /// `outofelection`: what servers that have a leader say.
    settled: BTreeMap<ServerId, Vote>,
    interval: Duration,
    /// When it asks again, if it hears nothing until then.
    asks: Duration,
    /// When it takes the proposal for decided, if no better one comes until then.
    decides: Option<Duration>,
    supporters: BTreeSet<ServerId>,
}

fn number(id: ServerId) -> i64 {
    i64::from(id.0)
}

impl Process {
    /// The vote that it begins with.
    pub(super) fn own_ballot(&self) -> Ballot {
        if !self.votes() {
            return Ballot {
                epoch: NONE,
                zxid: NONE,
                leader: NONE,
            };
        }
        Ballot {
            epoch: self.data.current_epoch,
            zxid: self.data.last,
            leader: number(self.id()),
        }
    }

    fn names(&self, leader: i64) -> bool {
        self.known().iter().any(|id| number(*id) == leader)
    }

    /// `receivedFollowingNotification`: whether it can join the leader that others have already.
    fn joins(&mut self, notice: Notification) -> Option<BTreeSet<ServerId>> {
        let round = self.round;
        let own = number(self.id());
        let vote = Vote {
            ballot: notice.ballot,
            round: notice.round,
            state: notice.state,
        };
        let Role::Looking(looking) = &mut self.role else {
            return None;
        };
        let leader = notice.ballot.leader;
        // A leader must have said so itself.
        let leads = |votes: &BTreeMap<ServerId, Vote>| {
            let said = |v: &Vote| v.state == State::Leading;
            votes.iter().any(|(id, v)| number(*id) == leader && said(v))
                || (leader == own && round == notice.round)
        };
        if notice.round == round {
            looking.votes.insert(notice.from, vote);
            let agrees = |v: &Vote| match v.state {
                State::Looking => v.ballot == notice.ballot && v.round == notice.round,
                _ => v.ballot.leader == leader,
            };
            let agree = looking
                .votes
                .iter()
                .filter(|(_, v)| agrees(v))
                .map(|(id, _)| *id);
            let agree: BTreeSet<ServerId> = agree.collect();
            let leads = leads(&looking.votes);
            if leads && self.decides(&agree) {
                return Some(agree);
            }
        }
        let Role::Looking(looking) = &mut self.role else {
            return None;
        };
        looking.settled.insert(notice.from, vote);
        let same = |v: &Vote| v.ballot.leader == leader && v.ballot.epoch == notice.ballot.epoch;
        let agree = looking
            .settled
            .iter()
            .filter(|(_, v)| same(v))
            .map(|(id, _)| *id);
        let agree: BTreeSet<ServerId> = agree.collect();
        let leads = leads(&looking.settled);
        (leads && self.decides(&agree)).then_some(agree)
    }

    /// The servers of its list whose votes are the same as its own proposal.
    fn supporters(&self) -> BTreeSet<ServerId> {
        let Role::Looking(looking) = &self.role else {
            return BTreeSet::new();
        };
        let same = |v: &Vote| v.ballot == looking.proposal && v.round == self.round;
        let votes = looking.votes.iter().filter(|(_, v)| same(v));
        votes.map(|(id, _)| *id).collect()
    }
}

impl Zoo {
    /// Begins to look for a leader.
    pub(super) fn look(&mut self, id: ProcessId) {
        let now = self.now;
        let process = self.process_mut(id);
        process.round += 1;
        process.role = Role::Looking(Looking {
            proposal: process.own_ballot(),
            votes: BTreeMap::new(),
            settled: BTreeMap::new(),
            interval: SHORTEST_NOTIFICATION,
            asks: now + SHORTEST_NOTIFICATION,
            decides: None,
            supporters: BTreeSet::new(),
        });
        self.tell(id, "looks for a leader");
        self.notify_all(id);
        self.timer(id, SHORTEST_NOTIFICATION, Timer::Ask);
    }

    /// Sends the own proposal to every voter in the own list.
    fn notify_all(&mut self, id: ProcessId) {
        let process = self.process(id);
        let Role::Looking(looking) = &process.role else {
            return;
        };
        let notice = Notification {
            from: process.id(),
            list: process.list,
            ballot: looking.proposal,
            round: process.round,
            state: State::Looking,
            answers: false,
        };
        for to in process.known() {
            self.notify(id, to, notice);
        }
    }

    fn notify(&mut self, id: ProcessId, to: ServerId, notice: Notification) {
        if to == self.process(id).id() {
            let message = Message::Notice(notice);
            let event = Event::Arrive {
                from: id,
                to: id,
                port: Port::Election,
                message,
            };
            return self.schedule(self.now, event);
        }
        let peers = &mut self.process_mut(id).peers;
        if let Some(peer) = peers.open.get(&to).copied() {
            peers.sent.insert(to, notice);
            self.give_up_later(id, to, peer);
            self.send_notice(id, peer, notice);
        } else {
            peers.unsent.insert(to, notice);
            self.dial(id, to);
        }
    }

    /// A connection to a process that ended without closing it breaks when the system has sent the
    /// same bytes for long enough.
    fn give_up_later(&mut self, id: ProcessId, to: ServerId, peer: ProcessId) {
        let gone = !self.process(peer).alive && self.network.is_cut(peer, id);
        if gone && self.process_mut(id).peers.doomed.insert(to, peer) != Some(peer) {
            let at = self.now + self.timing.retransmission;
            let message = Message::ElectionClosed(to);
            self.schedule(
                at,
                Event::Deliver {
                    from: peer,
                    to: id,
                    message,
                },
            );
        }
    }

    /// Opens a connection to another server's election port, by its name in the own file.
    fn dial(&mut self, id: ProcessId, to: ServerId) {
        let process = self.process(id);
        let waits = process
            .peers
            .dialing
            .get(&to)
            .is_some_and(|until| *until > self.now);
        if waits || process.peers.open.contains_key(&to) {
            return;
        }
        let Some(peer) = process
            .host_of(to)
            .and_then(|h| self.network.resolve(h, self.now))
        else {
            return;
        };
        self.dial_process(id, to, peer);
    }

    fn dial_process(&mut self, id: ProcessId, to: ServerId, peer: ProcessId) {
        let own = self.process(id).id();
        match self.reach(id, peer) {
            Reach::Refused => {}
            Reach::Silent => {
                let until = self.now + self.timing.connect_timeout;
                self.process_mut(id).peers.dialing.insert(to, until);
            }
            Reach::Connected => {
                self.send(id, peer, Port::Election, Message::Dial(own), Duration::ZERO);
                // The one with the smaller id is called back.
                if own > to {
                    self.connected(id, to, peer);
                }
            }
        }
    }

    /// Another server has opened a connection.
    pub(super) fn dialed(&mut self, id: ProcessId, by: ServerId, from: ProcessId) {
        if !self.process(from).alive {
            return;
        }
        if by < self.process(id).id() {
            self.process_mut(id).peers.open.remove(&by);
            self.dial_process(id, by, from);
        } else if by > self.process(id).id() {
            self.connected(id, by, from);
        }
    }

    fn connected(&mut self, id: ProcessId, to: ServerId, peer: ProcessId) {
        let peers = &mut self.process_mut(id).peers;
        peers.open.insert(to, peer);
        peers.dialing.remove(&to);
        let unsent = peers.unsent.remove(&to);
        if let Some(notice) = unsent.or(peers.sent.get(&to).copied()) {
            peers.sent.insert(to, notice);
            self.send_notice(id, peer, notice);
        }
    }

    fn send_notice(&mut self, id: ProcessId, peer: ProcessId, notice: Notification) {
        let message = Message::Notice(notice);
        self.send(id, peer, Port::Election, message, Duration::ZERO);
    }

    /// A server that looks has heard nothing for a while.
    pub(super) fn ask_again(&mut self, id: ProcessId) {
        let now = self.now;
        let process = self.process_mut(id);
        let longest = process.settings().longest_notification;
        let Role::Looking(looking) = &mut process.role else {
            return;
        };
        if looking.asks > now {
            let after = looking.asks - now;
            return self.timer(id, after, Timer::Ask);
        }
        looking.interval = (looking.interval * 2).min(longest);
        looking.asks = now + looking.interval;
        let after = looking.interval;
        // While it waits for a better vote it polls no further.
        if looking.decides.is_none() {
            let peers = &process.peers;
            let known: Vec<ServerId> = peers
                .sent
                .keys()
                .chain(peers.unsent.keys())
                .copied()
                .collect();
            if known.iter().any(|to| !peers.unsent.contains_key(to)) {
                self.notify_all(id);
            } else {
                for to in known {
                    self.dial(id, to);
                }
            }
        }
        self.timer(id, after, Timer::Ask);
    }

    /// A notification has arrived (`WorkerReceiver`).
    pub(super) fn notice(&mut self, id: ProcessId, notice: Notification) {
        let process = self.process(id);
        let looks = matches!(process.role, Role::Looking(_));
        // A server that looks takes a later list from others, and begins anew (`WorkerReceiver`).
        if let Some(list) = notice.list.filter(|_| looks)
            && self.adopt(id, list)
        {
            return self.look(id);
        }
        let process = self.process(id);
        if process.host_of(notice.from).is_none() {
            let round = process.round;
            // Real servers answer answers too: two that do not name each other do so for as long as they are connected.
            if !notice.answers {
                self.answer_notice(id, notice.from, round);
            }
            return;
        }
        if looks {
            let behind = notice.state == State::Looking && notice.round < process.round;
            let (round, own) = (process.round, process.id());
            self.poll(id, notice);
            // Answered with what was proposed at that time or later.
            if behind && let Role::Looking(looking) = &self.process(id).role {
                let ballot = looking.proposal;
                let list = self.process(id).list;
                let answer = Notification {
                    from: own,
                    list,
                    ballot,
                    round,
                    state: State::Looking,
                    answers: true,
                };
                self.notify(id, notice.from, answer);
            }
        } else if notice.state == State::Looking {
            self.looked_at_by(id, notice.from);
            let round = self.process(id).round;
            self.answer_notice(id, notice.from, round);
        }
    }

    fn answer_notice(&mut self, id: ProcessId, to: ServerId, round: i64) {
        let process = self.process(id);
        if matches!(process.role, Role::Loading) {
            return;
        }
        let answer = Notification {
            from: process.id(),
            list: process.list,
            ballot: process.vote,
            round,
            state: process.state(),
            answers: true,
        };
        self.notify(id, to, answer);
    }

    /// A server that looks takes a notification (`lookForLeader`).
    fn poll(&mut self, id: ProcessId, notice: Notification) {
        let now = self.now;
        let process = self.process_mut(id);
        let named = process.names(notice.ballot.leader);
        let Role::Looking(looking) = &mut process.role else {
            return;
        };
        if let Some(decides) = &mut looking.decides {
            if notice.ballot <= looking.proposal || !named {
                // While it waits for a better vote, it drops every other.
                *decides = now + FINAL_WAIT;
                return;
            }
            looking.decides = None;
        }
        looking.asks = now + looking.interval;
        if !process.names(notice.ballot.leader) {
            return;
        }
        match notice.state {
            State::Looking => self.count(id, notice),
            State::Observing => {}
            State::Following | State::Leading => {
                if let Some(supporters) = process.joins(notice) {
                    process.round = notice.round;
                    self.decided(id, notice.ballot, supporters);
                }
            }
        }
    }

    /// Counts the vote of another server that looks.
    fn count(&mut self, id: ProcessId, notice: Notification) {
        let now = self.now;
        let process = self.process_mut(id);
        // A server with an empty disk neither votes nor counts.
        if process.own_ballot().zxid == -1 || notice.ballot.zxid == -1 {
            return;
        }
        let (own, round) = (process.own_ballot(), process.round);
        let Role::Looking(looking) = &mut process.role else {
            return;
        };
        let mut tells = false;
        if notice.round > round {
            looking.votes.clear();
            looking.proposal = own.max(notice.ballot);
            process.round = notice.round;
            tells = true;
        } else if notice.round < round {
            return;
        } else if notice.ballot > looking.proposal {
            looking.proposal = notice.ballot;
            tells = true;
        }
        let vote = Vote {
            ballot: notice.ballot,
            round: notice.round,
            state: State::Looking,
        };
        looking.votes.insert(notice.from, vote);
        if tells {
            self.notify_all(id);
        }
        let supporters = self.process(id).supporters();
        let decided = self.process(id).decides(&supporters);
        if let Role::Looking(looking) = &mut self.process_mut(id).role
            && decided
        {
            looking.supporters = supporters;
            looking.decides = Some(now + FINAL_WAIT);
            self.timer(id, FINAL_WAIT, Timer::Decide);
        }
    }

    /// The wait for a better vote may be over.
    pub(super) fn decide(&mut self, id: ProcessId) {
        let now = self.now;
        let Role::Looking(looking) = &self.process(id).role else {
            return;
        };
        let Some(at) = looking.decides else { return };
        if at > now {
            return self.timer(id, at - now, Timer::Decide);
        }
        let (proposal, supporters) = (looking.proposal, looking.supporters.clone());
        self.decided(id, proposal, supporters);
    }

    /// A leader is found; it may be this server.
    fn decided(&mut self, id: ProcessId, ballot: Ballot, supporters: BTreeSet<ServerId>) {
        let process = self.process_mut(id);
        process.vote = ballot;
        process.generation += 1;
        if ballot.leader == number(process.id()) {
            return self.lead(id, supporters);
        }
        let known = process.known().into_iter();
        let Some(leader) = known.rev().find(|v| number(*v) == ballot.leader) else {
            return;
        };
        process.role = Role::Learning(Learning {
            leader,
            stage: Stage::Connecting { tries: 0, to: None },
            stages: 0,
            link: None,
            epoch: 0,
            buffer: Vec::new(),
            pending: None,
            lost: false,
        });
        self.tell(id, &format!("follows {leader}"));
        self.timer(id, Duration::ZERO, Timer::Connect);
    }
}
