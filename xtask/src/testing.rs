//! `cargo xtask test`: everything, from unit tests to the end-to-end tests on a real cluster.

use std::{
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    build::{self, root},
    cluster::{Cluster, Target, jars, requirements},
    compile::{self, Compiled, Tests},
    install, process,
    progress::{say, seconds},
    simulate::{self, Lives, Of},
};

/// What to test.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only the tests that need no cluster
    #[arg(long, conflicts_with = "end_to_end")]
    no_cluster: bool,
    /// Only what answers within minutes, for those who change code: unit tests, the model check, and lives of an ensemble
    #[arg(long, conflicts_with_all = ["end_to_end", "servers", "long"])]
    quick: bool,
    /// Only the end-to-end tests
    #[arg(long, conflicts_with = "servers")]
    end_to_end: bool,
    /// Only the tests on real ZooKeeper servers without a cluster
    #[arg(long)]
    servers: bool,
    /// Search long: real servers go through every size change ten times, with new random faults,
    /// and elections and an ensemble go on for ten minutes while everything around them fails
    #[arg(long)]
    long: bool,
    /// Leave the cluster running afterwards
    #[arg(long)]
    keep: bool,
    /// Only tests whose name contains this
    filter: Option<String>,
}

/// How often a long search goes through every size change on real servers.
const LONG: u32 = 10;
/// For how long everything fails around elections, and around an ensemble, in a long search, in seconds.
const LONG_SOAK: &str = "600";
/// The title of the tests of single crates.
const UNIT: &str = "unit, golden and property tests";
/// The title of the programs that visit many states of a world in which time is a number.
const WORLDS: &str = "model check, scripted lives, and forecasts";
/// These programs.
const OF_WORLDS: [&str; 3] = ["model", "scenarios", "forecast"];
/// The programs whose tests need a cluster or servers.
const OUTSIDE: [&str; 2] = ["cluster", "servers"];
/// Lives, and their title.
const LIVES: [(Of, &str); 2] = [
    (Of::Ensemble, "lives of an ensemble in virtual time"),
    (Of::Elections, "lives of elections in virtual time"),
];
/// The title of the tests on servers.
const SERVERS: &str = "real servers without a cluster";
/// A file system in memory.
const MEMORY: &str = "/dev/shm";

/// What tests showed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    passed: u32,
    failed: u32,
    /// What went wrong besides failed tests.
    errors: Vec<String>,
}

/// Runs the tests. Fails when one failed.
pub(crate) fn test(arguments: &Arguments, target: &Target) -> Result<()> {
    let started = Instant::now();
    let mut found = Found::default();
    say("compiling ...");
    let programs = compile::all()?;
    say(format!("compiled in {}", seconds(started.elapsed())));
    let worlds = Worlds::chosen(arguments, &programs)?;
    found.run_at_once(
        |found| others(arguments, target, &programs, found),
        // In these worlds nothing is late.
        |found| worlds.run(found),
    )?;
    for error in &found.errors {
        say(format!("error: {error}"));
    }
    say(format!("in {}", seconds(started.elapsed())));
    println!("{} passed, {} failed", found.passed, found.failed);
    if found.failed > 0 || !found.errors.is_empty() || found.passed == 0 {
        bail!("the tests did not pass");
    }
    Ok(())
}

/// Runs the unit tests while a cluster starts, and then the tests on the cluster and on servers.
fn others(
    arguments: &Arguments,
    target: &Target,
    programs: &Compiled,
    found: &mut Found,
) -> Result<()> {
    let servers = (!arguments.end_to_end && !arguments.quick).then(|| servers(arguments, programs));
    let mut servers = servers.transpose()?;
    let has_cluster = !(arguments.no_cluster || arguments.servers || arguments.quick);
    let was_running = has_cluster && (target.is_existing()? || Cluster::open(target).is_ok());
    let cluster = thread::scope(|scope| {
        // Starting a cluster is mostly waiting, so unit tests run meanwhile.
        let starting = has_cluster.then(|| scope.spawn(|| start(target)));
        if !arguments.end_to_end && !arguments.servers {
            let apart = [&OF_WORLDS[..], &OUTSIDE].concat();
            let unit = programs.tests.iter();
            let unit = unit.filter(|tests| !is_one_of(tests, &apart));
            let filter = arguments.filter.as_deref();
            let unit = unit.map(|tests| (&*tests.name, tests.command(filter)));
            found.run_each(UNIT, unit)?;
        }
        let started = starting.map(|starting| starting.join());
        let started = started.map(|result| result.unwrap_or_else(|_| bail!("the start panicked")));
        Ok::<_, anyhow::Error>(started)
    })?;
    if let Some(cluster) = cluster {
        let run = |cluster| end_to_end(arguments, &cluster, programs, servers.as_mut(), found);
        let result = cluster.and_then(run);
        if !arguments.keep && !was_running {
            Cluster::down()?;
        }
        if let Err(error) = result {
            found.errors.push(format!("{error:#}"));
        }
    } else if let Some(servers) = &mut servers {
        found.run(SERVERS, servers)?;
    }
    Ok(())
}

/// What is tested in a world in which time is a number.
#[derive(Default)]
struct Worlds {
    programs: Vec<Tests>,
    /// Which of their tests run: those whose name contains this.
    filter: Option<String>,
    /// The simulator, and how many lives it lives.
    lives: Option<(PathBuf, Lives)>,
}

impl Worlds {
    fn chosen(arguments: &Arguments, programs: &Compiled) -> Result<Self> {
        if arguments.end_to_end || arguments.servers {
            return Ok(Self::default());
        }
        let lives = arguments.filter.is_none().then(|| {
            if arguments.long {
                Ok((simulate::simulator(true)?, Lives::Many))
            } else {
                Ok::<_, anyhow::Error>((programs.program("simulate")?, Lives::Few))
            }
        });
        let mut of_worlds = programs.tests.clone();
        of_worlds.retain(|tests| is_one_of(tests, &OF_WORLDS));
        Ok(Self {
            programs: of_worlds,
            filter: arguments.filter.clone(),
            lives: lives.transpose()?,
        })
    }

    /// Runs each program, in the time that nothing else needs.
    fn run(self, found: &mut Found) -> Result<()> {
        if !self.programs.is_empty() {
            let filter = self.filter.as_deref();
            let commands = self.programs.iter().map(|tests| {
                let command = process::in_spare_time(tests.command(filter));
                (&*tests.name, command)
            });
            found.run_each(WORLDS, commands)?;
        }
        if let Some((simulator, lives)) = self.lives {
            for (of, title) in LIVES {
                let begin = Instant::now();
                let command = simulate::lives(&simulator, lives, of);
                match simulate::run(&mut process::in_spare_time(command)) {
                    Ok(()) => found.passed += lives.count(of),
                    Err(error) => found.errors.push(format!("{error:#}")),
                }
                say(format!("{title}: {}", seconds(begin.elapsed())));
            }
        }
        Ok(())
    }
}

/// Whether a program has one of these names.
fn is_one_of(tests: &Tests, names: &[&str]) -> bool {
    names.contains(&&*tests.name)
}

/// The tests that run ZooKeeper servers as plain processes.
fn servers(arguments: &Arguments, programs: &Compiled) -> Result<Command> {
    let mut command = Command::new(programs.program("servers")?);
    command.args(&arguments.filter).current_dir(root());
    command
        .env("BELLWETHER_ZOOKEEPER_JARS", jars::server_jars()?)
        .env("BELLWETHER_MEMBER", programs.program("bellwether-member")?);
    if arguments.long {
        command.env("BELLWETHER_ROUNDS", LONG.to_string());
    }
    // The servers' disks need to outlive their processes and no more.
    if env::var_os("TMPDIR").is_none() && Path::new(MEMORY).is_dir() {
        command.env("TMPDIR", MEMORY);
    }
    Ok(command)
}

/// Installs what the end-to-end tests need, and the operator on a cluster.
fn start(target: &Target) -> Result<Cluster> {
    requirements::to_look_at_pages();
    requirements::to_monitor()?;
    install::operator(target)
}

/// Runs the end-to-end tests that share the operator, and then those that need it alone. The servers' tests run beside
/// these, which mostly wait.
fn end_to_end(
    arguments: &Arguments,
    cluster: &Cluster,
    programs: &Compiled,
    servers: Option<&mut Command>,
    found: &mut Found,
) -> Result<()> {
    let program = programs.program("cluster")?;
    let tests = |part: &str| -> Result<Command> {
        let mut command = cluster.exec(&[&*program.to_string_lossy()])?;
        command.args(&arguments.filter).current_dir(root());
        command.env("BELLWETHER_KUBECTL", "kubectl");
        command.env("BELLWETHER_PART", part);
        command.env(
            "BELLWETHER_PROGRAM",
            build::programs(false)?.join("bellwether"),
        );
        if arguments.long {
            command.env("BELLWETHER_SOAK_SECONDS", LONG_SOAK);
        }
        Ok(command)
    };
    found.run("end-to-end tests", &mut tests("together")?)?;
    let mut alone = tests("alone")?;
    found.run_at_once(
        |found| found.run("end-to-end tests, one by one", &mut alone),
        |found| servers.map_or(Ok(()), |servers| found.run(SERVERS, servers)),
    )
}

impl Found {
    /// Runs tests, and others at the same time.
    fn run_at_once(
        &mut self,
        tests: impl FnOnce(&mut Self) -> Result<()>,
        beside: impl FnOnce(&mut Self) -> Result<()> + Send,
    ) -> Result<()> {
        let mut others = Self::default();
        thread::scope(|scope| {
            let running = scope.spawn(|| beside(&mut others));
            let result = tests(self);
            let joined = running.join();
            result.and(joined.unwrap_or_else(|_| bail!("the tests beside others panicked")))
        })?;
        self.passed += others.passed;
        self.failed += others.failed;
        self.errors.append(&mut others.errors);
        Ok(())
    }

    /// Runs these commands, one after the other, each as [`Found::run`] does.
    fn run_each<'t>(
        &mut self,
        title: &str,
        commands: impl IntoIterator<Item = (&'t str, Command)>,
    ) -> Result<()> {
        say(format!("=== {title}"));
        let begin = Instant::now();
        for (name, mut command) in commands {
            println!("\n{name}");
            self.take(name, &mut command)?;
        }
        say(format!("{title}: {}", seconds(begin.elapsed())));
        Ok(())
    }

    /// Runs a test command, showing its output, and adds up the results that it prints.
    fn run(&mut self, title: &str, command: &mut Command) -> Result<()> {
        say(format!("=== {title}"));
        let begin = Instant::now();
        self.take(title, command)?;
        say(format!("{title}: {}", seconds(begin.elapsed())));
        Ok(())
    }

    /// Takes in what a test command shows.
    fn take(&mut self, title: &str, command: &mut Command) -> Result<()> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("run {}", process::name(command)))?;
        let output = child.stdout.take().context("no standard output")?;
        let failed = self.failed;
        for line in BufReader::new(output).lines() {
            let line = line?;
            self.add(&line);
            println!("{line}");
        }
        let status = child.wait()?;
        if !status.success() && self.failed == failed {
            let error = format!("{title}: {status} without a failed test");
            self.errors.push(error);
        }
        Ok(())
    }

    /// Adds a line such as `test result: ok. 3 passed; 0 failed; ...`.
    fn add(&mut self, line: &str) {
        let Some(result) = line.trim().strip_prefix("test result:") else {
            return;
        };
        let number = |word: &str| -> u32 {
            result
                .split(['.', ';'])
                .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
                .unwrap_or(0)
        };
        self.passed += number("passed");
        self.failed += number("failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_test_programs_are_added_up() {
        let mut found = Found::default();
        found.add("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        found.add("test result: FAILED. 3 passed; 2 failed; 0 ignored");
        found.add("test something ... ok");
        assert_eq!(
            found,
            Found {
                passed: 15,
                failed: 2,
                errors: Vec::new(),
            }
        );
    }
}
