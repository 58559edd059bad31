//! What the operator counts, in Prometheus' terms.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bellwether_api::ensemble::{MemberRole, Phase};
use bellwether_ensemble::plan::report::Report;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EnsembleLabels {
    namespace: String,
    name: String,
}

/// Counters of the ensemble controller; clones count together.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Arc<Mutex<Registry>>,
    reconciles: Family<ReconcileLabels, Counter>,
    seconds: Histogram,
    writes: Counter,
    restarts: Counter,
    members: Family<EnsembleLabels, Gauge>,
    serving: Family<EnsembleLabels, Gauge>,
    leader: Family<EnsembleLabels, Gauge>,
    ready: Family<EnsembleLabels, Gauge>,
}

impl Metrics {
    /// Counters in a registry of their own, together with those that `more` adds.
    pub(crate) fn new(more: impl FnOnce(&mut Registry)) -> Self {
        let mut registry = Registry::with_prefix("bellwether");
        let this = Self {
            registry: Arc::default(),
            reconciles: Family::default(),
            seconds: Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0]),
            writes: Counter::default(),
            restarts: Counter::default(),
            members: Family::default(),
            serving: Family::default(),
            leader: Family::default(),
            ready: Family::default(),
        };
        registry.register(
            "reconciles",
            "Reconciles, by outcome",
            this.reconciles.clone(),
        );
        registry.register(
            "reconcile_seconds",
            "Duration of a reconcile",
            this.seconds.clone(),
        );
        registry.register(
            "api_writes",
            "Objects and statuses written",
            this.writes.clone(),
        );
        registry.register(
            "member_restarts",
            "Members that were restarted",
            this.restarts.clone(),
        );
        registry.register(
            "ensemble_members",
            "Member pods that exist",
            this.members.clone(),
        );
        registry.register(
            "ensemble_serving_members",
            "Members that serve",
            this.serving.clone(),
        );
        registry.register(
            "ensemble_leader_server_id",
            "Server id of the leader; 0 without one",
            this.leader.clone(),
        );
        registry.register(
            "ensemble_ready",
            "1 when every wanted member serves as wanted",
            this.ready.clone(),
        );
        more(&mut registry);
        Self {
            registry: Arc::new(Mutex::new(registry)),
            ..this
        }
    }

    /// The text that Prometheus scrapes.
    pub(crate) fn text(&self) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        match encode(&mut text, &registry) {
            Ok(()) => text,
            Err(_) => String::new(),
        }
    }

    /// Starts the clock of a reconcile.
    pub(crate) fn reconcile_started(&self, kind: &'static str) -> Running {
        Running {
            metrics: self.clone(),
            kind,
            since: Instant::now(),
        }
    }

    /// An object or a status was written.
    pub(crate) fn written(&self) {
        self.writes.inc();
    }

    /// A member was restarted.
    pub(crate) fn restarted(&self) {
        self.restarts.inc();
    }

    /// An ensemble was looked at.
    pub(crate) fn observe(&self, namespace: &str, name: &str, report: &Report) {
        let labels = EnsembleLabels {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let serving = report.members.iter().filter(|m| m.role.serves()).count();
        let leader = report.members.iter().find(|m| m.role == MemberRole::Leader);
        self.members
            .get_or_create(&labels)
            .set(count(report.members.len()));
        self.serving.get_or_create(&labels).set(count(serving));
        self.leader
            .get_or_create(&labels)
            .set(leader.map_or(0, |m| i64::from(m.id.0)));
        self.ready
            .get_or_create(&labels)
            .set(i64::from(report.phase == Phase::Ready));
    }

    /// An ensemble is gone.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        let labels = EnsembleLabels {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        for family in [&self.members, &self.serving, &self.leader, &self.ready] {
            family.remove(&labels);
        }
    }
}

/// A reconcile that is under way.
pub(crate) struct Running {
    metrics: Metrics,
    kind: &'static str,
    since: Instant,
}

impl Running {
    /// It ended.
    pub(crate) fn done(self, outcome: &'static str) {
        let labels = ReconcileLabels {
            kind: self.kind,
            outcome,
        };
        self.metrics.reconciles.get_or_create(&labels).inc();
        self.metrics
            .seconds
            .observe(self.since.elapsed().as_secs_f64());
    }
}
