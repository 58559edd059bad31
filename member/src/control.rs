//! The control endpoint: what the operator asks a member, over mutual TLS.
//!
//! Any pod may reach this port. Only a client that presents the operator's certificate, signed by the ensemble's own
//! authority, is answered. Everything is bounded: connections, the time of each, and the bytes of a request. A
//! connection of the operator stays open, so that its next question costs no handshake.

mod connections;
pub(crate) mod identity;

use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ServerConnection, Stream};

use crate::credentials::Credentials;
use crate::http::{self, Connection, PAUSE};
use crate::options::Volumes;
use crate::reconfigure::{self, Server};
use crate::run_time_list;
use crate::timed::Timed;
use crate::words::{self, ADMIN_PORT};
use connections::{Connections, Ticket};
use identity::Identity;

/// How long a client may take for the handshake, in all, and the operator for a request that it has begun.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a connection of the operator stays open without a request: longer than the operator keeps it, so that
/// the operator closes it.
const IDLE: Duration = Duration::from_secs(120);
/// The longest request that is read.
const LONGEST_REQUEST: usize = 4 * 1024;
/// The stack of a thread that serves one connection. Handshakes need most of it.
const STACK: usize = 512 * 1024;

/// Answers the operator about one member.
#[derive(Debug)]
pub(crate) struct Control {
    /// The port of its server on the loopback interface.
    zookeeper: u16,
    /// The server's configuration directory.
    conf: PathBuf,
    volumes: Volumes,
    identity: Identity,
    credentials: Credentials,
    connections: Connections,
}

impl Control {
    /// For the member with the server on this port, which reads its certificates and users from there.
    pub(crate) fn new(
        zookeeper: u16,
        conf: PathBuf,
        volumes: Volumes,
        credentials: Credentials,
    ) -> Self {
        Self {
            zookeeper,
            conf,
            volumes,
            identity: Identity::new(credentials.identity.clone()),
            credentials,
            connections: Connections::default(),
        }
    }

    /// Answers on this listener for ever.
    pub(crate) fn run(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => self.admit(stream),
                // The system has no room for another connection, or the client went away.
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: TcpStream) {
        let Ok(ticket) = self.connections.admit(&stream) else {
            return;
        };
        let control = self.clone();
        let serve = move || {
            // An error only means that the client went away, or was not entitled to an answer.
            let _ = control.serve(&stream, &ticket);
            let _ = stream.shutdown(Shutdown::Both);
        };
        // If no thread can be started, the connection and its ticket are dropped.
        let _ = thread::Builder::new().stack_size(STACK).spawn(serve);
    }

    fn serve(&self, stream: &TcpStream, ticket: &Ticket) -> io::Result<()> {
        let mut socket = Timed {
            stream,
            until: Instant::now() + PATIENCE,
        };
        let mut tls = ServerConnection::new(self.identity.current()?).map_err(Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        identity::expect_operator(tls.peer_certificates())?;
        ticket.is_of_the_operator();
        loop {
            socket.until = Instant::now() + IDLE;
            let mut stream = Stream::new(&mut tls, &mut socket);
            let Some(head) = read_head(&mut stream)? else {
                return Ok(());
            };
            let answer = self.answer(&head);
            stream.sock.until = Instant::now() + PATIENCE;
            stream.write_all(&answer)?;
            stream.flush()?;
        }
    }

    /// The answer to a request, with its HTTP head.
    fn answer(&self, head: &[u8]) -> Vec<u8> {
        use Connection::KeepAlive;
        if let Some(("/reconfigure", [version, members])) = http::act(head, ["version", "members"])
        {
            let asked = self.reconfigure(version, members);
            return KeepAlive.response(http::TEXT, asked.map(|()| "done".to_owned()));
        }
        match http::path(head) {
            Some("/state") => {
                KeepAlive.response(http::TEXT, words::state(self.zookeeper, &self.credentials))
            }
            Some("/report") => {
                let Volumes { data, datalog } = &self.volumes;
                let report = words::report(self.zookeeper, (data, datalog), &self.credentials);
                KeepAlive.response(http::JSON, Ok(report))
            }
            Some("/connections") => {
                KeepAlive.response(http::JSON, words::list(ADMIN_PORT, "connections"))
            }
            Some("/watches") => {
                KeepAlive.response(http::JSON, words::list(ADMIN_PORT, "watches_by_path"))
            }
            _ => KeepAlive.unknown("/state, /report, /connections or /watches"),
        }
    }

    /// Asks the server for the list of these members, if that of the ensemble has this version.
    fn reconfigure(&self, version: Option<&str>, members: Option<&str>) -> Result<(), String> {
        let version = version.and_then(|version| i64::from_str_radix(version, 16).ok());
        let version =
            version.ok_or("a request for another list needs the version of the present one")?;
        let request = run_time_list::request(&self.conf, members.unwrap_or_default())?;
        let server = match self.credentials.own_client()? {
            None => Server::plaintext(self.zookeeper),
            Some(tls) => Server {
                port: request
                    .secure_port
                    .ok_or("the server has no port for TLS")?,
                tls: Some(tls),
            },
        };
        reconfigure::ask(&server, &request.password, &request.lines, version)
    }
}

/// Reads a request; `None` if the client closes the connection instead.
fn read_head(stream: &mut Stream<'_, ServerConnection, Timed<'_>>) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let n = match stream.read(&mut buffer) {
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && head.is_empty() => 0,
            Err(error) => return Err(error),
        };
        if n == 0 {
            return match head.is_empty() {
                true => Ok(None),
                false => Err(ErrorKind::UnexpectedEof.into()),
            };
        }
        if head.is_empty() {
            stream.sock.until = Instant::now() + PATIENCE;
        }
        head.extend(buffer.iter().take(n));
        if http::is_complete(&head) {
            return Ok(Some(head));
        }
        if head.len() > LONGEST_REQUEST {
            return Err(ErrorKind::InvalidData.into());
        }
    }
}

#[cfg(test)]
mod tests;
