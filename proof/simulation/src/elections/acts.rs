//! What happens in a life of elections.

use std::time::Duration;

use super::applications::{CANDIDATES, FORMS};
use super::zookeeper::SERVERS;

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Act {
    /// To the application of this number.
    Application(usize, Application),
    /// To ZooKeeper, or to the operators' connections to it.
    ZooKeeper(ZooKeeper),
    /// To an operator, or to its connection to the API server.
    Operator(Operator),
}

/// What happens to an application.
#[derive(Clone, Debug)]
pub enum Application {
    /// The container of this candidate ends without its session, and starts again after a while.
    Crash(usize, Duration),
    /// The leader's container ends without its session, and starts again soon.
    CrashLeader,
    /// The pod of the leader is deleted at once, and another one has its name.
    ReplaceLeadersPod,
    /// The program of this candidate ends in order, and starts again after a while.
    EndInOrder(usize, Duration),
    /// The leader's process is stopped for so long, as by SIGSTOP.
    StopLeader(Duration),
    /// The leader resigns, so often in a row.
    Resign(u8),
    /// The path of the election is deleted with all below it.
    DeletePath,
    /// The ACL of the leader's node is closed to the mirror for so long.
    HideLeader(Duration),
    /// The same of the election's path.
    HidePath(Duration),
    /// The leader resigns while a server is so far behind, and before that one has heard of it all others go down for so long.
    MoveBack(usize, Duration, Duration),
}

/// What happens to ZooKeeper, or to the operators' connections to it.
#[derive(Clone, Debug)]
pub enum ZooKeeper {
    /// The connections of the operators' sessions are cut for so long.
    Cut(Duration),
    /// The operators' sessions end.
    Expire,
    /// The operators' watches are lost, and nobody is told.
    LoseWatches,
    /// An operator's next request breaks off by a defect of the client library.
    Break,
    /// This server falls behind by so much, for so long.
    Lag(usize, Duration, Duration),
    /// This server is down for so long.
    StopServer(usize, Duration),
    /// All servers are down for so long.
    StopServers(Duration),
    /// All servers go back by so many transactions, as from a backup.
    Restore(usize),
}

/// What happens to an operator, or to its connection to the API server.
#[derive(Clone, Debug)]
pub enum Operator {
    /// Its process dies; another one starts after so long.
    Kill(Duration),
    /// The process of the one that holds the lease is stopped for so long.
    Stop(Duration),
    /// It is stopped so, right after so many requests to the API server.
    StopAfter(u16, Duration),
    /// It does not reach the API servers for so long.
    CutOff(Duration),
    /// Requests to the API server fail now and then for so long.
    FailRequests(Duration),
    /// It dies right after this many more writes, and does not see the answer.
    DieAfterWrite(u16),
    /// An API server shows old objects for so long.
    LagCaches(Duration),
}

impl Act {
    /// What happens, in one word.
    pub fn name(&self) -> String {
        let inner = match self {
            Self::Application(_, act) => format!("{act:?}"),
            Self::ZooKeeper(act) => format!("{act:?}"),
            Self::Operator(act) => format!("{act:?}"),
        };
        inner.split('(').next().unwrap_or_default().to_owned()
    }
}

/// The acts of a life, each with the pause before it.
pub fn choose(rng: &mut fastrand::Rng) -> Vec<(Duration, Act)> {
    let count = rng.usize(4..16);
    (0..count).map(|_| (pause(rng), one(rng))).collect()
}

fn seconds(rng: &mut fastrand::Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.u64(from * 1000..to * 1000))
}

fn pause(rng: &mut fastrand::Rng) -> Duration {
    match rng.u8(0..3) {
        0 => seconds(rng, 0, 3),
        1 => seconds(rng, 2, 20),
        _ => seconds(rng, 15, 90),
    }
}

fn one(rng: &mut fastrand::Rng) -> Act {
    match rng.u8(0..4) {
        0..=1 => Act::Application(rng.usize(0..FORMS.len()), application(rng)),
        2 => Act::ZooKeeper(zookeeper(rng)),
        _ => Act::Operator(operator(rng)),
    }
}

fn application(rng: &mut fastrand::Rng) -> Application {
    let candidate = rng.usize(0..CANDIDATES);
    match rng.u8(0..14) {
        0..=1 => Application::Crash(candidate, seconds(rng, 1, 20)),
        2..=3 => Application::CrashLeader,
        4..=5 => Application::ReplaceLeadersPod,
        6 => Application::EndInOrder(candidate, seconds(rng, 1, 20)),
        7 => Application::StopLeader(seconds(rng, 1, 60)),
        8..=9 => Application::Resign(rng.u8(1..8)),
        10 => Application::DeletePath,
        11 => Application::HideLeader(seconds(rng, 1, 60)),
        12 => Application::HidePath(seconds(rng, 1, 60)),
        _ => {
            let (lag, time) = (seconds(rng, 2, 9), seconds(rng, 5, 30));
            Application::MoveBack(rng.usize(0..SERVERS), lag, time)
        }
    }
}

fn zookeeper(rng: &mut fastrand::Rng) -> ZooKeeper {
    let server = rng.usize(0..SERVERS);
    match rng.u8(0..10) {
        0..=1 => ZooKeeper::Cut(seconds(rng, 0, 20)),
        2 => ZooKeeper::Expire,
        3 => ZooKeeper::LoseWatches,
        4 => ZooKeeper::Break,
        5..=6 => ZooKeeper::Lag(server, seconds(rng, 0, 9), seconds(rng, 2, 30)),
        7 => ZooKeeper::StopServer(server, seconds(rng, 1, 30)),
        8 => ZooKeeper::StopServers(seconds(rng, 1, 30)),
        _ => ZooKeeper::Restore(rng.usize(1..30)),
    }
}

fn operator(rng: &mut fastrand::Rng) -> Operator {
    match rng.u8(0..7) {
        0 => Operator::Kill(seconds(rng, 0, 30)),
        1 => Operator::Stop(seconds(rng, 1, 60)),
        2 => Operator::StopAfter(rng.u16(0..12), seconds(rng, 1, 60)),
        3 => Operator::CutOff(seconds(rng, 1, 60)),
        4 => Operator::FailRequests(seconds(rng, 5, 60)),
        5 => Operator::DieAfterWrite(rng.u16(0..12)),
        _ => Operator::LagCaches(seconds(rng, 1, 30)),
    }
}
