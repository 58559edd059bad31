//! What the rest of the simulation says to the servers and hears from them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellwether_ensemble::ServerId;
use bellwether_ensemble::server_tls::ServerTls;

/// One run of a ZooKeeper server: a process, with the address that it has as long as it lives. A
/// restart is another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub(super) usize);

/// A volume. It outlives the processes that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub(super) usize);

/// A write that a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) u64);

/// A client of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A transaction: its zxid and the write that it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The epoch in the upper half, a counter in the lower one.
    pub zxid: i64,
    /// The client's write.
    pub write: u64,
}

/// The epoch of a zxid. As in ZooKeeper, that of -1 is -1.
pub(super) fn epoch_of(zxid: i64) -> i64 {
    zxid >> 32
}

/// The first zxid of an epoch, which no transaction has.
pub(super) fn zxid_of(epoch: i64) -> i64 {
    epoch << 32
}

/// A list of servers on which they agree while they run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The zxid of the transaction that made it.
    pub version: i64,
    /// The voters with their host names.
    pub voters: BTreeMap<ServerId, String>,
    /// The observers.
    pub observers: BTreeSet<ServerId>,
}

/// A list of [`super::Zoo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListId(pub(super) usize);

/// A request for another list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReconfigurationId(pub(super) u64);

/// What a transaction that makes a list has for its write, beside the list's number. Clients' writes are smaller.
const MAKES_LIST: u64 = 1 << 63;

impl Entry {
    pub(super) fn of_list(zxid: i64, list: ListId) -> Self {
        let number = u64::try_from(list.0).unwrap_or(0);
        Self {
            zxid,
            write: MAKES_LIST | number,
        }
    }

    /// The list that it makes, if it makes one.
    pub(super) fn list(self) -> Option<ListId> {
        let number = usize::try_from(self.write & !MAKES_LIST).ok()?;
        (self.write & MAKES_LIST != 0).then_some(ListId(number))
    }
}

/// How a server starts.
#[derive(Clone, Debug)]
pub struct Start {
    /// The ensemble, `namespace/name`: what is acknowledged in one is not looked for in another.
    pub ensemble: String,
    /// The server's id, as in `myid`.
    pub id: ServerId,
    /// The voters in its own file and their host names.
    pub voters: Vec<(ServerId, String)>,
    /// The observers in its own file.
    pub observers: BTreeSet<ServerId>,
    /// The version of that list; 0 for one that has none.
    pub version: i64,
    /// The servers that a list at run time may name.
    pub servers: BTreeMap<ServerId, String>,
    /// The name that its own line has.
    pub host: String,
    /// Whether its own file says that it observes.
    pub observer: bool,
    /// The volume of its snapshots, epochs and `myid`.
    pub disk: DiskId,
    /// The volume of its transaction log, if it is another one.
    pub log_disk: Option<DiskId>,
    /// The settings in its own file.
    pub settings: Settings,
}

/// The settings of a server that decide how it elects, follows and starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `tickTime`.
    pub tick: Duration,
    /// `initLimit`, in ticks.
    pub init_limit: u32,
    /// `syncLimit`, in ticks.
    pub sync_limit: u32,
    /// `db.autocreate`: whether an empty disk votes without the file `initialize`.
    pub autocreate: bool,
    /// `fastleader.maxNotificationInterval`.
    pub longest_notification: Duration,
    /// `leader.maxTimeToWaitForEpoch`.
    pub longest_wait_for_epoch: Option<Duration>,
    /// `leaderConnectDelayDuringRetryMs`.
    pub connect_delay: Duration,
    /// `sslQuorum` and `portUnification`.
    pub tls: ServerTls,
    /// `reconfigEnabled`.
    pub reconfigures: bool,
}

impl Default for Settings {
    /// ZooKeeper's own defaults, with the limits of its sample file.
    fn default() -> Self {
        Self {
            tick: Duration::from_secs(2),
            init_limit: 10,
            sync_limit: 5,
            autocreate: true,
            longest_notification: Duration::from_secs(60),
            longest_wait_for_epoch: None,
            connect_delay: Duration::from_millis(100),
            tls: ServerTls::Disabled,
            reconfigures: false,
        }
    }
}

impl Settings {
    pub(super) fn init_time(&self) -> Duration {
        self.tick * self.init_limit
    }

    pub(super) fn sync_time(&self) -> Duration {
        self.tick * self.sync_limit
    }
}

/// How long things take. Two durations are the shortest and the longest; the seed chooses between.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Until a new process has begun to read its disk.
    pub process_start: (Duration, Duration),
    /// Of a message between two servers, or a server and a client.
    pub latency: (Duration, Duration),
    /// Until what was written is safe on the disk.
    pub flush: (Duration, Duration),
    /// Between two states of a server: closing connections, starting threads.
    pub turn: (Duration, Duration),
    /// Until a new leader accepts followers.
    pub open_port: (Duration, Duration),
    /// Bytes in a second that a server reads at its start and writes in a snapshot.
    pub disk_rate: u64,
    /// Bytes in a second that a leader sends to one follower.
    pub copy_rate: u64,
    /// After how long an attempt to connect to a silent address ends.
    pub connect_timeout: Duration,
    /// After how long a connection breaks whose other end vanished without closing it.
    pub retransmission: Duration,
}

impl Default for Timing {
    /// As measured with small data on servers in one place.
    fn default() -> Self {
        let ms = Duration::from_millis;
        let us = Duration::from_micros;
        Self {
            process_start: (ms(700), ms(1500)),
            latency: (us(100), us(1500)),
            flush: (ms(1), ms(6)),
            turn: (ms(5), ms(40)),
            open_port: (ms(5), ms(80)),
            disk_rate: 100 << 20,
            copy_rate: 50 << 20,
            connect_timeout: Duration::from_secs(5),
            // 15 retransmissions, as Linux has it.
            retransmission: Duration::from_secs(924),
        }
    }
}

/// What a server is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its process does not run.
    Down,
    /// It reads its disk.
    Loading,
    /// It looks for a leader.
    Looking,
    /// It has found or is a leader, and the epoch is not agreed.
    Discovery,
    /// It copies what it lacks, or is a leader that waits for a majority to have done so.
    Synchronizing {
        /// What is still to be copied.
        bytes_left: u64,
    },
    /// It leads and serves.
    Leading,
    /// It follows and serves.
    Following,
    /// It observes and serves.
    Observing,
}

/// What became of a client's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When the client hears it.
    pub at: Duration,
    /// The client.
    pub client: ClientId,
    /// The request.
    pub request: RequestId,
    /// The write.
    pub write: u64,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a client's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is committed, with this zxid.
    Acknowledged(i64),
    /// The connection was lost: the write may be committed or not.
    Lost,
    /// The server does not serve: the write was not tried.
    Refused,
}

/// A change of a server's state, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// When.
    pub at: Duration,
    /// Which process.
    pub process: ProcessId,
    /// What happened.
    pub text: String,
}

/// What must never be the case, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When it was seen.
    pub at: Duration,
    /// The ensemble.
    pub ensemble: String,
    /// Of which kind it is.
    pub kind: Harm,
    /// The sentence.
    pub text: String,
}

/// The kinds of harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// A write that was acknowledged is not in the history of a leader.
    LostWrite,
    /// Two leaders can commit at once.
    TwoLeaders,
    /// Two writes were committed with the same zxid, or a follower serves what its leader does not have.
    TwoHistories,
    /// A client read from a leader and did not find what was acknowledged before.
    StaleRead,
}
