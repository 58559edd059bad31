//! What the mirror counts.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

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
    /// Leaders that a status was written for.
    pub(super) leader_changes: Counter,
    /// From the event in ZooKeeper to the status being written, in seconds.
    pub(super) event_to_status: Histogram,
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

impl Default for Metrics {
    fn default() -> Self {
        let buckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
        Self {
            elections: Gauge::default(),
            sessions: Gauge::default(),
            reads: Family::default(),
            writes: Family::default(),
            projections: Family::default(),
            event_to_projection: Histogram::new(buckets),
            leader_changes: Counter::default(),
            event_to_status: Histogram::new(buckets),
        }
    }
}

impl Metrics {
    /// Makes the counters visible in a registry.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let elections = "Elections that are mirrored";
        registry.register("election_mirrors", elections, self.elections.clone());
        let sessions = "ZooKeeper sessions of the mirror that are up";
        registry.register("election_sessions", sessions, self.sessions.clone());
        registry.register("election_reads", "Reads of elections", self.reads.clone());
        registry.register("election_writes", "Writes of statuses", self.writes.clone());
        let projections = "Writes of Leases, Services, EndpointSlices and labels of pods";
        registry.register(
            "election_projection_writes",
            projections,
            self.projections.clone(),
        );
        let latency = "Seconds from the event in ZooKeeper to the written projections";
        registry.register(
            "election_event_to_projection_seconds",
            latency,
            self.event_to_projection.clone(),
        );
        let changes = "Changes of a leader that were written";
        registry.register(
            "election_leader_changes",
            changes,
            self.leader_changes.clone(),
        );
        let latency = "Seconds from the event in ZooKeeper to the written status";
        registry.register(
            "election_event_to_status_seconds",
            latency,
            self.event_to_status.clone(),
        );
    }

    pub(super) fn read(&self, outcome: &Outcome) {
        self.reads.get_or_create(outcome).inc();
    }

    pub(super) fn wrote(&self, outcome: &Outcome) {
        self.writes.get_or_create(outcome).inc();
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
