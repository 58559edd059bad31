//! `simulate`: many lives of an ensemble, each in a process of its own, so that none depends on another.

mod nursery;
mod process;
mod scenarios;
mod tables;
mod totals;

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bellwether::{Guard, Guards};
use bellwether_ensemble::rules::{Rule, Rules};
use bellwether_simulation::elections;
use bellwether_simulation::life::{Options, live};
use bellwether_simulation::script::{Deed, Line, Script};
use clap::Parser;

use process::{Life, each_seed, run, shorten};
use tables::joined;
use totals::Totals;

/// As the operator's own program has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Let the operator break this safety rule, or these joined by `+`; `list` names them, `each` shows what
    /// catches each of them. With `--elections`: leave out what guards the mirror against being deceived
    #[arg(long)]
    break_rule: Option<String>,
    /// Nothing happens in the life but that the user applies these fields of the spec, five minutes apart
    #[arg(long, hide = true, value_parser = fields)]
    apply: Vec<serde_json::Value>,
    /// Live this one scripted life, by its name
    #[arg(long)]
    scenario: Option<String>,
    /// Live every scripted life, with all rules and without those that guard it
    #[arg(long)]
    scenarios: bool,
    /// With `--break-rule each`: only the scripted lives
    #[arg(long)]
    quick: bool,
    /// Lives of elections instead of ensembles
    #[arg(long, conflicts_with_all = ["apply", "scenario", "scenarios"])]
    elections: bool,
    /// Live this one life and print it as JSON
    #[arg(long, hide = true)]
    child: bool,
    /// Live each life that standard input asks for in a copy of this process
    #[arg(long, hide = true)]
    nursery: bool,
}

/// After this time a change is over in which nothing goes wrong.
const SETTLED: Duration = Duration::from_secs(300);
fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.nursery {
        nursery::serve()?;
        return Ok(ExitCode::SUCCESS);
    }
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

/// A life in which the user applies these fields of the spec one after the other, and nothing goes wrong.
fn applied(changes: &[serde_json::Value]) -> Option<Script> {
    let (first, rest) = changes.split_first()?;
    let change = |fields: &serde_json::Value| {
        let pause = Line::Pause(SETTLED);
        [pause, Line::Deed(Deed::Spec(fields.clone()))]
    };
    Some(Script {
        seed: 1,
        spec: first.clone(),
        operators: 1,
        lines: rest.iter().flat_map(change).collect(),
        ends_as_asked: true,
    })
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
    let script = match &arguments.scenario {
        Some(name) => Some(scenarios::find(name)?),
        None => applied(&arguments.apply),
    };
    // Another seed gives a scripted life other chances.
    let other = |script: &Script| script.seed + arguments.seed - 1;
    let seed = script.as_ref().map_or(arguments.seed, other);
    bellwether_virtual_time::begin(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    let options = Options {
        seed,
        without: arguments.without.clone(),
        rules: rules(arguments)?,
        guards: guards(arguments)?,
        script,
    };
    let story = match arguments.elections {
        true => runtime.block_on(elections::live(&options)),
        false => runtime.block_on(live(&options)),
    };
    println!("{}", serde_json::to_string(&story)?);
    // Tasks of operators that died are not waited for.
    std::process::exit(0);
}

/// The names of what the operator leaves out, in lives of elections or of ensembles.
fn broken(arguments: &Arguments, elections: bool) -> impl Iterator<Item = &str> {
    let names = arguments.break_rule.iter();
    let names = names.filter(move |_| arguments.elections == elections);
    names.flat_map(|names| names.split('+'))
}

/// What the mirror does so that nothing deceives it.
fn guards(arguments: &Arguments) -> Result<Guards> {
    let mut guards = Guards::ALL;
    for name in broken(arguments, true) {
        let mut named = Guard::EVERY.into_iter().flatten();
        let guard = named.find(|guard| format!("{guard:?}") == name);
        let guard = guard
            .with_context(|| format!("no guard is called {name}; --break-rule list names them"))?;
        guards = guards.without(*guard);
    }
    Ok(guards)
}

/// The rules that the operator keeps.
fn rules(arguments: &Arguments) -> Result<Rules> {
    let mut rules = Rules::ALL;
    for name in broken(arguments, false) {
        let mut named = Rule::EVERY.into_iter();
        let rule = named.find(|rule| format!("{rule:?}") == name);
        let rule = rule
            .with_context(|| format!("no rule is called {name}; --break-rule list names them"))?;
        rules = rules.without(rule);
    }
    Ok(rules)
}

#[allow(clippy::print_stdout, reason = "printing is what this program is for")]
fn parent(arguments: &Arguments) -> Result<ExitCode> {
    let broken = arguments.break_rule.as_deref();
    match broken {
        Some("list") => {
            let names = match arguments.elections {
                true => Guard::EVERY.map(joined).to_vec(),
                false => Rule::EVERY.map(|rule| format!("{rule:?}")).to_vec(),
            };
            println!("{}", names.join("\n"));
            return Ok(ExitCode::SUCCESS);
        }
        Some("each") if arguments.elections => return tables::guards(arguments),
        Some("each") => return tables::rules(arguments),
        _ => drop((rules(arguments)?, guards(arguments)?)),
    }
    if arguments.scenarios {
        return tables::scenarios();
    }
    let scenario = arguments.scenario.as_deref();
    let life = Life {
        elections: arguments.elections,
        ..Life::of(arguments.seed, broken)
    };
    if arguments.story || scenario.is_some() || !arguments.without.is_empty() {
        let story = run(&Life {
            scenario,
            without: &arguments.without,
            ..life
        })?;
        if arguments.story || scenario.is_none() {
            print!("{}", story.text());
        }
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
    each_seed(life, end, |seed, result| {
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
    let life = Life {
        seed: *seed,
        ..life
    };
    let without = shorten(life, *acts);
    let story = run(&Life {
        without: &without,
        ..life
    })?;
    print!("{}", story.text());
    let numbers: Vec<String> = without.iter().map(ToString::to_string).collect();
    let without = if numbers.is_empty() {
        String::new()
    } else {
        format!(" --without {}", numbers.join(","))
    };
    let kind = if arguments.elections {
        " --elections"
    } else {
        ""
    };
    println!("\nrepeat it with: cargo xtask simulate{kind} --seed {seed}{without} --story");
    Ok(ExitCode::FAILURE)
}
