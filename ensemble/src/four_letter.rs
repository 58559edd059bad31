//! Parsers for the answers to ZooKeeper's four-letter words. No sockets here.
//!
//! A server that takes part in no quorum answers `ruok` with `imok` and everything else with "This
//! ZooKeeper instance is not currently serving requests" (`ServerCnxn`, `AbstractFourLetterCommand`).

use std::fmt::Display;

use bellwether_api::ensemble::MemberRole;

use crate::ids::{ServerId, ServerList};
use crate::observation::{Credentials, ServerReport};

/// A serving server's answer to `srvr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Its role.
    pub role: MemberRole,
    /// The last transaction that it saw.
    pub zxid: u64,
    /// The learners of a leader, if the answer includes them.
    pub learners: Option<Learners>,
}

/// The servers that follow a leader and have all that it committed (`LeaderZooKeeperServer.dumpMonitorValues`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learners {
    /// Those that vote.
    pub followers: usize,
    /// Those that observe.
    pub observers: usize,
}

/// How the lines of `mntr` with the numbers of followers and observers begin.
const LEARNERS: [&str; 2] = ["zk_synced_followers\t", "zk_synced_observers\t"];

/// How the line begins that tells of other users of clients than the server has.
const CREDENTIALS: &str = "Credentials: ";

/// What a member program says, after its server's answer to `srvr`, of the users and the authorities of clients.
pub fn credentials(answer: &str) -> Credentials {
    let said = answer.lines().find_map(|l| l.strip_prefix(CREDENTIALS));
    match said.map(|said| said.strip_prefix("unusable: ").ok_or(said)) {
        Some(Ok(why)) => Credentials::Unusable(why.to_owned()),
        Some(Err("outdated")) => Credentials::Outdated,
        Some(Err(_)) | None => Credentials::Current,
    }
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

/// Parses the answer to `srvr`; `None` when the server takes part in no quorum. Lines of a
/// leader's answer to `mntr` may follow it.
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
    let [followers, observers] =
        LEARNERS.map(|name| field(name).and_then(|n| n.parse::<f64>().ok()));
    let learners = followers
        .zip(observers)
        .map(|(followers, observers)| Learners {
            followers: followers as usize,
            observers: observers as usize,
        });
    Ok(Some(Serving {
        role,
        zxid,
        learners,
    }))
}

/// The configuration of a serving server, from its answer to `conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Its own id.
    pub id: ServerId,
    /// The list that it has: the participants that it judges quorums by, and the observers.
    pub list: ServerList,
    /// The version of that list: the zxid of the transaction that made it, or 0 for one that is in a file only.
    pub version: u64,
}

/// Parses the answer to `conf`; `None` when the server takes part in no quorum.
///
/// # Errors
/// When the answer names no server id or no participant, or a version that is no number.
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
    let servers = answer
        .lines()
        .filter_map(|l| l.trim().strip_prefix("membership:").or(Some(l.trim())))
        .filter_map(|l| l.trim().strip_prefix("server."))
        .filter_map(|l| l.split_once('='))
        .filter_map(|(id, address)| Some((ServerId(id.trim().parse().ok()?), address)));
    let observes = |address: &str| address.contains(":observer");
    let of = |kind: bool| servers.clone().filter(move |(_, to)| observes(to) == kind);
    let list = ServerList {
        voters: of(false).map(|(id, _)| id).collect(),
        observers: of(true).map(|(id, _)| id).collect(),
    };
    if list.voters.is_empty() {
        return Err(unexpected("conf", answer));
    }
    // `QuorumMaj.toString` writes it in hexadecimal digits.
    let version = answer.lines().find_map(|l| l.strip_prefix("version="));
    let version = version.map_or(Ok(0), |version| u64::from_str_radix(version.trim(), 16));
    Ok(Some(Configuration {
        id,
        list,
        version: version.map_err(|_| unexpected("conf", answer))?,
    }))
}

/// What a server is: its role, its last transaction and its voters; `ask` asks it for a word.
///
/// A server that answers under another id than `id` is not the expected member: the address of a deleted pod
/// may belong to another pod by now.
pub async fn probe_by<A, E>(id: ServerId, ask: impl Fn(&'static str) -> A) -> ServerReport
where
    A: Future<Output = Result<String, E>>,
    E: Display,
{
    let probe = async {
        let text = |error: E| error.to_string();
        let srvr = ask("srvr").await.map_err(text)?;
        let Some(serving) = parse_srvr(&srvr).map_err(|error| error.to_string())? else {
            return Ok(ServerReport::Looking);
        };
        let conf = ask("conf").await.map_err(text)?;
        let Some(configuration) = parse_conf(&conf).map_err(|error| error.to_string())? else {
            return Ok(ServerReport::Looking);
        };
        if configuration.id != id {
            return Err(format!("answers as server {}, not {id}", configuration.id));
        }
        Ok(ServerReport::Serving {
            role: serving.role,
            zxid: serving.zxid,
            voters: configuration.list.voters,
            observers: configuration.list.observers,
            version: configuration.version,
        })
    };
    probe.await.unwrap_or_else(ServerReport::Unreachable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Voters;

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
                zxid: 0x2_0000_0003,
                learners: None,
            }
        );
        assert_eq!(parse_srvr(LOOKING), Ok(None));
    }

    #[test]
    fn the_learners_of_a_leader_are_read_when_both_numbers_are_there() {
        let learners = |lines: &str| {
            let answer = format!("Zxid: 0x1\nMode: leader\n{lines}");
            parse_srvr(&answer).unwrap().unwrap().learners
        };
        let both = "zk_synced_followers\t2\nzk_synced_observers\t1\n";
        let expected = Learners {
            followers: 2,
            observers: 1,
        };
        assert_eq!(learners(both), Some(expected));
        for lines in [
            "",
            "zk_synced_followers\t2\n",
            "zk_synced_followers\tx\nzk_synced_observers\t1\n",
        ] {
            assert_eq!(learners(lines), None, "{lines:?}");
        }
    }

    #[test]
    fn a_member_says_that_its_server_has_other_users_than_there_are_now() {
        let said = |line: &str| credentials(&format!("Zxid: 0x1\nMode: follower\n{line}"));
        assert_eq!(said(""), Credentials::Current);
        assert_eq!(said("Credentials: outdated\n"), Credentials::Outdated);
        let why = Credentials::Unusable("it is: empty".to_owned());
        assert_eq!(said("Credentials: unusable: it is: empty\n"), why);
    }

    #[test]
    fn conf_tells_voters_from_observers() {
        let conf = parse_conf(CONF).unwrap().unwrap();
        assert_eq!(conf.id, ServerId(2));
        assert_eq!(conf.list.to_string(), "1,2,101");
        assert_eq!(conf.list.voters, Voters::first(2, 0));
        assert_eq!(conf.version, 0);
        let changed = CONF.replace("version=0", "version=10000000a");
        assert_eq!(
            parse_conf(&changed).unwrap().unwrap().version,
            0x1_0000_000a
        );
        assert!(parse_conf(&CONF.replace("version=0", "version=x")).is_err());
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
