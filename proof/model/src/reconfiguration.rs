//! Changes of the members at run time: servers that agree on their list themselves, and the operator's rules beside them.
//!
//! ZooKeeper's part is as its code has it (the rule's module names the places); the operator's part are the functions of
//! [`bellwether_ensemble::safety::reconfiguration`]. In every state:
//!
//! * **one leader**: at most one server leads with a majority of every list by which it judges;
//! * **no write lost**: no server leads without a write that was acknowledged;
//! * **service comes back**: once no server is killed any more and the user has made up his mind, clients are served, and no list is on its
//!   way.
//!
//! With one of the rules switched off, one of these must fail.

pub mod state;
pub mod world;

use std::fmt::{Debug, Write as _};
use std::hash::Hash;
use std::num::NonZeroUsize;

use stateright::{Checker, HasDiscoveries, Model};
use world::{Change, Kept};

/// One run of the checker.
#[derive(Clone, Debug)]
pub struct Case<M = Change> {
    /// What it shows.
    pub name: String,
    /// What is changed.
    pub change: M,
    /// The property that must fail, if a rule is switched off; otherwise all must hold.
    pub expected: Option<&'static str>,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Different states.
    pub states: usize,
    /// The longest way to a state; with a counterexample its length.
    pub depth: usize,
    /// Properties that do not hold, and how that comes about.
    pub violations: Vec<(&'static str, String)>,
}

/// A model that can be checked by several threads, with a story of how a property comes to fail.
pub trait Checkable:
    Model<State: Debug + Hash + Clone + PartialEq + Send + Sync, Action: Debug + Clone + PartialEq>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<M> Checkable for M where
    M: Model<
            State: Debug + Hash + Clone + PartialEq + Send + Sync,
            Action: Debug + Clone + PartialEq,
        > + Clone
        + Send
        + Sync
        + 'static
{
}

impl<M: Checkable> Case<M> {
    /// Visits every state, or those up to the counterexample.
    pub fn run(&self, threads: NonZeroUsize) -> Found {
        let until = match self.expected {
            None => HasDiscoveries::AnyFailures,
            Some(property) => HasDiscoveries::AnyOf([property].into()),
        };
        let checker = self.change.clone().checker().threads(threads.get());
        let checker = checker.finish_when(until).spawn_bfs().join();
        let paths = checker.discoveries().into_iter();
        let paths = paths.map(|(name, path)| (name, path.into_vec()));
        let mut depth = checker.max_depth();
        let violations = paths.map(|(name, path)| {
            if self.expected == Some(name) {
                depth = path.len() - 1;
            }
            let mut story = String::new();
            for (state, action) in path {
                let _ = writeln!(story, "  {state:?}\n    then {action:?}");
            }
            (name, story)
        });
        Found {
            violations: violations.collect(),
            states: checker.unique_state_count(),
            depth,
        }
    }

    /// Whether a run is as it has to be.
    pub fn is_expected(&self, found: &Found) -> bool {
        match self.expected {
            None => found.violations.is_empty(),
            Some(property) => found.violations.iter().any(|(name, _)| *name == property),
        }
    }
}

/// The first servers.
fn first(size: u8) -> u8 {
    (1 << size) - 1
}

/// `faults` servers are killed, and `losses` of them lost with their volumes.
fn case(name: &str, (old, new): (u8, u8), (faults, losses): (u8, u8), turns: u8) -> Case {
    let turned = if turns > 0 {
        ", and the user turns round"
    } else {
        ""
    };
    Case {
        name: format!("reconfiguration {name}, {faults} killed, {losses} lost{turned}"),
        change: Change {
            old,
            new,
            faults,
            losses,
            turns,
            volumes_stay: false,
            kept: Kept::ALL,
        },
        expected: None,
    }
}

/// The same, with members that come back to their volumes.
fn volumes_stay(case: Case) -> Case {
    Case {
        change: Change {
            volumes_stay: true,
            ..case.change
        },
        ..case
    }
}

/// Changes under all rules: growing and shrinking by two at once, and one member for another.
pub fn changes() -> Vec<Case> {
    let (one, three, five) = (first(1), first(3), first(5));
    vec![
        case("1 to 3", (one, three), (2, 0), 1),
        case("3 to 1", (three, one), (2, 0), 0),
        volumes_stay(case("3 to 1 and back", (three, one), (1, 0), 0)),
        case("of one member for another", (three, 0b1011), (1, 0), 0),
        case("3 to 5", (three, five), (1, 0), 0),
        case("5 to 3", (five, three), (0, 0), 0),
    ]
}

/// Changes under all rules, which take much longer.
pub fn long_changes() -> Vec<Case> {
    let (three, five) = (first(3), first(5));
    vec![
        case("3 to 5", (three, five), (1, 0), 1),
        case("3 to 5", (three, five), (2, 0), 0),
        case("5 to 3", (five, three), (0, 1), 0),
        case("5 to 3", (five, three), (1, 0), 0),
        case("5 to 3", (five, three), (2, 0), 0),
    ]
}

/// Every rule switched off; and what no rule of the operator can prevent.
pub fn switched_off() -> Vec<Case> {
    let off = |name: &str, lists, faults, turns, kept, expected| {
        let case = case(name, lists, faults, turns);
        Case {
            name: format!("without {name}"),
            change: Change {
                kept,
                ..case.change
            },
            expected: Some(expected),
        }
    };
    let (one, three) = (first(1), first(3));
    // The newcomer may have stored more than every member that is left; it does not stand for election, and votes for
    // nobody who has less.
    let lost = case("", (three, 0b1011), (0, 1), 0);
    let lost = Case {
        name: "with the leader lost for good in the middle: one for another".to_owned(),
        expected: Some("service comes back"),
        ..lost
    };
    vec![
        lost,
        off(
            "newcomers that do not name each other: 1 to 3",
            (one, three),
            (0, 0),
            0,
            Kept {
                newcomers_apart: false,
                ..Kept::ALL
            },
            "one leader",
        ),
        off(
            "the present list asked for again before newcomers go: 1 to 3",
            (one, three),
            (0, 0),
            1,
            Kept {
                fenced: false,
                ..Kept::ALL
            },
            "service comes back",
        ),
        off(
            "the outcome known before a member goes: 3 to 1",
            (three, one),
            (0, 0),
            0,
            Kept {
                outcome_known: false,
                ..Kept::ALL
            },
            "service comes back",
        ),
        volumes_stay(off(
            "the later list where a member comes back that has left: 3 to 1",
            (three, one),
            (0, 0),
            0,
            Kept {
                has_left: false,
                ..Kept::ALL
            },
            "one leader",
        )),
        off(
            "the files that a server had: 1 to 3",
            (one, three),
            (1, 0),
            0,
            Kept {
                own_files: false,
                ..Kept::ALL
            },
            "no write lost",
        ),
    ]
}
