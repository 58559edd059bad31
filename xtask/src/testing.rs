//! `cargo xtask test`: everything, from unit tests to the end-to-end tests on a real cluster.

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    build::{self, root},
    cluster::{Cluster, Target, jars, requirements},
    install, process,
    progress::{say, seconds},
    simulate,
};

/// What to test.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only the tests that need no cluster
    #[arg(long, conflicts_with = "end_to_end")]
    no_cluster: bool,
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
/// A file system in memory.
const MEMORY: &str = "/dev/shm";

/// Passed and failed tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u32,
    failed: u32,
}

/// Runs the tests. Fails when one failed.
pub(crate) fn test(arguments: &Arguments, target: &Target) -> Result<()> {
    let started = Instant::now();
    let mut count = Count::default();
    let mut errors = Vec::new();
    if !arguments.end_to_end && !arguments.servers {
        count.run(
            "unit, golden and property tests",
            &mut unit(arguments)?,
            &mut errors,
        )?;
    }
    if !arguments.end_to_end && !arguments.servers && arguments.filter.is_none() {
        say("=== lives of an ensemble in virtual time");
        match simulate::test(arguments.long) {
            Ok(lives) => count.passed += lives,
            Err(error) => errors.push(format!("{error:#}")),
        }
    }
    if !arguments.end_to_end {
        count.run(
            "real servers without a cluster",
            &mut servers(arguments)?,
            &mut errors,
        )?;
    }
    if !arguments.no_cluster && !arguments.servers {
        let was_running = target.is_existing()? || Cluster::open(target).is_ok();
        let result = end_to_end(arguments, target, &mut count, &mut errors);
        if !arguments.keep && !was_running {
            Cluster::down()?;
        }
        if let Err(error) = result {
            errors.push(format!("{error:#}"));
        }
    }
    for error in &errors {
        say(format!("error: {error}"));
    }
    say(format!("in {}", seconds(started.elapsed())));
    println!("{} passed, {} failed", count.passed, count.failed);
    if count.failed > 0 || !errors.is_empty() || count.passed == 0 {
        bail!("the tests did not pass");
    }
    Ok(())
}

fn unit(arguments: &Arguments) -> Result<Command> {
    let mut command = build::cargo("test")?;
    command.args(["--workspace", "--no-fail-fast", "--locked"]);
    // Golden texts are compared, never written, by the tests.
    command.env("INSTA_UPDATE", "no");
    command.args(&arguments.filter);
    Ok(command)
}

/// The tests that run ZooKeeper servers as plain processes.
fn servers(arguments: &Arguments) -> Result<Command> {
    let jars = jars::server_jars()?;
    let mut member = build::cargo("build")?;
    process::run(member.args(["--package", "bellwether-member", "--locked"]))?;
    let mut command = build::cargo("test")?;
    command.args(["--package", "bellwether-servers", "--locked"]);
    command.args(["--test", "servers"]).args(&arguments.filter);
    command.env("BELLWETHER_ZOOKEEPER_JARS", jars).env(
        "BELLWETHER_MEMBER",
        build::programs(false)?.join("bellwether-member"),
    );
    if arguments.long {
        command.env("BELLWETHER_ROUNDS", LONG.to_string());
    }
    // The servers' disks need to outlive their processes and no more.
    if env::var_os("TMPDIR").is_none() && Path::new(MEMORY).is_dir() {
        command.env("TMPDIR", MEMORY);
    }
    Ok(command)
}

fn end_to_end(
    arguments: &Arguments,
    target: &Target,
    count: &mut Count,
    errors: &mut Vec<String>,
) -> Result<()> {
    let mut compile = build::cargo("test")?;
    compile.args([
        "--package",
        "bellwether-e2e",
        "--test",
        "cluster",
        "--no-run",
        "--locked",
    ]);
    compile.arg("--message-format=json");
    let program = executable(&process::output(&mut compile)?)
        .context("cargo built no end-to-end test program")?;
    requirements::to_look_at_pages();
    requirements::to_monitor()?;
    let cluster = install::operator(target)?;
    let mut command = cluster.exec(&[program.as_str()])?;
    command.args(&arguments.filter).current_dir(root());
    command.env("BELLWETHER_KUBECTL", "kubectl");
    command.env(
        "BELLWETHER_PROGRAM",
        build::programs(false)?.join("bellwether"),
    );
    if arguments.long {
        command.env("BELLWETHER_SOAK_SECONDS", LONG_SOAK);
    }
    count.run("end-to-end tests", &mut command, errors)
}

/// The test program in cargo's messages.
fn executable(messages: &str) -> Option<String> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|m| m["target"]["name"] == "cluster" && m["profile"]["test"] == true)
        .find_map(|m| m["executable"].as_str().map(str::to_owned))
}

impl Count {
    /// Runs a test command, showing its output, and adds up the results that it prints.
    fn run(&mut self, title: &str, command: &mut Command, errors: &mut Vec<String>) -> Result<()> {
        say(format!("=== {title}"));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("run {}", process::name(command)))?;
        let output = child.stdout.take().context("no standard output")?;
        let before = *self;
        for line in BufReader::new(output).lines() {
            let line = line?;
            self.add(&line);
            println!("{line}");
        }
        let status = child.wait()?;
        if !status.success() && self.failed == before.failed {
            errors.push(format!("{title}: {status} without a failed test"));
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
        let mut count = Count::default();
        count.add("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        count.add("test result: FAILED. 3 passed; 2 failed; 0 ignored");
        count.add("test something ... ok");
        assert_eq!(
            count,
            Count {
                passed: 15,
                failed: 2
            }
        );
    }
}
