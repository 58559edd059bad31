use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::frames::{LISTS, Progress, RENEWAL, answers};
use super::*;

/// Limits with which a test need not wait.
fn limits() -> Limits {
    Limits {
        frame: 64 * 1024,
        left_out: 0,
        frame_patience: Duration::from_millis(200),
        answer_patience: Duration::from_millis(200),
        connect_patience: Duration::from_secs(5),
    }
}

/// A server that takes one connection, grants a session, and then does as it likes.
pub(in crate::election) async fn server<F>(
    does: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> String
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        frame(&mut stream).await?;
        stream.write_all(&grant(40_000)).await?;
        does(stream).await
    });
    address
}

pub(in crate::election) async fn frame(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Vec<u8>> {
    let length = usize::try_from(stream.read_i32().await?).unwrap();
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

pub(in crate::election) fn framed(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    [&length.to_be_bytes(), body].concat()
}

/// The answer to the request for a session.
pub(in crate::election) fn grant(timeout: i32) -> Vec<u8> {
    let mut body = 0_i32.to_be_bytes().to_vec();
    body.extend(timeout.to_be_bytes());
    body.extend(7_i64.to_be_bytes());
    body.extend(16_i32.to_be_bytes());
    body.extend([1; 16]);
    body.push(0);
    framed(&body)
}

/// An answer without a body to the request of this number, or an event.
fn answer(xid: i32) -> Vec<u8> {
    framed(&[&xid.to_be_bytes()[..], &[0; 12]].concat())
}

fn request(xid: i32) -> Vec<u8> {
    framed(&[&xid.to_be_bytes()[..], &[0; 4]].concat())
}

/// A client that has a session.
async fn client(relay: &Relay) -> TcpStream {
    let mut client = TcpStream::connect(relay.address()).await.unwrap();
    client.write_all(&framed(&[0; 45])).await.unwrap();
    client
}

/// All that a client is passed until its connection ends.
async fn rest(mut client: TcpStream) -> usize {
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest).await;
    rest.len()
}

#[tokio::test]
async fn a_frame_above_the_limit_is_not_taken() {
    for announced in [64 * 1024 + 1, i32::MAX, -1] {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = sent.clone();
        let address = server(move |mut stream: TcpStream| async move {
            stream.write_i32(announced).await?;
            loop {
                stream.write_all(&[0; 4096]).await?;
                counted.fetch_add(4096, Ordering::Relaxed);
            }
        });
        let relay = Relay::open(&address.await, None, limits(), Strangers::Told)
            .await
            .unwrap();
        let passed = rest(client(&relay).await).await;
        assert_eq!(passed, grant(0).len(), "nothing of the frame is passed on");
        let complaint = relay.complaint().await;
        assert!(complaint.contains(&format!("announces an answer of {announced} bytes")));
        // What the sockets buffer, and no more: the connection is closed.
        assert!(sent.load(Ordering::Relaxed) < 16 * 1024 * 1024);
    }
}

/// The list of an election with names that grow without bound does not end the connection that others use.
#[tokio::test]
async fn an_answer_that_is_too_long_is_left_out_and_the_next_one_passes() {
    let address = server(|mut stream: TcpStream| async move {
        for length in [1024 * 1024, 0] {
            let request = frame(&mut stream).await?;
            let answer = [&request[..4], &[0; 12], &vec![1; length][..]].concat();
            stream.write_all(&framed(&answer)).await?;
        }
        frame(&mut stream).await.map(drop)
    });
    let limits = Limits {
        left_out: 2 * 1024 * 1024,
        ..limits()
    };
    let relay = Relay::open(&address.await, None, limits, Strangers::Told)
        .await
        .unwrap();
    let mut client = client(&relay).await;
    frame(&mut client).await.unwrap();
    for (xid, error) in [(5, -5), (6, 0)] {
        client.write_all(&request(xid)).await.unwrap();
        let expected = [xid.to_be_bytes(), [0; 4], [0; 4], i32::to_be_bytes(error)].concat();
        assert_eq!(frame(&mut client).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_grant_of_any_size_is_not_taken_and_its_timeout_is_bounded() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let relay = Relay::open(&address, None, limits(), Strangers::Told)
        .await
        .unwrap();
    for (granted, bounded) in [
        (0, 1_000),
        (i32::MIN, 1_000),
        (5_000, 5_000),
        (i32::MAX, 60_000),
    ] {
        let mut client = client(&relay).await;
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&grant(granted)).await.unwrap();
        assert_eq!(framed(&frame(&mut client).await.unwrap()), grant(bounded));
    }
    let client = client(&relay).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.write_i32(1024).await.unwrap();
    assert_eq!(rest(client).await, 0);
    assert!(
        relay
            .complaint()
            .await
            .contains("announces an answer of 1024 bytes")
    );
}

#[tokio::test]
async fn an_answer_that_drips_is_not_waited_for() {
    let address = server(|mut stream: TcpStream| async move {
        stream.write_i32(1000).await?;
        loop {
            stream.write_u8(0).await?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let relay = Relay::open(&address.await, None, limits(), Strangers::Told)
        .await
        .unwrap();
    let passed = rest(client(&relay).await).await;
    assert!(passed < grant(0).len() + 1004);
    assert!(relay.complaint().await.contains("does not finish it"));
}

#[tokio::test]
async fn a_server_that_answers_pings_only_is_not_waited_for() {
    let address = server(|mut stream: TcpStream| async move {
        frame(&mut stream).await?;
        loop {
            stream.write_all(&answer(-2)).await?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let relay = Relay::open(&address.await, None, limits(), Strangers::Told)
        .await
        .unwrap();
    let mut client = client(&relay).await;
    client.write_all(&request(1)).await.unwrap();
    rest(client).await;
    assert!(relay.complaint().await.contains("does not answer requests"));
}

#[tokio::test]
async fn nothing_is_taken_from_a_server_that_does_not_take_what_was_sent() {
    let progress = watch::Sender::new(Progress::new());
    progress.send_modify(|progress| progress.sending = true);
    let (mut server, from_server) = tokio::io::duplex(1024);
    let (to_client, mut client) = tokio::io::duplex(1024);
    let shared = progress.clone();
    let passing = tokio::spawn(async move {
        let _ = answers(from_server, to_client, &shared, limits()).await;
    });
    server.write_all(&grant(5_000)).await.unwrap();
    server.write_all(&answer(-1)).await.unwrap();
    let nothing = timeout(Duration::from_millis(100), client.read_u8()).await;
    assert!(nothing.is_err(), "an answer was passed on");
    progress.send_modify(|progress| progress.sending = false);
    assert_eq!(framed(&frame(&mut client).await.unwrap()), grant(5_000));
    assert_eq!(framed(&frame(&mut client).await.unwrap()), answer(-1));
    passing.abort();
}

#[tokio::test]
async fn a_server_that_takes_nothing_is_left() {
    let address = server(|mut stream: TcpStream| async move {
        loop {
            stream.write_all(&answer(-1)).await?;
        }
    });
    let relay = Relay::open(&address.await, None, limits(), Strangers::Told)
        .await
        .unwrap();
    let mut client = client(&relay).await;
    // More than the sockets hold.
    let much = framed(&[9; 64 * 1024 * 1024]);
    assert!(client.write_all(&much).await.is_err());
    assert!(relay.complaint().await.contains("does not answer requests"));
}

#[tokio::test]
async fn what_keeps_the_limits_is_passed_on_unchanged() {
    let most = limits().frame;
    let address = server(move |mut stream: TcpStream| async move {
        for _ in 0..20 {
            let request = frame(&mut stream).await?;
            let mut body = request[..4].to_vec();
            body.resize(most, 5);
            tokio::time::sleep(Duration::from_millis(20)).await;
            stream.write_all(&framed(&body)).await?;
        }
        stream.shutdown().await
    });
    let within = format!("{}/some/where", address.await);
    let relay = Relay::open(&within, None, limits(), Strangers::Told)
        .await
        .unwrap();
    let (host, chroot) = relay.address().split_once('/').unwrap();
    assert_eq!(chroot, "some/where");
    let mut client = TcpStream::connect(host).await.unwrap();
    client.write_all(&framed(&[0; 45])).await.unwrap();
    assert_eq!(framed(&frame(&mut client).await.unwrap()), grant(40_000));
    for xid in 1..=20 {
        client.write_all(&request(xid)).await.unwrap();
        let answer = frame(&mut client).await.unwrap();
        assert_eq!((answer.len(), &answer[..4]), (most, &xid.to_be_bytes()[..]));
    }
    assert_eq!(rest(client).await, 0);
    let complaint = timeout(Duration::from_millis(1), relay.complaint());
    assert!(complaint.await.is_err());
}

/// The answer to a request for a list, which announces so many names and has so many bytes after that.
fn list(xid: i32, names: i32, bytes: usize) -> Vec<u8> {
    let mut body = xid.to_be_bytes().to_vec();
    body.extend([0; 12]);
    body.extend(names.to_be_bytes());
    body.resize(body.len() + bytes, 0);
    framed(&body)
}

#[tokio::test]
async fn a_list_that_does_not_fit_into_its_answer_is_not_passed_on() {
    for operation in LISTS {
        for (names, bytes, fits) in [
            (i32::MAX, 0, false),
            (1_000_000, 1000, false),
            (3, 11, false),
            (3, 12, true),
            (0, 0, true),
            (-1, 0, true),
        ] {
            let address = server(move |mut stream: TcpStream| async move {
                let request = frame(&mut stream).await?;
                assert_eq!(request[4..8], operation.to_be_bytes());
                stream.write_all(&list(9, names, bytes)).await?;
                // The server goes when the relay does.
                frame(&mut stream).await.map(drop)
            });
            let address = address.await;
            let relay = Relay::open(&address, None, limits(), Strangers::Told);
            let relay = relay.await.unwrap();
            let mut client = client(&relay).await;
            frame(&mut client).await.unwrap();
            let request = [9_i32.to_be_bytes(), operation.to_be_bytes()].concat();
            client.write_all(&framed(&request)).await.unwrap();
            if fits {
                let passed = framed(&frame(&mut client).await.unwrap());
                assert_eq!(passed, list(9, names, bytes));
            } else {
                let rest = timeout(Duration::from_secs(5), rest(client)).await;
                assert_eq!(rest, Ok(0), "{names} names in {bytes} bytes");
                let complaint = relay.complaint().await;
                assert!(
                    complaint.contains(&format!("announces {names} names")),
                    "{complaint}"
                );
            }
        }
    }
}

#[tokio::test]
async fn what_grants_no_session_is_told_to_the_log_only() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for (strangers, told) in [(Strangers::Told, true), (Strangers::NotTold, false)] {
        let relay = Relay::open(&address, None, limits(), strangers)
            .await
            .unwrap();
        let client = client(&relay).await;
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await.unwrap();
        assert_eq!(rest(client).await, 0);
        let complaint = timeout(Duration::from_millis(100), relay.complaint());
        assert_eq!(complaint.await.is_ok(), told);
        assert_eq!(relay.trouble().is_some(), !told);
    }
    // Nor is a port where something listens and says nothing.
    let relay = Relay::open(&address, None, limits(), Strangers::NotTold);
    let relay = relay.await.unwrap();
    let client = client(&relay).await;
    let _silent = listener.accept().await.unwrap();
    assert_eq!(rest(client).await, 0);
    let complaint = timeout(Duration::from_millis(100), relay.complaint());
    assert!(complaint.await.is_err());
    assert!(
        relay
            .trouble()
            .unwrap()
            .contains("does not answer requests")
    );
}

#[tokio::test]
async fn a_foreign_name_does_not_lead_to_the_operators_own_machine() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for (host, strangers, leads) in [
        ("localhost", Strangers::NotTold, false),
        ("localhost", Strangers::Told, true),
        // The administrator allowed this very address.
        ("127.0.0.1", Strangers::NotTold, true),
    ] {
        let address = format!("{host}:{port}");
        let relay = Relay::open(&address, None, limits(), strangers)
            .await
            .unwrap();
        let _client = client(&relay).await;
        let connected = timeout(Duration::from_millis(500), listener.accept()).await;
        assert_eq!(connected.is_ok(), leads, "{host}");
        if !leads {
            assert!(
                relay
                    .trouble()
                    .unwrap()
                    .contains("no address that may be connected to")
            );
        }
    }
}

#[tokio::test]
async fn watches_that_are_set_again_are_answered_once_and_not_passed_on() {
    let (seen, mut numbers) = tokio::sync::mpsc::unbounded_channel();
    let address = server(|mut stream: TcpStream| async move {
        loop {
            let request = frame(&mut stream).await?;
            let [a, b, c, d] = request[..4] else { continue };
            let xid = i32::from_be_bytes([a, b, c, d]);
            let _ = seen.send(xid);
            stream.write_all(&answer(xid)).await?;
        }
    });
    let relay = Relay::open(&address.await, None, limits(), Strangers::Told)
        .await
        .unwrap();
    let mut client = client(&relay).await;
    frame(&mut client).await.unwrap();
    let renewal = framed(&[&RENEWAL.to_be_bytes()[..], &[7; 100_000]].concat());
    for request in [&renewal, &renewal, &request(-2), &request(1)] {
        client.write_all(request).await.unwrap();
    }
    for expected in [RENEWAL, -2, 1] {
        assert_eq!(framed(&frame(&mut client).await.unwrap()), answer(expected));
    }
    assert_eq!(
        (numbers.recv().await, numbers.recv().await),
        (Some(-2), Some(1))
    );
}

/// The library's client keeps its session through a reconnect, with more watches than it sets again in one request.
#[tokio::test]
async fn a_session_with_many_watches_survives_a_reconnect() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        for connection in 0.. {
            let (mut stream, _) = listener.accept().await?;
            frame(&mut stream).await?;
            stream.write_all(&grant(40_000)).await?;
            // A node without data and its stat; anything else has no body.
            for _ in 0..if connection == 0 { 20 } else { 1000 } {
                let request = frame(&mut stream).await?;
                let is_read = request[4..8] == 4_i32.to_be_bytes();
                let body = [0; 4 + 68];
                let body = &body[..if is_read { body.len() } else { 0 }];
                let answer = [&request[..4], &[0; 12], body].concat();
                stream.write_all(&framed(&answer)).await?;
            }
        }
        io::Result::Ok(())
    });
    let long = Limits {
        answer_patience: Duration::from_secs(10),
        ..Limits::default()
    };
    let relay = Relay::open(&address, None, long, Strangers::Told);
    let relay = relay.await.unwrap();
    let client = zookeeper_client::Client::connect(relay.address())
        .await
        .unwrap();
    let session = client.session_id();
    let mut watches = Vec::new();
    let mut states = client.state_watcher();
    for number in 0..20 {
        let path = format!("/{}-{number}", "x".repeat(20_000));
        let Ok((_, _, watch)) = client.get_and_watch_data(&path).await else {
            break;
        };
        watches.push(watch);
    }
    assert!(watches.len() > 10);
    let again = async {
        while states.changed().await != zookeeper_client::SessionState::SyncConnected {}
        client.check_stat("/").await.unwrap();
    };
    timeout(Duration::from_secs(10), again).await.unwrap();
    assert_eq!(client.session_id(), session);
}
