//! Reads of one node that need not exist, with the watch that shows when to read it again.

use bellwether_election::NodeStat;

use super::super::budget::Budget;
use super::super::zookeepers::{Fired, Session};
use super::{ATTEMPTS, ReadError, Watch, failed, node_stat, restless};

/// The content of a single node, valid while its watch is set.
pub(super) struct Single<T> {
    /// `None` if it does not exist, or has no content.
    pub(super) content: Option<T>,
    /// The newest transaction that the node, or its absence, reflects.
    pub(super) zxid: i64,
    pub(super) watch: Watch,
}

impl<T> Default for Single<T> {
    fn default() -> Self {
        Self {
            content: None,
            zxid: 0,
            watch: Watch::default(),
        }
    }
}

impl<T> Single<T> {
    /// Reads and watches the node, unless it is watched and nothing happened to it.
    pub(super) async fn read(
        &mut self,
        client: &dyn Session,
        budget: &Budget,
        path: &str,
        decode: impl Fn(&NodeStat, &[u8]) -> Option<T>,
    ) -> Result<(), ReadError> {
        for _ in 0..ATTEMPTS {
            if self.watch.is_set() {
                return Ok(());
            }
            let read = budget.read().await;
            match client.get_and_watch_data(path).await {
                Ok((data, stat, watcher)) => {
                    self.watch.set(watcher);
                    let stat = node_stat(&stat);
                    self.content = decode(&stat, &data);
                    self.zxid = stat.newest();
                }
                Err(zookeeper_client::Error::NoNode) => {
                    drop(read);
                    if let Some((watcher, zxid)) = watch_absent(client, path).await? {
                        self.watch.set(watcher);
                        self.content = None;
                        self.zxid = zxid.unwrap_or_default();
                    }
                }
                Err(error) => return Err(failed(path, error)),
            }
        }
        if self.watch.is_set() {
            return Ok(());
        }
        Err(restless(path))
    }
}

/// Watches for a path to be created, and returns the newest transaction that the nearest ancestor
/// reflects: the deletion of the path changed that ancestor. `None` instead of that transaction if the ACL hides the
/// ancestor. `None` if the path exists by now.
///
/// The watch needs no ancestor to exist.
pub(super) async fn watch_absent(
    client: &dyn Session,
    path: &str,
) -> Result<Option<(Fired, Option<i64>)>, ReadError> {
    let answer = client.check_and_watch_stat(path).await;
    let (stat, watcher) = answer.map_err(|error| failed(path, error))?;
    if stat.is_some() {
        return Ok(None);
    }
    Ok(Some((watcher, zxid_above(client, path).await?)))
}

/// The newest transaction that the nearest existing node above a path reflects; `None` if its ACL hides that node, which it
/// does since 3.8.4 and 3.9.2 (ZOOKEEPER-2590).
async fn zxid_above(client: &dyn Session, path: &str) -> Result<Option<i64>, ReadError> {
    let mut ancestor = path;
    while let Some((parent, _)) = ancestor.rsplit_once('/') {
        ancestor = parent;
        let path = if parent.is_empty() { "/" } else { parent };
        match client.check_stat(path).await {
            Ok(Some(stat)) => {
                let stat = node_stat(&stat);
                return Ok(Some(stat.czxid.max(stat.pzxid)));
            }
            Ok(None) => {}
            Err(zookeeper_client::Error::NoAuth) => return Ok(None),
            Err(error) => return Err(failed(path, error)),
        }
    }
    Ok(Some(0))
}
