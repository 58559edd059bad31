//! Who may write what, and when: the lease, the preconditions, and what a member must have seen before.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_api::labels;
use bellwether_api_server::{Kind, Object, Verb, Write};
use bellwether_ensemble::desired::bootstrap_config_map;

use super::{Sight, id_of, is_at_run_time, judged, ordinal};
use crate::cluster::NAME;
use crate::zookeeper::{Phase, ProcessId};

/// How long after its last renewal a holder of the lease may still write, and a request's way.
const LEASE: Duration = Duration::from_millis(10_500);
/// How long the operator's view may be outdated: it waits a second for a member that does not
/// answer, and looks twice before a step.
const UNKNOWN: Duration = Duration::from_millis(2500);
/// How far apart two looks are.
const LOOK: Duration = Duration::from_millis(50);

/// What is remembered between two looks.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Who holds the lease, and when it was renewed last.
    lease: (String, Duration),
    /// When an object that the operator writes with preconditions changed last: by kind and name.
    changed: BTreeMap<(Kind, String), Duration>,
    /// Whether an operator changed the StatefulSet since its controller ran.
    set_changed: bool,
    /// Since when the operator of this name cannot reach the members.
    deaf: BTreeMap<String, Duration>,
    /// Since when the pod of this name does not serve.
    down: BTreeMap<String, Duration>,
    /// Since when two members answer that they lead.
    two_lead: Option<Duration>,
    /// Since when the user wants nothing to be changed.
    paused: Option<Duration>,
}

impl Order {
    /// The controllers run between two looks.
    pub(super) fn begin(&mut self) {
        self.set_changed = false;
    }

    /// What is wrong with an operator's write, given all writes before.
    pub(super) fn judge(&self, sight: &Sight<'_>, write: &Write) -> Option<String> {
        if write.kind == Kind::LEASE {
            return None;
        }
        let wrong = self.without_lease(sight, write);
        let wrong = wrong.or_else(|| self.late(sight, write));
        wrong.or_else(|| match (write.verb, write.kind) {
            (Verb::Delete, Kind::POD) => self.restart(sight, write),
            (Verb::Delete, Kind::CLAIM) => self.deletion(sight),
            (_, Kind::STATEFUL_SET) if write.name == NAME => leaver(sight, write),
            _ => None,
        })
    }

    /// A write that was made long after the lease was renewed. That nothing is sent after another replica took
    /// the lease is judged where requests are made, since a stopped process may hold one up on its way.
    fn without_lease(&self, sight: &Sight<'_>, write: &Write) -> Option<String> {
        let (holder, renewed) = &self.lease;
        let asked = sent(sight, write).unwrap_or(sight.now);
        let since = asked.saturating_sub(*renewed);
        (*holder == *write.actor && since > LEASE)
            .then(|| format!("{since:?} after it had renewed the lease"))
    }

    /// A request that was long on its way acts on an object that changed meanwhile.
    fn late(&self, sight: &Sight<'_>, write: &Write) -> Option<String> {
        let guarded = match write.kind {
            Kind::STATEFUL_SET | Kind::POD | Kind::CLAIM => write.verb != Verb::Create,
            _ => write.name == bootstrap_config_map(NAME),
        };
        let sent = sent(sight, write).filter(|_| guarded)?;
        let changed = *self.changed.get(&(write.kind, write.name.clone()))?;
        (changed > sent + LOOK).then(|| "which had changed since that was asked for".to_owned())
    }

    fn restart(&self, sight: &Sight<'_>, write: &Write) -> Option<String> {
        let before = write.before.as_ref()?;
        let long = |since: Duration| sight.now >= since + UNKNOWN;
        let paused = sight.ensemble.is_some_and(|e| e["spec"]["paused"] == true);
        if paused && self.paused.is_some_and(long) {
            return Some("although the user had paused the ensemble".to_owned());
        }
        if before.label(labels::COMPONENT).is_some() {
            return None;
        }
        if self.set_changed {
            let text =
                "before the StatefulSet's controller had seen the template written before it";
            return Some(text.to_owned());
        }
        if self.two_lead.is_some_and(long) {
            return Some("while two members said that they lead".to_owned());
        }
        let deaf = self.deaf.get(&*write.actor).copied();
        // It may hear again since the last look.
        let deaf = deaf.filter(|_| sight.machines.deaf.contains(&*write.actor));
        (deaf.is_some_and(long) && serves(sight, before))
            .then(|| "which serves, although it could ask no member".to_owned())
    }

    /// Rejects the deletion of a claim while a member that stays does not serve: it may need the claim's data.
    fn deletion(&self, sight: &Sight<'_>) -> Option<String> {
        let long = |since: &Duration| sight.now >= *since + UNKNOWN;
        let stays = |o: u16| o < sight.wanted;
        let serves = |name: &str| {
            let pod = sight.pods.iter().find(|pod| pod.name() == name);
            pod.is_some_and(|pod| serves(sight, pod))
        };
        let mut down = (self.down.iter()).filter(|(name, since)| long(since) && !serves(name));
        let (name, _) = down.find(|(name, _)| ordinal(name).is_some_and(stays))?;
        Some(format!("while {name}, which stays, did not serve"))
    }

    /// Remembers a write of anybody.
    pub(super) fn note(&mut self, now: Duration, write: &Write) {
        let Ok(after) = &write.result else { return };
        let revision = |object: &Object| object.revision();
        let (was, is) = (
            write.before.as_deref().map(revision),
            after.as_deref().map(revision),
        );
        if was == is {
            return;
        }
        if write.kind == Kind::LEASE {
            let holder = after
                .as_ref()
                .and_then(|lease| lease["spec"]["holderIdentity"].as_str());
            self.lease = (holder.unwrap_or_default().to_owned(), now);
        }
        let kinds = [Kind::STATEFUL_SET, Kind::POD, Kind::CLAIM, Kind::CONFIG_MAP];
        if kinds.contains(&write.kind) {
            self.changed.insert((write.kind, write.name.clone()), now);
        }
        if write.kind == Kind::STATEFUL_SET
            && write.name == NAME
            && write.actor.starts_with("operator-")
        {
            let generation = |object: &Object| object["metadata"]["generation"].clone();
            let (before, after) = (write.before.as_deref(), after.as_deref());
            self.set_changed |= before.map(generation) != after.map(generation);
        }
    }

    /// Looks at the members.
    pub(super) fn look(&mut self, sight: &Sight<'_>) {
        let now = sight.now;
        let deaf = &sight.machines.deaf;
        self.deaf.retain(|name, _| deaf.contains(name));
        for name in deaf {
            self.deaf.entry(name.clone()).or_insert(now);
        }
        let down: Vec<&str> = (sight.pods.iter())
            .filter(|pod| pod.label(labels::COMPONENT).is_none() && !serves(sight, pod))
            .map(|pod| pod.name())
            .collect();
        self.down.retain(|name, _| down.contains(&name.as_str()));
        for name in down {
            self.down.entry(name.to_owned()).or_insert(now);
        }
        let paused = sight.ensemble.is_some_and(|e| e["spec"]["paused"] == true);
        self.paused = paused.then(|| self.paused.unwrap_or(now));
        let reachable = sight.machines.kubelets.processes();
        let leads = |process: &&ProcessId| sight.machines.zoo.says_it_leads(**process);
        let two = reachable.iter().filter(leads).count() > 1;
        self.two_lead = two.then(|| self.two_lead.unwrap_or(now));
    }
}

/// Whether the server of this pod serves.
fn serves(sight: &Sight<'_>, pod: &Object) -> bool {
    let process = sight.machines.kubelets.process_of(pod.uid());
    let phase = process.map(|process| sight.machines.zoo.phase(process));
    matches!(phase, Some(Phase::Leading | Phase::Following))
}

/// A pod is given up although a member that stays still counts its vote.
fn leaver(sight: &Sight<'_>, write: &Write) -> Option<String> {
    let replicas = |object: &Object| object["spec"]["replicas"].as_u64();
    let after = write
        .result
        .as_ref()
        .ok()?
        .as_ref()
        .and_then(|o| replicas(o))?;
    if write.before.as_ref().and_then(|o| replicas(o))? <= after {
        return None;
    }
    let stays = |o: u16| u64::from(o) < after;
    let mut staying = (sight.pods.iter())
        .filter(|pod| !pod.is_terminating() && ordinal(pod.name()).is_some_and(stays));
    let leavers: Vec<_> = (sight.pods.iter())
        .filter(|pod| !ordinal(pod.name()).is_some_and(stays))
        .filter_map(|pod| id_of(pod))
        .collect();
    let counts = |pod: &Object| {
        let process = sight.machines.kubelets.process_of(pod.uid());
        let leads = |process| sight.machines.zoo.says_it_leads(process);
        // Where members change at run time, others may learn later of what their leader knows.
        let knows = !is_at_run_time(pod) || process.is_some_and(leads);
        let list = judged(sight, pod).filter(|_| knows);
        list.is_some_and(|list| leavers.iter().any(|l| list.contains(*l)))
    };
    let pod = staying.find(|pod| counts(pod))?;
    Some(format!(
        "and gave up a pod whose vote {} counts",
        pod.name()
    ))
}

/// When the request for this write was sent.
fn sent(sight: &Sight<'_>, write: &Write) -> Option<Duration> {
    write
        .sent
        .map(|sent| sight.now.saturating_sub(sent.elapsed()))
}
