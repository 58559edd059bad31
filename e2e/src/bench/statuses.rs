//! The statuses of many elections, as a client that watches them sees them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use bellwether_api::LeaderElection;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::candidates::{Candidates, path};
use super::sightings::Sightings;

/// How many objects are created at the same time.
const PARALLEL: usize = 16;

/// What the watch has brought.
pub(super) struct Statuses {
    api: Api<LeaderElection>,
    seen: Sightings,
    events: Arc<AtomicU64>,
}

impl Statuses {
    pub(super) async fn watch(namespace: &str) -> Result<Self> {
        let client = Client::try_default().await?;
        let api: Api<LeaderElection> = Api::namespaced(client, namespace);
        let statuses = Self {
            api: api.clone(),
            seen: Sightings::default(),
            events: Arc::default(),
        };
        let (seen, events) = (statuses.seen.clone(), Arc::clone(&statuses.events));
        tokio::spawn(async move {
            let changes = watcher(api, watcher::Config::default()).default_backoff();
            let mut objects = changes.applied_objects().boxed();
            while let Some(object) = objects.next().await {
                let Ok(object) = object else { continue };
                events.fetch_add(1, Ordering::Relaxed);
                let leader = object.status.as_ref().and_then(|s| s.leader.as_ref());
                let number = object.name_any().trim_start_matches("election-").parse();
                let (Ok(election), Some(leader)) = (number, leader) else {
                    continue;
                };
                seen.note(election, &leader.node);
            }
        });
        Ok(statuses)
    }

    /// Creates the objects.
    pub(super) async fn create(&self, namespace: &str, elections: Range<usize>) -> Result<()> {
        stream::iter(elections)
            .map(|election| async move {
                let object: LeaderElection = serde_json::from_value(json!({
                    "apiVersion": "zookeeper.bellwether.dev/v1alpha1",
                    "kind": "LeaderElection",
                    "metadata": { "name": format!("election-{election:05}"), "namespace": namespace },
                    "spec": {
                        "ensembleRef": { "name": "main" },
                        "path": path(election),
                        "dialect": { "type": "ZkElection" },
                    },
                }))?;
                self.api.create(&PostParams::default(), &object).await?;
                anyhow::Ok(())
            })
            .buffer_unordered(PARALLEL)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }

    /// When a node was first shown as the leader of an election.
    pub(super) fn seen(&self, election: usize, leader: &str) -> Option<Instant> {
        self.seen.when(election, leader)
    }

    /// How many changes of objects the watch brought.
    pub(super) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Waits until every status shows the leader that the candidates know.
    pub(super) async fn wait_all(&self, candidates: &Candidates, patience: Duration) -> Result<()> {
        let begin = Instant::now();
        loop {
            let wrong = self.seen.wrong(candidates.leaders());
            if wrong == 0 {
                return Ok(());
            }
            if begin.elapsed() > patience {
                bail!("after {patience:?} {wrong} statuses do not show the leader");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}
