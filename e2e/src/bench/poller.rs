//! What a program does that does not watch: it reads every election once a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt, stream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use zookeeper_client::Client;

use super::candidates::path;
use super::sightings::Sightings;

const PARALLEL: usize = 32;

/// A poller that runs.
pub(super) struct Poller {
    seen: Sightings,
    reads: Arc<AtomicU64>,
    begin: Instant,
    task: JoinHandle<()>,
}

impl Poller {
    pub(super) async fn start(hosts: &str, elections: usize) -> Result<Self> {
        let client = Client::connect(hosts).await?;
        let (seen, reads) = (Sightings::default(), Arc::default());
        let task = tokio::spawn(poll(client, elections, seen.clone(), Arc::clone(&reads)));
        Ok(Self {
            seen,
            reads,
            begin: Instant::now(),
            task,
        })
    }

    /// When a node was first found to lead an election.
    pub(super) fn seen(&self, election: usize, leader: &str) -> Option<Instant> {
        self.seen.when(election, leader)
    }

    /// Ends it, and tells how many reads it made in a second.
    pub(super) fn stop(self) -> f64 {
        self.task.abort();
        let reads = u32::try_from(self.reads.load(Ordering::Relaxed)).map_or(f64::MAX, f64::from);
        reads / self.begin.elapsed().as_secs_f64()
    }
}

async fn poll(client: Client, elections: usize, seen: Sightings, reads: Arc<AtomicU64>) {
    let mut tick = interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let mut round = stream::iter(0..elections)
            .map(|election| {
                let (client, reads) = (client.clone(), Arc::clone(&reads));
                async move {
                    let parent = path(election);
                    let children = client.list_children(&parent).await.ok()?;
                    let leader = children.into_iter().min()?;
                    client.get_data(&format!("{parent}/{leader}")).await.ok()?;
                    reads.fetch_add(2, Ordering::Relaxed);
                    Some((election, leader))
                }
            })
            .buffer_unordered(PARALLEL);
        while let Some(found) = round.next().await {
            let Some((election, leader)) = found else {
                continue;
            };
            seen.note(election, &leader);
        }
    }
}
