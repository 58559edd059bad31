//! Publishes events about elections, one at a time, after the statuses.
//!
//! An event costs the API server as much as a status does, and nothing waits for it. When two thousand
//! elections lose their leaders at once, users need the new leaders first.

use std::time::Duration;

use super::REQUEST_PATIENCE;
use crate::lease::Held;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder, Reporter};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tracing::debug;

/// How many events may wait. Further events are lost.
const WAITING: usize = 4096;

/// How long an event waits for statuses at most: if statuses always wait, events are published slowly.
const DEFERENCE: Duration = Duration::from_secs(1);

/// The queue of events. They are published as long as a clone of it exists.
#[derive(Clone)]
pub(super) struct Publisher(mpsc::Sender<(ObjectReference, Event)>);

impl Publisher {
    /// Begins to publish. `busy` is true while statuses wait to be written.
    pub(super) fn new(
        client: Client,
        lease: Held,
        reporter: Reporter,
        mut busy: watch::Receiver<bool>,
    ) -> Self {
        let (publisher, mut waiting) = mpsc::channel::<(ObjectReference, Event)>(WAITING);
        tokio::spawn(async move {
            while let Some((reference, event)) = waiting.recv().await {
                // An error means that the writer has ended, so no status waits.
                let _ = timeout(DEFERENCE, busy.wait_for(|busy| !busy)).await;
                // A recorder joins events of one reason to a series and keeps the note of the first;
                // each of these is about something else, so each has a recorder of its own.
                let recorder = Recorder::new(client.clone(), reporter.clone());
                let name = reference.name.as_deref().unwrap_or_default();
                // Another replica that took over tells what happens since; the request is not sent before it is polled.
                if !lease.is_held() {
                    debug!(election = name, "an event was lost with the lease");
                    continue;
                }
                match timeout(REQUEST_PATIENCE, recorder.publish(&event, &reference)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!(election = name, %error, "an event was lost"),
                    Err(_) => debug!(election = name, "an event was lost: no answer in time"),
                }
            }
        });
        Self(publisher)
    }

    /// Whether the task that publishes has broken off.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_closed()
    }

    /// Queues an event. An event that cannot be published is lost.
    pub(super) fn publish(&self, reference: ObjectReference, event: Event) {
        if let Err(lost) = self.0.try_send((reference, event)) {
            debug!(%lost, "an event was lost");
        }
    }
}

#[cfg(test)]
mod tests {
    use bellwether_api_server::{ApiServer, Kind};
    use kube::runtime::events::EventType;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::lease::Holder;

    fn event() -> Event {
        Event {
            type_: EventType::Normal,
            reason: "LeaderChanged".to_owned(),
            note: None,
            action: "Elect".to_owned(),
            secondary: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_let_statuses_go_first_but_not_for_ever() {
        let server = ApiServer::new(1, 1);
        let reporter = Reporter {
            controller: "test".to_owned(),
            instance: None,
        };
        let (busy, is_busy) = watch::channel(true);
        let (holder, lease) = Holder::held(true);
        let publisher = Publisher::new(server.client("test"), lease, reporter, is_busy);
        for _ in 0..4 {
            publisher.publish(ObjectReference::default(), event());
        }
        let begin = Instant::now();
        let until = async |count: usize| {
            while server.store().list(Kind::EVENT, None).count() < count {
                assert!(
                    begin.elapsed() < REQUEST_PATIENCE,
                    "{count} were never sent"
                );
                sleep(Duration::from_millis(5)).await;
            }
            begin.elapsed()
        };
        assert!(until(1).await >= DEFERENCE);
        assert!(until(2).await >= DEFERENCE * 2);
        busy.send_replace(false);
        until(4).await;
        // An event that still waited when another replica took over is not sent any more.
        busy.send_replace(true);
        publisher.publish(ObjectReference::default(), event());
        sleep(DEFERENCE / 2).await;
        holder.lose();
        sleep(DEFERENCE * 4).await;
        assert_eq!(server.store().list(Kind::EVENT, None).count(), 4);
    }
}
