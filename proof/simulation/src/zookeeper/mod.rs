//! ZooKeeper servers and their clients as one state machine of events, in virtual time and from one
//! seed.
//!
//! [`Zoo`] holds every server process, volume and connection. Nothing in it reads a clock or starts a
//! thread: [`Zoo::next_event`] says when something happens by itself, and [`Zoo::advance`] makes
//! everything happen that is due. The same seed and the same calls give the same history, which
//! [`Zoo::digest`] tells.
//!
//! The servers follow ZooKeeper 3.9 with `reconfigEnabled=false`: `FastLeaderElection`,
//! `QuorumCnxManager`, and Zab 1.0 with discovery, synchronization and broadcast. Each judges by the
//! list in its own file. What is simplified:
//!
//! * A transaction is one write of a client; sessions leave no transactions.
//! * A follower that is told to cut its log off also cuts its snapshot.
//! * What a server reads from a leader while it copies is written at the end, all or nothing.

mod answers;
pub mod clients;
mod config;
mod disk;
mod election;
mod leader;
mod learner;
mod ledger;
mod network;
mod prepare;
mod process;
mod types;
mod volumes;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use bellwether_ensemble::ServerId;

pub use self::config::NotAConfiguration;
use self::disk::{Database, Disk};
use self::election::Ballot;
use self::ledger::Ledger;
use self::network::{LinkId, Message, Network, Peers, Port};
pub use self::prepare::{Permission, Prepare, Prepared};
use self::process::{Lead, Process, Role, Stage};
pub use self::types::*;

/// Something that will happen.
#[derive(Debug)]
pub(in crate::zookeeper) enum Event {
    Arrive {
        from: ProcessId,
        to: ProcessId,
        port: Port,
        message: Message,
    },
    /// A message that has crossed the network.
    Deliver {
        from: ProcessId,
        to: ProcessId,
        message: Message,
    },
    Timer {
        process: ProcessId,
        generation: u64,
        timer: Timer,
    },
    /// An end of a connection has heard nothing for too long.
    Silence {
        link: LinkId,
        end: usize,
        number: u64,
    },
    /// A client's write reaches a server.
    Request {
        process: ProcessId,
        request: RequestId,
    },
    /// A client hears what became of its write.
    Answer(Answer),
}

/// What a process does later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::zookeeper) enum Timer {
    Load,
    Look,
    Ask,
    Decide,
    Connect,
    Stage(u64),
    Copied,
    Flushed,
    OpenPort,
    BeginToLead,
    LeadOver(Lead),
    Count,
}

/// A client's write that is not answered.
#[derive(Clone, Copy, Debug)]
struct Request {
    client: ClientId,
    write: u64,
}

/// Every server process, volume and connection.
#[derive(Debug)]
pub struct Zoo {
    now: Duration,
    rng: fastrand::Rng,
    timing: Timing,
    queue: BTreeMap<(Duration, u64), Event>,
    sequence: u64,
    processes: Vec<Process>,
    /// Those that run.
    alive: BTreeSet<ProcessId>,
    disks: Vec<Disk>,
    network: Network,
    /// How large the data of each ensemble is.
    sizes: BTreeMap<String, u64>,
    requests: BTreeMap<RequestId, Request>,
    last_request: u64,
    answers: Vec<Answer>,
    ledger: Ledger,
    happenings: Vec<Happening>,
    events: u64,
    digest: u64,
}

impl Zoo {
    /// No servers yet.
    pub fn new(seed: u64) -> Self {
        Self::with_timing(seed, Timing::default())
    }

    /// No servers yet, and things take this long.
    pub fn with_timing(seed: u64, timing: Timing) -> Self {
        Self {
            now: Duration::ZERO,
            rng: fastrand::Rng::with_seed(seed),
            timing,
            queue: BTreeMap::new(),
            sequence: 0,
            processes: Vec::new(),
            alive: BTreeSet::new(),
            disks: Vec::new(),
            network: Network::default(),
            sizes: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_request: 0,
            answers: Vec::new(),
            ledger: Ledger::default(),
            happenings: Vec::new(),
            events: 0,
            digest: 0,
        }
    }

    /// How long things take from now on.
    pub fn timing(&mut self) -> &mut Timing {
        &mut self.timing
    }

    /// How many bytes of data an ensemble has: what a new server copies.
    pub fn set_size(&mut self, ensemble: &str, bytes: u64) {
        self.sizes.insert(ensemble.to_owned(), bytes);
    }

    /// Starts a server process. Its name resolves to it when [`Zoo::resolve`] says so, and the disk is
    /// as [`Zoo::prepare`] left it.
    pub fn start(&mut self, now: Duration, start: Start) -> ProcessId {
        self.advance(now);
        let id = ProcessId(self.processes.len());
        let voters: BTreeMap<ServerId, String> = start.voters.iter().cloned().collect();
        let server = start.id;
        let process = Process {
            start,
            voters,
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
        self.tell(id, &format!("starts as server {server}"));
        let reads = self.transfer(self.bytes(id), self.timing.disk_rate);
        let begins = self.between(self.timing.process_start);
        self.timer(id, begins + reads, Timer::Load);
        id
    }

    /// Ends a process at once, as SIGKILL does. Of what it had not yet flushed to its disk a part is
    /// there.
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

    /// When something happens by itself.
    pub fn next_event(&self) -> Option<Duration> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    /// The virtual time that has been reached.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Makes everything happen that is due until `now`.
    pub fn advance(&mut self, now: Duration) {
        while let Some(entry) = self.queue.first_entry() {
            let at = entry.key().0;
            if at > now {
                break;
            }
            let event = entry.remove();
            self.now = self.now.max(at);
            self.events += 1;
            self.happen(event);
        }
        self.now = self.now.max(now);
    }

    /// A number that two histories share only if they are the same.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How many events there were.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The changes of the servers' states since this was asked last.
    pub fn take_happenings(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.happenings)
    }

    /// What clients have heard since this was asked last, in the order of time.
    pub fn take_answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
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

    /// What a client reads from a server; `None` if it serves nobody.
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
                Stage::Serving if process.start.observer => Phase::Observing,
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

    /// Every process, also those that have ended.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> + use<> {
        (0..self.processes.len()).map(ProcessId)
    }

    pub(in crate::zookeeper) fn process(&self, id: ProcessId) -> &Process {
        &self.processes[id.0]
    }

    pub(in crate::zookeeper) fn process_mut(&mut self, id: ProcessId) -> &mut Process {
        &mut self.processes[id.0]
    }

    pub(in crate::zookeeper) fn disks_of(&self, id: ProcessId) -> (DiskId, DiskId) {
        let start = &self.process(id).start;
        (start.disk, start.log_disk.unwrap_or(start.disk))
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), event);
    }

    fn between(&mut self, (shortest, longest): (Duration, Duration)) -> Duration {
        let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        let (shortest, longest) = (micros(shortest), micros(longest));
        Duration::from_micros(self.rng.u64(shortest..=longest.max(shortest)))
    }

    fn bytes(&self, id: ProcessId) -> u64 {
        let (data, _) = self.disks_of(id);
        let has = self.disks[data.0].has_database();
        let size = self.sizes.get(&self.process(id).start.ensemble);
        size.copied()
            .filter(|_| has || self.process(id).serves())
            .unwrap_or(0)
    }

    fn transfer(&self, bytes: u64, rate: u64) -> Duration {
        Duration::from_micros(bytes.saturating_mul(1_000_000) / rate.max(1))
    }

    fn accept_epoch(&mut self, id: ProcessId, epoch: i64) {
        let (data, _) = self.disks_of(id);
        self.process_mut(id).data.accepted_epoch = epoch;
        self.disks[data.0].accepted_epoch = Some(epoch);
    }

    fn set_current_epoch(&mut self, id: ProcessId, epoch: i64) {
        let (data, _) = self.disks_of(id);
        self.process_mut(id).data.current_epoch = epoch;
        self.disks[data.0].current_epoch = Some(epoch);
    }

    fn happen(&mut self, event: Event) {
        let own = match &event {
            Event::Deliver { to, .. } => Some(*to),
            Event::Timer { process, .. } | Event::Request { process, .. } => Some(*process),
            _ => None,
        };
        if let Some(own) = own
            && self.process(own).frozen
            && self.process(own).alive
        {
            return self.process_mut(own).missed.push(event);
        }
        match event {
            Event::Arrive {
                from,
                to,
                port,
                message,
            } => self.arrive(from, to, port, message),
            Event::Deliver { from, to, message } => self.deliver(from, to, message),
            Event::Timer {
                process,
                generation,
                timer,
            } => {
                let current = self.process(process);
                if current.alive && current.generation == generation {
                    self.act(process, timer);
                }
            }
            Event::Silence { link, end, number } => self.silence(link, end, number),
            Event::Request { process, request } => self.request(process, request),
            Event::Answer(answer) => {
                self.mix(&(answer.at, answer.write, answer.request));
                self.answers.push(answer);
            }
        }
    }

    fn act(&mut self, id: ProcessId, timer: Timer) {
        match timer {
            Timer::Load => self.load(id),
            Timer::Look => self.look(id),
            Timer::Ask => self.ask_again(id),
            Timer::Decide => self.decide(id),
            Timer::Connect => self.connect(id),
            Timer::Stage(stages) => self.stage_over(id, stages),
            Timer::Copied => self.copied(id),
            Timer::Flushed => self.flushed(id),
            Timer::OpenPort => self.open_port(id),
            Timer::BeginToLead => self.begin_to_lead(id),
            Timer::LeadOver(stage) => self.lead_over(id, stage),
            Timer::Count => self.count_followers(id),
        }
    }

    fn load(&mut self, id: ProcessId) {
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
    fn exit(&mut self, id: ProcessId, message: &str) {
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

    fn request(&mut self, id: ProcessId, request: RequestId) {
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
            Some(link) => self.packet_to_leader(link, network::Packet::Request(write)),
            None => self.propose_as_leader(id, write),
        }
    }

    fn answer_client(&mut self, id: ProcessId, request: RequestId, write: u64, outcome: Outcome) {
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

    fn tell(&mut self, process: ProcessId, text: &str) {
        self.mix(&(process, text));
        let text = text.to_owned();
        self.happenings.push(Happening {
            at: self.now,
            process,
            text,
        });
    }

    fn mix(&mut self, what: &impl Hash) {
        let mut hasher = std::hash::DefaultHasher::new();
        (self.digest, self.now, self.events, what).hash(&mut hasher);
        self.digest = hasher.finish();
    }
}
