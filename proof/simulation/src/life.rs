//! One life of an ensemble: it is created, things happen to it, and in the end it has to be as asked for.

mod acting;
mod disks;
mod ending;
mod fresh;
mod observing;
mod scripted;
mod undo;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::{Guards, Permissions};
use bellwether_api_server::Kind;
use bellwether_ensemble::desired::observers::set_name;
use bellwether_ensemble::rules::Rules;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::acts::{Variety, choose};
use crate::checks::{Checks, ObserverSight, Sight, list_of};
use crate::cluster::{Cluster, NAME, NAMESPACE};
use crate::elections::session::NoServers;
use crate::operator::{Process, Start};
use crate::requests::{Requests, Trouble};
use crate::script::Script;
use crate::zookeeper::ProcessId;

/// How often the world moves on.
const TICK: Duration = Duration::from_millis(50);
/// How often the status is looked at.
const GLANCE: Duration = Duration::from_millis(500);
/// What a life is made of.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// The acts that are left out, by number.
    pub without: Vec<usize>,
    /// The safety rules that the operator keeps.
    pub rules: Rules,
    /// What its mirror does so that nothing deceives it.
    pub guards: Guards,
    /// What happens, instead of chosen acts.
    pub script: Option<Script>,
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
    /// A number that two histories share only if they are the same.
    pub digest: u64,
}

struct Life {
    cluster: Cluster,
    /// The virtual time that had passed when this life began.
    before: Duration,
    trouble: Arc<Mutex<Trouble>>,
    operators: Vec<Process>,
    started: usize,
    /// What decides about the clocks of operators, where they differ from the cluster's.
    clocks: Option<fastrand::Rng>,
    rules: Rules,
    version: u32,
    spec: Value,
    deletes: bool,
    checks: Checks,
    story: Story,
    /// What ends by itself, and when.
    later: Vec<(Duration, Later)>,
    last_message: String,
    /// When the status is looked at next.
    next_glance: Duration,
    old_status: Option<Value>,
    lost_disk: Option<Duration>,
    /// Whether a person has accepted the loss of disks that never held a write.
    accepted_nothing: bool,
    /// The members that have lost one of their two volumes.
    half: BTreeSet<u16>,
    /// The servers of an ensemble that was deleted with its data: what they still acknowledge is lost.
    deleted: Vec<ProcessId>,
    /// Volume claims that a deleted ensemble left although its policy deletes them: the operator had not made
    /// them the ensemble's property yet. A person has to delete them.
    left_over: Vec<String>,
    /// Whether the API server refused the user's last change. The user saw the refusal at once.
    refused: bool,
    /// Until when operators may wait before they try again, since requests failed.
    retries_until: Duration,
    remembered: scripted::Remembered,
}

/// The end of something that lasts.
enum Later {
    StartOperator,
    Hear(String),
    Connect(String),
    GoodImage,
    TakeBack(Value),
    Continue(String),
    Resume,
    Thaw(u16),
    ThawPod(String),
    LookAtDisks,
    RegainNode(usize),
    Heal(u16, u16),
    StopFailing,
    ThawCaches(usize),
    Move(String, usize),
    EndQuota,
    AllowWrites(&'static str),
}

/// Prepares what every life needs, so that the copies of this process need not do it. It is done on a thread of
/// its own: hash maps of this thread are seeded only when its life has begun.
pub fn prepare() {
    // A thread that fails leaves the work to the lives.
    let _ = std::thread::spawn(bellwether_api_server::prepare).join();
}

/// Lives through one life.
pub async fn live(options: &Options) -> Story {
    let mut rng = fastrand::Rng::with_seed(options.seed);
    let size = [1, 3, 3, 3, 5, 5][rng.usize(0..6)];
    let deletes = rng.u8(0..3) == 0;
    let replicas = if rng.u8(0..4) == 0 { 2 } else { 1 };
    if let Some(script) = &options.script {
        return scripted::follow(options, script, rng).await;
    }
    let acts = choose(&mut rng, size);
    let mut variety = Variety::of(options.seed);
    let acts = variety.mix(acts, size);
    // The operators' clocks may differ from the cluster's, and from each other.
    let differ = rng.u8(0..3) == 0;
    let mut life = Life::new(options, size, deletes);
    variety.ask(&mut life.spec);
    life.clocks = differ.then(|| fastrand::Rng::with_seed(options.seed ^ 6));
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
    if life.story.violations.is_empty() {
        life.compare_with_fresh().await;
    }
    life.finish()
}

/// Amounts that the API server writes in other words.
fn unusual_amounts(spec: &mut Value) {
    spec["storage"]["size"] = json!("2048Mi");
    spec["jvm"] = json!({ "heap": "1024Mi" });
    spec["pod"] = json!({ "resources": {
        "requests": { "cpu": "0.5", "memory": "2048Mi" },
        "limits": { "cpu": "2000m", "memory": "3072Mi" },
    } });
}

impl Life {
    fn new(options: &Options, size: u16, deletes: bool) -> Self {
        let seed = options.seed;
        let cluster = Cluster::new(seed, 2);
        let trouble = Arc::new(Mutex::new(Trouble::default()));
        cluster.api.set_faults(Requests::new(
            seed ^ 5,
            trouble.clone(),
            cluster.api.stops().clone(),
        ));
        let policy = if deletes { "Delete" } else { "Retain" };
        let mut spec = json!({ "replicas": size, "storage": { "reclaimPolicy": policy } });
        if options.seed.is_multiple_of(3) {
            unusual_amounts(&mut spec);
        }
        Self {
            cluster,
            before: Duration::ZERO,
            trouble,
            operators: Vec::new(),
            started: 0,
            clocks: None,
            rules: options.rules,
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
            next_glance: Duration::ZERO,
            old_status: None,
            lost_disk: None,
            accepted_nothing: false,
            half: BTreeSet::new(),
            deleted: Vec::new(),
            left_over: Vec::new(),
            refused: false,
            retries_until: Duration::ZERO,
            remembered: scripted::Remembered::default(),
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
        let ahead = self.clocks.as_mut().map_or(0, |rng| rng.i64(-120..=120));
        let start = Start {
            number: self.started,
            ahead,
            version: self.version,
            permissions: Permissions::default(),
            rules: self.rules,
            guards: Guards::ALL,
        };
        let name = start.name();
        let process = start.run(&self.cluster, Arc::new(NoServers));
        let clock = match ahead {
            0 => String::new(),
            ahead => format!(", its clock {ahead} s ahead of the cluster's"),
        };
        self.tell(&format!("{name} starts{clock}"));
        self.operators.push(process);
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
        self.refused = applied.is_err();
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
        bellwether_virtual_time::set(self.before + now);
        self.look();
        self.cluster.step();
        self.excuse_deleted();
        let due = self.later.iter().position(|(at, _)| *at <= now);
        if let Some(due) = due {
            let (_, what) = self.later.remove(due);
            self.end_of(what);
        }
        let strays = std::mem::take(&mut self.trouble().strays);
        for stray in strays {
            self.violate(stray);
        }
        let stopped = std::mem::take(&mut self.trouble().stopped);
        for (name, time) in stopped {
            self.stopped(name, time);
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
        let (writes, pods, ensemble, set, observers) = {
            let mut store = self.cluster.api.store();
            let writes = store.take_writes();
            let pods: Vec<_> = store.list(Kind::POD, Some(NAMESPACE)).cloned().collect();
            let ensemble = store.get(Kind::ENSEMBLE, NAMESPACE, NAME).cloned();
            let set = store.get(Kind::STATEFUL_SET, NAMESPACE, NAME).cloned();
            let observers = set_name(NAME);
            let observers = store
                .get(Kind::STATEFUL_SET, NAMESPACE, &observers)
                .cloned();
            (writes, pods, ensemble, set, observers)
        };
        let update = set
            .as_ref()
            .and_then(|s| s["status"]["updateRevision"].as_str());
        let glance = now >= self.next_glance;
        let circumstances = glance.then(|| self.circumstances());
        if glance {
            self.next_glance = now + GLANCE;
        }
        let cluster = self.cluster.clone();
        let mut machines = cluster.machines();
        let wanted = self.spec["replicas"].as_u64();
        let sight = Sight {
            now,
            machines: &machines,
            ensemble: ensemble.as_deref(),
            pods: &pods,
            update_revision: update,
            observers: ObserverSight {
                update_revision: (observers.as_ref())
                    .and_then(|s| s["status"]["updateRevision"].as_str()),
                pod_template: observers.as_ref().map(|s| &s["spec"]["template"]),
                wanted: (self.spec["observers"]["replicas"].as_u64())
                    .and_then(|r| u16::try_from(r).ok())
                    .unwrap_or(0),
            },
            deletes_volumes: self.deletes,
            wanted: wanted.and_then(|r| u16::try_from(r).ok()).unwrap_or(0),
            pod_template: set.as_ref().map(|s| &s["spec"]["template"]),
            template: set.as_ref().and_then(|s| list_of(&s["spec"]["template"])),
        };
        self.checks.writes(&sight, &writes);
        self.checks.look(&sight);
        if let Some(circumstances) = circumstances {
            self.checks.status(&sight, circumstances);
        }
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

    fn violate(&mut self, what: String) {
        self.tell(&format!("VIOLATION {what}"));
        self.story.violations.push(what);
    }

    fn finish(mut self) -> Story {
        if self.story.seconds == 0.0 {
            self.story.seconds = self.cluster.now().as_secs_f64();
        }
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
