//! Building the programs that go into the operator's image.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

pub(crate) use bellwether_test_cluster::cargo::{cargo, programs, root};
use bellwether_test_cluster::cargo::{
    name_no_directories, programs_in, target_directory, without_lints,
};

use crate::{image, process, progress};

/// The image that the project's own commands build, run and test, without its tag.
const IMAGE: &str = "docker.io/bellwether/bellwether";
/// The tag of this tree's image.
const TAG: &str = "dev";

/// The packages of the two programs.
pub(crate) const PROGRAMS: [&str; 4] =
    ["--package", "bellwether", "--package", "bellwether-member"];
/// Has the program, the tests and the simulator compiled with the same features, so that what they share is compiled once.
pub(crate) const AS_TESTED: [&str; 2] = ["--features", "bellwether-operator/as-tested"];

/// Compiles the two programs as tests run them, and returns the operator's.
pub(crate) fn program() -> Result<PathBuf> {
    let mut command = cargo("build")?;
    command.arg("--quiet").args(PROGRAMS).args(AS_TESTED);
    process::run(&mut command)?;
    Ok(programs(false)?.join("bellwether"))
}

/// Builds the two static programs into `dist/`.
pub(crate) fn dist(release: bool, auditable: bool) -> Result<()> {
    let build = if auditable {
        "auditable build"
    } else {
        "build"
    };
    dist_of(&root(), build, release, &target_directory())
}

/// Builds the two static programs of the project at `tree` into its `dist/`, by this subcommand of cargo, in this target
/// directory.
fn dist_of(tree: &Path, build: &str, release: bool, target: &Path) -> Result<()> {
    let mut command = cargo(build)?;
    command.args(PROGRAMS);
    command.current_dir(tree).env("CARGO_TARGET_DIR", target);
    // Another revision need not have the feature.
    if !release && tree == root() {
        command.args(AS_TESTED);
    }
    if release {
        command.arg("--release");
        without_lints(&mut command);
        name_no_directories(&mut command, tree)?;
    }
    let log = target_directory().join("dist.log");
    progress::long_step(
        "Building the operator (about 5 minutes, once)",
        &mut command,
        &log,
    )?;
    let from = programs_in(target, release)?;
    let dist = tree.join("dist");
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
    operator_image_of(&root(), TAG, release, &target_directory())
}

/// Builds the image of the operator of another revision at `tree`, with this tag. It is compiled in a target directory
/// of its own: cargo takes packages of the same name and version in two trees for one, and would compile each of them
/// again whenever the other one was compiled.
pub(crate) fn other_operator_image(tree: &Path, tag: &str, release: bool) -> Result<PathBuf> {
    operator_image_of(tree, tag, release, &target_directory().join("other-target"))
}

fn operator_image_of(tree: &Path, tag: &str, release: bool, target: &Path) -> Result<PathBuf> {
    dist_of(tree, "build", release, target)?;
    image::build_from_dockerfile(&tree.join("Dockerfile"), tree, &format!("{IMAGE}:{tag}"))
}

/// Checks out another revision of the project below the target directory, and returns where it is.
pub(crate) fn check_out(revision: &str) -> Result<PathBuf> {
    let tree = target_directory().join("other-revision");
    let git = |words: &[&OsStr]| {
        let mut command = process::command("git", words);
        command.current_dir(root());
        command
    };
    let [worktree, path] = [OsStr::new("worktree"), tree.as_os_str()];
    let commit = |tree: &Path, revision: &str| {
        let mut command = process::command("git", ["rev-parse", revision]);
        process::output(command.current_dir(tree))
    };
    // Files that are written again would be compiled again.
    if tree.exists()
        && commit(&tree, "HEAD")? == commit(&root(), &format!("{revision}^{{commit}}"))?
    {
        return Ok(tree);
    }
    if tree.exists() {
        let remove = [worktree, "remove".as_ref(), "--force".as_ref(), path];
        process::run(&mut git(&remove))?;
    }
    let flags = ["add", "--force", "--detach"].map(OsStr::new);
    let words = [&[worktree], &flags[..], &[path, revision.as_ref()]].concat();
    process::run(&mut git(&words)).with_context(|| format!("check out {revision}"))?;
    Ok(tree)
}
