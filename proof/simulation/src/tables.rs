//! Tables: which scripted lives pass, and what catches an operator that breaks a rule.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use bellwether::Guard;
use bellwether_ensemble::rules::Rule;

use crate::Arguments;
use crate::process::{Life, each_seed, run};
use crate::scenarios::{self, Scenario};

/// The first violation in a scripted life.
fn violation(scenario: &str, broken: Option<&str>) -> Option<String> {
    let story = run(&Life {
        scenario: Some(scenario),
        ..Life::of(1, broken)
    });
    match story {
        Ok(story) => story.violations.into_iter().next(),
        Err(error) => Some(format!("{error:#}")),
    }
}

/// The names of rules that are broken together.
pub(crate) fn joined<R: std::fmt::Debug>(rules: &[R]) -> String {
    let names: Vec<String> = rules.iter().map(|rule| format!("{rule:?}")).collect();
    names.join("+")
}

/// Does something with each item, as many at once as there are cores; the results are in the same order.
fn each<T: Sync, R: Send>(items: &[T], act: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let result = act(item);
                    let mut results = results
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    results.push((at, result));
                }
            });
        }
    });
    let mut results = results
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Every scripted life, with all rules and without each of those that guard it; and those that have to fail.
#[allow(clippy::print_stdout, reason = "printing is what this program is for")]
pub(crate) fn scenarios() -> Result<ExitCode> {
    let all = scenarios::all();
    let ways: Vec<(&Scenario, Option<String>)> = all
        .iter()
        .flat_map(|scenario| {
            let broken = scenario.guards.iter().map(|rules| Some(joined(rules)));
            [None].into_iter().chain(broken).map(move |b| (scenario, b))
        })
        .collect();
    let found = each(&ways, |(scenario, broken)| {
        violation(scenario.name, broken.as_deref())
    });
    let mut as_expected = true;
    for ((scenario, broken), found) in ways.iter().zip(found) {
        if broken.is_none() {
            println!("{}: {}", scenario.name, scenario.about);
        }
        let rules = broken.as_deref().unwrap_or("all rules");
        as_expected &= broken.is_some() == found.is_some();
        let outcome = match (broken, found) {
            (None, None) => "passes".to_owned(),
            (None, Some(violation)) => format!("FAILS: {violation}"),
            (Some(_), Some(violation)) => format!("caught: {violation}"),
            (Some(_), None) => "NOT CAUGHT".to_owned(),
        };
        println!("    {rules:28} {outcome}");
    }
    let spoiled = scenarios::spoiled();
    let found = each(&spoiled, |life| violation(life.name, None));
    for (life, found) in spoiled.iter().zip(found) {
        println!("{}: {}", life.name, life.about);
        let speaks = |found: &String| found.contains(life.verdict);
        as_expected &= found.as_ref().is_some_and(speaks);
        let outcome = match found {
            Some(violation) if speaks(&violation) => format!("caught: {violation}"),
            Some(violation) => format!("CAUGHT BY ANOTHER JUDGE: {violation}"),
            None => "NOT CAUGHT".to_owned(),
        };
        println!("    {:28} {outcome}", "all rules");
    }
    Ok(match as_expected {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// What catches an operator that breaks each rule: a scripted life, or the first random one.
#[allow(clippy::print_stdout, reason = "printing is what this program is for")]
pub(crate) fn rules(arguments: &Arguments) -> Result<ExitCode> {
    let all = scenarios::all();
    let scripted = each(&Rule::EVERY, |rule| {
        let guards = |s: &&Scenario| s.guards.iter().any(|rules| rules.first() == Some(rule));
        let scenario = all.iter().find(guards)?;
        let rules = scenario.guards.iter().find(|r| r.first() == Some(rule))?;
        let violation = violation(scenario.name, Some(&joined(rules)))?;
        Some((joined(rules), scenario.name.to_owned(), violation))
    });
    let mut every = true;
    for (rule, scripted) in Rule::EVERY.iter().zip(scripted) {
        let name = format!("{rule:?}");
        let random = || -> Option<(String, String, String)> {
            if arguments.quick {
                return None;
            }
            let (seed, violation) = first_seed(&name, arguments)?;
            Some((name.clone(), seed, violation))
        };
        match scripted.or_else(random) {
            Some((rules, by, violation)) => println!("{rules:26} {by:30} {violation}"),
            None => {
                every = false;
                println!("{name:26} not caught");
            }
        }
    }
    Ok(match every {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The first life of elections in which it shows that a guard of the mirror is left out.
#[allow(clippy::print_stdout, reason = "printing is what this program is for")]
pub(crate) fn guards(arguments: &Arguments) -> Result<ExitCode> {
    let mut every = true;
    for guards in Guard::EVERY {
        let name = joined(guards);
        match first_seed(&name, arguments) {
            Some((seed, violation)) => println!("{name:22} {seed:10} {violation}"),
            None => {
                every = false;
                println!("{name:22} not caught");
            }
        }
    }
    Ok(match every {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The first life in which the break of a rule shows.
fn first_seed(rule: &str, arguments: &Arguments) -> Option<(String, String)> {
    let end = arguments.seed + arguments.seeds;
    let life = Life {
        elections: arguments.elections,
        ..Life::of(arguments.seed, Some(rule))
    };
    let found = Mutex::new(None::<(u64, String)>);
    each_seed(life, end, |seed, result| {
        let violation = match result {
            Ok(story) => story.violations.into_iter().next(),
            Err(error) => Some(format!("{error:#}")),
        };
        let Some(violation) = violation else {
            return true;
        };
        let mut found = found
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        found.get_or_insert((seed, violation));
        false
    });
    let found = found
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    found.map(|(seed, violation)| (format!("seed {seed}"), violation))
}
