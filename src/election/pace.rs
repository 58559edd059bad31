//! How often one object may be written, or one election read.

use std::time::Duration;

use tokio::time::Instant;

/// The pace of writes to one object.
///
/// What is not urgent waits until a gap has passed since the last write, so that a burst of
/// changes in the queue becomes one write. A change of the leader is urgent: it is written at once,
/// some times in a row and then once in each gap, so that an election that flaps cannot flood the API
/// server. One that goes on flapping is written more and more seldom.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// The least time between two writes of what is not urgent.
    gap: Duration,
    /// How many urgent writes may follow each other without a pause.
    burst: u32,
    last: Option<Instant>,
    /// When the burst will be full again, if it is not.
    full_at: Option<Instant>,
    /// How many urgent writes had to wait since the burst was full last.
    held_up: u32,
}

/// After how many urgent writes that had to wait the gap doubles, and how often it does.
const STEADY: u32 = 20;
const DOUBLINGS: u32 = 2;

impl Pace {
    pub(super) fn new(gap: Duration, burst: u32) -> Self {
        Self {
            gap,
            burst,
            last: None,
            full_at: None,
            held_up: 0,
        }
    }

    /// When the next write may happen: now, or later.
    pub(super) fn next(&self, urgent: bool, now: Instant) -> Instant {
        let allowed = if urgent {
            // Each urgent write moves the time of the full burst by one gap or more.
            self.full_at
                .and_then(|full| full.checked_sub(self.spare(1)))
        } else {
            self.last.map(|last| last + self.gap)
        };
        allowed.map_or(now, |allowed| allowed.max(now))
    }

    /// Notes a write.
    pub(super) fn wrote(&mut self, urgent: bool, now: Instant) {
        self.last = Some(now);
        if urgent {
            let full = self.full_at.map_or(now, |full| full.max(now));
            let missing = full - now;
            if missing.is_zero() {
                self.held_up = 0;
            } else if missing > self.spare(2) {
                self.held_up = self.held_up.saturating_add(1);
            }
            let doublings = (self.held_up / STEADY).min(DOUBLINGS);
            self.full_at = Some(full + self.gap * 2_u32.pow(doublings));
        }
    }

    /// The time in which all of a burst but so many writes become possible again.
    fn spare(&self, but: u32) -> Duration {
        self.gap * self.burst.saturating_sub(but)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_secs(1);

    #[test]
    fn changes_of_the_queue_are_written_once_a_second() {
        let start = Instant::now();
        let mut pace = Pace::new(GAP, 4);
        assert_eq!(pace.next(false, start), start);
        pace.wrote(false, start);
        let soon = start + Duration::from_millis(300);
        assert_eq!(pace.next(false, soon), start + GAP);
        assert_eq!(pace.next(false, start + GAP * 2), start + GAP * 2);
    }

    #[test]
    fn a_change_of_the_leader_does_not_wait_for_the_queue() {
        let start = Instant::now();
        let mut pace = Pace::new(GAP, 4);
        pace.wrote(false, start);
        assert_eq!(pace.next(true, start), start);
    }

    #[test]
    fn a_flapping_leader_is_written_four_times_and_then_once_a_second() {
        let mut now = Instant::now();
        let start = now;
        let mut pace = Pace::new(GAP, 4);
        let mut at = Vec::new();
        for _ in 0..7 {
            now = pace.next(true, now);
            pace.wrote(true, now);
            at.push((now - start).as_secs());
        }
        assert_eq!(at, [0, 0, 0, 0, 1, 2, 3]);
    }

    #[test]
    fn what_goes_on_flapping_is_written_more_and_more_seldom_until_it_rests() {
        let mut now = Instant::now();
        let mut pace = Pace::new(GAP, 4);
        let mut write = |now: &mut Instant| {
            let before = *now;
            *now = pace.next(true, before);
            pace.wrote(true, *now);
            (*now - before).as_secs()
        };
        let pauses: Vec<_> = (0..120).map(|_| write(&mut now)).collect();
        assert!(pauses.is_sorted(), "{pauses:?}");
        assert_eq!((pauses[20], pauses[119]), (1, 4));
        now += Duration::from_secs(60);
        assert_eq!([(); 5].map(|()| write(&mut now)), [0, 0, 0, 0, 1]);
    }
}
