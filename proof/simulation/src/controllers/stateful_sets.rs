//! The StatefulSet controller: `pkg/controller/statefulset` of Kubernetes for sets whose pods are managed in
//! parallel and replaced on deletion.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api_server::{Cache, Kind, Object, Store, label_selector_selects};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::earlier;
use super::revisions::{Revisions, find, truncate};
use super::stateful_pods::{
    Failure, claim_is_stale, create, create_claims, delete, ordinal, ordinals, own_claims,
};

pub(super) const ACTOR: &str = "statefulset-controller";

/// What the controller looks at.
const KINDS: [Kind; 4] = [
    Kind::STATEFUL_SET,
    Kind::POD,
    Kind::CLAIM,
    Kind::CONTROLLER_REVISION,
];

/// How long the controller waits after the first failure; every further one doubles it.
const FIRST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_secs(1000);

/// The StatefulSet controller.
#[derive(Debug, Default)]
pub struct StatefulSets {
    /// What it reads from; it may be behind.
    pub cache: Cache,
    /// The revisions at which it looked last.
    seen: Option<[u64; 4]>,
    /// How often each set failed, by its uid, and when it is tried again.
    failed: BTreeMap<String, (u32, Instant)>,
}

/// The reference of a dependent to the object that manages it.
pub(super) fn owner_reference(owner: &Object) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner.name(),
        "uid": owner.uid(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

impl StatefulSets {
    /// Does what is due.
    pub fn step(&mut self, store: &mut Store) -> Option<Instant> {
        let mut due = None;
        let reached = KINDS.map(|kind| {
            let (revision, wake) = self.cache.changed(kind, store);
            due = earlier(due, wake);
            revision
        });
        let now = Instant::now();
        let changed = self.seen != Some(reached);
        let retry = self.failed.values().any(|(_, at)| *at <= now);
        if changed || retry {
            self.seen = Some(reached);
            for set in self.cache.list(store, Kind::STATEFUL_SET, None) {
                let at = self.failed.get(set.uid()).map(|(_, at)| *at);
                if changed || at.is_some_and(|at| at <= now) {
                    self.sync(store, &set);
                }
            }
        }
        let retries = self.failed.values().map(|(_, at)| *at).min();
        earlier(due, retries)
    }

    fn sync(&mut self, store: &mut Store, set: &Arc<Object>) {
        let uid = set.uid().to_owned();
        match self.try_sync(store, set) {
            Ok(()) => {
                self.failed.remove(&uid);
            }
            Err(Failure(why)) => {
                tracing::debug!(set = set.name(), why, "a StatefulSet is tried again");
                let exists = store.get(Kind::STATEFUL_SET, set.namespace(), set.name());
                if exists.is_none_or(|now| now.uid() != uid) {
                    self.failed.remove(&uid);
                    return;
                }
                let now = Instant::now();
                let (count, at) = self.failed.entry(uid).or_insert((0, now));
                let wait = FIRST_WAIT * 2_u32.saturating_pow((*count).min(20));
                *count += 1;
                *at = now + wait.min(LONGEST_WAIT);
            }
        }
    }

    fn try_sync(&mut self, store: &mut Store, set: &Arc<Object>) -> Result<(), Failure> {
        let pods = self.pods(store, set)?;
        let revisions = find(store, &mut self.cache, set)?;
        let result = match set.is_terminating() {
            true => Ok(()),
            false => self.manage(store, set, &pods, &revisions.update),
        };
        let status = status(set, &pods, &revisions);
        if status != set["status"] {
            store.update_status_of(ACTOR, Kind::STATEFUL_SET, set, |now| *now = status)?;
        }
        truncate(store, set, &revisions, &pods);
        result
    }

    /// The pods of a set. A pod without an owner that looks like one is adopted.
    fn pods(&mut self, store: &mut Store, set: &Object) -> Result<Vec<Arc<Object>>, Failure> {
        let mut pods = Vec::new();
        for pod in self.cache.list(store, Kind::POD, Some(set.namespace())) {
            if ordinal(set, pod.name()).is_none() {
                continue;
            }
            match pod.controller() {
                Some(owner) if owner["uid"] == set.uid() => pods.push(pod),
                Some(_) => {}
                None => {
                    let labels = &pod["metadata"]["labels"];
                    let selected = label_selector_selects(&set["spec"]["selector"], labels);
                    if !selected || pod.is_terminating() || set.is_terminating() {
                        continue;
                    }
                    let at = (pod.namespace(), pod.name());
                    let uid = pod.uid().to_owned();
                    let adopted = store.update(ACTOR, Kind::POD, at, |pod| {
                        pod["metadata"]["uid"] = uid.into();
                        let owners = &mut pod["metadata"]["ownerReferences"];
                        match owners.as_array_mut() {
                            Some(owners) => owners.push(owner_reference(set)),
                            None => *owners = json!([owner_reference(set)]),
                        }
                    })?;
                    pods.push(adopted);
                }
            }
        }
        pods.sort_by_key(|pod| ordinal(set, pod.name()));
        Ok(pods)
    }

    fn manage(
        &mut self,
        store: &mut Store,
        set: &Object,
        pods: &[Arc<Object>],
        update: &str,
    ) -> Result<(), Failure> {
        let wanted: Vec<i64> = ordinals(set).collect();
        // One at first, then twice as many at a time, until one fails.
        let mut rest = wanted.as_slice();
        let mut size = 1;
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(size.min(rest.len()));
            let mut failure = None;
            for number in batch {
                let pod = pods
                    .iter()
                    .find(|p| ordinal(set, p.name()) == Some(*number));
                if let Err(error) = self.manage_one(store, set, *number, pod, update) {
                    failure = failure.or(Some(error));
                }
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
            (rest, size) = (after, size * 2);
        }
        let condemned = |pod: &&Arc<Object>| {
            ordinal(set, pod.name()).is_some_and(|number| !wanted.contains(&number))
        };
        for pod in pods.iter().rev().filter(condemned) {
            if let Some(number) = ordinal(set, pod.name()) {
                own_claims(store, set, number, Some(pod));
            }
            if !pod.is_terminating() {
                delete(store, set, pod)?;
            }
        }
        Ok(())
    }

    fn manage_one(
        &mut self,
        store: &mut Store,
        set: &Object,
        number: i64,
        pod: Option<&Arc<Object>>,
        update: &str,
    ) -> Result<(), Failure> {
        let Some(pod) = pod else {
            if claim_is_stale(store, &mut self.cache, set, number) {
                return Ok(());
            }
            return create(store, &mut self.cache, set, update, number);
        };
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        if matches!(phase, "Failed" | "Succeeded") {
            if pod.is_terminating() {
                return Ok(());
            }
            return delete(store, set, pod);
        }
        if phase == "Pending" {
            create_claims(store, &mut self.cache, set, number)?;
        }
        own_claims(store, set, number, Some(pod));
        Ok(())
    }
}

fn status(set: &Object, pods: &[Arc<Object>], revisions: &Revisions) -> Value {
    let count = |holds: &dyn Fn(&Object) -> bool| pods.iter().filter(|pod| holds(pod)).count();
    let ready = |pod: &Object| {
        let conditions = pod["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let is = conditions.any(|c| c["type"] == "Ready" && c["status"] == "True");
        is && pod["status"]["phase"] == "Running"
    };
    let of = |revision: &str| {
        count(&|pod: &Object| {
            !pod.is_terminating() && pod.label("controller-revision-hash") == Some(revision)
        })
    };
    let ready = count(&ready);
    let mut status = json!({
        "observedGeneration": set["metadata"]["generation"],
        "replicas": pods.len(),
        "availableReplicas": ready,
        "currentRevision": revisions.current,
        "updateRevision": revisions.update,
        "collisionCount": revisions.collisions,
    });
    // Those that are 0 are left out.
    for (field, count) in [
        ("readyReplicas", ready),
        ("currentReplicas", of(&revisions.current)),
        ("updatedReplicas", of(&revisions.update)),
    ] {
        if count > 0 {
            status[field] = count.into();
        }
    }
    status
}
