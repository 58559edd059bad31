//! Reads of one election, with the watches that tell when to read again.
//!
//! A watch is set by the read whose result it guards, so no change can fall between the two. At
//! most three watches are set: on the children or on the node itself, on the leader's data, and on
//! an acknowledgement that is not among the children. Other candidates are not watched: their data
//! is written when they are created, and their coming and going is a change of the children.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bellwether_api::LeaderElectionSpec;
use bellwether_election::{
    Acknowledgement, Claim, Member, NodeStat, Snapshot, Where, acknowledgement,
};
use futures::{StreamExt, TryStreamExt, stream};
use thiserror::Error;
use zookeeper_client::{Client, OneshotWatcher, Stat, WatchedEvent};

/// How many candidates are read at the same time.
const CONCURRENT_READS: usize = 32;

/// How often a read begins anew because candidates left while it ran, before it makes do with what
/// is left. Their leaving has fired a watch, so the next read follows at once.
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
    client: Client,
    spec: Arc<LeaderElectionSpec>,
    /// The children as last listed, valid while `main` is set.
    children: Vec<String>,
    /// The parent as last listed.
    parent: NodeStat,
    /// What was read of the candidates. A node cannot change its creation, so it is read once; the
    /// leader's data is watched.
    members: HashMap<String, Member>,
    /// The newest transaction that the members reflect.
    newest_member: i64,
    /// The acknowledgement outside of the children, valid while `acknowledgement_watch` is set.
    acknowledgement: Acknowledgement,

    main: Watch,
    leader: Watch,
    leader_node: Option<String>,
    acknowledgement_watch: Watch,
}

impl Reader {
    pub(super) fn new(client: Client, spec: Arc<LeaderElectionSpec>) -> Self {
        Self {
            client,
            spec,
            children: Vec::new(),
            parent: NodeStat::default(),
            members: HashMap::new(),
            newest_member: 0,
            acknowledgement: Acknowledgement::Absent,
            main: Watch::default(),
            leader: Watch::default(),
            leader_node: None,
            acknowledgement_watch: Watch::default(),
        }
    }

    /// Forgets what was read, so that the next read reads everything.
    pub(super) fn forget(&mut self) {
        self.members.clear();
        self.newest_member = 0;
        self.leader_node = None;
        self.main.clear();
        self.leader.clear();
        self.acknowledgement_watch.clear();
    }

    /// Waits until the server has caught up with the leader of the ensemble.
    pub(super) async fn sync(&mut self) -> Result<(), ReadError> {
        let path = &self.spec.path;
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
        }
    }

    /// Reads what may have changed since the last read, and sets the watches that have fired.
    ///
    /// A failed read leaves its watch unset, so the next one reads the same again.
    pub(super) async fn read(&mut self) -> Result<Snapshot, ReadError> {
        if Snapshot::is_node(&self.spec) {
            self.read_node().await
        } else {
            self.read_queue().await
        }
    }

    async fn read_node(&mut self) -> Result<Snapshot, ReadError> {
        let path = self.spec.path.clone();
        for _ in 0..ATTEMPTS {
            self.main.clear();
            match self.client.get_and_watch_data(&path).await {
                Ok((data, stat, watcher)) => {
                    self.main.set(watcher);
                    let stat = node_stat(&stat);
                    let node = path.rsplit('/').next().unwrap_or(&path);
                    let claim = Claim::read(&self.spec.dialect, node, &stat, &data);
                    let zxid = stat.newest();
                    return Ok(Snapshot::Node {
                        claim,
                        children: stat.children,
                        zxid,
                    });
                }
                Err(zookeeper_client::Error::NoNode) => {
                    if let Some(missing) = self.read_missing().await? {
                        return Ok(missing);
                    }
                }
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(restless(&path))
    }

    async fn read_queue(&mut self) -> Result<Snapshot, ReadError> {
        let path = self.spec.path.clone();
        for attempt in 1..=ATTEMPTS {
            if !self.main.is_set() {
                match self.client.get_and_watch_children(&path).await {
                    Ok((children, stat, watcher)) => {
                        self.main.set(watcher);
                        self.children = children;
                        let stat = node_stat(&stat);
                        if stat.czxid != self.parent.czxid {
                            // The parent is another one, so its children are others, too.
                            self.members.clear();
                            self.leader.clear();
                        }
                        self.parent = stat;
                    }
                    Err(zookeeper_client::Error::NoNode) => match self.read_missing().await? {
                        Some(missing) => return Ok(missing),
                        None => continue,
                    },
                    Err(error) => return Err(failed(&path, error)),
                }
            }
            let gone = self.read_members().await?;
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
        Ok(Snapshot::Queue {
            acknowledgement: self.read_acknowledgement().await?,
            children: self.children.clone(),
            members: self.members.clone(),
            zxid: self.parent.newest().max(self.newest_member),
        })
    }

    /// Reads the candidates that a snapshot must hold and that are not known yet, and watches the
    /// leader. Returns those that left in between.
    async fn read_members(&mut self) -> Result<Vec<String>, ReadError> {
        let wanted = Snapshot::wanted(&self.spec, &self.children);
        self.members.retain(|node, _| wanted.contains(node));
        let mut gone = Vec::new();
        let leader = wanted.first();
        if leader != self.leader_node.as_ref() || !self.leader.is_set() {
            self.leader.clear();
            self.leader_node = leader.cloned();
            if let Some(leader) = leader {
                let path = child(&self.spec.path, leader);
                match self.client.get_and_watch_data(&path).await {
                    Ok((data, stat, watcher)) => {
                        self.leader.set(watcher);
                        let member = self.member(leader, &stat, &data);
                        self.members.insert(leader.clone(), member);
                    }
                    Err(zookeeper_client::Error::NoNode) => gone.push(leader.clone()),
                    Err(zookeeper_client::Error::NoAuth) => {
                        self.members.insert(leader.clone(), Member::Hidden);
                    }
                    Err(error) => return Err(failed(&path, error)),
                }
            }
        }
        let unknown: Vec<String> = wanted
            .iter()
            .skip(1)
            .filter(|&node| !self.members.contains_key(node))
            .cloned()
            .collect();
        let client = &self.client;
        let parent = &self.spec.path;
        let answers: Vec<_> = stream::iter(unknown)
            .map(|node| async move {
                let path = child(parent, &node);
                match client.get_data(&path).await {
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
            let member = match read {
                Some((data, stat)) => self.member(&node, &stat, &data),
                None if left => {
                    gone.push(node);
                    continue;
                }
                None => Member::Hidden,
            };
            self.members.insert(node, member);
        }
        Ok(gone)
    }

    fn member(&mut self, node: &str, stat: &Stat, data: &[u8]) -> Member {
        let stat = node_stat(stat);
        self.newest_member = self.newest_member.max(stat.czxid).max(stat.mzxid);
        Member::Read(Claim::read(&self.spec.dialect, node, &stat, data))
    }

    async fn read_acknowledgement(&mut self) -> Result<Option<Acknowledgement>, ReadError> {
        let (path, watched) = match acknowledgement(&self.spec) {
            None => return Ok(None),
            Some(Where::Child(name)) if self.children.iter().any(|child| child == name) => {
                (child(&self.spec.path, name), false)
            }
            Some(Where::Child(_)) => return Ok(Some(Acknowledgement::Absent)),
            Some(Where::Elsewhere(path)) => (path.to_owned(), true),
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

    /// Watches for the path to be created. `None` if it exists by now.
    ///
    /// The watch needs no ancestor to exist. The newest transaction is that of the nearest one that
    /// does: whatever deleted the path has changed it.
    async fn read_missing(&mut self) -> Result<Option<Snapshot>, ReadError> {
        let path = self.spec.path.clone();
        let (stat, watcher) = self
            .client
            .check_and_watch_stat(&path)
            .await
            .map_err(|error| failed(&path, error))?;
        if stat.is_some() {
            return Ok(None);
        }
        self.forget();
        self.main.set(watcher);
        let mut ancestor = path.as_str();
        while let Some((parent, _)) = ancestor.rsplit_once('/') {
            ancestor = parent;
            let path = if parent.is_empty() { "/" } else { parent };
            match self.client.check_stat(path).await {
                Ok(Some(stat)) => {
                    let stat = node_stat(&stat);
                    return Ok(Some(Snapshot::Missing {
                        zxid: stat.czxid.max(stat.pzxid),
                    }));
                }
                Ok(None) | Err(zookeeper_client::Error::NoAuth) => {}
                Err(error) => return Err(failed(path, error)),
            }
        }
        Ok(Some(Snapshot::Missing { zxid: 0 }))
    }
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

/// The path came and went faster than it could be read.
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

    /// Gives the watch up; the client removes it from the server if nobody else needs it.
    fn clear(&mut self) {
        self.0 = None;
    }

    /// Waits until it fires, and then is no longer set. Waits for ever if it is not set.
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
