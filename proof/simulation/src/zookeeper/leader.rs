//! A leader: it proposes an epoch, brings its followers up to date, and commits what a majority of its
//! own list has acknowledged (`Leader`, `LearnerHandler`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellwether_ensemble::ServerId;

use super::disk::Snapshot;
use super::network::{LinkId, Packet};
use super::process::{Copy, CopyKind, Lead, Leading, Learner, Proposal, Role};
use super::types::{Entry, ProcessId, ReconfigurationId, epoch_of, zxid_of};
use super::{Timer, Zoo};

/// `commitLogCount`: how many transactions a leader has at hand for a follower.
const COMMITTED_LOG: usize = 500;
/// What a transaction counts for when the log is weighed against a snapshot.
const ENTRY_BYTES: u64 = 200;

impl Zoo {
    /// A server is elected.
    pub(super) fn lead(&mut self, id: ProcessId, supporters: BTreeSet<ServerId>) {
        let process = self.process_mut(id);
        process.role = Role::Leading(Leading {
            stage: Lead::Epoch,
            open: false,
            epoch: -1,
            summary: (process.data.current_epoch, process.data.last),
            supporters,
            connecting: BTreeSet::new(),
            promised: BTreeSet::new(),
            copied: BTreeSet::new(),
            learners: BTreeMap::new(),
            proposals: BTreeMap::new(),
            last_proposed: 0,
            checks: false,
            waits_for_epoch: None,
        });
        self.tell(id, "is elected");
        let open = self.between(self.timing.open_port);
        self.timer(id, open, Timer::OpenPort);
    }

    pub(super) fn accepts_learners(&self, id: ProcessId) -> bool {
        matches!(&self.process(id).role, Role::Leading(l) if l.open)
    }

    /// Followers can connect; it writes a snapshot before it talks to them.
    pub(super) fn open_port(&mut self, id: ProcessId) {
        let bytes = self.bytes(id);
        let snapshot = self.transfer(bytes, self.timing.disk_rate);
        if let Some(leading) = self.process_mut(id).leading() {
            leading.open = true;
            self.timer(id, snapshot, Timer::BeginToLead);
        }
    }

    /// It has read its data and waits for followers.
    pub(super) fn begin_to_lead(&mut self, id: ProcessId) {
        let (data, log) = self.disks_of(id);
        if self.disks[data.0].full || self.disks[log.0].full {
            return self.exit(id, "Severe unrecoverable error: no space left on device");
        }
        let now = self.now;
        let process = &mut self.processes[id.0];
        let (own, accepted) = (process.id(), process.data.accepted_epoch);
        let init = process.settings().init_time();
        let entries = process.data.entries.clone();
        let zxid = process.data.last;
        self.disks[data.0].snapshot = Some(Snapshot { zxid, entries });
        let Some(leading) = self.process_mut(id).leading() else {
            return;
        };
        leading.waits_for_epoch = Some(now);
        let waiting: Vec<(ServerId, i64)> = leading
            .learners
            .values()
            .map(|l| (l.id, l.accepted))
            .collect();
        self.timer(id, init, Timer::LeadOver(Lead::Epoch));
        self.epoch_from(id, own, accepted);
        for (learner, accepted) in waiting {
            self.epoch_from(id, learner, accepted);
        }
    }

    /// A leader that has not got further than this in time steps down.
    pub(super) fn lead_over(&mut self, id: ProcessId, stage: Lead) {
        if self
            .process_mut(id)
            .leading()
            .is_some_and(|l| l.stage == stage)
        {
            self.leave(id, "leads no majority of its list");
        }
    }

    /// A server that looks asks while this one leads (`Leader.reportLookingSid`).
    pub(super) fn looked_at_by(&mut self, id: ProcessId, by: ServerId) {
        let now = self.now;
        let process = self.process_mut(id);
        let Some(longest) = process.settings().longest_wait_for_epoch else {
            return;
        };
        let Some(leading) = process.leading() else {
            return;
        };
        let waits = leading.stage == Lead::Epoch && leading.supporters.contains(&by);
        if waits
            && leading
                .waits_for_epoch
                .is_some_and(|since| now > since + longest)
        {
            self.leave(id, "was left by a voter while it waited for epochs");
        }
    }

    /// `Leader.getEpochToPropose`.
    fn epoch_from(&mut self, id: ProcessId, of: ServerId, accepted: i64) {
        let process = self.process_mut(id);
        let (own, named) = (process.id(), process.voters.contains_key(&of));
        let Some(leading) = process.leading() else {
            return;
        };
        if leading.stage != Lead::Epoch {
            return;
        }
        leading.epoch = leading.epoch.max(accepted + 1);
        if named {
            leading.connecting.insert(of);
        }
        let connecting = leading.connecting.clone();
        if leading.waits_for_epoch.is_none()
            || !connecting.contains(&own)
            || !self.process(id).majority(connecting.iter())
        {
            return;
        }
        let init = self.process(id).settings().init_time();
        let Some(leading) = self.process_mut(id).leading() else {
            return;
        };
        leading.stage = Lead::Promise;
        let (epoch, summary) = (leading.epoch, leading.summary);
        leading.last_proposed = zxid_of(epoch);
        let learners: Vec<LinkId> = leading.learners.keys().copied().collect();
        if !self.accept_epoch(id, epoch) {
            return self.leave(id, "cannot write to its disk");
        }
        self.timer(id, init, Timer::LeadOver(Lead::Promise));
        for link in learners {
            self.packet_to_learner(link, Packet::Epoch(epoch), Duration::ZERO);
        }
        self.promise_from(id, own, summary.0, summary.1);
    }

    pub(super) fn packet_at_leader(&mut self, id: ProcessId, link: LinkId, packet: Packet) {
        let Some(leading) = self.process_mut(id).leading() else {
            return self.close_link(link, id);
        };
        if let Packet::Register {
            id: of,
            observer,
            accepted,
        } = packet
        {
            let learner = Learner {
                id: of,
                observer,
                accepted,
                last: None,
                forwarding: false,
                copied: false,
            };
            leading.learners.insert(link, learner);
            let (stage, epoch) = (leading.stage, leading.epoch);
            let ready = leading.waits_for_epoch.is_some();
            if stage != Lead::Epoch {
                self.packet_to_learner(link, Packet::Epoch(epoch), Duration::ZERO);
            } else if ready {
                self.epoch_from(id, of, accepted);
            }
            return;
        }
        let Some(learner) = leading.learners.get_mut(&link) else {
            return;
        };
        let of = learner.id;
        match packet {
            Packet::Promise { current, last } => {
                if current != -1
                    && (current, last) > leading.summary
                    && leading.stage == Lead::Promise
                {
                    // "Follower is ahead of the leader"
                    leading.learners.remove(&link);
                    self.close_link(link, id);
                    return;
                }
                learner.last = Some(last);
                if leading.stage == Lead::Promise {
                    self.promise_from(id, of, current, last);
                } else if leading.stage != Lead::Epoch {
                    self.copy_to(id, link);
                }
            }
            Packet::Copied => {
                learner.copied = true;
                match leading.stage {
                    Lead::Serving => {
                        let list = self.process(id).list;
                        self.packet_to_learner(link, Packet::UpToDate(list), Duration::ZERO);
                    }
                    _ => self.copied_by(id, of),
                }
            }
            Packet::Ack(zxid) => self.acknowledged_by(id, of, zxid),
            Packet::Request(write) => self.propose_as_leader(id, write),
            _ => {}
        }
    }

    /// `Leader.waitForEpochAck`.
    fn promise_from(&mut self, id: ProcessId, of: ServerId, current: i64, last: i64) {
        let process = self.process_mut(id);
        let (own, named) = (process.id(), process.voters.contains_key(&of));
        let init = process.settings().init_time();
        let Some(leading) = process.leading() else {
            return;
        };
        if current != -1 && last != -1 && named {
            leading.promised.insert(of);
        }
        let promised = leading.promised.clone();
        if !promised.contains(&own) || !self.process(id).majority(promised.iter()) {
            return;
        }
        let Some(leading) = self.process_mut(id).leading() else {
            return;
        };
        leading.stage = Lead::Copies;
        let epoch = leading.epoch;
        let ready = leading.learners.iter().filter(|(_, l)| l.last.is_some());
        let ready: Vec<LinkId> = ready.map(|(link, _)| *link).collect();
        self.set_current_epoch(id, epoch);
        self.timer(id, init, Timer::LeadOver(Lead::Copies));
        for link in ready {
            self.copy_to(id, link);
        }
        self.copied_by(id, own);
    }

    /// Sends a learner what it lacks, and from then on every proposal (`LearnerHandler.syncFollower`).
    fn copy_to(&mut self, id: ProcessId, link: LinkId) {
        let bytes = self.bytes(id);
        let Role::Leading(leading) = &self.process(id).role else {
            return;
        };
        let Some(learner) = leading.learners.get(&link) else {
            return;
        };
        let Some(last) = learner.last else { return };
        let observer = learner.observer;
        let copy = self.copy_for(id, last, bytes);
        let amount = match copy.kind {
            CopyKind::Snapshot => bytes,
            _ => ENTRY_BYTES * u64::try_from(copy.entries.len()).unwrap_or(0),
        };
        let takes = self.transfer(amount, self.timing.copy_rate);
        let data = &self.process(id).data;
        let outstanding: Vec<Entry> = data.entries[data.applied..].to_vec();
        let until = self.now + takes;
        self.packet_to_learner(
            link,
            Packet::Copying {
                until,
                bytes: amount,
            },
            Duration::ZERO,
        );
        self.packet_to_learner(link, Packet::Copy(copy), takes);
        let limit = self.process(id).settings().init_time();
        self.timer(id, takes + limit, Timer::CopyOver(link));
        if let Some(leading) = self.process_mut(id).leading()
            && let Some(learner) = leading.learners.get_mut(&link)
        {
            learner.forwarding = true;
        }
        if !observer {
            for entry in outstanding {
                self.packet_to_learner(link, Packet::Propose(entry), Duration::ZERO);
            }
        }
    }

    /// Gives up a learner that has not written its copy in time.
    pub(super) fn copy_over(&mut self, id: ProcessId, link: LinkId) {
        let Some(leading) = self.process_mut(id).leading() else {
            return;
        };
        if leading.learners.get(&link).is_some_and(|l| !l.copied) {
            leading.learners.remove(&link);
            self.close_link(link, id);
            self.check_followers(id);
        }
    }

    fn copy_for(&self, id: ProcessId, last: i64, bytes: u64) -> Copy {
        let data = &self.process(id).data;
        let committed = data.committed();
        let recent = &committed[committed.len().saturating_sub(COMMITTED_LOG)..];
        let oldest = recent.first().map_or(data.last, |e| e.zxid);
        let newest = recent.last().map_or(data.last, |e| e.zxid);
        let starts_epoch = last & 0xffff_ffff == 0;
        let copy = |kind, entries: &[Entry]| Copy {
            kind,
            entries: entries.to_vec(),
            zxid: data.last,
        };
        if last == data.last {
            return copy(CopyKind::Difference, &[]);
        }
        if last > newest && !starts_epoch {
            return copy(CopyKind::Truncation(newest), &[]);
        }
        let log = self.disks[self.disks_of(id).1.0].log.first();
        let from = committed.partition_point(|e| e.zxid <= last);
        let reaches = oldest <= last && last <= newest && !recent.is_empty();
        let lacks = u64::try_from(committed.len() - from).unwrap_or(u64::MAX);
        // The log may be sent instead of a snapshot if it is a third as large at most.
        let from_log = last < oldest
            && log.is_some_and(|first| first.zxid <= last)
            && lacks * ENTRY_BYTES < bytes / 3;
        if !reaches && !from_log {
            return copy(CopyKind::Snapshot, committed);
        }
        let before = from.checked_sub(1).map(|at| committed[at].zxid);
        if before == Some(last) || starts_epoch {
            return copy(CopyKind::Difference, &committed[from..]);
        }
        let next = committed.get(from).map_or(-1, |e| epoch_of(e.zxid));
        match before {
            Some(before) if next == epoch_of(last) => {
                copy(CopyKind::Truncation(before), &committed[from..])
            }
            _ => copy(CopyKind::Snapshot, committed),
        }
    }

    /// `Leader.waitForNewLeaderAck`.
    fn copied_by(&mut self, id: ProcessId, of: ServerId) {
        let process = self.process_mut(id);
        let named = process.host_of(of).is_some();
        let Some(leading) = process.leading() else {
            return;
        };
        if named {
            leading.copied.insert(of);
        }
        let copied = leading.copied.clone();
        if leading.stage != Lead::Copies || !self.process(id).decides(&copied) {
            return;
        }
        let process = self.process_mut(id);
        let Some(leading) = process.leading() else {
            return;
        };
        leading.stage = Lead::Serving;
        let epoch = leading.epoch;
        let copied = leading.learners.iter().filter(|(_, l)| l.copied);
        let copied: Vec<LinkId> = copied.map(|(link, _)| *link).collect();
        process.vote.epoch = epoch;
        process.data.last = zxid_of(epoch);
        self.complete_list(id, epoch);
        self.tell(id, "leads and serves");
        self.leader_serves(id);
        let list = self.process(id).list;
        for link in copied {
            self.packet_to_learner(link, Packet::UpToDate(list), Duration::ZERO);
        }
        self.check_followers(id);
        self.leave_if_not_named(id);
    }

    /// Gives a write the next zxid and proposes it to the followers.
    pub(super) fn propose_as_leader(&mut self, id: ProcessId, write: u64) {
        let Some(leading) = self.process_mut(id).leading() else {
            return;
        };
        if leading.stage != Lead::Serving {
            return;
        }
        let zxid = leading.last_proposed + 1;
        self.propose_entry(id, Entry { zxid, write }, None);
    }

    /// Proposes a transaction with the next zxid, which carries out this request for another list, if any.
    pub(super) fn propose_entry(
        &mut self,
        id: ProcessId,
        entry: Entry,
        of: Option<ReconfigurationId>,
    ) {
        if let Some(list) = entry.list() {
            self.store_list(id, list);
        }
        let lists = self.process(id).lists();
        let Some(leading) = self.process_mut(id).leading() else {
            return;
        };
        leading.last_proposed = entry.zxid;
        let proposal = Proposal {
            acks: BTreeSet::new(),
            lists,
            of,
        };
        leading.proposals.insert(entry.zxid, proposal);
        let learners = leading
            .learners
            .iter()
            .filter(|(_, l)| l.forwarding && !l.observer);
        let learners: Vec<LinkId> = learners.map(|(link, _)| *link).collect();
        self.append(id, entry);
        for link in learners {
            self.packet_to_learner(link, Packet::Propose(entry), Duration::ZERO);
        }
    }

    /// A server has this proposal on its disk (`Leader.processAck`). Only servers of the leader's own
    /// list count.
    pub(super) fn acknowledged_by(&mut self, id: ProcessId, of: ServerId, zxid: i64) {
        let Some(leading) = self.process_mut(id).leading() else {
            return;
        };
        if let Some(proposal) = leading.proposals.get_mut(&zxid) {
            proposal.acks.insert(of);
        }
        loop {
            let Role::Leading(leading) = &self.process(id).role else {
                return;
            };
            let Some((first, proposal)) = leading.proposals.first_key_value() else {
                return;
            };
            if !proposal.is_decided() {
                return;
            }
            self.commit(id, *first);
        }
    }

    fn commit(&mut self, id: ProcessId, zxid: i64) {
        let Some(leading) = self.process_mut(id).leading() else {
            return;
        };
        let proposal = leading.proposals.remove(&zxid);
        let learners: Vec<(LinkId, bool)> = leading
            .learners
            .iter()
            .filter(|(_, l)| l.forwarding)
            .map(|(link, l)| (*link, l.observer))
            .collect();
        let data = &self.process(id).data;
        let Some(entry) = data.entries.get(data.applied).copied() else {
            return;
        };
        self.note_commit(id, entry);
        for (link, observer) in learners {
            let packet = if observer {
                Packet::Inform(entry)
            } else {
                Packet::Commit(zxid)
            };
            self.packet_to_learner(link, packet, Duration::ZERO);
        }
        self.commit_until(id, zxid);
        if let Some(request) = proposal.and_then(|proposal| proposal.of) {
            self.reconfigured(request, Ok(()));
            self.leave_if_not_named(id);
        }
    }

    /// A follower is lost: at its next tick the leader counts the remaining followers.
    pub(super) fn check_followers(&mut self, id: ProcessId) {
        if self.has_majority(id) {
            return;
        }
        let tick = self.process(id).settings().tick;
        let Some(leading) = self.process_mut(id).leading() else {
            return;
        };
        if leading.stage != Lead::Serving || std::mem::replace(&mut leading.checks, true) {
            return;
        }
        let after = self.between((Duration::ZERO, tick));
        self.timer(id, after, Timer::Count);
    }

    pub(super) fn count_followers(&mut self, id: ProcessId) {
        if let Some(leading) = self.process_mut(id).leading() {
            leading.checks = false;
            if !self.has_majority(id) {
                self.leave(id, "has too few followers");
            }
        }
    }

    /// Whether a majority of its list is connected. A follower that still copies counts, as in
    /// ZooKeeper.
    fn has_majority(&self, id: ProcessId) -> bool {
        let Role::Leading(leading) = &self.process(id).role else {
            return true;
        };
        let own = self.process(id).id();
        let mut connected: BTreeSet<ServerId> = leading.learners.values().map(|l| l.id).collect();
        connected.insert(own);
        self.process(id).decides(&connected)
    }
}
