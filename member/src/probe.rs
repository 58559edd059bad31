//! The probes: four-letter words on the loopback interface.
//!
//! Liveness asks for nothing that needs a quorum: a server that waits for its peers is alive, and
//! killing it would only keep the quorum from forming. Readiness asks whether the server serves.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a probe may take in all.
const TIMEOUT: Duration = Duration::from_secs(2);
/// No answer to these words is longer.
const LONGEST_ANSWER: usize = 64 * 1024;

/// What a probe asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Does the process answer at all?
    Live,
    /// Does it serve clients?
    Ready,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Live => "ruok",
            Self::Ready => "srvr",
        }
    }

    /// Judges the answer.
    fn judge(self, answer: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(answer);
        let good = match self {
            Self::Live => text == "imok",
            Self::Ready => text.lines().any(|line| line.starts_with("Mode: ")),
        };
        if good {
            return Ok(());
        }
        let first: String = text
            .lines()
            .next()
            .unwrap_or("")
            .chars()
            .take(200)
            .collect();
        Err(if first.is_empty() {
            format!(
                "the server closed the connection without an answer to {}",
                self.word()
            )
        } else {
            format!("the server answered {} with: {first}", self.word())
        })
    }
}

/// Asks the server on this port of the loopback interface.
pub(crate) fn ask(kind: Kind, port: u16) -> Result<(), String> {
    let deadline = Instant::now() + TIMEOUT;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)
        .map_err(|error| format!("cannot connect to {address}: {error}"))?;
    let answer =
        exchange(&mut stream, kind.word(), deadline).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!(
                    "no answer to {} within {} s",
                    kind.word(),
                    TIMEOUT.as_secs()
                )
            }
            _ => format!("asking {} on {address} failed: {error}", kind.word()),
        })?;
    kind.judge(&answer)
}

fn exchange(stream: &mut TcpStream, word: &str, deadline: Instant) -> std::io::Result<Vec<u8>> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while answer.len() < LONGEST_ANSWER {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => answer.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // ZooKeeper may reset the connection after its answer.
            Err(error) if error.kind() == ErrorKind::ConnectionReset && !answer.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that answers one connection.
    fn server(answer: Option<&'static [u8]>) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut word = [0; 4];
            stream.read_exact(&mut word).unwrap();
            match answer {
                Some(answer) => stream.write_all(answer).unwrap(),
                // Keeps the connection open until the client gives up.
                None => drop(stream.read(&mut word)),
            }
        });
        port
    }

    const SERVING: &[u8] = b"Zookeeper version: 3.9.5\nZxid: 0x0\nMode: follower\nNode count: 5\n";
    const LOOKING: &[u8] = b"This ZooKeeper instance is not currently serving requests\n";

    #[test]
    fn a_server_that_waits_for_its_peers_is_alive_but_not_ready() {
        assert_eq!(ask(Kind::Live, server(Some(b"imok"))), Ok(()));
        assert_eq!(ask(Kind::Ready, server(Some(SERVING))), Ok(()));
        let message = ask(Kind::Ready, server(Some(LOOKING))).unwrap_err();
        assert!(message.contains("not currently serving"), "{message}");
    }

    #[test]
    fn anything_else_fails_and_says_why() {
        for (kind, answer, words) in [
            (Kind::Live, &b""[..], "without an answer"),
            (Kind::Live, b"imok?", "imok?"),
            (Kind::Live, b"\xff\xfe", "answered ruok"),
            (
                Kind::Ready,
                b"ruok is not executed because it is not in the whitelist.",
                "whitelist",
            ),
            (Kind::Ready, b"Model: x", "Model: x"),
        ] {
            let message = ask(kind, server(Some(answer))).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn a_server_that_is_not_there_or_hangs_fails_in_time() {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        assert!(
            ask(Kind::Live, free)
                .unwrap_err()
                .contains("cannot connect")
        );
        let message = ask(Kind::Live, server(None)).unwrap_err();
        assert!(
            message.contains("no answer to ruok within 2 s"),
            "{message}"
        );
    }
}
