//! The API server in process: one store, and front ends whose caches lag behind it.
//!
//! [`ApiServer::client`] makes clients for the program under test, whose requests pass by the [`Faults`].
//! Everything else changes the [`Store`] directly, under a name of its own. The simulation lets the whole
//! operator live on it, and tests give it to parts of the operator.

mod admission;
mod cache;
mod clock;
mod clocks;
mod custom;
mod defaults;
mod delete;
mod events;
mod eviction;
mod faults;
mod front_end;
mod kind;
#[cfg(feature = "listen")]
mod listen;
mod merge;
mod object;
mod ownership;
mod recorder;
mod refusal;
mod reply;
mod request;
mod scale;
mod selector;
mod service;
mod stops;
mod store;
mod structure;
mod validation;
mod watch;
mod write;

/// Prepares what every life needs and none changes, which takes longer than many a life.
pub fn prepare() {
    custom::prepare();
    structure::prepare();
}

pub use admission::{Admission, Opinion, Quota, Review};
pub use cache::Cache;
pub use clock::now;
pub use clocks::Clocks;
pub use delete::{Delete, Preconditions, Propagation};
pub use faults::{After, Answer, Before, Faults, NoFaults, Then};
pub use front_end::Link;
pub use kind::{Kind, Resource};
pub use object::{Object, time_stamp};
pub use recorder::Recorder;
pub use refusal::Refusal;
pub use request::{Action, Call};
pub use selector::label_selector_selects;
pub use service::ApiServer;
pub use stops::Stops;
pub use store::{Change, Event, Store, Verb, Write};
