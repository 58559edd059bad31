//! The end-to-end tests: a real cluster, driven as a user drives it.
//!
//! `cargo xtask test` starts the cluster, installs the chart and sets `BELLWETHER_KUBECTL`. Without
//! that variable there is nothing to test on, and no test runs.

mod changes;
mod documents;
mod elections;
mod faults;
mod refusals;
mod sizes;

use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::Result;
use bellwether_e2e::kubectl::{Kubectl, VARIABLE};
use bellwether_e2e::world::World;
use libtest_mimic::{Arguments, Failed, Trial};

/// How many tests run at once if the command line does not say: every one has several JVMs.
const AT_ONCE: usize = 3;

type Test = (&'static str, fn(&World) -> Result<()>);

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), $module::$name)),*]
    };
}

/// The longest first, so that the short ones fill the gaps.
const TESTS: &[Test] = tests![
    documents::growing_from_three_to_five_with_the_leader_in_the_middle,
    sizes::five_members_become_three_under_writes_and_lose_nothing,
    faults::a_size_change_survives_the_death_of_every_operator_pod,
    sizes::one_member_becomes_three_under_writes_and_keeps_every_znode,
    elections::curator_status_equals_what_curator_itself_reports,
    elections::kazoo_status_equals_what_kazoo_itself_reports,
    changes::a_configuration_change_restarts_each_member_exactly_once_the_leader_last,
    changes::a_bad_image_takes_down_at_most_one_member_and_reverting_heals,
    changes::an_idle_ensemble_is_not_written_to,
    documents::the_fair_election_death_in_the_middle,
    documents::the_unfair_election_has_one_leader_and_a_herd,
    documents::the_official_recipe_with_and_without_acknowledgement,
    documents::a_second_node_of_one_session_is_shown_as_a_suspected_orphan,
    faults::deleting_the_leaders_pod_heals,
    faults::the_volume_of_another_ensemble_is_refused,
    changes::a_paused_ensemble_is_left_alone_until_it_is_resumed,
    sizes::three_members_are_ready_from_a_spec_with_nothing_but_a_size,
    sizes::a_size_change_one_second_after_creation_is_carried_out,
    refusals::even_and_impossible_sizes_are_refused_with_what_to_do_instead,
    refusals::keys_of_zoo_cfg_that_the_operator_owns_or_nobody_knows_are_refused,
    refusals::immutable_fields_are_refused,
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(AT_ONCE));
    let Some(kubectl) = Kubectl::from_environment() else {
        println!("{VARIABLE} is not set: these tests need a cluster, run `cargo xtask test`");
        libtest_mimic::run(&arguments, Vec::new()).exit();
    };
    let trials = TESTS
        .iter()
        .map(|(name, test)| {
            let kubectl = kubectl.clone();
            Trial::test(*name, move || {
                run(&kubectl, name, *test).map_err(Failed::from)
            })
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Runs one test in a namespace of its own; a failure prints all that may explain it.
fn run(kubectl: &Kubectl, name: &str, test: fn(&World) -> Result<()>) -> Result<(), String> {
    static OUTPUT: Mutex<()> = Mutex::new(());
    let world = World::create(kubectl, name).map_err(|e| format!("{e:#}"))?;
    let start = std::time::Instant::now();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&world)))
        .unwrap_or_else(|_| Err(anyhow::anyhow!("the test panicked")));
    let seconds = start.elapsed().as_secs();
    match result {
        Ok(()) => {
            eprintln!("{name}: passed in {seconds} s");
            world.remove();
            Ok(())
        }
        Err(error) => {
            let described = world.describe();
            let _guard = OUTPUT.lock();
            eprintln!(
                "==== {name} failed after {seconds} s: {error:#}\n{described}==== end of {name}"
            );
            if std::env::var_os("BELLWETHER_KEEP").is_none() {
                world.remove();
            }
            Err(format!("{error:#}"))
        }
    }
}
