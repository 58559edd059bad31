//! What the acts of a life do to observers, and what has to be the case of them in the end.

use std::sync::Arc;

use bellwether_api::labels;
use bellwether_api_server::{Delete, Kind, Object, Propagation, Store};
use bellwether_ensemble::desired::claims::{data_claim, log_claim};
use bellwether_ensemble::desired::observers::{pod_name, set_name};
use serde_json::json;

use super::{Later, Life};
use crate::acts::ObserverAct;
use crate::checks::is_of_template;
use crate::cluster::{NAME, NAMESPACE};
use crate::zookeeper::Phase;

/// Whether a pod is one of the voters', also of one that leaves.
pub(super) fn is_voter(pod: &Object) -> bool {
    pod.label(labels::COMPONENT).is_none()
}

/// The voters' pods.
pub(super) fn voters(store: &Store) -> Vec<Arc<Object>> {
    let pods = store.list(Kind::POD, Some(NAMESPACE));
    pods.filter(|pod| is_voter(pod)).cloned().collect()
}

impl Life {
    pub(super) fn act_on_observers(&mut self, act: &ObserverAct) {
        let now = self.cluster.now();
        let cluster = self.cluster.clone();
        let word = format!("{act:?}");
        let end = word.find(|c: char| !c.is_alphanumeric());
        let word = &word[..end.unwrap_or(word.len())];
        self.count(format!("act Observers {word}"));
        let pod = |ordinal: u16| pod_name(NAME, ordinal);
        match *act {
            ObserverAct::Resize(count) => {
                self.spec["observers"] = json!({ "replicas": count });
                self.apply();
            }
            ObserverAct::DeletePod(ordinal) => {
                self.delete(Kind::POD, &pod(ordinal), &Delete::default());
            }
            ObserverAct::ForceDelete(ordinal) => {
                let options = Delete {
                    grace_period_seconds: Some(0),
                    ..Delete::default()
                };
                self.delete(Kind::POD, &pod(ordinal), &options);
            }
            ObserverAct::LoseDisk(_) if self.pods_cannot_be_deleted() => {}
            ObserverAct::LoseDisk(ordinal) => {
                let set = set_name(NAME);
                for claim in [data_claim(&set, ordinal), log_claim(&set, ordinal)] {
                    self.delete(Kind::CLAIM, &claim, &Delete::default());
                }
                self.delete(Kind::POD, &pod(ordinal), &Delete::default());
            }
            ObserverAct::Crash(ordinal) => {
                let mut machines = cluster.machines();
                let machines = &mut *machines;
                machines
                    .kubelets
                    .kill(now, &mut machines.zoo, &pod(ordinal));
            }
            ObserverAct::Freeze(ordinal, time) => {
                let mut machines = cluster.machines();
                for process in machines.kubelets.processes_named(&pod(ordinal)) {
                    machines.zoo.freeze(now, process);
                }
                drop(machines);
                self.later(time, Later::ThawPod(pod(ordinal)));
            }
            ObserverAct::LoseNode(ordinal, time) => {
                let mut machines = cluster.machines();
                let machines = &mut *machines;
                if let Some(node) = machines.kubelets.node_of(&pod(ordinal)) {
                    machines.kubelets.lose_node(now, &mut machines.zoo, node);
                    self.later(time, Later::RegainNode(node));
                }
            }
            ObserverAct::DeleteSet { orphan } => {
                let policy = match orphan {
                    true => Propagation::Orphan,
                    false => Propagation::Background,
                };
                let options = Delete {
                    propagation_policy: Some(policy),
                    ..Delete::default()
                };
                self.delete(Kind::STATEFUL_SET, &set_name(NAME), &options);
            }
            ObserverAct::ScaleSet(count) => {
                let target = (NAMESPACE, &*set_name(NAME));
                let change = |set: &mut serde_json::Value| set["spec"]["replicas"] = json!(count);
                let mut store = cluster.api.store();
                let _ = store.update("user", Kind::STATEFUL_SET, target, change);
            }
        }
    }

    /// A process of this pod that was frozen goes on.
    pub(super) fn thaw_pod(&self, pod: &str) {
        let now = self.cluster.now();
        let mut machines = self.cluster.machines();
        for process in machines.kubelets.processes_named(pod) {
            machines.zoo.thaw(now, process);
        }
    }

    /// Whether the server in each voter's pod serves, except the pod of this name.
    pub(super) fn voters_serve(&self, but: Option<&str>) -> bool {
        let pods = voters(&self.cluster.api.store());
        let machines = self.cluster.machines();
        let mut others = pods.iter().filter(|pod| Some(pod.name()) != but);
        others.all(|pod| {
            let process = machines.kubelets.process_of(pod.uid());
            let phase = process.map(|process| machines.zoo.phase(process));
            matches!(phase, Some(Phase::Leading | Phase::Following))
        })
    }

    /// Whether there are as many observers as asked for, and every one serves by the newest pod template.
    pub(super) fn observers_are_as_asked(&self) -> bool {
        let store = self.cluster.api.store();
        let pods = store.list(Kind::POD, Some(NAMESPACE));
        let pods: Vec<_> = pods.filter(|pod| !is_voter(pod)).cloned().collect();
        let set = store
            .get(Kind::STATEFUL_SET, NAMESPACE, &set_name(NAME))
            .cloned();
        drop(store);
        let wanted = self.spec["observers"]["replicas"].as_u64().unwrap_or(0);
        let update = set.as_ref().map(|set| &set["status"]["updateRevision"]);
        let update = update.and_then(|update| update.as_str());
        let template = set.as_ref().map(|set| &set["spec"]["template"]);
        let machines = self.cluster.machines();
        let serves = |pod: &Object| {
            let process = machines.kubelets.process_of(pod.uid());
            process.is_some_and(|process| machines.zoo.phase(process) == Phase::Observing)
        };
        u64::try_from(pods.len()) == Ok(wanted)
            && pods.iter().all(|pod| {
                !pod.is_terminating() && is_of_template(pod, template, update) && serves(pod)
            })
    }
}
