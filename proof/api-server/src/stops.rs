//! Clients whose processes are stopped, as SIGSTOP does it: they do nothing, and continue where they were.
//!
//! The run of an operator is not polled while its process is stopped. Its reconciles are tasks of their own;
//! they are held where they send something or receive an answer, which is all that they wait for. What a
//! process sent before it was stopped is carried out.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::watch;

use crate::clocks::Clocks;

/// The clients that are stopped, by name.
#[derive(Clone, Debug, Default)]
pub struct Stops {
    stopped: Arc<watch::Sender<BTreeSet<String>>>,
    clocks: Clocks,
}

impl Stops {
    /// The clients' clocks.
    pub fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// Stops a client's process.
    pub fn stop(&self, client: &str) {
        self.stopped.send_modify(|stopped| {
            stopped.insert(client.to_owned());
        });
    }

    /// Lets a client's process continue.
    pub fn resume(&self, client: &str) {
        self.stopped.send_modify(|stopped| {
            stopped.remove(client);
        });
    }

    fn is_stopped(&self, client: &str) -> bool {
        self.stopped.borrow().contains(client)
    }

    /// Waits until the client's process runs.
    pub async fn passed(&self, client: &str) {
        if self.is_stopped(client) {
            // The sender is in `self`, so that it cannot go away.
            let mut stopped = self.stopped.subscribe();
            let _ = stopped.wait_for(|stopped| !stopped.contains(client)).await;
        }
        self.clocks.show(client);
    }

    /// Runs a client's program, which is not polled while its process is stopped.
    pub async fn run<F: Future>(&self, client: &str, program: F) -> F::Output {
        let mut program = pin!(program);
        loop {
            self.passed(client).await;
            let ended = poll_fn(|context| {
                if self.is_stopped(client) {
                    return Poll::Ready(None);
                }
                self.clocks.show(client);
                program.as_mut().poll(context).map(Some)
            });
            if let Some(output) = ended.await {
                return output;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_program_does_nothing_while_it_is_stopped_and_continues_where_it_was() {
        let stops = Stops::default();
        let begin = Instant::now();
        let program = stops.run("operator", async {
            sleep(Duration::from_secs(1)).await;
            begin.elapsed()
        });
        let mut program = pin!(program);
        let soon = Duration::from_millis(500);
        assert!(timeout(soon, program.as_mut()).await.is_err());
        stops.stop("operator");
        let minute = Duration::from_secs(60);
        assert!(timeout(minute, program.as_mut()).await.is_err());
        stops.resume("operator");
        // Its sleep ended long ago.
        let ended = timeout(minute, program).await;
        assert!(ended.is_ok_and(|at| at >= minute && at < minute + Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_client_that_is_stopped_waits() {
        let stops = Stops::default();
        stops.stop("one");
        let soon = Duration::from_secs(1);
        assert!(timeout(soon, stops.passed("one")).await.is_err());
        assert!(timeout(soon, stops.passed("other")).await.is_ok());
        stops.resume("one");
        assert!(timeout(soon, stops.passed("one")).await.is_ok());
    }
}
