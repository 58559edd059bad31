//! Elections that go on while everything around them fails.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bellwether_e2e::churn::{Churn, Truth};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::process::{self, Cut};
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

/// For how many seconds everything fails; at least one round of it.
const VARIABLE: &str = "BELLWETHER_SOAK_SECONDS";

const ELECTIONS: usize = 40;
/// How many changes follow the last failure.
const LAST_CHANGES: u64 = 300;
const PATIENCE: Duration = Duration::from_secs(120);

/// Cuts that the operator survives with its lease, and that cost it the lease.
const SHORT_CUT: Duration = Duration::from_secs(4);
const LONG_CUT: Duration = Duration::from_secs(20);

/// Candidates come and go while the ensemble rolls and loses its leader, and the operator is killed
/// and cut off. Every leader that is shown was a candidate, fencing tokens never decrease, and in
/// the end every status equals what a new client reads.
pub(crate) fn statuses_equal_a_fresh_read_after_everything_failed(world: &World) -> Result<()> {
    let time = long().unwrap_or_default();
    let ensemble = world.small_ensemble(3)?;
    let hosts = ensemble.members(3);
    for manifest in Churn::manifests(ensemble.name(), ELECTIONS) {
        world.apply(&manifest)?;
    }
    prepare(&hosts)?;
    let mut churn = Churn::start(&hosts, ELECTIONS, 42)?;
    let begin = Instant::now();
    let mut rounds = 0;
    while rounds == 0 || begin.elapsed() < time {
        rounds += 1;
        fail(world, &ensemble, rounds)?;
    }
    let seen = churn.changes() + LAST_CHANGES;
    until(
        "candidates come and go after the last failure",
        PATIENCE,
        || {
            let now = churn.changes();
            (now >= seen)
                .then_some(())
                .ok_or(format!("{now} of {seen}"))
        },
    )?;
    let (_still, truths) = churn.stop()?;
    let agree = || {
        let wrong: Vec<String> = truths
            .iter()
            .filter_map(|truth| difference(world, truth))
            .collect();
        match wrong.first() {
            None => Ok(()),
            Some(first) => Err(format!("{} differ, such as: {first}", wrong.len())),
        }
    };
    until("every status equals a fresh read", PATIENCE, agree)?;
    let shown = assert_never_wrong(world, &churn)?;
    let led = truths.iter().filter(|truth| truth.leader.is_some()).count();
    eprintln!(
        "{} changes, {rounds} rounds of failures in {} s, {shown} leaders shown; in the end {led} of {ELECTIONS} elections have a leader, 0 differences",
        churn.changes(),
        begin.elapsed().as_secs()
    );
    ensure!(churn.changes() > 100, "hardly anything happened");
    ensure!(led > 0, "nobody stands for anything in the end");
    Ok(())
}

/// For how long everything fails in a long search.
pub(crate) fn long() -> Option<Duration> {
    let seconds = std::env::var(VARIABLE).ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Makes the node under which the elections are.
fn prepare(hosts: &str) -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(Churn::prepare(hosts))
}

/// One round of failures.
fn fail(world: &World, ensemble: &Ensemble<'_>, round: u64) -> Result<()> {
    // Under the roll of all members, the leader last, the operator is killed and cut off.
    ensemble.patch(&json!({ "config": { "syncLimit": 5 + round % 5 } }))?;
    until("the roll has begun", PATIENCE, || {
        match ensemble.is_ready(3) {
            Ok(()) => Err("all members are ready".to_owned()),
            Err(_) => Ok(()),
        }
    })?;
    world.kill_operator()?;
    std::thread::sleep(SHORT_CUT);
    cut_off(SHORT_CUT)?;
    ensemble.wait_ready(3)?;
    cut_off(LONG_CUT)?;
    // A container that was killed often is started later and later, and a new pod's at once.
    world.replace_operator()?;
    world.wait_operator()?;
    // Faults that the operator survives come last: a new operator reads everything, so it cannot
    // have missed anything.
    let leader = ensemble.wait_leader()?;
    ensemble.delete_pod(&leader)?;
    cut_off(SHORT_CUT)?;
    ensemble.wait_ready(3)
}

/// Cuts the operator off from everything for a while. Does nothing where its processes are elsewhere.
fn cut_off(time: Duration) -> Result<()> {
    let operator = process::of_operator();
    let cuts = operator.iter().map(Cut::off).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(time);
    drop(cuts);
    Ok(())
}

/// How an election's status differs from the truth.
fn difference(world: &World, truth: &Truth) -> Option<String> {
    let Some(object) = world.elections.get(&truth.name) else {
        return Some(format!("{} is not there", truth.name));
    };
    let shown = Truth::shown(&object);
    let stale = &object["status"]["staleSince"];
    if !stale.is_null() {
        return Some(format!("{} is stale since {stale}", truth.name));
    }
    (shown != *truth).then(|| format!("{shown:?} instead of {truth:?}"))
}

/// Checks everything that any status ever showed: every leader was a candidate, and tokens only
/// grew. Returns how many leaders were shown.
fn assert_never_wrong(world: &World, churn: &Churn) -> Result<usize> {
    let mut tokens: BTreeMap<String, i64> = BTreeMap::new();
    let mut shown = 0;
    for event in world.elections.history() {
        let Truth { name, leader, .. } = Truth::shown(&event.object);
        let Some((node, token, identity)) = leader else {
            continue;
        };
        let status: &Value = &event.object["status"];
        ensure!(
            churn.stood(&name, &identity),
            "{name}: {identity} ({node}) never stood: {status}"
        );
        let token: i64 = token.parse()?;
        let last = tokens.entry(name.clone()).or_insert(token);
        ensure!(
            token >= *last,
            "{name}: the token went from {last} back to {token}: {status}"
        );
        if token > *last {
            shown += 1;
        }
        *last = token;
    }
    Ok(shown)
}
