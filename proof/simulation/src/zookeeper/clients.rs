//! A client that writes and remembers what was acknowledged.

use std::time::Duration;

use super::types::{Answer, ClientId, Outcome, ProcessId, RequestId};
use super::{Harm, Violation, Zoo};

/// How long a client waits for an answer before it takes the connection for lost.
const PATIENCE: Duration = Duration::from_secs(6);
/// How long a client waits before it connects to another server.
const RECONNECT: Duration = Duration::from_millis(50);

/// A client that writes one number after the other, each once, and goes to another server when its
/// connection is lost.
#[derive(Debug)]
pub struct Writer {
    client: ClientId,
    ensemble: String,
    servers: Vec<ProcessId>,
    at: usize,
    pace: Duration,
    next_write: u64,
    due: Duration,
    waiting: Option<(RequestId, Duration)>,
    /// The writes that were acknowledged, their zxids, and when.
    acknowledged: Vec<(u64, i64, Duration)>,
    last: Duration,
    longest_gap: Duration,
}

impl Writer {
    /// A client that writes at this pace from `now` on. Its number is in every write, so that no two
    /// clients write the same.
    pub fn new(client: ClientId, ensemble: &str, pace: Duration, now: Duration) -> Self {
        Self {
            client,
            ensemble: ensemble.to_owned(),
            servers: Vec::new(),
            at: 0,
            pace,
            next_write: client.0 << 40,
            due: now,
            waiting: None,
            acknowledged: Vec::new(),
            last: now,
            longest_gap: Duration::ZERO,
        }
    }

    /// The servers that it may write through from now on.
    pub fn use_servers(&mut self, servers: Vec<ProcessId>) {
        self.servers = servers;
    }

    /// When it does something by itself.
    pub fn next_event(&self) -> Option<Duration> {
        if self.servers.is_empty() {
            return self.waiting.map(|(_, since)| since + PATIENCE);
        }
        Some(self.waiting.map_or(self.due, |(_, since)| since + PATIENCE))
    }

    /// Takes its answers out of these and writes what is due.
    pub fn advance(&mut self, zoo: &mut Zoo, now: Duration, answers: &[Answer]) {
        for answer in answers {
            if answer.client == self.client {
                self.hear(answer);
            }
        }
        if let Some((_, since)) = self.waiting
            && now >= since + PATIENCE
        {
            self.reconnect(now);
        }
        if self.waiting.is_none() && now >= self.due && !self.servers.is_empty() {
            let server = self.servers[self.at % self.servers.len()];
            self.next_write += 1;
            let request = zoo.propose(now, self.client, server, self.next_write);
            self.waiting = Some((request, now));
            self.due = now + self.pace;
        }
    }

    fn hear(&mut self, answer: &Answer) {
        if let Outcome::Acknowledged(zxid) = answer.outcome {
            self.acknowledged.push((answer.write, zxid, answer.at));
            self.longest_gap = self.longest_gap.max(answer.at.saturating_sub(self.last));
            self.last = answer.at;
        }
        if self
            .waiting
            .is_none_or(|(request, _)| request != answer.request)
        {
            return;
        }
        match answer.outcome {
            Outcome::Acknowledged(_) => self.waiting = None,
            Outcome::Lost | Outcome::Refused => self.reconnect(answer.at),
        }
    }

    fn reconnect(&mut self, now: Duration) {
        self.waiting = None;
        self.at += 1;
        self.due = now + RECONNECT;
    }

    /// How many writes were acknowledged to it.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// The longest time without an acknowledgement, also that until `now`.
    pub fn longest_gap(&self, now: Duration) -> Duration {
        self.longest_gap.max(now.saturating_sub(self.last))
    }

    /// Starts a new measurement of the gap.
    pub fn forget_gaps(&mut self, now: Duration) {
        (self.longest_gap, self.last) = (Duration::ZERO, now);
    }

    /// Reads everything back from a server that serves; a write that was acknowledged and is missing is
    /// a violation. The server must be synced: one that has fallen behind lacks writes without a fault.
    pub fn read_back(&self, zoo: &Zoo, server: ProcessId) -> Option<Violation> {
        let history = zoo.read(server)?;
        let there = |zxid: i64, write: u64| {
            let at = history.binary_search_by_key(&zxid, |e| e.zxid);
            at.is_ok_and(|at| history[at].write == write)
        };
        let all = self.acknowledged.iter();
        let missing: Vec<_> = all
            .filter(|(write, zxid, _)| !there(*zxid, *write))
            .collect();
        let (first, zxid, at) = missing.first()?;
        let id = zoo.start_of(server).id;
        Some(Violation {
            at: zoo.now(),
            ensemble: self.ensemble.clone(),
            kind: Harm::StaleRead,
            text: format!(
                "server {id} lacks {} of the {} writes that were acknowledged to client {}; the first \
                 is {first} with zxid {zxid:#x}, acknowledged at {:.3} s",
                missing.len(),
                self.acknowledged.len(),
                self.client.0,
                at.as_secs_f64()
            ),
        })
    }
}
