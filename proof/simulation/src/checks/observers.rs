//! What must hold of observers: they restart before voters, one at a time, and do not delay voters for long.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_api::labels;
use bellwether_api_server::{Kind, Object, Verb, Write};
use bellwether_ensemble::desired::observers::{pod_name, set_name};
use bellwether_ensemble::safety::can_join;
use bellwether_ensemble::{ServerId, Voters};

use super::{Sight, id_of, is_of_template, list_of};
use crate::cluster::{ENSEMBLE, NAME};
use crate::zookeeper::Phase;

/// How long the operator may not know yet the state of an observer.
const UNKNOWN: Duration = Duration::from_millis(3500);
/// How long voters wait for an observer that starts or joins.
const PATIENCE: Duration = Duration::from_secs(300);
/// How much longer a status may report that voters wait: another operator has to take over first.
const STALE: Duration = Duration::from_secs(90);

/// What is remembered between two looks.
#[derive(Debug, Default)]
pub(super) struct Observers {
    /// Since when an outdated observer could restart: by the uid of its pod.
    due: BTreeMap<String, Duration>,
    /// The observers that the operator restarted and that do not serve yet, and since when: by name.
    restarted: BTreeMap<String, Duration>,
    /// The pod that the status reports as awaited, by name and uid, and since when.
    waits: Option<((String, String), Duration)>,
}

/// Whether a pod is an observer's.
pub(super) fn is_observer(pod: &Object) -> bool {
    pod.label(labels::COMPONENT) == Some(labels::COMPONENT_OBSERVER)
}

fn phase(sight: &Sight<'_>, pod: &Object) -> Phase {
    let process = sight.machines.kubelets.process_of(pod.uid());
    process.map_or(Phase::Down, |process| sight.machines.zoo.phase(process))
}

/// Whether the operator can see that the server of this pod observes.
fn answers(sight: &Sight<'_>, pod: &Object) -> bool {
    let machines = sight.machines;
    let process = machines.kubelets.process_of(pod.uid());
    process.is_some_and(|process| {
        machines.kubelets.processes().contains(&process)
            && observes(machines.zoo.phase(process))
            && machines.zoo.answer(process, "ruok").is_some()
    })
}

/// Whether an observer can join the leader by the newest server list.
fn joins(sight: &Sight<'_>) -> bool {
    let zoo = &sight.machines.zoo;
    let leader = zoo.leaders_that_can_commit(ENSEMBLE);
    let leader = leader.first().map(|leader| zoo.start_of(*leader).id);
    let voters = sight.pods.iter().filter(|pod| !is_observer(pod));
    let serving = |pod: &&std::sync::Arc<Object>| {
        matches!(phase(sight, pod), Phase::Leading | Phase::Following)
    };
    let serving: Voters = voters.filter(serving).filter_map(|p| id_of(p)).collect();
    let list = sight.template.as_ref();
    list.is_some_and(|list| can_join(ServerId(u16::MAX), list, &serving, leader))
}

/// Whether an observer serves. One that the list does not name yet follows without a vote.
fn observes(phase: Phase) -> bool {
    matches!(phase, Phase::Observing | Phase::Following)
}

fn revision(pod: &Object) -> Option<&str> {
    pod.label("controller-revision-hash")
}

impl Observers {
    /// What is wrong with a pod's deletion by the operator, given all writes before.
    pub(super) fn judge(&self, sight: &Sight<'_>, write: &Write) -> Option<String> {
        if (write.verb, write.kind) != (Verb::Delete, Kind::POD) {
            return None;
        }
        let before = write.before.as_ref()?;
        let serves = matches!(
            phase(sight, before),
            Phase::Leading | Phase::Following | Phase::Observing
        );
        if !serves {
            return None;
        }
        if is_observer(before) {
            return self.second(sight, before);
        }
        let due = |pod: &Object| {
            let since = self.due.get(pod.uid());
            since.is_some_and(|since| sight.now >= *since + UNKNOWN)
        };
        // The pod template may have returned since the last look.
        let outdated = |pod: &Object| !sight.observers.has_template(pod);
        let first = sight.pods.iter().find(|pod| {
            // It may terminate by somebody else's doing since the last look.
            due(pod) && outdated(pod) && !pod.is_terminating() && answers(sight, pod)
        })?;
        Some(format!(
            "a voter, before {}, which was outdated too",
            first.name()
        ))
    }

    /// An observer restarts while another one is down.
    fn second(&self, sight: &Sight<'_>, before: &Object) -> Option<String> {
        let others = self.restarted.iter();
        let mut others = others.filter(|(name, _)| *name != before.name());
        let waits = |(name, since): &(&String, &Duration)| {
            let pod = sight.pods.iter().find(|pod| pod.name() == **name);
            let newest = pod.is_none_or(|pod| {
                // It may have come to serve since the last look.
                sight.observers.has_template(pod) && !observes(phase(sight, pod))
            });
            newest && sight.now < **since + PATIENCE
        };
        let (name, _) = others.find(waits).filter(|_| joins(sight))?;
        Some(format!(
            "while {name}, which it restarted before, did not serve"
        ))
    }

    /// Remembers a write of anybody.
    pub(super) fn note(&mut self, now: Duration, write: &Write) {
        let own = write.actor.starts_with("operator-");
        match (write.verb, write.kind) {
            (Verb::Delete, Kind::POD) => {
                let observer = write.before.as_ref().is_some_and(|pod| is_observer(pod));
                if own && observer {
                    self.restarted.insert(write.name.clone(), now);
                } else if &*write.actor == "user" {
                    self.restarted.remove(&write.name);
                }
            }
            // What somebody else does to the pods is not the operator's doing.
            (_, Kind::STATEFUL_SET) if write.name == set_name(NAME) && &*write.actor == "user" => {
                self.restarted.clear();
            }
            _ => {}
        }
    }

    /// Checks the observers, and what the status reports about them.
    pub(super) fn look(&mut self, sight: &Sight<'_>) -> Option<String> {
        let all = sight.pods.iter().filter(|pod| is_observer(pod));
        let all: Vec<&Object> = all.map(|pod| &**pod).collect();
        let wanted = |name: &str| (0..sight.observers.wanted).any(|o| pod_name(NAME, o) == name);
        if all.is_empty() {
            self.due.clear();
        } else {
            let can = joins(sight);
            let outdated = |pod: &&&Object| {
                let update = sight.observers.update_revision;
                let known = update.is_some() && revision(pod).is_some();
                let old = known && !sight.observers.has_template(pod);
                can && old && !pod.is_terminating() && wanted(pod.name()) && answers(sight, pod)
            };
            let due: Vec<&str> = all.iter().filter(outdated).map(|pod| pod.uid()).collect();
            self.due.retain(|uid, _| due.contains(&uid.as_str()));
            for uid in due {
                self.due.entry(uid.to_owned()).or_insert(sight.now);
            }
        }
        let serves = |name: &str| {
            let mut named = all.iter().filter(|pod| pod.name() == name);
            named.any(|pod| !pod.is_terminating() && observes(phase(sight, pod)))
        };
        self.restarted
            .retain(|name, _| wanted(name) && !serves(name));
        self.held_up(sight, &all)
    }

    /// The status says for too long that a roll of voters waits for an observer.
    fn held_up(&mut self, sight: &Sight<'_>, observers: &[&Object]) -> Option<String> {
        let outdated = |pod: &Object| {
            !is_observer(pod)
                && list_of(pod).is_some()
                && !is_of_template(pod, sight.pod_template, sight.update_revision)
                && !pod.is_terminating()
        };
        let status = &sight.ensemble?["status"];
        let message = status["message"].as_str().unwrap_or_default();
        let waits_for = |name: &String| {
            message.contains("Waiting for")
                && (message.contains(&format!("{name} to "))
                    || message.contains(&format!("{name};")))
        };
        let name = (0..sight.observers.wanted).map(|o| pod_name(NAME, o));
        let name = name.into_iter().find(waits_for);
        let voters_wait = sight.pods.iter().any(|pod| outdated(pod));
        // A pod that Kubernetes does not create has no bound: it might not create a voter's either.
        let named = name.filter(|_| voters_wait).and_then(|name| {
            let pod = observers.iter().find(|pod| pod.name() == name)?;
            Some((name, pod.uid().to_owned()))
        });
        let Some(key) = named else {
            self.waits = None;
            return None;
        };
        if self.waits.as_ref().is_none_or(|(known, _)| *known != key) {
            self.waits = Some((key, sight.now));
            return None;
        }
        let (key, since) = self.waits.as_mut()?;
        if sight.now < *since + PATIENCE + STALE {
            return None;
        }
        let name = key.0.clone();
        *since = sight.now + STALE * 100;
        Some(format!(
            "{:?}: the status says for {:?} that voters wait for {name}",
            sight.now,
            PATIENCE + STALE
        ))
    }
}
