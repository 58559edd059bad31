//! `cargo xtask bench`: what changes cost.

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};

use crate::{
    build::{self, root},
    cluster::Target,
    install, process,
};

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A restart of every member (about four minutes a repetition)
    Roll(Options),
    /// From 3 to 5 members, 5 to 3 and 1 to 3 (about twelve minutes a repetition)
    Resize(Options),
    /// One decision of the planner for seven members; needs no cluster
    Plan,
}

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often, in every way
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=20))]
    repetitions: u16,
    /// Print what happened in each run, with times
    #[arg(long)]
    timeline: bool,
}

/// Measures, and prints what came of it. A cluster that it starts stays.
pub(crate) fn bench(what: &Command, target: &Target) -> Result<()> {
    let (name, options) = match what {
        Command::Roll(options) => ("roll", options),
        Command::Resize(options) => ("resize", options),
        Command::Plan => {
            let mut bench = build::cargo("bench")?;
            bench.args([
                "--package",
                "bellwether-ensemble",
                "--bench",
                "plan",
                "--locked",
            ]);
            ensure!(bench.status()?.success(), "the benchmark did not run");
            return Ok(());
        }
    };
    let mut compile = build::cargo("build")?;
    compile.args(["--package", "bellwether-e2e", "--bin", "bench", "--locked"]);
    process::run(&mut compile)?;
    let program = build::programs(false)?.join("bench");
    let cluster = install::operator(target)?;
    let (program, repetitions) = (program.to_string_lossy(), options.repetitions.to_string());
    let mut words = vec![&*program, name, &repetitions];
    words.extend(options.timeline.then_some("--timeline"));
    let mut command = cluster.exec(&words)?;
    command
        .current_dir(root())
        .env("BELLWETHER_KUBECTL", "kubectl");
    if !command.status()?.success() {
        bail!("the benchmark did not succeed; what it said is above");
    }
    Ok(())
}
