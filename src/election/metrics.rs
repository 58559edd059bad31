//! What the mirror counts.

use std::time::Duration;

use bellwether_api::LeaderElectionStatus;
use bellwether_api::election::{ConditionType, EndOfTerm, Reason};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::Key;
use super::series::{Leadership, OwnSeries, UNKNOWN};

/// The counters of the mirror; clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    /// Elections that are mirrored now.
    pub(super) elections: Gauge,
    /// Sessions to ensembles that are up now.
    pub(super) sessions: Gauge,
    /// Reads of elections, by outcome.
    pub(super) reads: Family<Outcome, Counter>,
    /// Writes of statuses, by outcome.
    pub(super) writes: Family<Outcome, Counter>,
    /// Writes of what elections are projected to, by outcome.
    pub(super) projections: Family<Outcome, Counter>,
    /// From the event in ZooKeeper to the projections being written, in seconds.
    pub(super) event_to_projection: Histogram,
    /// Elections by each of their conditions.
    conditions: Family<Condition, Gauge>,
    /// Leaders that a status was written for.
    pub(super) leader_changes: Counter,
    /// From the event in ZooKeeper to the status being written, in seconds.
    pub(super) event_to_status: Histogram,
    /// Terms of leaders whose end was written, by cause.
    terms_ended: Family<Cause, Counter>,
    /// The series of single elections.
    pub(super) own: OwnSeries,
}

/// What ended a term.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

/// A condition of elections. A single election has no series of its own: there may be ten thousand.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Condition {
    r#type: &'static str,
    status: &'static str,
    reason: &'static str,
}

/// How something went.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Outcome {
    outcome: &'static str,
}

impl Outcome {
    pub(super) const OK: Self = Self { outcome: "ok" };
    pub(super) const CONFLICT: Self = Self {
        outcome: "conflict",
    };
    pub(super) const FAILED: Self = Self { outcome: "failed" };
}

impl Condition {
    /// Only words of this version become labels: an object may carry any text.
    fn from_api(
        condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition,
    ) -> Option<Self> {
        let mut types = ConditionType::ALL.iter().map(|type_| type_.as_str());
        let mut reasons = Reason::ALL.iter().map(|reason| reason.as_str());
        Some(Self {
            r#type: types.find(|word| *word == condition.type_)?,
            status: match condition.status.as_str() {
                "True" => "true",
                "False" => "false",
                _ => "unknown",
            },
            reason: reasons
                .find(|word| *word == condition.reason)
                .unwrap_or("Other"),
        })
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let buckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
        let this = Self {
            elections: Gauge::default(),
            sessions: Gauge::default(),
            reads: Family::default(),
            writes: Family::default(),
            projections: Family::default(),
            event_to_projection: Histogram::new(buckets),
            conditions: Family::default(),
            leader_changes: Counter::default(),
            event_to_status: Histogram::new(buckets),
            terms_ended: Family::default(),
            own: OwnSeries::default(),
        };
        // From 0, so that a rate shows the first one.
        for family in [&this.reads, &this.writes, &this.projections] {
            for outcome in [Outcome::OK, Outcome::CONFLICT, Outcome::FAILED] {
                drop(family.get_or_create(&outcome));
            }
        }
        for cause in EndOfTerm::ALL.map(EndOfTerm::as_str) {
            drop(this.terms_ended.get_or_create(&Cause { cause }));
        }
        this
    }
}

impl Metrics {
    /// Makes the counters visible in a registry.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let elections = "Elections that are mirrored";
        registry.register("election_mirrors", elections, self.elections.clone());
        let sessions = "ZooKeeper sessions of the mirror that are up";
        registry.register("election_sessions", sessions, self.sessions.clone());
        registry.register(
            "election_reads",
            "Reads of elections, by outcome: ok or failed",
            self.reads.clone(),
        );
        registry.register(
            "election_writes",
            "Writes of statuses of elections, by outcome: ok, conflict (tried again) or failed",
            self.writes.clone(),
        );
        let projections = "Writes of Leases, Services, EndpointSlices and labels of pods, by outcome: ok, conflict (tried again) or failed";
        registry.register(
            "election_projection_writes",
            projections,
            self.projections.clone(),
        );
        let latency = "From the event in ZooKeeper to the written projections";
        registry.register_with_unit(
            "election_event_to_projection",
            latency,
            Unit::Seconds,
            self.event_to_projection.clone(),
        );
        let conditions = "Elections by the status and the reason of each of their conditions";
        registry.register("election_conditions", conditions, self.conditions.clone());
        let changes = "Changes of a leader that were written";
        registry.register(
            "election_leader_changes",
            changes,
            self.leader_changes.clone(),
        );
        let latency = "From the event in ZooKeeper to the written status, of changes of the leader";
        registry.register_with_unit(
            "election_event_to_status",
            latency,
            Unit::Seconds,
            self.event_to_status.clone(),
        );
        registry.register(
            "election_terms_ended",
            "Terms of leaders whose end was written, by cause; Unknown where the leader's pod was not known",
            self.terms_ended.clone(),
        );
        registry.register_collector(Box::new(self.own.clone()));
    }

    /// Sets how many elections may have series of their own.
    pub(crate) fn limit_series(&self, limit: usize) {
        self.own.limit(limit);
    }

    /// Counts the end of a leader's term.
    pub(super) fn term_ended(&self, key: &Key, cause: Option<EndOfTerm>) {
        let cause = cause.map_or(UNKNOWN, EndOfTerm::as_str);
        self.terms_ended.get_or_create(&Cause { cause }).inc();
        self.own.ended(key, cause);
    }

    /// Gives every family a series, so that its labels show.
    pub(crate) fn show_every_family(&self) {
        let condition = Condition {
            r#type: ConditionType::Synced.as_str(),
            status: "true",
            reason: Reason::Watching.as_str(),
        };
        self.conditions.get_or_create(&condition).inc();
        let key = Key {
            namespace: "namespace".to_owned(),
            name: "name".to_owned(),
        };
        self.own.limit(1);
        self.own.ask(&key, true);
        self.own.note(&key, || Leadership::Led);
    }

    pub(super) fn count_read(&self, outcome: &Outcome) {
        self.reads.get_or_create(outcome).inc();
    }

    pub(super) fn wrote(&self, outcome: &Outcome) {
        self.writes.get_or_create(outcome).inc();
    }

    /// Counts the conditions of a status that replaces another; `None` before the election exists and after
    /// its deletion.
    pub(super) fn replaced(
        &self,
        old: Option<&LeaderElectionStatus>,
        new: Option<&LeaderElectionStatus>,
    ) {
        let known = |status: Option<&LeaderElectionStatus>| -> Vec<Condition> {
            let conditions = status.into_iter().flat_map(|status| &status.conditions);
            conditions.filter_map(Condition::from_api).collect()
        };
        let (old, new) = (known(old), known(new));
        // Most statuses differ in something else.
        if old == new {
            return;
        }
        for condition in old {
            self.conditions.get_or_create(&condition).dec();
        }
        for condition in new {
            self.conditions.get_or_create(&condition).inc();
        }
    }

    pub(super) fn projected(&self, outcome: &Outcome) {
        self.projections.get_or_create(outcome).inc();
    }

    pub(super) fn projection_took(&self, latency: Duration) {
        self.event_to_projection.observe(latency.as_secs_f64());
    }

    pub(super) fn took(&self, latency: Duration) {
        self.event_to_status.observe(latency.as_secs_f64());
    }
}

/// One more in a gauge for as long as this lives.
pub(super) struct Counted(Gauge);

impl Counted {
    pub(super) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use bellwether_api::election::ConditionType;
    use prometheus_client::encoding::text::encode;

    use super::super::events::tests::told;
    use super::*;

    fn synced(status: &str, reason: &str) -> LeaderElectionStatus {
        told(ConditionType::Synced, status, reason)
    }

    #[test]
    fn each_election_counts_once_under_what_it_says_now() {
        let metrics = Metrics::default();
        let count = |status: &str, reason: &str| -> i64 {
            let mut registry = Registry::default();
            metrics.register(&mut registry);
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let series = format!(
                "election_conditions{{type=\"Synced\",status=\"{status}\",reason=\"{reason}\"}} "
            );
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(&series));
            value.map_or(0, |value| value.parse().unwrap())
        };
        let (good, blind) = (synced("True", "Watching"), synced("False", "Disconnected"));
        metrics.replaced(None, Some(&good));
        metrics.replaced(None, Some(&good));
        metrics.replaced(Some(&good), Some(&blind));
        metrics.replaced(Some(&blind), Some(&blind));
        assert_eq!(
            (count("true", "Watching"), count("false", "Disconnected")),
            (1, 1)
        );
        metrics.replaced(Some(&blind), None);
        assert_eq!(
            (count("true", "Watching"), count("false", "Disconnected")),
            (1, 0)
        );
        // An object may carry any reason; a label may not.
        metrics.replaced(None, Some(&synced("True", "Made up by somebody")));
        assert_eq!(count("true", "Other"), 1);
    }
}
