//! The order and times of status writes.

use std::collections::BTreeSet;

use bellwether_election::Urgency;
use tokio::time::Instant;

use super::Key;

/// When a status is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) at: Instant,
    /// What is written first of that which is due.
    pub(super) urgency: Urgency,
}

/// The elections whose status is to be written, each at most once.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    leaders: BTreeSet<(Instant, Key)>,
    sights: BTreeSet<(Instant, Key)>,
    queues: BTreeSet<(Instant, Key)>,
}

impl Agenda {
    pub(super) fn insert(&mut self, due: Due, key: Key) {
        self.queue(due).insert((due.at, key));
    }

    pub(super) fn remove(&mut self, due: Due, key: Key) {
        self.queue(due).remove(&(due.at, key));
    }

    fn queue(&mut self, due: Due) -> &mut BTreeSet<(Instant, Key)> {
        match due.urgency {
            Urgency::Leader => &mut self.leaders,
            Urgency::Sight => &mut self.sights,
            Urgency::Queue => &mut self.queues,
        }
    }

    /// The earliest time at which something is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let all = [&self.leaders, &self.sights, &self.queues];
        let first = all.into_iter().filter_map(BTreeSet::first);
        first.map(|(at, _)| *at).min()
    }

    /// Takes out what is to be written next, of that which is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Key> {
        [&mut self.leaders, &mut self.sights, &mut self.queues]
            .into_iter()
            .find(|set| set.first().is_some_and(|(at, _)| *at <= now))
            .and_then(BTreeSet::pop_first)
            .map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn of_what_is_due_another_leader_goes_first_then_sight_and_then_what_waited_longest() {
        let now = Instant::now();
        let key = |name: &str| Key {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        let due = |urgency, after| Due {
            at: now + Duration::from_millis(after),
            urgency,
        };
        let mut agenda = Agenda::default();
        assert_eq!((agenda.next(), agenda.pop(now)), (None, None));
        let all = [
            ("queue", due(Urgency::Queue, 0)),
            ("blind", due(Urgency::Sight, 1)),
            ("late", due(Urgency::Leader, 20)),
            ("soon", due(Urgency::Leader, 10)),
            ("gone", due(Urgency::Leader, 5)),
        ];
        for (name, due) in all {
            agenda.insert(due, key(name));
        }
        agenda.remove(due(Urgency::Leader, 5), key("gone"));
        assert_eq!(agenda.next(), Some(now));
        let later = now + Duration::from_millis(10);
        let order = [Some("soon"), Some("blind"), Some("queue"), None];
        let order = order.map(|name| name.map(key));
        assert_eq!([(); 4].map(|()| agenda.pop(later)), order);
        assert_eq!(agenda.next(), Some(due(Urgency::Leader, 20).at));
    }
}
