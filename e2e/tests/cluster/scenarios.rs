//! Fifteen failure scenarios that an operator for ZooKeeper has to pass. Each was a bug that users of
//! another operator filed. Here are those that need a real cluster, one test each.
//!
//! Not here: 1 to 4, 7, 10 and 13 (sizes up and down, back to an old volume, a leader that moves in a roll, an
//! operator that is killed, a change that waits) happen in the lives of the simulation and on servers without a
//! cluster, and a chain of sizes in `changes`; 14, certificates, is in `tls`.

mod changes;
mod deletion;
mod faults;

pub(crate) use crate::disks::an_ensemble_created_again_with_another_size_serves_its_data as scenario_05_created_again_on_old_volumes_serves_its_data;
pub(crate) use changes::*;
pub(crate) use deletion::*;
pub(crate) use faults::*;
