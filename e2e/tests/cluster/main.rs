//! The end-to-end tests: a real cluster, driven as a user drives it.
//!
//! `cargo xtask test` starts the cluster, installs the chart and sets `BELLWETHER_KUBECTL`. Without
//! that variable there is nothing to test on, and no test runs.

mod admission;
mod applications;
mod authentication;
mod bridges;
mod capacity;
mod changes;
mod chart;
mod command_line;
mod connections;
mod dialects;
mod disks;
mod documents;
mod elections;
mod faults;
mod gitops;
mod guide;
mod handovers;
mod installation;
mod lint;
mod monitoring;
mod network;
mod observers;
mod page;
mod projections;
mod reconfiguration;
mod refusals;
mod rivals;
mod rollouts;
mod routing;
mod run_time;
mod scenarios;
mod soak;
mod storm;
mod tls;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use anyhow::Result;
use bellwether_e2e::kubectl::{Kubectl, VARIABLE};
use bellwether_e2e::world::World;
use libtest_mimic::{Arguments, Failed, Trial};

/// How many tests may be under way if the command line does not say; what really limits them is
/// [`CAPACITY`].
const AT_ONCE: usize = 16;
/// How many members the tests may run at once, all together: every member is a JVM, and a machine
/// with two cores must still carry all of Kubernetes.
const CAPACITY: u8 = 12;

/// The variable that says which tests run: those that run `together`, those that run `alone`, or all.
const PART: &str = "BELLWETHER_PART";

type Test = (&'static str, u8, fn(&World) -> Result<()>);

macro_rules! tests {
    ($($members:literal $module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), $members, $module::$name)),*]
    };
}

/// Every test with the number of members that it runs. Those that take longest come first, so that
/// the others fill the gaps.
const TESTS: &[Test] = tests![
    2 connections::elections_in_a_zookeeper_of_others_are_read_with_tls_and_credentials,
    5 guide::getting_started_does_what_it_says,
    5 storm::no_write_is_lost_whatever_fails,
    1 tls::all_connections_switch_to_tls_under_writes_and_another_authority_needs_no_restart,
    3 disks::a_member_whose_disk_is_broken_is_replaced_on_request,
    1 page::a_hostile_leader_is_shown_as_text_and_a_lost_connection_comes_back,
    1 handovers::a_leader_hands_over_on_request_and_before_its_pod_is_evicted,
    1 rollouts::a_rollout_changes_the_leader_once_and_a_broken_one_never,
    1 rivals::a_leader_that_hung_for_longer_than_its_session_is_told_of,
    3 command_line::people_see_plan_and_act,
    5 observers::observers_serve_reads_restart_first_and_never_count,
    6 reconfiguration::members_come_and_go_without_a_restart,
    3 authentication::clients_prove_who_they_are_and_the_mirror_is_one_of_them,
    1 network::members_are_reached_by_those_whom_their_policy_lets_in,
    1 routing::a_service_and_labels_of_pods_follow_the_leader,
    1 admission::a_member_runs_as_the_user_of_the_spec,
    1 disks::an_old_copy_of_a_volume_is_refused,
    1 projections::a_lease_follows_the_leader_and_expires_when_the_mirror_is_blind,
    1 changes::a_new_operator_does_not_touch_what_is_in_order,
    0 chart::every_value_shows_and_the_api_server_takes_what_is_rendered,
    1 capacity::a_nearly_full_volume_shows_before_it_hurts,
    1 dialects::anonymous_candidates_have_the_address_of_their_connection,
    1 gitops::manifests_applied_again_change_nothing_and_stay_their_users,
    1 routing::a_leader_whose_container_died_is_left_before_its_session_ends,
    0 lint::lint_refuses_what_the_api_server_refuses_at_the_same_field,
    1 gitops::clients_find_an_ensemble_by_its_config_map,
    1 capacity::volumes_grow_where_their_class_lets_them,
    1 routing::a_service_without_sight_keeps_its_leader_or_reaches_nobody,
    0 projections::what_is_wrong_about_projections_is_refused,
    1 scenarios::scenario_06_bad_sizes_and_colliding_ids_are_refused,
    1 disks::a_deleted_ensemble_leaves_no_claims_if_told_so,
    1 faults::the_operators_own_state_deleted_by_hand_heals_and_restarts_nothing,
    0 refusals::immutable_fields_are_refused,
    0 refusals::releases_of_zookeeper_that_lose_data_are_refused_and_old_ones_warned_of,
    0 connections::connections_that_cannot_be_are_refused,
    0 dialects::options_of_another_dialect_of_election_are_refused,
    0 admission::the_operators_identity_is_of_use_for_its_own_objects_only,
    0 refusals::keys_of_zoo_cfg_that_the_operator_owns_or_nobody_knows_are_refused,
    0 chart::values_that_cannot_be_are_refused,
    0 chart::the_plain_manifest_is_taken_and_its_image_is_set_at_one_place,
    0 admission::a_loss_of_data_is_accepted_by_those_with_the_right_to,
];

/// Tests of elections that share one ensemble of one member, and one pod of clients: each has paths and names of its own,
/// and none disturbs the ensemble. The first one has the room for it.
const SHARING: &[Test] = tests![
    1 dialects::a_lease_of_kazoo_counts_until_its_end,
    0 bridges::an_election_moves_to_a_lease_and_back,
    0 connections::an_ensemble_admits_elections_of_the_namespaces_that_it_names,
    0 documents::the_unfair_election_has_one_leader_and_a_herd,
    0 documents::the_official_recipe_with_and_without_acknowledgement,
    2 elections::zookeepers_own_recipes_agree_with_the_status,
    2 elections::curator_status_equals_what_curator_itself_reports,
    0 elections::kazoo_status_equals_what_kazoo_itself_reports,
    1 applications::patroni_status_equals_what_its_members_are_told,
    0 dialects::an_election_whose_leader_registers_itself_follows_the_registration,
    0 elections::a_lock_that_outlives_its_holder_is_shown_as_held,
    0 dialects::an_election_in_an_open_dialect_is_detected_and_stays_so,
    0 dialects::an_election_of_the_users_own_making_is_read_as_described,
    0 dialects::hadoops_breadcrumb_is_shown_beside_the_lock,
];

/// Further tests of a long search: applications that take a minute of the processor to start, and elections whose znodes
/// `election/tests/corpus` has; scenarios and changes that the simulation shows, with members that restart and at run
/// time; and changes that take many minutes.
const SEARCHES: &[Test] = tests![
    5 changes::a_chain_is_paused_resumed_and_turned_round,
    3 changes::an_idle_ensemble_is_not_written_to,
    3 changes::a_version_upgrade_restarts_each_member_once_and_loses_nothing,
    1 capacity::a_class_that_cannot_grow_is_told_and_harms_nothing,
    1 faults::the_volume_of_another_ensemble_is_refused,
    1 elections::clients_of_all_libraries_and_the_mirror_connect_over_tls,
    3 scenarios::scenario_15_ensembles_elections_and_namespaces_are_deleted_in_any_order,
    3 scenarios::scenario_08_bad_image_setting_or_pod_costs_one_member_and_reverting_heals,
    1 documents::the_fair_election_death_in_the_middle,
    3 scenarios::scenario_05_created_again_on_old_volumes_serves_its_data,
    3 scenarios::scenario_09_a_rollout_and_a_changed_spec_restart_once_each,
    3 scenarios::scenario_11_all_pods_killed_quorum_lost_and_nodes_restarted,
    3 scenarios::scenario_12_no_dns_at_boot_and_ordinal_0_loses_its_volume,
    3 disks::a_transaction_log_has_a_volume_of_its_own_and_its_loss_is_refused,
    4 elections::lock_status_equals_what_go_zookeeper_and_curator_report,
    2 elections::two_generations_of_curators_latch_reconnect,
    3 disks::a_statefulset_deleted_by_hand_in_a_change_comes_back,
    3 faults::a_pod_that_kubernetes_refuses_to_create_is_told_of,
    3 disks::a_lost_majority_of_disks_is_told_and_a_person_can_accept_it,
    1 documents::a_second_node_of_one_session_is_shown_as_a_suspected_orphan,
    5 applications::kafka_status_equals_what_the_brokers_report,
    3 run_time::scenario_08_bad_image_setting_or_pod_costs_one_member_and_reverting_heals,
    3 run_time::scenario_05_created_again_on_old_volumes_serves_its_data,
    3 run_time::scenario_09_a_rollout_and_a_changed_spec_restart_once_each,
    3 run_time::scenario_11_all_pods_killed_quorum_lost_and_nodes_restarted,
    3 run_time::scenario_12_no_dns_at_boot_and_ordinal_0_loses_its_volume,
    3 run_time::scenario_15_ensembles_elections_and_namespaces_are_deleted_in_any_order,
    5 applications::solr_status_equals_what_the_nodes_report,
    5 applications::flink_status_equals_what_the_job_managers_report,
    5 applications::spark_status_equals_what_the_masters_report,
    3 tls::no_client_notices_that_certificates_are_renewed,
];

/// Tests that change the operator that the others rely on, or cut it off, or count what it did since it
/// started, which others end: one after the other, when those are done.
const ALONE: &[Test] = tests![
    3 soak::statuses_equal_a_fresh_read_after_everything_failed,
    3 monitoring::every_query_is_answered_and_names_metrics_that_exist,
    0 admission::rights_are_few_by_default_and_images_come_from_named_registries,
    1 installation::a_release_is_upgraded_removed_and_installed_again_and_no_member_restarts,
    2 installation::an_operator_of_some_namespaces_works_in_them_and_leaves_others_alone,
];

/// As [`ALONE`], in a long search.
const SEARCHES_ALONE: &[Test] = tests![
    1 handovers::a_drained_node_costs_one_handover,
    5 tls::servers_are_switched_on_and_off_while_the_operator_is_killed,
    9 reconfiguration::members_come_and_go_while_the_operator_is_killed,
];

/// Room for members, taken for the time of a test.
struct Room(u8);

/// Who waits for room goes in the order in which they came, so that small tests do not keep a large one waiting for ever.
struct Queue {
    free: u8,
    /// The number of the next one who comes.
    last: usize,
    /// The number of the one whose turn it is.
    first: usize,
}

static QUEUE: (Mutex<Queue>, Condvar) = (
    Mutex::new(Queue {
        free: CAPACITY,
        last: 0,
        first: 0,
    }),
    Condvar::new(),
);

impl Room {
    fn take(members: u8) -> Self {
        let mut queue = QUEUE.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = queue.last;
        queue.last += 1;
        let waits = |queue: &mut Queue| queue.first != number || queue.free < members;
        let queue = QUEUE.1.wait_while(queue, waits);
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        queue.first += 1;
        queue.free -= members;
        QUEUE.1.notify_all();
        Self(members)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut queue = QUEUE.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.free += self.0;
        QUEUE.1.notify_all();
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(AT_ONCE));
    let Some(kubectl) = Kubectl::from_environment() else {
        println!("{VARIABLE} is not set: these tests need a cluster, run `cargo xtask test`");
        libtest_mimic::run(&arguments, Vec::new()).exit();
    };
    let part = std::env::var(PART).unwrap_or_default();
    let mut failed = false;
    let chosen = |tests, searches| {
        let mut chosen = trials(&kubectl, tests);
        if soak::long().is_some() {
            chosen.extend(trials(&kubectl, searches));
        }
        chosen
    };
    if part != "alone" {
        let mut together = sharing(&kubectl);
        together.extend(chosen(TESTS, SEARCHES));
        failed |= libtest_mimic::run(&arguments, together).has_failed();
    }
    if part != "together" {
        arguments.test_threads = Some(1);
        failed |= libtest_mimic::run(&arguments, chosen(ALONE, SEARCHES_ALONE)).has_failed();
    }
    ExitCode::from(u8::from(failed))
}

fn trials(kubectl: &Kubectl, tests: &'static [Test]) -> Vec<Trial> {
    let trial = |(name, members, test): &'static Test| {
        let kubectl = kubectl.clone();
        Trial::test(*name, move || {
            let _room = Room::take(*members);
            let world = World::create(&kubectl, name).map_err(|e| format!("{e:#}"))?;
            let result = run(&world, name, *test);
            remove(world, result.is_err());
            result.map_err(Failed::from)
        })
    };
    tests.iter().map(trial).collect()
}

/// The namespace of the tests that share one. The first of them creates it, and it is removed after the last one.
#[derive(Default)]
struct Shared {
    world: OnceLock<Result<World, String>>,
    failed: AtomicBool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(Ok(world)) = self.world.take() {
            remove(world, self.failed.load(Ordering::Relaxed));
        }
    }
}

fn sharing(kubectl: &Kubectl) -> Vec<Trial> {
    let shared = Arc::new(Shared::default());
    let trial = |(name, members, test): &'static Test| {
        let (kubectl, shared) = (kubectl.clone(), shared.clone());
        Trial::test(*name, move || {
            let _room = Room::take(*members);
            let create = || World::create(&kubectl, "elections").map_err(|e| format!("{e:#}"));
            let world = shared.world.get_or_init(create).as_ref()?;
            let result = run(world, name, *test);
            shared.failed.fetch_or(result.is_err(), Ordering::Relaxed);
            result.map_err(Failed::from)
        })
    };
    SHARING.iter().map(trial).collect()
}

/// Removes a namespace, unless somebody wants to look at it after a failure.
fn remove(world: World, failed: bool) {
    if !failed || std::env::var_os("BELLWETHER_KEEP").is_none() {
        world.remove();
    }
}

/// Runs one test; a failure prints all that may explain it.
fn run(world: &World, name: &str, test: fn(&World) -> Result<()>) -> Result<(), String> {
    static OUTPUT: Mutex<()> = Mutex::new(());
    let start = std::time::Instant::now();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(world)))
        .unwrap_or_else(|_| Err(anyhow::anyhow!("the test panicked")));
    let seconds = start.elapsed().as_secs();
    let Err(error) = result else {
        eprintln!("{name}: passed in {seconds} s");
        return Ok(());
    };
    let described = world.describe();
    let _guard = OUTPUT.lock();
    eprintln!(
        "==== {name} failed: what explains it follows\n{described}==== {name} failed after {seconds} s: {error:#}"
    );
    Err(format!("{error:#}"))
}
