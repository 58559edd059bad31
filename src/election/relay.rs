//! Stands between the ZooKeeper client and the servers, so that no server can make the operator take
//! more than it has memory for, or wait for ever.
//!
//! The client library dials TCP itself and believes every length that a server announces. So it connects to
//! an address on loopback, and the relay passes its requests to the real server and the answers back, frame
//! by frame: a length in four bytes, then as many bytes. TLS ends here, since lengths have to be read. What
//! is passed on:
//!
//! * An answer is passed on only up to [`Limits::frame`] bytes, and once it has begun it has to be
//!   complete within [`Limits::frame_patience`].
//!   A longer answer of a server that Bellwether runs is left out, and the request for it fails.
//! * Where a request waits for [`Limits::answer_patience`] and the server answers no other, the
//!   connection ends, though the server may go on answering pings.
//! * A list of children has to fit into the answer that it is announced in: the library makes room for as many
//!   names as the server says.
//! * The relay reads nothing from a server that does not read the client's requests: the library answers some
//!   events by requests, and would collect them in memory.
//! * The session timeout that a server grants is kept within bounds, since the library takes any.
//! * Watches are not set again after a reconnect: whoever uses the client has to read again what it watches.
//!
//! A server that breaks a limit loses the connection, and [`Relay::complaint`] says what it did. With
//! [`Strangers::NotTold`] that is said only of a server that has granted a session, which a port where something
//! else listens does not; what goes wrong before is for the operator's log, by [`Relay::trouble`].

mod frames;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether_election::permissions::{hosts, is_local};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tracing::{debug, warn};

use self::frames::pass;
use super::registry::Task;

/// What a server may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The longest frame, in bytes. ZooKeeper's own clients take no more than 1 MiB by default.
    pub(super) frame: usize,
    /// The longest answer, in bytes, that is left out where it is longer than [`Self::frame`]: the request for it fails, and the
    /// connection goes on. A longer one ends the connection.
    pub(super) left_out: usize,
    /// How long a frame may take that has begun.
    pub(super) frame_patience: Duration,
    /// How long requests may wait without any of them being answered.
    pub(super) answer_patience: Duration,
    /// How long it may take until a connection is made.
    pub(super) connect_patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A node of the greatest size fits, with all that an answer says beside its data.
            frame: 1024 * 1024 + 1024,
            left_out: 0,
            frame_patience: Duration::from_secs(20),
            answer_patience: Duration::from_secs(30),
            connect_patience: Duration::from_secs(10),
        }
    }
}

/// The loopback addresses through which the client reaches the servers. Dropping this closes them.
pub(super) struct Relay {
    address: String,
    complaint: watch::Receiver<Option<String>>,
    trouble: Trouble,
    _tasks: Vec<Task>,
}

/// Whether [`Relay::complaint`] tells what a server does that has granted no session: it need not be ZooKeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strangers {
    /// It does.
    Told,
    /// It does not.
    NotTold,
}

/// What went wrong last between the relay and the servers.
type Trouble = Arc<Mutex<Option<String>>>;

/// How one server is reached.
struct Server {
    host: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    limits: Limits,
    strangers: Strangers,
    trouble: Trouble,
}

impl Relay {
    /// Listens on loopback for each server of a connect string.
    ///
    /// # Errors
    ///
    /// When loopback cannot be listened on.
    pub(super) async fn open(
        connect_string: &str,
        tls: Option<Arc<ClientConfig>>,
        limits: Limits,
        strangers: Strangers,
    ) -> io::Result<Self> {
        let trouble = Trouble::default();
        let (complain, complaint) = watch::channel(None);
        let mut addresses = Vec::new();
        let mut tasks = Vec::new();
        for (host, port) in hosts(connect_string) {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            addresses.push(listener.local_addr()?.to_string());
            let server = Arc::new(Server {
                host: host.to_owned(),
                port,
                tls: tls.clone(),
                limits,
                strangers,
                trouble: trouble.clone(),
            });
            let serving = tokio::spawn(serve(listener, server, complain.clone()));
            tasks.push(Task(serving.abort_handle()));
        }
        let chroot = connect_string.split_once('/').map_or("", |(_, path)| path);
        let chroot = match chroot {
            "" => String::new(),
            path => format!("/{path}"),
        };
        Ok(Self {
            address: addresses.join(",") + &chroot,
            complaint,
            trouble,
            _tasks: tasks,
        })
    }

    /// What the client has to connect to.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// What went wrong last between the relay and the servers, for the log: it tells what listens where.
    pub(super) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock();
        trouble.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a server breaks a limit, and returns which server broke which.
    pub(super) async fn complaint(&self) -> String {
        let mut complaint = self.complaint.clone();
        let first = complaint.wait_for(Option::is_some).await;
        match first.ok().and_then(|first| first.clone()) {
            Some(complaint) => complaint,
            // Nothing is relayed any more, so nothing breaks a limit.
            None => std::future::pending().await,
        }
    }
}

/// Passes one connection at a time to a server: the client has one, and closes it before the next.
async fn serve(
    listener: TcpListener,
    server: Arc<Server>,
    complain: watch::Sender<Option<String>>,
) {
    let mut connections = JoinSet::new();
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                warn!(%error, "the relay cannot take a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        connections.shutdown().await;
        let (server, complain) = (server.clone(), complain.clone());
        connections.spawn(async move {
            let (host, port) = (&server.host, server.port);
            match server.carry(client).await {
                Err(End::Stranger(what)) if server.strangers == Strangers::NotTold => {
                    debug!(
                        host,
                        port, what, "a server that granted no session breaks a limit"
                    );
                    server.note(&what);
                }
                Err(End::Complaint(what) | End::Stranger(what)) => {
                    warn!(host, port, what, "a ZooKeeper server breaks a limit");
                    complain.send_replace(Some(format!("The server {host}:{port} {what}.")));
                }
                Err(End::Io(error)) => {
                    debug!(host, port, %error, "a connection ended");
                    server.note(&format!("ends the connection: {error}"));
                }
                Ok(()) => {}
            }
        });
    }
}

/// Why a connection ended.
#[derive(Debug)]
enum End {
    /// The server broke a limit, in words that go on after its name.
    Complaint(String),
    /// The same of a server that has granted no session.
    Stranger(String),
    /// One side closed the connection, or the connection failed.
    Io(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Server {
    /// Notes what went wrong, in words that go on after the server's name.
    fn note(&self, what: &str) {
        let text = format!("{}:{} {what}", self.host, self.port);
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// Connects to the first address of the host that takes the connection. What is checked of an address is
    /// checked of the very one that is connected to.
    async fn dial(&self) -> io::Result<TcpStream> {
        let is_name = self.host.parse::<IpAddr>().is_err();
        let mut failure = io::Error::other("its name has no address that may be connected to");
        for address in lookup_host((self.host.as_str(), self.port)).await? {
            if is_name && self.strangers == Strangers::NotTold && is_local(address.ip()) {
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn carry(&self, client: TcpStream) -> Result<(), End> {
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let patience = self.limits.connect_patience;
        let stream = timeout(patience, self.dial()).await.map_err(late)??;
        // Requests are small, and the client waits for the answer to each.
        stream.set_nodelay(true)?;
        client.set_nodelay(true)?;
        let Some(tls) = &self.tls else {
            return pass(client, stream, self.limits).await;
        };
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let connected = TlsConnector::from(tls.clone()).connect(name, stream);
        let stream = timeout(patience, connected).await.map_err(late)??;
        pass(client, stream, self.limits).await
    }
}

#[cfg(test)]
pub(in crate::election) mod tests;
