//! `cargo xtask simulate`: lives of an ensemble under the real operator, in virtual time.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::build::{self, root};
use crate::process;

/// How many lives the tests live.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lives {
    /// Those of the quick tests, for a person who waits.
    Quick = 50,
    /// Those of all tests.
    All = 60,
    /// Those of a long search.
    Long = 5000,
}

/// How to simulate.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The simulator's own arguments; `--help` shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Compiles the simulator and runs it.
pub(crate) fn simulate(arguments: &Arguments) -> Result<()> {
    run(&mut simulator(&arguments.arguments)?)
}

/// The lives that belong to the tests, by the simulator at this path. Returns how many there were.
pub(crate) fn test(simulator: &Path, lives: Lives) -> Result<u32> {
    let lives = lives as u32;
    run(Command::new(simulator).args(["--seeds", &lives.to_string()]))?;
    Ok(lives)
}

fn simulator(arguments: &[String]) -> Result<Command> {
    let mut compile = build::cargo("build")?;
    compile.args(["--package", "bellwether-simulation", "--locked"]);
    compile.args(build::AS_TESTED);
    process::run(&mut compile)?;
    let mut command = Command::new(build::programs(false)?.join("simulate"));
    command.current_dir(root()).args(arguments);
    Ok(command)
}

fn run(command: &mut Command) -> Result<()> {
    if !command.status()?.success() {
        bail!("the simulation found something; see above");
    }
    Ok(())
}
