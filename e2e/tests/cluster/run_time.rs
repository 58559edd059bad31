//! The failure scenarios of [`crate::scenarios`] in which the way members change could make a difference, with ensembles
//! whose members change at run time.

use anyhow::Result;
use bellwether_e2e::world::World;

use crate::scenarios;

macro_rules! at_run_time {
    ($($name:ident),* $(,)?) => {
        $(pub(crate) fn $name(world: &World) -> Result<()> {
            scenarios::$name(world.at_run_time())
        })*
    };
}

at_run_time![
    scenario_05_created_again_on_old_volumes_serves_its_data,
    scenario_08_bad_image_setting_or_pod_costs_one_member_and_reverting_heals,
    scenario_09_a_rollout_and_a_changed_spec_restart_once_each,
    scenario_11_all_pods_killed_quorum_lost_and_nodes_restarted,
    scenario_12_no_dns_at_boot_and_ordinal_0_loses_its_volume,
    scenario_15_ensembles_elections_and_namespaces_are_deleted_in_any_order,
];
