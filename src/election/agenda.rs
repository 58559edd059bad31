//! The order and times of status writes.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::Key;

/// When a status is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) at: Instant,
    /// Whether it shows another leader. Such a write goes first: a queue may be shown a moment late.
    pub(super) urgent: bool,
}

/// The elections whose status is to be written, each at most once.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    urgent: BTreeSet<(Instant, Key)>,
    other: BTreeSet<(Instant, Key)>,
}

impl Agenda {
    pub(super) fn insert(&mut self, due: Due, key: Key) {
        self.queue(due).insert((due.at, key));
    }

    pub(super) fn remove(&mut self, due: Due, key: Key) {
        self.queue(due).remove(&(due.at, key));
    }

    fn queue(&mut self, due: Due) -> &mut BTreeSet<(Instant, Key)> {
        match due.urgent {
            true => &mut self.urgent,
            false => &mut self.other,
        }
    }

    /// The earliest time at which something is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, Key)>| set.first().map(|(at, _)| *at);
        match (first(&self.urgent), first(&self.other)) {
            (Some(urgent), Some(other)) => Some(urgent.min(other)),
            (urgent, other) => urgent.or(other),
        }
    }

    /// Takes out what is to be written next, of that which is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Key> {
        [&mut self.urgent, &mut self.other]
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
    fn of_what_is_due_another_leader_goes_first_and_then_what_waited_longest() {
        let now = Instant::now();
        let key = |name: &str| Key {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        let due = |urgent, after| Due {
            at: now + Duration::from_millis(after),
            urgent,
        };
        let mut agenda = Agenda::default();
        assert_eq!((agenda.next(), agenda.pop(now)), (None, None));
        let all = [
            ("queue", due(false, 0)),
            ("late", due(true, 20)),
            ("soon", due(true, 10)),
            ("gone", due(true, 5)),
        ];
        for (name, due) in all {
            agenda.insert(due, key(name));
        }
        agenda.remove(due(true, 5), key("gone"));
        assert_eq!(agenda.next(), Some(now));
        let later = now + Duration::from_millis(10);
        let order = [Some("soon"), Some("queue"), None].map(|name| name.map(key));
        assert_eq!([(); 3].map(|()| agenda.pop(later)), order);
        assert_eq!(agenda.next(), Some(due(true, 20).at));
    }
}
