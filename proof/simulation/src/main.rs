//! `simulate`: many lives of an ensemble, each in a process of its own, so that none depends on another.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bellwether_ensemble::rules::{Rule, Rules};
use bellwether_simulation::acts::Act;
use bellwether_simulation::life::{Options, Story, live};
use clap::Parser;

/// Lives of an ensemble under the real operator, in virtual time.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// How many lives
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed; with one life, that life
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave these acts out, by number
    #[arg(long, value_delimiter = ',')]
    without: Vec<usize>,
    /// Show the story of a life, also if nothing went wrong
    #[arg(long)]
    story: bool,
    /// Go on with the next seeds until told to stop
    #[arg(long)]
    long: bool,
    /// Do not go on after this many failures
    #[arg(long, default_value_t = 3)]
    failures: usize,
    /// Let the operator break this safety rule, by its name; `list` names them, `each` tries each of them
    #[arg(long)]
    break_rule: Option<String>,
    /// Nothing happens in the life but that the user applies these fields of the spec, five minutes apart
    #[arg(long, hide = true, value_parser = fields)]
    apply: Vec<serde_json::Value>,
    /// Live this one life and print it as JSON
    #[arg(long, hide = true)]
    child: bool,
}

/// After this time a change is over in which nothing goes wrong.
const SETTLED: Duration = Duration::from_secs(300);
/// A life that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.child {
        child(&arguments)?;
        return Ok(ExitCode::SUCCESS);
    }
    parent(&arguments)
}

/// Fields of the spec, as JSON.
fn fields(text: &str) -> serde_json::Result<serde_json::Value> {
    serde_json::from_str(text)
}

/// One life in this process.
#[allow(clippy::print_stdout, reason = "the answer to the parent")]
fn child(arguments: &Arguments) -> Result<()> {
    if let Ok(filter) = std::env::var("RUST_LOG") {
        let filter = tracing_subscriber::EnvFilter::new(filter);
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .init();
    }
    bellwether_virtual_time::begin(arguments.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    let options = Options {
        seed: arguments.seed,
        without: arguments.without.clone(),
        rules: rules(arguments)?,
        acts: (!arguments.apply.is_empty()).then(|| {
            let apply = |fields: &serde_json::Value| (SETTLED, Act::Apply(fields.clone()));
            arguments.apply.iter().map(apply).collect()
        }),
    };
    let story = runtime.block_on(live(&options));
    println!("{}", serde_json::to_string(&story)?);
    // Tasks of operators that died are not waited for.
    std::process::exit(0);
}

/// The rules that the operator keeps.
fn rules(arguments: &Arguments) -> Result<Rules> {
    let Some(name) = &arguments.break_rule else {
        return Ok(Rules::ALL);
    };
    let mut named = Rule::EVERY.into_iter();
    let rule = named.find(|rule| format!("{rule:?}") == *name);
    let rule =
        rule.with_context(|| format!("no rule is called {name}; --break-rule list names them"))?;
    Ok(Rules::ALL.without(rule))
}

/// Runs one life in a process of its own.
fn run(seed: u64, without: &[usize], broken: Option<&str>) -> Result<Story> {
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

#[allow(clippy::print_stdout, reason = "printing is what this program is for")]
fn parent(arguments: &Arguments) -> Result<ExitCode> {
    let broken = arguments.break_rule.as_deref();
    match broken {
        Some("list") => {
            for rule in Rule::EVERY {
                println!("{rule:?}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        Some("each") => {
            for rule in Rule::EVERY {
                println!("{}", caught(&format!("{rule:?}"), arguments)?);
            }
            return Ok(ExitCode::SUCCESS);
        }
        _ => drop(rules(arguments)?),
    }
    if arguments.story || !arguments.without.is_empty() {
        let story = run(arguments.seed, &arguments.without, broken)?;
        print!("{}", story.text());
        for violation in &story.violations {
            println!("VIOLATION: {violation}");
        }
        return Ok(if story.violations.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    let begin = Instant::now();
    let end = if arguments.long {
        u64::MAX / 2
    } else {
        arguments.seed + arguments.seeds
    };
    let all = Mutex::new((Totals::default(), Vec::<(u64, String, usize)>::new()));
    each_seed(arguments.seed, end, broken, |seed, result| {
        let mut all = all
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match result {
            Ok(story) => {
                all.0.add(&story);
                if let Some(violation) = story.violations.first() {
                    println!("seed {seed}: {violation}");
                    all.1.push((seed, violation.clone(), story.acts));
                }
            }
            Err(error) => {
                println!("seed {seed}: {error:#}");
                all.1.push((seed, format!("{error:#}"), 0));
            }
        }
        all.1.len() < arguments.failures
    });
    let (totals, failures) = all
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    totals.print(begin.elapsed());
    let Some((seed, violation, acts)) = failures.first() else {
        println!("no failure in {} lives", totals.lives);
        return Ok(ExitCode::SUCCESS);
    };
    println!(
        "\n{} of {} lives failed. Seed {seed}: {violation}",
        failures.len(),
        totals.lives
    );
    let without = shorten(*seed, *acts, broken);
    let story = run(*seed, &without, broken)?;
    print!("{}", story.text());
    let numbers: Vec<String> = without.iter().map(ToString::to_string).collect();
    let without = if numbers.is_empty() {
        String::new()
    } else {
        format!(" --without {}", numbers.join(","))
    };
    println!("\nrepeat it with: cargo xtask simulate --seed {seed}{without} --story");
    Ok(ExitCode::FAILURE)
}

/// Lives the lives of these seeds, as many at once as there are cores, until `go_on` says no.
fn each_seed(
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
                    if !go_on(seed, run(seed, &[], broken)) {
                        next.store(end, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// The first life in which the break of a rule shows.
fn caught(rule: &str, arguments: &Arguments) -> Result<String> {
    let end = arguments.seed + arguments.seeds;
    let found = Mutex::new(None::<(u64, String)>);
    each_seed(arguments.seed, end, Some(rule), |seed, result| {
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
    Ok(match found {
        Some((seed, violation)) => format!("{rule:20} seed {seed:5}  {violation}"),
        None => format!("{rule:20} not caught in {} lives", arguments.seeds),
    })
}

/// Leaves out every act without which it fails too.
fn shorten(seed: u64, acts: usize, broken: Option<&str>) -> Vec<usize> {
    let mut without = Vec::new();
    for act in (0..acts).rev() {
        let mut fewer = without.clone();
        fewer.push(act);
        if run(seed, &fewer, broken).is_ok_and(|story| !story.violations.is_empty()) {
            without = fewer;
        }
    }
    without
}

/// What all lives were made of.
#[derive(Debug, Default)]
struct Totals {
    lives: u64,
    seconds: f64,
    acknowledged: usize,
    coverage: BTreeMap<String, usize>,
}

impl Totals {
    fn add(&mut self, story: &Story) {
        self.lives += 1;
        self.seconds += story.seconds;
        self.acknowledged += story.acknowledged;
        for (what, count) in &story.coverage {
            *self.coverage.entry(what.clone()).or_default() += count;
        }
    }

    #[allow(clippy::print_stdout, reason = "printing is what this program is for")]
    #[allow(clippy::cast_precision_loss, reason = "some thousands")]
    fn print(&self, took: Duration) {
        for (what, count) in &self.coverage {
            println!("{count:8} {what}");
        }
        println!(
            "{} lives of {:.0} virtual seconds each, {} writes acknowledged, in {:.1} s: {:.1} lives a second",
            self.lives,
            self.seconds / self.lives.max(1) as f64,
            self.acknowledged,
            took.as_secs_f64(),
            self.lives as f64 / took.as_secs_f64()
        );
    }
}
