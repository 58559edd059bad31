//! When each leader of each election was first seen.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// By election: each leader's node, and when it was first seen.
type Seen = HashMap<usize, Vec<(String, Instant)>>;

/// The leaders that an observer of elections saw, in order. Copies share it.
#[derive(Clone, Default)]
pub(super) struct Sightings(Arc<Mutex<Seen>>);

impl Sightings {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This node leads the election now.
    pub(super) fn note(&self, election: usize, node: &str) {
        let mut seen = self.lock();
        let seen = seen.entry(election).or_default();
        if seen.last().is_none_or(|(last, _)| last != node) {
            seen.push((node.to_owned(), Instant::now()));
        }
    }

    /// When this node was first seen to lead the election.
    pub(super) fn when(&self, election: usize, node: &str) -> Option<Instant> {
        let seen = self.lock();
        let found = seen.get(&election)?.iter().find(|(other, _)| other == node);
        found.map(|(_, at)| *at)
    }

    /// How many of these elections show another leader than this, or none.
    pub(super) fn wrong<'a>(&self, leaders: impl Iterator<Item = (usize, &'a str)>) -> usize {
        let seen = self.lock();
        let last = |election: &usize| Some(seen.get(election)?.last()?.0.as_str());
        leaders
            .filter(|(election, leader)| last(election) != Some(*leader))
            .count()
    }
}
