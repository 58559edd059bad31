//! What the program in every ZooKeeper pod decides before the server starts: whether the volumes are the
//! member's own and as new as they should be, and whether a server with an empty one may vote.
//!
//! All of it is pure, so that the simulation of the operator decides with the same code: [`decide`] takes
//! the contents of files and returns what to write. The program reads before it and writes after it.

mod bootstrap;
mod decision;
mod epoch;
mod identity;
mod learners;
mod ownership;
mod server_list;

pub use bootstrap::{Marker, is_database_file, is_leftover_file};
pub use decision::{Around, Decision, decide};
pub use epoch::of_file as epoch_of_file;
pub use identity::{Identity, identify};
pub use learners::learner_lines;
pub use ownership::{Found, MARK, MYID};
pub use server_list::{List, STORED, committed_file, pending, version_in, zoo_cfg};
