//! Watches that never two servers lead and commit at once.

use std::collections::BTreeMap;
use std::fmt;

use bellwether_api::ensemble::MemberRole;
use bellwether_ensemble::ServerId;
use bellwether_ensemble::observation::ServerReport;

/// How often each of two leaders must be seen to commit while the other one leads. A deposed leader
/// may still apply what was committed before, so one sighting is no proof.
const PROOF: u32 = 2;
/// How often a leader must be seen in an epoch: for an instant a new one may show the last
/// transaction of the epoch before.
const SEEN: u32 = 2;

/// Two servers that both lead and commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwoLeaders {
    first: ServerId,
    second: ServerId,
    how: &'static str,
}

impl fmt::Display for TwoLeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "servers {} and {} {}", self.first, self.second, self.how)
    }
}

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Audit {
    /// The leaders of the last round with their last transaction.
    last: BTreeMap<ServerId, u64>,
    /// For each pair of servers that lead at once, how often either was seen to commit meanwhile.
    commits: BTreeMap<(ServerId, ServerId), (u32, u32)>,
    /// How often each server was seen to lead each epoch.
    epochs: BTreeMap<u64, BTreeMap<ServerId, u32>>,
    /// The first proof of two leaders.
    proof: Option<TwoLeaders>,
}

impl Audit {
    /// Takes in one round: what every server answered, each asked after the round before had ended.
    pub fn round<'a>(&mut self, reports: impl IntoIterator<Item = (ServerId, &'a ServerReport)>) {
        let mut leaders = BTreeMap::new();
        for (id, report) in reports {
            if let ServerReport::Serving {
                role: MemberRole::Leader,
                zxid,
                ..
            } = report
            {
                leaders.insert(id, *zxid);
                *self
                    .epochs
                    .entry(zxid >> 32)
                    .or_default()
                    .entry(id)
                    .or_default() += 1;
            }
        }
        let last = &self.last;
        let grew = |id: &ServerId| u32::from(last.get(id) < leaders.get(id));
        let mut pairs = BTreeMap::new();
        for a in leaders.keys().filter(|id| self.last.contains_key(id)) {
            for b in leaders
                .keys()
                .filter(|b| *b > a && self.last.contains_key(b))
            {
                let (by_a, by_b) = self.commits.get(&(*a, *b)).copied().unwrap_or_default();
                let now = (by_a + grew(a), by_b + grew(b));
                if now.0 >= PROOF && now.1 >= PROOF {
                    self.proof.get_or_insert(TwoLeaders {
                        first: *a,
                        second: *b,
                        how: "both lead and both commit",
                    });
                }
                pairs.insert((*a, *b), now);
            }
        }
        for leaders in self.epochs.values() {
            let mut often = leaders.iter().filter(|(_, seen)| **seen >= SEEN);
            if let (Some((a, _)), Some((b, _))) = (often.next(), often.next()) {
                self.proof.get_or_insert(TwoLeaders {
                    first: *a,
                    second: *b,
                    how: "led the same epoch",
                });
            }
        }
        self.commits = pairs;
        self.last = leaders;
    }

    /// The first proof of two leaders, if there was any.
    pub fn two_leaders(&self) -> Option<&TwoLeaders> {
        self.proof.as_ref()
    }

    /// How often the leader changed: each leader has an epoch of its own.
    pub fn epochs(&self) -> usize {
        self.epochs.len()
    }
}

#[cfg(test)]
mod tests {
    use bellwether_ensemble::Voters;

    use super::*;

    fn report(role: MemberRole, zxid: u64) -> ServerReport {
        ServerReport::Serving {
            role,
            zxid,
            voters: Voters::first(3, 0),
            observers: Default::default(),
            version: 0,
        }
    }

    fn rounds(rounds: &[[(MemberRole, u64); 2]]) -> Option<TwoLeaders> {
        let mut audit = Audit::default();
        for [a, b] in rounds {
            let (a, b) = (report(a.0, a.1), report(b.0, b.1));
            audit.round([(ServerId(1), &a), (ServerId(2), &b)]);
        }
        audit.two_leaders().cloned()
    }

    const E1: u64 = 1 << 32;
    const E2: u64 = 2 << 32;

    #[test]
    fn two_leaders_that_both_commit_are_found() {
        use MemberRole::Leader;
        let proof = rounds(&[
            [(Leader, E1 + 1), (Leader, E2 + 1)],
            [(Leader, E1 + 2), (Leader, E2 + 2)],
            [(Leader, E1 + 3), (Leader, E2 + 3)],
        ]);
        assert!(proof.is_some_and(|p| p.to_string().contains("both commit")));
    }

    #[test]
    fn two_leaders_of_one_epoch_are_found() {
        use MemberRole::{Follower, Leader};
        let proof = rounds(&[
            [(Leader, E1), (Follower, E1)],
            [(Leader, E1), (Follower, E1)],
            [(Follower, E1), (Leader, E1)],
            [(Follower, E1), (Leader, E1)],
        ]);
        assert!(proof.is_some_and(|p| p.to_string().contains("same epoch")));
    }

    #[test]
    fn a_leader_that_does_not_know_yet_that_it_is_deposed_is_none() {
        use MemberRole::{Follower, Leader};
        let proof = rounds(&[
            [(Leader, E1 + 5), (Follower, E1 + 5)],
            // Deposed, and applies what was committed before.
            [(Leader, E1 + 5), (Leader, E1 + 5)],
            [(Leader, E1 + 6), (Leader, E2 + 1)],
            [(Leader, E1 + 6), (Leader, E2 + 2)],
            [(Follower, E2 + 3), (Leader, E2 + 3)],
        ]);
        assert_eq!(proof, None);
    }
}
