//! The series of single elections: whether each has a leader, for how long it had none, and what ended terms.
//!
//! There may be ten thousand elections, and a series costs memory in the operator and more in Prometheus. So an election has
//! series only if its spec asks for them, and no more of them do than the administrator allows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether_api::LeaderElectionStatus;
use bellwether_api::election::{EndOfTerm, Exclusivity};
use bellwether_election::projection::Projection;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use tokio::time::Instant;

use super::Key;

/// Whether somebody leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leadership {
    /// Somebody leads, and as far as is known it runs.
    Led,
    /// Nobody leads, or nothing runs any more of what does.
    Leaderless,
    /// The mirror does not see.
    Unobserved,
}

impl Leadership {
    /// What a status and what is known of pods tell.
    pub(super) fn of(
        status: Option<&LeaderElectionStatus>,
        projection: Option<&Projection>,
    ) -> Self {
        let Some(status) = status.filter(|status| status.stale_since.is_none()) else {
            return Self::Unobserved;
        };
        let outlook = projection.and_then(|projection| projection.outlook.as_ref());
        let has_ended =
            |leader| outlook.is_some_and(|known| known.has_ended && known.is_of_leader(leader));
        match &status.leader {
            None if status.exclusivity == Some(Exclusivity::MultiLeader) => Self::Led,
            None => Self::Leaderless,
            Some(leader) if leader.acknowledged == Some(false) => Self::Leaderless,
            Some(leader) if has_ended(leader) => Self::Leaderless,
            Some(_) => Self::Led,
        }
    }
}

/// The time that an election spent in each state.
#[derive(Debug)]
struct Measured {
    now: Leadership,
    since: Instant,
    leaderless: Duration,
    unobserved: Duration,
    ended: BTreeMap<&'static str, u64>,
}

impl Measured {
    fn new() -> Self {
        let causes = EndOfTerm::ALL.map(EndOfTerm::as_str);
        let causes = causes.into_iter().chain([UNKNOWN]);
        Self {
            now: Leadership::Unobserved,
            since: Instant::now(),
            leaderless: Duration::ZERO,
            unobserved: Duration::ZERO,
            // From 0, so that a rate shows the first one.
            ended: causes.map(|cause| (cause, 0)).collect(),
        }
    }

    fn enter(&mut self, leadership: Leadership) {
        let past = std::mem::replace(&mut self.since, Instant::now());
        match self.now {
            Leadership::Led => {}
            Leadership::Leaderless => self.leaderless += self.since - past,
            Leadership::Unobserved => self.unobserved += self.since - past,
        }
        self.now = leadership;
    }
}

/// The label of a term whose end nothing explains.
pub(super) const UNKNOWN: &str = "Unknown";

/// The elections that have series of their own. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnSeries(Arc<Mutex<Elections>>);

#[derive(Debug, Default)]
struct Elections {
    limit: usize,
    measured: BTreeMap<Key, Measured>,
    /// Those that ask for series beyond the limit.
    left_out: BTreeSet<Key>,
}

impl OwnSeries {
    fn lock(&self) -> MutexGuard<'_, Elections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how many elections may have series.
    pub(super) fn limit(&self, limit: usize) {
        self.lock().limit = limit;
    }

    /// Notes whether an election asks for series.
    pub(super) fn ask(&self, key: &Key, asks: bool) {
        let mut all = self.lock();
        if !asks {
            all.left_out.remove(key);
            if all.measured.remove(key).is_some()
                && let Some(next) = all.left_out.pop_first()
            {
                all.measured.insert(next, Measured::new());
            }
        } else if !all.measured.contains_key(key) {
            if all.measured.len() < all.limit {
                all.left_out.remove(key);
                all.measured.insert(key.clone(), Measured::new());
            } else {
                all.left_out.insert(key.clone());
            }
        }
    }

    /// Notes whether somebody leads, if the election has series.
    pub(super) fn note(&self, key: &Key, leadership: impl FnOnce() -> Leadership) {
        if let Some(measured) = self.lock().measured.get_mut(key) {
            measured.enter(leadership());
        }
    }

    /// Counts the end of a leader's term, if the election has series.
    pub(super) fn ended(&self, key: &Key, cause: &'static str) {
        if let Some(measured) = self.lock().measured.get_mut(key) {
            *measured.ended.entry(cause).or_default() += 1;
        }
    }
}

impl Collector for OwnSeries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut all = self.lock();
        for measured in all.measured.values_mut() {
            let now = measured.now;
            measured.enter(now);
        }
        let labels = |key: &Key| {
            [
                ("namespace", key.namespace.clone()),
                ("name", key.name.clone()),
            ]
        };
        let mut family = encoder.encode_descriptor(
            "election_has_leader",
            "1 while somebody leads in an election with series of its own, 0 while nobody does or the leader's pod has ended; absent while the mirror does not see.",
            None,
            MetricType::Gauge,
        )?;
        for (key, measured) in &all.measured {
            let value = match measured.now {
                Leadership::Led => 1,
                Leadership::Leaderless => 0,
                Leadership::Unobserved => continue,
            };
            ConstGauge::new(value).encode(family.encode_family(&labels(key))?)?;
        }
        let mut times = |name, help, time: fn(&Measured) -> Duration| {
            let mut family =
                encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
            for (key, measured) in &all.measured {
                let seconds = ConstCounter::new(time(measured).as_secs_f64());
                seconds.encode(family.encode_family(&labels(key))?)?;
            }
            Ok::<_, Error>(())
        };
        times(
            "election_without_leader",
            "For how long nobody led in an election with series of its own, or the leader's pod had ended, as far as the mirror saw.",
            |measured| measured.leaderless,
        )?;
        times(
            "election_unobserved",
            "For how long the mirror did not see an election with series of its own.",
            |measured| measured.unobserved,
        )?;
        let mut family = encoder.encode_descriptor(
            "election_own_terms_ended",
            "Terms of leaders that ended in an election with series of its own, by cause.",
            None,
            MetricType::Counter,
        )?;
        for (key, measured) in &all.measured {
            let [namespace, name] = labels(key);
            for (cause, count) in &measured.ended {
                let labels = [
                    namespace.clone(),
                    name.clone(),
                    ("cause", (*cause).to_owned()),
                ];
                ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
            }
        }
        let left_out = i64::try_from(all.left_out.len()).unwrap_or(i64::MAX);
        let family = encoder.encode_descriptor(
            "election_series_left_out",
            "Elections that ask for series of their own and have none, since the administrator allows no more.",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(left_out).encode(family)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bellwether_api::election::Leader;
    use bellwether_election::terms::Outlook;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use tokio::time::advance;

    use super::*;

    fn key(name: &str) -> Key {
        Key {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        }
    }

    /// The series of these names' starts, without what never changes.
    fn shown(series: &OwnSeries) -> Vec<String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(series.clone()));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let lines = lines.filter(|line| !line.ends_with(" 0") && !line.ends_with(" 0.0"));
        lines.map(str::to_owned).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_without_a_leader_grows_while_nobody_leads() {
        let series = OwnSeries::default();
        series.limit(1);
        series.ask(&key("jobs"), true);
        let note = |leadership| series.note(&key("jobs"), || leadership);
        advance(Duration::from_secs(2)).await;
        note(Leadership::Led);
        advance(Duration::from_secs(10)).await;
        note(Leadership::Leaderless);
        series.ended(&key("jobs"), EndOfTerm::Evicted.as_str());
        advance(Duration::from_millis(3500)).await;
        let of = r#"namespace="shop",name="jobs""#;
        let unobserved = format!("election_unobserved_seconds_total{{{of}}} 2.0");
        let ended = format!("election_own_terms_ended_total{{{of},cause=\"Evicted\"}} 1");
        assert_eq!(
            shown(&series),
            [
                format!("election_without_leader_seconds_total{{{of}}} 3.5"),
                unobserved.clone(),
                ended.clone(),
            ]
        );
        note(Leadership::Led);
        advance(Duration::from_secs(100)).await;
        assert_eq!(
            shown(&series),
            [
                format!("election_has_leader{{{of}}} 1"),
                format!("election_without_leader_seconds_total{{{of}}} 3.5"),
                unobserved,
                ended,
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_elections_have_series_than_are_allowed() {
        let series = OwnSeries::default();
        series.limit(1);
        series.ask(&key("a"), true);
        series.ask(&key("b"), true);
        series.ask(&key("b"), true);
        series.ask(&key("c"), false);
        let note = || {
            for name in ["a", "b", "c"] {
                series.note(&key(name), || Leadership::Led);
            }
        };
        note();
        assert_eq!(
            shown(&series),
            [
                r#"election_has_leader{namespace="shop",name="a"} 1"#,
                "election_series_left_out 1",
            ]
        );
        series.ask(&key("a"), false);
        note();
        assert_eq!(
            shown(&series),
            [r#"election_has_leader{namespace="shop",name="b"} 1"#]
        );
        series.ask(&key("b"), false);
        assert!(shown(&series).is_empty());
    }

    #[test]
    fn a_leader_whose_pod_has_ended_does_not_count_as_one() {
        let led = LeaderElectionStatus {
            leader: Some(Leader {
                node: "n".to_owned(),
                fencing_token: Some("7".to_owned()),
                ..Leader::default()
            }),
            ..LeaderElectionStatus::default()
        };
        let with = |token: &str, has_ended| Projection {
            outlook: Some(Outlook {
                node: "n".to_owned(),
                token: Some(token.to_owned()),
                cause: None,
                has_ended,
            }),
            ..Projection::default()
        };
        let of = |status: &LeaderElectionStatus, projection: Option<Projection>| {
            Leadership::of(Some(status), projection.as_ref())
        };
        assert_eq!(of(&led, None), Leadership::Led);
        assert_eq!(of(&led, Some(with("7", false))), Leadership::Led);
        assert_eq!(of(&led, Some(with("7", true))), Leadership::Leaderless);
        // That was another term in the same node.
        assert_eq!(of(&led, Some(with("6", true))), Leadership::Led);
        let nobody = LeaderElectionStatus::default();
        assert_eq!(of(&nobody, None), Leadership::Leaderless);
        let mut several = nobody.clone();
        several.exclusivity = Some(Exclusivity::MultiLeader);
        assert_eq!(of(&several, None), Leadership::Led);
        let mut waits = led.clone();
        if let Some(leader) = &mut waits.leader {
            leader.acknowledged = Some(false);
        }
        assert_eq!(of(&waits, None), Leadership::Leaderless);
        let mut blind = led;
        blind.stale_since = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            jiff::Timestamp::UNIX_EPOCH,
        ));
        assert_eq!(of(&blind, None), Leadership::Unobserved);
        assert_eq!(Leadership::of(None, None), Leadership::Unobserved);
    }
}
