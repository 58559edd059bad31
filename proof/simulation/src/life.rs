//! One life of an ensemble: it is created, things happen to it, and in the end it has to be as asked for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::{Operator, Settings};
use bellwether_ensemble::validate::Context;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::acts::{Act, choose};
use crate::api_server::{Delete, Kind, Link, Propagation, Quota};
use crate::checks::Checks;
use crate::cluster::{Cluster, ENSEMBLE, NAME, NAMESPACE, NODES};
use crate::requests::{Requests, Trouble};
use crate::zookeeper::Phase;

/// How often the world moves on.
const TICK: Duration = Duration::from_millis(50);
/// How long an ensemble may take to be as asked for, once nothing goes wrong any more: a crash loop's pause
/// of five minutes, a start, and thirteen rolls.
const PATIENCE: Duration = Duration::from_secs(1500);
/// How long it is looked at afterwards.
const REST: Duration = Duration::from_secs(30);
/// The most reads in a second at rest.
const READS_AT_REST: f64 = 4.0;

/// What a life is made of.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// The acts that are left out, by number.
    pub without: Vec<usize>,
    /// Only these acts, instead of chosen ones.
    pub acts: Option<Vec<(Duration, Act)>>,
}

/// How a life went.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Story {
    /// The seed.
    pub seed: u64,
    /// What was violated.
    pub violations: Vec<String>,
    /// What happened, line by line.
    pub lines: Vec<String>,
    /// How many acts were chosen.
    pub acts: usize,
    /// How often what happened: acts, the operator's writes, phases and reasons of the status.
    pub coverage: BTreeMap<String, usize>,
    /// How long it was, in virtual seconds.
    pub seconds: f64,
    /// How many writes of the client were acknowledged.
    pub acknowledged: usize,
    /// What tells one history from another.
    pub digest: u64,
}

/// An operator's process.
struct Process {
    name: String,
    task: JoinHandle<anyhow::Result<()>>,
}

struct Life {
    cluster: Cluster,
    trouble: Arc<Mutex<Trouble>>,
    operators: Vec<Process>,
    started: usize,
    version: u32,
    spec: Value,
    deletes: bool,
    checks: Checks,
    story: Story,
    /// What ends by itself, and when.
    later: Vec<(Duration, Later)>,
    last_message: String,
    old_status: Option<Value>,
    lost_disk: Option<Duration>,
}

/// The end of something that lasts.
enum Later {
    StartOperator,
    Hear(String),
    Connect(String),
    GoodImage,
    Resume,
    Thaw(u16),
    RegainNode(usize),
    Heal(u16, u16),
    StopFailing,
    ThawCaches,
    EndQuota,
}

/// Lives through one life.
pub async fn live(options: &Options) -> Story {
    let mut rng = fastrand::Rng::with_seed(options.seed);
    let size = [1, 3, 3, 3, 5, 5][rng.usize(0..6)];
    let deletes = rng.u8(0..3) == 0;
    let replicas = if rng.u8(0..4) == 0 { 2 } else { 1 };
    let chosen = choose(&mut rng, size);
    let acts = options.acts.clone().unwrap_or(chosen);
    let mut life = Life::new(options.seed, size, deletes);
    life.story.acts = acts.len();
    for _ in 0..replicas {
        life.start_operator();
    }
    life.apply();
    let settle = Duration::from_millis(rng.u64(0..60_000));
    life.go_on(settle).await;
    for (number, (pause, act)) in acts.into_iter().enumerate() {
        life.go_on(pause).await;
        if !options.without.contains(&number) {
            life.act(&mut rng, number, act);
        }
    }
    life.end().await;
    life.finish()
}

impl Life {
    fn new(seed: u64, size: u16, deletes: bool) -> Self {
        let cluster = Cluster::new(seed, 2);
        let trouble = Arc::new(Mutex::new(Trouble::default()));
        cluster
            .api
            .set_faults(Requests::new(seed ^ 5, trouble.clone()));
        let policy = if deletes { "Delete" } else { "Retain" };
        let spec = json!({ "replicas": size, "storage": { "reclaimPolicy": policy } });
        Self {
            cluster,
            trouble,
            operators: Vec::new(),
            started: 0,
            version: 1,
            spec,
            deletes,
            checks: Checks::default(),
            story: Story {
                seed,
                ..Story::default()
            },
            later: Vec::new(),
            last_message: String::new(),
            old_status: None,
            lost_disk: None,
        }
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&mut self, line: &str) {
        let at = self.cluster.now().as_secs_f64();
        self.story.lines.push(format!("{at:9.3} {line}"));
    }

    fn count(&mut self, what: String) {
        *self.story.coverage.entry(what).or_default() += 1;
    }

    fn start_operator(&mut self) {
        self.started += 1;
        let name = format!("operator-{}", self.started);
        self.cluster.api.connect(&name, self.started % 2);
        let settings = Settings {
            identity: name.clone(),
            lease_namespace: "bellwether-system".to_owned(),
            lease_name: "bellwether".to_owned(),
            namespaces: vec![None],
            contribution: Context {
                member_image: format!("bellwether:{}", self.version),
                cluster_domain: "cluster.local".to_owned(),
                version: self.version.to_string(),
            },
        };
        let client = self.cluster.api.client(&name);
        let operator = Operator::new(settings, client, self.cluster.members(&name));
        let task = tokio::spawn(operator.run(std::future::pending()));
        self.tell(&format!("{name} starts"));
        self.operators.push(Process { name, task });
    }

    fn kill_operator(&mut self, at: usize, after: Duration) {
        let process = self.operators.remove(at);
        process.task.abort();
        self.trouble().dead.insert(process.name.clone());
        self.cluster.machines().deaf.insert(process.name.clone());
        self.tell(&format!("{} is dead", process.name));
        self.later(after, Later::StartOperator);
    }

    fn later(&mut self, after: Duration, what: Later) {
        self.later.push((self.cluster.now() + after, what));
    }

    /// The user applies the manifest.
    fn apply(&mut self) {
        let object = json!({
            "apiVersion": "zookeeper.bellwether.dev/v1alpha1",
            "kind": "ZooKeeperEnsemble",
            "metadata": { "name": NAME, "namespace": NAMESPACE },
            "spec": self.spec,
        });
        let target = (NAMESPACE, NAME);
        let applied = self
            .cluster
            .api
            .store()
            .apply("user", Kind::ENSEMBLE, target, object, true);
        if let Err(refusal) = applied {
            self.tell(&format!("the API server refuses the manifest: {refusal:?}"));
        }
    }

    async fn go_on(&mut self, duration: Duration) {
        let until = self.cluster.now() + duration;
        while self.cluster.now() < until && self.story.violations.is_empty() {
            self.tick().await;
        }
    }

    /// A moment passes.
    async fn tick(&mut self) {
        sleep(TICK).await;
        let now = self.cluster.now();
        bellwether_virtual_time::set(now);
        self.look();
        self.cluster.step();
        let due = self.later.iter().position(|(at, _)| *at <= now);
        if let Some(due) = due {
            let (_, what) = self.later.remove(due);
            self.end_of(what);
        }
        let died = std::mem::take(&mut self.trouble().died);
        for name in died {
            if let Some(at) = self.operators.iter().position(|p| p.name == name) {
                self.kill_operator(at, Duration::from_secs(2));
            }
        }
        if let Some(at) = self.operators.iter().position(|p| p.task.is_finished()) {
            let name = self.operators.remove(at).name;
            self.trouble().dead.insert(name.clone());
            self.tell(&format!("{name} has ended"));
            self.later(Duration::from_secs(1), Later::StartOperator);
        }
    }

    /// Looks at what happened since the last look.
    fn look(&mut self) {
        let now = self.cluster.now();
        let (writes, pods, ensemble, set) = {
            let mut store = self.cluster.api.store();
            let writes = store.take_writes();
            let pods: Vec<_> = store.list(Kind::POD, Some(NAMESPACE)).cloned().collect();
            let ensemble = store.get(Kind::ENSEMBLE, NAMESPACE, NAME).cloned();
            let set = store.get(Kind::STATEFUL_SET, NAMESPACE, NAME).cloned();
            (writes, pods, ensemble, set)
        };
        let update = set
            .as_ref()
            .and_then(|s| s["status"]["updateRevision"].as_str());
        let cluster = self.cluster.clone();
        let mut machines = cluster.machines();
        let operator = |actor: &str| actor.starts_with("operator-");
        {
            let wanted = self.spec["replicas"]
                .as_u64()
                .and_then(|r| u16::try_from(r).ok());
            self.checks.writes(
                now,
                &writes,
                operator,
                &machines,
                &pods,
                update,
                self.deletes,
                wanted.unwrap_or(0),
            )
        };
        self.checks
            .look(now, &mut machines, ensemble.as_deref(), &pods);
        let happenings = machines.zoo.take_happenings();
        drop(machines);
        for write in &writes {
            if ["kubelet", "scheduler"].contains(&&*write.actor)
                || [Kind::LEASE, Kind::EVENT].contains(&write.kind)
            {
                continue;
            }
            let result = match &write.result {
                Ok(_) => String::new(),
                Err((code, why)) => format!(": {code} {why}"),
            };
            let kind = write.kind.resource().name;
            let part = if write.subresource.is_empty() {
                ""
            } else {
                "'s "
            };
            self.tell(&format!(
                "{} {:?} {kind} {}{part}{}{result}",
                write.actor, write.verb, write.name, write.subresource
            ));
        }
        for happening in happenings {
            let at = happening.at.as_secs_f64();
            self.story
                .lines
                .push(format!("{at:9.3}   {}", happening.text));
        }
        if let Some(ensemble) = &ensemble {
            let status = &ensemble["status"];
            let phase = status["phase"].as_str().unwrap_or_default();
            let message = status["message"].as_str().unwrap_or_default();
            let text = format!("{phase}: {message}");
            if text != self.last_message {
                self.tell(&format!("STATUS {text}"));
                self.count(format!("phase {phase}"));
                for condition in status["conditions"].as_array().into_iter().flatten() {
                    let word = |key: &str| condition[key].as_str().unwrap_or_default();
                    let (type_, status, reason) = (word("type"), word("status"), word("reason"));
                    self.count(format!("condition {type_}={status} {reason}"));
                }
                self.last_message = text;
            }
        }
        for violation in std::mem::take(&mut self.checks.violations) {
            self.tell(&format!("VIOLATION {violation}"));
            self.story.violations.push(violation);
        }
    }

    fn pod(ordinal: u16) -> String {
        format!("{NAME}-{ordinal}")
    }

    fn edit_set(&self, change: impl FnOnce(&mut Value)) {
        let target = (NAMESPACE, NAME);
        let _ = self
            .cluster
            .api
            .store()
            .update("user", Kind::STATEFUL_SET, target, change);
    }

    fn delete(&self, kind: Kind, name: &str, options: &Delete) -> bool {
        let target = (NAMESPACE, name);
        self.cluster
            .api
            .store()
            .delete("user", kind, target, options)
            .is_ok()
    }

    /// Whether every member of the present size serves, so that one disk may be lost without losing writes.
    fn all_serve(&self) -> bool {
        let store = self.cluster.api.store();
        let pods: Vec<_> = store.list(Kind::POD, Some(NAMESPACE)).cloned().collect();
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

    #[allow(clippy::too_many_lines, reason = "one arm for each act")]
    fn act(&mut self, rng: &mut fastrand::Rng, number: usize, act: Act) {
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
            Act::BadImage(time) => {
                self.spec["image"] = json!("zookeeper:missing");
                self.apply();
                self.later(time, Later::GoodImage);
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
            // What runs on a lost node would go on with data that the user has deleted.
            Act::Recreate if self.deletes && cluster.machines().kubelets.has_lost_node() => {
                self.tell("not done: a node is lost");
            }
            Act::Recreate => {
                self.delete(Kind::ENSEMBLE, NAME, &Delete::default());
                if self.deletes {
                    cluster.machines().zoo.excuse(ENSEMBLE);
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
                set["spec"]["template"]["spec"]["containers"][0]["image"] =
                    json!("zookeeper:3.8.6");
            }),
            Act::DeleteOwned(kind, name) => {
                let kinds = [Kind::CONFIG_MAP, Kind::SERVICE, Kind::DISRUPTION_BUDGET];
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
            Act::LoseDisk(ordinal) => {
                let recent = self
                    .lost_disk
                    .is_some_and(|at| now < at + Duration::from_secs(30));
                if !recent && self.all_serve() {
                    self.lost_disk = Some(now);
                    self.delete(
                        Kind::CLAIM,
                        &format!("data-{NAME}-{ordinal}"),
                        &Delete::default(),
                    );
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
            Act::FailRequests(time) => {
                self.trouble().failing = true;
                self.later(time, Later::StopFailing);
            }
            Act::DieAfterWrite(writes) => self.trouble().dies_after = Some(writes),
            Act::LagCaches(time) => {
                cluster.api.freeze(0);
                self.later(time, Later::ThawCaches);
            }
            Act::GrowData => cluster.machines().zoo.set_size(ENSEMBLE, 500 << 20),
            Act::RestoreStatus => self.restore_status(),
            Act::Upgrade => {
                self.version += 1;
                if !self.operators.is_empty() {
                    self.kill_operator(0, Duration::from_secs(1));
                }
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

    fn restore_status(&mut self) {
        let Some(old) = self.old_status.clone().filter(Value::is_object) else {
            return;
        };
        let target = (NAMESPACE, NAME);
        let mut store = self.cluster.api.store();
        let _ = store.update_status("user", Kind::ENSEMBLE, target, |status| *status = old);
    }

    fn end_of(&mut self, what: Later) {
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
            Later::StopFailing => self.trouble().failing = false,
            Later::ThawCaches => cluster.api.thaw(0),
            Later::EndQuota => cluster.api.store().admission.quotas.clear(),
        }
    }

    /// Whether the ensemble is as asked for.
    fn is_as_asked(&self) -> bool {
        let store = self.cluster.api.store();
        let Some(ensemble) = store.get(Kind::ENSEMBLE, NAMESPACE, NAME) else {
            return false;
        };
        let wanted = self.spec["replicas"].as_u64().unwrap_or_default();
        let Some(set) = store.get(Kind::STATEFUL_SET, NAMESPACE, NAME) else {
            return false;
        };
        let update = set["status"]["updateRevision"].as_str();
        let pods: Vec<_> = store.list(Kind::POD, Some(NAMESPACE)).collect();
        let count = u64::try_from(pods.len()).unwrap_or_default();
        ensemble["status"]["phase"] == "Ready"
            && ensemble["status"]["observedGeneration"] == ensemble["metadata"]["generation"]
            && count == wanted
            && pods
                .iter()
                .all(|p| !p.is_terminating() && p.label("controller-revision-hash") == update)
    }

    /// Nothing goes wrong any more: in the end all is as asked for, and then it is quiet.
    async fn end(&mut self) {
        self.tell("END of faults");
        self.trouble().failing = false;
        self.trouble().dies_after = None;
        let faults = std::mem::take(&mut self.later);
        for (_, what) in faults {
            self.end_of(what);
        }
        let begin = self.cluster.now();
        loop {
            if !self.story.violations.is_empty() {
                return;
            }
            self.go_on(Duration::from_secs(2)).await;
            if self.is_as_asked() {
                break;
            }
            if self.cluster.now() > begin + PATIENCE {
                let message = self.last_message.clone();
                self.violate(format!(
                    "it is not as asked for after {PATIENCE:?}: {message}"
                ));
                return;
            }
        }
        // An operator that just started waits for the lease, and writes what it then sees.
        self.go_on(Duration::from_secs(40)).await;
        let before = self.trouble().clone();
        let written = self.checks.writes.clone();
        self.go_on(REST).await;
        self.cluster.machines().zoo.check(ENSEMBLE);
        self.look();
        let rest = |writes: &BTreeMap<String, usize>| {
            let mut writes = writes.clone();
            writes.retain(|what, _| !what.ends_with("Lease"));
            writes
        };
        let (before_writes, mut after) = (rest(&written), rest(&self.checks.writes));
        after.retain(|what, count| before_writes.get(what) != Some(count));
        if !after.is_empty() {
            self.violate(format!("the operator still writes at rest: {after:?}"));
        }
        let reads = self.trouble().reads - before.reads;
        #[allow(clippy::cast_precision_loss, reason = "a few hundred")]
        let rate = reads as f64 / REST.as_secs_f64();
        if rate > READS_AT_REST * 2.0 {
            self.violate(format!(
                "the operator reads {rate:.1} times a second at rest"
            ));
        }
    }

    fn violate(&mut self, what: String) {
        self.tell(&format!("VIOLATION {what}"));
        self.story.violations.push(what);
    }

    fn finish(mut self) -> Story {
        self.story.seconds = self.cluster.now().as_secs_f64();
        let machines = self.cluster.machines();
        self.story.acknowledged = machines.writer.acknowledged();
        self.story.digest = machines.zoo.digest();
        drop(machines);
        for (kind, count) in std::mem::take(&mut self.checks.writes) {
            *self
                .story
                .coverage
                .entry(format!("write {kind}"))
                .or_default() += count;
        }
        self.story
    }
}

impl Story {
    /// The story as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}
