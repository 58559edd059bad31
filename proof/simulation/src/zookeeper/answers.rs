//! The answers to four-letter words, in ZooKeeper's own texts.

use std::fmt::Write as _;

use super::Zoo;
use super::process::{Process, Role, State};
use super::types::ProcessId;

const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";
const VERSION: &str = "3.9.5-simulated, built on 2026-01-01 00:00 UTC";

impl Zoo {
    /// Whether the server answers that it leads.
    pub fn says_it_leads(&self, process: ProcessId) -> bool {
        let process = self.process(process);
        let listens = process.alive && !process.frozen;
        listens && process.state() == State::Leading && process.serves()
    }

    /// What the server answers on its client port, as the operator and the probes ask; `None` if
    /// nothing answers.
    pub fn answer(&self, process: ProcessId, word: &str) -> Option<String> {
        let process = self.process(process);
        let listens = process.alive && !process.frozen && !matches!(process.role, Role::Loading);
        if !listens {
            return None;
        }
        if word == "ruok" {
            return Some("imok".to_owned());
        }
        if !process.serves() {
            let nothing = if word == "isro" { "null" } else { NOT_SERVING };
            return Some(nothing.to_owned());
        }
        Some(match word {
            "srvr" => srvr(process),
            "conf" => conf(process),
            "mntr" => mntr(process),
            "isro" => "rw".to_owned(),
            "cons" | "wchp" => "\n".to_owned(),
            _ => format!("{word} is not executed because it is not in the whitelist."),
        })
    }
}

fn mode(process: &Process) -> &'static str {
    match process.state() {
        State::Leading => "leader",
        State::Observing => "observer",
        _ => "follower",
    }
}

fn srvr(process: &Process) -> String {
    let (zxid, nodes) = (process.data.last, process.data.applied + 5);
    let mut text = format!(
        "Zookeeper version: {VERSION}\nLatency min/avg/max: 0/0.0/0\nReceived: 1\nSent: 0\n\
         Connections: 1\nOutstanding: {}\nZxid: {zxid:#x}\nMode: {}\nNode count: {nodes}\n",
        process.requests.len(),
        mode(process)
    );
    if process.state() == State::Leading {
        text.push_str("Proposal sizes last/min/max: -1/-1/-1\n");
    }
    text
}

fn conf(process: &Process) -> String {
    let start = &process.start;
    let apart = if start.log_disk.is_some() {
        "/datalog"
    } else {
        "/data"
    };
    let settings = &start.settings;
    let mut text = format!(
        "clientPort=2181\nsecureClientPort=-1\ndataDir=/data/version-2\ndataDirSize=0\n\
         dataLogDir={apart}/version-2\ndataLogSize=0\ntickTime={}\nmaxClientCnxns=60\n\
         serverId={}\ninitLimit={}\nsyncLimit={}\nelectionAlg=3\nelectionPort=3888\n\
         quorumPort=2888\npeerType={}\nmembership: \n",
        settings.tick.as_millis(),
        start.id,
        settings.init_limit,
        settings.sync_limit,
        u8::from(process.observes())
    );
    for (id, host) in &process.voters {
        let _ = writeln!(text, "server.{id}={host}:2888:3888:participant");
    }
    for id in &process.observers {
        let host = start.servers.get(id).unwrap_or(&start.host);
        let _ = writeln!(text, "server.{id}={host}:2888:3888:observer");
    }
    let _ = write!(text, "version={:x}", process.version);
    text
}

fn mntr(process: &Process) -> String {
    let mut text = format!(
        "zk_version\t{VERSION}\nzk_server_state\t{}\nzk_quorum_size\t{}\nzk_znode_count\t{}\n\
         zk_outstanding_requests\t{}\n",
        mode(process),
        process.voters.len(),
        process.data.applied + 5,
        process.requests.len()
    );
    if let Role::Leading(leading) = &process.role {
        let learners = || leading.learners.values().filter(|l| l.copied);
        let followers = || learners().filter(|l| !l.observer);
        let outside = followers()
            .filter(|l| !process.voters.contains_key(&l.id))
            .count();
        let _ = writeln!(
            text,
            "zk_learners\t{}\nzk_synced_followers\t{}\nzk_synced_non_voting_followers\t{outside}\n\
             zk_synced_observers\t{}\nzk_pending_syncs\t0",
            learners().count(),
            followers().count(),
            learners().filter(|l| l.observer).count()
        );
    }
    text
}
