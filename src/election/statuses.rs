//! What is known of every election, and which status is to be written when.
//!
//! Mirrors report what they see, and the last report for each object counts. The status is computed from it
//! and from what the object says, once for each change: the projector is sent what is written later. It is to
//! be written only if it differs. Nothing here does I/O: the writer carries out what is decided here.

mod entry;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::election::EndOfTerm;
use bellwether_api::{LeaderElection, LeaderElectionStatus};
use bellwether_election::{Urgency, end_of_term, urgency};
use kube::ResourceExt;
use tokio::time::Instant;

use self::entry::Entry;
use super::Key;
use super::agenda::{Agenda, Due};
use super::messages::{ElectionUpdate, WriterInput};
use super::metrics::Metrics;
use super::noticed::Noticed;

/// How long to wait after a write failed, times the number of failures in a row, up to a limit.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
const MAX_FAILURE_PAUSE: Duration = Duration::from_secs(30);

/// A status that is to be written now.
pub(super) struct Write {
    pub(super) key: Key,
    /// The object that the status was computed from.
    pub(super) object: Arc<LeaderElection>,
    pub(super) status: Arc<LeaderElectionStatus>,
    pub(super) urgency: Urgency,
    /// When the first event came that it shows.
    pub(super) noticed: Option<Noticed>,
}

/// A term of leadership that ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The election.
    pub(super) key: Key,
    /// The leader's node and token.
    pub(super) node: String,
    pub(super) token: Option<String>,
}

/// The statuses of all elections.
pub(super) struct Statuses {
    entries: HashMap<Key, Box<Entry>>,
    /// The entries that have something to write.
    agenda: Agenda,
    /// What the projector has to be sent.
    updates: Vec<ElectionUpdate>,
    metrics: Metrics,
}

impl Statuses {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            entries: HashMap::new(),
            agenda: Agenda::default(),
            updates: Vec::new(),
            metrics,
        }
    }

    /// Takes in what another part of the mirror reports.
    pub(super) fn take(&mut self, input: WriterInput) {
        match input {
            WriterInput::Object(object) => {
                let key = Key::of(&object.metadata);
                let changed = match self.entries.get_mut(&key) {
                    Some(entry) if entry.object().uid() == object.uid() => {
                        entry.replace(object, &self.metrics)
                    }
                    _ => {
                        self.forget(&key);
                        self.metrics.replaced(None, object.status.as_ref());
                        self.entries
                            .insert(key.clone(), Box::new(Entry::new(object)));
                        true
                    }
                };
                if changed {
                    self.push_update(&key, None);
                }
                if let Some(entry) = self.entries.get(&key) {
                    self.metrics.own.ask(&key, entry.object().spec.own_series);
                }
                self.consider(&key);
            }
            WriterInput::Gone(key) => self.forget(&key),
            WriterInput::Confirmed(key) => self.updates.push(ElectionUpdate::Confirmed(key)),
            WriterInput::Projected(projected) => {
                // The projector, which reports it, reads nothing of it in the status.
                let key = projected.key.clone();
                if let Some(entry) = self.entry(&key, &projected.uid) {
                    entry.project(*projected);
                    self.consider(&key);
                }
            }
            WriterInput::Bridged(bridged) => {
                let key = bridged.key.clone();
                if let Some(entry) = self.entry(&key, &bridged.uid) {
                    entry.bridge(bridged);
                    self.consider(&key);
                }
            }
            WriterInput::Seen(seen) => {
                let (key, noticed) = (seen.key.clone(), seen.noticed.clone());
                let Some(entry) = self.entry(&key, &seen.uid) else {
                    return;
                };
                entry.see(*seen);
                if entry.object().spec.is_acted_on() {
                    self.push_update(&key, Some(noticed));
                }
                self.consider(&key);
            }
        }
    }

    /// What the projector has to be sent, before anything else is written: a Service must not wait for a
    /// status.
    pub(super) fn updates(&mut self) -> impl Iterator<Item = ElectionUpdate> {
        self.updates.drain(..)
    }

    /// The earliest time at which a status is to be written, if any is.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.agenda.next()
    }

    /// Takes out what is to be written next, of that which is due. The entry waits until the write has ended.
    pub(super) fn next_write(&mut self, now: Instant) -> Option<Write> {
        let key = self.agenda.pop(now)?;
        let entry = self.entries.get_mut(&key)?;
        let Due { urgency, .. } = entry.due.take()?;
        entry.note_calm();
        let Some(status) = entry.pending() else {
            self.consider(&key);
            return None;
        };
        entry.pace.wrote(urgency < Urgency::Queue, now);
        entry.is_writing = true;
        Some(Write {
            object: entry.object().clone(),
            status,
            urgency,
            noticed: entry.noticed.take(),
            key,
        })
    }

    /// What ended the last term of that leader of an election, as far as it is known by now.
    pub(super) fn end_of_term(&self, ended: &Ended) -> Option<EndOfTerm> {
        let status = self.entries.get(&ended.key)?.object().status.as_ref()?;
        end_of_term(status, &ended.node, ended.token.as_deref())
    }

    /// Whether the election that a write is for still exists.
    pub(super) fn has(&self, write: &Write) -> bool {
        let entry = self.entries.get(&write.key);
        entry.is_some_and(|entry| entry.object().uid() == write.object.uid())
    }

    /// Notes that a status was written, and what the object is since then.
    pub(super) fn written(&mut self, write: &Write, object: Arc<LeaderElection>) {
        self.end(write, |entry, metrics| {
            entry.failures = 0;
            entry.not_before = None;
            entry.replace(object, metrics)
        });
    }

    /// Notes that a status was refused because the object is not the one that it was computed from, and what
    /// the object is now.
    pub(super) fn refused(&mut self, mut write: Write, object: Arc<LeaderElection>) {
        let noticed = write.noticed.take();
        self.end(&write, |entry, metrics| {
            entry.noticed = noticed;
            // An object with another uid is another election: the watch shows it, and another mirror follows
            // it.
            object.uid() == entry.object().uid() && entry.replace(object, metrics)
        });
    }

    /// Notes that a status could not be written. It is tried again after a while.
    pub(super) fn failed(&mut self, mut write: Write) {
        let noticed = write.noticed.take();
        self.end(&write, |entry, _| {
            entry.noticed = noticed;
            entry.failures = entry.failures.saturating_add(1);
            let pause = (FAILURE_PAUSE * entry.failures).min(MAX_FAILURE_PAUSE);
            entry.not_before = Some(Instant::now() + pause);
            false
        });
    }

    /// Ends a write. Its outcome is applied to the entry, which returns whether the projector has to be sent
    /// something.
    fn end(&mut self, write: &Write, apply: impl FnOnce(&mut Entry, &Metrics) -> bool) {
        let entry = self.entries.get_mut(&write.key);
        let Some(entry) = entry.filter(|entry| entry.object().uid() == write.object.uid()) else {
            return;
        };
        entry.is_writing = false;
        if apply(entry, &self.metrics) {
            self.push_update(&write.key, None);
        }
        self.consider(&write.key);
    }

    /// What is known of the election with this uid.
    fn entry(&mut self, key: &Key, uid: &str) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(key)?;
        (entry.object().metadata.uid.as_deref() == Some(uid)).then_some(entry)
    }

    /// Has the present state of an election sent to the projector.
    fn push_update(&mut self, key: &Key, noticed: Option<Noticed>) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let is_projected = entry.object().spec.is_acted_on();
        let status = is_projected.then(|| entry.status()).flatten();
        self.updates.push(ElectionUpdate::Election {
            object: entry.object().clone(),
            status,
            sighting: entry.sighting.clone(),
            owned: entry.owned(),
            noticed,
        });
    }

    fn forget(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else {
            return;
        };
        self.metrics.replaced(entry.object().status.as_ref(), None);
        self.metrics.own.ask(key, false);
        if let Some(due) = entry.due {
            self.agenda.remove(due, key.clone());
        }
        self.updates.push(ElectionUpdate::Gone {
            key: key.clone(),
            uid: entry.object().uid().unwrap_or_default(),
        });
    }

    /// Decides whether and when the status has to be written.
    fn consider(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if entry.object().spec.own_series {
            self.metrics.own.note(key, || entry.leadership());
        }
        if entry.is_writing {
            return;
        }
        let due = entry.pending().map(|new| {
            let urgency = urgency(entry.object().status.as_ref(), &new);
            let paced = entry.pace.next(urgency < Urgency::Queue, Instant::now());
            let at = entry
                .not_before
                .map_or(paced, |not_before| not_before.max(paced));
            Due { at, urgency }
        });
        if due.is_none() {
            entry.noticed = None;
        }
        // Nothing but the time ends that it counts as flapping.
        let due = due.or_else(|| {
            let at = entry.calms_at()?;
            let urgency = Urgency::Queue;
            Some(Due { at, urgency })
        });
        if let Some(due) = std::mem::replace(&mut entry.due, due) {
            self.agenda.remove(due, key.clone());
        }
        if let Some(due) = due {
            self.agenda.insert(due, key.clone());
        }
    }
}

#[cfg(test)]
mod tests;
