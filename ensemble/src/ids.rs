//! Server ids and sets of voters.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A ZooKeeper server id: the content of `myid` and the number in `server.N`.
///
/// It is not the ordinal of the pod: ordinals start at 0, server ids at 1 plus the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u16);

impl ServerId {
    /// The server id of the pod with this ordinal, in an ensemble with this offset.
    pub fn of_ordinal(ordinal: u16, offset: u16) -> Self {
        Self(ordinal + 1 + offset)
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

    /// Whether there is none.
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
