//! What is known of one election.

use std::sync::Arc;
use std::time::Duration;

use bellwether_api::{LeaderElection, LeaderElectionStatus};
use bellwether_election::{Sight, status_and_projection};
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::time::Instant;

use super::super::agenda::Due;
use super::super::messages::Projected;
use super::super::metrics::Metrics;
use super::super::noticed::Noticed;
use super::super::pace::Pace;
use super::super::sighting::Sighting;

/// How often one status may be written: what is urgent so many times in a row, and then, as anything
/// else, once in this time.
const BURST: u32 = 4;
const GAP: Duration = Duration::from_secs(1);

/// What is known of one election.
pub(super) struct Entry {
    pub(super) object: Arc<LeaderElection>,
    /// What a mirror sees, and the generation that it was started for.
    pub(super) seen: Option<(Option<i64>, Sight)>,
    /// When the leader was last read.
    pub(super) sighting: Option<Sighting>,
    pub(super) projected: Option<Projected>,
    /// When the first event came that is not written yet.
    pub(super) noticed: Option<Noticed>,
    pub(super) pace: Pace,
    pub(super) failures: u32,
    pub(super) not_before: Option<Instant>,
    /// When to write; `None` if there is nothing to write or a write is under way.
    pub(super) due: Option<Due>,
    pub(super) is_writing: bool,
}

impl Entry {
    pub(super) fn new(object: Arc<LeaderElection>) -> Self {
        Self {
            object,
            seen: None,
            sighting: None,
            projected: None,
            noticed: None,
            pace: Pace::new(GAP, BURST),
            failures: 0,
            not_before: None,
            due: None,
            is_writing: false,
        }
    }

    pub(super) fn replace(&mut self, object: Arc<LeaderElection>, metrics: &Metrics) {
        metrics.replaced(self.object.status.as_ref(), object.status.as_ref());
        self.object = object;
    }

    /// When the leader that is seen had to run at the latest.
    pub(super) fn owned(&self) -> Option<Timestamp> {
        match self.seen.as_ref()? {
            (_, Sight::Seen(reading)) => reading.leader()?.znode.candidacy()?.owned,
            (_, Sight::Blind(_)) => None,
        }
    }

    /// The status that the object should have, if it has another one.
    pub(super) fn pending(&self) -> Option<LeaderElectionStatus> {
        let fresh = self.fresh();
        fresh.filter(|fresh| self.object.status.as_ref() != Some(fresh))
    }

    /// The status that the object should have, if that is known.
    pub(super) fn fresh(&self) -> Option<LeaderElectionStatus> {
        let (generation, sight) = self.seen.as_ref()?;
        // A reading by an older spec does not count for this one, whose mirror is starting.
        if *generation != self.object.metadata.generation {
            return None;
        }
        let projected = self.projected.as_ref();
        let projected = projected.filter(|projected| projected.generation == *generation);
        Some(status_and_projection(
            &self.object.spec,
            *generation,
            sight,
            projected.map(|projected| &projected.projection),
            self.object.status.as_ref(),
            Timestamp::now(),
        ))
    }
}

/// Whether one state of an object is not older than another. Resource versions are numbers that grow; if they
/// are not numbers, the watch is believed.
pub(super) fn is_newer(one: &LeaderElection, other: &LeaderElection) -> bool {
    let version = |object: &LeaderElection| object.resource_version()?.parse::<u64>().ok();
    match (version(one), version(other)) {
        (Some(one), Some(other)) => one >= other,
        _ => true,
    }
}
