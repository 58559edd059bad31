//! What the acts of a life do, and how they end.

use std::time::Duration;

use bellwether_api_server::Link;

use super::super::acts::{Act, Application as Change, Operator, ZooKeeper};
use super::super::applications::Application;
use super::super::tree;
use super::super::zookeeper::{SERVERS, Zoo};
use super::{Life, RECOVERY};

/// How long the operator may take after watches were lost: everything is read again after five minutes, and up to a tenth more.
const RESYNC: Duration = Duration::from_secs(345);

/// The end of something that lasts.
pub(super) enum Later {
    StartContainer(usize, usize),
    GoOn(usize, usize),
    Show(String),
    StopServer(usize),
    StartServer(usize),
    CatchUp(usize),
    StartOperator,
    Resume(String),
    Connect(String),
    StopFailing,
    Thaw(usize),
    Resign(usize, u8),
}

impl Life {
    pub(super) fn act(&mut self, act: &Act, rng: &mut fastrand::Rng) {
        match act {
            Act::Application(at, change) => self.act_on_application(*at, change, rng),
            Act::ZooKeeper(act) => self.act_on_zookeeper(act),
            Act::Operator(act) => self.act_on_operator(act),
        }
        self.note_leaders();
    }

    fn act_on_application(&mut self, application: usize, act: &Change, rng: &mut fastrand::Rng) {
        let now = self.cluster.now();
        match *act {
            Change::Crash(candidate, time) => {
                self.end_container(application, candidate, false);
                self.later(time, Later::StartContainer(application, candidate));
            }
            Change::EndInOrder(candidate, time) => {
                self.end_container(application, candidate, true);
                self.later(time, Later::StartContainer(application, candidate));
            }
            Change::CrashLeader => {
                if let Some(at) = self.leader(application) {
                    self.end_container(application, at, false);
                    let soon = Duration::from_millis(rng.u64(500..3000));
                    self.later(soon, Later::StartContainer(application, at));
                }
            }
            Change::ReplaceLeadersPod => {
                if let Some(at) = self.leader(application) {
                    let mut store = self.cluster.api.store();
                    self.applications[application].replace_pod(&mut store, now, at);
                    drop(store);
                    self.pods_since[application] = now;
                }
            }
            Change::StopLeader(time) => {
                if let Some(at) = self.leader(application) {
                    self.applications[application].stop(at, true);
                    self.later(time, Later::GoOn(application, at));
                }
            }
            Change::Resign(times) => self.end_of(Later::Resign(application, times)),
            Change::DeletePath => self.with_zoo(|zoo, applications| {
                if zoo.is_up() {
                    let path = applications[application].form.path();
                    zoo.commit(tree::Change::Delete { path });
                }
            }),
            Change::HideLeader(time) => {
                let form = self.applications[application].form;
                let first = self.with_zoo(|zoo, _| form.first(zoo.truth()));
                if let Some(path) = first {
                    self.hide(path, time);
                }
            }
            Change::HidePath(time) => {
                let path = self.applications[application].form.path();
                self.hide(path, time);
            }
            Change::MoveBack(server, lag, time) => {
                self.act_on_zookeeper(&ZooKeeper::Lag(server, lag, lag + time));
                self.later(lag / 8, Later::Resign(application, 1));
                for other in (0..SERVERS).filter(|other| *other != server) {
                    self.later(lag / 3, Later::StopServer(other));
                    self.later(lag + time, Later::StartServer(other));
                }
            }
        }
    }

    fn act_on_zookeeper(&mut self, act: &ZooKeeper) {
        let operators: Vec<String> = self.operators.iter().map(|p| p.name.clone()).collect();
        match *act {
            ZooKeeper::Cut(time) => {
                for name in &operators {
                    self.servers.lock().cut(name, time);
                }
                self.ill(time, RECOVERY);
            }
            ZooKeeper::Expire => {
                for name in &operators {
                    self.servers.lock().expire(name);
                }
                self.ill(Duration::ZERO, RECOVERY);
            }
            ZooKeeper::LoseWatches => {
                let lose = |name: &String| self.servers.lock().lose_watches(name);
                let lost: usize = operators.iter().map(lose).sum();
                self.tell(&format!("{lost} watches are lost"));
                self.ill(Duration::ZERO, RESYNC);
            }
            ZooKeeper::Break => {
                if let Some(name) = operators.first() {
                    self.servers.lock().break_next(name);
                    self.ill(Duration::ZERO, RESYNC);
                }
            }
            ZooKeeper::Lag(server, lag, time) => {
                self.servers.lock().set_lag(server, lag);
                self.ill(time + lag, RECOVERY);
                self.later(time, Later::CatchUp(server));
            }
            ZooKeeper::StopServer(server, time) => {
                self.servers.lock().set_up(server, false);
                self.ill(time, RECOVERY);
                self.later(time, Later::StartServer(server));
            }
            ZooKeeper::StopServers(time) => {
                for server in 0..SERVERS {
                    self.act_on_zookeeper(&ZooKeeper::StopServer(server, time));
                }
            }
            ZooKeeper::Restore(transactions) => {
                self.servers.lock().restore(transactions);
                self.ill(Duration::ZERO, RECOVERY);
            }
        }
    }

    fn act_on_operator(&mut self, act: &Operator) {
        match *act {
            Operator::Kill(time) => {
                if !self.operators.is_empty() {
                    self.kill_operator(0, time);
                }
            }
            Operator::Stop(time) => {
                if let Some(name) = self.holder() {
                    self.cluster.api.stops().stop(&name);
                    self.note_stop(name, time);
                }
            }
            Operator::StopAfter(requests, time) => {
                self.trouble().stops_after = Some((requests, time));
            }
            Operator::CutOff(time) => {
                let name = self.operators.first().map(|process| process.name.clone());
                if let Some(name) = name {
                    for front_end in 0..2 {
                        self.cluster.api.set_link(&name, front_end, Link::Silent);
                    }
                    self.ill_api(time);
                    self.later(time, Later::Connect(name));
                }
            }
            Operator::FailRequests(time) => {
                self.trouble().failing = true;
                self.ill_api(time);
                self.later(time, Later::StopFailing);
            }
            Operator::DieAfterWrite(writes) => self.trouble().dies_after = Some(writes),
            Operator::LagCaches(time) => {
                self.cluster.api.freeze(0);
                self.ill_api(time);
                self.later(time, Later::Thaw(0));
            }
        }
    }

    /// The operator that holds the lease, if its process runs.
    fn holder(&self) -> Option<String> {
        let holder = self.trouble().holder.clone()?;
        let mut running = self.operators.iter();
        let runs = running.any(|process| process.name == holder);
        runs.then_some(holder)
    }

    fn with_zoo<T>(&mut self, act: impl FnOnce(&mut Zoo, &mut Vec<Application>) -> T) -> T {
        let servers = self.servers.clone();
        act(&mut servers.lock(), &mut self.applications)
    }

    fn protect(&mut self, path: String, readable: bool) {
        self.with_zoo(|zoo, _| zoo.commit(tree::Change::Protect { path, readable }));
    }

    fn hide(&mut self, path: String, time: Duration) {
        self.protect(path.clone(), false);
        self.ill(time, RECOVERY);
        self.later(time, Later::Show(path));
    }

    fn leader(&self, application: usize) -> Option<usize> {
        self.applications[application].leader(&self.servers.lock())
    }

    fn end_container(&mut self, application: usize, candidate: usize, in_order: bool) {
        let servers = self.servers.clone();
        let (mut store, mut zoo) = (self.cluster.api.store(), servers.lock());
        let in_order = in_order && zoo.is_up();
        self.applications[application].end(&mut store, &mut zoo, candidate, in_order);
        self.pods_since[application] = self.cluster.now();
    }

    pub(super) fn end_of(&mut self, what: Later) {
        let now = self.cluster.now();
        match what {
            Later::StartContainer(application, candidate) => {
                let mut store = self.cluster.api.store();
                self.applications[application].start(&mut store, now, candidate);
                self.pods_since[application] = now;
            }
            Later::GoOn(application, candidate) => {
                self.applications[application].stop(candidate, false);
            }
            Later::Show(path) => self.protect(path, true),
            Later::StopServer(server) => self.servers.lock().set_up(server, false),
            Later::StartServer(server) => self.servers.lock().set_up(server, true),
            Later::CatchUp(server) => self.servers.lock().set_lag(server, Duration::ZERO),
            Later::StartOperator => self.start_operator(),
            Later::Resume(name) => {
                self.tell(&format!("{name} continues"));
                self.stopped.retain(|stopped| *stopped != name);
                self.cluster.api.stops().resume(&name);
            }
            Later::Connect(name) => {
                for front_end in 0..2 {
                    self.cluster.api.set_link(&name, front_end, Link::Up);
                }
            }
            Later::StopFailing => self.trouble().failing = false,
            Later::Thaw(front_end) => self.cluster.api.thaw(front_end),
            Later::Resign(application, times) => {
                self.with_zoo(|zoo, applications| {
                    if zoo.is_up() {
                        applications[application].resign(zoo);
                    }
                });
                if times > 1 {
                    let next = Later::Resign(application, times - 1);
                    self.later(Duration::from_millis(700), next);
                }
            }
        }
    }
}
