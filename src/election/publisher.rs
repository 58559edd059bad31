//! Publishes events about elections, one at a time.
//!
//! An event costs the API server as much as a status does, and nothing waits for it. Whoever looks at
//! two thousand elections whose leader just went wants to know the new leaders first.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::debug;

/// How many events may wait. What comes when so many wait is lost.
const WAITING: usize = 4096;

/// How long one request may take, whatever the client would retry.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where events are handed in; they are published as long as one of these exists.
#[derive(Clone)]
pub(super) struct Publisher(mpsc::Sender<(ObjectReference, Event)>);

impl Publisher {
    /// Begins to publish.
    pub(super) fn new(client: Client, reporter: Reporter) -> Self {
        let (publisher, mut waiting) = mpsc::channel::<(ObjectReference, Event)>(WAITING);
        tokio::spawn(async move {
            while let Some((about, event)) = waiting.recv().await {
                // A recorder joins events of one reason to a series and keeps the note of the first;
                // each of these is about something else, so each has a recorder of its own.
                let recorder = Recorder::new(client.clone(), reporter.clone());
                let name = about.name.as_deref().unwrap_or_default();
                match timeout(PATIENCE, recorder.publish(&event, &about)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!(election = name, %error, "an event was lost"),
                    Err(_) => debug!(election = name, "an event was lost: no answer in time"),
                }
            }
        });
        Self(publisher)
    }

    /// Has an event published, when its turn comes. An event that cannot be published is lost.
    pub(super) fn publish(&self, about: ObjectReference, event: Event) {
        if let Err(lost) = self.0.try_send((about, event)) {
            debug!(%lost, "an event was lost");
        }
    }
}
