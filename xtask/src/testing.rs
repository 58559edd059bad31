//! `cargo xtask test`: everything, from unit tests to the end-to-end tests on a real cluster.

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::{
    build::{self, root},
    cluster::{Cluster, Target, jars, requirements},
    install, process,
    progress::{say, seconds},
    simulate::{self, Lives},
};

/// What to test.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only the tests that need no cluster
    #[arg(long, conflicts_with = "end_to_end")]
    no_cluster: bool,
    /// Only what answers within minutes, for those who change code: unit tests, the model check, and fewer lives
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
/// The title of an ensemble's lives.
const LIVES: &str = "lives of an ensemble in virtual time";
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
    let programs = Programs::compile()?;
    let beside = Beside::chosen(arguments, &programs)?;
    let has_cluster = !(arguments.no_cluster || arguments.servers || arguments.quick);
    let was_running = has_cluster && (target.is_existing()? || Cluster::open(target).is_ok());
    let cluster = thread::scope(|scope| {
        // Starting a cluster is mostly waiting, so unit tests run meanwhile.
        let starting = has_cluster.then(|| scope.spawn(|| start(target)));
        if !arguments.end_to_end && !arguments.servers {
            found.run(UNIT, &mut unit(arguments)?)?;
        }
        let started = starting.map(|starting| starting.join());
        let started = started.map(|result| result.unwrap_or_else(|_| bail!("the start panicked")));
        Ok::<_, anyhow::Error>(started)
    })?;
    if let Some(cluster) = cluster {
        let run = |cluster| end_to_end(arguments, &cluster, &programs, beside, &mut found);
        let result = cluster.and_then(run);
        if !arguments.keep && !was_running {
            Cluster::down()?;
        }
        if let Err(error) = result {
            found.errors.push(format!("{error:#}"));
        }
    } else {
        beside.run(&mut found)?;
    }
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

/// What runs beside the end-to-end tests that need the operator alone, since these mostly wait.
#[derive(Default)]
struct Beside {
    servers: Option<Command>,
    /// The simulator, and how many lives it lives.
    lives: Option<(PathBuf, Lives)>,
}

impl Beside {
    fn chosen(arguments: &Arguments, programs: &Programs) -> Result<Self> {
        if arguments.end_to_end {
            return Ok(Self::default());
        }
        let lives = match (arguments.quick, arguments.long) {
            (true, _) => Lives::Quick,
            (_, true) => Lives::Long,
            _ => Lives::All,
        };
        let has_lives = arguments.filter.is_none() && !arguments.servers;
        let lives = has_lives.then(|| {
            let simulate = match lives {
                Lives::Long => simulate::simulator(true),
                _ => programs.path("simulate"),
            };
            simulate.map(|simulate| (simulate, lives))
        });
        let servers = (!arguments.quick).then(|| servers(arguments, programs));
        Ok(Self {
            servers: servers.transpose()?,
            lives: lives.transpose()?,
        })
    }

    fn run(self, found: &mut Found) -> Result<()> {
        if let Some(mut servers) = self.servers {
            found.run(SERVERS, &mut servers)?;
        }
        if let Some((simulator, lives)) = self.lives {
            let begin = Instant::now();
            match simulate::test(&simulator, lives) {
                Ok(lives) => found.passed += lives,
                Err(error) => found.errors.push(format!("{error:#}")),
            }
            say(format!("{LIVES}: {}", seconds(begin.elapsed())));
        }
        Ok(())
    }
}

fn unit(arguments: &Arguments) -> Result<Command> {
    let mut command = build::cargo("test")?;
    // What was compiled already. The documentation has no code that runs, and looking for it takes half a minute. With
    // `--bins`, programs without tests would be tested, too.
    command.args(["--workspace", "--tests"]);
    command.args(build::AS_TESTED);
    command.args(["--no-fail-fast", "--locked"]);
    // Golden texts are compared, never written, by the tests.
    command.env("INSTA_UPDATE", "no");
    command.args(&arguments.filter);
    Ok(command)
}

/// The tests that run ZooKeeper servers as plain processes.
fn servers(arguments: &Arguments, programs: &Programs) -> Result<Command> {
    let mut command = Command::new(programs.path("servers")?);
    command.args(&arguments.filter).current_dir(root());
    command
        .env("BELLWETHER_ZOOKEEPER_JARS", jars::server_jars()?)
        .env("BELLWETHER_MEMBER", programs.path("bellwether-member")?);
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

/// Runs the end-to-end tests that share the operator, and then those that need it alone, with the others beside them.
fn end_to_end(
    arguments: &Arguments,
    cluster: &Cluster,
    programs: &Programs,
    beside: Beside,
    found: &mut Found,
) -> Result<()> {
    let program = programs.path("cluster")?;
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
    let title = "end-to-end tests, one by one";
    found.run_beside(title, &mut tests("alone")?, |found| beside.run(found))
}

/// The programs that the tests run, by the names of their cargo targets. All are compiled by one command:
/// cargo unites the features of what it compiles together, so that each package on its own would compile
/// many libraries once more.
#[derive(Debug)]
struct Programs(BTreeMap<String, PathBuf>);

impl Programs {
    fn compile() -> Result<Self> {
        say("compiling ...");
        let begin = Instant::now();
        let mut compile = build::cargo("build")?;
        compile.args(["--workspace", "--bins", "--tests", "--locked"]);
        compile.args(build::AS_TESTED);
        compile.arg("--message-format=json-render-diagnostics");
        let messages = process::output(&mut compile)?;
        say(format!("compiled in {}", seconds(begin.elapsed())));
        Ok(Self::named_in(&messages))
    }

    /// The programs that cargo's messages name: programs proper, and programs of tests.
    fn named_in(messages: &str) -> Self {
        let messages = messages.lines().filter_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            let target = &message["target"];
            let tests = target["kind"][0] == "test";
            (target["kind"][0] == "bin" || tests).then_some(())?;
            // A program proper is compiled a second time, with its own unit tests in it.
            (message["profile"]["test"] == tests).then_some(())?;
            let path = PathBuf::from(message["executable"].as_str()?);
            Some((target["name"].as_str()?.to_owned(), path))
        });
        Self(messages.collect())
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.get(name).cloned();
        path.with_context(|| format!("cargo built no program {name}"))
    }
}

impl Found {
    /// Runs a test command as [`Found::run`] does, and others at the same time.
    fn run_beside(
        &mut self,
        title: &str,
        command: &mut Command,
        beside: impl FnOnce(&mut Self) -> Result<()> + Send,
    ) -> Result<()> {
        let mut others = Self::default();
        thread::scope(|scope| {
            let running = scope.spawn(|| beside(&mut others));
            let result = self.run(title, command);
            let joined = running.join();
            result.and(joined.unwrap_or_else(|_| bail!("the tests beside {title} panicked")))
        })?;
        self.passed += others.passed;
        self.failed += others.failed;
        self.errors.append(&mut others.errors);
        Ok(())
    }

    /// Runs a test command, showing its output, and adds up the results that it prints.
    fn run(&mut self, title: &str, command: &mut Command) -> Result<()> {
        say(format!("=== {title}"));
        let begin = Instant::now();
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
        say(format!("{title}: {}", seconds(begin.elapsed())));
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
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_are_told_from_their_unit_tests_and_from_libraries() {
        let message = |kind: &str, name: &str, test: bool, path: &str| {
            let target = json!({ "kind": [kind], "name": name });
            let profile = json!({ "test": test });
            json!({ "target": target, "profile": profile, "executable": path }).to_string()
        };
        let messages = [
            message("bin", "member", false, "/member"),
            message("bin", "member", true, "/member-unit-tests"),
            message("test", "cluster", true, "/cluster-1"),
            message("lib", "cluster", true, "/unit-tests"),
            json!({ "reason": "build-finished" }).to_string(),
        ];
        let programs = Programs::named_in(&messages.join("\n"));
        let path = |name: &str| programs.path(name).unwrap();
        assert_eq!(path("member"), Path::new("/member"));
        assert_eq!(path("cluster"), Path::new("/cluster-1"));
        assert!(programs.path("simulate").is_err());
    }

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
