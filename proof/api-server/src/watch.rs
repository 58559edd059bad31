//! Watches: a stream of the changes that a front end's cache knows.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::cache::list_at;
use super::front_end::{Connection, Link};
use super::object::{Object, written};
use super::refusal::{Refusal, expired};
use super::request::{Call, Query};
use super::service::Shared;
use super::store::{Change, Event};

/// How often a client hears how far the cache has come when nothing changes.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// How long a watch lasts if its request sets no time, in seconds.
const LASTS: u64 = 1800;

/// A broken connection.
#[derive(Debug, thiserror::Error)]
#[error("connection reset by peer")]
pub(crate) struct Broken;

pub(crate) struct Watch {
    shared: Arc<Shared>,
    call: Call,
    query: Query,
    connection: Connection,
    /// What the client has.
    revision: u64,
    /// What is sent first.
    first: BytesMut,
    /// The revision after which the bookmark that ends the initial events is still to be sent.
    initial: Option<u64>,
    bookmark: Instant,
    ends: Instant,
    broken: bool,
    /// Counts as open while it lives.
    _open: Arc<()>,
}

impl Watch {
    /// Begins a watch where the request says.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        call: &Call,
        query: &Query,
        connection: Connection,
    ) -> Result<Self, Refusal> {
        let store = shared.store();
        let mut front_ends = shared.front_ends();
        let (reached, _) = front_ends.reached(connection.front_end, call.kind, &store);
        let asked = query.resource_version.as_deref().unwrap_or("0");
        let asked: u64 = asked.parse().map_err(|_| {
            super::refusal::bad_request(format!("invalid resource version {asked:?}"))
        })?;
        let now = Instant::now();
        let lasts = query.timeout_seconds.unwrap_or(LASTS);
        let mut watch = Self {
            shared: shared.clone(),
            call: call.clone(),
            query: query.clone(),
            connection,
            revision: asked,
            first: BytesMut::new(),
            initial: None,
            bookmark: now + BOOKMARKS,
            ends: now + Duration::from_secs(lasts),
            broken: false,
            _open: shared.watching.clone(),
        };
        if asked == 0 || query.initial_events {
            // The state of the cache first, then what comes after.
            let within = Some(call.namespace.as_str()).filter(|within| !within.is_empty());
            let objects = list_at(&store, call.kind, within, reached);
            for object in objects.map_err(|oldest| too_old(reached, oldest))? {
                if query.selector.selects(&object) {
                    watch.first.put(watch.line("ADDED", &object));
                }
            }
            watch.revision = reached;
            if query.initial_events {
                let fresh = match query.resource_version {
                    Some(_) => asked,
                    None => store.revision(),
                };
                watch.initial = Some(fresh);
            }
        } else {
            let oldest = front_ends.since(connection.front_end);
            let oldest = oldest.max(store.table(call.kind).forgotten());
            if asked < oldest {
                // Not as the answer's code, but as the first and last event.
                watch.first.put(error(&too_old(asked, oldest)));
                watch.ends = now;
            }
        }
        Ok(watch)
    }

    fn line(&self, word: &str, object: &Object) -> Bytes {
        let text = match (self.query.metadata_only, self.query.new_events) {
            (true, _) => object.metadata_text().clone(),
            (false, true) => written(&super::events::renamed(object)),
            (false, false) => object.text().clone(),
        };
        line(word, &text)
    }

    /// The event that this watch sends for a change: an object may start or stop matching its selector.
    fn told(&self, event: &Event) -> Option<Bytes> {
        let selector = &self.query.selector;
        let namespace = &self.call.namespace;
        if !namespace.is_empty() && namespace != event.object.namespace() {
            return None;
        }
        if selector.is_everything() {
            let word = match event.change {
                Change::Added => "ADDED",
                Change::Modified => "MODIFIED",
                Change::Deleted => "DELETED",
            };
            return Some(self.line(word, &event.object));
        }
        let before = event
            .before
            .as_ref()
            .filter(|before| selector.selects(before));
        let is = event.change != Change::Deleted && selector.selects(&event.object);
        match (before, is) {
            (None, true) => Some(self.line("ADDED", &event.object)),
            (Some(_), true) => Some(self.line("MODIFIED", &event.object)),
            (Some(before), false) => {
                // As it was when it was selected last, at the revision of the change.
                let last = Object::new((***before).clone(), event.revision);
                Some(self.line("DELETED", &last))
            }
            (None, false) => None,
        }
    }

    fn bookmark(&self, initial: bool) -> Bytes {
        let resource = self.call.kind.resource();
        let mut metadata = json!({
            "resourceVersion": self.revision.to_string(),
            "creationTimestamp": null,
        });
        if initial {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = json!({
            "kind": resource.name,
            "apiVersion": resource.api_version(),
            "metadata": metadata,
        });
        line("BOOKMARK", &written(&object))
    }

    /// What there is to send now; and, if there is nothing, when there may be.
    fn poll(&mut self) -> (Bytes, Option<Instant>) {
        let shared = self.shared.clone();
        let store = shared.store();
        let mut front_ends = shared.front_ends();
        let connection = front_ends.connection(&self.call.client);
        if connection.number != self.connection.number || connection.link == Link::Refused {
            self.broken = true;
            return (Bytes::new(), None);
        }
        if connection.link == Link::Silent {
            return (Bytes::new(), None);
        }
        let now = Instant::now();
        let mut text = std::mem::take(&mut self.first);
        if now >= self.ends {
            return (text.freeze(), None);
        }
        let kind = self.call.kind;
        let (reached, mut wake) = front_ends.reached(connection.front_end, kind, &store);
        if reached > self.revision {
            match store.events_since(kind, self.revision) {
                Ok(events) => {
                    for event in events.take_while(|event| event.revision <= reached) {
                        if let Some(line) = self.told(event) {
                            text.put(line);
                        }
                    }
                    self.revision = reached;
                }
                Err(oldest) => {
                    text.put(error(&too_old(self.revision, oldest)));
                    self.ends = now;
                }
            }
        }
        if self.initial.is_some_and(|fresh| fresh <= self.revision) {
            self.initial = None;
            text.put(self.bookmark(true));
        }
        if self.query.bookmarks && self.initial.is_none() {
            if now >= self.bookmark {
                self.bookmark = now + BOOKMARKS;
                text.put(self.bookmark(false));
            }
            wake = Some(wake.map_or(self.bookmark, |wake| wake.min(self.bookmark)));
        }
        (text.freeze(), wake)
    }

    async fn next(mut self) -> Option<(Result<Bytes, Broken>, Self)> {
        loop {
            if self.broken || (self.first.is_empty() && Instant::now() >= self.ends) {
                return None;
            }
            // Heard from here on, so that nothing falls between the look and the wait.
            let (changes, connections) = {
                let store = self.shared.store();
                let changes = store.table(self.call.kind).notify.clone();
                (changes, self.shared.front_ends().notify.clone())
            };
            let changed = changes.notified();
            let connected = connections.notified();
            tokio::pin!(changed, connected);
            changed.as_mut().enable();
            connected.as_mut().enable();
            let (text, wake) = self.poll();
            if self.broken {
                return Some((Err(Broken), self));
            }
            if !text.is_empty() {
                return Some((Ok(text), self));
            }
            let until = wake.map_or(self.ends, |wake| wake.min(self.ends));
            tokio::select! {
                biased;
                () = changed => {}
                () = connected => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// The lines of the watch.
    pub(crate) fn stream(self) -> impl Stream<Item = Result<Bytes, Broken>> + Send {
        stream::unfold(self, Self::next)
    }
}

fn line(word: &str, object: &Bytes) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(word.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}

fn error(refusal: &Refusal) -> Bytes {
    let status = serde_json::to_value(refusal).unwrap_or(Value::Null);
    line("ERROR", &written(&status))
}

fn too_old(asked: u64, oldest: u64) -> Refusal {
    expired(format!("too old resource version: {asked} ({oldest})"))
}
