//! Follows an event from the mirror that noticed it to the writes that it causes.

use std::time::Duration;

use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Span, info_span};

use super::Key;
use crate::traces::SPANS;

/// When something was noticed, and the trace of what follows from it. The trace ends with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Noticed {
    at: Instant,
    /// `None` if spans are not exported. Boxed, since thousands of mirrors and entries hold one of these.
    span: Option<Box<Span>>,
}

impl Noticed {
    /// A reading without an event: a session connected, or it is time to read everything again. It has no
    /// trace, since it rarely finds a change and thousands of elections may start one at once.
    pub(super) fn now() -> Self {
        Self {
            at: Instant::now(),
            span: None,
        }
    }

    /// ZooKeeper's event that something about an election may have changed.
    pub(super) fn event(election: &Key) -> Self {
        let span = info_span!(
            target: SPANS,
            "election event",
            k8s.namespace.name = election.namespace,
            bellwether.election.name = election.name,
            bellwether.election.leader_changed = Empty,
        );
        Self {
            at: Instant::now(),
            span: (!span.is_disabled()).then(|| Box::new(span)),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    /// The span of reading the election.
    pub(super) fn reading(&self) -> Span {
        self.span.as_deref().map_or_else(
            Span::none,
            |event| info_span!(target: SPANS, parent: event, "read", otel.kind = "client"),
        )
    }

    /// The span of writing the status.
    pub(super) fn writing(&self, leader_changed: bool) -> Span {
        self.span.as_deref().map_or_else(Span::none, |event| {
            event.record("bellwether.election.leader_changed", leader_changed);
            info_span!(
                target: SPANS, parent: event, "write status",
                otel.kind = "client", bellwether.outcome = Empty,
            )
        })
    }

    /// The span of one pass over what the election is projected to.
    pub(super) fn projecting(&self) -> Span {
        self.span.as_deref().map_or_else(Span::none, |event| {
            info_span!(
                target: SPANS, parent: event, "project",
                otel.kind = "client", bellwether.writes = Empty, bellwether.failures = Empty,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::SpanId;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::traces::tests::{ALONE, Kept};

    fn key() -> Key {
        Key {
            namespace: "default".to_owned(),
            name: "one".to_owned(),
        }
    }

    #[test]
    fn what_comes_of_an_event_is_part_of_its_trace() {
        let _alone = ALONE.blocking_lock();
        let (kept, traces) = Kept::start();
        let taking = tracing_subscriber::registry().with(traces.layer());
        tracing::subscriber::with_default(taking, || {
            let event = Noticed::event(&key());
            drop(event.reading());
            let projector = event.clone();
            drop(event);
            drop(projector.projecting());
            assert_eq!(kept.spans().len(), 2, "the event ended before all was done");
            drop(projector);
            let silent = Noticed::now();
            assert!(silent.reading().is_disabled() && silent.writing(true).is_disabled());
        });
        let spans = kept.spans();
        let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
        assert_eq!(names, ["read", "project", "election event"]);
        let event = spans[2].span_context.span_id();
        let parents = [0, 1, 2].map(|index| spans[index].parent_span_id);
        assert_eq!(parents, [event, event, SpanId::INVALID]);
    }

    #[test]
    fn ten_thousand_of_these_are_small() {
        assert!(size_of::<Noticed>() <= 24);
    }
}
