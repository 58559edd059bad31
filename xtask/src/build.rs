//! Building the programs that go into the operator's image.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{image, process, progress};

/// The image that the project's own commands build, run and test.
pub(crate) const OPERATOR_IMAGE: &str = "docker.io/bellwether/bellwether:dev";

/// The root of the project.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// A cargo command whose programs are static, so that they run in an empty image. Tests use it too:
/// then everything is compiled once.
pub(crate) fn cargo(subcommand: &str) -> Result<Command> {
    let target = host()?;
    let variable = format!(
        "CARGO_TARGET_{}_RUSTFLAGS",
        target.to_uppercase().replace('-', "_")
    );
    let mut command = process::command("cargo", [subcommand, "--target", &target]);
    command
        .current_dir(root())
        .env(variable, "-C target-feature=+crt-static");
    Ok(command)
}

fn host() -> Result<String> {
    let version = process::output(&mut process::command("rustc", ["-vV"]))?;
    version
        .lines()
        .find_map(|l| l.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc -vV names no host")
}

/// Where cargo puts what [`cargo`] builds.
pub(crate) fn programs(release: bool) -> Result<PathBuf> {
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target
        .join(host()?)
        .join(if release { "release" } else { "debug" }))
}

/// Builds the two static programs into `dist/`.
pub(crate) fn dist(release: bool) -> Result<()> {
    let mut command = cargo("build")?;
    command.args(["--package", "bellwether", "--package", "bellwether-member"]);
    if release {
        command.arg("--release");
    }
    let log = root().join("target/dist.log");
    progress::long_step(
        "Building the operator (about 5 minutes, once)",
        &mut command,
        &log,
    )?;
    let from = root()
        .join("target")
        .join(host()?)
        .join(if release { "release" } else { "debug" });
    let dist = root().join("dist");
    fs::create_dir_all(&dist)?;
    for program in ["bellwether", "bellwether-member"] {
        let to = dist.join(program);
        let mut strip = process::command("strip", ["-o"]);
        strip.arg(&to).arg(from.join(program));
        process::run(&mut strip)
            .with_context(|| format!("strip {program}: install Debian's package binutils"))?;
    }
    Ok(())
}

/// Builds the operator's image from the Dockerfile, as an archive; optimized for `release`.
pub(crate) fn operator_image(release: bool) -> Result<PathBuf> {
    dist(release)?;
    image::build_from_dockerfile(&root().join("Dockerfile"), &root(), OPERATOR_IMAGE)
}
