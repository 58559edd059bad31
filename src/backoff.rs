//! Retry times, per object.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

/// How to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// After 200 ms.
    Soon,
    /// After 1 s, then twice as long each time, up to half a minute, and with jitter up to a minute.
    Growing,
    /// After a minute: nothing will change quickly.
    Slow,
}

/// The longest wait without its jitter. A change that is under way stands still meanwhile, even if the API
/// server has recovered.
const LONGEST: Duration = Duration::from_secs(30);

/// The retry times of all objects of one kind.
#[derive(Default)]
pub(crate) struct Backoff(Mutex<HashMap<(String, String), Growing>>);

/// The retry times of one object.
struct Growing {
    waits: ExponentialBackoff,
    /// When the next try is due.
    due: Instant,
}

impl Backoff {
    /// How long to wait before the next try.
    pub(crate) fn next(&self, namespace: &str, name: &str, retry: Retry) -> Duration {
        match retry {
            Retry::Soon => Duration::from_millis(200),
            Retry::Slow => Duration::from_secs(60),
            Retry::Growing => {
                let now = Instant::now();
                let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let key = (namespace.to_owned(), name.to_owned());
                let growing = all.entry(key).or_insert_with(|| Growing {
                    waits: growing(),
                    due: now,
                });
                // A change of the object causes a try before it is due. If such a try fails, the wait does
                // not grow.
                if growing.due <= now {
                    growing.due = now + growing.waits.next().unwrap_or(LONGEST);
                }
                growing.due - now
            }
        }
    }

    /// Forgets the retry times of an object whose reconcile succeeded.
    pub(crate) fn reset(&self, namespace: &str, name: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&(namespace.to_owned(), name.to_owned()));
    }
}

fn growing() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_secs(1))
        .with_max_delay(LONGEST)
        .with_jitter()
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_wait_is_longer_than_a_minute_and_each_object_has_its_own() {
        let backoff = Backoff::default();
        let fails = |name| backoff.next("default", name, Retry::Growing);
        let fails_when_due = async || {
            let wait = fails("a");
            advance(wait).await;
            wait
        };
        assert!(fails_when_due().await < Duration::from_secs(2));
        for _ in 0..20 {
            assert!(fails_when_due().await <= LONGEST * 2);
        }
        assert!(fails_when_due().await >= LONGEST);
        assert!(fails("b") < Duration::from_secs(2));
        backoff.reset("default", "a");
        assert!(fails_when_due().await < Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn tries_that_fail_before_they_are_due_do_not_make_the_wait_longer() {
        let backoff = Backoff::default();
        let next = || backoff.next("default", "a", Retry::Growing);
        let first = next();
        for _ in 0..10 {
            assert_eq!(next(), first);
        }
        advance(first / 2).await;
        assert_eq!(next(), first - first / 2);
    }
}
