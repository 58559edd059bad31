//! `cargo xtask bench fleet`: what many ensembles cost one operator, on the real API server and etcd. Kubernetes'
//! controllers make their objects; a node that does not exist runs their pods, and their members are played.

mod kubelet;
mod members;

use std::collections::{BTreeMap, HashMap};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bellwether_api::ZooKeeperEnsemble;
use bellwether_api::ensemble::Phase;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::Release;
use super::elections::{print_memory, quantiles, scale, served};
use crate::helm;
use crate::kubectl::Kubectl;
use crate::process;
use members::Members;

/// The namespace of the benchmark.
const NAMESPACE: &str = "bench-fleet";
/// How many objects are written at the same time.
const PARALLEL: usize = 16;
/// How many leaders change, one after the other, to see how soon that shows.
const SAMPLES: u32 = 100;
/// The time between two of these changes.
const BETWEEN: Duration = Duration::from_millis(500);

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// How many ensembles of three.
    pub ensembles: u32,
    /// How many of them change at once.
    pub change: u32,
    /// The members of so many of them hang.
    pub hang: u32,
    /// For how many seconds nothing happens.
    pub idle: u64,
}

/// Measures and prints; first the operator of another revision, if there is one.
pub fn run(kubectl: &Kubectl, size: Size, other: Option<&Release>) -> Result<()> {
    ensure!(
        size.change + size.hang + SAMPLES <= size.ensembles,
        "there are too few ensembles"
    );
    let network = ["route", "replace", "local", members::NETWORK, "dev", "lo"];
    let routed = Command::new("ip").args(network).status()?;
    ensure!(routed.success(), "the members' addresses cannot be routed");
    clean(kubectl, true)?;
    kubectl.run(&["create", "namespace", NAMESPACE])?;
    let runtime = tokio::runtime::Runtime::new()?;
    let result = runtime.block_on(measure(kubectl, size, other));
    clean(kubectl, false)?;
    result
}

/// Deletes what a run leaves. Kubernetes ends the pods of a node that does not exist within a minute.
fn clean(kubectl: &Kubectl, wait: bool) -> Result<()> {
    kubectl.run(&["delete", "node", kubelet::NODE, "--ignore-not-found"])?;
    let wait = format!("--wait={wait}");
    let delete = [
        "delete",
        "namespace",
        NAMESPACE,
        "--ignore-not-found",
        &wait,
    ];
    kubectl.run(&delete).map(drop)
}

async fn measure(kubectl: &Kubectl, size: Size, other: Option<&Release>) -> Result<()> {
    let client = Client::try_default().await?;
    let members = Members::default();
    members.serve().await?;
    kubelet::start(&client, NAMESPACE, &members).await?;
    let fleet = Fleet::watch(&client, members);
    scale(kubectl, 1)?;
    println!("{} ensembles of three members each ...", size.ensembles);
    let begin = Instant::now();
    fleet.create(0..size.ensembles).await?;
    fleet
        .wait(0..size.ensembles, Duration::from_secs(3600))
        .await?;
    println!(
        "  created and ready               {:.1} s, most of it by Kubernetes' own controllers",
        begin.elapsed().as_secs_f64()
    );
    if let Some(other) = other {
        println!("\n== The operator of the other revision\n");
        other.install(&BTreeMap::new())?;
        operator(kubectl, size, &fleet, 1).await?;
        println!("\n== This operator\n");
        helm::install(&Default::default())?;
    }
    operator(kubectl, size, &fleet, 2).await?;
    scale(kubectl, 2)
}

/// One operator. `round` makes its changes different from those of the one before.
async fn operator(kubectl: &Kubectl, size: Size, fleet: &Fleet, round: u32) -> Result<()> {
    let all = 0..size.ensembles;
    scale(kubectl, 0)?;
    for ensemble in all.clone() {
        fleet.members.change(ensemble);
    }
    let begin = Instant::now();
    scale(kubectl, 1)?;
    fleet.wait(all.clone(), Duration::from_secs(1800)).await?;
    println!(
        "  start to all statuses right     {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    print_memory();

    sleep(Duration::from_secs(size.idle)).await;
    let (requests, ticks, begin) = (requests(kubectl)?, ticks()?, Instant::now());
    sleep(Duration::from_secs(size.idle)).await;
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "  at rest for {} s                {:.2} API requests a second, {:.1} % of a core",
        size.idle,
        (self::requests(kubectl)? - requests) / seconds,
        (self::ticks()? - ticks) / seconds,
    );
    print_memory();

    let others = size.change + size.hang..size.change + size.hang + SAMPLES;
    println!(
        "  a leader shows after            {}",
        fleet.latency(others.clone()).await?
    );
    let hang = size.change..size.change + size.hang;
    for ensemble in hang.clone() {
        fleet.members.hang(ensemble, true);
    }
    sleep(Duration::from_secs(15)).await;
    println!(
        "  the same while {} hang          {}",
        size.hang,
        fleet.latency(others).await?
    );
    for ensemble in hang {
        fleet.members.hang(ensemble, false);
    }
    fleet.wait(all, Duration::from_secs(300)).await?;

    let begin = Instant::now();
    fleet.configure(0..size.change, 10_000 + round).await?;
    fleet
        .wait(0..size.change, Duration::from_secs(3600))
        .await?;
    println!(
        "  {} rolls at once               {:.1} s",
        size.change,
        begin.elapsed().as_secs_f64()
    );
    print_memory();
    Ok(())
}

/// The ensembles as a client sees them.
struct Fleet {
    api: Api<ZooKeeperEnsemble>,
    members: Members,
    seen: Arc<Mutex<HashMap<u32, Seen>>>,
}

/// What was seen of an ensemble.
#[derive(Clone, Debug, Default)]
struct Seen {
    ready: bool,
    leader: Option<u32>,
    generation: Option<i64>,
    since: Option<Instant>,
}

fn name(ensemble: u32) -> String {
    format!("e{ensemble:05}")
}

impl Fleet {
    fn watch(client: &Client, members: Members) -> Self {
        let api: Api<ZooKeeperEnsemble> = Api::namespaced(client.clone(), NAMESPACE);
        let fleet = Self {
            api: api.clone(),
            members,
            seen: Arc::default(),
        };
        let seen = fleet.seen.clone();
        tokio::spawn(async move {
            let changes = watcher(api, watcher::Config::default()).default_backoff();
            let mut changed = changes.applied_objects().boxed();
            while let Some(object) = changed.next().await {
                let Ok(object) = object else { continue };
                let name = object.name_any();
                let Some(number) = name.strip_prefix('e').and_then(|n| n.parse().ok()) else {
                    continue;
                };
                let status = object.status.clone().unwrap_or_default();
                let current = status.observed_generation == object.metadata.generation;
                let leader = status.leader.as_deref().and_then(kubelet::numbers);
                let mut seen = lock(&seen);
                let known: &mut Seen = seen.entry(number).or_default();
                let leader = leader.map(|(_, ordinal)| ordinal);
                if known.leader != leader {
                    known.since = Some(Instant::now());
                }
                known.leader = leader;
                known.ready = current && status.phase == Some(Phase::Ready);
                known.generation = object.metadata.generation;
            }
        });
        fleet
    }

    async fn create(&self, ensembles: std::ops::Range<u32>) -> Result<()> {
        let create = |ensemble| async move {
            let object: ZooKeeperEnsemble = serde_json::from_value(json!({
                "apiVersion": "zookeeper.bellwether.dev/v1alpha1",
                "kind": "ZooKeeperEnsemble",
                "metadata": { "name": name(ensemble), "namespace": NAMESPACE },
                "spec": {
                    "replicas": 3,
                    "storage": { "size": "1Gi", "storageClassName": "none" },
                },
            }))?;
            self.api.create(&PostParams::default(), &object).await?;
            anyhow::Ok(())
        };
        let created = stream::iter(ensembles).map(create);
        created.buffer_unordered(PARALLEL).try_collect::<()>().await
    }

    /// Changes a setting of each: every member restarts.
    async fn configure(&self, ensembles: std::ops::Range<u32>, count: u32) -> Result<()> {
        let configure = |ensemble| async move {
            let spec = json!({ "spec": { "config": { "snapCount": count } } });
            let (name, merge) = (name(ensemble), PatchParams::default());
            let patched = self.api.patch(&name, &merge, &Patch::Merge(spec)).await?;
            // What was seen before is no answer to this.
            let mut seen = lock(&self.seen);
            let known = seen.entry(ensemble).or_default();
            if known.generation != patched.metadata.generation {
                known.ready = false;
            }
            anyhow::Ok(())
        };
        let configured = stream::iter(ensembles).map(configure);
        configured
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await
    }

    /// Waits until the statuses of these say `Ready` and name the leader.
    async fn wait(&self, ensembles: std::ops::Range<u32>, patience: Duration) -> Result<()> {
        let begin = Instant::now();
        let mut told = Instant::now();
        loop {
            let wrong = ensembles.clone().filter(|e| !self.is_right(*e)).count();
            if wrong == 0 {
                return Ok(());
            }
            if begin.elapsed() > patience {
                bail!("after {patience:?} {wrong} statuses are not right");
            }
            if told.elapsed() > Duration::from_secs(30) {
                told = Instant::now();
                println!(
                    "  ... {wrong} to go after {:.0} s",
                    begin.elapsed().as_secs_f64()
                );
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn is_right(&self, ensemble: u32) -> bool {
        let leader = self.members.leader(ensemble);
        let seen = lock(&self.seen);
        let known = seen.get(&ensemble);
        known.is_some_and(|known| known.ready && known.leader == leader && leader.is_some())
    }

    /// Changes leaders one after the other, and returns how soon each was shown.
    async fn latency(&self, ensembles: std::ops::Range<u32>) -> Result<String> {
        let mut begun = Vec::new();
        for ensemble in ensembles.clone() {
            begun.push((ensemble, Instant::now()));
            self.members.change(ensemble);
            sleep(BETWEEN).await;
        }
        self.wait(ensembles, Duration::from_secs(120)).await?;
        let seen = lock(&self.seen);
        let took = begun.into_iter().map(|(ensemble, at)| {
            let shown = seen.get(&ensemble).and_then(|known| known.since);
            let shown = shown.context("a leader was not shown")?;
            Ok(shown.saturating_duration_since(at))
        });
        let mut took: Vec<Duration> = took.collect::<Result<_>>()?;
        quantiles(&mut took)
    }
}

fn lock(seen: &Mutex<HashMap<u32, Seen>>) -> MutexGuard<'_, HashMap<u32, Seen>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The processor time of the operator, in hundredths of a second.
fn ticks() -> Result<f64> {
    let processes = process::of_operator();
    let [operator] = processes.as_slice() else {
        bail!("{} operators run", processes.len());
    };
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", operator.id))?;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let (user, system) = (number(11), number(12));
    Ok(user.context("no user time")? + system.context("no system time")?)
}

/// How many requests, watches excepted, the API server has served about the objects that the operator reads and
/// writes. Nothing else asks about them while nothing happens.
fn requests(kubectl: &Kubectl) -> Result<f64> {
    const KINDS: [&str; 7] = [
        "zookeeperensembles",
        "statefulsets",
        "pods",
        "configmaps",
        "services",
        "persistentvolumeclaims",
        "poddisruptionbudgets",
    ];
    served(kubectl, |line| {
        !line.contains("verb=\"WATCH\"")
            && KINDS
                .iter()
                .any(|kind| line.contains(&format!("resource=\"{kind}\"")))
    })
}
