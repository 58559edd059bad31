//! Who is connected to a server and who watches what, by the server's own lists.
//!
//! Many elections carry no identity at all; only the session tells candidates apart. The server
//! knows from where a session is connected and which sessions watch a path. Its AdminServer tells as JSON
//! (`Commands.ConsCommand`, `Commands.WatchesByPathCommand`), which the member program hands on. Members of an earlier
//! operator version are asked by four-letter words (`cons`, `ServerCnxn.dumpConnectionInfo`; `wchp`,
//! `WatchManager.dumpWatches`).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

/// The session timeout that mirrors ask for, in milliseconds.
///
/// The odd number marks the sessions of mirrors in the lists of connections: each replica of the operator has
/// one, and they are not candidates that wait until the leader's node disappears.
pub const MIRROR_SESSION_TIMEOUT: u32 = 6007;

/// A client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its session.
    pub session: i64,
    /// From where it is connected.
    pub address: IpAddr,
    /// Whether it is a mirror's.
    pub is_mirror: bool,
}

/// Reads the answer to `cons`. Lines that do not fit, and connections without a session, are left
/// out.
pub fn parse_connections(answer: &str) -> Vec<Connection> {
    answer.lines().filter_map(connection).collect()
}

/// ` /10.0.0.5:40122[1](queued=0,...,sid=0x10003f2a1b0004,...,to=6000,...)`
fn connection(line: &str) -> Option<Connection> {
    let (peer, rest) = line
        .trim()
        .strip_prefix('/')?
        .split_once('[')
        .filter(|(p, _)| !p.is_empty())
        // An address of IPv6 may be in brackets itself.
        .or_else(|| {
            line.trim()
                .strip_prefix('/')?
                .split_once("]:")
                .and_then(|(p, rest)| Some((p, rest.split_once('[')?.1)))
        })?;
    let facts = rest.split_once('(')?.1;
    let fact = |key: &str| {
        facts
            .split([',', ')'])
            .find_map(|f| f.strip_prefix(key)?.strip_prefix('='))
    };
    let session = i64_of(fact("sid")?)?;
    Some(Connection {
        session,
        address: address(peer)?,
        is_mirror: fact("to").is_some_and(|to| to.parse() == Ok(MIRROR_SESSION_TIMEOUT)),
    })
}

/// The address in what Java prints of a socket's: `10.0.0.5:40122`, `[::1` of `[::1]:40122`, and in
/// older releases `0:0:0:0:0:0:0:1:40122`.
fn address(peer: &str) -> Option<IpAddr> {
    if let Ok(socket) = peer.parse::<SocketAddr>() {
        return Some(socket.ip());
    }
    let bare = peer
        .strip_prefix('[')
        .or_else(|| peer.rsplit_once(':').map(|(a, _)| a))?;
    let without_zone = bare.split('%').next()?;
    without_zone.parse().ok()
}

/// A session id as servers print it: the hexadecimal digits of an unsigned number after `0x`.
fn i64_of(text: &str) -> Option<i64> {
    let digits = text.strip_prefix("0x")?;
    u64::from_str_radix(digits, 16).ok().map(u64::cast_signed)
}

/// The list of connections of an AdminServer: those with a session, in plaintext and over TLS.
///
/// # Errors
/// When the text is no such list.
pub fn listed_connections(text: &str) -> Result<Vec<Connection>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Listed {
        #[serde(default)]
        remote_socket_address: String,
        session_id: Option<i64>,
        session_timeout: Option<u32>,
    }
    #[derive(Deserialize)]
    struct Lists {
        connections: Vec<Listed>,
        #[serde(default)]
        secure_connections: Vec<Listed>,
    }
    let Lists {
        connections,
        secure_connections,
    } = serde_json::from_str(text)?;
    let all = connections.into_iter().chain(secure_connections);
    let known = all.filter_map(|listed| {
        let peer = &listed.remote_socket_address;
        // Java prints a name that it knows before the address.
        let peer = peer.rsplit_once('/').map_or(&**peer, |(_, peer)| peer);
        Some(Connection {
            session: listed.session_id.filter(|session| *session != 0)?,
            address: address(peer)?,
            is_mirror: listed.session_timeout == Some(MIRROR_SESSION_TIMEOUT),
        })
    });
    Ok(known.collect())
}

/// The list of watches of an AdminServer: the sessions that watch each path.
///
/// # Errors
/// When the text is no such list.
pub fn listed_watchers(text: &str) -> Result<HashMap<String, Vec<i64>>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Lists {
        path_to_session_ids: HashMap<String, Vec<i64>>,
    }
    let lists: Lists = serde_json::from_str(text)?;
    Ok(lists.path_to_session_ids)
}

/// Reads the answer to `wchp`: the sessions that watch each path.
pub fn parse_watchers(answer: &str) -> HashMap<String, Vec<i64>> {
    let mut watchers: HashMap<String, Vec<i64>> = HashMap::new();
    let mut path = None;
    for line in answer.lines() {
        if line.starts_with('/') {
            path = Some(line);
        } else if let (Some(path), Some(session)) = (path, i64_of(line.trim())) {
            watchers.entry(path.to_owned()).or_default().push(session);
        }
    }
    watchers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn connections_are_read_as_servers_print_them() {
        let answer = " /10.0.0.5:40122[1](queued=0,recved=12,sent=12,sid=0x10003f2a1b0004,lop=PING,est=1,to=6000,lcxid=0x1)\n \
             /10.0.0.6:40123[1](queued=0,recved=12,sent=12,sid=0xffffffffffffffff,lop=PING,est=1,to=6007)\n \
             /10.0.0.7:40124[0](queued=0,recved=1,sent=0)\n \
             /[0:0:0:0:0:0:0:1]:5[1](queued=0,sid=0x1)\n \
             /0:0:0:0:0:0:0:2:5[1](queued=0,sid=0x2)\n\n";
        let told: Vec<_> = parse_connections(answer)
            .into_iter()
            .map(|c| (c.session, c.address.to_string(), c.is_mirror))
            .collect();
        let expected = [
            (0x0010_003f_2a1b_0004, "10.0.0.5", false),
            (-1, "10.0.0.6", true),
            (1, "::1", false),
            (2, "::2", false),
        ];
        assert_eq!(told, expected.map(|(s, a, m)| (s, a.to_owned(), m)));
        assert!(
            parse_connections("cons is not executed because it is not in the whitelist.")
                .is_empty()
        );
    }

    #[test]
    fn watchers_are_read_as_servers_print_them() {
        let answer = "/app/leader\n\t0x10\n\t0x11\n/other\n\t0x12\n";
        let watchers = parse_watchers(answer);
        assert_eq!(watchers["/app/leader"], [0x10, 0x11]);
        assert_eq!(watchers["/other"], [0x12]);
        assert!(
            parse_watchers("wchp is not executed because it is not in the whitelist.").is_empty()
        );
    }

    #[test]
    fn an_admin_server_lists_connections_of_both_ports_and_watches() {
        let listed = |address: &str, session: &str| {
            format!(
                r#"{{ "remote_socket_address": "{address}", "last_operation": "GETC", {session}"packets_sent": 2 }}"#
            )
        };
        let text = format!(
            r#"{{ "connections": [{}, {}, {}], "secure_connections": [{}], "command": "connections", "error": null }}"#,
            listed(
                "10.0.0.5:40122",
                r#""session_id": 4500, "session_timeout": 6000, "#
            ),
            listed(
                "client.example/10.0.0.6:1",
                r#""session_id": -1, "session_timeout": 6007, "#
            ),
            listed("10.0.0.7:40124", ""),
            listed("[0:0:0:0:0:0:0:1]:5", r#""session_id": 1, "#),
        );
        let told = listed_connections(&text).unwrap();
        let told = told
            .into_iter()
            .map(|c| (c.session, c.address.to_string(), c.is_mirror));
        let expected = [
            (4500, "10.0.0.5", false),
            (-1, "10.0.0.6", true),
            (1, "::1", false),
        ];
        assert_eq!(
            told.collect::<Vec<_>>(),
            expected.map(|(s, a, m)| (s, a.to_owned(), m))
        );
        let text = r#"{ "path_to_session_ids": { "/a b": [7, -1] }, "error": null }"#;
        assert_eq!(listed_watchers(text).unwrap()["/a b"], [7, -1]);
        // A server that takes part in no quorum.
        let text = r#"{ "error": "This ZooKeeper instance is not currently serving requests" }"#;
        assert!(listed_connections(text).is_err() && listed_watchers(text).is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s)[ /\\[\\]():,=0-9a-fsidto\n\t\\PC]{0,200}") {
            parse_connections(&text);
            parse_watchers(&text);
        }
    }
}
