//! The only task that writes statuses of elections to the API server.
//!
//! Mirrors send what they see as notes; the last note for each object counts. The status is computed from it
//! and from what the object says, and is written only if it differs. Each write carries the resource version
//! that it was computed from, so that counters are exact, and two replicas that both believe to hold the
//! lease cannot overwrite each other.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::events::EventReason;
use bellwether_api::{FIELD_MANAGER, LeaderElection, LeaderElectionStatus};
use bellwether_election::projection::Projection;
use bellwether_election::{Sight, is_leader_change, status_and_projection};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use kube::api::PostParams;
use kube::runtime::events::Reporter;
use kube::{Api, Client, Resource, ResourceExt};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{Instrument as _, Span, debug, info, warn};

use super::Key;
use super::agenda::{Agenda, Due};
use super::events::events;
use super::metrics::{Metrics, Outcome};
use super::noticed::Noticed;
use super::pace::Pace;
use super::publisher::Publisher;
use super::sighting::Sighting;
use crate::lease::Held;

/// How many writes may be under way at the same time.
const CONCURRENT_WRITES: usize = 8;

/// How long one request to the API server may take, whatever the client would retry.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait after a write failed, times the number of failures in a row, up to a limit.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
const MAX_FAILURE_PAUSE: Duration = Duration::from_secs(30);

/// How often one status may be written: what is urgent so many times in a row, and then, as anything
/// else, once in this time.
const BURST: u32 = 4;
const GAP: Duration = Duration::from_secs(1);

/// A message to the writer.
#[derive(Debug)]
pub(super) enum WriterInput {
    /// The object as the API server has it.
    Object(Arc<LeaderElection>),
    /// The object was deleted.
    Gone(Key),
    /// What a mirror sees.
    Seen(Box<Seen>),
    /// The leader was read again, and leads.
    Confirmed(Key),
    /// The outcome of the projections.
    Projected(Box<Projected>),
}

/// What a mirror sees.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) key: Key,
    /// The object that the mirror was started for, and its generation.
    pub(super) uid: String,
    pub(super) generation: Option<i64>,
    pub(super) sight: Sight,
    /// When the leader was last read, from now on.
    pub(super) sighting: Sighting,
    /// When the event came that made the mirror look.
    pub(super) noticed: Noticed,
}

/// The outcome of an election's projections.
#[derive(Debug)]
pub(super) struct Projected {
    pub(super) key: Key,
    /// The object that it is about, and its generation.
    pub(super) uid: String,
    pub(super) generation: Option<i64>,
    pub(super) projection: Projection,
}

/// A message to the projector.
#[derive(Debug)]
pub(super) enum ElectionUpdate {
    /// An election as it is now.
    Election {
        object: Arc<LeaderElection>,
        /// Its status as of now, written or not, if it has projections and was seen.
        status: Option<Arc<LeaderElectionStatus>>,
        /// When its leader was last read, if that is known.
        sighting: Option<Sighting>,
        /// When the leader had to run at the latest, if that is known.
        owned: Option<Timestamp>,
        /// When the event came that made the mirror look, if it caused this update.
        noticed: Option<Noticed>,
    },
    /// The leader of the election was read again, and leads.
    Confirmed(Key),
    /// The election was deleted; another one may have its name.
    Gone {
        /// Its name.
        key: Key,
        /// Its uid.
        uid: String,
    },
}

/// Why a write did not happen.
#[derive(Debug, Error)]
enum WriteError {
    /// The object is not the one that the status was computed from.
    #[error("the object changed in between")]
    Conflict {
        /// The object as it is now.
        now: Box<LeaderElection>,
    },
    /// The lease is not held any more.
    #[error("the lease is not held")]
    NotHolder,
    /// The API server did not answer in time.
    #[error("no answer within {PATIENCE:?}")]
    Timeout,
    /// The API server refused.
    #[error("the API server refused")]
    Api(#[source] Box<kube::Error>),
}

impl WriteError {
    /// The error as one word.
    fn word(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "conflict",
            Self::NotHolder => "not holder",
            Self::Timeout | Self::Api(_) => "failed",
        }
    }
}

/// The end of a write: the object as it is now.
struct Done {
    key: Key,
    result: Result<LeaderElection, WriteError>,
}

/// What the writer knows about one object.
struct Entry {
    object: Arc<LeaderElection>,
    /// What a mirror sees, and the generation that it was started for.
    seen: Option<(Option<i64>, Sight)>,
    /// When the leader was last read.
    sighting: Option<Sighting>,
    projected: Option<Projected>,
    /// When the first event came that is not written yet.
    noticed: Option<Noticed>,
    pace: Pace,
    failures: u32,
    not_before: Option<Instant>,
    /// When to write; `None` if there is nothing to write or a write is under way.
    due: Option<Due>,
    writing: Option<Box<Writing>>,
}

/// A write under way.
struct Writing {
    old: Option<LeaderElectionStatus>,
    urgent: bool,
    noticed: Option<Noticed>,
}

/// The writer of statuses.
pub(super) struct Writer {
    client: Client,
    lease: Held,
    publisher: Publisher,
    /// Whether statuses wait to be written.
    busy: watch::Sender<bool>,
    views: mpsc::UnboundedSender<ElectionUpdate>,
    metrics: Metrics,
    entries: HashMap<Key, Box<Entry>>,
    /// The entries that have something to write.
    agenda: Agenda,
    writes: FuturesUnordered<BoxFuture<'static, Done>>,
}

impl Writer {
    pub(super) fn new(
        client: Client,
        lease: Held,
        reporter: Reporter,
        views: mpsc::UnboundedSender<ElectionUpdate>,
        metrics: Metrics,
    ) -> Self {
        let (busy, is_busy) = watch::channel(false);
        Self {
            publisher: Publisher::new(client.clone(), reporter, is_busy),
            busy,
            client,
            lease,
            views,
            metrics,
            entries: HashMap::new(),
            agenda: Agenda::default(),
            writes: FuturesUnordered::new(),
        }
    }

    /// Writes until every sender is dropped, or events cannot be published.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<WriterInput>) {
        let mut lease = self.lease.clone();
        let mut lease_watched = true;
        loop {
            let due = self.next_due();
            tokio::select! {
                note = inbox.recv() => match note {
                    Some(note) => self.take(note),
                    None => return,
                },
                Some(done) = self.writes.next() => self.finish(done),
                changed = lease.changed(), if lease_watched => {
                    lease_watched = changed.is_ok();
                    debug!(held = lease.is_held(), "the lease changed");
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
            self.write_due();
            if self.publisher.is_over() {
                return;
            }
        }
    }

    /// The earliest time at which something may be written, if anything may.
    fn next_due(&self) -> Option<Instant> {
        if !self.lease.is_held() || self.writes.len() >= CONCURRENT_WRITES {
            return None;
        }
        self.agenda.next()
    }

    fn take(&mut self, note: WriterInput) {
        match note {
            WriterInput::Object(object) => {
                let key = key_of(&object);
                match self.entries.get_mut(&key) {
                    Some(entry) if entry.object.uid() == object.uid() => {
                        if is_newer(&object, &entry.object) {
                            entry.replace(object, &self.metrics);
                        }
                    }
                    _ => {
                        self.forget(&key);
                        self.metrics.replaced(None, object.status.as_ref());
                        self.entries
                            .insert(key.clone(), Box::new(Entry::new(object)));
                    }
                }
                self.show(&key, None);
                self.consider(&key);
            }
            WriterInput::Gone(key) => {
                self.forget(&key);
            }
            WriterInput::Confirmed(key) => self.tell(ElectionUpdate::Confirmed(key)),
            WriterInput::Projected(projected) => {
                let Some(entry) = self.entries.get_mut(&projected.key) else {
                    return;
                };
                if entry.object.uid().as_deref() == Some(projected.uid.as_str()) {
                    let key = projected.key.clone();
                    entry.projected = Some(*projected);
                    self.consider(&key);
                }
            }
            WriterInput::Seen(seen) => {
                let Some(entry) = self.entries.get_mut(&seen.key) else {
                    return;
                };
                if entry.object.uid().as_deref() != Some(seen.uid.as_str()) {
                    return;
                }
                let key = seen.key.clone();
                let noticed = seen.noticed;
                entry.noticed.get_or_insert_with(|| noticed.clone());
                entry.seen = Some((seen.generation, seen.sight));
                entry.sighting = Some(seen.sighting);
                if entry.object.spec.projections.is_some() {
                    self.show(&key, Some(noticed));
                }
                self.consider(&key);
            }
        }
    }

    /// Sends the present state of an election to the projector, before the status is written: a Service must
    /// not wait for that write.
    fn show(&self, key: &Key, noticed: Option<Noticed>) {
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        let projections = entry.object.spec.projections.as_ref();
        let status = projections.and_then(|_| entry.fresh()).map(Arc::new);
        self.tell(ElectionUpdate::Election {
            object: entry.object.clone(),
            status,
            sighting: entry.sighting.clone(),
            owned: entry.owned(),
            noticed,
        });
    }

    /// Without a projector the whole mirror is about to end, so a view may be lost.
    fn tell(&self, view: ElectionUpdate) {
        let _ = self.views.send(view);
    }

    fn forget(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else {
            return;
        };
        self.metrics.replaced(entry.object.status.as_ref(), None);
        if let Some(due) = entry.due {
            self.agenda.remove(due, key.clone());
        }
        self.tell(ElectionUpdate::Gone {
            key: key.clone(),
            uid: entry.object.uid().unwrap_or_default(),
        });
    }

    /// Decides whether and when the object has to be written.
    fn consider(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if entry.writing.is_some() {
            return;
        }
        let due = entry.pending().map(|new| {
            let urgent = is_leader_change(entry.object.status.as_ref(), &new);
            let paced = entry.pace.next(urgent, Instant::now());
            let at = entry
                .not_before
                .map_or(paced, |not_before| not_before.max(paced));
            Due { at, urgent }
        });
        if due.is_none() {
            entry.noticed = None;
        }
        if let Some(due) = std::mem::replace(&mut entry.due, due) {
            self.agenda.remove(due, key.clone());
        }
        if let Some(due) = due {
            self.agenda.insert(due, key.clone());
        }
    }

    /// Starts the writes whose time has come.
    fn write_due(&mut self) {
        let now = Instant::now();
        while self.next_due().is_some_and(|due| due <= now) {
            if let Some(key) = self.agenda.pop(now) {
                self.start(key, now);
            }
        }
        let full = self.writes.len() >= CONCURRENT_WRITES;
        let busy = full && self.agenda.next().is_some_and(|due| due <= now);
        self.busy
            .send_if_modified(|was| std::mem::replace(was, busy) != busy);
    }

    fn start(&mut self, key: Key, now: Instant) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        entry.due = None;
        let Some(new) = entry.pending() else { return };
        let old = entry.object.status.clone();
        let urgent = is_leader_change(old.as_ref(), &new);
        entry.pace.wrote(urgent, now);
        let noticed = entry.noticed.take();
        let span = noticed.as_ref().map(|noticed| noticed.writing(urgent));
        let span = span.unwrap_or_else(Span::none);
        entry.writing = Some(Box::new(Writing {
            old,
            urgent,
            noticed,
        }));
        let api = Api::namespaced(self.client.clone(), &key.namespace);
        let write = write(api, self.lease.clone(), entry.object.clone(), new);
        self.writes.push(Box::pin(async move {
            let result = write.instrument(span.clone()).await;
            let outcome = result.as_ref().err().map_or("done", WriteError::word);
            span.record("bellwether.outcome", outcome);
            Done { key, result }
        }));
    }

    fn finish(&mut self, done: Done) {
        let Done { key, result } = done;
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let Some(writing) = entry.writing.take() else {
            return;
        };
        match result {
            // The object may have been replaced by another one of the same name meanwhile.
            Ok(object) if object.uid() != entry.object.uid() => {}
            Ok(object) => {
                self.metrics.wrote(&Outcome::OK);
                entry.failures = 0;
                entry.not_before = None;
                if let (true, Some(noticed)) = (writing.urgent, writing.noticed) {
                    self.metrics.took(noticed.elapsed());
                }
                entry.replace(Arc::new(slim(object)), &self.metrics);
                self.publish(&key, writing.old.as_ref());
            }
            Err(WriteError::Conflict { now }) => {
                debug!(election = %key, "the object changed in between");
                self.metrics.wrote(&Outcome::CONFLICT);
                entry.noticed = writing.noticed;
                // An object with another uid is another election: the watch shows it, and another mirror
                // follows it.
                if now.uid() == entry.object.uid() && is_newer(&now, &entry.object) {
                    entry.replace(Arc::new(slim(*now)), &self.metrics);
                }
            }
            Err(error) => {
                if !matches!(error, WriteError::NotHolder) {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    warn!(election = %key, %error, cause, "the status could not be written");
                    self.metrics.wrote(&Outcome::FAILED);
                }
                entry.noticed = writing.noticed;
                entry.failures = entry.failures.saturating_add(1);
                let pause = (FAILURE_PAUSE * entry.failures).min(MAX_FAILURE_PAUSE);
                entry.not_before = Some(Instant::now() + pause);
            }
        }
        self.consider(&key);
    }

    /// Logs what changed and publishes events about it.
    fn publish(&self, key: &Key, old: Option<&LeaderElectionStatus>) {
        let Some(object) = self.entries.get(key).map(|entry| &entry.object) else {
            return;
        };
        let Some(new) = &object.status else { return };
        let reference = object.object_ref(&());
        for event in events(old, new) {
            let note = event.note.as_deref().unwrap_or_default();
            info!(election = %key, reason = %event.reason, note, "election changed");
            if event.reason == EventReason::LeaderChanged.as_str() {
                self.metrics.leader_changes.inc();
            }
            self.publisher.publish(reference.clone(), event);
        }
    }
}

impl Entry {
    fn new(object: Arc<LeaderElection>) -> Self {
        Self {
            object,
            seen: None,
            sighting: None,
            projected: None,
            noticed: None,
            pace: Pace::new(GAP, BURST),
            failures: 0,
            not_before: None,
            due: None,
            writing: None,
        }
    }

    fn replace(&mut self, object: Arc<LeaderElection>, metrics: &Metrics) {
        metrics.replaced(self.object.status.as_ref(), object.status.as_ref());
        self.object = object;
    }

    /// When the leader that is seen had to run at the latest.
    fn owned(&self) -> Option<Timestamp> {
        match self.seen.as_ref()? {
            (_, Sight::Seen(reading)) => reading.leader()?.znode.candidacy()?.owned,
            (_, Sight::Blind(_)) => None,
        }
    }

    /// The status that the object should have, if it has another one.
    fn pending(&self) -> Option<LeaderElectionStatus> {
        let fresh = self.fresh();
        fresh.filter(|fresh| self.object.status.as_ref() != Some(fresh))
    }

    /// The status that the object should have, if that is known.
    fn fresh(&self) -> Option<LeaderElectionStatus> {
        let (generation, sight) = self.seen.as_ref()?;
        // A reading by an older spec does not count for this one, whose mirror is starting.
        if *generation != self.object.metadata.generation {
            return None;
        }
        let projected = self.projected.as_ref();
        let projected = projected.filter(|told| told.generation == *generation);
        Some(status_and_projection(
            &self.object.spec,
            *generation,
            sight,
            projected.map(|told| &told.projection),
            self.object.status.as_ref(),
            Timestamp::now(),
        ))
    }
}

/// Writes a status to the object that it was computed from, and to no other: the object carries its uid
/// and its resource version.
async fn write(
    api: Api<LeaderElection>,
    lease: Held,
    object: Arc<LeaderElection>,
    status: LeaderElectionStatus,
) -> Result<LeaderElection, WriteError> {
    let name = object.name_any();
    let mut object = Arc::unwrap_or_clone(object);
    object.status = Some(status);
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    if !lease.is_held() {
        return Err(WriteError::NotHolder);
    }
    match patient(api.replace_status(&name, &params, &object)).await {
        Err(WriteError::Api(error)) if is_conflict(&error) => {
            // The watch brings the newer object, too, but it may lag.
            let now = patient(api.get(&name)).await?;
            Err(WriteError::Conflict { now: Box::new(now) })
        }
        result => result,
    }
}

async fn patient<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, WriteError> {
    match timeout(PATIENCE, request).await {
        Ok(result) => result.map_err(|error| WriteError::Api(Box::new(error))),
        Err(_) => Err(WriteError::Timeout),
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// The namespaced name of an election.
pub(super) fn key_of(object: &LeaderElection) -> Key {
    Key {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}

/// An object without its managed fields, which take more memory than all the rest and which the operator
/// does not read.
pub(super) fn slim(mut object: LeaderElection) -> LeaderElection {
    object.metadata.managed_fields = None;
    object
}

/// Whether one state of an object is not older than another. Resource versions are numbers that grow; if they
/// are not numbers, the watch is believed.
fn is_newer(one: &LeaderElection, other: &LeaderElection) -> bool {
    let version = |object: &LeaderElection| object.resource_version()?.parse::<u64>().ok();
    match (version(one), version(other)) {
        (Some(one), Some(other)) => one >= other,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
