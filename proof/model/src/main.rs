//! Checks the planner and prints a table.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Instant;

use bellwether_model::bridge;
use bellwether_model::checks::{Check, Outcome, changes, long_changes, run, switched_off};
use bellwether_model::reconfiguration::{self, Case, Checkable};
use bellwether_model::story::{LEGEND, tell};
use clap::Parser;

/// Checks the real planner against every state of an abstract world.
#[derive(Parser)]
struct Arguments {
    /// Only checks whose name holds this.
    filter: Option<String>,
    /// Also the checks that take long.
    #[arg(long)]
    long: bool,
    /// Print how each counterexample comes about.
    #[arg(long)]
    explain: bool,
    /// How many states to visit at once; each check by itself is exact about the shortest
    /// counterexample only with one.
    #[arg(long, default_value = "1")]
    threads: NonZeroUsize,
}

fn main() -> Result<ExitCode, String> {
    let arguments = Arguments::parse();
    let mut good = true;
    let is_wanted = |name: &str| {
        let filter = arguments.filter.as_ref();
        filter.is_none_or(|filter| name.contains(filter.as_str()))
    };
    let wanted = |check: &Check| is_wanted(&check.name);
    println!(
        "Under all rules: one leader, no write lost, two lists, leader last, service kept, it ends"
    );
    println!(
        "{:<66} {:>9} {:>6} {:>8}  result",
        "change", "states", "depth", "seconds"
    );
    let long = if arguments.long {
        long_changes()
    } else {
        Vec::new()
    };
    for check in changes().into_iter().chain(long).filter(wanted) {
        let outcome = run(&check, arguments.threads)?;
        good &= report(&check, &outcome, arguments.explain);
    }
    println!("\nWith a rule switched off, the length of the shortest counterexample");
    println!(
        "{:<66} {:>9} {:>6} {:>8}  result",
        "rule", "states", "length", "seconds"
    );
    for check in switched_off().into_iter().filter(wanted) {
        let outcome = run(&check, arguments.threads)?;
        good &= report(&check, &outcome, arguments.explain);
    }
    println!("\nMembers that change at run time: one leader, no write lost, service comes back");
    let long = match arguments.long {
        true => reconfiguration::long_changes(),
        false => Vec::new(),
    };
    let cases = reconfiguration::changes().into_iter().chain(long);
    for case in cases.chain(reconfiguration::switched_off()) {
        if is_wanted(&case.name) {
            good &= report_case(&case, arguments.threads, arguments.explain);
        }
    }
    println!("\nAn election that moves to a Lease: one side leads");
    for case in bridge::cases() {
        if is_wanted(&case.name) {
            good &= report_case(&case, arguments.threads, arguments.explain);
        }
    }
    if good {
        println!("\nEvery check is as expected.");
        Ok(ExitCode::SUCCESS)
    } else {
        println!("\nNot every check is as expected; see --explain.");
        Ok(ExitCode::FAILURE)
    }
}

/// As [`report`], of a change at run time or an election that moves.
fn report_case<M: Checkable>(case: &Case<M>, threads: NonZeroUsize, explain: bool) -> bool {
    let begin = Instant::now();
    let found = case.run(threads);
    let good = case.is_expected(&found);
    let result = match (good, case.expected) {
        (true, None) => "holds".to_owned(),
        (true, Some(property)) => format!("\"{property}\" fails, as it must"),
        (false, _) => "NOT AS EXPECTED".to_owned(),
    };
    println!(
        "{:<66} {:>9} {:>6} {:>8.1}  {result}",
        case.name,
        found.states,
        found.depth,
        begin.elapsed().as_secs_f64()
    );
    if explain || !good {
        for (name, story) in &found.violations {
            println!("  how \"{name}\" comes to fail:\n{story}");
        }
    }
    good
}

/// Prints one line; whether it is as expected.
fn report(check: &Check, outcome: &Outcome, explain: bool) -> bool {
    let good = outcome.is_expected(check);
    let found: Vec<&str> = outcome.violations.iter().map(|v| v.0).collect();
    let length = outcome
        .violations
        .iter()
        .find(|(name, _)| check.expected == Some(*name))
        .map_or(outcome.depth, |(_, path)| path.len() - 1);
    let result = match (good, check.expected) {
        (true, None) => "holds".to_owned(),
        (true, Some(property)) => format!("\"{property}\" fails, as it must"),
        (false, None) => format!("FAILS: {}", found.join(", ")),
        (false, Some(property)) => format!("NO COUNTEREXAMPLE to \"{property}\""),
    };
    println!(
        "{:<66} {:>9} {length:>6} {:>8.1}  {result}",
        check.name,
        outcome.states,
        outcome.time.as_secs_f64()
    );
    if explain || !good {
        if !outcome.violations.is_empty() {
            println!("{LEGEND}");
        }
        for (name, path) in &outcome.violations {
            println!("  how \"{name}\" comes to fail:\n{}", tell(path));
        }
    }
    good
}
