//! The readiness probe: a four-letter word on the loopback interface.

use crate::words;

/// The four-letter word that asks a server about itself.
const WORD: &str = "srvr";

/// Whether the server on this port of the loopback interface serves clients; if not, why.
pub(crate) fn ask(port: u16) -> Result<(), String> {
    judge(&words::ask(port, WORD, words::TIMEOUT)?)
}

fn judge(text: &str) -> Result<(), String> {
    if text.lines().any(|line| line.starts_with("Mode: ")) {
        return Ok(());
    }
    let first = text.lines().next().unwrap_or_default();
    let first: String = first.chars().take(200).collect();
    Err(if first.is_empty() {
        format!("the server closed the connection without an answer to {WORD}")
    } else {
        format!("the server answered {WORD} with: {first}")
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};
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
    fn a_server_that_waits_for_its_peers_is_not_ready() {
        assert_eq!(ask(server(Some(SERVING))), Ok(()));
        let message = ask(server(Some(LOOKING))).unwrap_err();
        assert!(message.contains("not currently serving"), "{message}");
    }

    #[test]
    fn anything_else_fails_and_says_why() {
        for (answer, words) in [
            (&b""[..], "without an answer"),
            (b"imok", "imok"),
            (b"\xff\xfe", "answered srvr"),
            (
                b"srvr is not executed because it is not in the whitelist.",
                "whitelist",
            ),
            (b"Model: x", "Model: x"),
        ] {
            let message = ask(server(Some(answer))).unwrap_err();
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
        assert!(ask(free).unwrap_err().contains("cannot connect"));
        let message = ask(server(None)).unwrap_err();
        assert!(message.contains("no answer to srvr within 2s"), "{message}");
    }
}
