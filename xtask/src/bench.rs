//! `cargo xtask bench`: what changes cost.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};

use crate::{
    build::{self, root},
    cluster::{Target, jars},
    install, process,
};

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A new ensemble, until it serves (about half a minute a repetition)
    Start {
        /// How often
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=20))]
        repetitions: u16,
    },
    /// A restart of every member (about four minutes a repetition)
    Roll(Options),
    /// From 3 to 5 members, 5 to 3 and 1 to 3 (about twelve minutes a repetition)
    Resize(Options),
    /// How soon a change of a leader is visible, and what many elections cost (about twelve minutes)
    Elections(Elections),
    /// What many ensembles cost one operator (about twenty minutes for a thousand)
    Fleet(Fleet),
    /// How often a rollout of an application changes its leader (about four minutes a repetition)
    Rollouts {
        /// How often, in every way
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=20))]
        repetitions: u16,
        /// Whose candidates
        #[arg(long, default_value = "kazoo", value_parser = ["kazoo", "curator", "spark"])]
        application: String,
    },
    /// What TLS costs writes (about four minutes); needs no cluster
    Writes {
        /// How often each ensemble is loaded
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=20))]
        rounds: u16,
    },
    /// One decision of the planner for seven members; needs no cluster
    Plan,
}

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often, in every way
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=20))]
    repetitions: u16,
    /// Print what happened in each run, with times
    #[arg(long)]
    timeline: bool,
    /// Only in this way; repeat it for several
    #[arg(long = "way", value_parser = ["operator", "run-time", "plain", "hand"])]
    ways: Vec<String>,
    /// Also measure the operator of this revision of the project, in the same run
    #[arg(long, value_name = "REVISION")]
    against: Option<String>,
}

/// How many elections to measure.
#[derive(Debug, Args)]
pub(crate) struct Elections {
    /// For the time until a change is visible
    #[arg(long, default_value_t = 1000)]
    elections: usize,
    /// Changes a second
    #[arg(long, default_value_t = 10)]
    rate: usize,
    /// For so many seconds
    #[arg(long, default_value_t = 60)]
    seconds: usize,
    /// For memory, start and burst; at least as many as for the time
    #[arg(long, default_value_t = 10_000)]
    many: usize,
    /// Changes at once
    #[arg(long, default_value_t = 2000)]
    burst: usize,
    /// How many seconds nothing happens
    #[arg(long, default_value_t = 300)]
    idle: usize,
    /// Measure the operator of this revision of the project first
    #[arg(long, value_name = "REVISION")]
    against: Option<String>,
}

/// How many ensembles to measure.
#[derive(Debug, Args)]
pub(crate) struct Fleet {
    /// How many, with three members each
    #[arg(long, default_value_t = 1000)]
    ensembles: u32,
    /// How many of them are rolled at once
    #[arg(long, default_value_t = 100)]
    change: u32,
    /// The members of so many hang
    #[arg(long, default_value_t = 20)]
    hang: u32,
    /// For how many seconds nothing happens, before it is measured and while it is
    #[arg(long, default_value_t = 150)]
    idle: u32,
    /// Measure the operator of this revision of the project first
    #[arg(long, value_name = "REVISION")]
    against: Option<String>,
}

/// The tag of the image of the other revision's operator.
const OTHER: &str = "other";

/// Measures, and prints what came of it. A cluster that it starts stays.
pub(crate) fn bench(what: &Command, target: &Target) -> Result<()> {
    let of = |name: &str, options: &Options| {
        let mut words = vec![name.to_owned(), options.repetitions.to_string()];
        words.extend(options.timeline.then(|| "--timeline".to_owned()));
        words.extend(options.ways.iter().cloned());
        words
    };
    let words = match what {
        Command::Start { repetitions } => vec!["start".to_owned(), repetitions.to_string()],
        Command::Roll(options) => of("roll", options),
        Command::Resize(options) => of("resize", options),
        Command::Rollouts {
            repetitions,
            application,
        } => vec![
            "rollouts".to_owned(),
            repetitions.to_string(),
            application.clone(),
        ],
        Command::Elections(e) => {
            ensure!(
                e.rate > 0 && e.burst > 0,
                "--rate and --burst must be 1 or more"
            );
            ensure!(e.many >= e.elections, "--many must be at least --elections");
            ensure!(e.burst <= e.many, "--burst must be at most --many");
            let sizes = [e.elections, e.rate, e.seconds, e.many, e.burst, e.idle];
            let sizes = sizes.iter().map(ToString::to_string);
            std::iter::once("elections".to_owned())
                .chain(sizes)
                .collect()
        }
        Command::Fleet(f) => {
            let sizes = [f.ensembles, f.change, f.hang, f.idle];
            let sizes = sizes.iter().map(ToString::to_string);
            std::iter::once("fleet".to_owned()).chain(sizes).collect()
        }
        Command::Writes { rounds } => return writes(*rounds),
        Command::Plan => {
            let mut bench = build::cargo("bench")?;
            bench.args([
                "--package",
                "bellwether-ensemble",
                "--bench",
                "plan",
                "--locked",
            ]);
            ensure!(bench.status()?.success(), "the benchmark did not run");
            return Ok(());
        }
    };
    let mut compile = build::cargo("build")?;
    compile.args(["--package", "bellwether-e2e", "--bin", "bench", "--locked"]);
    process::run(&mut compile)?;
    let program = build::programs(false)?.join("bench");
    // What the mirror itself takes counts there; in the others ZooKeeper's elections do.
    let release = matches!(what, Command::Elections(_) | Command::Fleet(_));
    let against = match what {
        Command::Roll(options) | Command::Resize(options) => options.against.as_deref(),
        Command::Elections(elections) => elections.against.as_deref(),
        Command::Fleet(fleet) => fleet.against.as_deref(),
        Command::Start { .. }
        | Command::Plan
        | Command::Rollouts { .. }
        | Command::Writes { .. } => None,
    };
    let other = against.map(|revision| other_operator(revision, release));
    let other = other.transpose()?;
    let cluster = install::operator_built(target, release)?;
    if let Some((_, image)) = &other {
        cluster.load(image)?;
    }
    let program = program.to_string_lossy();
    let mut line = vec![&*program];
    line.extend(words.iter().map(String::as_str));
    let mut command = cluster.exec(&line)?;
    command
        .current_dir(root())
        .env("BELLWETHER_KUBECTL", "kubectl");
    if let Some((tree, _)) = &other {
        command
            .env("BELLWETHER_OTHER_CHART", tree.join("charts/bellwether"))
            .env("BELLWETHER_OTHER_TAG", OTHER);
    }
    if !command.status()?.success() {
        bail!("the benchmark did not succeed; what it said is above");
    }
    Ok(())
}

/// Loads real servers on loopback. The clients are optimized: they must not be what is measured.
fn writes(rounds: u16) -> Result<()> {
    let mut compile = build::cargo("build")?;
    compile.args(["--package", "bellwether-servers", "--example", "writes"]);
    compile.args([
        "--package",
        "bellwether-member",
        "--bin",
        "bellwether-member",
    ]);
    compile.args(["--release", "--locked"]);
    process::run(&mut compile)?;
    let programs = build::programs(true)?;
    let mut command = std::process::Command::new(programs.join("examples/writes"));
    command
        .arg(rounds.to_string())
        .env("BELLWETHER_ZOOKEEPER_JARS", jars::server_jars()?)
        .env("BELLWETHER_MEMBER", programs.join("bellwether-member"));
    ensure!(command.status()?.success(), "the benchmark did not run");
    Ok(())
}

/// Builds the operator of another revision. Returns where its tree is, and the archive of its image.
fn other_operator(revision: &str, release: bool) -> Result<(PathBuf, PathBuf)> {
    let tree = build::check_out(revision)?;
    let image = build::other_operator_image(&tree, OTHER, release)?;
    Ok((tree, image))
}
