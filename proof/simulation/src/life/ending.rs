//! The end of a life: nothing goes wrong any more, all becomes as asked for, and then it is quiet.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_api_server::Kind;

use super::observing::voters;
use super::{Later, Life};
use crate::checks::{Circumstances, is_of_template};
use crate::cluster::{ENSEMBLE, NAME, NAMESPACE};

/// How long an ensemble may take to be as asked for, once nothing goes wrong any more: a crash loop's pause
/// of five minutes, a start, and thirteen rolls.
const PATIENCE: Duration = Duration::from_secs(1500);
/// How long it has for what is left to write: an operator that just started waits for the lease, and what an admission webhook
/// refused is tried again after a minute (`Retry::Slow`).
const SETTLING: Duration = Duration::from_secs(75);
/// How long it is looked at afterwards.
const REST: Duration = Duration::from_secs(30);
/// How far an operator's clock may be behind the cluster's.
const CLOCKS: Duration = Duration::from_secs(120);
/// The most reads of an operator in a second at rest: one that waits for the lease reads it every 1.5 s, and watches
/// end now and then.
const READS_AT_REST: f64 = 1.0;

impl Life {
    /// What a look at the status has to know.
    pub(super) fn circumstances(&self) -> Circumstances {
        let hinders = |later: &Later| {
            matches!(
                later,
                Later::StartOperator
                    | Later::Hear(_)
                    | Later::Connect(_)
                    | Later::Continue(_)
                    | Later::StopFailing
                    | Later::ThawCaches(_)
                    | Later::Move(..)
            )
        };
        let holds_up = self.trouble().holds_up();
        let hindered = holds_up
            || self.cluster.now() < self.retries_until
            || self.operators.is_empty()
            || !self.cluster.has_identity()
            || self.later.iter().any(|(_, later)| hinders(later));
        Circumstances {
            hindered,
            faulty: !self.later.is_empty(),
            as_asked: self.refused || self.is_as_asked(),
            behind: self.clocks.as_ref().map_or(Duration::ZERO, |_| CLOCKS),
        }
    }

    /// Whether the ensemble is as asked for.
    pub(super) fn is_as_asked(&self) -> bool {
        // The status may be that of a moment ago, as while another operator waits for the lease.
        if !self.observers_are_as_asked()
            || !self.voters_serve(None)
            || !self.cluster.has_identity()
        {
            return false;
        }
        let store = self.cluster.api.store();
        let Some(ensemble) = store.get(Kind::ENSEMBLE, NAMESPACE, NAME) else {
            return false;
        };
        let wanted = self.spec["replicas"].as_u64().unwrap_or_default();
        let Some(set) = store.get(Kind::STATEFUL_SET, NAMESPACE, NAME) else {
            return false;
        };
        let update = set["status"]["updateRevision"].as_str();
        let pods = voters(&store);
        let count = u64::try_from(pods.len()).unwrap_or_default();
        ensemble["status"]["phase"] == "Ready"
            && ensemble["status"]["observedGeneration"] == ensemble["metadata"]["generation"]
            && count == wanted
            && pods.iter().all(|p| {
                let template = Some(&set["spec"]["template"]);
                !p.is_terminating() && is_of_template(p, template, update)
            })
    }

    /// Nothing goes wrong any more: in the end all is as asked for, and then it is quiet.
    pub(super) async fn end(&mut self) {
        self.tell("END of faults");
        self.trouble().failing = false;
        self.trouble().dies_after = None;
        self.trouble().stops_after = None;
        let faults = std::mem::take(&mut self.later);
        for (_, what) in faults {
            self.end_of(what);
        }
        let begin = self.cluster.now();
        loop {
            if !self.story.violations.is_empty() {
                return;
            }
            self.go_on(Duration::from_secs(2)).await;
            self.delete_left_over();
            self.replace_disks();
            self.end_orphans();
            self.accept_nothing();
            if self.is_as_asked() {
                break;
            }
            if self.cluster.now() > begin + PATIENCE {
                let message = self.last_message.clone();
                self.violate(format!(
                    "it is not as asked for after {PATIENCE:?}: {message}"
                ));
                return;
            }
        }
        self.go_on(SETTLING).await;
        let before = self.trouble().clone();
        let written = self.checks.writes.clone();
        self.go_on(REST).await;
        self.cluster.machines().zoo.check(ENSEMBLE);
        self.look();
        let rest = |writes: &BTreeMap<String, usize>| {
            let mut writes = writes.clone();
            writes.retain(|what, _| !what.ends_with("Lease"));
            writes
        };
        let (before_writes, mut after) = (rest(&written), rest(&self.checks.writes));
        after.retain(|what, count| before_writes.get(what) != Some(count));
        if !after.is_empty() {
            self.violate(format!("the operator still writes at rest: {after:?}"));
        }
        let reads = self.trouble().reads - before.reads;
        #[allow(clippy::cast_precision_loss, reason = "a few hundred")]
        let rate = reads as f64 / REST.as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "at most a few")]
        let operators = self.operators.len() as f64;
        if rate > READS_AT_REST * operators {
            self.violate(format!(
                "the operator reads {rate:.1} times a second at rest"
            ));
        }
    }
}
