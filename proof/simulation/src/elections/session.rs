//! An operator's way to the servers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bellwether::{Connection, Fired, Opened, Opening, Session, Unopened, ZooKeepers};
use futures::FutureExt as _;
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;
use zookeeper_client::{Acl, Acls, Error, SessionState, Stat};

use super::tree::{Change, Tree};
use super::zookeeper::{Servers, Watched, Zoo};

/// What a library says that breaks off because the life asks for it.
pub const DEFECT: &str = "a defect of the library, as asked for";
/// How long it takes until no server has answered.
const NO_SERVER: Duration = Duration::from_secs(6);

/// How an operator reaches the servers.
pub struct Reach {
    servers: Servers,
    operator: String,
}

impl Reach {
    /// For the operator of this name.
    pub fn new(servers: Servers, operator: &str) -> Self {
        Self {
            servers,
            operator: operator.to_owned(),
        }
    }
}

#[async_trait]
impl ZooKeepers for Reach {
    async fn open(&self, _: Opening) -> Result<Opened, Unopened> {
        sleep(Duration::from_millis(5)).await;
        let connected = self.servers.lock().connect(&self.operator);
        let Some((id, session, states)) = connected else {
            sleep(NO_SERVER).await;
            return Err(Unopened::Refused {
                error: Error::NoHosts,
                trouble: None,
            });
        };
        let servers = self.servers.clone();
        Ok(Opened {
            session: Arc::new(Simulated {
                servers: servers.clone(),
                id,
                session,
                states,
            }),
            connection: Box::new(Kept { servers, id }),
        })
    }
}

/// No ZooKeeper at all, for lives without elections.
pub struct NoServers;

#[async_trait]
impl ZooKeepers for NoServers {
    async fn open(&self, _: Opening) -> Result<Opened, Unopened> {
        Err(Unopened::Refused {
            error: Error::NoHosts,
            trouble: None,
        })
    }
}

/// The connection of a session.
struct Kept {
    servers: Servers,
    id: u64,
}

#[async_trait]
impl Connection for Kept {
    async fn complaint(&self) -> String {
        std::future::pending().await
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.servers.lock().disconnect_for_good(self.id);
    }
}

/// A session.
#[derive(Debug)]
struct Simulated {
    servers: Servers,
    id: u64,
    session: i64,
    states: watch::Receiver<SessionState>,
}

/// Completes when the watch fires, and never if it is lost.
fn fired(fired: oneshot::Receiver<()>) -> Fired {
    let fired = async {
        if fired.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    fired.boxed()
}

/// How long a request is on its way, and its answer.
const WAY: (Duration, Duration) = (Duration::from_micros(300), Duration::from_millis(4));
/// How long it takes until a client knows that it has no server.
const NOBODY: Duration = Duration::from_millis(100);
/// How often a server that is behind is looked at.
const SYNCING: Duration = Duration::from_millis(20);

impl Simulated {
    /// Sends a request. The server answers it whatever becomes of who asked.
    ///
    /// # Panics
    /// If the library is to break off here.
    async fn ask<T: Send + 'static>(
        &self,
        answer: impl FnOnce(&mut Zoo, u64) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (id, servers) = (self.id, self.servers.clone());
        let (breaks, connection, there, back) = {
            let mut zoo = servers.lock();
            let ways = (zoo.between(WAY.0, WAY.1), zoo.between(WAY.0, WAY.1));
            (zoo.breaks(id), zoo.connection(id), ways.0, ways.1)
        };
        assert!(!breaks, "{DEFECT}");
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                sleep(NOBODY).await;
                return Err(error);
            }
        };
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            sleep(there).await;
            let answer = answer(&mut servers.lock(), connection);
            sleep(back).await;
            // What is answered over a connection that is lost by now arrives nowhere.
            let arrives = servers.lock().connection(id) == Ok(connection);
            let _ = tell.send(answer.and_then(|answer| match arrives {
                true => Ok(answer),
                false => Err(Error::ConnectionLoss),
            }));
        });
        told.await.unwrap_or(Err(Error::ConnectionLoss))
    }

    /// Reads, and sets a watch where it says so.
    async fn read<T: Send + 'static>(
        &self,
        path: &str,
        watched: Option<Watched>,
        read: impl FnOnce(&Tree, &str) -> Result<T, Error> + Send + 'static,
    ) -> Result<(T, Option<Fired>), Error> {
        let (id, path) = (self.id, path.to_owned());
        self.ask(move |zoo, connection| {
            let found = read(zoo.view(id, connection)?, &path)?;
            let watch = watched.map(|watched| zoo.watch(id, connection, &path, watched));
            Ok((found, watch.transpose()?.map(fired)))
        })
        .await
    }

    /// The same with a watch, which is always there.
    async fn read_and_watch<T: Send + 'static>(
        &self,
        path: &str,
        watched: Watched,
        read: impl FnOnce(&Tree, &str) -> Result<T, Error> + Send + 'static,
    ) -> Result<(T, Fired), Error> {
        let (found, fired) = self.read(path, Some(watched), read).await?;
        Ok((found, fired.ok_or(Error::NoWatcher)?))
    }
}

/// The stat of a node, which nobody may hide.
fn exists(tree: &Tree, path: &str) -> Result<Option<Stat>, Error> {
    Ok(tree.node(path).map(|(_, stat)| stat))
}

fn children(tree: &Tree, path: &str) -> Result<(Vec<String>, Stat), Error> {
    let (_, stat) = tree.read(path)?;
    Ok((tree.children(path), stat))
}

#[async_trait]
impl Session for Simulated {
    fn id(&self) -> String {
        format!("{:x}", self.session)
    }

    fn states(&self) -> BoxStream<'static, SessionState> {
        let mut states = self.states.clone();
        let now = *states.borrow_and_update();
        let later = stream::unfold(states, async |mut states| {
            states.changed().await.ok()?;
            let state = *states.borrow_and_update();
            Some((state, states))
        });
        stream::iter([now]).chain(later).boxed()
    }

    async fn sync(&self, _: &str) -> Result<(), Error> {
        let id = self.id;
        let (connection, transactions) = {
            let zoo = self.servers.lock();
            (zoo.connection(id)?, zoo.transactions())
        };
        loop {
            let done = move |zoo: &mut Zoo, _| zoo.has_carried_out(id, connection, transactions);
            if self.ask(done).await? {
                return Ok(());
            }
            sleep(SYNCING).await;
        }
    }

    async fn get_data(&self, path: &str) -> Result<(Vec<u8>, Stat), Error> {
        Ok(self.read(path, None, Tree::read).await?.0)
    }

    async fn get_and_watch_data(&self, path: &str) -> Result<(Vec<u8>, Stat, Fired), Error> {
        let ((data, stat), fired) = self.read_and_watch(path, Watched::Node, Tree::read).await?;
        Ok((data, stat, fired))
    }

    async fn list_children(&self, path: &str) -> Result<Vec<String>, Error> {
        Ok(self.read(path, None, children).await?.0.0)
    }

    async fn get_and_watch_children(
        &self,
        path: &str,
    ) -> Result<(Vec<String>, Stat, Fired), Error> {
        let watched = Watched::Children;
        let ((children, stat), fired) = self.read_and_watch(path, watched, children).await?;
        Ok((children, stat, fired))
    }

    async fn check_stat(&self, path: &str) -> Result<Option<Stat>, Error> {
        Ok(self.read(path, None, exists).await?.0)
    }

    async fn check_and_watch_stat(&self, path: &str) -> Result<(Option<Stat>, Fired), Error> {
        self.read_and_watch(path, Watched::Node, exists).await
    }

    async fn get_acl(&self, _: &str) -> Result<Vec<Acl>, Error> {
        Ok(Acls::anyone_all().to_vec())
    }

    async fn create_sequential(&self, path: &str, data: &[u8], _: &[Acl]) -> Result<(), Error> {
        let (path, data) = (path.to_owned(), data.to_vec());
        self.ask(move |zoo, _| {
            zoo.create_sequential(&path, data, 0);
            Ok(())
        })
        .await
    }

    async fn set_data(&self, path: &str, data: &[u8], version: i32) -> Result<(), Error> {
        let (path, data) = (path.to_owned(), data.to_vec());
        self.ask(move |zoo, _| {
            zoo.check_version(&path, version)?;
            zoo.commit(Change::SetData { path, data });
            Ok(())
        })
        .await
    }

    async fn delete(&self, path: &str, version: i32) -> Result<(), Error> {
        let path = path.to_owned();
        self.ask(move |zoo, _| {
            zoo.check_version(&path, version)?;
            zoo.commit(Change::Delete { path });
            Ok(())
        })
        .await
    }
}
