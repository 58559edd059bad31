//! The API servers of the cluster: each has a cache that follows the store, and clients that it serves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::cache::Cache;
use super::kind::Kind;
use super::store::Store;

/// What is between a client and a front end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// Requests and answers arrive.
    #[default]
    Up,
    /// Connections are refused, and those that were are broken.
    Refused,
    /// What is sent arrives nowhere, either way.
    Silent,
}

/// All API servers, and the ways to them.
#[derive(Debug)]
pub(crate) struct FrontEnds {
    all: Vec<Cache>,
    /// The front end that each client uses, and how often its connection broke.
    clients: BTreeMap<Arc<str>, (usize, u64)>,
    links: BTreeMap<(Arc<str>, usize), Link>,
    /// Told of whatever changes here.
    pub(crate) notify: Arc<Notify>,
}

/// How a client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) front_end: usize,
    /// Another number means another connection.
    pub(crate) number: u64,
    pub(crate) link: Link,
}

impl FrontEnds {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            all: (0..count.max(1)).map(|_| Cache::default()).collect(),
            clients: BTreeMap::new(),
            links: BTreeMap::new(),
            notify: Arc::default(),
        }
    }

    pub(crate) fn connection(&self, client: &Arc<str>) -> Connection {
        let (front_end, number) = self.clients.get(client).copied().unwrap_or_default();
        let link = self.links.get(&(client.clone(), front_end));
        Connection {
            front_end,
            number,
            link: link.copied().unwrap_or_default(),
        }
    }

    pub(crate) fn connect(&mut self, client: &Arc<str>, front_end: usize) {
        let entry = self.clients.entry(client.clone()).or_default();
        *entry = (front_end % self.all.len(), entry.1 + 1);
        self.notify.notify_waiters();
    }

    pub(crate) fn link(&mut self, client: &Arc<str>, front_end: usize, link: Link) {
        self.links.insert((client.clone(), front_end), link);
        if link == Link::Refused {
            self.disconnect(|other, at| other == client && at == front_end);
        }
        self.notify.notify_waiters();
    }

    fn disconnect(&mut self, which: impl Fn(&Arc<str>, usize) -> bool) {
        for (client, (front_end, number)) in &mut self.clients {
            if which(client, *front_end) {
                *number += 1;
            }
        }
        // A client that never chose a front end is at the first.
        let known: BTreeSet<&Arc<str>> = self.clients.keys().collect();
        let new: Vec<Arc<str>> = self
            .links
            .keys()
            .map(|(client, _)| client)
            .filter(|client| !known.contains(client) && which(client, 0))
            .cloned()
            .collect();
        for client in new {
            self.clients.insert(client, (0, 1));
        }
    }

    pub(crate) fn set_lag(&mut self, front_end: usize, kind: Kind, lag: Duration) {
        if let Some(front_end) = self.all.get_mut(front_end) {
            front_end.set_lag(kind, lag);
        }
        self.notify.notify_waiters();
    }

    pub(crate) fn freeze(&mut self, front_end: usize, at: Option<u64>) {
        if let Some(front_end) = self.all.get_mut(front_end) {
            front_end.freeze(at);
        }
        self.notify.notify_waiters();
    }

    /// Restarts a front end: its connections break, and it knows no changes before now.
    pub(crate) fn restart(&mut self, front_end: usize, now: u64) {
        if let Some(front_end) = self.all.get_mut(front_end) {
            front_end.restart(now);
        }
        self.disconnect(|_, at| at == front_end);
        self.notify.notify_waiters();
    }

    /// The revision since which a front end knows the changes.
    pub(crate) fn since(&self, front_end: usize) -> u64 {
        self.all.get(front_end).map_or(0, Cache::since)
    }

    /// The revision that the cache of a kind has come to, and when it comes further by itself.
    pub(crate) fn reached(
        &mut self,
        front_end: usize,
        kind: Kind,
        store: &Store,
    ) -> (u64, Option<Instant>) {
        match self.all.get_mut(front_end) {
            Some(cache) => cache.reached(kind, store),
            None => (store.revision(), None),
        }
    }
}
