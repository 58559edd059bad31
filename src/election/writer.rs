//! The only task that writes statuses of elections to the API server.
//!
//! What to write when is decided by [`Statuses`]. Each write carries the resource version that its status was
//! computed from, so that counters are exact, and two replicas that both believe to hold the lease cannot
//! overwrite each other.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::events::EventReason;
use bellwether_api::{FIELD_MANAGER, LeaderElection, LeaderElectionStatus};
use bellwether_election::Urgency;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::api::PostParams;
use kube::runtime::events::Reporter;
use kube::{Api, Client, Resource, ResourceExt};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{Instrument as _, Span, debug, info, warn};

use super::REQUEST_PATIENCE;
use super::events::{ended, events};
use super::messages::{ElectionUpdate, WriterInput};
use super::metrics::{Metrics, Outcome};
use super::publisher::Publisher;
use super::slim;
use super::statuses::{Ended, Statuses, Write};
use crate::lease::Held;

/// How many writes may be under way at the same time.
const CONCURRENT_WRITES: usize = 8;

/// How long after the end of a term was written it is counted. What ended it settles before, and is written within a second.
const COUNTED_AFTER: Duration = Duration::from_secs(6);

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
    #[error("no answer within {REQUEST_PATIENCE:?}")]
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
    write: Write,
    result: Result<LeaderElection, WriteError>,
}

/// The writer of statuses.
pub(super) struct Writer {
    client: Client,
    lease: Held,
    publisher: Publisher,
    /// Whether statuses wait to be written.
    busy: watch::Sender<bool>,
    updates: mpsc::UnboundedSender<ElectionUpdate>,
    metrics: Metrics,
    statuses: Statuses,
    writes: FuturesUnordered<BoxFuture<'static, Done>>,
    /// The terms whose end was written and is not counted yet, with the time for that.
    ended: VecDeque<(Instant, Ended)>,
}

impl Writer {
    pub(super) fn new(
        client: Client,
        lease: Held,
        reporter: Reporter,
        updates: mpsc::UnboundedSender<ElectionUpdate>,
        metrics: Metrics,
    ) -> Self {
        let (busy, is_busy) = watch::channel(false);
        Self {
            publisher: Publisher::new(client.clone(), lease.clone(), reporter, is_busy),
            busy,
            client,
            lease,
            updates,
            statuses: Statuses::new(metrics.clone()),
            metrics,
            writes: FuturesUnordered::new(),
            ended: VecDeque::new(),
        }
    }

    /// Writes until every sender is dropped, or events cannot be published.
    pub(super) async fn run(mut self, mut inputs: mpsc::Receiver<WriterInput>) {
        let mut lease = self.lease.clone();
        let mut lease_watched = true;
        loop {
            let due = self.next_due();
            let counts = self.ended.front().map(|(at, _)| *at);
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(input) => self.statuses.take(input),
                    None => return,
                },
                Some(done) = self.writes.next() => self.finish(done),
                changed = lease.changed(), if lease_watched => {
                    lease_watched = changed.is_ok();
                    debug!(held = lease.is_held(), "the lease changed");
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                () = sleep_until(counts.unwrap_or_else(Instant::now)), if counts.is_some() => {
                    self.count_ended();
                }
            }
            for update in self.statuses.updates() {
                // Without a projector the whole mirror is about to end, so an update may be lost.
                let _ = self.updates.send(update);
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
        self.statuses.next_due()
    }

    /// Starts the writes whose time has come.
    fn write_due(&mut self) {
        let now = Instant::now();
        while self.next_due().is_some_and(|due| due <= now) {
            if let Some(write) = self.statuses.next_write(now) {
                self.start(write);
            }
        }
        let full = self.writes.len() >= CONCURRENT_WRITES;
        let busy = full && self.statuses.next_due().is_some_and(|due| due <= now);
        self.busy
            .send_if_modified(|was| std::mem::replace(was, busy) != busy);
    }

    fn start(&mut self, write: Write) {
        let noticed = write.noticed.as_ref();
        let span = noticed.map_or_else(Span::none, |noticed| {
            noticed.writing(write.urgency == Urgency::Leader)
        });
        let api = Api::namespaced(self.client.clone(), &write.key.namespace);
        let lease = self.lease.clone();
        self.writes.push(Box::pin(async move {
            let result = send(api, lease, &write).instrument(span.clone()).await;
            let outcome = result.as_ref().err().map_or("done", WriteError::word);
            span.record("bellwether.outcome", outcome);
            Done { write, result }
        }));
    }

    fn finish(&mut self, done: Done) {
        let Done { write, result } = done;
        if !self.statuses.has(&write) {
            return;
        }
        match result {
            Ok(object) => {
                self.metrics.wrote(&Outcome::OK);
                if let (Urgency::Leader, Some(noticed)) = (write.urgency, &write.noticed) {
                    self.metrics.took(noticed.elapsed());
                }
                let object = Arc::new(slim(object));
                self.publish(&write, &object);
                self.statuses.written(&write, object);
            }
            Err(WriteError::Conflict { now }) => {
                debug!(election = %write.key, "the object changed in between");
                self.metrics.wrote(&Outcome::CONFLICT);
                self.statuses.refused(write, Arc::new(slim(*now)));
            }
            Err(error) => {
                if !matches!(error, WriteError::NotHolder) {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    warn!(election = %write.key, %error, cause, "the status could not be written");
                    self.metrics.wrote(&Outcome::FAILED);
                }
                self.statuses.failed(write);
            }
        }
    }

    /// Counts the terms of which it is settled what ended them.
    fn count_ended(&mut self) {
        let now = Instant::now();
        while let Some((_, ended)) = self.ended.pop_front_if(|(at, _)| *at <= now) {
            let cause = self.statuses.end_of_term(&ended);
            self.metrics.term_ended(&ended.key, cause);
        }
    }

    /// Logs what a write changed and publishes events about it.
    fn publish(&mut self, write: &Write, object: &LeaderElection) {
        let Some(new) = &object.status else { return };
        let reference = object.object_ref(&());
        let old = write.object.status.as_ref();
        if let Some((node, token)) = ended(old, new) {
            let ended = Ended {
                key: write.key.clone(),
                node: node.to_owned(),
                token: token.map(str::to_owned),
            };
            self.ended
                .push_back((Instant::now() + COUNTED_AFTER, ended));
        }
        for event in events(old, new) {
            let note = event.note.as_deref().unwrap_or_default();
            info!(election = %write.key, reason = %event.reason, note, "election changed");
            if event.reason == EventReason::LeaderChanged.as_str() {
                self.metrics.leader_changes.inc();
            }
            self.publisher.publish(reference.clone(), event);
        }
    }
}

/// Writes a status to the object that it was computed from, and to no other: the object carries its uid
/// and its resource version.
async fn send(
    api: Api<LeaderElection>,
    lease: Held,
    write: &Write,
) -> Result<LeaderElection, WriteError> {
    let name = write.object.name_any();
    let object = LeaderElection {
        metadata: write.object.metadata.clone(),
        spec: write.object.spec.clone(),
        status: Some(LeaderElectionStatus::clone(&write.status)),
    };
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
    match timeout(REQUEST_PATIENCE, request).await {
        Ok(result) => result.map_err(|error| WriteError::Api(Box::new(error))),
        Err(_) => Err(WriteError::Timeout),
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

#[cfg(test)]
mod tests;
