//! `cargo xtask demo`: from nothing to a growing ensemble and a mirrored election.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    build::{self, root},
    cluster::{Target, requirements},
    install, process,
};

/// How to show it.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Keep pictures of the operator's page in this folder, made with Chromium, which is installed for it
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
}

/// Sets up everything and shows it. The cluster stays.
pub(crate) fn demo(arguments: &Arguments, target: &Target) -> Result<()> {
    let mut compile = build::cargo("build")?;
    compile.args(["--package", "bellwether-e2e", "--bin", "demo", "--locked"]);
    process::run(&mut compile)?;
    let program = build::programs(false)?.join("demo");
    let cluster = install::operator(target)?;
    let mut command = cluster.exec(&[program.to_string_lossy()])?;
    command
        .current_dir(root())
        .env("BELLWETHER_KUBECTL", "kubectl");
    if let Some(folder) = &arguments.pictures {
        requirements::to_look_at_pages();
        let folder = folder
            .canonicalize()
            .with_context(|| format!("{} is no folder", folder.display()))?;
        command.env("BELLWETHER_PICTURES", folder);
        command.env(
            "BELLWETHER_PROGRAM",
            build::programs(false)?.join("bellwether"),
        );
    }
    if !command.status()?.success() {
        bail!("the demonstration did not succeed; what it said is above");
    }
    Ok(())
}
