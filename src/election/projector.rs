//! Keeps Leases, Services and labels of pods in line with elections.
//!
//! One task knows the statuses, the pods and what exists, and starts one [`job`] at a time for each
//! election for which something may have to be done. Nothing is done without the operator's lease, and
//! the watches begin when it is held: what they list then is newer than anything that another holder
//! wrote.

mod claims;
mod entry;
mod feed;
mod handovers;
mod job;
mod nodes;
mod pod_requests;
mod pod_watches;
mod requests;
mod rollouts;
mod store;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::lease::Held;
use bellwether_api::LeaderElection;
use bellwether_election::guards::Guard;
use bellwether_election::handover::annotation;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use kube::{Client, ResourceExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{Instrument as _, Span, info, warn};

use self::entry::{Entry, JobContext, Sight};
use self::feed::Observation;
use self::job::{JobResult, Objects};
use self::nodes::CordonedNodes;
use self::pod_watches::PodWatches;
use self::requests::ProjectionClient;
use self::store::ProjectionStore;
use self::turns::Turns;
use super::messages::{ElectionUpdate, WriterInput};
use super::metrics::Metrics;
use super::registry::Task;
use super::{Key, Scope};

/// How many observations may wait.
const OBSERVATIONS: usize = 256;

/// How long to wait after a failure, times the number of failures in a row, up to a limit.
const FAILURE_PAUSE: Duration = Duration::from_secs(2);
const MAX_FAILURE_PAUSE: Duration = Duration::from_secs(30);

/// How long changes of pods are gathered. A change of the leader does not wait.
const GATHER: Duration = Duration::from_millis(50);

/// How often labels of elections that do not exist are looked for.
const SWEEP: Duration = Duration::from_secs(30);

/// Of how many such elections labels are removed at the same time.
const SWEPT: usize = 8;

/// The end of a job.
enum End {
    Election {
        key: Key,
        uid: String,
        /// What the job was started from; `None` if there is nothing to report.
        context: Option<Box<JobContext>>,
        done: Box<JobResult>,
    },
    Release {
        namespace: String,
        uid: String,
        done: Box<JobResult>,
    },
}

/// The projector.
pub(super) struct Projector {
    client: ProjectionClient,
    scope: Scope,
    inputs: mpsc::Sender<WriterInput>,
    observations: mpsc::Sender<Observation>,
    inbox: mpsc::Receiver<Observation>,
    /// All elections, by uid.
    elections: HashMap<String, Arc<LeaderElection>>,
    /// Elections that are or were projected to something.
    entries: HashMap<Key, Box<Entry>>,
    pod_watches: PodWatches,
    cordoned: CordonedNodes,
    store: ProjectionStore,
    /// The watches of what exists; none before the lease is held.
    watches: Vec<Task>,
    turns: Turns,
    jobs: FuturesUnordered<BoxFuture<'static, End>>,
}

impl Projector {
    pub(super) fn new(
        client: Client,
        scope: Scope,
        lease: Held,
        inputs: mpsc::Sender<WriterInput>,
        metrics: Metrics,
    ) -> Self {
        let (observations, inbox) = mpsc::channel(OBSERVATIONS);
        Self {
            client: ProjectionClient {
                kube: client,
                lease,
                metrics,
            },
            scope,
            inputs,
            observations,
            inbox,
            elections: HashMap::new(),
            entries: HashMap::new(),
            pod_watches: PodWatches::default(),
            cordoned: CordonedNodes::default(),
            store: ProjectionStore::default(),
            watches: Vec::new(),
            turns: Turns::default(),
            jobs: FuturesUnordered::new(),
        }
    }

    /// Runs until the writer drops its sender, or one of the watches ends.
    pub(super) async fn run(mut self, mut updates: mpsc::UnboundedReceiver<ElectionUpdate>) {
        let mut lease = self.client.lease.clone();
        let mut lease_watched = true;
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.begin();
            let due = self.next_due();
            tokio::select! {
                update = updates.recv() => match update {
                    Some(update) => self.take(update),
                    None => return,
                },
                Some(observation) = self.inbox.recv() => self.observe(observation),
                Some(end) = self.jobs.next() => self.finish(end).await,
                changed = lease.changed(), if lease_watched => lease_watched = changed.is_ok(),
                _ = sweep.tick() => {
                    if self.watches.iter().any(Task::is_over)
                        || self.pod_watches.is_over()
                        || self.entries.values().any(|entry| entry.rollout.is_over())
                    {
                        warn!("a watch of what elections are projected to ended");
                        return;
                    }
                    self.sweep();
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
            self.start_due();
        }
    }

    fn holds_lease(&self) -> bool {
        self.client.lease.is_held()
    }

    /// Starts the watches as soon as the lease is held.
    fn begin(&mut self) {
        if self.watches.is_empty() && self.holds_lease() {
            self.watches = feed::projected(&self.client.kube, &self.scope, &self.observations);
            if self.scope.permissions.handover_on_cordon {
                let nodes = feed::cordoned_nodes(&self.client.kube, &self.observations);
                self.watches.push(nodes);
            }
            self.pod_watches
                .begin(&self.client.kube, &self.observations);
        }
    }

    /// The earliest time at which something may be done, if anything may.
    fn next_due(&self) -> Option<Instant> {
        self.turns.next().filter(|_| self.holds_lease())
    }

    fn take(&mut self, update: ElectionUpdate) {
        match update {
            ElectionUpdate::Election {
                object,
                status,
                sighting,
                owned,
                noticed,
            } => {
                let owned = match self.scope.guards.keep(Guard::OlderThanNode) {
                    true => owned,
                    false => Some(Timestamp::MAX),
                };
                let key = Key::of(&object.metadata);
                let uid = object.uid().unwrap_or_default();
                let concerned = self.concerns(&uid, &object);
                self.elections.insert(uid, object.clone());
                let entry = match self.entries.get_mut(&key) {
                    Some(entry) => {
                        let same = entry.status == status
                            && entry.owned == owned
                            && entry.object.spec == object.spec
                            && annotation(&entry.object) == annotation(&object);
                        let respecified = entry.object.spec != object.spec;
                        entry.object = object;
                        entry.status = status;
                        entry.sighting = sighting.clone();
                        if same {
                            return;
                        }
                        if respecified {
                            entry.respecify();
                        }
                        entry
                    }
                    None if !concerned => return,
                    None => {
                        let entry = Box::new(Entry::new(object, status));
                        self.entries.entry(key.clone()).or_insert(entry)
                    }
                };
                entry.sighting = sighting;
                entry.owned = owned;
                entry.noticed = entry.noticed.take().or(noticed);
                let pod_watch = match &entry.pod_watch {
                    Some(Ok(pod_watch)) => Some(pod_watch),
                    _ => None,
                };
                self.pod_watches
                    .assign(&key, pod_watch, &self.client.kube, &self.observations);
                self.hurry(&key);
            }
            ElectionUpdate::Confirmed(key) => self.hurry(&key),
            ElectionUpdate::Gone { key, uid } => {
                self.elections.remove(&uid);
                self.forget(&key);
                self.sweep();
            }
        }
    }

    /// Whether there is anything to do for an election: most are projected to nothing.
    fn concerns(&self, uid: &str, object: &LeaderElection) -> bool {
        object.spec.is_acted_on() || self.store.has(uid)
    }

    fn forget(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            if let Some(due) = entry.due {
                self.turns.remove(due, key);
            }
            self.pod_watches
                .assign(key, None, &self.client.kube, &self.observations);
        }
    }

    fn observe(&mut self, observation: Observation) {
        let now = Instant::now();
        let (changed, at) = match observation {
            Observation::Pod(pod_watch, event) => {
                (self.pod_watches.observe(pod_watch, event), now + GATHER)
            }
            Observation::Workload(key) => {
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.rollout.outdate();
                }
                (vec![key], now)
            }
            Observation::Answered(key) => (vec![key], now),
            Observation::CordonedNode(event) => match self.cordoned.observe(event) {
                true => (self.concerned_by_nodes(), now),
                false => return,
            },
            Observation::LabelledPod(event) => {
                let known = self.store.labels_known();
                let changed = self.store.observe_labelled_pod(event);
                let mut changed = self.keys(changed);
                if !known && self.store.labels_known() {
                    // Elections that label pods waited until the labelled pods were listed.
                    let waiting = self.entries.iter().filter(|(_, entry)| entry.labels_pods());
                    changed.extend(waiting.map(|(key, _)| key.clone()));
                }
                (changed, now)
            }
            Observation::OwnedObject(kind, event) => {
                let changed = self.store.observe_owned_object(kind, event);
                let (gone, changed): (Vec<_>, Vec<_>) =
                    changed.into_iter().partition(|(_, gone)| *gone);
                let gone = self.keys(gone.into_iter().map(|(uid, _)| uid));
                for key in &gone {
                    if let Some(entry) = self.entries.get_mut(key) {
                        entry.objects = Objects::default();
                        entry.reread = entry.running;
                    }
                }
                let mut changed = self.keys(changed.into_iter().map(|(uid, _)| uid));
                changed.extend(gone);
                (changed, now)
            }
        };
        for key in changed {
            self.schedule(&key, at);
        }
    }

    /// The elections whose leaders may have to be asked to hand over, since other nodes are cordoned than before.
    fn concerned_by_nodes(&mut self) -> Vec<Key> {
        let mut concerned = Vec::new();
        for (key, entry) in &mut self.entries {
            if entry.hands_over_on_cordon() {
                entry.asked_by_cordon.clear();
                concerned.push(key.clone());
            }
        }
        concerned
    }

    /// The elections with these uids, for which there may be something to do from now on.
    fn keys(&mut self, uids: impl IntoIterator<Item = String>) -> Vec<Key> {
        let objects = uids.into_iter().filter_map(|uid| self.elections.get(&uid));
        let mut keys = Vec::new();
        for object in objects {
            let key = Key::of(&object.metadata);
            self.entries
                .entry(key.clone())
                .or_insert_with(|| Box::new(Entry::new(object.clone(), None)));
            keys.push(key);
        }
        keys
    }

    /// Has an election looked at now, before a job that is running has labelled all pods.
    fn hurry(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get(key) {
            entry.outdates.store(true, Ordering::Relaxed);
        }
        self.schedule(key, Instant::now());
    }

    /// Has an election looked at, at this time or sooner.
    fn schedule(&mut self, key: &Key, at: Instant) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if entry.running {
            entry.again = true;
            return;
        }
        let at = entry.pace.next(true, at);
        if entry.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(due) = entry.due.replace(at) {
            self.turns.remove(due, key);
        }
        self.turns.insert(at, key.clone());
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        while self.next_due().is_some_and(|due| due <= now)
            && let Some(key) = self.turns.pop(now)
        {
            let namespace = key.namespace.clone();
            if !self.start(key) {
                self.turns.ended(&namespace);
            }
        }
    }

    /// Starts a job for an election, unless there is nothing to do.
    fn start(&mut self, key: Key) -> bool {
        let Some(entry) = self.entries.get_mut(&key) else {
            return false;
        };
        entry.due = None;
        let uid = entry.object.uid().unwrap_or_default();
        let projections = entry.object.spec.projections.as_ref();
        if !entry.object.spec.is_acted_on() && !self.store.has(&uid) {
            self.forget(&key);
            return false;
        }
        self.store.outdate(&uid, &mut entry.objects);
        let rollout = projections.and_then(|projections| projections.rollout.clone());
        entry.rollout.watch(
            rollout.as_ref(),
            &key,
            &self.client.kube,
            &self.observations,
        );
        let sight = Sight {
            store: &self.store,
            pod_watches: &self.pod_watches,
            cordoned: self.cordoned.names(),
            permissions: &self.scope.permissions,
            observations: &self.observations,
            is_holder: self.client.lease.is_held(),
        };
        let (job, context) = entry.job(sight, Instant::now());
        entry.running = true;
        entry.again = false;
        let span = entry.noticed.as_ref().map(|noticed| noticed.projecting());
        let span = span.unwrap_or_else(Span::none);
        let client = self.client.clone();
        self.jobs.push(Box::pin(async move {
            let done = Box::new(client.run(job).instrument(span.clone()).await);
            span.record("bellwether.writes", done.writes);
            span.record("bellwether.failures", done.failures.len());
            End::Election {
                key,
                uid,
                context,
                done,
            }
        }));
        true
    }

    async fn finish(&mut self, end: End) {
        match end {
            End::Release {
                namespace,
                uid,
                done,
            } => {
                self.turns.ended(&namespace);
                self.store.released(&uid);
                self.store_result(&namespace, *done);
            }
            End::Election {
                key,
                uid,
                context,
                mut done,
            } => {
                let objects = std::mem::take(&mut done.objects);
                let failures = std::mem::take(&mut done.failures);
                let (writes, is_partial) = (done.writes, done.is_partial);
                let looked = done.looked.take();
                let answered = done.answered.take();
                self.turns.ended(&key.namespace);
                self.store_result(&key.namespace, *done);
                let entry = self.entries.get_mut(&key);
                let Some(entry) = entry.filter(|entry| entry.object.uid().as_deref() == Some(&uid))
                else {
                    return;
                };
                entry.running = false;
                if writes > 0 {
                    entry.pace.wrote(true, Instant::now());
                }
                entry.objects = match std::mem::take(&mut entry.reread) {
                    true => Objects::default(),
                    false => objects,
                };
                let now = Instant::now();
                let mut next = entry.doubt(now);
                let rollout = looked.and_then(|looked| entry.rollout.looked(looked));
                let handover = answered.and_then(|answered| entry.answered(answered));
                let inquiry = entry.inquiry.again();
                for again in rollout.into_iter().chain(handover).chain(inquiry) {
                    next = Some(next.map_or(now + again, |next| next.min(now + again)));
                }
                if failures.is_empty() {
                    entry.failures = 0;
                    if let (Some(noticed), true) = (entry.noticed.take(), writes > 0) {
                        self.client.metrics.projection_took(noticed.elapsed());
                    }
                } else {
                    entry.failures = entry.failures.saturating_add(1);
                    let pause = (FAILURE_PAUSE * entry.failures).min(MAX_FAILURE_PAUSE);
                    next = Some(next.map_or(now + pause, |next| next.min(now + pause)));
                }
                if entry.again || is_partial || self.store.is_outdated(&uid, &entry.objects) {
                    next = Some(now);
                }
                if let Some(context) = context.filter(|_| !is_partial) {
                    let projected = entry.report(&key, &context, &failures);
                    if let Some(projected) = projected {
                        // Without a writer the whole mirror is about to end.
                        let _ = self
                            .inputs
                            .send(WriterInput::Projected(Box::new(projected)))
                            .await;
                    }
                } else if let Some(first) = failures.first() {
                    warn!(election = %key, reason = first.reason.as_str(), what = first.what, "leftovers of a projection");
                }
                if let Some(next) = next {
                    self.schedule(&key, next);
                }
            }
        }
    }

    /// Stores what a job wrote before the watches show it.
    fn store_result(&mut self, namespace: &str, done: JobResult) {
        for meta in done.pods {
            self.store.labelled(&meta);
        }
        for pod in done.gone {
            self.store.pod_gone(namespace, &pod);
        }
    }

    /// Removes labels of elections that do not exist: of some of them, if there are many.
    fn sweep(&mut self) {
        if !self.holds_lease() || !self.turns.has_room() {
            return;
        }
        for (namespace, uid, pods) in self.store.orphaned_labels(&self.elections, SWEPT) {
            self.turns.began(&namespace);
            info!(
                namespace,
                uid,
                pods = pods.len(),
                "pods are labelled by an unknown election"
            );
            let client = self.client.clone();
            self.jobs.push(Box::pin(async move {
                let done = Box::new(client.release(&namespace, &uid, pods).await);
                End::Release {
                    namespace,
                    uid,
                    done,
                }
            }));
        }
    }
}

#[cfg(test)]
mod tests;
