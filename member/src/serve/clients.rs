//! The clients that are being served: a fixed number, each for a limited time.

use std::cmp::Reverse;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::http::{self, Connection};

/// How many clients are served at once.
pub(super) const MOST: usize = 64;
/// How long a client is served in all, from its first byte to the answer: as long as the kubelet
/// waits for its readiness probe.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// The longest request that is read; the kubelet's has about 150 bytes, and a proxy adds some lines.
const LONGEST_REQUEST: usize = 8 * 1024;

/// One client.
#[derive(Debug)]
struct Client {
    stream: TcpStream,
    from: IpAddr,
    until: Instant,
    head: Vec<u8>,
    /// Whether its request is complete, so that it waits for the answer.
    waits: bool,
}

/// The clients, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Clients(Vec<Client>);

impl Clients {
    /// Admits a client. If there are too many, drops the oldest of the address that has most of them, so that
    /// an address cannot displace others by connecting often.
    pub(super) fn admit(&mut self, stream: TcpStream, from: IpAddr) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        self.0.push(Client {
            stream,
            from: from.to_canonical(),
            until: Instant::now() + PATIENCE,
            head: Vec::new(),
            waits: false,
        });
        if self.0.len() > MOST
            && let Some(place) = self.crowding()
        {
            self.0.remove(place);
        }
    }

    /// The place of the oldest client of the address that has most of them.
    fn crowding(&self) -> Option<usize> {
        let of = |from| self.0.iter().filter(|c| c.from == from).count();
        let places = self.0.iter().enumerate();
        let place = places.max_by_key(|(place, c)| (of(c.from), Reverse(*place)));
        place.map(|(place, _)| place)
    }

    /// The clients whose request is not complete.
    pub(super) fn reading(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let reading = self.0.iter().filter(|c| !c.waits);
        reading.map(|c| c.stream.as_fd())
    }

    /// When the time of the oldest client is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.first().map(|c| c.until)
    }

    /// Drops the clients whose time is over.
    pub(super) fn drop_late(&mut self, now: Instant) {
        self.0.retain(|c| c.until > now);
    }

    /// Reads what has arrived. Drops those that sent too much or went away, and those that ask for
    /// something that can be answered at once.
    pub(super) fn read(&mut self) {
        self.0.retain_mut(|client| {
            if client.waits {
                return true;
            }
            let is_complete = match client.receive() {
                Ok(is_complete) => is_complete,
                Err(_) => return false,
            };
            if !is_complete {
                return true;
            }
            match http::path(&client.head) {
                Some("/ready") => client.waits = true,
                // Pods that an earlier operator version made have a liveness probe here. Another container's answer
                // must not kill ZooKeeper, so the liveness probe always succeeds.
                Some("/live") => {
                    client.send(&Connection::Close.response(http::TEXT, Ok("ok".to_owned())));
                }
                _ => client.send(&Connection::Close.unknown("/ready")),
            }
            client.waits
        });
    }

    /// Whether a client waits for the answer.
    pub(super) fn wait(&self) -> bool {
        self.0.iter().any(|c| c.waits)
    }

    /// Answers all clients that wait.
    pub(super) fn answer(&mut self, text: &[u8]) {
        self.0.retain_mut(|client| {
            if client.waits {
                client.send(text);
            }
            !client.waits
        });
    }
}

impl Client {
    /// Reads what has arrived. Returns whether the request is complete.
    fn receive(&mut self) -> std::io::Result<bool> {
        let mut buffer = [0; 1024];
        loop {
            match self.stream.read(&mut buffer) {
                // The client sends no more, and may still wait for an answer.
                Ok(0) if !self.head.is_empty() => return Ok(true),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.head.extend(buffer.iter().take(n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if http::is_complete(&self.head) {
                return Ok(true);
            }
            if self.head.len() > LONGEST_REQUEST {
                return Err(ErrorKind::InvalidData.into());
            }
        }
    }

    /// Sends an answer, which is shorter than what the system takes at once. An error is ignored: it only
    /// means that the client has gone.
    fn send(&mut self, text: &[u8]) {
        let _ = self.stream.write_all(text);
    }
}
