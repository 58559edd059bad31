//! `cargo xtask model`: the model check of the planner, as a table.

use anyhow::{Result, bail};

use crate::build::{self, root};
use crate::process;

/// What to check.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only checks whose name holds this.
    filter: Option<String>,
    /// Also the checks that take long
    #[arg(long)]
    long: bool,
    /// Print how each counterexample comes about
    #[arg(long)]
    explain: bool,
}

/// Compiles and runs the checker.
pub(crate) fn model(arguments: &Arguments) -> Result<()> {
    let mut compile = build::cargo("build")?;
    compile.args(["--package", "bellwether-model", "--locked"]);
    process::run(&mut compile)?;
    let program = build::programs(false)?.join("bellwether-model");
    let mut command = std::process::Command::new(program);
    command.current_dir(root()).args(&arguments.filter);
    command.args(arguments.long.then_some("--long"));
    command.args(arguments.explain.then_some("--explain"));
    if !command.status()?.success() {
        bail!("the model check found something; see above");
    }
    Ok(())
}
