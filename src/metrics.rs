//! What the operator counts, in Prometheus' terms.
//!
//! Labels have few values: kinds, outcomes, reasons of conditions. Each ensemble has series of its own
//! ([`ensembles`]), since there are few; elections are counted together, since there may be ten thousand, and only those that
//! ask for it have series of their own.

mod ensembles;
mod process;
mod reference;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bellwether_api::ensemble::ZooKeeperEnsembleStatus;
use bellwether_ensemble::plan::report::Report;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use ensembles::{Ensembles, Key};
pub use reference::reference;

/// The prefix of every metric of the operator's own.
const PREFIX: &str = "bellwether";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Counters of the ensemble controller; clones count together.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    reconciles: Family<ReconcileLabels, Counter>,
    seconds: Histogram,
    writes: Family<KindLabels, Counter>,
    probes: Histograms<OutcomeLabels>,
    lease: Gauge,
    ensembles: Arc<Ensembles>,
}

/// An answer over a cluster's network takes about a millisecond; a probe of a member ends after two seconds.
fn probe_buckets() -> Histogram {
    Histogram::new([
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0,
    ])
}

impl Metrics {
    /// Counters in a registry of their own, together with those that `more` adds.
    pub fn new(more: impl FnOnce(&mut Registry)) -> Self {
        let this = Self {
            registry: Arc::default(),
            reconciles: Family::default(),
            seconds: Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0]),
            writes: Family::default(),
            probes: Family::new_with_constructor(probe_buckets),
            lease: Gauge::default(),
            ensembles: Arc::default(),
        };
        // From 0, so that a rate shows the first one.
        for outcome in ["done", "invalid", "failed"] {
            drop(this.reconciles.get_or_create(&ReconcileLabels {
                kind: "ZooKeeperEnsemble",
                outcome,
            }));
        }
        let mut all = Registry::default();
        let registry = all.sub_registry_with_prefix(PREFIX);
        registry.register(
            "build",
            "The version that runs",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        registry.register(
            "lease_held",
            "1 while this replica holds the operator's lease: it is the one that acts",
            this.lease.clone(),
        );
        registry.register(
            "reconciles",
            "Reconciles, by outcome: done, waits (nothing changed since a pass failed), invalid (the spec is refused), failed, gone, or unreadable",
            this.reconciles.clone(),
        );
        registry.register_with_unit(
            "reconcile",
            "Duration of a reconcile",
            Unit::Seconds,
            this.seconds.clone(),
        );
        registry.register(
            "api_writes",
            "Objects and statuses of ensembles that were written, by kind",
            this.writes.clone(),
        );
        registry.register_with_unit(
            "member_probe",
            "How long a member took to say what it is: serving, looking (for a leader), or unreachable",
            Unit::Seconds,
            this.probes.clone(),
        );
        registry.register_collector(Box::new(this.ensembles.clone()));
        more(registry);
        process::register(&mut all);
        Self {
            registry: Arc::new(Mutex::new(all)),
            ..this
        }
    }

    /// The text that Prometheus scrapes.
    pub fn text(&self) -> String {
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
            outcome: "failed",
        }
    }

    /// Records whether this replica holds the lease.
    pub(crate) fn lease(&self, held: bool) {
        self.lease.set(i64::from(held));
    }

    /// Counts a write of an object or a status.
    pub(crate) fn written(&self, kind: &'static str) {
        self.writes.get_or_create(&KindLabels { kind }).inc();
    }

    /// Counts a probe of a member by its outcome: `serving`, `looking` or `unreachable`.
    pub(crate) fn probed(&self, outcome: &'static str, took: Duration) {
        let probes = self.probes.get_or_create(&OutcomeLabels { outcome });
        probes.observe(took.as_secs_f64());
    }

    /// Counts a restart of a member.
    pub(crate) fn restarted(&self, namespace: &str, name: &str) {
        self.ensembles.restarted(Key::new(namespace, name));
    }

    /// Records an observation of an ensemble whose spec asks for `wanted` voters.
    pub(crate) fn observe(
        &self,
        (namespace, name): (&str, &str),
        wanted: i32,
        report: &Report,
        status: &ZooKeeperEnsembleStatus,
    ) {
        let key = Key::new(namespace, name);
        self.ensembles.observe(key, wanted, report, status);
    }

    /// Drops the series of ensembles that do not exist. `exists` takes a namespace and a name; if several are
    /// given, an ensemble exists if one of them returns true.
    pub(crate) fn watch(&self, exists: impl Fn(&str, &str) -> bool + Send + Sync + 'static) {
        self.ensembles.watch(Box::new(exists));
    }

    /// Drops the series of an ensemble that was deleted.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        self.ensembles.forget(&Key::new(namespace, name));
    }
}

/// A running reconcile. If it is dropped without an outcome, it counts as failed.
pub(crate) struct Running {
    metrics: Metrics,
    kind: &'static str,
    since: Instant,
    outcome: &'static str,
}

impl Running {
    /// Records the outcome.
    pub(crate) fn done(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let labels = ReconcileLabels {
            kind: self.kind,
            outcome: self.outcome,
        };
        self.metrics.reconciles.get_or_create(&labels).inc();
        let took = self.since.elapsed().as_secs_f64();
        self.metrics.seconds.observe(took);
    }
}

#[cfg(test)]
mod tests;
