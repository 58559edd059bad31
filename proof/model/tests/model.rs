//! The model check as tests: one for each change under all rules, one for each rule switched off.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use bellwether_model::checks::{Check, changes, run, switched_off};
use bellwether_model::reconfiguration::{self, Case, Checkable};
use bellwether_model::story::tell;
use libtest_mimic::{Arguments, Failed, Trial};

fn test(check: &Check) -> Result<(), Failed> {
    let outcome = run(check, NonZeroUsize::MIN)?;
    if outcome.is_expected(check) {
        return Ok(());
    }
    let stories = outcome.violations.iter();
    let stories: String = stories
        .map(|(name, path)| format!("{name}:\n{}", tell(path)))
        .collect();
    Err(match check.expected {
        None => format!("does not hold:\n{stories}").into(),
        Some(property) => format!("no counterexample to \"{property}\"; {stories}").into(),
    })
}

fn moves<M: Checkable>(case: &Case<M>) -> Result<(), Failed> {
    let found = case.run(NonZeroUsize::MIN);
    if case.is_expected(&found) {
        return Ok(());
    }
    Err(format!(
        "expected {:?}, and found {:?}",
        case.expected, found.violations
    )
    .into())
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each check is single-threaded, and needs memory.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let checks = switched_off().into_iter().chain(changes());
    let checks = checks.map(|check| Trial::test(check.name.clone(), move || test(&check)));
    let cases = reconfiguration::switched_off()
        .into_iter()
        .chain(reconfiguration::changes());
    let cases = cases.map(|case| Trial::test(case.name.clone(), move || moves(&case)));
    let bridges = bellwether_model::bridge::cases().into_iter();
    let bridges = bridges.map(|case| Trial::test(case.name.clone(), move || moves(&case)));
    let trials = checks.chain(cases).chain(bridges).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
