//! Whose turn it is: which election is projected next.
//!
//! Of the elections that are due, one of the namespace with the fewest jobs under way is next, and within the namespace the
//! one that has waited longest. A namespace whose requests are slow, by a webhook for example, takes no more than its
//! share of the jobs: the Leases of other namespaces are renewed in time.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use super::super::Key;

/// How many jobs may be under way at the same time.
const JOBS: usize = 64;

/// How many of them may be of one namespace.
const JOBS_OF_NAMESPACE: usize = 16;

/// What waits in one namespace, and what is under way there.
#[derive(Debug, Default)]
struct Namespace {
    waiting: BTreeSet<(Instant, Key)>,
    jobs: usize,
}

/// The elections that wait for their turn, and how many jobs are under way.
#[derive(Debug, Default)]
pub(super) struct Turns {
    namespaces: HashMap<String, Namespace>,
    jobs: usize,
}

impl Turns {
    pub(super) fn insert(&mut self, at: Instant, key: Key) {
        let namespace = self.namespaces.entry(key.namespace.clone()).or_default();
        namespace.waiting.insert((at, key));
    }

    pub(super) fn remove(&mut self, at: Instant, key: &Key) {
        if let Some(namespace) = self.namespaces.get_mut(&key.namespace) {
            namespace.waiting.remove(&(at, key.clone()));
        }
        self.forget_empty(&key.namespace);
    }

    /// The earliest time at which a job may begin, if any may.
    pub(super) fn next(&self) -> Option<Instant> {
        self.open().map(|(at, _)| at).min()
    }

    /// Takes out the election whose turn it is. Its job is under way until [`Self::ended`].
    pub(super) fn pop(&mut self, now: Instant) -> Option<Key> {
        let due = self.open().filter(|(at, _)| *at <= now);
        let next = due.min_by_key(|(at, key)| {
            let jobs = self.namespaces.get(&key.namespace);
            (jobs.map_or(0, |namespace| namespace.jobs), *at)
        });
        let (at, key) = next.map(|(at, key)| (at, key.clone()))?;
        self.began(&key.namespace);
        self.remove(at, &key);
        Some(key)
    }

    /// Whether another job may begin that is no election's turn.
    pub(super) fn has_room(&self) -> bool {
        self.jobs < JOBS
    }

    /// Counts a job.
    pub(super) fn began(&mut self, namespace: &str) {
        self.jobs += 1;
        self.namespaces
            .entry(namespace.to_owned())
            .or_default()
            .jobs += 1;
    }

    /// Counts a job no longer.
    pub(super) fn ended(&mut self, namespace: &str) {
        self.jobs = self.jobs.saturating_sub(1);
        if let Some(namespace) = self.namespaces.get_mut(namespace) {
            namespace.jobs = namespace.jobs.saturating_sub(1);
        }
        self.forget_empty(namespace);
    }

    /// The first election of each namespace that may have another job.
    fn open(&self) -> impl Iterator<Item = (Instant, &Key)> {
        let all = self.namespaces.values().filter(|_| self.has_room());
        let open = all.filter(|namespace| namespace.jobs < JOBS_OF_NAMESPACE);
        open.filter_map(|namespace| namespace.waiting.first())
            .map(|(at, key)| (*at, key))
    }

    fn forget_empty(&mut self, namespace: &str) {
        let is_empty = |namespace: &Namespace| namespace.jobs == 0 && namespace.waiting.is_empty();
        if self.namespaces.get(namespace).is_some_and(is_empty) {
            self.namespaces.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(namespace: &str, number: usize) -> Key {
        Key {
            namespace: namespace.to_owned(),
            name: format!("election-{number}"),
        }
    }

    #[test]
    fn a_namespace_with_slow_requests_keeps_no_other_from_its_turn() {
        let now = Instant::now();
        let mut turns = Turns::default();
        for number in 0..5000 {
            turns.insert(now, key("slow", number));
        }
        let late = now + Duration::from_millis(20);
        turns.insert(late, key("other", 0));
        let slow = std::iter::from_fn(|| turns.pop(now)).count();
        assert_eq!(slow, JOBS_OF_NAMESPACE);
        assert_eq!((turns.next(), turns.pop(now)), (Some(late), None));
        assert_eq!(turns.pop(late), Some(key("other", 0)));
        turns.ended("slow");
        assert_eq!(turns.next(), Some(now));
    }

    #[test]
    fn the_namespace_with_the_fewest_jobs_is_next_and_in_it_what_waited_longest() {
        let now = Instant::now();
        let mut turns = Turns::default();
        let before = |milliseconds| now - Duration::from_millis(milliseconds);
        for (at, key) in [
            (before(9), key("many", 0)),
            (before(8), key("many", 1)),
            (before(3), key("few", 0)),
            (before(4), key("few", 1)),
        ] {
            turns.insert(at, key);
        }
        let order: Vec<_> = std::iter::from_fn(|| turns.pop(now)).collect();
        let expected = [("many", 0), ("few", 1), ("many", 1), ("few", 0)];
        assert_eq!(
            order,
            expected.map(|(namespace, number)| key(namespace, number))
        );
        for key in order {
            turns.ended(&key.namespace);
        }
        assert!(turns.namespaces.is_empty());
    }

    #[test]
    fn no_more_jobs_begin_than_there_may_be() {
        let now = Instant::now();
        let mut turns = Turns::default();
        for number in 0..JOBS * 2 {
            turns.insert(now, key(&format!("namespace-{number}"), 0));
        }
        assert_eq!(std::iter::from_fn(|| turns.pop(now)).count(), JOBS);
        assert_eq!((turns.next(), turns.has_room()), (None, false));
    }
}
