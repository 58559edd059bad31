//! How much of ZooKeeper one election, and one session, may have the operator hold in memory.
//!
//! Data of a candidate is decoded and dropped at once, and what is kept of it is short. What an election keeps
//! in full are the names of the children, until the next list of them.

use std::fmt;

/// How many children a path may have. ZooKeeper's own clients take lists of 1 MiB by default, which is
/// some twenty thousand names.
pub const MAX_CHILDREN: usize = 50_000;

/// How long the name of a child may be, in bytes. ZooKeeper itself takes names of a megabyte.
pub const MAX_NAME: usize = 4096;

/// How much memory the names may take that all elections of one session keep, in bytes.
pub const MAX_SESSION: usize = 32 * 1024 * 1024;

/// What a name takes beside its own bytes: the string, and what the allocator adds.
const OVERHEAD: usize = 48;

/// Which limit the children of a path exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// What ZooKeeper says of it is longer than the mirror takes.
    Answer,
    /// There are more than [`MAX_CHILDREN`].
    Children(usize),
    /// One has a name of more than [`MAX_NAME`] bytes: this many.
    Name(usize),
    /// With them the elections of the session would keep more than [`MAX_SESSION`] bytes.
    Session,
}

impl fmt::Display for Excess {
    /// What is the case, to put after the path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer => f.write_str(
                "has more data, or more names of children, than the mirror takes in one answer (1 MiB)",
            ),
            Self::Children(count) => write!(
                f,
                "has {count} children, and the mirror follows at most {MAX_CHILDREN}"
            ),
            Self::Name(length) => write!(
                f,
                "has a child whose name is {length} bytes long, and the mirror takes names of at most {MAX_NAME} bytes"
            ),
            Self::Session => write!(
                f,
                "has children whose names do not fit into the {} MiB that all elections of one ensemble or connection may take together",
                MAX_SESSION / (1024 * 1024)
            ),
        }
    }
}

/// How much memory the names of these children take.
///
/// # Errors
///
/// If they exceed what one election may have.
pub fn memory(children: &[String]) -> Result<usize, Excess> {
    if children.len() > MAX_CHILDREN {
        return Err(Excess::Children(children.len()));
    }
    match children.iter().map(String::len).max() {
        Some(length) if length > MAX_NAME => Err(Excess::Name(length)),
        _ => Ok(children.iter().map(|name| name.len() + OVERHEAD).sum()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_within_the_limits_are_counted_and_others_refused() {
        let names = |count: usize, length: usize| vec!["x".repeat(length); count];
        assert_eq!(memory(&[]), Ok(0));
        assert_eq!(memory(&names(2, 10)), Ok(116));
        assert_eq!(memory(&names(1, MAX_NAME)), Ok(MAX_NAME + 48));
        let long = Excess::Name(MAX_NAME + 1);
        assert_eq!(memory(&names(1, MAX_NAME + 1)), Err(long));
        assert!(memory(&names(MAX_CHILDREN, 1)).is_ok());
        let many = Excess::Children(MAX_CHILDREN + 1);
        assert_eq!(memory(&names(MAX_CHILDREN + 1, 1)), Err(many));
        assert!(many.to_string().contains("50001 children"), "{many}");
    }

    #[test]
    fn a_session_has_room_for_several_elections_of_the_greatest_size() {
        // An answer of ZooKeeper has a megabyte, with four bytes before each name.
        let largest = 1024 * 1024 + MAX_CHILDREN * OVERHEAD;
        assert!(MAX_SESSION / largest >= 8);
    }
}
