//! Three ZooKeeper servers, the sessions of their clients, and what goes wrong between them.
//!
//! One list of transactions is the truth. Each server has carried it out up to a point; what a client is told depends on its
//! server. Requests are tasks of their own: a server answers a client whose process is stopped, and the answer grows old.

mod clients;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use zookeeper_client::{Error, SessionState};

use super::tree::{Change, Touched, Tree};

/// How many servers there are.
pub const SERVERS: usize = 3;
/// How long the session of an operator lives without its process: as long as the mirror asks for.
const OPERATORS_TIMEOUT: Duration = Duration::from_secs(6);
/// How often a client looks for a server while it has none.
const RECONNECT: Duration = Duration::from_millis(500);

/// What a watch is set on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The node itself, or its creation.
    Node,
    /// The node's children.
    Children,
}

#[derive(Debug)]
struct Watch {
    connection: u64,
    path: String,
    watched: Watched,
    fire: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Server {
    tree: Tree,
    /// How many transactions it has carried out.
    applied: usize,
    /// How far it is behind.
    lag: Duration,
    is_up: bool,
    watches: Vec<Watch>,
}

impl Server {
    /// Takes these watches away.
    fn take_watches(&mut self, which: impl Fn(&Watch) -> bool) -> Vec<Watch> {
        let watches = std::mem::take(&mut self.watches);
        let (taken, kept) = watches.into_iter().partition(which);
        self.watches = kept;
        taken
    }
}

/// The connection of an operator's session.
#[derive(Debug)]
struct Client {
    operator: String,
    session: i64,
    /// The server that it is connected to.
    server: Option<usize>,
    /// Counts the connections, so that an answer over an earlier one is known as that.
    connections: u64,
    /// Until when it is not connected again.
    cut_until: Duration,
    /// Since when no server has heard of it.
    silent_since: Duration,
    states: watch::Sender<SessionState>,
    is_closed: bool,
}

#[derive(Clone, Debug)]
struct Transaction {
    committed: Duration,
    zxid: i64,
    /// In milliseconds of Unix time.
    at: i64,
    change: Change,
}

/// Somebody who has a session of its own and nothing to do with the operator.
#[derive(Clone, Debug)]
struct Applicant {
    timeout: Duration,
    heard: Duration,
}

/// The servers.
#[derive(Debug)]
pub struct Zoo {
    begin: Instant,
    rng: fastrand::Rng,
    epoch: i64,
    counter: i64,
    log: Vec<Transaction>,
    truth: Tree,
    servers: Vec<Server>,
    clients: BTreeMap<u64, Client>,
    applicants: BTreeMap<i64, Applicant>,
    next_session: i64,
    next_client: u64,
    /// Since when each lag was in force, newest last.
    lags: Vec<(Duration, Duration)>,
    /// The operators whose next request breaks off by a defect of the library.
    breaks: Vec<String>,
    /// What was lost, so that nobody is told.
    lost: Vec<oneshot::Sender<()>>,
    /// Processes that are stopped or dead.
    silent: Vec<String>,
    /// When the servers went back to an earlier state.
    restored: Vec<Duration>,
}

/// The servers, shared.
#[derive(Clone, Debug)]
pub struct Servers(Arc<Mutex<Zoo>>);

impl Servers {
    /// Three servers without znodes.
    pub fn new(seed: u64) -> Self {
        let server = || Server {
            tree: Tree::empty(),
            applied: 0,
            lag: Duration::ZERO,
            is_up: true,
            watches: Vec::new(),
        };
        Self(Arc::new(Mutex::new(Zoo {
            begin: Instant::now(),
            rng: fastrand::Rng::with_seed(seed),
            epoch: 1,
            counter: 0,
            log: Vec::new(),
            truth: Tree::empty(),
            servers: (0..SERVERS).map(|_| server()).collect(),
            clients: BTreeMap::new(),
            applicants: BTreeMap::new(),
            next_session: 0x1000_0000_0000_0000,
            next_client: 0,
            lags: Vec::new(),
            breaks: Vec::new(),
            lost: Vec::new(),
            silent: Vec::new(),
            restored: Vec::new(),
        })))
    }

    /// The servers. Never hold them across an await.
    pub fn lock(&self) -> MutexGuard<'_, Zoo> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Zoo {
    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// The znodes as the leader of the ensemble has them.
    pub fn truth(&self) -> &Tree {
        &self.truth
    }

    /// How often the servers had gone back to an earlier state by then.
    pub fn restores(&self, by: Duration) -> usize {
        self.restored.iter().filter(|at| **at <= by).count()
    }

    /// Whether any server runs.
    pub fn is_up(&self) -> bool {
        self.servers.iter().any(|server| server.is_up)
    }

    /// How many transactions there were.
    pub fn transactions(&self) -> usize {
        self.log.len()
    }

    /// Some time between these two.
    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.rng.u64(micros(from)..=micros(to)))
    }

    /// Commits a change, and returns its transaction.
    pub fn commit(&mut self, change: Change) -> i64 {
        self.counter += 1;
        let zxid = (self.epoch << 32) | self.counter;
        let at = bellwether_api_server::now().as_millisecond();
        self.truth.apply(zxid, at, &change);
        self.log.push(Transaction {
            committed: self.now(),
            zxid,
            at,
            change,
        });
        zxid
    }

    /// Makes a node whose name ends in the next number below its parent; returns its path.
    pub fn create_sequential(&mut self, path: &str, data: Vec<u8>, owner: i64) -> String {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let path = format!("{path}{:010}", self.truth.next_number(parent));
        self.commit(Change::Create {
            path: path.clone(),
            data,
            owner,
        });
        path
    }

    /// Whether a node has this version.
    ///
    /// # Errors
    /// If it has another one, or does not exist.
    pub(super) fn check_version(&self, path: &str, version: i32) -> Result<(), Error> {
        let (_, stat) = self.truth.node(path).ok_or(Error::NoNode)?;
        match stat.version == version {
            true => Ok(()),
            false => Err(Error::BadVersion),
        }
    }

    /// Opens a session of an application.
    pub fn open(&mut self, timeout: Duration) -> i64 {
        self.next_session += 1;
        let session = self.next_session;
        let heard = self.now();
        self.applicants
            .insert(session, Applicant { timeout, heard });
        self.commit(Change::Open(session));
        session
    }

    /// An application shows that it lives. Returns whether its session does.
    pub fn hear(&mut self, session: i64) -> bool {
        let (now, is_up) = (self.now(), self.is_up());
        if let Some(applicant) = self.applicants.get_mut(&session)
            && is_up
        {
            applicant.heard = now;
        }
        self.truth.has_session(session)
    }

    /// Closes a session of an application.
    pub fn close(&mut self, session: i64) {
        self.applicants.remove(&session);
        if self.truth.has_session(session) {
            self.commit(Change::Close(session));
        }
    }

    /// The greatest lag of a server since then.
    pub fn lag_since(&self, since: Duration) -> Duration {
        let later = self.lags.iter().rposition(|(from, _)| *from <= since);
        let lags = self.lags[later.unwrap_or(0)..].iter();
        lags.map(|(_, lag)| *lag).max().unwrap_or_default()
    }

    /// From now on this server is so far behind.
    pub fn set_lag(&mut self, server: usize, lag: Duration) {
        self.servers[server].lag = lag;
        let lags = self.servers.iter().map(|server| server.lag);
        let greatest = lags.max().unwrap_or_default();
        self.lags.push((self.now(), greatest));
    }

    /// Stops or starts a server. Its clients go to another one.
    pub fn set_up(&mut self, server: usize, is_up: bool) {
        self.servers[server].is_up = is_up;
        if !is_up {
            let ids: Vec<u64> = self.clients.keys().copied().collect();
            for id in ids {
                if self.clients[&id].server == Some(server) {
                    self.disconnect(id, Duration::ZERO);
                }
            }
        }
    }

    /// Cuts the connections of an operator for so long.
    pub fn cut(&mut self, operator: &str, time: Duration) {
        for id in self.of(operator) {
            self.disconnect(id, time);
        }
    }

    /// The sessions of an operator end, as if no server had heard of it.
    pub fn expire(&mut self, operator: &str) {
        for id in self.of(operator) {
            let session = self.clients[&id].session;
            self.disconnect(id, Duration::ZERO);
            if self.truth.has_session(session) {
                self.commit(Change::Close(session));
            }
        }
    }

    /// The watches of an operator are lost without anybody being told.
    pub fn lose_watches(&mut self, operator: &str) -> usize {
        let of = self.of(operator);
        let mut count = 0;
        for server in &mut self.servers {
            let lost = server.take_watches(|watch| of.contains(&watch.connection));
            count += lost.len();
            self.lost.extend(lost.into_iter().map(|watch| watch.fire));
        }
        count
    }

    /// The next request of this operator breaks off by a defect.
    pub fn break_next(&mut self, operator: &str) {
        self.breaks.push(operator.to_owned());
    }

    /// No server hears of these operators: their processes are stopped or dead.
    pub fn silence(&mut self, operators: impl IntoIterator<Item = String>) {
        self.silent = operators.into_iter().collect();
    }

    /// All servers go back to what they were so many transactions ago, as from a backup, and elect a leader.
    pub fn restore(&mut self, transactions: usize) {
        let kept = self.log.len().saturating_sub(transactions);
        self.log.truncate(kept);
        let mut tree = Tree::empty();
        for transaction in &self.log {
            tree.apply(transaction.zxid, transaction.at, &transaction.change);
        }
        self.epoch += 1;
        self.counter = 0;
        self.restored.push(self.now());
        let ids: Vec<u64> = self.clients.keys().copied().collect();
        for id in ids {
            self.disconnect(id, Duration::ZERO);
        }
        let now = self.now();
        for session in tree.sessions() {
            // The clock of every session begins anew, whoever has it.
            let timeout = Duration::from_secs(10);
            let applicant = Applicant {
                timeout,
                heard: now,
            };
            self.applicants.entry(*session).or_insert(applicant).heard = now;
        }
        for server in &mut self.servers {
            server.tree = tree.clone();
            server.applied = kept;
            server.watches.clear();
        }
        let hidden: Vec<String> = tree.hidden().map(str::to_owned).collect();
        self.truth = tree;
        // Whoever goes back opens again what was closed then.
        for path in hidden {
            self.commit(Change::Protect {
                path,
                readable: true,
            });
        }
    }

    fn of(&self, operator: &str) -> Vec<u64> {
        let clients = self.clients.iter();
        let own = clients.filter(|(_, client)| client.operator == operator && !client.is_closed);
        own.map(|(id, _)| *id).collect()
    }

    fn disconnect(&mut self, id: u64, time: Duration) {
        let now = self.now();
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        client.cut_until = client.cut_until.max(now + time);
        if client.server.take().is_none() {
            return;
        }
        client.silent_since = now;
        client.connections += 1;
        client.states.send_replace(SessionState::Disconnected);
        for server in &mut self.servers {
            let lost = server.take_watches(|watch| watch.connection == id);
            self.lost.extend(lost.into_iter().map(|watch| watch.fire));
        }
    }

    /// A server that takes connections.
    fn any_server(&mut self) -> Option<usize> {
        let up = self.servers.iter().enumerate();
        let up: Vec<usize> = up.filter(|(_, s)| s.is_up).map(|(at, _)| at).collect();
        match up.is_empty() {
            true => None,
            false => Some(up[self.rng.usize(0..up.len())]),
        }
    }

    /// Everything that happens by itself up to now.
    pub fn advance(&mut self) {
        let now = self.now();
        for at in 0..self.servers.len() {
            self.carry_out(at, now);
        }
        let late = |applicant: &Applicant| now > applicant.heard + applicant.timeout;
        let expired = self.applicants.iter();
        let expired = expired.filter(|(_, applicant)| late(applicant));
        let expired: Vec<i64> = expired.map(|(session, _)| *session).collect();
        if self.is_up() {
            for session in expired {
                self.close(session);
            }
        }
        let ids: Vec<u64> = self.clients.keys().copied().collect();
        for id in ids {
            self.keep_up(id, now);
        }
    }

    /// A server carries out what it has heard of.
    fn carry_out(&mut self, at: usize, now: Duration) {
        let server = &mut self.servers[at];
        while let Some(next) = self.log.get(server.applied)
            && (now >= next.committed + server.lag)
        {
            let touched = server.tree.apply(next.zxid, next.at, &next.change);
            server.applied += 1;
            let fires = |watch: &Watch| {
                touched.iter().any(|touched| match touched {
                    Touched::Node(path) => watch.watched == Watched::Node && *path == watch.path,
                    Touched::Children(path) => {
                        watch.watched == Watched::Children && *path == watch.path
                    }
                })
            };
            for watch in server.take_watches(fires) {
                let _ = watch.fire.send(());
            }
        }
    }

    /// A client without a server looks for one; a session that nobody hears of ends.
    fn keep_up(&mut self, id: u64, now: Duration) {
        let client = &self.clients[&id];
        let (session, is_silent) = (client.session, self.silent.contains(&client.operator));
        if client.is_closed {
            self.clients.remove(&id);
            return;
        }
        if !is_silent && client.server.is_some() {
            if let Some(client) = self.clients.get_mut(&id) {
                client.silent_since = now;
            }
            return;
        }
        let since = client.silent_since;
        let may_connect = !is_silent && now >= client.cut_until && now >= since + RECONNECT;
        if now > since + OPERATORS_TIMEOUT && self.truth.has_session(session) {
            if client.server.is_some() {
                self.disconnect(id, Duration::ZERO);
                if let Some(client) = self.clients.get_mut(&id) {
                    client.silent_since = since;
                }
            }
            self.commit(Change::Close(session));
        }
        if may_connect && let Some(server) = self.any_server() {
            let lives = self.truth.has_session(session);
            let Some(client) = self.clients.get_mut(&id) else {
                return;
            };
            match lives {
                true => {
                    client.server = Some(server);
                    client.silent_since = now;
                    client.states.send_replace(SessionState::SyncConnected);
                }
                false => {
                    client.states.send_replace(SessionState::Expired);
                    client.is_closed = true;
                }
            }
        }
    }
}
