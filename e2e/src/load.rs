//! Writes and role samples during a change, and the verdict on them.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::clients::{Client, Clients};
use crate::ensemble::Ensemble;
use crate::wait::until;

const PATH: &str = "/e2e/writes";
const RECORD: &str = "/tmp/acknowledged";
/// Each writer has so many numbers of its own.
const NUMBERS: u32 = 100_000_000;

/// The pod that a sample of roles is of.
pub fn pod_of(sample: &Value) -> &str {
    let member = sample["member"].as_str().unwrap_or_default();
    member.split('.').next().unwrap_or_default()
}

/// Whether a member in this role takes part in a quorum.
pub fn serves(role: Option<&str>) -> bool {
    matches!(role, Some("leader" | "follower"))
}

fn record(writer: u32) -> String {
    format!("{RECORD}-{writer}")
}

/// How few acknowledged writes say nothing about whether writes are lost.
const FEWEST: u64 = 50;

/// A writer and a sampler of roles that run while something is changed.
#[derive(Debug)]
pub struct Load<'w> {
    clients: Clients<'w>,
    ensemble: Ensemble<'w>,
    writers: Vec<Client<'w>>,
    roles: Client<'w>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// How many writes were acknowledged.
    pub acknowledged: u64,
    /// When each of them was acknowledged, in Unix seconds: a list for each writer.
    pub acknowledged_at: Vec<Vec<f64>>,
    /// What `verify.py` printed.
    pub verified: Value,
    /// What `watch_roles.py` printed at its end.
    pub roles: Value,
    /// Its samples, where they changed.
    pub samples: Vec<Value>,
    /// What the first `writer.py` printed at its end.
    pub writer: Value,
}

impl<'w> Load<'w> {
    /// Starts both, and waits until the first writes are acknowledged. `largest` is the largest
    /// size that the ensemble is going to have.
    pub fn start(clients: Clients<'w>, ensemble: Ensemble<'w>, largest: u16) -> Result<Self> {
        // A dozen tests share a machine: more writes a second would prove no more and slow all of them.
        // Each sample is a connection, and a handshake costs a server more than many writes.
        let interval = if clients.are_over_tls() { "1" } else { "0.25" };
        Self::start_many(clients, ensemble, largest, (1, "30"), interval)
    }

    /// The same with several writers, each on a connection of its own and with so many writes a second at most, and with
    /// roles sampled every `interval` seconds.
    pub fn start_many(
        clients: Clients<'w>,
        ensemble: Ensemble<'w>,
        largest: u16,
        (writers, rate): (u32, &str),
        interval: &str,
    ) -> Result<Self> {
        let members = clients.hosts(&ensemble.members(largest));
        let arguments = ["--members", &members, "--interval", interval];
        let roles = clients.python("roles", "watch_roles.py", &arguments)?;
        let service = clients.hosts(&ensemble.service());
        let mut started = Vec::new();
        for writer in 0..writers {
            let (out, first) = (record(writer), (writer * NUMBERS).to_string());
            let arguments = ["--hosts", &service, "--path", PATH, "--rate", rate];
            let arguments = [&arguments[..], &["--out", &out, "--first", &first]].concat();
            started.push(clients.python(&format!("writer-{writer}"), "writer.py", &arguments)?);
        }
        for writer in &started {
            writer.wait_event("writing")?;
        }
        let load = Self {
            clients,
            ensemble,
            writers: started,
            roles,
        };
        load.wait_writes(20)?;
        Ok(load)
    }

    /// How many writes were acknowledged so far.
    pub fn acknowledged(&self) -> Result<u64> {
        let text = self
            .clients
            .output(&["sh", "-c", &format!("cat {RECORD}-* | wc -l")])?;
        text.trim()
            .parse()
            .context("counting the acknowledged writes")
    }

    /// When each write of one writer was acknowledged, in Unix seconds.
    fn acknowledged_at(&self, writer: u32) -> Result<Vec<f64>> {
        let text = self.clients.output(&["cat", &record(writer)])?;
        let records = text.lines().filter_map(|l| serde_json::from_str(l).ok());
        Ok(records
            .filter_map(|record: Value| record["time"].as_f64())
            .collect())
    }

    /// Waits for so many more acknowledged writes.
    pub fn wait_writes(&self, more: u64) -> Result<()> {
        let begin = self.acknowledged().unwrap_or(0);
        until(
            "writes are acknowledged",
            std::time::Duration::from_secs(180),
            || {
                let now = self.acknowledged().map_err(|e| e.to_string())?;
                if now >= begin + more {
                    Ok(())
                } else {
                    Err(format!("{now} after {begin}"))
                }
            },
        )
    }

    /// The samples of roles so far, where they changed.
    pub fn roles(&self) -> Vec<Value> {
        let mut lines = self.roles.lines();
        lines.retain(|l| l["event"] == "role");
        lines
    }

    /// Ends both, and reads every acknowledged write back from each of `size` members.
    pub fn finish(self, size: u16) -> Result<Verdict> {
        let members = self.clients.hosts(&self.ensemble.members(size));
        self.finish_at(&members)
    }

    /// As [`Self::finish`], with the members given as hosts and ports.
    pub fn finish_at(self, members: &str) -> Result<Verdict> {
        // Some after the end of what was done, and enough of them that they say something, however slow
        // the machine is.
        let missing = FEWEST.saturating_sub(self.acknowledged()?);
        self.wait_writes(missing.max(10))?;
        let verdict = self.finish_as_it_is(members)?;
        ensure!(
            verdict.writer["event"] == "summary",
            "the writer ended with {}",
            verdict.writer
        );
        Ok(verdict)
    }

    /// The same for an ensemble that may have come to harm: the writer may wait for it for ever.
    pub fn finish_as_it_is(self, members: &str) -> Result<Verdict> {
        let mut ends = Vec::new();
        for writer in &self.writers {
            ends.push(writer.stop().unwrap_or_else(|_| {
                // It may have ended meanwhile.
                let _ = writer.kill();
                Value::Null
            }));
        }
        let roles = self.roles.stop()?;
        ensure!(
            roles["event"] == "summary",
            "the sampler of roles ended with {roles}"
        );
        let records: Vec<String> = (0..).map(record).take(self.writers.len()).collect();
        let mut verify = vec!["python3", "/clients/verify.py", "--members", members];
        verify.extend(["--path", PATH, "--acknowledged"]);
        verify.extend(records.iter().map(String::as_str));
        let text = self.clients.output(&verify)?;
        let verified: Value = serde_json::from_str(text.trim()).context(text.clone())?;
        let writers = (0..).take(self.writers.len());
        Ok(Verdict {
            acknowledged: verified["acknowledged"].as_u64().unwrap_or(0),
            acknowledged_at: writers
                .map(|w| self.acknowledged_at(w))
                .collect::<Result<_>>()?,
            samples: self.roles(),
            verified,
            roles,
            writer: ends.into_iter().next().unwrap_or_default(),
        })
    }
}

impl Verdict {
    /// Every acknowledged write is on every member, and never could two leaders commit.
    pub fn assert_safe(&self) -> Result<()> {
        ensure!(
            self.acknowledged >= FEWEST,
            "only {} writes: {}",
            self.acknowledged,
            self.writer
        );
        ensure!(
            self.verified["lostCount"] == 0,
            "acknowledged writes are lost: {}",
            self.verified
        );
        ensure!(
            self.verified["unread"]
                .as_array()
                .is_some_and(Vec::is_empty),
            "a member could not be read: {}",
            self.verified
        );
        self.assert_one_leader()
    }

    /// Never could two leaders commit.
    pub fn assert_one_leader(&self) -> Result<()> {
        let two = !self.roles["sameEpoch"]
            .as_object()
            .is_some_and(serde_json::Map::is_empty)
            || !self.roles["bothCommitted"]
                .as_array()
                .is_some_and(Vec::is_empty);
        ensure!(!two, "two leaders: {}", self.roles);
        Ok(())
    }

    /// The longest time that the writer waited for an acknowledgement, in seconds.
    pub fn longest_gap(&self) -> f64 {
        self.writer["longestGap"].as_f64().unwrap_or(f64::NAN)
    }

    /// How often the leader changed: each leader has an epoch of its own.
    pub fn leader_changes(&self) -> usize {
        let leaders = self.samples.iter().filter(|s| s["role"] == "leader");
        let epochs: std::collections::BTreeSet<i64> =
            leaders.filter_map(|s| s["epoch"].as_i64()).collect();
        epochs.len().saturating_sub(1)
    }

    /// The sum of the times over 0.3 s that the writer waited for an acknowledgement, in seconds.
    pub fn total_gap(&self) -> f64 {
        let gaps = self.writer["gaps"].as_array().into_iter().flatten();
        gaps.filter_map(|g| g["seconds"].as_f64()).sum()
    }

    /// The pod that was known to lead at this time (Unix seconds).
    pub fn leader_at(&self, time: f64) -> Option<String> {
        // The last word of each member before that time; the leader of the newest epoch wins.
        let mut last: std::collections::BTreeMap<String, (bool, i64)> = Default::default();
        for sample in &self.samples {
            if sample["sent"].as_f64().is_some_and(|sent| sent <= time) {
                let pod = pod_of(sample).to_owned();
                let epoch = sample["epoch"].as_i64().unwrap_or(-1);
                last.insert(pod, (sample["role"] == "leader", epoch));
            }
        }
        let leaders = last.into_iter().filter(|(_, (leads, _))| *leads);
        leaders
            .max_by_key(|(_, (_, epoch))| *epoch)
            .map(|(pod, _)| pod)
    }
}
