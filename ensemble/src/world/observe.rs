//! What the operator sees of the world.

use bellwether_api::ensemble::MemberRole;

use super::faults::Faults;
use super::{Pod, READINESS, World};
use crate::ids::ServerId;
use crate::observation::{Observation, PodObservation, PodState, ServerReport};
use crate::volume_report::{Usage, VolumeReport};

/// A volume with room.
const ROOM: Usage = Usage {
    total: 8 << 30,
    free: 7 << 30,
};

impl<F: Faults> World<F> {
    /// Everything that the operator reads in a pass.
    pub fn observe(&self) -> Observation {
        let mut seen = self.objects.observe(&self.ensemble.name);
        seen.now = self.now;
        seen.phase = Some(self.phase);
        seen.pods = self.observe_pods(false);
        seen.observers.pods = self.observe_pods(true);
        seen
    }

    fn observe_pods(&self, observes: bool) -> Vec<PodObservation> {
        let pods = self.pods.iter().filter(|(_, pod)| pod.observes == observes);
        pods.map(|(id, pod)| self.observe_pod(*id, pod)).collect()
    }

    fn observe_pod(&self, id: ServerId, pod: &Pod) -> PodObservation {
        let runs = self.runs(pod);
        let ready = runs && pod.unready < READINESS;
        let zxid = self.disks.get(&id).copied();
        let state = match self.faults.failure(pod) {
            Some(reason) => PodState::Failing {
                reason: reason.to_owned(),
                message: String::new(),
            },
            None if pod.age == 0 => PodState::Starting,
            None => PodState::Running,
        };
        let at_run_time = pod.revision.version.is_some();
        let known = self.lists.get(&id).filter(|_| at_run_time);
        let mut seen = PodObservation {
            name: pod.name.clone(),
            ordinal: pod.ordinal,
            uid: pod.uid.to_string(),
            resource_version: pod.uid.to_string(),
            revision: Some(pod.revision.clone()),
            controller_revision: Some(pod.template.clone()),
            template_hash: pod.template_hash.clone(),
            terminating: false,
            controller: None,
            state,
            failing_container: None,
            ready,
            unready_since: (!ready).then_some(pod.unready_since),
            silent_since: None,
            created: pod.created,
            node: None,
            server: match pod.following {
                _ if !runs => ServerReport::Unreachable("it does not run".to_owned()),
                None => ServerReport::Looking,
                Some(leader) => ServerReport::Serving {
                    role: if leader == id {
                        MemberRole::Leader
                    } else if !pod.observes && (at_run_time || pod.revision.voters.contains(id)) {
                        MemberRole::Follower
                    } else {
                        MemberRole::Observer
                    },
                    zxid: zxid.unwrap_or_default(),
                    voters: known.map_or(&pod.revision.voters, |(_, list)| list).clone(),
                    observers: self.listed_observers.clone(),
                    version: known.map_or(0, |(version, _)| *version),
                },
            },
            volumes: Some(VolumeReport {
                has_database: zxid.is_some(),
                current_epoch: zxid.map(|zxid| zxid >> 32),
                accepted_epoch: None,
                stored_list: None,
                data: ROOM,
                transaction_log: None,
            }),
            presents: None,
            credentials: Default::default(),
            client_authority: None,
        };
        self.faults.distort(&mut seen);
        seen
    }
}
