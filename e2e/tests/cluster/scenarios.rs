//! Fifteen failure scenarios that an operator for ZooKeeper has to pass, one test each. Each was a
//! bug that users of another operator filed.
//!
//! Not here: 14, certificates, which the operator does not have yet.

mod changes;
mod deletion;
mod faults;
mod sizes;

pub(crate) use crate::disks::{
    a_returned_member_takes_up_its_old_volume as scenario_04_three_to_one_to_three_takes_up_the_old_volume,
    an_ensemble_created_again_with_another_size_serves_its_data as scenario_05_created_again_on_old_volumes_serves_its_data,
};
pub(crate) use changes::*;
pub(crate) use deletion::*;
pub(crate) use faults::*;
pub(crate) use sizes::*;
