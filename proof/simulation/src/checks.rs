//! What must hold, always: it is looked at after every step of the cluster.

mod observers;
mod order;
pub mod picture;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::labels;
use bellwether_api_server::{Kind, Object, Verb, Write};
use bellwether_ensemble::desired::stateful_set::ROLLOUT_RESTART;
use bellwether_ensemble::safety::{can_join, holds_majority};
use bellwether_ensemble::{ServerId, Voters};
use serde_json::Value;

use crate::cluster::{ENSEMBLE, Machines, NAME};
use crate::zookeeper::Phase;
use observers::{Observers, is_observer};
use order::Order;
pub use status::Circumstances;
use status::Honesty;

/// What is remembered between two looks.
#[derive(Debug, Default)]
pub struct Checks {
    /// What was violated, in sentences.
    pub violations: Vec<String>,
    /// Pods that the operator restarted and whose successors do not serve yet: by name.
    restarted: BTreeSet<String>,
    /// The violations of the servers that were seen.
    servers: usize,
    /// Who may write what, and when.
    order: Order,
    /// When which observer restarts, and who waits for it.
    observers: Observers,
    /// A person made two leaders: what the servers do then is not the operator's doing.
    pub servers_excused: bool,
    /// Whether the status is honest.
    honesty: Honesty,
    /// How often the operator wrote each kind.
    pub writes: BTreeMap<String, usize>,
}

/// What the checks look at.
#[derive(Debug)]
pub struct Sight<'a> {
    /// The time since the cluster began.
    pub now: Duration,
    /// The servers and what runs them.
    pub machines: &'a Machines,
    /// The ensemble, if it exists.
    pub ensemble: Option<&'a Object>,
    /// Every pod.
    pub pods: &'a [Arc<Object>],
    /// The revision of the StatefulSet's pod template.
    pub update_revision: Option<&'a str>,
    /// What is to become of the observers.
    pub observers: ObserverSight<'a>,
    /// Whether the policy lets volumes be deleted.
    pub deletes_volumes: bool,
    /// The size that the user asks for.
    pub wanted: u16,
    /// The StatefulSet's pod template.
    pub pod_template: Option<&'a Value>,
    /// The server list in it.
    pub template: Option<Voters>,
}

/// What is to become of the observers.
#[derive(Clone, Copy, Debug)]
pub struct ObserverSight<'a> {
    /// The revision of their StatefulSet's pod template.
    pub update_revision: Option<&'a str>,
    /// Their pod template.
    pub pod_template: Option<&'a Value>,
    /// How many the user asks for.
    pub wanted: u16,
}

impl ObserverSight<'_> {
    /// Whether a restart would give the pod of an observer the same template.
    fn has_template(&self, pod: &Object) -> bool {
        is_of_template(pod, self.pod_template, self.update_revision)
    }
}

impl Sight<'_> {
    /// Whether the member with a pod of this name stays. One that the template's list does not name any more
    /// is on its way out, and may be leaving because it cannot run.
    fn stays(&self, pod: &str) -> bool {
        let id = ordinal(pod).map(|ordinal| ServerId(ordinal + 1));
        let list = self.template.as_ref();
        id.is_some_and(|id| list.is_none_or(|list| list.contains(id)))
    }
}

impl Checks {
    /// Looks at the writes since the last look; the operators' are judged.
    pub fn writes(&mut self, sight: &Sight<'_>, writes: &[Write]) {
        self.order.begin();
        for write in writes.iter().filter(|write| write.result.is_ok()) {
            let wrong = match write.actor.starts_with("operator-") {
                true => {
                    let wrong = self.order.judge(sight, write);
                    wrong.or_else(|| self.observers.judge(sight, write))
                }
                false => None,
            };
            if let Some(wrong) = wrong {
                let (kind, name) = (write.kind.resource().name, &write.name);
                let (now, verb, actor) = (sight.now, write.verb, &write.actor);
                self.violations.push(format!(
                    "{now:?}: {actor} did {verb:?} {kind} {name}, {wrong}"
                ));
            }
            self.order.note(sight.now, write);
            self.observers.note(sight.now, write);
            if !write.actor.starts_with("operator-") {
                continue;
            }
            *self
                .writes
                .entry(format!("{:?} {}", write.verb, write.kind.resource().name))
                .or_default() += 1;
            match (write.verb, write.kind) {
                // An observer counts in no majority, and its copy may be interrupted: no check is needed here.
                (Verb::Delete, Kind::POD)
                    if write.before.as_ref().is_some_and(|p| is_observer(p)) => {}
                (Verb::Delete, Kind::POD) => {
                    self.restart(sight, write);
                }
                (Verb::Delete, Kind::CLAIM) if !sight.deletes_volumes => {
                    self.violations.push(format!(
                        "{:?}: the operator deleted the volume claim {} although volumes are retained",
                        sight.now, write.name
                    ));
                }
                _ => {}
            }
        }
    }

    /// The operator deletes a pod: is that safe now?
    fn restart(&mut self, sight: &Sight<'_>, write: &Write) {
        let Sight {
            now,
            machines,
            pods,
            update_revision,
            wanted,
            ..
        } = *sight;
        let name = write.name.clone();
        let Some(before) = &write.before else { return };
        let phase = |pod: &Object| {
            let process = machines.kubelets.process_of(pod.uid());
            process.map_or(Phase::Down, |process| machines.zoo.phase(process))
        };
        let own = phase(before);
        let say = |text: String| format!("{now:?}: the operator restarted {name}, {text}");
        if before.is_terminating() {
            self.violations
                .push(say("which was terminating already".to_owned()));
        }
        if matches!(own, Phase::Synchronizing { bytes_left } if bytes_left > 0) {
            self.violations
                .push(say("which was copying the data".to_owned()));
        }
        let serves = |phase: &Phase| matches!(phase, Phase::Leading | Phase::Following);
        let others: Vec<(&Object, Phase)> = pods
            .iter()
            .filter(|p| p.name() != name && p.label(labels::COMPONENT).is_none())
            .map(|p| (&**p, phase(p)))
            .collect();
        if own == Phase::Leading {
            let outdated = others.iter().find(|(pod, phase)| {
                let revision = pod.label("controller-revision-hash");
                let has_template = is_of_template(pod, sight.pod_template, update_revision);
                let stays = ordinal(pod.name()).is_some_and(|o| o < wanted);
                stays
                    && serves(phase)
                    && !pod.is_terminating()
                    && revision.is_some()
                    && !has_template
            });
            let up_to_date = is_of_template(before, sight.pod_template, update_revision);
            // A leader that is about to leave steps down, also while other members are due.
            let leaves = ordinal(before.name()).is_some_and(|o| o >= wanted);
            if let (Some((other, _)), false) = (outdated, up_to_date || leaves) {
                let text = format!(
                    "the leader, before {}, which was outdated too",
                    other.name()
                );
                self.leader_early(say(text), before, &others);
            }
        }
        if serves(&own) {
            let others_serving: Voters = others
                .iter()
                .filter(|(_, phase)| serves(phase))
                .filter_map(|(pod, _)| id_of(pod))
                .chain(id_of(before))
                .collect();
            let leader = machines.zoo.leaders_that_can_commit(ENSEMBLE);
            let leader = leader.first().map(|p| machines.zoo.start_of(*p).id);
            // One that cannot join before others restart too has to be freed by their restarts.
            let waits = |other: &&String| {
                let pod = others.iter().find(|(pod, _)| pod.name() == **other);
                pod.is_none_or(|(pod, phase)| {
                    if serves(phase) && !pod.is_terminating() {
                        return false;
                    }
                    let (Some(id), Some(list)) = (id_of(pod), judged(sight, pod)) else {
                        return true;
                    };
                    // A leaver that runs the list without it is in no majority.
                    list.contains(id) && can_join(id, &list, &others_serving, leader)
                })
            };
            let staying = self.restarted.iter().filter(|other| sight.stays(other));
            let mut down = staying.filter(|other| **other != name);
            if let Some(other) = down.find(waits) {
                self.violations.push(say(format!(
                    "while {other}, which it restarted before, did not serve"
                )));
            }
            let list = judged(sight, before);
            let staying: Voters = others
                .iter()
                .filter(|(_, p)| serves(p))
                .filter_map(|(o, _)| id_of(o))
                .collect();
            let all: Voters = staying.iter().chain(id_of(before)).collect();
            if let Some(list) = list
                && list.len() > 2
                && list.difference(&all).is_empty()
                && !holds_majority(&staying, &list)
            {
                self.violations
                    .push(say(format!("and no majority of {{{list}}} stayed")));
            }
        }
        if write.name.starts_with(NAME) {
            self.restarted.insert(write.name.clone());
        }
    }

    /// A leader that leaves may restart early, and so may one whose list others cannot join.
    fn leader_early(&mut self, text: String, leader: &Object, others: &[(&Object, Phase)]) {
        let list = |pod: &Object| {
            pod["metadata"]["annotations"][labels::VOTERS]
                .as_str()
                .map(str::to_owned)
        };
        let lists: BTreeSet<_> = others
            .iter()
            .map(|(pod, _)| list(pod))
            .chain([list(leader)])
            .collect();
        // With two lists live, a leader that cannot be followed has to go; the model check judges those.
        if lists.len() == 1 {
            self.violations.push(text);
        }
    }

    /// Looks at the servers.
    pub fn look(&mut self, sight: &Sight<'_>) {
        let Sight { machines, pods, .. } = *sight;
        let seen = machines.zoo.violations();
        self.order.look(sight);
        self.violations.extend(self.observers.look(sight));
        for violation in seen[self.servers..]
            .iter()
            .filter(|_| !self.servers_excused)
        {
            self.violations.push(format!(
                "{:?}: {:?}: {}",
                violation.at, violation.kind, violation.text
            ));
        }
        self.servers = seen.len();
        let serving = |name: &String| {
            let pod = pods.iter().find(|p| p.name() == name);
            // A pod that is not wanted any more is not waited for.
            pod.is_none_or(|pod| {
                let process = machines.kubelets.process_of(pod.uid());
                let serves = process.is_some_and(|process| {
                    matches!(
                        machines.zoo.phase(process),
                        Phase::Leading | Phase::Following | Phase::Observing
                    )
                });
                serves && !pod.is_terminating()
            })
        };
        let gone = |name: &String| pods.iter().all(|p| p.name() != name);
        self.restarted
            .retain(|name| sight.stays(name) && (gone(name) || !serving(name)));
    }

    /// Looks at the status.
    pub fn status(&mut self, sight: &Sight<'_>, life: Circumstances) {
        // Events and the lease are written all the time, and the status may change its words for ever.
        let words = ["Lease", "Event", "ZooKeeperEnsemble"];
        let counts =
            (self.writes.iter()).filter(|(what, _)| !words.iter().any(|word| what.ends_with(word)));
        let writes = counts.map(|(_, count)| count).sum();
        let wrong = self.honesty.look(sight, life, writes);
        self.violations.extend(wrong);
    }

    /// Another actor changed pods: the pods that the operator restarted before do not count any more.
    pub fn forgive(&mut self) {
        self.restarted.clear();
        self.honesty.forgive();
    }
}

/// The ordinal in the name of a voter's pod; observers have names of another form.
fn ordinal(pod: &str) -> Option<u16> {
    let ordinal = pod.strip_prefix(NAME)?.strip_prefix('-')?;
    ordinal.parse().ok()
}

fn id_of(pod: &Object) -> Option<ServerId> {
    ordinal(pod.name()).map(|ordinal| ServerId(ordinal + 1))
}

/// Whether a restart would give a pod the same template. Where members change at run time, a template that differs in
/// the list only is the same.
pub fn is_of_template(pod: &Object, template: Option<&Value>, update: Option<&str>) -> bool {
    let note = |object: &Value, key: &str| object["metadata"]["annotations"][key].clone();
    let same = pod.label("controller-revision-hash") == update;
    same || template.is_some_and(|template| {
        let hash = note(pod, labels::TEMPLATE_HASH);
        let rest = !hash.is_null() && hash == note(template, labels::TEMPLATE_HASH);
        let restart = ROLLOUT_RESTART;
        let rest = rest && note(pod, restart) == note(template, restart);
        rest && note(pod, labels::LIST_VERSION) != note(template, labels::LIST_VERSION)
    })
}

/// Whether the list of a pod, or of a template, changes at run time.
pub fn is_at_run_time(object: &Value) -> bool {
    !object["metadata"]["annotations"][labels::LIST_VERSION].is_null()
}

/// The list that the server of a pod judges by.
fn judged(sight: &Sight<'_>, pod: &Object) -> Option<Voters> {
    let process = sight.machines.kubelets.process_of(pod.uid());
    match process.filter(|_| is_at_run_time(pod)) {
        Some(process) => Some(sight.machines.zoo.list_of(process)),
        None => list_of(pod),
    }
}

/// The list in the annotations of a pod or of a template: the one that the server of a pod judges quorums by, unless members change
/// at run time.
pub fn list_of(pod: &Value) -> Option<Voters> {
    let voters = pod["metadata"]["annotations"][labels::VOTERS].as_str();
    voters.and_then(|voters| voters.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observer_has_no_ordinal_among_the_voters() {
        assert_eq!(ordinal("zk-2"), Some(2));
        assert_eq!(ordinal("zk-observer-2"), None);
        assert_eq!(ordinal("other-2"), None);
    }
}
