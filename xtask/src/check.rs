//! `cargo xtask check`: formatting, lints, documentation, drift of generated files, dependencies.

use std::{collections::BTreeSet, fs};

use anyhow::{Result, bail};
use clap::Args;

use crate::{
    build::{self, root},
    chart,
    cluster::{cargo::is_ci, requirements},
    compile, generate, process, progress, reference,
};

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Leave out the documentation of the code, for which all libraries are compiled once more
    #[arg(long)]
    no_documentation: bool,
}

/// Runs every check, even after a failure, so that one run reports everything.
pub(crate) fn check(arguments: &Arguments) -> Result<()> {
    let mut failed = Vec::new();
    let mut step = |name: &str, result: Result<()>| match result {
        Ok(()) => progress::say(format!("ok      {name}")),
        Err(error) => {
            progress::say(format!("FAILED  {name}\n{error:#}"));
            failed.push(name.to_owned());
        }
    };
    step("formatting", cargo(&["fmt", "--all", "--check"]));
    step("lints", lints());
    if !arguments.no_documentation {
        step("documentation", documentation());
    }
    step("generated files", generate::check_drift());
    step("pure crates", pure_crates());
    step("libraries compiled once", libraries_compiled_once());
    match process::find_program("go") {
        Some(_) => step("workflows", workflows()),
        None => progress::say("skipped workflows: install Go to check them"),
    }
    match requirements::promtool() {
        Ok(promtool) => {
            step("alerts", chart::test_alerts(&promtool));
            step("metrics", reference::check_metrics(&promtool));
        }
        Err(error) => progress::say(format!("skipped alerts and metrics: {error:#}")),
    }
    if process::find_program("cargo-deny").is_some() {
        step(
            "dependencies",
            cargo(&["deny", "--offline", "check", "bans", "licenses", "sources"]),
        );
    } else {
        progress::say(
            "skipped dependencies: install cargo-deny to check licences (`cargo install cargo-deny --locked`)",
        );
    }
    if !failed.is_empty() {
        bail!("{} failed", failed.join(", "));
    }
    Ok(())
}

/// In CI the linter is the compiler of what is tested, so that everything is compiled once. Elsewhere it compiles no programs, which
/// answers sooner.
fn lints() -> Result<()> {
    if is_ci() {
        return compile::all()?.without_warnings();
    }
    let mut command = build::cargo("clippy")?;
    command.args(["--workspace", "--all-targets", "--quiet"]);
    command.args(["--", "-D", "warnings"]);
    process::run(&mut command)
}

fn documentation() -> Result<()> {
    let mut command = build::cargo("doc")?;
    command.args(["--workspace", "--no-deps", "--quiet"]);
    command.env(
        "RUSTDOCFLAGS",
        "-D warnings -A rustdoc::private_intra_doc_links --document-private-items",
    );
    process::run(&mut command)
}

fn cargo(arguments: &[&str]) -> Result<()> {
    let mut command = process::command("cargo", arguments);
    process::run(command.current_dir(root()))
}

/// The workflows of GitHub, none of which can run here.
fn workflows() -> Result<()> {
    let mut command = process::command("go", ["tool", "actionlint"]);
    // What they find depends on whether they are installed.
    command.args(["-shellcheck=", "-pyflakes="]);
    for entry in fs::read_dir(root().join(".github/workflows"))? {
        command.arg(entry?.path());
    }
    process::run(command.current_dir(root().join("xtask/actionlint")))
}

/// Tests ask libraries for more features than the programs do, so that both would compile them, and all that is built on them, on
/// their own.
fn libraries_compiled_once() -> Result<()> {
    let libraries = |packages: &[&str], edges: &str| -> Result<BTreeSet<String>> {
        let mut command = build::cargo("tree")?;
        command.args(packages).args(build::AS_TESTED);
        command.args(["--edges", edges, "--prefix", "none", "--no-dedupe"]);
        command.args(["--format", "{p} with {f}"]);
        let tree = process::output(&mut command)?;
        Ok(tree.lines().map(str::to_owned).collect())
    };
    let programs = libraries(&build::PROGRAMS, "normal")?;
    let tests = libraries(&["--workspace"], "normal,dev")?;
    let twice: Vec<&str> = programs.difference(&tests).map(String::as_str).collect();
    if !twice.is_empty() {
        bail!(
            "the programs alone have {}: add to the feature `as-tested` in Cargo.toml what `cargo tree --workspace --edges normal,dev --format '{{p}} {{f}}'` shows beyond that",
            twice.join("; ")
        );
    }
    Ok(())
}

/// The crates that decide must not be able to talk to anything.
fn pure_crates() -> Result<()> {
    for package in [
        "bellwether-api",
        "bellwether-ensemble",
        "bellwether-election",
        "bellwether-lint",
    ] {
        let mut command = process::command(
            "cargo",
            [
                "tree",
                "--package",
                package,
                "--edges",
                "normal",
                "--prefix",
                "none",
            ],
        );
        let tree = process::output(command.current_dir(root()))?;
        for banned in [
            "tokio",
            "kube-client",
            "zookeeper-client",
            "reqwest",
            "hyper",
        ] {
            if tree
                .lines()
                .any(|line| line.split(' ').next() == Some(banned))
            {
                bail!("{package} depends on {banned}; it decides, so it must not talk to anything");
            }
        }
    }
    Ok(())
}
