//! `cargo xtask simulate`: lives of an ensemble, or of elections, under the real operator, in virtual time.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::build::{self, root};
use crate::process;

/// The profile of the simulator of a long search.
const SEARCH: &str = "search";

/// How many lives the tests live.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lives {
    /// Those of the tests.
    Few,
    /// Those of a long search.
    Many,
}

/// Of what they are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    /// An ensemble.
    Ensemble,
    /// Elections.
    Elections,
}

impl Lives {
    /// How many they are. A life of elections takes four times as long.
    pub(crate) fn count(self, of: Of) -> u32 {
        match (self, of) {
            (Self::Few, Of::Ensemble) => 50,
            (Self::Few, Of::Elections) => 25,
            (Self::Many, Of::Ensemble) => 5000,
            (Self::Many, Of::Elections) => 2000,
        }
    }
}

/// How to simulate.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Optimize the simulator first: some minutes, which several hundred lives are worth
    #[arg(long)]
    optimized: bool,
    /// The simulator's own arguments; `--help` shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Compiles the simulator and runs it.
pub(crate) fn simulate(arguments: &Arguments) -> Result<()> {
    let mut command = Command::new(simulator(arguments.optimized)?);
    run(command.current_dir(root()).args(&arguments.arguments))
}

/// The lives that belong to the tests, by the simulator at this path.
pub(crate) fn lives(simulator: &Path, lives: Lives, of: Of) -> Command {
    let mut command = Command::new(simulator);
    command.args(["--seeds", &lives.count(of).to_string()]);
    if let Of::Elections = of {
        command.arg("--elections");
    }
    command
}

/// Compiles the simulator, and returns where it is.
pub(crate) fn simulator(optimized: bool) -> Result<PathBuf> {
    let mut compile = build::cargo("build")?;
    compile.args(["--package", "bellwether-simulation", "--locked"]);
    compile.args(build::AS_TESTED);
    let mut folder = build::programs(false)?;
    if optimized {
        compile.args(["--profile", SEARCH]);
        folder.set_file_name(SEARCH);
    }
    process::run(&mut compile)?;
    Ok(folder.join("simulate"))
}

/// Runs the simulator, showing what it says.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    if !command.status()?.success() {
        bail!("the simulation found something; see above");
    }
    Ok(())
}
