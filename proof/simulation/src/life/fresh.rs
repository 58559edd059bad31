//! The same manifest applied to an empty cluster: after all that happened, a life has to end in the
//! same objects.

use std::time::Duration;

use bellwether_api_server::Kind;
use bellwether_ensemble::rules::Rules;
use serde_json::Value;

use super::{Life, Options};
use crate::checks::picture::{Picture, View, differences, picture};
use crate::cluster::{NAME, NAMESPACE};

/// Changes the seed, so that the fresh ensemble meets other chances.
const OTHER: u64 = 0xF4E5;
/// How long a fresh ensemble may take to be as asked for.
const PATIENCE: Duration = Duration::from_secs(300);
/// For how long the operator writes nothing when all is done: it looks every five seconds.
const QUIET: Duration = Duration::from_secs(6);
/// How many differences are reported.
const TOLD: usize = 6;

impl Life {
    /// Compares the objects at the end of this life with what the same manifest gives in an empty cluster,
    /// under the operator version that runs now. It takes the place of this life's cluster in virtual time.
    pub(super) async fn compare_with_fresh(&mut self) {
        let here = self.picture();
        // The time from here on does not belong to this life.
        self.story.seconds = self.cluster.now().as_secs_f64();
        let operators = std::mem::take(&mut self.operators);
        operators.iter().for_each(|process| process.task.abort());
        let mut fresh = self.fresh();
        fresh.settle().await;
        if let Some(violation) = fresh.story.violations.first() {
            self.violate(format!("applied to an empty cluster: {violation}"));
            return;
        }
        self.count("compared with a fresh ensemble".to_owned());
        let found = differences(&here, &fresh.picture());
        if !found.is_empty() {
            let more = found.len().saturating_sub(TOLD);
            let told = found[..found.len() - more].join("; ");
            let more = match more {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            self.violate(format!(
                "the objects are not those of the same manifest applied fresh: {told}{more}"
            ));
        }
    }

    fn picture(&self) -> Picture {
        let count = |count: &Value| count.as_u64().and_then(|n| u16::try_from(n).ok());
        let view = View {
            wanted: count(&self.spec["replicas"]).unwrap_or(0),
            observers: count(&self.spec["observers"]["replicas"]).unwrap_or(0),
            deletes: self.deletes,
            version: self.version,
        };
        picture(&self.cluster.api.store(), view)
    }

    /// A life that begins with what the user asks for now, and in which every rule holds.
    fn fresh(&self) -> Self {
        let options = Options {
            seed: self.story.seed ^ OTHER,
            rules: Rules::ALL,
            ..Options::default()
        };
        let mut fresh = Self::new(&options, 0, self.deletes);
        fresh.before = self.before + self.cluster.now();
        fresh.spec = self.spec.clone();
        fresh.version = self.version;
        fresh.apply();
        // Annotations of the user ask for something too.
        let target = (NAMESPACE, NAME);
        let annotations = {
            let store = self.cluster.api.store();
            let ensemble = store.get(Kind::ENSEMBLE, NAMESPACE, NAME);
            ensemble.map(|e| e["metadata"]["annotations"].clone())
        };
        if let Some(annotations) = annotations.filter(Value::is_object) {
            let mut store = fresh.cluster.api.store();
            let _ = store.update("user", Kind::ENSEMBLE, target, |ensemble| {
                ensemble["metadata"]["annotations"] = annotations;
            });
        }
        fresh
    }

    /// Lives until all is as asked for and the operator writes nothing any more.
    async fn settle(&mut self) {
        bellwether_virtual_time::set_ahead(0);
        self.start_operator();
        let mut quiet_since = Duration::ZERO;
        let mut written = 0;
        while self.story.violations.is_empty() {
            self.go_on(Duration::from_millis(500)).await;
            let now = self.cluster.now();
            let counts = self.checks.writes.iter();
            let writes = counts.filter(|(what, _)| !what.ends_with("Lease"));
            let writes: usize = writes.map(|(_, count)| count).sum();
            if writes != written || !self.is_as_asked() {
                (written, quiet_since) = (writes, now);
            } else if now >= quiet_since + QUIET {
                return;
            }
            if now > PATIENCE {
                let message = self.last_message.clone();
                self.violate(format!(
                    "it is not as asked for after {PATIENCE:?}: {message}"
                ));
            }
        }
    }
}
