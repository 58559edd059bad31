//! `cargo xtask bench elections`: how soon a change of a leader is visible, and what many elections
//! cost, compared with a program that reads every election once a second.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, interval, sleep};

use super::candidates::Candidates;
use super::statuses::Statuses;
use super::{Release, poller};
use crate::ensemble::Ensemble;
use crate::helm;
use crate::kubectl::Kubectl;
use crate::process;
use crate::wait::until;
use crate::world::OPERATOR_NAMESPACE;

/// The namespace of the benchmark.
const NAMESPACE: &str = "bench-elections";

/// How many elections the memory that the chart gives to the operator is enough for.
const FITTING: usize = 10_000;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// How many elections for the latency, with three candidates each.
    pub elections: usize,
    /// How many leaders change in a second, and for how many seconds.
    pub rate: usize,
    /// For how long.
    pub seconds: u64,
    /// How many elections for memory, start and burst.
    pub many: usize,
    /// How many leaders change at once.
    pub burst: usize,
    /// For how many seconds nothing happens.
    pub idle: u64,
}

/// Measures and prints; first the operator of another revision, if there is one.
pub fn run(kubectl: &Kubectl, size: Size, other: Option<&Release>) -> Result<()> {
    let values = size.values();
    if let Some(other) = other {
        println!("\n== The operator of the other revision\n");
        other.install(&values)?;
        alone(kubectl, size)?;
        println!("\n== This operator\n");
    }
    helm::install(&values)?;
    alone(kubectl, size)?;
    helm::install(&BTreeMap::new())
}

impl Size {
    /// The values of the chart, which asks for memory for [`FITTING`] elections by default.
    fn values(self) -> BTreeMap<&'static str, Value> {
        let more = self.many > FITTING;
        let memory = ("resources.limits.memory", json!("512Mi"));
        more.then_some(memory).into_iter().collect()
    }
}

fn alone(kubectl: &Kubectl, size: Size) -> Result<()> {
    let left = ["delete", "namespace", NAMESPACE, "--ignore-not-found"];
    kubectl.run(&left)?;
    kubectl.run(&["create", "namespace", NAMESPACE])?;
    let result = in_namespace(kubectl, size);
    kubectl.run(&["delete", "namespace", NAMESPACE])?;
    result
}

fn in_namespace(kubectl: &Kubectl, size: Size) -> Result<()> {
    let mut manifest = Ensemble::manifest("main", Ensemble::small(3));
    manifest["metadata"]["namespace"] = NAMESPACE.into();
    kubectl.apply(&manifest)?;
    let wait = [
        "-n",
        NAMESPACE,
        "wait",
        "zke/main",
        "--for=condition=Ready",
        "--timeout=180s",
    ];
    kubectl.run(&wait)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(measure(kubectl, size))
}

async fn measure(kubectl: &Kubectl, size: Size) -> Result<()> {
    let statuses = Statuses::watch(NAMESPACE).await?;
    let hosts = format!("main.{NAMESPACE}.svc.cluster.local:2181");
    let mut candidates = Candidates::connect(&hosts).await?;

    println!(
        "{} elections with three candidates each ...",
        size.elections
    );
    candidates.enter(0..size.elections).await?;
    statuses.create(NAMESPACE, 0..size.elections).await?;
    statuses
        .wait_all(&candidates, Duration::from_secs(300))
        .await?;
    let mut seen = latency(&mut candidates, &statuses, size).await?;
    let poller = poller::Poller::start(&hosts, size.elections).await?;
    let mut polled = polled_latency(&mut candidates, &poller, size).await?;
    let requests = poller.stop();
    println!(
        "\nevent to visible, {} changes a second for {} s:",
        size.rate, size.seconds
    );
    println!("  mirror         {}", quantiles(&mut seen)?);
    println!(
        "  naive poller   {}, {requests:.0} reads a second",
        quantiles(&mut polled)?
    );

    println!(
        "\n{} elections; the operator is stopped while they are made ...",
        size.many
    );
    scale(kubectl, 0)?;
    candidates.enter(size.elections..size.many).await?;
    statuses
        .create(NAMESPACE, size.elections..size.many)
        .await?;
    scale(kubectl, 1)?;
    let begin = Instant::now();
    statuses
        .wait_all(&candidates, Duration::from_secs(600))
        .await?;
    println!(
        "  start to all statuses right     {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    print_memory();

    let begin = Instant::now();
    let burst = (0..size.burst).map(|change| change * size.many / size.burst);
    candidates.change_all(burst).await?;
    let changed = begin.elapsed();
    statuses
        .wait_all(&candidates, Duration::from_secs(600))
        .await?;
    let all = begin.elapsed().as_secs_f64();
    println!(
        "  burst of {} leader changes      made in {:.1} s, all visible after {all:.1} s: {:.0} a second, nothing lost",
        size.burst,
        changed.as_secs_f64(),
        count(size.burst) / all,
    );
    print_memory();

    // All is visible; what was put off, such as the rest of a queue, follows within a second.
    sleep(Duration::from_secs(5)).await;
    let (events, writes) = (statuses.events(), writes(kubectl)?);
    sleep(Duration::from_secs(size.idle)).await;
    println!(
        "  idle for {} s                  {} changes of objects, {:.0} writes to the API server",
        size.idle,
        statuses.events() - events,
        self::writes(kubectl)? - writes,
    );
    print_memory();
    scale(kubectl, 2)
}

/// A change: which election, the new leader's node, and when the old one was made to leave.
type Change = (usize, String, Instant);

/// Changes leaders at a steady rate.
async fn change_steadily(candidates: &mut Candidates, size: Size) -> Result<Vec<Change>> {
    let mut begun = Vec::new();
    let mut tick = interval(Duration::from_secs(1) / u32::try_from(size.rate)?);
    for change in 0..size.rate * usize::try_from(size.seconds)? {
        tick.tick().await;
        let election = change % size.elections;
        let at = Instant::now();
        let leader = candidates.change(election).await?;
        begun.push((election, leader, at));
    }
    Ok(begun)
}

/// How long each change took to be visible.
async fn latency(
    candidates: &mut Candidates,
    statuses: &Statuses,
    size: Size,
) -> Result<Vec<Duration>> {
    let begun = change_steadily(candidates, size).await?;
    statuses
        .wait_all(candidates, Duration::from_secs(60))
        .await?;
    let mut took = Vec::new();
    for (election, leader, at) in begun {
        let seen = statuses.seen(election, &leader);
        let seen =
            seen.with_context(|| format!("{leader} of election {election} was not shown"))?;
        took.push(seen.saturating_duration_since(at));
    }
    Ok(took)
}

/// The same for the poller.
async fn polled_latency(
    candidates: &mut Candidates,
    poller: &poller::Poller,
    size: Size,
) -> Result<Vec<Duration>> {
    let begun = change_steadily(candidates, size).await?;
    sleep(Duration::from_secs(5)).await;
    // The poller never saw a leader that was replaced between two of its looks.
    let seen = |(election, leader, at): Change| {
        Some(
            poller
                .seen(election, &leader)?
                .saturating_duration_since(at),
        )
    };
    Ok(begun.into_iter().filter_map(seen).collect())
}

pub(super) fn quantiles(samples: &mut [Duration]) -> Result<String> {
    ensure!(!samples.is_empty(), "there is no sample");
    samples.sort_unstable();
    let at = |share: usize| {
        let index = (samples.len() * share / 100).min(samples.len() - 1);
        samples[index].as_secs_f64() * 1000.0
    };
    Ok(format!(
        "p50 {:.0} ms, p90 {:.0} ms, p99 {:.0} ms, largest {:.0} ms of {}",
        at(50),
        at(90),
        at(99),
        at(100),
        samples.len()
    ))
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}

/// Sets how many operator pods there are, and waits until that is so.
pub(super) fn scale(kubectl: &Kubectl, replicas: u16) -> Result<()> {
    let to = format!("--replicas={replicas}");
    kubectl.run(&[
        "-n",
        OPERATOR_NAMESPACE,
        "scale",
        "deployment/bellwether",
        &to,
    ])?;
    until(
        "the operator's pods are as many",
        Duration::from_secs(120),
        || {
            let running = process::of_operator().len();
            if running == usize::from(replicas) {
                Ok(())
            } else {
                Err(format!("{running} run"))
            }
        },
    )
}

/// The resident memory of the operator's processes.
pub(super) fn print_memory() {
    for process in process::of_operator() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.id));
        let status = status.unwrap_or_default();
        let resident = status
            .lines()
            .find_map(|l| l.strip_prefix("VmRSS:"))
            .map(str::trim);
        println!(
            "  resident memory                 {}",
            resident.unwrap_or("unknown")
        );
    }
}

/// How many writes to objects of the operator's kinds the API server has served.
fn writes(kubectl: &Kubectl) -> Result<f64> {
    served(kubectl, |line| {
        line.contains("group=\"zookeeper.bellwether.dev\"")
            && ["APPLY", "PATCH", "PUT", "POST"]
                .iter()
                .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
    })
}

/// How many requests the API server has served, of those whose labels count.
pub(super) fn served(kubectl: &Kubectl, counts: impl Fn(&str) -> bool) -> Result<f64> {
    let metrics = kubectl.run(&["get", "--raw", "/metrics"])?;
    let counted = metrics.lines();
    let counted =
        counted.filter(|line| line.starts_with("apiserver_request_total{") && counts(line));
    Ok(counted
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum())
}
