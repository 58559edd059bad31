//! Cargo, as everything of the project is compiled.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::process;

/// The root of the project.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// A cargo command, of one word or several, whose programs are static, so that they run in an empty image. Tests use it
/// too: then everything is compiled once.
pub fn cargo(subcommand: &str) -> Result<Command> {
    let target = host()?;
    let mut command = process::command("cargo", subcommand.split(' '));
    command
        .args(["--target", &target])
        .current_dir(root())
        .env(flags_variable(&target), STATIC);
    // CI compiles once, so what speeds the next compilation would be written for nothing.
    if is_ci() {
        command.env("CARGO_INCREMENTAL", "0");
        command.env(WRAPPER, "clippy-driver");
    }
    Ok(command)
}

/// Whether this runs for CI, and not for a person who compiles again and again.
pub fn is_ci() -> bool {
    env::var_os("CI").is_some()
}

/// What cargo compiles the project's own packages with. Clippy's compiler is rustc with more lints, and leaves out
/// optimizations that its lints could not see through.
const WRAPPER: &str = "RUSTC_WORKSPACE_WRAPPER";

/// Has a command of [`cargo`] compile with rustc itself, for what people run.
pub fn without_lints(command: &mut Command) {
    command.env_remove(WRAPPER);
}

const STATIC: &str = "-C target-feature=+crt-static";

fn flags_variable(target: &str) -> String {
    let target = target.to_uppercase().replace('-', "_");
    format!("CARGO_TARGET_{target}_RUSTFLAGS")
}

const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Has a command of [`cargo`] leave the directories of this machine and the time out of the programs, so that a build
/// elsewhere gives the same bytes.
///
/// # Errors
/// When rustc is missing.
pub fn name_no_directories(command: &mut Command, tree: &Path) -> Result<()> {
    let target = host()?;
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let registry = env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let names = [(registry.as_path(), "/cargo"), (tree, "/bellwether")];
    let (mut rust, mut c) = (STATIC.to_owned(), Vec::new());
    for (directory, name) in names {
        let directory = directory.display();
        rust += &format!(" --remap-path-prefix={directory}={name}");
        c.push(format!("-ffile-prefix-map={directory}={name}"));
    }
    command.env(flags_variable(&target), rust);
    command.env(format!("CFLAGS_{}", target.replace('-', "_")), c.join(" "));
    // What C compilers take for the time (`__DATE__`, `__TIME__`), which mimalloc has in its messages.
    command.env(EPOCH, env::var_os(EPOCH).unwrap_or_else(|| "0".into()));
    Ok(())
}

fn host() -> Result<String> {
    let version = process::output(&mut process::command("rustc", ["-vV"]))?;
    version
        .lines()
        .find_map(|l| l.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc -vV names no host")
}

/// The directory that cargo builds in.
pub fn target_directory() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where cargo puts what [`cargo`] builds.
pub fn programs(release: bool) -> Result<PathBuf> {
    programs_in(&target_directory(), release)
}

/// Where cargo puts what it builds in this target directory.
pub fn programs_in(target: &Path, release: bool) -> Result<PathBuf> {
    let profile = if release { "release" } else { "debug" };
    Ok(target.join(host()?).join(profile))
}
