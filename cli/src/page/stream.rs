//! What one open page is sent: a document whenever what it asks for changed, and a sign of life.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use bellwether_api::LeaderElection;
use futures::Stream;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use super::looking::Viewer;
use super::store::{Ask, CANDIDATES, Key, Opened, Operator};
use crate::view::election::ElectionDetail;

/// Changes within this time are sent together.
const PACE: Duration = Duration::from_secs(1);
/// How often a page receives a sign of life if there is nothing else to send.
const ALIVE: Duration = Duration::from_secs(5);
/// How long one document waits for the lists to be complete.
const PATIENCE: Duration = Duration::from_secs(10);

/// One look: what is asked for, and what was sent last.
pub(super) struct Look {
    client: Client,
    viewer: Viewer,
    operator: Operator,
    ask: Ask,
    /// The last document, and when it was made.
    made: Option<(Instant, String)>,
    /// When anything was sent last.
    spoke: Instant,
    /// The election that is open, with the version of the object that it was made of.
    opened: Option<(String, Opened)>,
}

impl Look {
    /// Nothing is sent yet.
    pub(super) fn new(client: Client, viewer: Viewer, operator: Operator, ask: Ask) -> Self {
        Self {
            client,
            viewer,
            operator,
            ask,
            made: None,
            spoke: Instant::now(),
            opened: None,
        }
    }

    /// The document, when everything was read or something cannot be.
    pub(super) async fn complete(&mut self) -> String {
        let _ = tokio::time::timeout(PATIENCE, async {
            loop {
                self.viewer.changes.mark_unchanged();
                let waits = |store: &super::store::Store| {
                    !store.loading.is_empty() && store.troubles.is_empty()
                };
                if !self.viewer.read(waits) || self.viewer.changes.changed().await.is_err() {
                    return;
                }
            }
        })
        .await;
        self.document().await
    }

    /// Everything that there is to tell, until `stopped` is true.
    pub(super) fn events(
        self,
        stopped: watch::Receiver<bool>,
    ) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
        Sse::new(futures::stream::unfold(
            (self, stopped),
            |(mut look, mut stopped)| async move {
                let event = tokio::select! {
                    // A dropped sender is a stop too.
                    _ = stopped.wait_for(|stopped| *stopped) => return None,
                    event = look.next() => event,
                };
                Some((Ok(event), (look, stopped)))
            },
        ))
    }

    async fn next(&mut self) -> Event {
        loop {
            if let Some((at, _)) = &self.made {
                let at = *at;
                tokio::select! {
                    // Changes that only others ask for wake this loop too; they must not delay the sign of life.
                    () = tokio::time::sleep_until(self.spoke + ALIVE) => {
                        self.spoke = Instant::now();
                        return Event::default().event("alive").data("");
                    }
                    changed = self.viewer.changes.changed() => {
                        if changed.is_ok() {
                            tokio::time::sleep_until(at + PACE).await;
                        }
                    }
                }
            }
            self.viewer.changes.mark_unchanged();
            let document = self.document().await;
            let same = self.made.as_ref().is_some_and(|(_, old)| *old == document);
            let now = Instant::now();
            let event = (!same).then(|| Event::default().event("view").data(&document));
            self.made = Some((now, document));
            if let Some(event) = event {
                self.spoke = now;
                return event;
            }
        }
    }

    async fn document(&mut self) -> String {
        let opened = self.open().await;
        let document = self
            .viewer
            .read(|store| store.document(&self.operator, &self.ask, opened));
        // It holds nothing but texts and numbers.
        serde_json::to_string(&document).unwrap_or_default()
    }

    /// The election that is open: read again only when it changed.
    async fn open(&mut self) -> Option<Opened> {
        let key = self.ask.opened()?;
        let version = self.viewer.read(|store| {
            store
                .elections
                .get(&key)
                .map(|listed| listed.version.clone())
        });
        let Some(version) = version else {
            // A namespace that the operator does not work in is not asked either.
            self.opened = None;
            return Some(Opened::Missing(self.ask.election.clone()));
        };
        if let Some((seen, opened)) = &self.opened
            && *seen == version
        {
            return Some(opened.clone());
        }
        let opened = self.get(&key).await;
        // What could not be read is read again with the next change.
        self.opened = matches!(opened, Opened::Found(_)).then(|| (version, opened.clone()));
        Some(opened)
    }

    async fn get(&self, (namespace, name): &Key) -> Opened {
        let api: Api<LeaderElection> = Api::namespaced(self.client.clone(), namespace);
        match api.get_opt(name).await {
            Ok(Some(election)) => {
                Opened::Found(Box::new(ElectionDetail::of(&election, CANDIDATES)))
            }
            Ok(None) => Opened::Missing(self.ask.election.clone()),
            Err(error) => Opened::Unreadable(error.to_string()),
        }
    }
}
