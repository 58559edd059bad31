//! Settings that a running ensemble changes in several rolls: their states, and the order of the rolls.
//!
//! Only neighbouring states may run at the same time. A state that no member runs yet begins only when every member
//! runs the one before it and serves. A change of mind turns the rolls round at any point.

use std::collections::BTreeSet;

use crate::encryption::Encryption;
use crate::observation::{Observation, PodObservation};

/// A state that every member's configuration has, in the order in which a running ensemble goes through them.
pub trait Stage: Copy + Ord + 'static {
    /// All states, in their order.
    const ALL: &'static [Self];

    /// The word for it in annotations and in the status.
    fn as_str(self) -> &'static str;

    /// The state of this word.
    fn of_word(word: &str) -> Option<Self> {
        let mut all = Self::ALL.iter();
        all.find(|state| state.as_str() == word).copied()
    }

    /// The place in that order.
    fn place(self) -> usize {
        Self::ALL.iter().take_while(|state| **state < self).count()
    }

    /// Whether members in these two states may run at the same time: only neighbours may.
    fn fits(self, other: Self) -> bool {
        self.place().abs_diff(other.place()) <= 1
    }

    /// What the pod template has to say next.
    ///
    /// `template` is what it says now. `finished` tells that every member serves and no size change is under way.
    /// Members that fit no common state and none of which serves restart into what the template says.
    fn next(template: Self, running: &Running<Self>, wanted: Self, finished: bool) -> Self {
        // A server that was started out of reach of the others serves nothing, and restarts into what they run.
        let nearest = |live| nearest(template, live, wanted, finished);
        nearest(&running.all)
            .or_else(|| nearest(&running.serving))
            .unwrap_or(template)
    }
}

/// The state nearest to the wanted one that fits all these. One that has not begun only if all else is finished, or if
/// no other one fits them.
fn nearest<S: Stage>(template: S, live: &BTreeSet<S>, wanted: S, finished: bool) -> Option<S> {
    let distance = |state: &S| state.place().abs_diff(wanted.place());
    let fits = |state: &S| live.iter().all(|other| state.fits(*other));
    let states = || S::ALL.iter().copied().filter(fits);
    let begun = || {
        let states = states().filter(|state| live.contains(state) || *state == template);
        states.min_by_key(distance)
    };
    let any = || states().min_by_key(distance);
    match finished || begun().is_none() {
        _ if live.is_empty() => None,
        true => any(),
        false => begun(),
    }
}

/// In which states the members of an ensemble are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running<S> {
    /// All voters, and the observers that serve: no change waits for an observer that does not.
    pub all: BTreeSet<S>,
    /// All that serve.
    pub serving: BTreeSet<S>,
    /// How many pods there are.
    pub pods: usize,
}

impl<S> Default for Running<S> {
    fn default() -> Self {
        Self {
            all: BTreeSet::new(),
            serving: BTreeSet::new(),
            pods: 0,
        }
    }
}

impl Running<Encryption> {
    /// What runs, as it was observed.
    pub fn of(observation: &Observation) -> Self {
        let (voters, observers) = (&observation.pods, &observation.observers.pods);
        let state = |pod: &PodObservation| pod.revision.as_ref().map(|revision| revision.tls);
        let serving = voters.iter().chain(observers).filter(|pod| pod.serves());
        let serving: BTreeSet<Encryption> = serving.filter_map(state).collect();
        let all = voters.iter().filter_map(state);
        Self {
            all: all.chain(serving.iter().copied()).collect(),
            serving,
            pods: voters.len() + observers.len(),
        }
    }

    /// The same of one of the settings.
    pub fn map<S: Ord>(&self, setting: impl Fn(&Encryption) -> S) -> Running<S> {
        Running {
            all: self.all.iter().map(&setting).collect(),
            serving: self.serving.iter().map(&setting).collect(),
            pods: self.pods,
        }
    }
}
