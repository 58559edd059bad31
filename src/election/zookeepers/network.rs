//! Sessions over the network: the client library behind a relay.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::time::timeout;
use zookeeper_client::{Acl, Acls, Client, CreateMode, Error, OneshotWatcher, SessionState, Stat};

use super::super::relay::{Limits, Relay, Strangers};
use super::{Connection, Fired, Opened, Opening, Session, Unopened, ZooKeepers};

/// The longest answer that is left out, in bytes, of a ZooKeeper that Bellwether runs.
const LEFT_OUT: usize = 1024 * 1024 * 1024;

/// The ZooKeeper servers over the network.
#[derive(Debug, Default)]
pub struct Servers;

#[async_trait]
impl ZooKeepers for Servers {
    async fn open(&self, opening: Opening) -> Result<Opened, Unopened> {
        let (strangers, left_out) = match opening.patience {
            None => (Strangers::Told, LEFT_OUT),
            Some(_) => (Strangers::NotTold, 0),
        };
        let limits = Limits {
            left_out,
            ..Limits::default()
        };
        let relay = Relay::open(&opening.servers, opening.tls, limits, strangers).await;
        let relay = relay.map_err(Unopened::Here)?;
        let connect = opening.connector.connect(relay.address());
        let connect = async {
            match opening.patience {
                Some(patience) => timeout(patience, connect)
                    .await
                    .unwrap_or(Err(Error::Timeout)),
                None => connect.await,
            }
        };
        let connected = tokio::select! {
            biased;
            complaint = relay.complaint() => return Err(Unopened::Complaint(complaint)),
            connected = connect => connected,
        };
        match connected {
            Ok(client) => Ok(Opened {
                session: Arc::new(client),
                connection: Box::new(relay),
            }),
            Err(error) => Err(Unopened::Refused {
                error,
                trouble: relay.trouble(),
            }),
        }
    }
}

#[async_trait]
impl Connection for Relay {
    async fn complaint(&self) -> String {
        self.complaint().await
    }
}

/// Completes when the watch fires.
fn fired(watcher: OneshotWatcher) -> Fired {
    watcher.changed().map(drop).boxed()
}

/// The library sends a request when its method is called, not when the future is first polled; here both happen at once.
#[async_trait]
impl Session for Client {
    fn id(&self) -> String {
        self.session_id().to_string()
    }

    fn states(&self) -> BoxStream<'static, SessionState> {
        let mut watcher = self.state_watcher();
        let now = watcher.state();
        let later = stream::unfold(watcher, async |mut watcher| {
            Some((watcher.changed().await, watcher))
        });
        stream::iter([now]).chain(later).boxed()
    }

    async fn sync(&self, path: &str) -> Result<(), Error> {
        self.sync(path).await
    }

    async fn get_data(&self, path: &str) -> Result<(Vec<u8>, Stat), Error> {
        self.get_data(path).await
    }

    async fn get_and_watch_data(&self, path: &str) -> Result<(Vec<u8>, Stat, Fired), Error> {
        let (data, stat, watcher) = self.get_and_watch_data(path).await?;
        Ok((data, stat, fired(watcher)))
    }

    async fn list_children(&self, path: &str) -> Result<Vec<String>, Error> {
        self.list_children(path).await
    }

    async fn get_and_watch_children(
        &self,
        path: &str,
    ) -> Result<(Vec<String>, Stat, Fired), Error> {
        let (children, stat, watcher) = self.get_and_watch_children(path).await?;
        Ok((children, stat, fired(watcher)))
    }

    async fn check_stat(&self, path: &str) -> Result<Option<Stat>, Error> {
        self.check_stat(path).await
    }

    async fn check_and_watch_stat(&self, path: &str) -> Result<(Option<Stat>, Fired), Error> {
        let (stat, watcher) = self.check_and_watch_stat(path).await?;
        Ok((stat, fired(watcher)))
    }

    async fn get_acl(&self, path: &str) -> Result<Vec<Acl>, Error> {
        Ok(self.get_acl(path).await?.0)
    }

    async fn create_sequential(&self, path: &str, data: &[u8], acl: &[Acl]) -> Result<(), Error> {
        let mode = CreateMode::PersistentSequential.with_acls(Acls::from(acl));
        self.create(path, data, &mode).await.map(drop)
    }

    async fn set_data(&self, path: &str, data: &[u8], version: i32) -> Result<(), Error> {
        self.set_data(path, data, Some(version)).await.map(drop)
    }

    async fn delete(&self, path: &str, version: i32) -> Result<(), Error> {
        self.delete(path, Some(version)).await
    }
}
