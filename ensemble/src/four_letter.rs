//! Parsers for the answers to ZooKeeper's four-letter words. No sockets here.
//!
//! A server that takes part in no quorum answers `ruok` with `imok` and everything else with "This
//! ZooKeeper instance is not currently serving requests" (`ServerCnxn`, `AbstractFourLetterCommand`).

use bellwether_api::ensemble::MemberRole;

use crate::ids::{ServerId, Voters};

/// A serving server's answer to `srvr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Its role.
    pub role: MemberRole,
    /// The last transaction that it saw.
    pub zxid: u64,
}

/// An answer that no ZooKeeper server gives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unexpected answer to {word}: {answer:?}")]
pub struct Unexpected {
    word: &'static str,
    answer: String,
}

fn unexpected(word: &'static str, answer: &str) -> Unexpected {
    Unexpected {
        word,
        answer: answer.chars().take(120).collect(),
    }
}

/// The text of a server that looks for a leader.
const NOT_SERVING: &str = "not currently serving requests";

/// Parses the answer to `srvr`; `None` when the server takes part in no quorum.
///
/// # Errors
/// When the answer has no role or no zxid.
pub fn parse_srvr(answer: &str) -> Result<Option<Serving>, Unexpected> {
    if answer.contains(NOT_SERVING) {
        return Ok(None);
    }
    let field = |name: &str| {
        answer
            .lines()
            .find_map(|l| l.strip_prefix(name))
            .map(str::trim)
    };
    let role = match field("Mode:") {
        Some("leader" | "standalone") => MemberRole::Leader,
        Some("follower") => MemberRole::Follower,
        Some("observer") => MemberRole::Observer,
        _ => return Err(unexpected("srvr", answer)),
    };
    let zxid = field("Zxid:")
        .and_then(|z| z.strip_prefix("0x"))
        .and_then(|z| u64::from_str_radix(z, 16).ok())
        .ok_or_else(|| unexpected("srvr", answer))?;
    Ok(Some(Serving { role, zxid }))
}

/// The configuration of a serving server, from its answer to `conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Its own id.
    pub id: ServerId,
    /// The participants that it judges quorums by.
    pub voters: Voters,
}

/// Parses the answer to `conf`; `None` when the server takes part in no quorum.
///
/// # Errors
/// When the answer names no server id or no participant.
pub fn parse_conf(answer: &str) -> Result<Option<Configuration>, Unexpected> {
    if answer.contains(NOT_SERVING) {
        return Ok(None);
    }
    let id = answer
        .lines()
        .find_map(|l| l.strip_prefix("serverId="))
        .and_then(|id| id.trim().parse().ok())
        .map(ServerId)
        .ok_or_else(|| unexpected("conf", answer))?;
    let voters: Voters = answer
        .lines()
        .filter_map(|l| l.trim().strip_prefix("membership:").or(Some(l.trim())))
        .filter_map(|l| l.trim().strip_prefix("server."))
        .filter_map(|l| l.split_once('='))
        .filter(|(_, address)| !address.contains(":observer"))
        .filter_map(|(id, _)| id.trim().parse().ok().map(ServerId))
        .collect();
    if voters.is_empty() {
        return Err(unexpected("conf", answer));
    }
    Ok(Some(Configuration { id, voters }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRVR: &str = "Zookeeper version: 3.9.4-7246445ec, built on 2025-08-19 19:53 UTC\n\
        Latency min/avg/max: 0/0.0/0\nReceived: 3\nSent: 2\nConnections: 1\nOutstanding: 0\n\
        Zxid: 0x200000003\nMode: follower\nNode count: 5\n";
    const CONF: &str = "clientPort=2181\nsecureClientPort=-1\ndataDir=/data/version-2\n\
        serverId=2\ninitLimit=10\nsyncLimit=5\nelectionAlg=3\nelectionPort=3888\n\
        quorumPort=2888\npeerType=0\nmembership: \n\
        server.1=zk-0.zk-members.ns.svc.cluster.local:2888:3888:participant\n\
        server.2=zk-1.zk-members.ns.svc.cluster.local:2888:3888:participant\n\
        server.101=zk-o.zk-members.ns.svc.cluster.local:2888:3888:observer\nversion=0";
    const LOOKING: &str = "This ZooKeeper instance is not currently serving requests\n";

    #[test]
    fn srvr_gives_role_and_zxid() {
        let serving = parse_srvr(SRVR).unwrap().unwrap();
        assert_eq!(
            serving,
            Serving {
                role: MemberRole::Follower,
                zxid: 0x2_0000_0003
            }
        );
        assert_eq!(parse_srvr(LOOKING), Ok(None));
    }

    #[test]
    fn conf_gives_the_voters_and_not_the_observers() {
        let conf = parse_conf(CONF).unwrap().unwrap();
        assert_eq!(conf.id, ServerId(2));
        assert_eq!(conf.voters, Voters::first(2, 0));
        assert_eq!(parse_conf(LOOKING), Ok(None));
    }

    #[test]
    fn other_answers_are_errors() {
        for answer in [
            "",
            "imok",
            "Mode: follower",
            "srvr is not executed because it is not in the whitelist.",
        ] {
            assert!(parse_srvr(answer).is_err(), "{answer}");
            assert!(parse_conf(answer).is_err(), "{answer}");
        }
    }
}
