//! Four-letter words to the server on the loopback interface.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use bellwether_member::learner_lines;
use serde_json::{Value, json};

use crate::credentials::Credentials;
use crate::{tls_files, volumes};

/// How long a server may take for one answer, in all.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
/// How long the server may take for all that is in a report.
const REPORTED: Duration = Duration::from_millis(700);
/// No answer is longer: `mntr` has some 30 KiB.
const LONGEST_ANSWER: usize = 256 * 1024;
/// The port of the server's AdminServer on the loopback interface.
pub(crate) const ADMIN_PORT: u16 = 8077;
/// The longest list of connections or watches: those of some ten thousand clients.
const LONGEST_LIST: usize = 8 * 1024 * 1024;

/// What the server on this port of the loopback interface answers to a word within this time.
pub(crate) fn ask(port: u16, word: &str, patience: Duration) -> Result<String, String> {
    let answer = answer(port, word, word, (patience, LONGEST_ANSWER))?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// What is answered on this port of the loopback interface to a request for `what`, within this time and length.
fn answer(
    port: u16,
    request: &str,
    what: &str,
    (patience, longest): (Duration, usize),
) -> Result<Vec<u8>, String> {
    let deadline = Instant::now() + patience;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, patience)
        .map_err(|error| format!("cannot connect to {address}: {error}"))?;
    exchange(&mut stream, request, deadline, longest).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("no answer to {what} within {patience:?}")
        }
        _ => format!("asking {what} on {address} failed: {error}"),
    })
}

/// What the AdminServer on this port of the loopback interface lists, as JSON.
///
/// # Errors
/// When it does not answer in time, or with more than anybody reads.
pub(crate) fn list(port: u16, command: &str) -> Result<String, String> {
    // HTTP 1.0, so that the answer comes in one piece and ends with the connection.
    let request = format!("GET /commands/{command} HTTP/1.0\r\n\r\n");
    let answer = answer(port, &request, command, (TIMEOUT, LONGEST_LIST))?;
    if answer.len() >= LONGEST_LIST {
        return Err(format!(
            "the answer to {command} has more than {LONGEST_LIST} bytes"
        ));
    }
    let answer = String::from_utf8_lossy(&answer);
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(format!(
            "the answer to {command} is {:?}",
            answer.lines().next().unwrap_or_default()
        )),
    }
}

/// The answer to `srvr`. If the server leads, the numbers of its learners follow; and, if it has other users of clients than
/// there are now, that.
pub(crate) fn state(port: u16, credentials: &Credentials) -> Result<String, String> {
    let mut answer = ask(port, "srvr", TIMEOUT)?;
    if answer.lines().any(|line| line == "Mode: leader") {
        answer.push_str(&learner_lines(&ask(port, "mntr", TIMEOUT)?));
    }
    match credentials.are_outdated() {
        Ok(Some(true)) => answer.push_str("Credentials: outdated\n"),
        Ok(Some(false) | None) => {}
        Err(why) => answer.push_str(&format!("Credentials: unusable: {why}\n")),
    }
    Ok(answer)
}

/// What the operator is told at once: what the server says of itself and of its configuration, what is on the volumes, and
/// what the member presents to others, and whether its server has the users and authorities of clients that there are now.
/// Each answer is known or has a reason why it is not.
pub(crate) fn report(
    port: u16,
    (data, datalog): (&Path, &Path),
    credentials: &Credentials,
) -> String {
    // The operator waits a second, and takes the volumes' part also from a member whose server hangs.
    let deadline = Instant::now() + REPORTED;
    let ask = |word| {
        let left = deadline.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(format!("no answer to {word} within {REPORTED:?}")),
            false => ask(port, word, left),
        }
    };
    let told = |answer: Result<Value, String>| match answer {
        Ok(answer) => json!({ "answer": answer }),
        Err(failure) => json!({ "failure": failure }),
    };
    let said = |word| told(ask(word).map(Value::from));
    let (srvr, conf) = (said("srvr"), said("conf"));
    let volumes = told(volumes::report(data, datalog));
    let certificates = tls_files::presented(&credentials.identity, &credentials.tls);
    let of_clients = credentials.state().map(|state| {
        json!({
            "outdated": state.outdated == Some(true),
            "client_authority": state.client_authority,
        })
    });
    json!({
        "srvr": srvr,
        "conf": conf,
        "volumes": volumes,
        "certificates": told(certificates),
        "credentials": told(of_clients),
    })
    .to_string()
}

fn exchange(
    stream: &mut TcpStream,
    word: &str,
    deadline: Instant,
    longest: usize,
) -> std::io::Result<Vec<u8>> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while answer.len() < longest {
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

    /// What is listed by an AdminServer that answers this.
    fn listed(answer: &[u8]) -> Result<String, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = answer.to_vec();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 256];
            let n = stream.read(&mut request).unwrap();
            let _ = stream.write_all(&answer);
            String::from_utf8_lossy(&request[..n]).into_owned()
        });
        let listed = list(port, "connections");
        let asked = "GET /commands/connections HTTP/1.0\r\n\r\n";
        assert_eq!(server.join().unwrap(), asked);
        listed
    }

    #[test]
    fn an_admin_servers_list_is_handed_on_as_it_is() {
        let answer = b"HTTP/1.1 200 OK\r\nServer: Jetty\r\n\r\n{ \"connections\": [] }";
        assert_eq!(listed(answer).unwrap(), "{ \"connections\": [] }");
    }

    #[test]
    fn what_is_no_list_is_told() {
        for (answer, why) in [
            (&b"HTTP/1.1 404 Not Found\r\n\r\n"[..], "404 Not Found"),
            (b"HTTP/1.1 200 OK\r\n", "200 OK"),
            (b"", "is \"\""),
            (&[b'x'; LONGEST_LIST + 1], "more than"),
        ] {
            let told = listed(answer).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
        assert!(list(1, "connections").unwrap_err().contains("refused"));
    }
}
