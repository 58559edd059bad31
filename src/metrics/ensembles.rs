//! The series of ensembles, computed when Prometheus asks, from the last observation of each.
//!
//! A controller may not learn of a deletion, so its store decides which ensembles exist; the series of all
//! others are dropped.

use std::collections::BTreeMap;
use std::fmt::{self, Error};
use std::sync::{Mutex, PoisonError};

use bellwether_api::ensemble::status::ConditionType;
use bellwether_api::ensemble::{Awaited, Phase, ZooKeeperEnsembleStatus};
use bellwether_ensemble::plan::report::Report;
use bellwether_ensemble::plan::verdict::Verdict;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Namespace and name of an ensemble.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    namespace: String,
    name: String,
}

impl Key {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// What was last seen of an ensemble.
#[derive(Debug)]
struct Seen {
    phase: Option<Phase>,
    /// Whether each condition holds; absent where the ensemble does not carry it.
    conditions: [Option<bool>; ConditionType::ALL.len()],
    /// How many members wait, by what they wait for.
    waiting: [usize; Awaited::ALL.len()],
    wanted: i32,
    list: usize,
    members: usize,
    serving: usize,
    outdated: usize,
    observers: usize,
    observers_serving: usize,
    leader: u16,
    epoch: Option<u64>,
    restarts: u64,
    /// When the members' certificate ends, in seconds since 1970.
    certificate: Option<i64>,
}

type Exists = Box<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// All ensembles of this replica.
#[derive(Default)]
pub(super) struct Ensembles {
    seen: Mutex<BTreeMap<Key, Seen>>,
    exists: Mutex<Vec<Exists>>,
}

impl fmt::Debug for Ensembles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ensembles")
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

impl Ensembles {
    pub(super) fn observe(
        &self,
        key: Key,
        wanted: i32,
        report: &Report,
        status: &ZooKeeperEnsembleStatus,
    ) {
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let restarts = all.get(&key).map_or(0, |seen| seen.restarts);
        all.insert(key, Seen::new(wanted, report, status, restarts));
    }

    pub(super) fn restarted(&self, key: Key) {
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(key).or_default().restarts += 1;
    }

    pub(super) fn watch(&self, exists: Exists) {
        let mut all = self.exists.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(exists);
    }

    pub(super) fn forget(&self, key: &Key) {
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(key);
    }

    /// Drops ensembles that no controller's store contains. Before any store is registered, everything stays.
    fn prune(&self, seen: &mut BTreeMap<Key, Seen>) {
        let exists = self.exists.lock().unwrap_or_else(PoisonError::into_inner);
        if !exists.is_empty() {
            seen.retain(|key, _| exists.iter().any(|e| e(&key.namespace, &key.name)));
        }
    }
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            phase: None,
            conditions: [None; ConditionType::ALL.len()],
            waiting: [0; Awaited::ALL.len()],
            wanted: 0,
            list: 0,
            members: 0,
            serving: 0,
            outdated: 0,
            observers: 0,
            observers_serving: 0,
            leader: 0,
            epoch: None,
            restarts: 0,
            certificate: None,
        }
    }
}

impl Seen {
    fn new(wanted: i32, report: &Report, status: &ZooKeeperEnsembleStatus, restarts: u64) -> Self {
        let mut waiting = [0; Awaited::ALL.len()];
        for member in report.members.iter().chain(&report.observers) {
            let Verdict::Waiting(on) = &member.verdict else {
                continue;
            };
            let what = on.waiting_for().what;
            let place = Awaited::ALL.iter().position(|awaited| *awaited == what);
            if let Some(count) = place.and_then(|place| waiting.get_mut(place)) {
                *count += 1;
            }
        }
        let revision = report.revision.as_ref();
        let leader = report.leader();
        let serving = |members: &[bellwether_ensemble::plan::report::MemberReport]| {
            members.iter().filter(|m| m.role.serves()).count()
        };
        Self {
            phase: status.phase,
            conditions: ConditionType::ALL.map(|type_| {
                let mut all = status.conditions.iter();
                let condition = all.find(|c| c.type_ == type_.as_str());
                condition.map(|c| c.status == "True")
            }),
            waiting,
            wanted,
            list: revision.map_or(0, |r| r.voters.len()),
            members: report.members.len(),
            serving: serving(&report.members),
            outdated: report
                .members
                .iter()
                .chain(&report.observers)
                .filter(|m| m.revision.as_ref() != revision.map(|r| &r.name))
                .count(),
            observers: report.observers.len(),
            observers_serving: serving(&report.observers),
            leader: leader.map_or(0, |m| m.id.0),
            epoch: leader.and_then(|m| m.zxid).map(|zxid| zxid >> 32),
            restarts,
            certificate: status.certificate.as_ref().and_then(|c| {
                let until: jiff::Timestamp = c.until.parse().ok()?;
                Some(until.as_second())
            }),
        }
    }
}

/// A gauge of ensembles: name, help, value.
type Simple = (&'static str, &'static str, fn(&Seen) -> Option<i64>);

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

const SIMPLE: &[Simple] = &[
    ("wanted_members", "Voters that the spec asks for", |s| {
        Some(i64::from(s.wanted))
    }),
    (
        "server_list_members",
        "Voters in the server list that is being brought to all members; a size change goes by one at a time",
        |s| Some(count(s.list)),
    ),
    ("members", "Member pods that exist", |s| {
        Some(count(s.members))
    }),
    ("serving_members", "Members that serve", |s| {
        Some(count(s.serving))
    }),
    (
        "outdated_members",
        "Members and observers that do not run the latest configuration yet",
        |s| Some(count(s.outdated)),
    ),
    ("observers", "Observer pods that exist", |s| {
        Some(count(s.observers))
    }),
    ("serving_observers", "Observers that serve", |s| {
        Some(count(s.observers_serving))
    }),
    (
        "leader_server_id",
        "Server id of the leader; 0 without one",
        |s| Some(i64::from(s.leader)),
    ),
    (
        "epoch",
        "Epoch of the leader's last transaction: one more with each leader. Absent without one",
        |s| s.epoch.and_then(|e| i64::try_from(e).ok()),
    ),
    (
        "certificate_end_timestamp_seconds",
        "When the certificate that the members present to the operator ends, in seconds since 1970",
        |s| s.certificate,
    ),
    (
        "ready",
        "1 when every wanted member serves as wanted",
        |s| Some(i64::from(s.phase == Some(Phase::Ready))),
    ),
];

/// The statuses of a condition, as kube-state-metrics writes them.
const STATUSES: [(&str, Option<bool>); 3] = [
    ("true", Some(true)),
    ("false", Some(false)),
    ("unknown", None),
];

impl Collector for Ensembles {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.prune(&mut seen);
        for (name, help, value) in SIMPLE {
            gauges(&mut encoder, name, help, &seen, |seen, add| {
                value(seen).map_or(Ok(()), |value| add(&[], value))
            })?;
        }
        let help = "1 for the phase that the ensemble is in, 0 for the others";
        gauges(&mut encoder, "phase", help, &seen, |seen, add| {
            Phase::ALL.iter().try_for_each(|phase| {
                let is = seen.phase.as_ref() == Some(phase);
                add(&[("phase", phase.as_str())], i64::from(is))
            })
        })?;
        let help = "1 for the status that a condition has, 0 for the others";
        gauges(&mut encoder, "condition", help, &seen, |seen, add| {
            for (type_, holds) in ConditionType::ALL.iter().zip(seen.conditions) {
                for (status, value) in STATUSES {
                    let labels = [("type", type_.as_str()), ("status", status)];
                    add(&labels, i64::from(holds == value))?;
                }
            }
            Ok(())
        })?;
        let help =
            "Members that wait before they are restarted or count as up to date, by what for";
        gauges(&mut encoder, "waiting_members", help, &seen, |seen, add| {
            let mut all = Awaited::ALL
                .iter()
                .map(|awaited| awaited.word())
                .zip(seen.waiting);
            all.try_for_each(|(word, members)| add(&[("reason", word)], count(members)))
        })?;
        let mut restarts = encoder.encode_descriptor(
            "ensemble_member_restarts",
            "Members that the operator restarted.",
            None,
            MetricType::Counter,
        )?;
        for (key, seen) in seen.iter() {
            let labels = labels(key, &[]);
            let mut series = restarts.encode_family(&labels)?;
            series.encode_counter::<NoLabelSet, _, f64>(&seen.restarts, None)?;
        }
        Ok(())
    }
}

fn labels<'a>(key: &'a Key, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut labels = vec![
        ("namespace", key.namespace.as_str()),
        ("name", key.name.as_str()),
    ];
    labels.extend(more);
    labels
}

/// Adds a series with further labels and its value.
type Add<'a> = dyn FnMut(&[(&str, &str)], i64) -> Result<(), Error> + 'a;

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    seen: &BTreeMap<Key, Seen>,
    each: impl Fn(&Seen, &mut Add<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (name, help) = (format!("ensemble_{name}"), format!("{help}."));
    let mut family = encoder.encode_descriptor(&name, &help, None, MetricType::Gauge)?;
    for (key, seen) in seen {
        each(seen, &mut |more, value| {
            let labels = labels(key, more);
            family.encode_family(&labels)?.encode_gauge(&value)
        })?;
    }
    Ok(())
}
