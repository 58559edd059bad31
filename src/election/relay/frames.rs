//! Passes the frames of one connection both ways, and sees that the server keeps the limits.

use std::collections::HashSet;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, interval, timeout};

use super::{End, Limits};

/// The longest answer to the request for a session: a server's is 41 bytes long.
const MAX_CONNECT_ANSWER: usize = 256;

/// The session timeouts that the library accepts, in milliseconds. A shorter one than the server granted
/// only makes the library ping the server more often.
const SESSION_TIMEOUTS: (i32, i32) = (1_000, 60_000);

/// The requests whose answers are lists of children: `getChildren` and `getChildren2`.
pub(super) const LISTS: [i32; 2] = [8, 12];

/// How much is passed on at once.
const CHUNK: usize = 16 * 1024;

/// The number of every request that sets watches again after a reconnect (`SetWatches`), and the number of the answer.
pub(super) const RENEWAL: i32 = -8;

/// The watches that the client sets again after a reconnect.
///
/// The relay answers these requests itself and passes none of them on. The mirrors read everything again after each
/// reconnect, with new watches, so nothing waits for the old ones. The library (zookeeper-client 0.11.2, `watch.rs`
/// and `depot.rs`) sends more than 128 KiB of paths in several requests of one number and takes the second answer for an
/// error; and each request repeats the paths of those before, up to more than a server takes. A session with some
/// thousand elections would not survive a reconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    /// None was asked for.
    None,
    /// There was a request, and there may be another: the library sends all of them before anything else.
    Asked,
    /// All were sent, so the one answer that the library takes is due.
    Due,
}

/// The state of the requests of a connection.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    /// Whether the server has granted a session.
    granted: bool,
    /// Whether the server has not yet taken what was sent.
    pub(super) sending: bool,
    /// How many requests wait for their answers.
    waiting: usize,
    /// Since when none was answered while some wait.
    since: Instant,
    /// The numbers of the requests that wait for a list of children.
    lists: HashSet<i32>,
    renewal: Renewal,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            granted: false,
            sending: false,
            waiting: 0,
            since: Instant::now(),
            lists: HashSet::new(),
            renewal: Renewal::None,
        }
    }
}

/// Passes frames both ways until one side ends, or the server breaks a limit.
pub(super) async fn pass(
    client: TcpStream,
    server: impl AsyncRead + AsyncWrite,
    limits: Limits,
) -> Result<(), End> {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = tokio::io::split(server);
    let progress = watch::Sender::new(Progress::new());
    let end = tokio::select! {
        end = requests(from_client, to_server, &progress) => end,
        end = answers(from_server, to_client, &progress, limits) => end,
        end = silence(&progress, limits) => end,
    };
    match end {
        Err(End::Complaint(what)) if !progress.borrow().granted => Err(End::Stranger(what)),
        end => end,
    }
}

/// Reads some of what is left of a frame.
async fn some<'a>(
    from: &mut (impl AsyncRead + Unpin),
    left: usize,
    chunk: &'a mut [u8],
) -> Result<&'a [u8], End> {
    let most = left.min(chunk.len());
    match from.read(&mut chunk[..most]).await? {
        0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        read => Ok(&chunk[..read]),
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
        let mut list = None;
        if !is_first && left >= 4 {
            let xid = client.read_i32().await?;
            if xid == RENEWAL {
                left -= 4;
                while left > 0 {
                    left -= some(&mut client, left, &mut chunk).await?.len();
                }
                progress.send_modify(|progress| progress.renewal = Renewal::Asked);
                continue;
            }
            // Pings and logins have no number of their own.
            counts = xid > 0;
            header.extend(xid.to_be_bytes());
            left -= 4;
            if left >= 4 {
                let operation = client.read_i32().await?;
                list = LISTS.contains(&operation).then_some(xid);
                header.extend(operation.to_be_bytes());
                left -= 4;
            }
        }
        is_first = false;
        progress.send_modify(|progress| {
            progress.sending = true;
            progress.lists.extend(list);
            if progress.renewal == Renewal::Asked {
                progress.renewal = Renewal::Due;
            }
            if progress.waiting == 0 {
                progress.since = Instant::now();
            }
            progress.waiting += usize::from(counts);
        });
        server.write_all(&header).await?;
        while left > 0 {
            let part = some(&mut client, left, &mut chunk).await?;
            server.write_all(part).await?;
            left -= part.len();
        }
        server.flush().await?;
        progress.send_modify(|progress| progress.sending = false);
    }
}

/// Passes answers to the client, each within the limits.
pub(super) async fn answers(
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
        if !is_first && renews(progress) {
            // The number, no transaction, and no error.
            let renewed = [&RENEWAL.to_be_bytes()[..], &[0; 12]].concat();
            client.write_all(&16_u32.to_be_bytes()).await?;
            client.write_all(&renewed).await?;
        }
        let most = match is_first {
            true => MAX_CONNECT_ANSWER,
            false => limits.frame.max(limits.left_out),
        };
        let left = match usize::try_from(length) {
            Ok(length) if length <= most => length,
            _ => {
                let most = most.min(limits.frame);
                let what =
                    format!("announces an answer of {length} bytes, where {most} are the limit");
                return Err(End::Complaint(what));
            }
        };
        let frame = async {
            if is_first {
                granted(&mut server, &mut client, left).await?;
                progress.send_modify(|progress| progress.granted = true);
                return Ok(true);
            }
            match left <= limits.frame {
                true => answer(&mut server, &mut client, left, &mut chunk, progress).await,
                false => leave_out(&mut server, &mut client, left, &mut chunk, progress).await,
            }
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

/// Whether the answer to renewed watches is due. It is given once.
fn renews(progress: &watch::Sender<Progress>) -> bool {
    let mut is_due = false;
    progress.send_if_modified(|progress| {
        is_due = progress.renewal == Renewal::Due;
        if is_due {
            progress.renewal = Renewal::None;
        }
        false
    });
    is_due
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

/// Whether the request of this number waited for a list of children. It waits no longer.
fn answers_list(progress: &watch::Sender<Progress>, xid: i32) -> bool {
    let mut is_list = false;
    progress.send_if_modified(|progress| {
        is_list = progress.lists.remove(&xid);
        false
    });
    is_list
}

/// What stands in an answer between the number of its request and the names of a list: a transaction, an error,
/// and how many names there are.
const LIST_HEADER: usize = 16;

/// Passes one answer of this length. Returns whether it answers a counted request.
async fn answer(
    server: &mut (impl AsyncRead + Unpin),
    client: &mut (impl AsyncWrite + Unpin),
    length: usize,
    chunk: &mut [u8],
    progress: &watch::Sender<Progress>,
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
        if answers_list(progress, xid) && left >= LIST_HEADER {
            let mut start = [0; LIST_HEADER];
            server.read_exact(&mut start).await?;
            header.extend(start);
            left -= LIST_HEADER;
            let [.., a, b, c, d] = start;
            let names = i32::from_be_bytes([a, b, c, d]);
            // Each name has at least its own length, in four bytes.
            if usize::try_from(names).is_ok_and(|names| names > left / 4) {
                let what = format!("announces {names} names in an answer of {length} bytes");
                return Err(End::Complaint(what));
            }
        }
    }
    client.write_all(&header).await?;
    while left > 0 {
        let part = some(server, left, chunk).await?;
        client.write_all(part).await?;
        left -= part.len();
    }
    Ok(counts)
}

/// The number of a request, a transaction, and an error.
const ANSWER_HEADER: usize = 16;

/// In the place of an answer that is too long, tells the client that it cannot be had. Only the request for it fails: whoever may write to one
/// election makes such answers (many children with long names), and other elections use the same connection.
async fn leave_out(
    server: &mut (impl AsyncRead + Unpin),
    client: &mut (impl AsyncWrite + Unpin),
    length: usize,
    chunk: &mut [u8],
    progress: &watch::Sender<Progress>,
) -> Result<bool, End> {
    let mut header = [0; ANSWER_HEADER];
    server.read_exact(&mut header).await?;
    let [a, b, c, d, ..] = header;
    let xid = i32::from_be_bytes([a, b, c, d]);
    if xid <= 0 {
        let what = format!("sends an event of {length} bytes");
        return Err(End::Complaint(what));
    }
    answers_list(progress, xid);
    let mut left = length.saturating_sub(ANSWER_HEADER);
    while left > 0 {
        left -= some(server, left, chunk).await?.len();
    }
    let instead = [&header[..ANSWER_HEADER - 4], &LEFT_OUT.to_be_bytes()].concat();
    let length = u32::try_from(instead.len()).map_err(io::Error::other)?;
    client.write_all(&length.to_be_bytes()).await?;
    client.write_all(&instead).await?;
    Ok(true)
}

/// The error that stands for an answer that was left out: ZooKeeper's own for what cannot be put into a message.
const LEFT_OUT: i32 = -5;

/// Fails when requests have waited for too long without any answer.
async fn silence(progress: &watch::Sender<Progress>, limits: Limits) -> Result<(), End> {
    let patience = limits.answer_patience;
    let mut look = interval(patience / 10);
    loop {
        look.tick().await;
        let is_late = {
            let now = progress.borrow();
            (now.waiting > 0 || now.sending) && now.since.elapsed() > patience
        };
        if is_late {
            let what = format!("does not answer requests within {patience:?}");
            return Err(End::Complaint(what));
        }
    }
}
