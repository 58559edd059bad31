//! A follower or observer: it connects, promises the epoch, copies what it lacks, and serves
//! (`Learner`, `Follower`, `Observer`).

use std::time::Duration;

use super::disk::Snapshot;
use super::network::{LinkId, Packet, Reach};
use super::process::{Buffered, Copy, CopyKind, Learning, Role, Stage, State};
use super::types::{Entry, ListId, Outcome, ProcessId};
use super::{Timer, Zoo};

/// `Learner.LeaderConnector`: how often it tries to connect.
const TRIES: u32 = 5;
/// `observer.reconnectDelayMs` is 0 and `observer.electionDelayMs` 200 at most.
const OBSERVERS_DELAY: Duration = Duration::from_millis(200);

impl Zoo {
    fn stage(&mut self, id: ProcessId, stage: Stage, limit: Option<Duration>) {
        let Some(learning) = self.process_mut(id).learning() else {
            return;
        };
        learning.stage = stage;
        learning.stages += 1;
        let stages = learning.stages;
        if let Some(limit) = limit {
            self.timer(id, limit, Timer::Stage(stages));
        }
    }

    /// A stage may have taken too long.
    pub(super) fn stage_over(&mut self, id: ProcessId, stages: u64) {
        if self
            .process_mut(id)
            .learning()
            .is_some_and(|l| l.stages == stages)
        {
            self.leave(id, "waited for its leader too long");
        }
    }

    /// Tries to connect to the leader.
    pub(super) fn connect(&mut self, id: ProcessId) {
        let now = self.now;
        let process = self.process(id);
        let settings = process.settings().clone();
        let Role::Learning(learning) = &process.role else {
            return;
        };
        let Stage::Connecting { tries, to } = learning.stage else {
            return;
        };
        // The name is resolved once.
        let to = match (tries, process.host_of(learning.leader)) {
            (0, Some(host)) => self.network.resolve(host, now),
            _ => to,
        };
        let reach = to.map_or(Reach::Refused, |to| self.reach(id, to));
        match (reach, to) {
            (Reach::Connected, Some(leader)) if self.accepts_learners(leader) => {
                let observer = process.observes();
                let register = Packet::Register {
                    id: process.id(),
                    observer,
                    accepted: process.data.accepted_epoch,
                };
                let link = self.open_link(id, leader);
                if let Some(learning) = self.process_mut(id).learning() {
                    learning.link = Some(link);
                }
                self.stage(id, Stage::Registered, Some(settings.init_time()));
                self.packet_to_leader(link, register);
            }
            (Reach::Silent, _) => {
                // One attempt takes all the time that there is.
                self.stage(
                    id,
                    Stage::Connecting { tries: TRIES, to },
                    Some(settings.init_time()),
                );
            }
            _ if tries + 1 >= TRIES => self.leave(id, "cannot connect to its leader"),
            _ => {
                self.stage(
                    id,
                    Stage::Connecting {
                        tries: tries + 1,
                        to,
                    },
                    None,
                );
                self.timer(id, settings.connect_delay, Timer::Connect);
            }
        }
    }

    pub(super) fn packet_at_learner(&mut self, id: ProcessId, link: LinkId, packet: Packet) {
        let process = self.process_mut(id);
        let observer = process.observes();
        let init = process.settings().init_time();
        let Some(learning) = process.learning() else {
            return;
        };
        if learning.link != Some(link) {
            return;
        }
        let serving = learning.stage == Stage::Serving;
        match packet {
            Packet::Epoch(epoch) => {
                learning.epoch = epoch;
                let data = &mut process.data;
                if epoch < data.accepted_epoch {
                    return self.leave(id, "refuses a leader of an epoch that is over");
                }
                // An epoch that was promised before does not count again.
                let current = if epoch > data.accepted_epoch {
                    data.current_epoch
                } else {
                    -1
                };
                let last = data.last;
                if !self.accept_epoch(id, epoch) {
                    return self.leave(id, "cannot write to its disk");
                }
                self.stage(id, Stage::Promised, Some(init));
                self.packet_to_leader(link, Packet::Promise { current, last });
            }
            Packet::Copying { until, bytes } => {
                let from = self.now;
                self.stage(id, Stage::Copying { from, until, bytes }, None);
            }
            Packet::Copy(copy) => {
                let writes = match copy.kind {
                    CopyKind::Snapshot => self.transfer(self.size_of(id), self.timing.disk_rate),
                    _ => Duration::ZERO,
                };
                if let Some(learning) = self.process_mut(id).learning() {
                    learning.pending = Some(copy);
                }
                let flush = self.between(self.timing.flush);
                self.timer(id, writes + flush, Timer::Copied);
            }
            Packet::UpToDate(list) => self.up_to_date(id, list),
            Packet::Propose(entry) if serving => self.append(id, entry),
            Packet::Commit(zxid) if serving => self.commit_until(id, zxid),
            Packet::Inform(entry) if serving => {
                self.append(id, entry);
                self.commit_until(id, entry.zxid);
            }
            Packet::Propose(entry) if !observer => learning.buffer.push(Buffered::Proposal(entry)),
            Packet::Commit(zxid) => learning.buffer.push(Buffered::Commit(zxid)),
            Packet::Inform(entry) => learning.buffer.push(Buffered::Inform(entry)),
            _ => {}
        }
    }

    /// What the leader sent is on the disk.
    pub(super) fn copied(&mut self, id: ProcessId) {
        let process = self.process_mut(id);
        let sync = process.settings().sync_time();
        let Some(learning) = process.learning() else {
            return;
        };
        let (Some(copy), Some(link)) = (learning.pending.take(), learning.link) else {
            return;
        };
        let (epoch, lost) = (learning.epoch, learning.lost);
        if !self.write_copy(id, copy) {
            return self.leave(id, "cannot write to its disk");
        }
        self.set_current_epoch(id, epoch);
        if lost {
            return self.leave(id, "lost its leader while it wrote what it had copied");
        }
        self.stage(id, Stage::Copied, Some(sync));
        self.packet_to_leader(link, Packet::Copied);
    }

    fn write_copy(&mut self, id: ProcessId, copy: Copy) -> bool {
        let (data, log) = self.disks_of(id);
        if self.disks[data.0].full || self.disks[log.0].full {
            return false;
        }
        let process = &mut self.processes[id.0];
        let database = &mut process.data;
        match copy.kind {
            CopyKind::Snapshot => {
                database.entries = copy.entries;
                database.last = copy.zxid;
                let snapshot = Snapshot {
                    zxid: copy.zxid,
                    entries: database.entries.clone(),
                };
                self.disks[log.0].log.clear();
                self.disks[data.0].snapshot = Some(snapshot);
            }
            CopyKind::Difference | CopyKind::Truncation(_) => {
                if let CopyKind::Truncation(zxid) = copy.kind {
                    database.entries.retain(|e| e.zxid <= zxid);
                    database.last = zxid;
                    self.disks[log.0].log.retain(|e| e.zxid <= zxid);
                    if let Some(snapshot) = &mut self.disks[data.0].snapshot {
                        snapshot.entries.retain(|e| e.zxid <= zxid);
                        snapshot.zxid = snapshot.zxid.min(zxid);
                    }
                }
                if let Some(last) = copy.entries.last() {
                    database.last = last.zxid;
                }
                self.disks[log.0].log.extend(&copy.entries);
                database.entries.extend(&copy.entries);
            }
        }
        database.applied = database.entries.len();
        database.safe = database.entries.len();
        true
    }

    fn up_to_date(&mut self, id: ProcessId, list: Option<ListId>) {
        let ready = |l: &mut Learning| l.stage == Stage::Copied;
        if self.process_mut(id).learning().is_some_and(ready) {
            self.take_over(id, list);
        }
        let process = self.process_mut(id);
        let observer = process.observes();
        let Some(learning) = process.learning() else {
            return;
        };
        if learning.stage != Stage::Copied {
            return;
        }
        let buffer = std::mem::take(&mut learning.buffer);
        let epoch = learning.epoch;
        process.vote.epoch = epoch;
        self.stage(id, Stage::Serving, None);
        self.tell(
            id,
            if observer {
                "observes and serves"
            } else {
                "follows and serves"
            },
        );
        for packet in buffer {
            // A list made it another kind of learner.
            if !matches!(self.process(id).role, Role::Learning(_)) {
                return;
            }
            match packet {
                Buffered::Proposal(entry) => self.append(id, entry),
                Buffered::Commit(zxid) => self.commit_until(id, zxid),
                Buffered::Inform(entry) => {
                    self.append(id, entry);
                    self.commit_until(id, entry.zxid);
                }
            }
        }
    }

    /// Writes a transaction to the log; it is safe after the next flush.
    pub(super) fn append(&mut self, id: ProcessId, entry: Entry) {
        let data = &mut self.process_mut(id).data;
        if data
            .entries
            .last()
            .is_some_and(|last| last.zxid >= entry.zxid)
        {
            return;
        }
        data.entries.push(entry);
        if let Some(list) = entry.list() {
            self.store_list(id, list);
        }
        self.begin_flush(id);
    }

    fn begin_flush(&mut self, id: ProcessId) {
        let process = self.process_mut(id);
        let written = process.data.entries.len();
        if process.flushing.is_some() || process.data.safe == written {
            return;
        }
        process.flushing = Some(written);
        let flush = self.between(self.timing.flush);
        self.timer(id, flush, Timer::Flushed);
    }

    /// A flush is done: what was written before it began is acknowledged.
    pub(super) fn flushed(&mut self, id: ProcessId) {
        let Some(written) = self.process_mut(id).flushing.take() else {
            return;
        };
        let (_, log) = self.disks_of(id);
        if self.disks[log.0].full {
            return self.exit(id, "Severe unrecoverable error: no space left on device");
        }
        let from = self.process(id).data.safe;
        self.save(id, written);
        let observer = self.process(id).observes();
        let zxids: Vec<i64> = self.process(id).data.entries[from..written]
            .iter()
            .map(|e| e.zxid)
            .collect();
        match &self.process(id).role {
            Role::Learning(learning) if !observer => {
                if let Some(link) = learning.link {
                    for zxid in zxids {
                        self.packet_to_leader(link, Packet::Ack(zxid));
                    }
                }
            }
            Role::Leading(_) => {
                let own = self.process(id).id();
                for zxid in zxids {
                    self.acknowledged_by(id, own, zxid);
                }
            }
            _ => {}
        }
        self.begin_flush(id);
    }

    /// Puts the log on the disk up to this entry.
    pub(super) fn save(&mut self, id: ProcessId, written: usize) {
        let (_, log) = self.disks_of(id);
        let data = &mut self.processes[id.0].data;
        if written > data.safe {
            self.disks[log.0]
                .log
                .extend(&data.entries[data.safe..written]);
            data.safe = written;
        }
    }

    /// The leader has committed everything up to this transaction.
    pub(super) fn commit_until(&mut self, id: ProcessId, zxid: i64) {
        let process = self.process_mut(id);
        let data = &mut process.data;
        let mut answered = Vec::new();
        let mut lists = Vec::new();
        while let Some(entry) = data.entries.get(data.applied).filter(|e| e.zxid <= zxid) {
            data.applied += 1;
            data.last = entry.zxid;
            lists.extend(entry.list());
            if let Some(request) = process.requests.remove(&entry.write) {
                answered.push((request, *entry));
            }
        }
        for list in lists {
            self.adopt(id, list);
        }
        for (request, entry) in answered {
            self.answer_client(id, request, entry.write, Outcome::Acknowledged(entry.zxid));
        }
    }

    /// Ends the role of a follower, observer or leader: everything logged is kept, clients lose their
    /// connections, and the server looks for a leader again.
    pub(super) fn leave(&mut self, id: ProcessId, why: &str) {
        let process = self.process(id);
        let state = process.state();
        let links: Vec<LinkId> = match &process.role {
            Role::Learning(l) => l.link.into_iter().collect(),
            Role::Leading(l) => l.learners.keys().copied().collect(),
            _ => return,
        };
        let (_, log) = self.disks_of(id);
        if !self.disks[log.0].full {
            let written = self.process(id).data.entries.len();
            self.save(id, written);
        }
        let process = self.process_mut(id);
        process.role = Role::Leaving(state);
        process.generation += 1;
        process.flushing = None;
        process.data.entries.truncate(process.data.safe);
        process.data.apply_all();
        let requests = std::mem::take(&mut process.requests);
        for (write, request) in requests {
            self.answer_client(id, request, write, Outcome::Lost);
        }
        for link in links {
            self.close_link(link, id);
        }
        self.tell(id, why);
        let mut turn = self.between(self.timing.turn);
        if state == State::Observing {
            turn += self.between((Duration::ZERO, OBSERVERS_DELAY));
        }
        self.timer(id, turn, Timer::Look);
    }
}
