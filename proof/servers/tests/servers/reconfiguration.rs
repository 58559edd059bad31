//! Members come and go at run time, under clients that remember what was acknowledged to them, while servers are killed around
//! each request.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use bellwether_ensemble::Voters;
use bellwether_servers::client::Writer;
use bellwether_servers::world::{InRequest, Victim, World};
use fastrand::Rng;

/// How long a change may take, with every fault in it.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long until writes go on.
const WRITES: Duration = Duration::from_secs(60);
/// The pace of the client.
const PACE: Duration = Duration::from_millis(10);
/// The latest moment of a fault after a request has begun. The request takes some hundredths of a second.
const LATEST: Duration = Duration::from_millis(60);
/// The latest moment of another fault after the change has begun.
const LATER: Duration = Duration::from_millis(2500);
/// How long nobody serves where nobody can: longer than the servers need to elect and to serve.
const SILENCE: Duration = Duration::from_secs(5);

/// Through these sizes, each change at once, with a fault at a random moment of it.
pub(crate) async fn survives(
    mut world: World,
    sizes: &[u16],
    seed: u64,
) -> (World, Result<String>) {
    let mut rng = Rng::with_seed(seed);
    world.change_at_run_time();
    let result = changes(&mut world, sizes, &mut rng).await;
    let named = result.map_err(|e| e.context(format!("seed {seed}, sizes {sizes:?}")));
    (
        world,
        named.map(|summary| format!("seed {seed}, {summary}")),
    )
}

async fn changes(world: &mut World, sizes: &[u16], rng: &mut Rng) -> Result<String> {
    world.settle(PATIENCE).await?;
    let mut writer = Writer::start("/reconfigured", world.addresses(), PACE);
    writer.wait_for(10, WRITES).await?;
    writer.longest_gap();
    let begin = Instant::now();
    let mut gaps = Vec::new();
    for size in &sizes[1..] {
        reach(world, &writer, *size, rng).await?;
        writer.use_servers(world.addresses());
        writer.wait_for(10, WRITES).await?;
        gaps.push(format!("{:.2}", writer.longest_gap().as_secs_f64()));
    }
    let seconds = begin.elapsed().as_secs_f64();
    let writes = writer.read_back(&world.addresses()).await?;
    Ok(format!(
        "{writes} writes on every member, longest gaps {} s, {} requests, {} restarts, {seconds:.0} s of change",
        gaps.join(" "),
        world.requests(),
        world.restarts()
    ))
}

/// Goes on until the ensemble has this size, with one fault in the request or at another moment of the change.
async fn reach(world: &mut World, writer: &Writer, size: u16, rng: &mut Rng) -> Result<()> {
    world.scale(size);
    let mut moment = None;
    let later = LATEST.mul_f64(rng.f64());
    let number = rng.usize(..);
    match rng.u8(0..6) {
        0 => world.fail_in_request(InRequest::Kill(Victim::Leader, later)),
        1 => world.fail_in_request(InRequest::Kill(Victim::Moving(number), later)),
        2 | 3 => world.fail_in_request(InRequest::Kill(Victim::Any(number), later)),
        kind => moment = Some((kind, Instant::now() + LATER.mul_f64(rng.f64()))),
    }
    let deadline = Instant::now() + PATIENCE;
    let wanted = Voters::first(size, 0);
    loop {
        writer.use_servers(world.addresses());
        if let Some((kind, _)) = moment.take_if(|(_, moment)| Instant::now() >= *moment) {
            let servers: Vec<_> = world.lists().into_keys().collect();
            let victim = servers[number % servers.len()];
            match kind {
                4 => world.evict(victim),
                _ if world.may_lose_disk(victim) => world.lose_disk(victim).await?,
                _ => world.kill(victim),
            }
        }
        world.pass().await?;
        let ended = world.is_ready() && world.template_voters().as_ref() == Some(&wanted);
        if ended && moment.is_none() {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "stuck for {PATIENCE:?}: {}; {}",
            world.message(),
            world.picture()
        );
    }
}

/// One to three, and both newcomers vanish before they have stored the list that the leader proposed: nobody serves until
/// one of them is back (ZooKeeper's test `ReconfigRecoveryTest.testNextConfigUnreachable`). So nobody is removed while the outcome
/// is not known, although the user wants one member again.
pub(crate) async fn stops_without_its_newcomers(mut world: World) -> (World, Result<String>) {
    world.change_at_run_time();
    let result = without_newcomers(&mut world).await;
    (world, result)
}

async fn without_newcomers(world: &mut World) -> Result<String> {
    world.settle(PATIENCE).await?;
    let mut writer = Writer::start("/reconfigured", world.addresses(), PACE);
    writer.wait_for(10, WRITES).await?;
    world.scale(3);
    world.fail_in_request(InRequest::HoldNewcomers);
    let deadline = Instant::now() + PATIENCE;
    while world.requests() == 0 {
        world.pass().await?;
        ensure!(Instant::now() < deadline, "no request: {}", world.message());
    }
    world.scale(1);
    let begin = Instant::now();
    let mut served_until = Duration::ZERO;
    while begin.elapsed() < served_until + SILENCE {
        world.pass().await?;
        if !world.leaders().is_empty() {
            served_until = begin.elapsed();
        }
        let pods = world.addresses().len();
        ensure!(pods == 3, "{pods} pods are left: {}", world.message());
        ensure!(begin.elapsed() < PATIENCE, "server 1 serves alone");
    }
    let said = world.message().to_owned();
    ensure!(said.contains("server list to be known"), "said: {said}");
    let writes = writer.acknowledged();
    world.release();
    world.settle(PATIENCE).await?;
    writer.use_servers(world.addresses());
    writer.wait_for(10, WRITES).await?;
    let more = writer.read_back(&world.addresses()).await? - writes;
    Ok(format!(
        "nobody served after {:.1} s without the newcomers, {more} more writes when they were back",
        served_until.as_secs_f64()
    ))
}

/// One to three, and the user wants one again while the request is on its way. It arrives when the newcomers are gone, and changes
/// nothing: the operator has asked for the present list again before it removed them.
pub(crate) async fn a_late_request_changes_nothing(mut world: World) -> (World, Result<String>) {
    world.change_at_run_time();
    let result = late_request(&mut world).await;
    (world, result)
}

async fn late_request(world: &mut World) -> Result<String> {
    world.settle(PATIENCE).await?;
    let mut writer = Writer::start("/reconfigured", world.addresses(), PACE);
    writer.wait_for(10, WRITES).await?;
    world.scale(3);
    world.fail_in_request(InRequest::Late);
    let deadline = Instant::now() + PATIENCE;
    while world.requests() == 0 {
        world.pass().await?;
        ensure!(Instant::now() < deadline, "no request: {}", world.message());
    }
    world.scale(1);
    world.settle(PATIENCE).await?;
    let pods = world.addresses().len();
    ensure!(pods == 1, "{pods} pods");
    let Err(refused) = world.deliver().await else {
        bail!("the list changed without the newcomers");
    };
    world.settle(PATIENCE).await?;
    writer.wait_for(10, WRITES).await?;
    let writes = writer.read_back(&world.addresses()).await?;
    Ok(format!("refused: {refused:#}; {writes} writes"))
}
