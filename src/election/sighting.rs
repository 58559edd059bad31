//! When the leader of an election was last read, for parts that believe a reading only for a limited time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// When the leader of one election was last read. The mirror renews it and clones share it, so that their
/// owners notice when the mirror ended or hangs.
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

    /// Until when the last reading may be believed, if it counts for this long.
    pub(super) fn until(&self, believed: Duration) -> Instant {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 + believed
    }
}
