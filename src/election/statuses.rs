//! What is known of every election, the status that each should have, and when it is written.
//!
//! A status is computed once for each change of what it is made of: the object, what the mirror sees, and the
//! outcome of the projections. The projector and the writer get the same one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::{LeaderElection, LeaderElectionStatus};
use bellwether_election::{Sight, is_leader_change, status_and_projection};
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::time::Instant;

use super::Key;
use super::agenda::{Agenda, Due};
use super::messages::{ElectionUpdate, Projected, WriterInput, key_of};
use super::metrics::{Metrics, Outcome};
use super::noticed::Noticed;
use super::pace::Pace;
use super::sighting::Sighting;

/// How long to wait after a write failed, times the number of failures in a row, up to a limit.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
const MAX_FAILURE_PAUSE: Duration = Duration::from_secs(30);

/// How often one status may be written: what is urgent so many times in a row, and then, as anything
/// else, once in this time.
const BURST: u32 = 4;
const GAP: Duration = Duration::from_secs(1);

/// The statuses of all elections.
pub(super) struct Statuses {
    entries: HashMap<Key, Box<Entry>>,
    /// The entries that have something to write.
    agenda: Agenda,
    metrics: Metrics,
}

/// What is known of one election.
struct Entry {
    object: Arc<LeaderElection>,
    /// What a mirror sees, and the generation that it was started for.
    seen: Option<(Option<i64>, Sight)>,
    /// When the leader was last read.
    sighting: Option<Sighting>,
    projected: Option<Projected>,
    /// The status that the object should have, if it has another one.
    pending: Option<Arc<LeaderElectionStatus>>,
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
    status: Arc<LeaderElectionStatus>,
    urgent: bool,
    noticed: Option<Noticed>,
}

/// A status to write to the object that it was computed from.
pub(super) struct StatusWrite {
    pub(super) key: Key,
    pub(super) object: Arc<LeaderElection>,
    pub(super) status: Arc<LeaderElectionStatus>,
    /// Whether it shows another leader.
    pub(super) urgent: bool,
    /// When the event came that led to it, if one did.
    pub(super) noticed: Option<Noticed>,
}

/// How a write ended.
pub(super) enum Written {
    /// The object as it is now.
    Done(Box<LeaderElection>),
    /// The object is not the one that the status was computed from; this is how it is now.
    Conflict(Box<LeaderElection>),
    /// Nothing was written. Only an attempt counts in the metrics.
    Failed {
        /// Whether the API server was asked.
        asked: bool,
    },
}

/// A status that was written.
pub(super) struct StatusChange {
    pub(super) object: Arc<LeaderElection>,
    /// The status before.
    pub(super) old: Option<LeaderElectionStatus>,
}

impl Statuses {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            entries: HashMap::new(),
            agenda: Agenda::default(),
            metrics,
        }
    }

    /// Takes in what changed, and returns what the projector has to know of it.
    pub(super) fn take(&mut self, input: WriterInput) -> Vec<ElectionUpdate> {
        match input {
            WriterInput::Object(object) => self.replace(object),
            WriterInput::Gone(key) => self.forget(&key).into_iter().collect(),
            WriterInput::Confirmed(key) => vec![ElectionUpdate::Confirmed(key)],
            WriterInput::Projected(projected) => {
                let key = projected.key.clone();
                if let Some(entry) = self.entry(&key, &projected.uid) {
                    entry.projected = Some(*projected);
                    entry.compute();
                    self.schedule(&key);
                }
                Vec::new()
            }
            WriterInput::Seen(seen) => {
                let Some(entry) = self.entry(&seen.key, &seen.uid) else {
                    return Vec::new();
                };
                let noticed = seen.noticed;
                entry.noticed.get_or_insert_with(|| noticed.clone());
                entry.seen = Some((seen.generation, seen.sight));
                entry.sighting = Some(seen.sighting);
                entry.compute();
                // Most elections are projected to nothing, and what is seen matters to no projection then.
                let projected = entry.object.spec.projections.is_some();
                let update = projected.then(|| entry.update(Some(noticed)));
                self.schedule(&seen.key);
                update.into_iter().collect()
            }
        }
    }

    /// The election of this name, if it still has this uid.
    fn entry(&mut self, key: &Key, uid: &str) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(key)?;
        (entry.object.uid().as_deref() == Some(uid)).then_some(entry)
    }

    fn replace(&mut self, object: Arc<LeaderElection>) -> Vec<ElectionUpdate> {
        let key = key_of(&object);
        let mut updates = Vec::new();
        match self.entries.get_mut(&key) {
            Some(entry) if entry.object.uid() == object.uid() => {
                // A write returns the object before the watch shows it.
                if !is_newer(&object, &entry.object) {
                    return updates;
                }
                entry.replace(object, &self.metrics);
                entry.compute();
                updates.push(entry.update(None));
            }
            _ => {
                updates.extend(self.forget(&key));
                self.metrics.replaced(None, object.status.as_ref());
                let entry = Box::new(Entry::new(object));
                updates.push(entry.update(None));
                self.entries.insert(key.clone(), entry);
            }
        }
        self.schedule(&key);
        updates
    }

    fn forget(&mut self, key: &Key) -> Option<ElectionUpdate> {
        let entry = self.entries.remove(key)?;
        self.metrics.replaced(entry.object.status.as_ref(), None);
        if let Some(due) = entry.due {
            self.agenda.remove(due, key.clone());
        }
        Some(ElectionUpdate::Gone {
            key: key.clone(),
            uid: entry.object.uid().unwrap_or_default(),
        })
    }

    /// Decides whether and when the object has to be written.
    fn schedule(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if entry.writing.is_some() {
            return;
        }
        let due = entry.pending.as_ref().map(|new| {
            let urgent = is_leader_change(entry.object.status.as_ref(), new);
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

    /// The earliest time at which something is to be written.
    pub(super) fn next(&self) -> Option<Instant> {
        self.agenda.next()
    }

    /// The next status to write, of those that are due. Its end must be reported to [`finish`](Self::finish).
    pub(super) fn start(&mut self, now: Instant) -> Option<StatusWrite> {
        loop {
            let key = self.agenda.pop(now)?;
            let entry = self.entries.get_mut(&key);
            // What is in the agenda has an entry with something to write.
            if let Some(write) = entry.and_then(|entry| entry.start(&key, now)) {
                return Some(write);
            }
        }
    }

    /// Takes in how a write ended. Returns what was written, and what the projector has to know of it.
    pub(super) fn finish(
        &mut self,
        key: &Key,
        result: Written,
    ) -> (Option<StatusChange>, Option<ElectionUpdate>) {
        let Some(entry) = self.entries.get_mut(key) else {
            return (None, None);
        };
        let Some(writing) = entry.writing.take() else {
            return (None, None);
        };
        let mut change = None;
        match result {
            // The object may have been replaced by another one of the same name meanwhile.
            Written::Done(object) if object.uid() != entry.object.uid() => {}
            Written::Done(object) => {
                self.metrics.wrote(&Outcome::OK);
                entry.failures = 0;
                entry.not_before = None;
                if let (true, Some(noticed)) = (writing.urgent, &writing.noticed) {
                    self.metrics.took(noticed.elapsed());
                }
                let old = entry.object.status.clone();
                entry.replace(Arc::from(object), &self.metrics);
                entry.wrote(&writing.status);
                let object = entry.object.clone();
                change = Some(StatusChange { object, old });
            }
            Written::Conflict(now) => {
                self.metrics.wrote(&Outcome::CONFLICT);
                entry.noticed = writing.noticed;
                // An object with another uid is another election: the watch shows it, and another mirror
                // follows it.
                if now.uid() == entry.object.uid() && is_newer(&now, &entry.object) {
                    entry.replace(Arc::from(now), &self.metrics);
                    entry.compute();
                }
            }
            Written::Failed { asked } => {
                if asked {
                    self.metrics.wrote(&Outcome::FAILED);
                }
                entry.noticed = writing.noticed;
                entry.failures = entry.failures.saturating_add(1);
                let pause = (FAILURE_PAUSE * entry.failures).min(MAX_FAILURE_PAUSE);
                entry.not_before = Some(Instant::now() + pause);
            }
        }
        let projected = entry.object.spec.projections.is_some();
        let update = projected.then(|| entry.update(None));
        self.schedule(key);
        (change, update)
    }
}

impl Entry {
    fn new(object: Arc<LeaderElection>) -> Self {
        Self {
            object,
            seen: None,
            sighting: None,
            projected: None,
            pending: None,
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

    fn start(&mut self, key: &Key, now: Instant) -> Option<StatusWrite> {
        let urgent = self.due.take()?.urgent;
        let status = self.pending.clone()?;
        self.pace.wrote(urgent, now);
        let noticed = self.noticed.take();
        self.writing = Some(Box::new(Writing {
            status: status.clone(),
            urgent,
            noticed: noticed.clone(),
        }));
        Some(StatusWrite {
            key: key.clone(),
            object: self.object.clone(),
            status,
            urgent,
            noticed,
        })
    }

    /// The object has this status now. If nothing else changed meanwhile, it is the one that it should have.
    fn wrote(&mut self, status: &Arc<LeaderElectionStatus>) {
        let latest = self.pending.as_ref();
        let unchanged = latest.is_some_and(|pending| Arc::ptr_eq(pending, status));
        if unchanged && self.object.status.as_ref() == Some(&**status) {
            self.pending = None;
        } else {
            self.compute();
        }
    }

    /// The election as it is now, for the projector. A Service must not wait until the status is written.
    fn update(&self, noticed: Option<Noticed>) -> ElectionUpdate {
        let projected = self.object.spec.projections.is_some() && self.sight().is_some();
        let status = || match &self.pending {
            Some(pending) => Some(pending.clone()),
            None => self.object.status.clone().map(Arc::new),
        };
        ElectionUpdate::Election {
            object: self.object.clone(),
            status: projected.then(status).flatten(),
            sighting: self.sighting.clone(),
            owned: self.owned(),
            noticed,
        }
    }

    /// When the leader that is seen had to run at the latest.
    fn owned(&self) -> Option<Timestamp> {
        match self.seen.as_ref()? {
            (_, Sight::Seen(reading)) => reading.leader()?.znode.candidacy()?.owned,
            (_, Sight::Blind(_)) => None,
        }
    }

    /// What the mirror sees. What it saw by an older spec does not count for this one, whose mirror is starting.
    fn sight(&self) -> Option<&Sight> {
        let (generation, sight) = self.seen.as_ref()?;
        (*generation == self.object.metadata.generation).then_some(sight)
    }

    /// Computes the status that the object should have.
    fn compute(&mut self) {
        #[cfg(test)]
        tests::COMPUTED.with(|computed| computed.set(computed.get() + 1));
        let generation = self.object.metadata.generation;
        let projected = self.projected.as_ref();
        let projected = projected.filter(|projected| projected.generation == generation);
        let fresh = self.sight().map(|sight| {
            status_and_projection(
                &self.object.spec,
                generation,
                sight,
                projected.map(|projected| &projected.projection),
                self.object.status.as_ref(),
                Timestamp::now(),
            )
        });
        let differs = |fresh: &LeaderElectionStatus| self.object.status.as_ref() != Some(fresh);
        self.pending = fresh.filter(differs).map(Arc::new);
    }
}

/// Whether one state of an object is newer than another. Resource versions are numbers that grow; if they are not
/// numbers, another version is believed to be newer.
fn is_newer(one: &LeaderElection, other: &LeaderElection) -> bool {
    let version = |object: &LeaderElection| object.resource_version()?.parse::<u64>().ok();
    match (version(one), version(other)) {
        (Some(one), Some(other)) => one > other,
        _ => one.resource_version() != other.resource_version() || one.resource_version().is_none(),
    }
}

#[cfg(test)]
mod tests;
