//! `cargo xtask demo`: from nothing to a growing ensemble and a mirrored election.

use anyhow::{Result, bail};

use crate::{
    build::{self, root},
    cluster::Target,
    install, process,
};

/// Sets up everything and shows it. The cluster stays.
pub(crate) fn demo(target: &Target) -> Result<()> {
    let mut compile = build::cargo("build")?;
    compile.args(["--package", "bellwether-e2e", "--bin", "demo", "--locked"]);
    process::run(&mut compile)?;
    let program = build::programs(false)?.join("demo");
    let cluster = install::operator(target)?;
    let mut command = cluster.exec(&[program.to_string_lossy()])?;
    command
        .current_dir(root())
        .env("BELLWETHER_KUBECTL", "kubectl");
    if !command.status()?.success() {
        bail!("the demonstration did not succeed; what it said is above");
    }
    Ok(())
}
