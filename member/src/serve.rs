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

use crate::options::Volumes;
use crate::probe::{self, Kind};
use crate::volumes;

/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest first line of a request that is read.
const LONGEST_LINE: u64 = 1024;

/// What is asked about.
#[derive(Clone, Debug)]
struct Member {
    /// The port of its server on the loopback interface.
    zookeeper: u16,
    volumes: Volumes,
}

/// What a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Probe(Kind),
    Volumes,
}

/// Answers `GET /live`, `GET /ready` and `GET /volumes` on the port `listen` about the server on the
/// port `zookeeper` of the loopback interface, until SIGTERM.
pub(crate) fn serve(listen: u16, zookeeper: u16, volumes: Volumes) -> Result<(), String> {
    // The first process of a container does not end by a signal that it does not handle.
    let mut signals =
        Signals::new([SIGTERM, SIGINT]).map_err(|e| format!("cannot handle signals: {e}"))?;
    let listener = bind(listen).map_err(|e| format!("cannot listen on port {listen}: {e}"))?;
    let member = Member { zookeeper, volumes };
    thread::spawn(move || accept(&listener, &member));
    let _ = signals.forever().next();
    Ok(())
}

/// On every address of the pod, whichever family it has.
fn bind(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        .or_else(|_| TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))))
}

fn accept(listener: &TcpListener, member: &Member) {
    for stream in listener.incoming().flatten() {
        let member = member.clone();
        thread::spawn(move || {
            // A client that goes away has no use for an error.
            let _ = answer(stream, &member);
        });
    }
}

fn answer(mut stream: TcpStream, member: &Member) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LONGEST_LINE)).read_line(&mut line)?;
    let (status, kind, text) = reply(asked(&line), member);
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
}

/// Status, content type and text of the answer.
fn reply(question: Option<Question>, member: &Member) -> (&'static str, &'static str, String) {
    const TEXT: &str = "text/plain; charset=utf-8";
    let (kind, answer) = match question {
        Some(Question::Probe(kind)) => {
            let answer = probe::ask(kind, member.zookeeper);
            (TEXT, answer.map(|()| "ok".to_owned()))
        }
        Some(Question::Volumes) => {
            let Volumes { data, datalog } = &member.volumes;
            ("application/json", volumes::report(data, datalog))
        }
        None => {
            let text = "ask for /live, /ready or /volumes".to_owned();
            return ("404 Not Found", TEXT, text);
        }
    };
    match answer {
        Ok(text) => ("200 OK", kind, text),
        Err(why) => ("503 Service Unavailable", TEXT, why),
    }
}

/// What the first line of a request asks.
fn asked(line: &str) -> Option<Question> {
    let mut words = line.split_ascii_whitespace();
    let method = words.next()?;
    let path = words.next()?.split('?').next()?;
    match (method, path) {
        ("GET" | "HEAD", "/live") => Some(Question::Probe(Kind::Live)),
        ("GET" | "HEAD", "/ready") => Some(Question::Probe(Kind::Ready)),
        ("GET" | "HEAD", "/volumes") => Some(Question::Volumes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_three_questions_are_answered() {
        let probe = |kind| Some(Question::Probe(kind));
        assert_eq!(asked("GET /live HTTP/1.1\r\n"), probe(Kind::Live));
        assert_eq!(asked("GET /ready?x=1 HTTP/1.1\r\n"), probe(Kind::Ready));
        assert_eq!(asked("GET /volumes HTTP/1.0\r\n"), Some(Question::Volumes));
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

    /// The answer to a request for this path, where no ZooKeeper runs.
    fn get(path: &str) -> String {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let zookeeper = free.local_addr().unwrap().port();
        drop(free);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let volumes = Volumes {
            data: std::env::temp_dir(),
            datalog: "/nonexistent".into(),
        };
        let member = Member { zookeeper, volumes };
        thread::spawn(move || accept(&listener, &member));
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_server_that_is_not_there_makes_the_probe_fail_with_a_reason() {
        let text = get("/ready");
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        assert!(text.contains("cannot connect"), "{text}");
    }

    #[test]
    fn the_volumes_are_reported_whether_the_server_runs_or_not() {
        let text = get("/volumes");
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        assert!(text.contains(r#""database":false"#), "{text}");
    }
}
