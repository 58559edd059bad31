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
mod single;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bellwether_election::{
    Acknowledgement, Candidacy, CandidateNode, NodeStat, Place, Reading, Registration, Rules,
    Snapshot, ZnodeLocation, read_election,
};
use futures::future::select_all;
use futures::{StreamExt, TryStreamExt, stream};
use thiserror::Error;
use tokio::sync::{Semaphore, SemaphorePermit};
use zookeeper_client::{Client, OneshotWatcher, Stat, WatchedEvent};

use self::beside::Beside;
pub(super) use self::confirm::{Confirmed, Confirmer};
use self::single::{Single, watch_absent};

/// How many candidates of one election are read at the same time, if the session lets it.
const CONCURRENT_READS: usize = 16;

/// How many children a path may have. ZooKeeper's own clients take lists of 1 MiB by default, which is
/// some twenty thousand names.
pub(super) const MAX_CHILDREN: usize = 50_000;

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
    /// The path has more than [`MAX_CHILDREN`] children.
    #[error("{path} has {count} children")]
    TooMany {
        /// The path that was read.
        path: String,
        /// How many.
        count: usize,
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
    client: Arc<Client>,
    /// One permit for each candidate that is being read, of all elections of the session.
    reads: Arc<Semaphore>,
    /// The children as last listed, valid while `main` is set.
    children: Vec<String>,
    /// The parent as last listed.
    parent: NodeStat,
    /// What was read of the candidates. A node cannot change its creation, so it is read once; the
    /// leader's data is watched.
    znodes: HashMap<String, CandidateNode>,
    /// The newest transaction that the members reflect.
    newest_member: i64,
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
    pub(super) fn new(client: Arc<Client>, reads: Arc<Semaphore>) -> Self {
        Self {
            client,
            reads,
            children: Vec::new(),
            parent: NodeStat::default(),
            znodes: HashMap::new(),
            newest_member: 0,
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
        Confirmer::new(self.client.clone(), self.reads.clone())
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
    /// leave the dialect open, what is read decides it.
    pub(super) async fn read(&mut self, rules: &mut Rules) -> Result<Box<Reading>, ReadError> {
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
                .complete(&self.client, &self.reads, rules, &mut reading)
                .await?;
        }
        Ok(reading)
    }

    async fn read_node(&mut self, rules: &Rules) -> Result<Snapshot, ReadError> {
        let path = rules.spec().path.clone();
        for _ in 0..ATTEMPTS {
            self.main.clear();
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
                    if let Some(missing) = self.read_missing(&path).await? {
                        return Ok(missing);
                    }
                }
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(restless(&path))
    }

    async fn read_queue(&mut self, rules: &mut Rules) -> Result<Snapshot, ReadError> {
        let path = rules.spec().path.clone();
        for attempt in 1..=ATTEMPTS {
            if !self.main.is_set() {
                match self.client.get_and_watch_children(&path).await {
                    Ok((children, stat, watcher)) => {
                        few(&path, children.len())?;
                        self.main.set(watcher);
                        self.children = children;
                        let stat = node_stat(&stat);
                        if stat.czxid != self.parent.czxid || rules.reuses_names() {
                            // The parent was recreated, and its children with it; or a new child may have the
                            // name of an earlier one.
                            self.znodes.clear();
                            self.leader.clear();
                            self.candidates.clear();
                        }
                        self.parent = stat;
                        if rules.place() == Place::Unknown {
                            self.detect(rules).await?;
                        }
                        if rules.place() == Place::Node {
                            return self.read_node(rules).await;
                        }
                    }
                    Err(zookeeper_client::Error::NoNode) => match self.read_missing(&path).await? {
                        Some(missing) => return Ok(missing),
                        None => continue,
                    },
                    Err(error) => return Err(failed(&path, error)),
                }
            }
            let gone = self.read_members(rules).await?;
            if gone.is_empty() {
                break;
            }
            if attempt < ATTEMPTS {
                self.main.clear();
            } else {
                self.children.retain(|child| !gone.contains(child));
            }
        }
        if !self.main.is_set() {
            return Err(restless(&path));
        }
        let acknowledgement = self.read_acknowledgement(rules).await?;
        let registration = self.read_registration(rules).await?;
        let newest = self.newest_member.max(self.registration.zxid);
        Ok(Snapshot::Queue {
            acknowledgement,
            registration,
            children: self.children.clone(),
            znodes: self.znodes.clone(),
            zxid: self.parent.newest().max(newest),
        })
    }

    /// Lets the rules decide the dialect: by the data of an ephemeral node, else by the children.
    async fn detect(&mut self, rules: &mut Rules) -> Result<(), ReadError> {
        if self.parent.ephemeral_owner == 0 {
            rules.detect(&self.children);
            return Ok(());
        }
        let path = &rules.spec().path;
        match self.client.get_data(path).await {
            Ok((data, stat)) => rules.detect_node(&node_stat(&stat), &data),
            // The node was deleted in between, so the watch on its children fires.
            Err(zookeeper_client::Error::NoNode) => {}
            Err(error) => return Err(failed(path, error)),
        }
        Ok(())
    }

    /// Reads the candidates that a snapshot must hold and that are not known yet, and watches the
    /// first of them, or all. Returns those that left in between.
    async fn read_members(&mut self, rules: &Rules) -> Result<Vec<String>, ReadError> {
        let wanted = rules.wanted(&self.children);
        self.znodes.retain(|node, _| wanted.contains(node));
        self.candidates.retain(|node, _| wanted.contains(node));
        let mut gone = Vec::new();
        let all = rules.reads_all();
        if !all && let Some(left) = self.read_leader(rules, wanted.first()).await? {
            gone.push(left);
        }
        let unknown: Vec<String> = wanted
            .iter()
            .skip(usize::from(!all))
            .filter(|&node| !self.znodes.contains_key(node))
            .cloned()
            .collect();
        let client = &self.client;
        let reads = &self.reads;
        let parent = &rules.spec().path;
        let answers: Vec<_> = stream::iter(unknown)
            .map(|node| async move {
                let path = child(parent, &node);
                // Each node's data is decoded and dropped at once, since it may have a megabyte.
                let read = one_of(reads).await;
                let answer = if all {
                    let answer = client.get_and_watch_data(&path).await;
                    answer.map(|(data, stat, watcher)| (data, stat, Some(watcher)))
                } else {
                    let answer = client.get_data(&path).await;
                    answer.map(|(data, stat)| (data, stat, None))
                };
                let answer = answer.map(|(data, stat, watcher)| {
                    let stat = node_stat(&stat);
                    (rules.candidacy(&node, &stat, &data), stat, watcher)
                });
                drop(read);
                match answer {
                    Ok(read) => Ok((node, Some(read), false)),
                    Err(zookeeper_client::Error::NoNode) => Ok((node, None, true)),
                    Err(zookeeper_client::Error::NoAuth) => Ok((node, None, false)),
                    Err(error) => Err(failed(&path, error)),
                }
            })
            .buffer_unordered(CONCURRENT_READS)
            .try_collect()
            .await?;
        for (node, read, left) in answers {
            let znode = match read {
                Some((candidacy, stat, watcher)) => {
                    if let Some(watcher) = watcher {
                        self.candidates
                            .entry(node.clone())
                            .or_default()
                            .set(watcher);
                    }
                    self.member(candidacy, &stat)
                }
                None if left => {
                    gone.push(node);
                    continue;
                }
                None => CandidateNode::Hidden,
            };
            self.znodes.insert(node, znode);
        }
        Ok(gone)
    }

    /// Reads and watches the first candidate, unless that is done. Returns it if it left.
    async fn read_leader(
        &mut self,
        rules: &Rules,
        leader: Option<&String>,
    ) -> Result<Option<String>, ReadError> {
        let known = leader.is_some_and(|leader| self.znodes.contains_key(leader));
        if leader == self.leader_node.as_ref() && self.leader.is_set() && known {
            return Ok(None);
        }
        self.leader.clear();
        self.leader_node = leader.cloned();
        let Some(leader) = leader else {
            return Ok(None);
        };
        let path = child(&rules.spec().path, leader);
        match self.client.get_and_watch_data(&path).await {
            Ok((data, stat, watcher)) => {
                self.leader.set(watcher);
                let stat = node_stat(&stat);
                let znode = self.member(rules.candidacy(leader, &stat, &data), &stat);
                self.znodes.insert(leader.clone(), znode);
            }
            Err(zookeeper_client::Error::NoNode) => return Ok(Some(leader.clone())),
            Err(zookeeper_client::Error::NoAuth) => {
                self.znodes.insert(leader.clone(), CandidateNode::Hidden);
            }
            Err(error) => return Err(failed(&path, error)),
        }
        Ok(None)
    }

    fn member(&mut self, candidacy: Candidacy, stat: &NodeStat) -> CandidateNode {
        self.newest_member = self.newest_member.max(stat.czxid).max(stat.mzxid);
        CandidateNode::from(candidacy)
    }

    async fn read_acknowledgement(
        &mut self,
        rules: &Rules,
    ) -> Result<Option<Acknowledgement>, ReadError> {
        let (path, watched) = match rules.acknowledgement() {
            None => return Ok(None),
            Some(ZnodeLocation::Child(name)) if self.children.iter().any(|child| child == name) => {
                (child(&rules.spec().path, name), false)
            }
            Some(ZnodeLocation::Child(_)) => return Ok(Some(Acknowledgement::Absent)),
            Some(ZnodeLocation::Elsewhere(path)) => (path.into_owned(), true),
        };
        if watched && self.acknowledgement_watch.is_set() {
            return Ok(Some(self.acknowledgement));
        }
        let stat = if watched {
            let answer = self.client.check_and_watch_stat(&path).await;
            let (stat, watcher) = answer.map_err(|error| failed(&path, error))?;
            self.acknowledgement_watch.set(watcher);
            stat
        } else {
            self.client
                .check_stat(&path)
                .await
                .map_err(|error| failed(&path, error))?
        };
        self.acknowledgement = match stat {
            Some(stat) => Acknowledgement::Present {
                owner: stat.ephemeral_owner,
            },
            None => Acknowledgement::Absent,
        };
        Ok(Some(self.acknowledgement))
    }

    /// Reads and watches the node in which the leader registers itself, if the rules require one.
    async fn read_registration(
        &mut self,
        rules: &Rules,
    ) -> Result<Option<Registration>, ReadError> {
        let path = match rules.leader_path() {
            None => return Ok(None),
            Some(ZnodeLocation::Child(name)) => child(&rules.spec().path, name),
            Some(ZnodeLocation::Elsewhere(path)) => path.into_owned(),
        };
        let says = |stat: &NodeStat, data: &[u8]| {
            Some(CandidateNode::from(rules.registration(&path, stat, data)))
        };
        match self.registration.read(&self.client, &path, says).await {
            Ok(()) => {}
            Err(ReadError::NoAuth { .. }) => {
                return Ok(Some(Registration::Present(CandidateNode::Hidden)));
            }
            Err(error) => return Err(error),
        }
        let says = self.registration.says.clone();
        Ok(Some(
            says.map_or(Registration::Absent, Registration::Present),
        ))
    }

    /// Watches for the election's path to be created. `None` if it exists by now.
    async fn read_missing(&mut self, path: &str) -> Result<Option<Snapshot>, ReadError> {
        let Some((watcher, zxid)) = watch_absent(&self.client, path).await? else {
            return Ok(None);
        };
        self.forget();
        self.main.set(watcher);
        Ok(Some(Snapshot::Missing { zxid }))
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

/// Waits until one more candidate may be read. `None` means that the semaphore is closed and limits nothing.
async fn one_of(reads: &Semaphore) -> Option<SemaphorePermit<'_>> {
    reads.acquire().await.ok()
}

/// Refuses a path that has too many children.
fn few(path: &str, count: usize) -> Result<(), ReadError> {
    if count <= MAX_CHILDREN {
        return Ok(());
    }
    let path = path.to_owned();
    Err(ReadError::TooMany { path, count })
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
        source => ReadError::ZooKeeper { path, source },
    }
}

/// The error for a path that is created and deleted faster than it can be read.
fn restless(path: &str) -> ReadError {
    failed(path, zookeeper_client::Error::NoNode)
}

/// A one-shot watch, set or not.
#[derive(Default)]
struct Watch(Option<Pin<Box<dyn Future<Output = WatchedEvent> + Send>>>);

impl Watch {
    fn is_set(&self) -> bool {
        self.0.is_some()
    }

    fn set(&mut self, watcher: OneshotWatcher) {
        self.0 = Some(Box::pin(watcher.changed()));
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
