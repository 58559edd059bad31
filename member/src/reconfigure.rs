//! The request for another list of servers, to this member's own server on the loopback interface.
//!
//! Only a super user may change the list (`PrepRequestProcessor`, the ACL of `/zookeeper/config`). The member's server takes one
//! whose password only this program knows. Of ZooKeeper's protocol that takes a session, the authentication, the request, and
//! the session's end (`zookeeper.jute`).

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustls::Stream;

use crate::control::identity::Files;
use crate::taken_up;
use crate::timed::Timed;

/// How long the whole exchange may take. Without a majority of both lists it would take until the session ends.
const PATIENCE: Duration = Duration::from_secs(4);
/// The session's timeout in milliseconds; the server takes at least two ticks.
const SESSION: i32 = 4000;
/// The longest answer: a list, and what is known of its znode.
const LONGEST_ANSWER: usize = 64 * 1024;

/// The member's own server.
pub(crate) struct Server {
    /// Its port on the loopback interface.
    pub(crate) port: u16,
    /// Where it speaks TLS on that port: the certificate that it presents, and what this program presents to it, with the
    /// key. A server that asks clients who they are takes no other request (`AuthenticationHelper.enforceAuthentication`).
    pub(crate) tls: Option<Files>,
}

impl Server {
    /// A server that answers everybody on this port.
    pub(crate) fn plaintext(port: u16) -> Self {
        Self { port, tls: None }
    }
}

/// `xid` of authentication (`ClientCnxn.AUTHPACKET_XID`).
const AUTHENTICATION: i32 = -4;
/// `OpCode.auth`.
const AUTH: i32 = 100;
/// `OpCode.reconfig`.
const RECONFIG: i32 = 16;
/// `OpCode.closeSession`.
const CLOSE: i32 = -11;

/// Asks the server for the list of these lines, if that of the ensemble has this version.
///
/// # Errors
/// What the server answers, or that it does not: the list may have changed all the same.
pub(crate) fn ask(
    server: &Server,
    password: &str,
    lines: &str,
    version: i64,
) -> std::result::Result<(), String> {
    connect(server, password, lines, version).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("the server did not answer within {PATIENCE:?}")
        }
        ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        _ => error.to_string(),
    })
}

fn connect(server: &Server, password: &str, lines: &str, version: i64) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port));
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    let mut socket = Timed {
        stream: &stream,
        until: Instant::now() + PATIENCE,
    };
    let Some([expected, certificate, key]) = &server.tls else {
        return exchange(&mut Channel(socket), password, lines, version);
    };
    let (mut tls, shown) = taken_up::shake_hands(&mut socket, address.ip(), [certificate, key])?;
    // Only the server itself may learn the password.
    if !shown.presents(expected)? {
        return Err(Error::other(format!(
            "what answers on port {} does not present the server's certificate",
            server.port
        )));
    }
    let tls = Stream::new(&mut tls, &mut socket);
    exchange(&mut Channel(tls), password, lines, version)
}

fn exchange<S: Read + Write>(
    server: &mut Channel<S>,
    password: &str,
    lines: &str,
    version: i64,
) -> Result<()> {
    let mut connect = Message::default();
    connect
        .int(0)
        .long(0)
        .int(SESSION)
        .long(0)
        .bytes(&[0; 16])
        .byte(0);
    server.send(&connect)?;
    server.answer()?;
    let mut auth = Message::default();
    let user = format!("super:{password}");
    auth.int(AUTHENTICATION).int(AUTH);
    auth.int(0).bytes(b"digest").bytes(user.as_bytes());
    server.send(&auth)?;
    server.expect(AUTHENTICATION)?;
    let mut reconfig = Message::default();
    let list: Vec<&str> = lines.lines().collect();
    reconfig.int(1).int(RECONFIG);
    // Neither servers that join nor servers that leave: the whole list.
    reconfig.nothing().nothing();
    reconfig.bytes(list.join(",").as_bytes()).long(version);
    server.send(&reconfig)?;
    server.expect(1)?;
    let mut close = Message::default();
    close.int(2).int(CLOSE);
    // The list has changed, whatever becomes of the session.
    let _ = server.send(&close).and_then(|()| server.expect(2));
    Ok(())
}

/// A request, in jute's encoding.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// A buffer, or a string.
    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.int(i32::try_from(value.len()).unwrap_or(i32::MAX));
        self.0.extend(value);
        self
    }

    /// A string that is not there.
    fn nothing(&mut self) -> &mut Self {
        self.int(-1)
    }
}

/// A connection with a server.
struct Channel<S>(S);

impl<S: Read + Write> Channel<S> {
    fn send(&mut self, message: &Message) -> Result<()> {
        let mut framed = Message::default();
        framed.bytes(&message.0);
        self.0.write_all(&framed.0)?;
        self.0.flush()
    }

    fn answer(&mut self) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > LONGEST_ANSWER {
            return Err(Error::other(format!("the server answers {length} bytes")));
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer)?;
        Ok(answer)
    }

    /// The answer to this request. Its header has the request's number, a zxid, and the number of an error.
    fn expect(&mut self, xid: i32) -> Result<()> {
        let answer = self.answer()?;
        let number = |at: usize| {
            let bytes = answer.get(at..at + 4)?;
            Some(i32::from_be_bytes(bytes.try_into().ok()?))
        };
        match (number(0), number(12)) {
            (Some(of), Some(0)) if of == xid => Ok(()),
            (Some(of), Some(code)) if of == xid => {
                Err(Error::other(format!("the server answers {}", name(code))))
            }
            _ => Err(Error::other("the server's answer makes no sense")),
        }
    }
}

/// The name of an error (`KeeperException.Code`).
fn name(code: i32) -> String {
    let name = match code {
        -4 => "ConnectionLoss",
        -5 => "MarshallingError",
        -6 => "Unimplemented",
        -7 => "OperationTimeout",
        -8 => "BadArguments",
        -13 => "NewConfigNoQuorum: too few servers of the new list follow the leader",
        -14 => "ReconfigInProgress: another list is on its way",
        -102 => "NoAuth",
        -103 => "BadVersion: the list has changed meanwhile",
        -112 => "SessionExpired",
        -115 => "AuthFailed",
        -123 => "ReconfigDisabled",
        _ => return format!("the error {code}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use rcgen::{CertificateParams, KeyPair};
    use rustls::ServerConnection;

    use super::*;
    use crate::control::identity;

    const LINES: &str = "server.1=a:2888:3888:participant\nserver.2=b:2888:3888:participant\n";

    /// The header of an answer to this request, with this error.
    fn header(xid: i32, error: i32) -> Vec<u8> {
        let mut message = Message::default();
        message.int(xid).long(7).int(error);
        message.0
    }

    /// The requests that get these answers.
    fn serve(stream: impl Read + Write, answers: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut channel = Channel(stream);
        let mut requests = Vec::new();
        for answer in answers {
            let Ok(request) = channel.answer() else { break };
            requests.push(request);
            channel.send(&Message(answer)).unwrap();
        }
        requests
    }

    /// What is asked of a server that answers so, and the outcome.
    fn asked(answers: Vec<Vec<u8>>) -> (Vec<Vec<u8>>, std::result::Result<(), String>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || serve(listener.accept().unwrap().0, answers));
        let outcome = ask(&Server::plaintext(port), "secret", LINES, 0x1_0000_0002);
        (server.join().unwrap(), outcome)
    }

    /// A certificate that signed itself, twice: as authority and as certificate. And its key.
    fn signed() -> Files {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["own".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().pem().into_bytes();
        let key = key.serialize_pem().into_bytes();
        [certificate.clone(), certificate, key]
    }

    /// As [`asked`], over TLS, of a server with the first certificate that trusts the second one's; `expected` is what it
    /// has to present.
    fn asked_over_tls(
        server: Files,
        own: Files,
        expected: Vec<u8>,
    ) -> (Vec<Vec<u8>>, std::result::Result<(), String>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let [authority, certificate, key] = own;
        let [_, presented, its_key] = server;
        let config = identity::configure(&[authority, presented, its_key]).unwrap();
        let answers = vec![vec![0; 37], header(-4, 0), header(1, 0), header(2, 0)];
        let server = thread::spawn(move || {
            let mut connection = ServerConnection::new(config).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            serve(Stream::new(&mut connection, &mut stream), answers)
        });
        let tls = Some([expected, certificate, key]);
        let outcome = ask(&Server { port, tls }, "secret", LINES, 0x1_0000_0002);
        (server.join().unwrap(), outcome)
    }

    #[test]
    fn a_server_that_asks_who_clients_are_is_shown_a_certificate() {
        let server = signed();
        let expected = server[1].clone();
        let (requests, outcome) = asked_over_tls(server, signed(), expected);
        assert_eq!(outcome, Ok(()));
        assert_eq!(requests.len(), 4);
    }

    #[test]
    fn the_password_is_sent_to_no_other_server() {
        let (requests, outcome) = asked_over_tls(signed(), signed(), signed()[1].clone());
        let why = outcome.unwrap_err();
        assert!(
            why.contains("does not present the server's certificate"),
            "{why}"
        );
        assert_eq!(requests, Vec::<Vec<u8>>::new());
    }

    #[test]
    fn the_whole_list_is_asked_for_on_condition_of_a_version() {
        let answers = vec![vec![0; 37], header(-4, 0), header(1, 0), header(2, 0)];
        let (requests, outcome) = asked(answers);
        assert_eq!(outcome, Ok(()));
        let contains =
            |request: &[u8], part: &[u8]| request.windows(part.len()).any(|bytes| bytes == part);
        assert!(contains(&requests[1], b"digest"));
        assert!(contains(&requests[1], b"super:secret"));
        let list = b"server.1=a:2888:3888:participant,server.2=b:2888:3888:participant";
        let mut expected = Message::default();
        expected.int(1).int(16).int(-1).int(-1).bytes(list);
        expected.long(0x1_0000_0002);
        assert_eq!(requests[2], expected.0);
    }

    #[test]
    fn what_the_server_refuses_is_told_by_its_name() {
        for (code, name) in [
            (-13, "NewConfigNoQuorum"),
            (-103, "BadVersion"),
            (-1, "error -1"),
        ] {
            let (_, outcome) = asked(vec![vec![0; 37], header(-4, 0), header(1, code)]);
            let why = outcome.unwrap_err();
            assert!(why.contains(name), "{why}");
        }
        let (_, outcome) = asked(vec![vec![0; 37], header(-4, -115)]);
        assert!(outcome.unwrap_err().contains("AuthFailed"));
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_an_error() {
        for answer in [vec![], vec![0; 15], header(9, 0)] {
            let (_, outcome) = asked(vec![vec![0; 37], answer]);
            assert!(outcome.unwrap_err().contains("makes no sense"));
        }
        let (_, outcome) = asked(vec![vec![0; 37]]);
        outcome.unwrap_err();
    }
}
