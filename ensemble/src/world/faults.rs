//! What may go wrong in the world.

use crate::desired::DesiredObject;
use crate::observation::PodObservation;
use crate::world::Pod;

/// What goes wrong. Every method has a default under which nothing does, so the forecast has no switch for
/// a fault, and a test says only what it breaks.
pub trait Faults: Send {
    /// Why the server of this pod cannot run, in the one word that the kubelet or the scheduler gives.
    fn failure(&self, _pod: &Pod) -> Option<&'static str> {
        None
    }

    /// Whether this server, which runs, elects and joins a leader.
    fn joins(&self, _pod: &Pod) -> bool {
        true
    }

    /// Whether the kubelet shows new pods the permission to start with an empty disk as it is now.
    fn shows_permission(&self) -> bool {
        true
    }

    /// Whether this write reaches the API server.
    fn lets_through(&self, _object: &DesiredObject) -> bool {
        true
    }

    /// Changes what the operator sees of a pod.
    fn distort(&self, _seen: &mut PodObservation) {}
}

/// Nothing goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFaults;

impl Faults for NoFaults {}
