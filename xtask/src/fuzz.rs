//! `cargo xtask fuzz`: any bytes as znodes of an election, guided by coverage.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::build::{self, root};
use crate::process;

/// The target that is built for. It is named so that the flags below reach the target's code only
/// and not build scripts.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The counters that libFuzzer reads, as LLVM's pass `sancov` puts them in; the same that cargo-fuzz
/// asks for without a sanitizer, which a stable compiler has.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// How long to search.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// After so many seconds the search ends, if nothing was found
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Builds and runs the fuzz target. What it finds stays under `target/fuzz/found`, and what it learned
/// under `target/fuzz/corpus`.
pub(crate) fn fuzz(arguments: &Arguments) -> Result<()> {
    let base = root().join("target/fuzz");
    let (corpus, found) = (base.join("corpus"), base.join("found"));
    for directory in [&corpus, &found] {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    }
    let mut compile = build::cargo("build")?;
    compile.env("RUSTFLAGS", FLAGS);
    compile.args(["--package", "bellwether-fuzz", "--features", "libfuzzer"]);
    compile.args(["--profile", "fuzz", "--locked", "--target", TARGET]);
    compile.arg("--target-dir").arg(&base);
    process::run(&mut compile)?;
    let program = base.join(TARGET).join("fuzz/election");
    let mut command = std::process::Command::new(program);
    command.arg(&corpus);
    command.arg(format!("-max_total_time={}", arguments.seconds));
    command.arg(format!("-artifact_prefix={}/", found.display()));
    command.args(["-max_len=4096", "-timeout=10", "-print_final_stats=1"]);
    if !command.status()?.success() {
        bail!("the input that did it is in {}; see above", found.display());
    }
    Ok(())
}
