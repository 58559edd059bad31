//! The project's own commands: `cargo xtask ...`.

use std::process::ExitCode;

use bellwether_test_cluster::{self as cluster, image, process, progress};
use clap::{Parser, Subcommand};

mod bench;
mod build;
mod chart;
mod check;
mod compile;
#[cfg(test)]
mod dashboard;
mod demo;
mod fuzz;
mod generate;
mod install;
mod links;
mod model;
mod reference;
mod simulate;
mod testing;

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(flatten)]
    target: cluster::Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A real Kubernetes cluster on this machine, or an existing one.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// See it all: a real cluster, an ensemble that grows under load, an election mirrored
    Demo(demo::Arguments),
    /// Run every test, end-to-end tests on a real cluster among them
    Test(testing::Arguments),
    /// Check the planner against every state of an abstract world
    Model(model::Arguments),
    /// Live many lives of an ensemble under the real operator, in virtual time
    #[command(disable_help_flag = true)]
    Simulate(simulate::Arguments),
    /// Let libFuzzer write znodes until something panics or the time is over
    Fuzz(fuzz::Arguments),
    /// Measure what changes cost, compared with a plain StatefulSet and with the best order by hand
    #[command(subcommand)]
    Bench(bench::Command),
    /// Formatting, lints, documentation, generated files, dependencies
    Check(check::Arguments),
    /// Write everything in the tree that is generated: CRDs, API reference, chart values
    Gen,
    /// Build the operator's static programs into dist/
    Dist {
        /// Optimized
        #[arg(long)]
        release: bool,
        /// With the list of their crates in them (needs cargo-auditable)
        #[arg(long)]
        auditable: bool,
    },
    /// Build the operator, start the cluster and install the chart
    Install,
}

fn done((): ()) -> ExitCode {
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Cluster(command) => cluster::run(command, &arguments.target),
        Command::Demo(demo) => demo::demo(&demo, &arguments.target).map(done),
        Command::Test(test) => testing::test(&test, &arguments.target).map(done),
        Command::Model(arguments) => model::model(&arguments).map(done),
        Command::Simulate(arguments) => simulate::simulate(&arguments).map(done),
        Command::Fuzz(arguments) => fuzz::fuzz(&arguments).map(done),
        Command::Bench(bench) => bench::bench(&bench, &arguments.target).map(done),
        Command::Check(check) => check::check(&check).map(done),
        Command::Gen => generate::generate().map(done),
        Command::Dist { release, auditable } => build::dist(release, auditable).map(done),
        Command::Install => install::operator(&arguments.target).map(|_| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
