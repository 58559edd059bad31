//! The znodes of a ZooKeeper, as one server has them.

use std::collections::BTreeMap;

use zookeeper_client::{Error, Stat};

/// A change that all servers carry out in the same order.
#[derive(Clone, Debug)]
pub enum Change {
    /// A node is made; `owner` is the session that it ends with, 0 for one that lasts.
    Create {
        /// Its path.
        path: String,
        /// Its data.
        data: Vec<u8>,
        /// The session.
        owner: i64,
    },
    /// The data of a node is written.
    SetData {
        /// Its path.
        path: String,
        /// The new data.
        data: Vec<u8>,
    },
    /// A node is deleted, with all below it.
    Delete {
        /// Its path.
        path: String,
    },
    /// The ACL of a node opens or closes it to the mirror.
    Protect {
        /// Its path.
        path: String,
        /// Whether the mirror may read it.
        readable: bool,
    },
    /// A session begins.
    Open(i64),
    /// A session ends, and its nodes with it.
    Close(i64),
}

/// What a change does to a path, for the watches on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    /// The node was made, written or deleted.
    Node(String),
    /// The node's children are others, or it was deleted.
    Children(String),
}

#[derive(Clone, Debug)]
struct Znode {
    data: Vec<u8>,
    stat: Stat,
    readable: bool,
}

/// All znodes, and the sessions that exist.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: BTreeMap<String, Znode>,
    sessions: Vec<i64>,
    zxid: i64,
}

fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

fn stat(zxid: i64, at: i64, owner: i64, length: usize) -> Stat {
    Stat {
        czxid: zxid,
        mzxid: zxid,
        pzxid: zxid,
        ctime: at,
        mtime: at,
        version: 0,
        cversion: 0,
        aversion: 0,
        ephemeral_owner: owner,
        data_length: i32::try_from(length).unwrap_or(i32::MAX),
        num_children: 0,
    }
}

impl Tree {
    /// The root alone.
    pub fn empty() -> Self {
        let root = Znode {
            data: Vec::new(),
            stat: stat(0, 0, 0, 0),
            readable: true,
        };
        Self {
            nodes: BTreeMap::from([("/".to_owned(), root)]),
            sessions: Vec::new(),
            zxid: 0,
        }
    }

    /// The last transaction that it reflects.
    pub fn zxid(&self) -> i64 {
        self.zxid
    }

    /// Whether a session exists.
    pub fn has_session(&self, session: i64) -> bool {
        self.sessions.contains(&session)
    }

    /// The sessions that exist.
    pub fn sessions(&self) -> &[i64] {
        &self.sessions
    }

    /// The number that the next sequential child of this node gets.
    pub fn next_number(&self, path: &str) -> i32 {
        self.nodes.get(path).map_or(0, |node| node.stat.cversion)
    }

    /// The names of a node's children.
    pub fn children(&self, path: &str) -> Vec<String> {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let below = self.nodes.range(prefix.clone()..);
        let below = below.map_while(|(path, _)| path.strip_prefix(&prefix));
        let names = below.filter(|name| !name.is_empty() && !name.contains('/'));
        names.map(str::to_owned).collect()
    }

    /// The data and the stat of a node, whether the mirror may read it or not.
    pub fn node(&self, path: &str) -> Option<(&[u8], Stat)> {
        let node = self.nodes.get(path)?;
        Some((&node.data, node.stat))
    }

    /// The same for the mirror.
    pub fn read(&self, path: &str) -> Result<(Vec<u8>, Stat), Error> {
        let node = self.nodes.get(path).ok_or(Error::NoNode)?;
        if !node.readable {
            return Err(Error::NoAuth);
        }
        Ok((node.data.clone(), node.stat))
    }

    /// The nodes that the mirror may not read.
    pub fn hidden(&self) -> impl Iterator<Item = &str> {
        let nodes = self.nodes.iter().filter(|(_, node)| !node.readable);
        nodes.map(|(path, _)| path.as_str())
    }

    /// Carries out a change, and says which watches it fires.
    pub fn apply(&mut self, zxid: i64, at: i64, change: &Change) -> Vec<Touched> {
        self.zxid = zxid;
        match change {
            Change::Create { path, data, owner } => self.create(zxid, at, path, data, *owner),
            Change::SetData { path, data } => match self.nodes.get_mut(path) {
                Some(node) => {
                    node.data.clone_from(data);
                    node.stat.mzxid = zxid;
                    node.stat.mtime = at;
                    node.stat.version += 1;
                    vec![Touched::Node(path.clone())]
                }
                None => Vec::new(),
            },
            Change::Delete { path } => self.delete(zxid, path),
            Change::Protect { path, readable } => {
                if let Some(node) = self.nodes.get_mut(path) {
                    node.readable = *readable;
                    node.stat.aversion += 1;
                }
                Vec::new()
            }
            Change::Open(session) => {
                self.sessions.push(*session);
                Vec::new()
            }
            Change::Close(session) => {
                self.sessions.retain(|known| known != session);
                let owned = self.nodes.iter();
                let owned = owned.filter(|(_, node)| node.stat.ephemeral_owner == *session);
                let owned: Vec<String> = owned.map(|(path, _)| path.clone()).collect();
                let delete = |path: &String| self.delete(zxid, path);
                owned.iter().flat_map(delete).collect()
            }
        }
    }

    fn create(&mut self, zxid: i64, at: i64, path: &str, data: &[u8], owner: i64) -> Vec<Touched> {
        let above = parent(path).to_owned();
        let orphaned = owner != 0 && !self.has_session(owner);
        if self.nodes.contains_key(path) || orphaned {
            return Vec::new();
        }
        let Some(node) = self.nodes.get_mut(&above) else {
            return Vec::new();
        };
        node.stat.pzxid = zxid;
        node.stat.cversion += 1;
        node.stat.num_children += 1;
        let made = Znode {
            data: data.to_vec(),
            stat: stat(zxid, at, owner, data.len()),
            readable: true,
        };
        self.nodes.insert(path.to_owned(), made);
        vec![Touched::Node(path.to_owned()), Touched::Children(above)]
    }

    fn delete(&mut self, zxid: i64, path: &str) -> Vec<Touched> {
        let mut touched = Vec::new();
        for child in self.children(path) {
            touched.extend(self.delete(zxid, &format!("{path}/{child}")));
        }
        if self.nodes.remove(path).is_none() {
            return touched;
        }
        let above = parent(path).to_owned();
        if let Some(node) = self.nodes.get_mut(&above) {
            node.stat.pzxid = zxid;
            node.stat.cversion += 1;
            node.stat.num_children -= 1;
        }
        touched.push(Touched::Node(path.to_owned()));
        touched.push(Touched::Children(path.to_owned()));
        touched.push(Touched::Children(above));
        touched
    }
}
