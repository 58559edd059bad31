//! Tests on real ZooKeeper servers, without a cluster.
//!
//! `cargo xtask test` brings the jars and sets two variables. Without them there is nothing to test
//! on, and no test runs.

mod batch;
mod chain;
mod fencing;
mod reconfiguration;
mod tls;

use std::future::Future;
use std::process::ExitCode;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use bellwether_servers::classes;
use bellwether_servers::installation::{Installation, JARS, MEMBER};
use bellwether_servers::world::World;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Builder;

/// How many tests may be under way if the command line does not say; what really limits them is
/// [`CAPACITY`].
const AT_ONCE: usize = 4;
/// How many servers the tests may run at once, all together: each is a JVM of some 100 MB.
const CAPACITY: u16 = 14;
/// How often every chain runs, each time with another seed; `cargo xtask test --long` sets it.
const ROUNDS: &str = "BELLWETHER_ROUNDS";
/// The seed of every chain, to see again what another run has found.
const SEED: &str = "BELLWETHER_SEED";

/// Room for servers, taken for the time of a test.
struct Room(u16);

static FREE: (Mutex<u16>, Condvar) = (Mutex::new(CAPACITY), Condvar::new());

impl Room {
    fn take(servers: u16) -> Self {
        let free = FREE.0.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = FREE.1.wait_while(free, |free| *free < servers);
        *enough.unwrap_or_else(PoisonError::into_inner) -= servers;
        Self(servers)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *FREE.0.lock().unwrap_or_else(PoisonError::into_inner) += self.0;
        FREE.1.notify_all();
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(AT_ONCE));
    let Some(mut installation) = Installation::from_environment() else {
        println!("{JARS} or {MEMBER} is not set: run `cargo xtask test`");
        libtest_mimic::run(&arguments, Vec::new()).exit();
    };
    let directory = tempfile::tempdir();
    let prepared = installation.check().and_then(|()| {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let path = directory
            .as_ref()
            .map_err(|e| anyhow::anyhow!("{e}"))?
            .path();
        runtime.block_on(classes::archive(&installation, path))
    });
    match prepared {
        Ok(archive) => installation.share_classes(archive),
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    }
    libtest_mimic::run(&arguments, trials(&installation)).exit_code()
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The seed of each round, and how the names of its tests end. The usual run is the same every time; a long run uses new
/// seeds.
fn rounds() -> Vec<(u64, String)> {
    let rounds = number(ROUNDS).unwrap_or(1);
    let seed = || if rounds > 1 { fastrand::u64(..) } else { 1 };
    let again = |round| match round {
        0 => String::new(),
        _ => format!("_again_{round}"),
    };
    let round = |round| (number(SEED).unwrap_or_else(seed), again(round));
    (0..rounds).map(round).collect()
}

/// Every test. The largest come first, and small ones fill the gaps.
fn trials(installation: &Installation) -> Vec<Trial> {
    let mut trials = Vec::new();
    let rounds = rounds();
    let long = rounds.len() > 1;
    // Each step adds or removes one member, so the way from 5 to 1 and back to 3 passes through most steps of the pairs up
    // to 5; a long run tries the others, sizes up to 7, and each pair from servers that start with its size.
    let others = if long { OTHER_CHAINS } else { &[] };
    for (seed, again) in &rounds {
        let seed = *seed;
        for sizes in CHAINS.iter().chain(others) {
            let words: Vec<String> = sizes.iter().map(u16::to_string).collect();
            let sizes_in_name = words.join("_to_");
            let name = format!("chain::every_write_survives_from_{sizes_in_name}{again}");
            let installation = installation.clone();
            let test = move || {
                run(&installation, sizes[0], |world| {
                    chain::survives(world, sizes, seed)
                })
            };
            let largest = sizes.iter().copied().max().unwrap_or_default();
            trials.push(trial(name, largest, test));
        }
    }
    trials.extend(reconfigurations(installation, rounds));
    let three = installation.clone();
    trials.push(trial(
        "tls::servers_switch_to_tls_and_back_under_writes_and_keep_strangers_out".to_owned(),
        4,
        move || run(&three, 3, tls::is_switched),
    ));
    for language in fencing::LANGUAGES {
        let name = format!("fencing::the_example_in_{language}_refuses_the_past");
        trials.push(trial(name, 0, move || fencing::refuses_the_past(language)));
    }
    let one = installation.clone();
    trials.push(trial(
        "batch::three_to_five_with_the_leader_restarted_first_gives_two_leaders".to_owned(),
        5,
        move || run(&one, 3, batch::leader_first),
    ));
    if long {
        let two = installation.clone();
        trials.push(trial(
            "batch::three_to_five_with_the_leader_last_and_one_crash_gives_two_leaders".to_owned(),
            5,
            move || run(&two, 3, batch::leader_last_and_one_crash),
        ));
    }
    trials
}

/// Changes of members at run time.
fn reconfigurations(installation: &Installation, rounds: Vec<(u64, String)>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (seed, again) in rounds {
        let name =
            "reconfiguration::every_write_survives_changes_at_run_time_and_the_death_of_any_server";
        let installation = installation.clone();
        trials.push(trial(name.to_owned() + &again, 5, move || {
            let sizes = &[1, 3, 5, 3, 5, 1];
            run(&installation, 1, |world| {
                reconfiguration::survives(world, sizes, seed)
            })
        }));
    }
    let late = installation.clone();
    trials.push(trial(
        "reconfiguration::a_request_that_arrives_late_changes_nothing".to_owned(),
        3,
        move || run(&late, 1, reconfiguration::a_late_request_changes_nothing),
    ));
    let installation = installation.clone();
    trials.push(trial(
        "reconfiguration::an_ensemble_stops_without_the_newcomers_of_a_list_that_its_leader_stored"
            .to_owned(),
        3,
        move || {
            run(
                &installation,
                1,
                reconfiguration::stops_without_its_newcomers,
            )
        },
    ));
    trials
}

/// Sizes down and up, and members that come back to their old volumes.
const CHAINS: &[&[u16]] = &[&[5, 1, 3]];

/// Every other odd pair of sizes within 1 to 7, such that neighbours fit together.
const OTHER_CHAINS: &[&[u16]] = &[
    &[1, 5],
    &[1, 7],
    &[7, 1, 3],
    &[3, 1, 3],
    &[3, 7],
    &[7, 3],
    &[5, 7],
    &[7, 5],
    &[3, 5],
    &[5, 3],
    &[1, 3],
    &[3, 1],
];

fn trial(
    name: String,
    servers: u16,
    test: impl FnOnce() -> Result<String> + Send + 'static,
) -> Trial {
    let title = name.clone();
    Trial::test(name, move || {
        let _room = Room::take(servers);
        let start = Instant::now();
        let result = test();
        let seconds = start.elapsed().as_secs();
        match result {
            Ok(summary) => {
                eprintln!("{title}: {summary}, {seconds} s");
                Ok(())
            }
            Err(error) => {
                eprintln!("==== {title} failed after {seconds} s: {error:#}\n==== end of {title}");
                Err(Failed::from(format!("{error:#}")))
            }
        }
    })
}

/// Runs a test in a world of its own; a failure prints the story and keeps the servers' logs.
fn run<F>(installation: &Installation, size: u16, test: impl FnOnce(World) -> F) -> Result<String>
where
    F: Future<Output = (World, Result<String>)>,
{
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut world, result) = test(World::new(installation, size)?).await;
        result.map_err(|error| {
            let files = world.keep_files().unwrap_or_default();
            let story = world.story();
            error.context(format!(
                "\n{story}the servers' files are in {}\n",
                files.display()
            ))
        })
    })
}
