//! Lives in processes of their own.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bellwether_simulation::life::Story;

use crate::nursery::Nursery;

/// Which life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life<'a> {
    /// The seed.
    pub seed: u64,
    /// The name of the script.
    pub scenario: Option<&'a str>,
    /// The acts that are left out.
    pub without: &'a [usize],
    /// The rules that the operator breaks, joined by `+`.
    pub broken: Option<&'a str>,
    /// Whether it is a life of elections.
    pub elections: bool,
}

impl<'a> Life<'a> {
    /// The life of a seed.
    pub(crate) fn of(seed: u64, broken: Option<&'a str>) -> Self {
        Self {
            seed,
            scenario: None,
            without: &[],
            broken,
            elections: false,
        }
    }
}

/// Runs one life in a process of its own.
pub(crate) fn run(life: &Life<'_>) -> Result<Story> {
    let Life {
        seed,
        scenario,
        without,
        broken,
        elections,
    } = *life;
    let numbers: Vec<String> = without.iter().map(ToString::to_string).collect();
    let mut arguments = vec!["--child".to_owned(), "--seed".to_owned(), seed.to_string()];
    if let Some(scenario) = scenario {
        arguments.extend(["--scenario".to_owned(), scenario.to_owned()]);
    }
    if elections {
        arguments.push("--elections".to_owned());
    }
    if let Some(rule) = broken {
        arguments.extend(["--break-rule".to_owned(), rule.to_owned()]);
    }
    if !numbers.is_empty() {
        arguments.extend(["--without".to_owned(), numbers.join(",")]);
    }
    let nursery = Nursery::idle()?;
    nursery.live(&arguments, &format!("seed {seed}"))
}

/// Lives a life with each seed from that of this one on, as many at once as there are cores, until `go_on` says no.
pub(crate) fn each_seed(
    life: Life<'_>,
    end: u64,
    go_on: impl Fn(u64, Result<Story>) -> bool + Sync,
) {
    let next = AtomicU64::new(life.seed);
    let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    if !go_on(seed, run(&Life { seed, ..life })) {
                        next.store(end, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// Leaves out every act without which it fails too.
pub(crate) fn shorten(life: Life<'_>, acts: usize) -> Vec<usize> {
    let mut without = Vec::new();
    for act in (0..acts).rev() {
        let mut fewer = without.clone();
        fewer.push(act);
        let life = Life {
            without: &fewer,
            ..life
        };
        if run(&life).is_ok_and(|story| !story.violations.is_empty()) {
            without = fewer;
        }
    }
    without
}
