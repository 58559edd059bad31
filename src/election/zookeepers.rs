//! What elections ask of ZooKeeper. The network and the simulation each implement it.

mod network;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio_rustls::rustls::ClientConfig;
use zookeeper_client::{Acl, Connector, Error, SessionState, Stat};

pub use network::Servers;

/// Where a session is opened to, and how.
pub struct Opening {
    /// The servers, as ZooKeeper's clients write them.
    pub servers: String,
    /// With which credentials and which timeout.
    pub connector: Connector,
    /// How the servers are trusted, where they take TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// How long it may take where Bellwether does not run the servers; `None` where it does.
    pub patience: Option<Duration>,
}

/// A session that was opened, and the connection that it is kept over.
pub struct Opened {
    /// What reads and writes.
    pub session: Arc<dyn Session>,
    /// Dropping this ends the session, whoever still has it.
    pub connection: Box<dyn Connection>,
}

/// Why no session was opened.
#[derive(Debug)]
pub enum Unopened {
    /// Nothing can be connected to, because of this machine.
    Here(std::io::Error),
    /// A server did what no server may do, in a sentence.
    Complaint(String),
    /// No server opened one.
    Refused {
        /// What the client says.
        error: Error,
        /// What went wrong on the way to the servers, for the log only: it tells what listens where.
        trouble: Option<String>,
    },
}

/// Opens sessions.
#[async_trait]
pub trait ZooKeepers: Send + Sync {
    /// Opens one session.
    ///
    /// # Errors
    /// When no server opens it in time.
    async fn open(&self, opening: Opening) -> Result<Opened, Unopened>;
}

/// The connection of a session.
#[async_trait]
pub trait Connection: Send + Sync {
    /// Waits until a server does what no server may do, and says what that is.
    async fn complaint(&self) -> String;
}

/// Completes when a watch fires, or when its session ends. A connection that is lost takes the watch along: it does not
/// complete then, and what it guarded has to be read again once the session is connected.
pub type Fired = BoxFuture<'static, ()>;

/// A session, with the requests of the client library under its names.
///
/// # Errors
/// As in ZooKeeper's protocol; [`Error::ConnectionLoss`] where the answer is unknown.
#[async_trait]
pub trait Session: fmt::Debug + Send + Sync {
    /// The session's id, for the log.
    fn id(&self) -> String;

    /// The state now, and then every other state. After the end of the session nothing follows.
    fn states(&self) -> BoxStream<'static, SessionState>;

    /// Waits until the server has caught up with the ensemble's leader.
    async fn sync(&self, path: &str) -> Result<(), Error>;

    /// The data of a node.
    async fn get_data(&self, path: &str) -> Result<(Vec<u8>, Stat), Error>;

    /// The same, and a watch on the node.
    async fn get_and_watch_data(&self, path: &str) -> Result<(Vec<u8>, Stat, Fired), Error>;

    /// The names of a node's children.
    async fn list_children(&self, path: &str) -> Result<Vec<String>, Error>;

    /// The same with the node's own stat, and a watch on both.
    async fn get_and_watch_children(&self, path: &str)
    -> Result<(Vec<String>, Stat, Fired), Error>;

    /// A node's stat; `None` if it does not exist.
    async fn check_stat(&self, path: &str) -> Result<Option<Stat>, Error>;

    /// The same, and a watch on the node or its creation.
    async fn check_and_watch_stat(&self, path: &str) -> Result<(Option<Stat>, Fired), Error>;

    /// A node's ACL.
    async fn get_acl(&self, path: &str) -> Result<Vec<Acl>, Error>;

    /// Creates a node that outlives the session, with a sequence number behind its path.
    async fn create_sequential(&self, path: &str, data: &[u8], acl: &[Acl]) -> Result<(), Error>;

    /// Writes the data of a node that has this version.
    async fn set_data(&self, path: &str, data: &[u8], version: i32) -> Result<(), Error>;

    /// Deletes a node that has this version.
    async fn delete(&self, path: &str, version: i32) -> Result<(), Error>;
}
