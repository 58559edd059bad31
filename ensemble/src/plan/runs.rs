//! The report of what runs when nothing is planned: the spec is refused, or the state is not understood.

use super::report::{MemberReport, Report};
use super::verdict::{Verdict, WaitingOn};
use crate::ids::ServerId;
use crate::observation::Observation;

impl Report {
    /// Lists every pod; all of them wait for `waiting`.
    pub fn list_pods(&mut self, observation: &Observation, id_offset: u16, waiting: &str) {
        let waits = || Verdict::Waiting(WaitingOn::Other(waiting.to_owned()));
        let members = observation.pods.iter().map(|pod| {
            let id = ServerId::of_ordinal(pod.ordinal, id_offset);
            MemberReport::new(pod, id, waits())
        });
        self.members = members.collect();
        let observers = observation.observers.pods.iter().map(|pod| {
            let id = ServerId::of_observer(pod.ordinal, id_offset);
            MemberReport::new(pod, id, waits())
        });
        self.observers = observers.collect();
        let wanted = observation.observers.stateful_set.as_ref();
        self.observers_wanted = wanted.map_or(0, |s| s.replicas);
        let set = observation.stateful_set.as_ref();
        self.revision = set.and_then(|s| s.template.clone());
    }
}
