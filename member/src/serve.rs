//! The probes over HTTP, for a container beside ZooKeeper's.
//!
//! A probe that starts a program in a container costs the node many times more than the question
//! itself, and every member is asked all the time; one small server answers for next to nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::probe::{self, Kind};

/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest first line of a request that is read.
const LONGEST_LINE: u64 = 1024;

/// Answers `GET /live` and `GET /ready` on the port `listen` about the server on the port
/// `zookeeper` of the loopback interface, until SIGTERM.
pub(crate) fn serve(listen: u16, zookeeper: u16) -> Result<(), String> {
    // The first process of a container does not end by a signal that it does not handle.
    let mut signals =
        Signals::new([SIGTERM, SIGINT]).map_err(|e| format!("cannot handle signals: {e}"))?;
    let listener = bind(listen).map_err(|e| format!("cannot listen on port {listen}: {e}"))?;
    thread::spawn(move || accept(&listener, zookeeper));
    let _ = signals.forever().next();
    Ok(())
}

/// On every address of the pod, whichever family it has.
fn bind(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        .or_else(|_| TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))))
}

fn accept(listener: &TcpListener, zookeeper: u16) {
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            // A client that goes away has no use for an error.
            let _ = answer(stream, zookeeper);
        });
    }
}

fn answer(mut stream: TcpStream, zookeeper: u16) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LONGEST_LINE)).read_line(&mut line)?;
    let (status, text) = match asked(&line) {
        Some(kind) => match probe::ask(kind, zookeeper) {
            Ok(()) => ("200 OK", "ok".to_owned()),
            Err(why) => ("503 Service Unavailable", why),
        },
        None => ("404 Not Found", "ask for /live or /ready".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
}

/// What the first line of a request asks.
fn asked(line: &str) -> Option<Kind> {
    let mut words = line.split_ascii_whitespace();
    let method = words.next()?;
    let path = words.next()?.split('?').next()?;
    match (method, path) {
        ("GET" | "HEAD", "/live") => Some(Kind::Live),
        ("GET" | "HEAD", "/ready") => Some(Kind::Ready),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_questions_are_answered() {
        assert_eq!(asked("GET /live HTTP/1.1\r\n"), Some(Kind::Live));
        assert_eq!(asked("GET /ready?x=1 HTTP/1.1\r\n"), Some(Kind::Ready));
        for line in [
            "",
            "GET",
            "GET /",
            "POST /live HTTP/1.1",
            "\u{0}\u{7f} /live",
        ] {
            assert_eq!(asked(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_server_that_is_not_there_makes_the_probe_fail_with_a_reason() {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let zookeeper = free.local_addr().unwrap().port();
        drop(free);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || accept(&listener, zookeeper));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /ready HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        assert!(text.contains("cannot connect"), "{text}");
    }
}
