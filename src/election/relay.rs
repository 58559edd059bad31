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
//! * Where a request waits for [`Limits::answer_patience`] and the server answers no other, the
//!   connection ends, though the server may go on answering pings.
//! * The relay reads nothing from a server that does not read the client's requests: the library answers some
//!   events by requests, and would collect them in memory.
//! * The session timeout that a server grants is kept within bounds, since the library takes any.
//!
//! A server that breaks a limit loses the connection, and [`Relay::complaint`] says what it did.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tracing::{debug, warn};

use super::reach::hosts;
use super::registry::Task;

/// What a server may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The longest frame, in bytes. ZooKeeper's own clients take no more than 1 MiB by default.
    pub(super) frame: usize,
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
            frame_patience: Duration::from_secs(20),
            answer_patience: Duration::from_secs(30),
            connect_patience: Duration::from_secs(10),
        }
    }
}

/// The longest answer to the request for a session: a server's is 41 bytes long.
const MAX_CONNECT_ANSWER: usize = 256;

/// The session timeouts that the library accepts, in milliseconds. A shorter one than the server granted
/// only makes the library ping the server more often.
const SESSION_TIMEOUTS: (i32, i32) = (1_000, 60_000);

/// How much is passed on at once.
const CHUNK: usize = 16 * 1024;

/// The loopback addresses through which the client reaches the servers. Dropping this closes them.
pub(super) struct Relay {
    address: String,
    complaint: watch::Receiver<Option<String>>,
    _tasks: Vec<Task>,
}

/// How one server is reached.
struct Server {
    host: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    limits: Limits,
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
    ) -> io::Result<Self> {
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
            _tasks: tasks,
        })
    }

    /// What the client has to connect to.
    pub(super) fn address(&self) -> &str {
        &self.address
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
                Err(End::Complaint(what)) => {
                    warn!(host, port, what, "a ZooKeeper server breaks a limit");
                    complain.send_replace(Some(format!("The server {host}:{port} {what}.")));
                }
                Err(End::Io(error)) => debug!(host, port, %error, "a connection ended"),
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
    /// One side closed the connection, or the connection failed.
    Io(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Server {
    async fn carry(&self, client: TcpStream) -> Result<(), End> {
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let patience = self.limits.connect_patience;
        let dialled = TcpStream::connect((self.host.as_str(), self.port));
        let stream = timeout(patience, dialled).await.map_err(late)??;
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

/// The state of the requests of a connection.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Whether the server has not yet taken what was sent.
    sending: bool,
    /// How many requests wait for their answers.
    waiting: usize,
    /// Since when none was answered while some wait.
    since: Instant,
}

/// Passes frames both ways until one side ends, or the server breaks a limit.
async fn pass(
    client: TcpStream,
    server: impl AsyncRead + AsyncWrite,
    limits: Limits,
) -> Result<(), End> {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = tokio::io::split(server);
    let progress = watch::Sender::new(Progress {
        sending: false,
        waiting: 0,
        since: Instant::now(),
    });
    tokio::select! {
        end = requests(from_client, to_server, &progress) => end,
        end = answers(from_server, to_client, &progress, limits) => end,
        end = silence(&progress, limits) => end,
    }
}

/// The length of the next frame, or that the stream ended.
async fn length(from: &mut (impl AsyncRead + Unpin)) -> Result<i32, End> {
    Ok(from.read_i32().await?)
}

/// Passes requests to the server. The client is trusted with their lengths.
async fn requests(
    mut client: impl AsyncRead + Unpin,
    mut server: impl AsyncWrite + Unpin,
    progress: &watch::Sender<Progress>,
) -> Result<(), End> {
    let mut is_first = true;
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = length(&mut client).await?;
        let mut left = usize::try_from(length).map_err(io::Error::other)?;
        let mut header = length.to_be_bytes().to_vec();
        let mut counts = is_first;
        if !is_first && left >= 4 {
            let xid = client.read_i32().await?;
            // Pings, logins and the renewal of earlier watches have no number of their own.
            counts = xid > 0;
            header.extend(xid.to_be_bytes());
            left -= 4;
        }
        is_first = false;
        progress.send_modify(|progress| {
            progress.sending = true;
            if progress.waiting == 0 {
                progress.since = Instant::now();
            }
            progress.waiting += usize::from(counts);
        });
        server.write_all(&header).await?;
        while left > 0 {
            let most = left.min(chunk.len());
            let read = client.read(&mut chunk[..most]).await?;
            if read == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            server.write_all(&chunk[..read]).await?;
            left -= read;
        }
        server.flush().await?;
        progress.send_modify(|progress| progress.sending = false);
    }
}

/// Passes answers to the client, each within the limits.
async fn answers(
    mut server: impl AsyncRead + Unpin,
    mut client: impl AsyncWrite + Unpin,
    progress: &watch::Sender<Progress>,
    limits: Limits,
) -> Result<(), End> {
    let mut taken = progress.subscribe();
    let mut chunk = vec![0; CHUNK];
    let mut is_first = true;
    loop {
        // An error means that the connection is over.
        let _ = taken.wait_for(|progress| !progress.sending).await;
        let length = length(&mut server).await?;
        let most = if is_first {
            MAX_CONNECT_ANSWER
        } else {
            limits.frame
        };
        let left = match usize::try_from(length) {
            Ok(length) if length <= most => length,
            _ => {
                let what =
                    format!("announces an answer of {length} bytes, where {most} are the limit");
                return Err(End::Complaint(what));
            }
        };
        let frame = async {
            if is_first {
                granted(&mut server, &mut client, left).await?;
                return Ok(true);
            }
            answer(&mut server, &mut client, left, &mut chunk).await
        };
        let counts = match timeout(limits.frame_patience, frame).await {
            Ok(counts) => counts?,
            Err(_) => {
                let patience = limits.frame_patience;
                let what = format!("begins an answer and does not finish it within {patience:?}");
                return Err(End::Complaint(what));
            }
        };
        is_first = false;
        if counts {
            progress.send_modify(|progress| {
                progress.waiting = progress.waiting.saturating_sub(1);
                progress.since = Instant::now();
            });
        }
    }
}

/// Passes the answer to the request for a session, with a session timeout within bounds.
async fn granted(
    server: &mut (impl AsyncRead + Unpin),
    client: &mut (impl AsyncWrite + Unpin),
    length: usize,
) -> Result<(), End> {
    let mut answer = vec![0; length];
    server.read_exact(&mut answer).await?;
    // The version of the protocol, then the timeout.
    if let Some(timeout) = answer.get_mut(4..8) {
        let granted = i32::from_be_bytes([timeout[0], timeout[1], timeout[2], timeout[3]]);
        let (least, most) = SESSION_TIMEOUTS;
        timeout.copy_from_slice(&granted.clamp(least, most).to_be_bytes());
    }
    let length = u32::try_from(length).map_err(io::Error::other)?;
    client.write_all(&length.to_be_bytes()).await?;
    client.write_all(&answer).await?;
    Ok(())
}

/// Passes one answer of this length. Returns whether it answers a counted request.
async fn answer(
    server: &mut (impl AsyncRead + Unpin),
    client: &mut (impl AsyncWrite + Unpin),
    length: usize,
    chunk: &mut [u8],
) -> Result<bool, End> {
    let mut left = length;
    let length = u32::try_from(length).map_err(io::Error::other)?;
    let mut header = length.to_be_bytes().to_vec();
    let mut counts = false;
    if left >= 4 {
        let xid = server.read_i32().await?;
        counts = xid > 0;
        header.extend(xid.to_be_bytes());
        left -= 4;
    }
    client.write_all(&header).await?;
    while left > 0 {
        let most = left.min(chunk.len());
        let read = server.read(&mut chunk[..most]).await?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        client.write_all(&chunk[..read]).await?;
        left -= read;
    }
    Ok(counts)
}

/// Fails when requests have waited for too long without any answer.
async fn silence(progress: &watch::Sender<Progress>, limits: Limits) -> Result<(), End> {
    let patience = limits.answer_patience;
    let mut look = interval(patience / 10);
    loop {
        look.tick().await;
        let Progress {
            sending,
            waiting,
            since,
        } = *progress.borrow();
        if (waiting > 0 || sending) && since.elapsed() > patience {
            let what = format!("does not answer requests within {patience:?}");
            return Err(End::Complaint(what));
        }
    }
}

#[cfg(test)]
pub(in crate::election) mod tests;
