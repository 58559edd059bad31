//! Reads of one election, with the watches that show when to read again.
//!
//! A watch is set by the read whose result it guards, so no change can fall between the two. At
//! most four watches are set: on the children or on the node itself, on the leader's data, on an
//! acknowledgement that is not among the children, and on the node in which the leader registers
//! itself. Other candidates are not watched: their data is written when they are created, and their
//! coming and going is a change of the children. Only where their data or their creation decides who
//! leads, all of them are, up to a limit.

mod beside;
mod confirm;
mod queue;
mod single;

use std::collections::HashMap;
use std::sync::Arc;

use bellwether_election::limits::Excess;
use bellwether_election::{
    Acknowledgement, CandidateNode, NodeStat, Place, Reading, Rules, Snapshot, read_election,
};
use futures::future::select_all;
use thiserror::Error;
use zookeeper_client::Stat;

use self::beside::Beside;
pub(super) use self::confirm::{Confirmed, Confirmer};
use self::single::{Single, watch_absent};
use super::budget::{Budget, Held};
use super::zookeepers::{Fired, Session};

/// How many candidates of one election are read at the same time, if the session lets it.
pub(super) const CONCURRENT_READS: usize = 16;

/// How many attempts a read has if candidates leave while it runs. The last attempt continues with the
/// candidates that are left: the others have fired a watch by leaving, so the next read follows at once.
const ATTEMPTS: usize = 3;

/// Why a read failed.
#[derive(Debug, Error)]
pub(super) enum ReadError {
    /// The ACL of the path does not grant READ.
    #[error("not allowed to read {path}")]
    NoAuth {
        /// The path that was read.
        path: String,
    },
    /// The path has more children than may be held in memory.
    #[error("{path} {excess}")]
    Excess {
        /// The path that was read.
        path: String,
        /// Which limit they exceed.
        excess: Excess,
    },
    /// The read took too long as a whole, although the server answers.
    #[error("reading {path} takes too long")]
    Slow {
        /// The path of the election.
        path: String,
    },
    /// ZooKeeper did not answer, or refused for another cause.
    #[error("reading {path} failed")]
    ZooKeeper {
        /// The path that was read.
        path: String,
        /// What ZooKeeper or its client says.
        #[source]
        source: zookeeper_client::Error,
    },
}

/// Reads one election again and again over one connection.
pub(super) struct Reader {
    client: Arc<dyn Session>,
    budget: Arc<Budget>,
    /// The children as last listed, valid while `main` is set.
    children: Vec<String>,
    /// The room that their names take.
    held: Option<Held>,
    /// The parent as last listed.
    parent: NodeStat,
    /// What was read of the candidates. A node cannot change its creation, so it is read once; the
    /// leader's data is watched.
    znodes: HashMap<String, CandidateNode>,
    /// The newest transaction that the members reflect.
    newest_member: i64,
    /// The newest transaction that was reported.
    reported: i64,
    /// The acknowledgement outside of the children, valid while `acknowledgement_watch` is set.
    acknowledgement: Acknowledgement,
    /// How the leader registered itself.
    registration: Single<CandidateNode>,

    main: Watch,
    leader: Watch,
    leader_node: Option<String>,
    acknowledgement_watch: Watch,
    /// Watches on the candidates, where all of them have to be known.
    candidates: HashMap<String, Watch>,
    /// The znodes beside the leader's node; `None` for elections that have no such znodes.
    beside: Option<Box<Beside>>,
}

impl Reader {
    pub(super) fn new(client: Arc<dyn Session>, budget: Arc<Budget>) -> Self {
        Self {
            client,
            budget,
            children: Vec::new(),
            held: None,
            parent: NodeStat::default(),
            znodes: HashMap::new(),
            newest_member: 0,
            reported: 0,
            acknowledgement: Acknowledgement::Absent,
            registration: Single::default(),
            main: Watch::default(),
            leader: Watch::default(),
            leader_node: None,
            acknowledgement_watch: Watch::default(),
            candidates: HashMap::new(),
            beside: None,
        }
    }

    /// Forgets what was read, so that the next read reads everything.
    pub(super) fn forget(&mut self) {
        self.children = Vec::new();
        self.held = None;
        self.znodes.clear();
        self.newest_member = 0;
        self.leader_node = None;
        self.main.clear();
        self.leader.clear();
        self.acknowledgement_watch.clear();
        self.registration.watch.clear();
        self.candidates.clear();
        self.beside = None;
    }

    /// Reads leaders again over the same connection.
    pub(super) fn confirmer(&self) -> Confirmer {
        Confirmer::new(self.client.clone(), self.budget.clone())
    }

    /// Waits until the server has caught up with the leader of the ensemble.
    pub(super) async fn sync(&mut self, path: &str) -> Result<(), ReadError> {
        self.client
            .sync(path)
            .await
            .map_err(|error| failed(path, error))
    }

    /// Waits until something that was read may have changed.
    pub(super) async fn changed(&mut self) {
        tokio::select! {
            () = self.main.fired() => {}
            () = self.leader.fired() => {}
            () = self.acknowledgement_watch.fired() => {}
            () = self.registration.watch.fired() => {}
            node = any_fired(&mut self.candidates) => {
                self.znodes.remove(&node);
            }
            () = beside_fired(&mut self.beside) => {}
        }
    }

    /// Reads what may have changed since the last read, and sets the watches that have fired.
    ///
    /// A failed read leaves its watch unset, so the next one reads the same again. If the rules
    /// leave the dialect open, what is read decides it. `reported` is the newest transaction that was reported so far.
    pub(super) async fn read(
        &mut self,
        rules: &mut Rules,
        reported: i64,
    ) -> Result<Box<Reading>, ReadError> {
        self.reported = reported;
        let snapshot = match rules.place() {
            Place::Node => self.read_node(rules).await?,
            Place::Queue | Place::Unknown => self.read_queue(rules).await?,
        };
        if let Snapshot::Missing { .. } = snapshot {
            // The path does not exist, so an ambiguous detection is outdated.
            rules.detect(&[]);
        }
        let mut reading = Box::new(read_election(rules, &snapshot));
        if Beside::exists(rules) {
            let beside = self.beside.get_or_insert_default();
            beside
                .complete(&*self.client, &self.budget, rules, &mut reading)
                .await?;
        }
        Ok(reading)
    }

    async fn read_node(&mut self, rules: &Rules) -> Result<Snapshot, ReadError> {
        let path = rules.spec().path.clone();
        for _ in 0..ATTEMPTS {
            self.main.clear();
            let read = self.budget.read().await;
            match self.client.get_and_watch_data(&path).await {
                Ok((data, stat, watcher)) => {
                    self.main.set(watcher);
                    let stat = node_stat(&stat);
                    let node = path.rsplit('/').next().unwrap_or(&path);
                    let candidacy = rules.candidacy(node, &stat, &data);
                    let zxid = stat.newest();
                    return Ok(Snapshot::Node {
                        candidacy,
                        children: stat.children,
                        zxid,
                    });
                }
                Err(zookeeper_client::Error::NoNode) => {
                    drop(read);
                    if let Some(missing) = self.read_missing(&path).await? {
                        return Ok(missing);
                    }
                }
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(restless(&path))
    }

    /// Watches for the election's path to be created. `None` if it exists by now.
    async fn read_missing(&mut self, path: &str) -> Result<Option<Snapshot>, ReadError> {
        let mut absent = watch_absent(&*self.client, path).await?;
        if let Some((_, None)) = absent {
            // Nothing says how old this absence is. Of a server that has caught up with the ensemble's leader, it is as new
            // as all that was reported.
            self.sync(path).await?;
            absent = watch_absent(&*self.client, path).await?;
        }
        let Some((watcher, zxid)) = absent else {
            return Ok(None);
        };
        self.forget();
        self.main.set(watcher);
        Ok(Some(Snapshot::Missing {
            zxid: zxid.unwrap_or(self.reported),
        }))
    }
}

/// Waits until one of the watches fires, and returns which. Without watches it waits for ever.
async fn any_fired(watches: &mut HashMap<String, Watch>) -> String {
    if watches.is_empty() {
        return std::future::pending().await;
    }
    let fired = watches.iter_mut().map(|(node, watch)| {
        Box::pin(async move {
            watch.fired().await;
            node.clone()
        })
    });
    select_all(fired).await.0
}

/// Waits until one of the watches beside the leader's node fires. Without watches it waits for ever.
async fn beside_fired(beside: &mut Option<Box<Beside>>) {
    let Some(beside) = beside else {
        return std::future::pending().await;
    };
    tokio::select! {
        () = beside.others_watch.fired() => {}
        () = beside.breadcrumb.watch.fired() => {}
        () = beside.epoch.watch.fired() => {}
    }
}

/// Room for the names of the children of a path.
fn hold(budget: &Budget, path: &str, children: &[String]) -> Result<Held, ReadError> {
    budget.hold(children).map_err(|excess| {
        let path = path.to_owned();
        ReadError::Excess { path, excess }
    })
}

fn child(path: &str, name: &str) -> String {
    format!("{path}/{name}")
}

fn node_stat(stat: &Stat) -> NodeStat {
    NodeStat {
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        pzxid: stat.pzxid,
        ctime: stat.ctime,
        mtime: stat.mtime,
        ephemeral_owner: stat.ephemeral_owner,
        children: stat.num_children,
    }
}

fn failed(path: &str, error: zookeeper_client::Error) -> ReadError {
    let path = path.to_owned();
    match error {
        zookeeper_client::Error::NoAuth => ReadError::NoAuth { path },
        // The relay leaves out what is too long.
        zookeeper_client::Error::MarshallingError => ReadError::Excess {
            path,
            excess: Excess::Answer,
        },
        source => ReadError::ZooKeeper { path, source },
    }
}

/// The error for a path that is created and deleted faster than it can be read.
fn restless(path: &str) -> ReadError {
    failed(path, zookeeper_client::Error::NoNode)
}

/// A one-shot watch, set or not.
#[derive(Default)]
struct Watch(Option<Fired>);

impl Watch {
    fn is_set(&self) -> bool {
        self.0.is_some()
    }

    fn set(&mut self, fired: Fired) {
        self.0 = Some(fired);
    }

    /// Drops the watch; the client removes it from the server unless another reader needs it.
    fn clear(&mut self) {
        self.0 = None;
    }

    /// Waits until the watch fires, and unsets it then. Waits for ever if the watch is not set.
    async fn fired(&mut self) {
        match &mut self.0 {
            Some(watch) => {
                watch.await;
                self.0 = None;
            }
            None => std::future::pending().await,
        }
    }
}
