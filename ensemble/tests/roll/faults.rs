//! What goes wrong in the tests' worlds.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_ensemble::desired::{DesiredObject, ObjectKind};
use bellwether_ensemble::observation::{PodObservation, ServerReport};
use bellwether_ensemble::volume_report::Usage;
use bellwether_ensemble::world::Pod;
use bellwether_ensemble::world::faults::Faults;
use jiff::Timestamp;

/// What is broken at present; members are named by their ordinals.
#[derive(Default)]
pub(crate) struct Broken {
    /// Since when the operator can ask no server, although they run.
    pub(crate) muted: Option<Timestamp>,
    /// Members that run and cannot be asked since this time.
    pub(crate) cut_off: BTreeMap<u16, Timestamp>,
    /// Members that do not say what is on their disks.
    pub(crate) silent: BTreeSet<u16>,
    /// How full every volume is, if not hardly.
    pub(crate) usage: Option<Usage>,
    /// Members that copy a large snapshot, and neither elect nor join a leader.
    pub(crate) copying: BTreeSet<u16>,
    /// Members that fit on no node.
    pub(crate) homeless: BTreeSet<u16>,
    /// Whether new pods see no permission yet.
    pub(crate) stale_permission: bool,
    /// Whether claims cannot be written.
    pub(crate) claims_frozen: bool,
}

impl Faults for Broken {
    fn failure(&self, pod: &Pod) -> Option<&'static str> {
        let homeless = self.homeless.contains(&pod.ordinal);
        let bad = pod.image.starts_with("bad").then_some("ImagePullBackOff");
        homeless.then_some("Unschedulable").or(bad)
    }

    fn joins(&self, pod: &Pod) -> bool {
        !pod.image.starts_with("slow") && !self.copying.contains(&pod.ordinal)
    }

    fn shows_permission(&self) -> bool {
        !self.stale_permission
    }

    fn lets_through(&self, object: &DesiredObject) -> bool {
        !(self.claims_frozen && object.kind == ObjectKind::PersistentVolumeClaim)
    }

    fn distort(&self, seen: &mut PodObservation) {
        seen.silent_since = self.muted.or(self.cut_off.get(&seen.ordinal).copied());
        if seen.silent_since.is_some() {
            seen.server = ServerReport::Unreachable("silent".to_owned());
        }
        if let (Some(report), Some(usage)) = (&mut seen.volumes, self.usage) {
            report.data = usage;
        }
        if self.silent.contains(&seen.ordinal) || self.homeless.contains(&seen.ordinal) {
            seen.volumes = None;
        }
    }
}
