//! The controllers that Kubernetes brings along, as plain functions of the store.
//!
//! Each has a `step` that does what is due now and says when it has to be called again if nothing changes
//! before. A step that finds nothing changed costs almost nothing.

mod events;
mod garbage;
mod revisions;
mod stateful_pods;
mod stateful_sets;
mod volumes;

use bellwether_api_server::Store;
use tokio::time::Instant;

pub use garbage::GarbageCollector;
pub use stateful_sets::StatefulSets;
pub use volumes::Volumes;

/// All controllers.
#[derive(Debug, Default)]
pub struct Controllers {
    /// The StatefulSet controller.
    pub stateful_sets: StatefulSets,
    /// The garbage collector.
    pub garbage: GarbageCollector,
    /// What binds, grows and protects claims.
    pub volumes: Volumes,
    /// The revision at which there was nothing to do, and until when.
    idle: Option<(u64, Option<Instant>)>,
}

impl Controllers {
    /// Lets every controller do what is due, if anything can be. The caller must not have changed
    /// the delay of the controllers' caches since the last call.
    pub fn step_if_due(&mut self, store: &mut Store) {
        let idle = self.idle.is_some_and(|(revision, until)| {
            revision == store.revision() && until.is_none_or(|until| Instant::now() < until)
        });
        if !idle {
            let until = self.step(store);
            self.idle = Some((store.revision(), until));
        }
    }

    /// Runs every controller until no work is left. Returns when to call it again if nothing changes before.
    pub fn step(&mut self, store: &mut Store) -> Option<Instant> {
        loop {
            let before = store.revision();
            let due = [
                self.stateful_sets.step(store),
                self.garbage.step(store),
                self.volumes.step(store),
            ];
            if store.revision() == before {
                return due.into_iter().flatten().min();
            }
        }
    }
}

/// The earlier of two times.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
