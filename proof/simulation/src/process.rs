//! Lives in processes of their own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bellwether_simulation::life::Story;

/// A life that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

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
}

impl<'a> Life<'a> {
    /// The life of a seed.
    pub(crate) fn of(seed: u64, broken: Option<&'a str>) -> Self {
        Self {
            seed,
            scenario: None,
            without: &[],
            broken,
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
    } = *life;
    let program = std::env::current_exe()?;
    let numbers: Vec<String> = without.iter().map(ToString::to_string).collect();
    let mut command = match Path::new("/usr/bin/setarch").exists() {
        // Hash maps that seed themselves by addresses have to see the same ones.
        true => {
            let mut command = Command::new("/usr/bin/setarch");
            command.args(["--addr-no-randomize"]).arg(program);
            command
        }
        false => Command::new(program),
    };
    command.args(["--child", "--seed", &seed.to_string()]);
    if let Some(scenario) = scenario {
        command.args(["--scenario", scenario]);
    }
    if let Some(rule) = broken {
        command.args(["--break-rule", rule]);
    }
    if !numbers.is_empty() {
        command.args(["--without", &numbers.join(",")]);
    }
    let mut process = command
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()?;
    let begin = Instant::now();
    let mut output = process.stdout.take().context("no output")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut output, &mut text).map(|_| text)
    });
    loop {
        if process.try_wait()?.is_some() {
            break;
        }
        if begin.elapsed() > PATIENCE {
            process.kill()?;
            process.wait()?;
            bail!("seed {seed} did not end within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let text = reader
        .join()
        .map_err(|_| anyhow::anyhow!("the reader failed"))??;
    let last = text
        .lines()
        .last()
        .with_context(|| format!("seed {seed} ended without a story"))?;
    Ok(serde_json::from_str(last)?)
}

/// Lives the lives of these seeds, as many at once as there are cores, until `go_on` says no.
pub(crate) fn each_seed(
    first: u64,
    end: u64,
    broken: Option<&str>,
    go_on: impl Fn(u64, Result<Story>) -> bool + Sync,
) {
    let next = AtomicU64::new(first);
    let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    if !go_on(seed, run(&Life::of(seed, broken))) {
                        next.store(end, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// Leaves out every act without which it fails too.
pub(crate) fn shorten(seed: u64, acts: usize, broken: Option<&str>) -> Vec<usize> {
    let mut without = Vec::new();
    for act in (0..acts).rev() {
        let mut fewer = without.clone();
        fewer.push(act);
        let life = Life {
            without: &fewer,
            ..Life::of(seed, broken)
        };
        if run(&life).is_ok_and(|story| !story.violations.is_empty()) {
            without = fewer;
        }
    }
    without
}
