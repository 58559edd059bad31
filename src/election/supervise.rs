//! Tasks that run again after a panic.
//!
//! One election or one server must not end the others, so a mirror or the keeper of a session that panics is
//! logged and run again. Parts that all elections share do not run again: when one of them ends, the operator
//! ends, and Kubernetes restarts it.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep};
use tracing::error;

/// The first pause after a task broke off; each further one is twice as long, up to the longest.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Runs a task until it ends by itself. When it panics, that is logged and reported, and after a pause it runs
/// again; the first pause is this long.
pub(super) async fn supervise(
    what: &str,
    first: Duration,
    mut run: impl FnMut() -> BoxFuture<'static, ()>,
    mut report: impl FnMut(Duration) -> BoxFuture<'static, ()>,
) {
    let mut pause = first;
    loop {
        let began = Instant::now();
        if AssertUnwindSafe(run()).catch_unwind().await.is_ok() {
            return;
        }
        if began.elapsed() > LONGEST_PAUSE {
            pause = first;
        }
        error!(what, ?pause, "panicked and is started again");
        report(pause).await;
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn what_panics_is_reported_and_run_again_with_growing_pauses() {
        let runs = Arc::new(Mutex::new(0));
        let reports = Arc::new(Mutex::new(Vec::new()));
        let (count, pauses) = (runs.clone(), reports.clone());
        let run = move || {
            let count = count.clone();
            async move {
                *count.lock().unwrap() += 1;
                let runs = *count.lock().unwrap();
                assert!(runs > 3, "a defect");
            }
            .boxed()
        };
        let report = move |pause: Duration| {
            pauses.lock().unwrap().push(pause.as_millis());
            std::future::ready(()).boxed()
        };
        supervise("a test", Duration::from_millis(1), run, report).await;
        assert_eq!(*runs.lock().unwrap(), 4);
        assert_eq!(*reports.lock().unwrap(), [1, 2, 4]);
    }
}
