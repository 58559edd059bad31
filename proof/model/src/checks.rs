//! What is checked: every change of size under all rules, and every rule switched off.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use bellwether_ensemble::rules::{Rule, Rules};
use stateright::{Checker, HasDiscoveries, Model};

use crate::state::State;
use crate::world::{Action, Preconditions, World};

/// The odd sizes that a user changes to in the middle.
const SIZES: [u8; 3] = [1, 3, 5];

/// One run of the checker.
#[derive(Clone, Debug)]
pub struct Check {
    /// What it shows, in words that a test can have as its name.
    pub name: String,
    /// The size that it starts with.
    pub from: u8,
    /// The size that the user wants; the same as `from` is a change of the configuration.
    pub to: u8,
    /// How many crashes, lost disks and cut-off nodes there may be, at any moments.
    pub faults: u8,
    /// How often the user changes to any odd size in the middle.
    pub changes: u8,
    /// The planner's rules.
    pub rules: Rules,
    /// The executor's preconditions.
    pub preconditions: Preconditions,
    /// The property that must fail, if a rule is switched off; otherwise all must hold.
    pub expected: Option<&'static str>,
}

/// The states on a path to another one, each with the action taken in it.
pub type Way = Vec<(State, Option<Action>)>;

/// What a run found.
pub struct Outcome {
    /// Different states.
    pub states: usize,
    /// The longest way to a state.
    pub depth: usize,
    /// How long it took.
    pub time: Duration,
    /// Properties that do not hold, with the way to the state in which they do not.
    pub violations: Vec<(&'static str, Way)>,
}

impl Outcome {
    /// Whether it is as the check expects.
    pub fn is_expected(&self, check: &Check) -> bool {
        match check.expected {
            None => self.violations.is_empty(),
            Some(property) => self.violations.iter().any(|(name, _)| *name == property),
        }
    }
}

/// Visits every state.
///
/// # Errors
/// If the ensembles of the model are no longer valid.
pub fn run(check: &Check, threads: NonZeroUsize) -> Result<Outcome, String> {
    let started = Instant::now();
    let world = World::change(check.from, check.to, check.rules)?
        .faults(check.faults)
        .user_changes(check.changes, &SIZES)
        .preconditions(check.preconditions);
    let until = match check.expected {
        None => HasDiscoveries::AnyFailures,
        Some(property) => HasDiscoveries::AnyOf([property].into()),
    };
    let checker = world
        .checker()
        .threads(threads.get())
        .finish_when(until)
        .spawn_bfs()
        .join();
    let paths = checker.discoveries();
    Ok(Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        time: started.elapsed(),
        violations: paths
            .into_iter()
            .map(|(name, path)| (name, path.into_vec()))
            .collect(),
    })
}

fn change(from: u8, to: u8, faults: u8, changes: u8) -> Check {
    let what = if from == to {
        format!("roll of {from}")
    } else {
        format!("{from} to {to}")
    };
    let by_user = if changes > 0 {
        ", and the user changes the size in the middle"
    } else {
        ""
    };
    Check {
        name: format!("{what}, {faults} faults{by_user}"),
        from,
        to,
        faults,
        changes,
        rules: Rules::ALL,
        preconditions: Preconditions::ALL,
        expected: None,
    }
}

/// Changes under all rules, which take a few minutes together.
pub fn changes() -> Vec<Check> {
    let mut all = Vec::new();
    for (from, to) in [(1, 1), (1, 3), (3, 1), (3, 3)] {
        all.push(change(from, to, 2, 0));
        all.push(change(from, to, 0, 1));
    }
    for (from, to) in [(1, 5), (3, 5), (5, 1), (5, 3), (5, 5)] {
        all.push(change(from, to, 1, 0));
    }
    for (from, to) in [(1, 3), (3, 1)] {
        all.push(change(from, to, 1, 1));
    }
    for (from, to) in [(5, 7), (7, 5), (7, 7)] {
        all.push(change(from, to, 0, 0));
    }
    all
}

/// Changes under all rules, which take much longer.
pub fn long_changes() -> Vec<Check> {
    let mut all = Vec::new();
    for (from, to) in [(1, 5), (3, 5), (5, 1), (5, 3), (5, 5)] {
        all.push(change(from, to, 2, 0));
    }
    for (from, to) in [(3, 5), (5, 3)] {
        all.push(change(from, to, 1, 1));
    }
    for (from, to) in [(5, 7), (7, 5), (7, 7)] {
        all.push(change(from, to, 1, 0));
    }
    all
}

/// Every rule switched off, alone or together with the rule that stands in for it.
pub fn switched_off() -> Vec<Check> {
    let off = |name: &str, from, to, faults, rules, expected| Check {
        name: format!("without {name}: {from} to {to}"),
        rules,
        expected: Some(expected),
        ..change(from, to, faults, 0)
    };
    let all = Rules::ALL;
    let mut checks = vec![
        off(
            "small steps, and with the leader first",
            3,
            5,
            0,
            all.without(Rule::SmallSteps).without(Rule::LeaderLast),
            "one leader",
        ),
        off(
            "small steps, but with the leader last, and one crash",
            3,
            5,
            1,
            all.without(Rule::SmallSteps),
            "one leader",
        ),
        off(
            "small steps, but with the leader last, and one lost write",
            3,
            5,
            1,
            all.without(Rule::SmallSteps),
            "no write lost",
        ),
        off(
            "a step finished before the next",
            3,
            5,
            0,
            all.without(Rule::FinishedFirst),
            "two lists",
        ),
        off(
            "the leader last",
            3,
            3,
            0,
            all.without(Rule::LeaderLast),
            "leader last",
        ),
        off(
            "a leaver that leads stepping down",
            5,
            3,
            0,
            all.without(Rule::LeaverStepsDown),
            "it ends",
        ),
        off(
            "the leaver going last",
            5,
            3,
            0,
            all.without(Rule::LeaverGoesLast),
            "service kept",
        ),
        off(
            "a majority kept through each restart",
            5,
            3,
            1,
            all.without(Rule::KeepMajority),
            "service kept",
        ),
        off(
            "one restart at a time, nor a majority kept",
            3,
            3,
            0,
            all.without(Rule::OneAtATime).without(Rule::KeepMajority),
            "service kept",
        ),
        off(
            "a member joining before the next restart, nor a majority kept",
            3,
            3,
            0,
            all.without(Rule::JoinedFirst).without(Rule::KeepMajority),
            "service kept",
        ),
        off(
            "the vote withheld from empty disks",
            1,
            3,
            1,
            all.without(Rule::EmptyDisksDoNotVote),
            "no write lost",
        ),
    ];
    let trusting = |name: &str, preconditions, expected| Check {
        name: format!("without {name}"),
        preconditions,
        expected: Some(expected),
        ..change(3, 3, 1, 0)
    };
    checks.push(trusting(
        "planning again just before a restart",
        Preconditions {
            planned_again: false,
            ..Preconditions::ALL
        },
        "service kept",
    ));
    checks.push(Check {
        name: "without writing the StatefulSet only as it was read".to_owned(),
        preconditions: Preconditions {
            set_unchanged: false,
            ..Preconditions::ALL
        },
        expected: Some("two lists"),
        ..change(3, 5, 0, 1)
    });
    checks
}
