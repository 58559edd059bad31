//! Server ids and sets of voters.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A ZooKeeper server id: the content of `myid` and the number in `server.N`.
///
/// It is not the ordinal of the pod: ordinals start at 0, server ids at 1 plus the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u16);

/// Added to the server ids of observers: the first one is server 101 plus the ensemble's offset. No
/// voter reaches it, since the largest ensemble has 13 voters and the largest offset is 80; and no
/// observer passes 254, the last id that ZooKeeper takes.
pub const OBSERVER_OFFSET: u16 = 100;

impl ServerId {
    /// The server id of the pod with this ordinal, in an ensemble with this offset.
    pub fn of_ordinal(ordinal: u16, offset: u16) -> Self {
        Self(ordinal + 1 + offset)
    }

    /// The server id of the observer's pod with this ordinal, in an ensemble with this offset.
    pub fn of_observer(ordinal: u16, offset: u16) -> Self {
        Self::of_ordinal(ordinal, offset + OBSERVER_OFFSET)
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of voters: the servers that one configuration names as participants.
///
/// Printed and parsed as ascending server ids separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Voters(BTreeSet<ServerId>);

impl Voters {
    /// The voters of an ensemble of `size` servers whose first server id is `offset + 1`.
    pub fn first(size: u16, offset: u16) -> Self {
        (1..=size).map(|i| ServerId(offset + i)).collect()
    }

    /// How many voters there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `id` votes.
    pub fn contains(&self, id: ServerId) -> bool {
        self.0.contains(&id)
    }

    /// The voters in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = ServerId> + '_ {
        self.0.iter().copied()
    }

    /// The voter with the highest id; it is the one that a shrinking step removes.
    pub fn last(&self) -> Option<ServerId> {
        self.0.last().copied()
    }

    /// The voters in either set.
    pub fn union(&self, other: &Self) -> Self {
        Self(&self.0 | &other.0)
    }

    /// The voters in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(&self.0 & &other.0)
    }

    /// The voters in this set and not in the other.
    pub fn difference(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }
}

impl FromIterator<ServerId> for Voters {
    fn from_iter<I: IntoIterator<Item = ServerId>>(ids: I) -> Self {
        Self(ids.into_iter().collect())
    }
}

impl fmt::Display for Voters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, id) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            id.fmt(f)?;
        }
        Ok(())
    }
}

/// The servers that a list names, where members change at run time.
///
/// Printed as the ids of voters and then of observers, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerList {
    /// The participants.
    pub voters: Voters,
    /// Those that follow without a vote and take part in no write. One that no list names would be a follower
    /// (`QuorumPeer.updateLearnerType`).
    pub observers: BTreeSet<ServerId>,
}

impl fmt::Display for ServerList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.voters.fmt(f)?;
        self.observers.iter().try_for_each(|id| write!(f, ",{id}"))
    }
}

/// A text that is not a list of server ids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a list of server ids separated by commas")]
pub struct NotVoters(String);

impl FromStr for Voters {
    type Err = NotVoters;

    fn from_str(text: &str) -> Result<Self, NotVoters> {
        let ids: Option<BTreeSet<ServerId>> = text
            .split(',')
            .map(|id| id.parse().ok().map(ServerId))
            .collect();
        ids.map(Self).ok_or_else(|| NotVoters(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_observer_has_the_id_of_a_voter_or_one_that_is_too_large() {
        use bellwether_api::ensemble::{MAX_OBSERVERS, MAX_REPLICAS};
        let last = |max: i32| u16::try_from(max).unwrap() - 1;
        for offset in [0, 80] {
            let first = ServerId::of_observer(0, offset);
            assert!(ServerId::of_ordinal(last(MAX_REPLICAS), 80) < first);
            assert!(ServerId::of_observer(last(MAX_OBSERVERS), offset).0 <= 254);
        }
    }

    #[test]
    fn voters_print_and_parse() {
        let voters = Voters::first(3, 10);
        assert_eq!(voters.to_string(), "11,12,13");
        assert_eq!("13,11,12".parse(), Ok(voters));
        assert!("".parse::<Voters>().is_err());
        assert!("1,,2".parse::<Voters>().is_err());
        assert!("1,-2".parse::<Voters>().is_err());
        assert!("70000".parse::<Voters>().is_err());
    }
}
