//! What is known of one election.

use std::sync::Arc;
use std::time::Duration;

use bellwether_api::election::Reason;
use bellwether_api::{LeaderElection, LeaderElectionStatus};
use bellwether_election::handover::annotation;
use bellwether_election::{Done, Sight, flaps_until, status_and_done};
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::time::Instant;

use super::super::agenda::Due;
use super::super::messages::{Bridged, Projected, Seen};
use super::super::metrics::Metrics;
use super::super::noticed::Noticed;
use super::super::pace::Pace;
use super::super::series::Leadership;
use super::super::sighting::Sighting;

/// How often one status may be written: what is urgent so many times in a row, and then, as anything
/// else, once in this time.
const BURST: u32 = 4;
const GAP: Duration = Duration::from_secs(1);

/// The status that an object should have.
enum Computed {
    /// It has to be computed, as something that it depends on changed.
    Outdated,
    /// The one that the object has. No copy is kept, since most of thousands of elections are in this state.
    Same,
    /// Another one.
    Other(Arc<LeaderElectionStatus>),
}

/// What is known of one election.
pub(super) struct Entry {
    object: Arc<LeaderElection>,
    /// What a mirror sees, and the generation that it was started for.
    seen: Option<(Option<i64>, Sight)>,
    projected: Option<Projected>,
    bridged: Option<Box<Bridged>>,
    computed: Computed,
    /// When the leader was last read.
    pub(super) sighting: Option<Sighting>,
    /// When the first event came that is not written yet.
    pub(super) noticed: Option<Noticed>,
    pub(super) pace: Pace,
    pub(super) failures: u32,
    pub(super) not_before: Option<Instant>,
    /// When to write; `None` if there is nothing to write or a write is under way.
    pub(super) due: Option<Due>,
    pub(super) is_writing: bool,
    /// How often the status was computed.
    #[cfg(test)]
    pub(super) computations: usize,
}

impl Entry {
    pub(super) fn new(object: Arc<LeaderElection>) -> Self {
        Self {
            object,
            seen: None,
            projected: None,
            bridged: None,
            computed: Computed::Outdated,
            sighting: None,
            noticed: None,
            pace: Pace::new(GAP, BURST),
            failures: 0,
            not_before: None,
            due: None,
            is_writing: false,
            #[cfg(test)]
            computations: 0,
        }
    }

    pub(super) fn object(&self) -> &Arc<LeaderElection> {
        &self.object
    }

    /// Takes a state of the object, unless it is an older one. Returns whether the spec changed, or what a person asks of the
    /// leader, or the status in another way than by writing what was computed.
    pub(super) fn replace(&mut self, object: Arc<LeaderElection>, metrics: &Metrics) -> bool {
        if !is_newer(&object, &self.object) {
            return false;
        }
        metrics.replaced(self.object.status.as_ref(), object.status.as_ref());
        let old = std::mem::replace(&mut self.object, object);
        let (new, old) = (&*self.object, &*old);
        let is_other_spec =
            new.metadata.generation != old.metadata.generation || new.spec != old.spec;
        // A status that is computed again from itself stays the same.
        let is_written = matches!(&self.computed, Computed::Other(status) if new.status.as_ref() == Some(status));
        let is_other_request = annotation(new) != annotation(old);
        let changed =
            is_other_spec || is_other_request || (!is_written && new.status != old.status);
        if changed {
            self.computed = Computed::Outdated;
        } else if is_written {
            self.computed = Computed::Same;
        }
        changed
    }

    /// Takes what a mirror sees.
    pub(super) fn see(&mut self, seen: Seen) {
        self.noticed.get_or_insert(seen.noticed);
        self.seen = Some((seen.generation, seen.sight));
        self.sighting = Some(seen.sighting);
        self.computed = Computed::Outdated;
    }

    /// Takes the outcome of the projections.
    pub(super) fn project(&mut self, projected: Projected) {
        self.projected = Some(projected);
        self.computed = Computed::Outdated;
    }

    /// Takes what the bridge does.
    pub(super) fn bridge(&mut self, bridged: Box<Bridged>) {
        self.bridged = Some(bridged);
        self.computed = Computed::Outdated;
    }

    /// When the leader that is seen had to run at the latest.
    pub(super) fn owned(&self) -> Option<Timestamp> {
        match self.seen.as_ref()? {
            (_, Sight::Seen(reading)) => reading.leader()?.znode.candidacy()?.owned,
            (_, Sight::Blind(_)) => None,
        }
    }

    /// When the status does not say any more that the leader changes again and again, if it says so.
    pub(super) fn calms_at(&self) -> Option<Instant> {
        let status = self.object.status.as_ref()?;
        let mut conditions = status.conditions.iter();
        conditions.find(|condition| condition.reason == Reason::Flapping.as_str())?;
        let left = flaps_until(status)?.duration_since(Timestamp::now());
        // A moment later, so that the time is over.
        let left = Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1);
        Some(Instant::now() + left)
    }

    /// Has the status computed again if the time is over for which it says that the leader changes again and again.
    pub(super) fn note_calm(&mut self) {
        if matches!(self.computed, Computed::Same) && self.calms_at().is_some() {
            self.computed = Computed::Outdated;
        }
    }

    /// The status that the object should have, if it has another one.
    pub(super) fn pending(&mut self) -> Option<Arc<LeaderElectionStatus>> {
        if matches!(self.computed, Computed::Same) {
            return None;
        }
        let status = self.status()?;
        if self.object.status.as_ref() == Some(&status) {
            self.computed = Computed::Same;
            return None;
        }
        Some(status)
    }

    /// The status that the object should have, if that is known.
    pub(super) fn status(&mut self) -> Option<Arc<LeaderElectionStatus>> {
        match &self.computed {
            Computed::Outdated => {
                let status = Arc::new(self.compute()?);
                self.computed = Computed::Other(status.clone());
                Some(status)
            }
            Computed::Same => self.object.status.clone().map(Arc::new),
            Computed::Other(status) => Some(status.clone()),
        }
    }

    /// Whether somebody leads.
    pub(super) fn leadership(&mut self) -> Leadership {
        let status = self.status();
        let projected = self.projected.as_ref();
        Leadership::of(
            status.as_deref(),
            projected.map(|projected| &projected.projection),
        )
    }

    fn compute(&mut self) -> Option<LeaderElectionStatus> {
        let (generation, sight) = self.seen.as_ref()?;
        // A reading by an older spec does not count for this one, whose mirror is starting.
        if *generation != self.object.metadata.generation {
            return None;
        }
        #[cfg(test)]
        {
            self.computations += 1;
        }
        let projected = self.projected.as_ref();
        let projected = projected.filter(|projected| projected.generation == *generation);
        let bridged = self.bridged.as_ref();
        let bridged = bridged.filter(|bridged| bridged.generation == *generation);
        let done = Done {
            projection: projected.map(|projected| &projected.projection),
            bridged: bridged.map(|bridged| &bridged.condition),
        };
        Some(status_and_done(
            &self.object.spec,
            *generation,
            sight,
            done,
            self.object.status.as_ref(),
            Timestamp::now(),
        ))
    }
}

/// Whether one state of an object is newer than another. Resource versions are numbers that grow; if they are
/// not numbers, the API server is believed.
fn is_newer(one: &LeaderElection, other: &LeaderElection) -> bool {
    let version = |object: &LeaderElection| object.resource_version()?.parse::<u64>().ok();
    match (version(one), version(other)) {
        (Some(one), Some(other)) => one > other,
        _ => true,
    }
}
