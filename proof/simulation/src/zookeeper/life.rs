//! The life of a server process from its start to its end, and what clients ask of it.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_ensemble::ServerId;

use super::disk::Database;
use super::election::Ballot;
use super::network::{Packet, Peers};
use super::process::{Lead, Process, Role, Stage};
use super::types::{Answer, ClientId, Entry, Outcome, Phase, ProcessId, RequestId, Start};
use super::{Event, Request, Timer, Zoo};

impl Zoo {
    /// Starts a server process. Its name resolves to it when [`Zoo::resolve`] says so, and the disk is
    /// as [`Zoo::prepare`] left it.
    pub fn start(&mut self, now: Duration, start: Start) -> ProcessId {
        self.advance(now);
        let id = ProcessId(self.processes.len());
        let voters: BTreeMap<ServerId, String> = start.voters.iter().cloned().collect();
        let (version, list, next) = self.begin_with(&start, &voters);
        let own = start.observer.then_some(start.id);
        let observers = start.observers.iter().copied().chain(own).collect();
        let process = Process {
            observers,
            start,
            voters,
            list,
            version,
            next,
            alive: true,
            frozen: false,
            missed: Vec::new(),
            role: Role::Loading,
            generation: 0,
            round: 0,
            vote: Ballot::default(),
            peers: Peers::default(),
            data: Database::default(),
            flushing: None,
            requests: BTreeMap::new(),
        };
        self.processes.push(process);
        self.alive.insert(id);
        self.tell(id, "starts");
        let reads = self.transfer(self.bytes(id), self.timing.disk_rate);
        let begins = self.between(self.timing.process_start);
        self.timer(id, begins + reads, Timer::Load);
        id
    }

    /// Ends a process at once, as SIGKILL does. A part of what it had not yet flushed is on its disk.
    pub fn kill(&mut self, now: Duration, process: ProcessId) {
        self.advance(now);
        if self.process(process).alive {
            self.end(process, Role::Killed);
            self.tell(process, "is killed");
        }
    }

    /// Stops a process without ending it, as SIGSTOP does.
    pub fn freeze(&mut self, now: Duration, process: ProcessId) {
        self.advance(now);
        self.process_mut(process).frozen = true;
        self.look_at_links();
    }

    /// Lets a frozen process go on.
    pub fn thaw(&mut self, now: Duration, process: ProcessId) {
        self.advance(now);
        self.process_mut(process).frozen = false;
        for event in std::mem::take(&mut self.process_mut(process).missed) {
            self.schedule(self.now, event);
        }
        self.look_at_links();
    }

    /// A client asks a server to write; what becomes of it is among [`Zoo::take_answers`] later. Every
    /// write is another number.
    pub fn propose(
        &mut self,
        now: Duration,
        client: ClientId,
        process: ProcessId,
        write: u64,
    ) -> RequestId {
        self.advance(now);
        self.last_request += 1;
        let request = RequestId(self.last_request);
        self.requests.insert(request, Request { client, write });
        let latency = self.between(self.timing.latency);
        self.schedule(self.now + latency, Event::Request { process, request });
        request
    }

    /// What a client reads from a server; `None` if the server does not serve.
    pub fn read(&self, process: ProcessId) -> Option<&[Entry]> {
        let process = self.process(process);
        let answers = process.alive && !process.frozen && process.serves();
        answers.then(|| process.data.committed())
    }

    /// What a server does.
    pub fn phase(&self, process: ProcessId) -> Phase {
        let process = self.process(process);
        match &process.role {
            Role::Killed | Role::Exited(_) => Phase::Down,
            Role::Loading => Phase::Loading,
            Role::Looking(_) | Role::Leaving(_) => Phase::Looking,
            Role::Learning(l) => match l.stage {
                Stage::Connecting { .. } | Stage::Registered | Stage::Promised => Phase::Discovery,
                Stage::Copying { from, until, bytes } => {
                    let whole = until.saturating_sub(from).as_micros().max(1);
                    let left = until.saturating_sub(self.now).as_micros();
                    let bytes_left = u128::from(bytes) * left / whole;
                    Phase::Synchronizing {
                        bytes_left: u64::try_from(bytes_left).unwrap_or(bytes),
                    }
                }
                Stage::Copied => Phase::Synchronizing { bytes_left: 0 },
                Stage::Serving if process.observes() => Phase::Observing,
                Stage::Serving => Phase::Following,
            },
            Role::Leading(l) => match l.stage {
                Lead::Epoch | Lead::Promise => Phase::Discovery,
                Lead::Copies => Phase::Synchronizing { bytes_left: 0 },
                Lead::Serving => Phase::Leading,
            },
        }
    }

    /// Why a process ended by itself, if it did.
    pub fn exit_message(&self, process: ProcessId) -> Option<&str> {
        match &self.process(process).role {
            Role::Exited(message) => Some(message),
            _ => None,
        }
    }

    /// How the process was started.
    pub fn start_of(&self, process: ProcessId) -> &Start {
        &self.process(process).start
    }

    /// The processes that run, frozen ones among them.
    pub fn running(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.alive.iter().copied()
    }

    /// Every process, also those that have ended.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> + use<> {
        (0..self.processes.len()).map(ProcessId)
    }

    pub(super) fn load(&mut self, id: ProcessId) {
        let start = &self.process(id).start;
        let named = start.observer || self.process(id).voters.contains_key(&start.id);
        if !named {
            let text = format!("My id {} not in the peer list", start.id);
            return self.exit(id, &text);
        }
        let autocreate = start.settings.autocreate;
        let (data, log) = (start.disk, start.log_disk);
        let mut disk = std::mem::take(&mut self.disks[data.0]);
        let loaded = Database::load(&mut disk, log.map(|l| &mut self.disks[l.0]), autocreate);
        self.disks[data.0] = disk;
        match loaded {
            Err(message) => self.exit(id, &message),
            Ok(database) => {
                let process = self.process_mut(id);
                process.data = database;
                process.vote = process.own_ballot();
                self.look(id);
            }
        }
    }

    /// A process ends by itself.
    pub(super) fn exit(&mut self, id: ProcessId, message: &str) {
        self.end(id, Role::Exited(message.to_owned()));
        self.tell(id, message);
    }

    fn end(&mut self, id: ProcessId, role: Role) {
        let (data, log) = (
            self.process(id).data.safe,
            self.process(id).data.entries.len(),
        );
        // What was written and not flushed may be there or not.
        let kept = data + self.rng.usize(0..=log.saturating_sub(data));
        let (_, disk) = self.disks_of(id);
        if !self.disks[disk.0].full && !matches!(self.process(id).role, Role::Loading) {
            self.save(id, kept);
        }
        self.close_all(id);
        self.forget_arrivals(id);
        self.alive.remove(&id);
        let process = self.process_mut(id);
        process.alive = false;
        process.generation += 1;
        process.role = role;
        process.missed = Vec::new();
        process.data = Database::default();
        let requests = std::mem::take(&mut process.requests);
        for (write, request) in requests {
            self.answer_client(id, request, write, Outcome::Lost);
        }
        self.look_at_links();
    }

    pub(super) fn request(&mut self, id: ProcessId, request: RequestId) {
        let Some(write) = self.requests.get(&request).map(|r| r.write) else {
            return;
        };
        let process = self.process_mut(id);
        if !process.alive || !process.serves() {
            return self.answer_client(id, request, write, Outcome::Refused);
        }
        process.requests.insert(write, request);
        let link = match &process.role {
            Role::Learning(learning) => learning.link,
            _ => None,
        };
        match link {
            Some(link) => self.packet_to_leader(link, Packet::Request(write)),
            None => self.propose_as_leader(id, write),
        }
    }

    pub(super) fn answer_client(
        &mut self,
        id: ProcessId,
        request: RequestId,
        write: u64,
        outcome: Outcome,
    ) {
        let Some(Request { client, .. }) = self.requests.remove(&request) else {
            return;
        };
        if let Outcome::Acknowledged(zxid) = outcome {
            self.note_acknowledged(id, Entry { zxid, write });
        }
        let at = self.now + self.between(self.timing.latency);
        self.schedule(
            at,
            Event::Answer(Answer {
                at,
                client,
                request,
                write,
                outcome,
            }),
        );
    }
}
