//! The processes behind pods, where the tests run beside the processes of the cluster.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::process::Command;

use anyhow::{Result, ensure};

/// A process of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id, as this program sees it.
    pub id: String,
    /// Its command line, words separated by spaces.
    pub line: String,
}

/// Every process in the containers of the pod with this uid; none if the cluster is elsewhere.
pub fn of_pod(uid: &str) -> Vec<Process> {
    // Some container runtimes write the uid with underscores.
    let other = uid.replace('-', "_");
    all(|process| {
        let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
        groups.contains(uid) || groups.contains(&other)
    })
}

/// Every process of the operator, as the chart starts it; none if the cluster is elsewhere.
pub fn of_operator() -> Vec<Process> {
    let mut found = all(|_| true);
    found.retain(|p| p.line.starts_with("/usr/local/bin/bellwether run"));
    found
}

fn all(wanted: impl Fn(&str) -> bool) -> Vec<Process> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|id| id.bytes().all(|b| b.is_ascii_digit()) && wanted(id))
        .map(|id| {
            let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            Process { id, line }
        })
        .collect()
}

/// Sends a signal, such as `KILL`. A process that ended meanwhile needs no signal.
pub fn signal(processes: &[Process], signal: &str) {
    for process in processes {
        let _ = Command::new("kill")
            .args(["-s", signal, &process.id])
            .status();
    }
}

/// Servers that hang: their processes are stopped, and continue when this is dropped.
#[derive(Debug)]
pub struct Frozen(Vec<Process>);

impl Frozen {
    /// Stops the ZooKeeper server in each of the pods with these uids, and the shell that would kill
    /// it when its liveness probe fails: then it hangs for the grace period of its pod longer.
    pub fn servers<'a>(uids: impl IntoIterator<Item = &'a String>) -> Result<Self> {
        let mut frozen = Self(Vec::new());
        for uid in uids {
            let mut servers = of_pod(uid);
            let is_server = |p: &Process| p.line.contains("QuorumPeerMain");
            ensure!(
                servers.iter().any(is_server),
                "pod {uid} has no server process here"
            );
            servers.retain(|p| is_server(p) || p.line.contains("zkServer.sh"));
            signal(&servers, "STOP");
            frozen.0.extend(servers);
        }
        Ok(frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal(&self.0, "CONT");
    }
}

/// A pod that is cut off: packets from it or to it are discarded silently, until this is dropped.
#[derive(Debug)]
pub struct Cut {
    /// The network of the pod, which outlives the process that it was found by.
    network: File,
    /// A chain of iptables and what of it is dropped.
    rules: Vec<Vec<String>>,
}

impl Cut {
    /// Cuts off the pod of a process from everything; `None` if the process has ended.
    pub fn off(process: &Process) -> Result<Option<Self>> {
        Self::rules(process, &[&["INPUT"], &["OUTPUT"]])
    }

    /// Only what is sent to the pod is dropped.
    pub fn deaf(process: &Process) -> Result<Option<Self>> {
        Self::rules(process, &[&["INPUT"]])
    }

    /// Cuts it off from one address only.
    pub fn between(process: &Process, address: &str) -> Result<Option<Self>> {
        let (from, to) = (
            ["INPUT", "--source", address],
            ["OUTPUT", "--destination", address],
        );
        Self::rules(process, &[&from, &to])
    }

    fn rules(process: &Process, rules: &[&[&str]]) -> Result<Option<Self>> {
        let Ok(network) = File::open(format!("/proc/{}/ns/net", process.id)) else {
            return Ok(None);
        };
        let words = |rule: &&[&str]| rule.iter().map(|&word| word.to_owned()).collect();
        let rules = rules.iter().map(words).collect();
        let cut = Self { network, rules };
        cut.filter("--append")?;
        Ok(Some(cut))
    }

    fn filter(&self, change: &str) -> Result<()> {
        let path = format!(
            "--net=/proc/{}/fd/{}",
            std::process::id(),
            self.network.as_raw_fd()
        );
        for rule in &self.rules {
            let status = Command::new("nsenter")
                .args([&path, "--", "iptables", "--wait", change])
                .args(rule)
                .args(["--jump", "DROP"])
                .status()?;
            ensure!(
                status.success(),
                "iptables did not {change} {rule:?}: {status}"
            );
        }
        Ok(())
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        if let Err(error) = self.filter("--delete") {
            eprintln!("{error:#}");
        }
    }
}
