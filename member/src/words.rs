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

/// What the server on this port of the loopback interface answers to a word within this time.
pub(crate) fn ask(port: u16, word: &str, patience: Duration) -> Result<String, String> {
    let deadline = Instant::now() + patience;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, patience)
        .map_err(|error| format!("cannot connect to {address}: {error}"))?;
    let answer = exchange(&mut stream, word, deadline).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("no answer to {word} within {patience:?}")
        }
        _ => format!("asking {word} on {address} failed: {error}"),
    })?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
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
    let outdated = credentials.are_outdated();
    let outdated = outdated.map(|outdated| json!({ "outdated": outdated == Some(true) }));
    json!({
        "srvr": srvr,
        "conf": conf,
        "volumes": volumes,
        "certificates": told(certificates),
        "credentials": told(outdated),
    })
    .to_string()
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
