//! When the leader of an election was last read, for those who must not believe it for longer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// When the leader of one election was last read. The mirror notes it; copies share it, so that a
/// mirror that ended or hangs is noticed by those who look.
#[derive(Clone, Debug)]
pub(super) struct Sighting(Arc<Mutex<(Instant, Timestamp)>>);

impl Sighting {
    /// It was read now.
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new((Instant::now(), Timestamp::now()))))
    }

    /// It was read again, at this time at the earliest.
    pub(super) fn renew(&self, asked: (Instant, Timestamp)) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = asked;
    }

    /// When it was read, by the clock.
    pub(super) fn time(&self) -> Timestamp {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Until when it may be believed for so long.
    pub(super) fn until(&self, believed: Duration) -> Instant {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 + believed
    }
}
