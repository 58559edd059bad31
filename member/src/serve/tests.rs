//! Many clients, honest and hostile ones, on the loopback interface.

use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind as bind_socket, connect, socket};

use super::clients::{MOST, PATIENCE};
use super::*;

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const ANOTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SERVING: &[u8] = b"Zookeeper version: 3.9.5\nMode: follower\n";

#[test]
fn only_requests_for_a_path_are_understood() {
    for (line, path) in [
        ("GET /ready?x=1 HTTP/1.1\r\n", Some("/ready")),
        ("HEAD /live HTTP/1.1\r\n", Some("/live")),
        ("", None),
        ("GET", None),
        ("POST /ready HTTP/1.1", None),
        ("\u{0}\u{7f} /ready", None),
    ] {
        assert_eq!(http::path(line.as_bytes()), path, "{line:?}");
    }
    assert_eq!(http::path(b"GET /\xff"), None);
    let (text, _) = get(serve_about(nobody()), "/volumes").unwrap();
    assert!(text.starts_with("HTTP/1.1 404 "), "{text}");
}

/// A port that no server listens on.
fn nobody() -> u16 {
    let free = TcpListener::bind((HERE, 0)).unwrap();
    free.local_addr().unwrap().port()
}

/// The program, for the ZooKeeper server on this port.
fn serve_about(zookeeper: u16) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (stop, other) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let server = Server::new(listener, zookeeper).unwrap();
        let _keep = other;
        server.run(&stop)
    });
    port
}

/// A ZooKeeper server that answers each question after this time, and how often it was asked.
fn zookeeper(after: Duration) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || {
                let mut word = [0; 4];
                stream.read_exact(&mut word).unwrap();
                thread::sleep(after);
                let _ = stream.write_all(SERVING);
            });
        }
    });
    (port, asked)
}

/// A connection from this address of the loopback interface.
fn connect_from(from: Ipv4Addr, port: u16) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind_socket(&socket, &SocketAddr::from((from, 0))).unwrap();
    connect(&socket, &SocketAddr::from((HERE, port))).unwrap();
    TcpStream::from(socket)
}

/// The answer to a request for this path, and how long it took; at most as long as the kubelet waits.
fn get(port: u16, path: &str) -> std::io::Result<(String, Duration)> {
    let since = Instant::now();
    let mut stream = TcpStream::connect((HERE, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: zk-0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok((text, since.elapsed()))
}

/// Whether the other side has closed the connection.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(n) => n == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn a_server_that_is_not_there_makes_the_probe_fail_with_a_reason() {
    let (text, _) = get(serve_about(nobody()), "/ready").unwrap();
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    assert!(text.contains("cannot connect"), "{text}");
}

#[test]
fn the_liveness_probe_of_an_earlier_version_never_fails() {
    let (text, _) = get(serve_about(nobody()), "/live").unwrap();
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}

#[test]
fn a_request_that_arrives_in_pieces_is_answered() {
    let mut stream = TcpStream::connect((HERE, serve_about(nobody()))).unwrap();
    for piece in ["GET /rea", "dy HTTP/1.1\r\nHo", "st: zk-0\r\n", "\r\nmore"] {
        stream.write_all(piece.as_bytes()).unwrap();
        thread::yield_now();
    }
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 503");
    // A client that shuts down its sending side has sent its whole request.
    let mut stream = TcpStream::connect((HERE, serve_about(nobody()))).unwrap();
    stream.write_all(b"GET /live HTTP/1.0\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}

/// 200 connections of another address that send a byte now and then, and come again when they are
/// dropped, until the flag is set. Returns how many are open in the end.
fn drip(port: u16, stop: &AtomicBool, ready: impl Fn()) -> usize {
    let open = || connect_from(ANOTHER, port);
    let mut all: Vec<TcpStream> = (0..200).map(|_| open()).collect();
    ready();
    while !stop.load(Ordering::SeqCst) {
        for stream in &mut all {
            if is_closed(stream) || stream.write_all(b"G").is_err() {
                *stream = open();
            }
        }
    }
    all.iter().filter(|stream| !is_closed(stream)).count()
}

#[test]
fn an_honest_probe_is_answered_while_200_clients_of_another_address_drip() {
    let (zookeeper, _) = zookeeper(Duration::ZERO);
    let port = serve_about(zookeeper);
    let stop = Arc::new(AtomicBool::new(false));
    let (ready, is_ready) = sync_channel(0);
    let dripping = {
        let stop = stop.clone();
        thread::spawn(move || drip(port, &stop, || ready.send(()).unwrap()))
    };
    is_ready.recv().unwrap();
    for _ in 0..50 {
        let (text, took) = get(port, "/ready").unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        assert!(took < PATIENCE, "{took:?}");
    }
    stop.store(true, Ordering::SeqCst);
    dripping.join().unwrap();
}

#[test]
fn slow_clients_are_few_and_go_when_their_time_is_over() {
    let port = serve_about(nobody());
    let mut slow: Vec<TcpStream> = (0..200).map(|_| connect_from(ANOTHER, port)).collect();
    let since = Instant::now();
    // This client is accepted after all slow ones.
    get(port, "/live").unwrap();
    let open = slow.iter().filter(|stream| !is_closed(stream)).count();
    assert!(open <= MOST, "{open} connections are kept");
    // Few bytes, each long before a time-out of a single read.
    let last = slow.last_mut().unwrap();
    last.set_nonblocking(false).unwrap();
    last.set_read_timeout(Some(PATIENCE / 30)).unwrap();
    while last
        .read(&mut [0; 64])
        .is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
    {
        assert!(since.elapsed() < 2 * PATIENCE, "it drips for ever");
        let _ = last.write_all(b"G");
    }
}

#[test]
fn a_request_without_end_is_not_read() {
    let mut stream = TcpStream::connect((HERE, serve_about(nobody()))).unwrap();
    let since = Instant::now();
    let mut sent = 0;
    while stream.write_all(&[b'x'; 1024]).is_ok() {
        sent += 1024;
        // Long before its time is over.
        assert!(since.elapsed() < PATIENCE / 2, "{sent} bytes were read");
    }
    assert!(is_closed(&stream));
}

#[test]
fn those_who_ask_at_the_same_time_share_one_question() {
    let (zookeeper, asked) = zookeeper(Duration::from_millis(300));
    let port = serve_about(zookeeper);
    let all: Vec<_> = (0..30)
        .map(|_| thread::spawn(move || get(port, "/ready").unwrap()))
        .collect();
    for one in all {
        let (text, _) = one.join().unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    }
    let asked = asked.load(Ordering::SeqCst);
    assert!(asked < 10, "the server was asked {asked} times");
}

#[test]
fn the_address_with_most_clients_loses_its_oldest() {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut clients = Clients::default();
    let mut ours = Vec::new();
    let mut admit = |from: [u8; 4]| {
        let stream = TcpStream::connect((HERE, port)).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        clients.admit(accepted, IpAddr::from(from));
        ours.push((from, stream));
    };
    admit([10, 0, 0, 1]);
    for _ in 0..2 * MOST {
        admit([10, 0, 0, 2]);
    }
    admit([10, 0, 0, 3]);
    let kept: Vec<_> = ours.iter().filter(|(_, s)| !is_closed(s)).collect();
    assert_eq!(kept.len(), MOST);
    assert_eq!(kept.first().unwrap().0, [10, 0, 0, 1]);
    assert_eq!(kept.last().unwrap().0, [10, 0, 0, 3]);
    // The newest of the crowd stay.
    assert!(!is_closed(&ours[ours.len() - 2].1));
    assert!(is_closed(&ours[1].1));
}
