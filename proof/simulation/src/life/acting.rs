//! What the acts of a life do to the cluster, and how they end.

use std::time::Duration;

use bellwether_api_server::{Delete, Kind, Link, Propagation, Quota};
use bellwether_ensemble::desired::claims::log_claim;
use bellwether_ensemble::desired::stateful_set::{CONTAINER, ROLLOUT_RESTART};
use serde_json::{Value, json};

use super::scripted::merge;
use super::{Later, Life, webhooks};
use crate::acts::{Act, Change};
use crate::cluster::{ENSEMBLE, NAME, NAMESPACE, NODES};
use crate::zookeeper::Phase;

/// Another image of the release that the operator runs by default.
const OTHER_IMAGE: &str = "mirror.example/zookeeper:3.9.5";

/// How long an operator waits at most before it tries again what failed.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

impl Life {
    pub(super) fn pod(ordinal: u16) -> String {
        format!("{NAME}-{ordinal}")
    }

    pub(super) fn edit_set(&self, change: impl FnOnce(&mut Value)) {
        let target = (NAMESPACE, NAME);
        let _ = self
            .cluster
            .api
            .store()
            .update("user", Kind::STATEFUL_SET, target, change);
    }

    pub(super) fn delete(&self, kind: Kind, name: &str, options: &Delete) -> bool {
        let target = (NAMESPACE, name);
        self.cluster
            .api
            .store()
            .delete("user", kind, target, options)
            .is_ok()
    }

    /// Volume claims that are not deleted with the ensemble: the operator has not made it their owner yet.
    fn unowned_claims(&self) -> Vec<String> {
        let store = self.cluster.api.store();
        let claims = store.list(Kind::CLAIM, Some(NAMESPACE));
        let unowned = claims.filter(|claim| claim["metadata"]["ownerReferences"][0].is_null());
        unowned.map(|claim| claim.name().to_owned()).collect()
    }

    /// Deletes the volume claims that the deleted ensemble left, once the status asks for that.
    pub(super) fn delete_left_over(&mut self) {
        let asks = {
            let store = self.cluster.api.store();
            let ensemble = store.get(Kind::ENSEMBLE, NAMESPACE, NAME);
            let conditions = ensemble.map(|e| e["status"]["conditions"].clone());
            let conditions = conditions.as_ref().and_then(Value::as_array);
            let asks = |c: &Value| c["type"] == "Stalled" && c["reason"] == "VolumesLeftOver";
            conditions.is_some_and(|all| all.iter().any(asks))
        };
        if !asks {
            return;
        }
        for claim in std::mem::take(&mut self.left_over) {
            self.tell(&format!("the user deletes {claim}, as the status asks"));
            self.delete(Kind::CLAIM, &claim, &Delete::default());
        }
    }

    /// Whether every member of the present size serves, so that one disk may be lost without losing writes.
    fn all_serve(&self) -> bool {
        let store = self.cluster.api.store();
        let pods = super::observing::voters(&store);
        let ready = store.get(Kind::ENSEMBLE, NAMESPACE, NAME);
        let ready = ready.is_some_and(|e| e["status"]["phase"] == "Ready");
        drop(store);
        let machines = self.cluster.machines();
        ready
            && pods.len() >= 3
            && pods.iter().all(|pod| {
                let process = machines.kubelets.process_of(pod.uid());
                process.is_some_and(|p| {
                    matches!(machines.zoo.phase(p), Phase::Leading | Phase::Following)
                })
            })
    }

    /// Whether one member may lose its disk: the others have everything, and its pod can be deleted at once.
    fn may_lose_disk(&self) -> bool {
        let now = self.cluster.now();
        let recent = self
            .lost_disk
            .is_some_and(|at| now < at + Duration::from_secs(30));
        !recent && !self.pods_cannot_be_deleted() && self.all_serve()
    }

    /// Whether an admission webhook may refuse the deletion of a pod, whose claim would then go later.
    pub(super) fn pods_cannot_be_deleted(&self) -> bool {
        let refuses = |later: &Later| matches!(later, Later::AllowWrites(_));
        self.later.iter().any(|(_, later)| refuses(later))
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each act")]
    pub(super) fn act(&mut self, rng: &mut fastrand::Rng, number: usize, act: Act) {
        self.tell(&format!("ACT {number}: {act}"));
        self.count(format!("act {}", act.word()));
        let now = self.cluster.now();
        let cluster = self.cluster.clone();
        let processes = |ordinal: u16| {
            cluster
                .machines()
                .kubelets
                .processes_named(&Self::pod(ordinal))
        };
        match act {
            Act::Resize(size) => {
                self.spec["replicas"] = json!(size);
                self.apply();
            }
            Act::Configure(count) => {
                self.spec["config"] = json!({ "snapCount": count });
                self.apply();
            }
            Act::Edit(edit) => {
                merge(&mut self.spec, edit.fields());
                self.apply();
            }
            Act::BadImage(time) => {
                self.spec["image"] = json!("zookeeper:missing");
                self.apply();
                self.later(time, Later::GoodImage);
            }
            Act::ResizeWith(size, change) => {
                let before = self.spec["replicas"].clone();
                self.spec["replicas"] = json!(size);
                match change {
                    Change::Setting(count) => self.spec["config"] = json!({ "snapCount": count }),
                    Change::Image => self.spec["image"] = json!(OTHER_IMAGE),
                    Change::BadImage(time) => {
                        self.spec["image"] = json!("zookeeper:missing");
                        self.later(time, Later::TakeBack(before));
                    }
                }
                self.apply();
            }
            Act::RolloutUndo(back) => self.undo_rollout(back),
            Act::RolloutRestart => {
                let at = format!("{now:?}");
                self.edit_set(|set| {
                    let template = &mut set["spec"]["template"]["metadata"];
                    template["annotations"][ROLLOUT_RESTART] = json!(at);
                });
            }
            Act::Pause(time) => {
                self.spec["paused"] = json!(true);
                self.apply();
                self.later(time, Later::Resume);
            }
            Act::Restart => {
                let at = format!("{now:?}");
                let target = (NAMESPACE, NAME);
                let _ = cluster
                    .api
                    .store()
                    .update("user", Kind::ENSEMBLE, target, |ensemble| {
                        let key = bellwether_api::labels::RESTART_AT;
                        ensemble["metadata"]["annotations"][key] = json!(at);
                    });
            }
            // A process on a lost node would keep serving data that the user has deleted.
            Act::Recreate if self.deletes && cluster.machines().kubelets.has_lost_node() => {
                self.tell("not done: a node is lost");
            }
            Act::ScaleSet(_)
            | Act::DeletePod(_)
            | Act::ForceDelete(_)
            | Act::LoseDisk(_)
            | Act::LoseOneDisk { .. }
                if self.template_is_foreign() =>
            {
                self.tell("not done: a pod that is made now runs a foreign server list");
            }
            Act::Recreate => {
                self.delete(Kind::ENSEMBLE, NAME, &Delete::default());
                if self.deletes {
                    self.left_over = self.unowned_claims();
                    cluster.machines().zoo.excuse(ENSEMBLE);
                    self.deleted = cluster.machines().kubelets.processes();
                }
                self.apply();
            }
            Act::DeleteSet { orphan } => {
                let policy = if orphan {
                    Propagation::Orphan
                } else {
                    Propagation::Background
                };
                let options = Delete {
                    propagation_policy: Some(policy),
                    ..Delete::default()
                };
                self.delete(Kind::STATEFUL_SET, NAME, &options);
                self.checks.forgive();
            }
            Act::ScaleSet(size) => {
                self.edit_set(|set| set["spec"]["replicas"] = json!(size));
                self.checks.forgive();
            }
            Act::EditImage => self.edit_set(|set| {
                let containers = set["spec"]["template"]["spec"]["containers"].as_array_mut();
                let mut containers = containers.into_iter().flatten();
                if let Some(server) = containers.find(|c| c["name"] == CONTAINER) {
                    server["image"] = json!("zookeeper:3.8.6");
                }
            }),
            Act::DeleteOwned(kind, name) => {
                let kinds = [
                    Kind::CONFIG_MAP,
                    Kind::SECRET,
                    Kind::SERVICE,
                    Kind::DISRUPTION_BUDGET,
                    Kind::NETWORK_POLICY,
                ];
                let kind = kinds.into_iter().find(|k| k.resource().name == kind);
                if let Some(kind) = kind {
                    self.delete(kind, name, &Delete::default());
                }
            }
            Act::DeletePod(ordinal) => {
                self.delete(Kind::POD, &Self::pod(ordinal), &Delete::default());
            }
            Act::ForceDelete(ordinal) => {
                let options = Delete {
                    grace_period_seconds: Some(0),
                    ..Delete::default()
                };
                self.delete(Kind::POD, &Self::pod(ordinal), &options);
            }
            Act::LoseOneDisk {
                ordinal,
                log,
                noticed,
            } => {
                if self.may_lose_disk() && self.has_transaction_log() {
                    self.lose_one_disk(ordinal, log, noticed);
                } else {
                    self.tell("not done: a disk is not lost while another member is down");
                }
            }
            Act::Observers(act) => self.act_on_observers(&act),
            Act::LoseDisk(ordinal) => {
                if self.may_lose_disk() {
                    self.lost_disk = Some(now);
                    self.delete(
                        Kind::CLAIM,
                        &format!("data-{NAME}-{ordinal}"),
                        &Delete::default(),
                    );
                    // One without the other is another act.
                    self.delete(Kind::CLAIM, &log_claim(NAME, ordinal), &Delete::default());
                    self.delete(Kind::POD, &Self::pod(ordinal), &Delete::default());
                } else {
                    self.tell("not done: a disk is not lost while another member is down");
                }
            }
            Act::Crash(ordinal) => {
                let mut machines = cluster.machines();
                let machines = &mut *machines;
                machines
                    .kubelets
                    .kill(now, &mut machines.zoo, &Self::pod(ordinal));
            }
            Act::Freeze(ordinal, time) => {
                for process in processes(ordinal) {
                    cluster.machines().zoo.freeze(now, process);
                }
                self.later(time, Later::Thaw(ordinal));
            }
            Act::LoseNode(ordinal, time) => {
                let mut machines = cluster.machines();
                let machines = &mut *machines;
                let node = machines.kubelets.node_of(&Self::pod(ordinal));
                let node = node.unwrap_or_else(|| rng.usize(0..NODES));
                machines.kubelets.lose_node(now, &mut machines.zoo, node);
                self.later(time, Later::RegainNode(node));
            }
            Act::Cut(a, b, time) => {
                if let (Some(from), Some(to), true) =
                    (processes(a).first(), processes(b).first(), a != b)
                {
                    cluster.machines().zoo.cut_both(now, *from, *to);
                }
                self.later(time, Later::Heal(a, b));
            }
            Act::KillOperator(time) if !self.operators.is_empty() => self.kill_operator(0, time),
            Act::KillOperator(_) => {}
            Act::DeafOperator(time) => {
                if let Some(name) = self.operators.first().map(|p| p.name.clone()) {
                    cluster.machines().deaf.insert(name.clone());
                    self.later(time, Later::Hear(name));
                }
            }
            Act::CutOperator(time) => {
                if let Some(name) = self.operators.first().map(|p| p.name.clone()) {
                    for front_end in 0..2 {
                        cluster.api.set_link(&name, front_end, Link::Silent);
                    }
                    self.later(time, Later::Connect(name));
                }
            }
            Act::StopOperator(after, time) => self.stop_operator(after, time),
            Act::FailRequests(time) => {
                self.trouble().failing = true;
                self.later(time, Later::StopFailing);
            }
            Act::DieAfterWrite(writes) => self.trouble().dies_after = Some(writes),
            Act::LagCaches(time) => {
                cluster.api.freeze(0);
                self.later(time, Later::ThawCaches(0));
            }
            Act::GoBack(lag, time) => {
                if let Some(operator) = self.operators.first() {
                    let (name, other) = (operator.name.clone(), 1 - operator.front_end);
                    cluster.api.freeze(other);
                    self.later(lag, Later::Move(name, other));
                    self.later(lag + time, Later::ThawCaches(other));
                }
            }
            Act::GrowData => cluster.machines().zoo.set_size(ENSEMBLE, 500 << 20),
            Act::RestoreStatus => self.restore_status(),
            Act::Upgrade => {
                self.version += 1;
                if !self.operators.is_empty() {
                    self.kill_operator(0, Duration::from_secs(1));
                }
            }
            Act::RefuseWrites(kind, answers, time) => {
                webhooks::refuse(&mut cluster.api.store().admission, kind, answers);
                self.later(time, Later::AllowWrites(kind));
            }
            Act::ChangeWrites(kind, injection) => {
                webhooks::change(&mut cluster.api.store().admission, kind, injection);
            }
            Act::Quota(time) => {
                cluster.api.store().admission.quotas.push(Quota {
                    name: "few".to_owned(),
                    namespace: NAMESPACE.to_owned(),
                    kind: Kind::POD,
                    most: 2,
                });
                self.later(time, Later::EndQuota);
            }
        }
        let ensemble = cluster
            .api
            .store()
            .get(Kind::ENSEMBLE, NAMESPACE, NAME)
            .cloned();
        self.old_status
            .get_or_insert_with(|| ensemble.map(|e| e["status"].clone()).unwrap_or_default());
    }

    /// Stops the process of the operator that holds the lease. Another one is there to take over.
    fn stop_operator(&mut self, after: Option<u16>, time: Duration) {
        if self.operators.len() < 2 {
            self.start_operator();
        }
        let holder = self.trouble().holder.clone();
        match (after, holder) {
            (Some(requests), _) => self.trouble().stops_after = Some((requests, time)),
            (None, Some(name)) => {
                self.cluster.api.stops().stop(&name);
                self.stopped(name, time);
            }
            (None, None) => self.tell("not done: no operator holds the lease"),
        }
    }

    /// The process of an operator was stopped.
    pub(super) fn stopped(&mut self, name: String, time: Duration) {
        self.tell(&format!("{name} is stopped for {time:?}"));
        self.later(time, Later::Continue(name));
    }

    /// Looks for no write that was acknowledged until the last server of a deleted ensemble has ended.
    pub(super) fn excuse_deleted(&mut self) {
        if !self.deleted.is_empty() {
            let mut machines = self.cluster.machines();
            machines.zoo.excuse(ENSEMBLE);
            self.deleted
                .retain(|process| machines.zoo.phase(*process) != Phase::Down);
        }
    }

    fn restore_status(&mut self) {
        let Some(old) = self.old_status.clone().filter(Value::is_object) else {
            return;
        };
        let target = (NAMESPACE, NAME);
        let mut store = self.cluster.api.store();
        let _ = store.update_status("user", Kind::ENSEMBLE, target, |status| *status = old);
    }

    pub(super) fn end_of(&mut self, what: Later) {
        let now = self.cluster.now();
        let cluster = self.cluster.clone();
        match what {
            Later::StartOperator => self.start_operator(),
            Later::Hear(name) => {
                if self.operators.iter().any(|p| p.name == name) {
                    cluster.machines().deaf.remove(&name);
                }
            }
            Later::Connect(name) => {
                for front_end in 0..2 {
                    cluster.api.set_link(&name, front_end, Link::Up);
                }
            }
            Later::GoodImage => {
                if let Some(spec) = self.spec.as_object_mut() {
                    spec.remove("image");
                }
                self.apply();
            }
            Later::Continue(name) => {
                self.tell(&format!("{name} continues"));
                cluster.api.stops().resume(&name);
            }
            Later::TakeBack(size) => {
                self.spec["replicas"] = size;
                self.end_of(Later::GoodImage);
            }
            Later::Resume => {
                self.spec["paused"] = json!(false);
                self.apply();
            }
            Later::Thaw(ordinal) => {
                let processes = cluster
                    .machines()
                    .kubelets
                    .processes_named(&Self::pod(ordinal));
                for process in processes {
                    cluster.machines().zoo.thaw(now, process);
                }
            }
            Later::ThawPod(pod) => self.thaw_pod(&pod),
            Later::LookAtDisks => self.replace_disks(),
            Later::RegainNode(node) => {
                let mut machines = cluster.machines();
                let machines = &mut *machines;
                machines.kubelets.regain_node(now, &mut machines.zoo, node);
            }
            Later::Heal(a, b) => {
                let named = |o| cluster.machines().kubelets.processes_named(&Self::pod(o));
                let (all_a, all_b) = (named(a), named(b));
                for (from, to) in all_a
                    .iter()
                    .flat_map(|a| all_b.iter().map(move |b| (*a, *b)))
                {
                    cluster.machines().zoo.heal(now, from, to);
                }
            }
            Later::StopFailing => {
                self.trouble().failing = false;
                self.retries_until = now + LONGEST_RETRY;
            }
            Later::ThawCaches(front_end) => cluster.api.thaw(front_end),
            Later::Move(name, front_end) => {
                if let Some(process) = self.operators.iter_mut().find(|p| p.name == name) {
                    process.front_end = front_end;
                    cluster.api.connect(&name, front_end);
                    self.tell(&format!("{name} moves to API server {front_end}"));
                }
            }
            Later::AllowWrites(kind) => {
                webhooks::allow(&mut cluster.api.store().admission, kind);
            }
            Later::EndQuota => cluster.api.store().admission.quotas.clear(),
        }
    }
}
