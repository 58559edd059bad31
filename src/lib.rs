//! The operator: what watches show, what follows from it, and what is written for it.
//!
//! The program (`cli/`) runs [`Operator`] with a client of a cluster and with members behind a network; the
//! simulation (`proof/simulation/`) runs it as it is, with both in memory.

pub mod admin;
mod backoff;
mod certificates;
mod election;
mod ensemble;
mod lease;
mod limited;
pub mod log;
mod metrics;
mod operator;
pub mod scoped;
pub mod traces;
mod zookeeper;

pub use bellwether_election::guards::{Guard, Guards};
pub use bellwether_election::permissions::{HostPattern, LabelKeyPattern, Permissions};
pub use certificates::{Authorities, Issuer};
pub use election::zookeepers::{
    Connection, Fired, Opened, Opening, Servers, Session, Unopened, ZooKeepers,
};
pub use ensemble::members::{Contact, Members, Network, Told};
pub use metrics::{Metrics, reference as metrics_reference};
pub use operator::{Operator, Settings, wait};
