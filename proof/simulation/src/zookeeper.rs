//! ZooKeeper servers and their clients as one state machine of events, in virtual time and from one
//! seed.
//!
//! [`Zoo`] holds every server process, volume and connection. Nothing in it reads a clock or starts a
//! thread: [`Zoo::next_event`] says when something happens by itself, and [`Zoo::advance`] makes
//! everything happen that is due. The same seed and the same calls give the same history, which
//! [`Zoo::digest`] identifies.
//!
//! The servers follow ZooKeeper 3.9: `FastLeaderElection`, `QuorumCnxManager`, and Zab 1.0 with discovery,
//! synchronization and broadcast. Each judges by the list in its own file, or with `reconfigEnabled=true` by those on which the
//! servers agree while they run. What is simplified:
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
mod life;
mod links;
mod network;
mod prepare;
mod process;
mod reconfiguration;
mod types;
mod volumes;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::Duration;

pub use self::config::NotAConfiguration;
use self::disk::Disk;
use self::ledger::Ledger;
use self::network::{LinkId, Message, Network, Port};
pub use self::prepare::{Bootstrap, Prepare, Prepared};
use self::process::{Lead, Process};
use self::reconfiguration::Reconfigured;
pub use self::types::*;
use bellwether_ensemble::ids::ServerList;

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
    /// A request for another list reaches a server.
    Reconfigure {
        process: ProcessId,
        request: ReconfigurationId,
        list: ServerList,
        version: i64,
    },
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
    CopyOver(LinkId),
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
    /// Every list on which servers were to agree.
    lists: Vec<List>,
    /// What became of the requests for another list.
    reconfigurations: Vec<Option<Reconfigured>>,
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
            lists: Vec::new(),
            reconfigurations: Vec::new(),
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

    /// How much data the process's ensemble has.
    fn size_of(&self, id: ProcessId) -> u64 {
        self.sizes
            .get(&self.process(id).start.ensemble)
            .copied()
            .unwrap_or(0)
    }

    /// How much data is on the process's disk.
    fn bytes(&self, id: ProcessId) -> u64 {
        let (data, _) = self.disks_of(id);
        if self.disks[data.0].has_database() {
            self.size_of(id)
        } else {
            0
        }
    }

    fn transfer(&self, bytes: u64, rate: u64) -> Duration {
        Duration::from_micros(bytes.saturating_mul(1_000_000) / rate.max(1))
    }

    /// Promises an epoch; says whether the disk took it.
    fn accept_epoch(&mut self, id: ProcessId, epoch: i64) -> bool {
        let (data, _) = self.disks_of(id);
        let disk = &mut self.disks[data.0];
        if disk.full {
            return false;
        }
        disk.accepted_epoch = Some(epoch);
        self.process_mut(id).data.accepted_epoch = epoch;
        true
    }

    fn set_current_epoch(&mut self, id: ProcessId, epoch: i64) {
        let (data, _) = self.disks_of(id);
        self.process_mut(id).data.current_epoch = epoch;
        self.disks[data.0].current_epoch = Some(epoch);
    }

    fn happen(&mut self, event: Event) {
        let own = match &event {
            Event::Deliver { to, .. } => Some(*to),
            Event::Timer { process, .. }
            | Event::Request { process, .. }
            | Event::Reconfigure { process, .. } => Some(*process),
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
            Event::Reconfigure {
                process,
                request,
                list,
                version,
            } => self.ask_for_list(process, request, &list, version),
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
            Timer::CopyOver(link) => self.copy_over(id, link),
            Timer::Count => self.count_followers(id),
        }
    }

    fn tell(&mut self, process: ProcessId, text: &str) {
        self.mix(&(process, text));
        let text = format!("server {} {text}", self.process(process).start.id);
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
