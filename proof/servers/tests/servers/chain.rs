//! The planner's chains of steps, under clients that remember what was acknowledged to them, with one
//! fault at a random moment of each step.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bellwether_ensemble::{ServerId, Voters};
use bellwether_servers::client::Writer;
use bellwether_servers::world::World;
use fastrand::Rng;

/// How long a whole change may take, with every fault in it.
const PATIENCE: Duration = Duration::from_secs(400);
/// How long until writes go on.
const WRITES: Duration = Duration::from_secs(60);
/// The pace of each of the two clients.
const PACE: Duration = Duration::from_millis(20);
/// The latest moment of a fault after the restart that it waits for.
const LATEST: Duration = Duration::from_millis(2500);

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The process ends, and starts again with the same file.
    Kill,
    /// The pod is replaced by one from the current template.
    Evict,
    /// The pod and its volume go; where that would take a majority of disks, only the process ends.
    LoseDisk,
}

/// One fault, drawn before the step begins.
#[derive(Debug)]
struct Fault {
    kind: Kind,
    /// It comes when so many restarts of the step have begun,
    restarts: u32,
    /// and so much later.
    later: Duration,
    /// Whether it hits the leader, if there is one,
    leader: bool,
    /// or this one among all, as a fraction.
    victim: f64,
}

impl Fault {
    fn draw(rng: &mut Rng, voters: &Voters) -> Self {
        let members = u32::try_from(voters.len()).unwrap_or(1);
        Self {
            kind: *rng
                .choice(&[Kind::Kill, Kind::Kill, Kind::Evict, Kind::LoseDisk])
                .unwrap_or(&Kind::Kill),
            restarts: rng.u32(0..members),
            later: LATEST.mul_f64(rng.f64()),
            leader: rng.u8(0..3) == 0,
            victim: rng.f64(),
        }
    }

    async fn strike(&self, world: &mut World) -> Result<()> {
        let servers: Vec<ServerId> = world.lists().into_keys().collect();
        let leader = world.leaders().first().copied().filter(|_| self.leader);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a fraction of a handful"
        )]
        let index = (self.victim * servers.len() as f64) as usize;
        let Some(victim) = leader.or_else(|| servers.get(index).copied()) else {
            return Ok(());
        };
        match self.kind {
            Kind::Evict => world.evict(victim),
            Kind::LoseDisk if world.may_lose_disk(victim) => world.lose_disk(victim).await?,
            Kind::Kill | Kind::LoseDisk => world.kill(victim),
        }
        Ok(())
    }
}

/// Every chain ends in the wanted size, and every acknowledged write is on every member.
pub(crate) async fn survives(
    mut world: World,
    sizes: &[u16],
    seed: u64,
) -> (World, Result<String>) {
    // Each chain has its own sequence of faults.
    let own = sizes
        .iter()
        .fold(seed, |all, size| all.wrapping_mul(31) + u64::from(*size));
    let mut rng = Rng::with_seed(own);
    let result = changes(&mut world, sizes, &mut rng).await;
    let named = result.map_err(|e| e.context(format!("seed {seed}, sizes {sizes:?}")));
    (
        world,
        named.map(|summary| format!("seed {seed}, {summary}")),
    )
}

async fn changes(world: &mut World, sizes: &[u16], rng: &mut Rng) -> Result<String> {
    world.settle(PATIENCE).await?;
    // Two clients begin at different ends, so that they are rarely on the same server.
    let mut servers = world.addresses();
    let first = Writer::start("/first", servers.clone(), PACE);
    servers.reverse();
    let second = Writer::start("/second", servers, PACE);
    let mut writers = [first, second];
    for writer in &writers {
        writer.wait_for(10, WRITES).await?;
        writer.longest_gap();
    }
    let (begin, restarts, leaders) = (Instant::now(), world.restarts(), world.audit.epochs());
    for size in &sizes[1..] {
        world.scale(*size);
        faults_until_ready(world, &writers, *size, rng).await?;
        for writer in &writers {
            writer.wait_for(10, WRITES).await?;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let gap = writers.iter().map(Writer::longest_gap).max();
    let mut writes = 0;
    for writer in &mut writers {
        writes += writer.read_back(&world.addresses()).await?;
    }
    Ok(format!(
        "{writes} writes on every member, longest gap {:.2} s, {} restarts, {} leader changes, \
         {seconds:.0} s of change",
        gap.unwrap_or_default().as_secs_f64(),
        world.restarts() - restarts,
        world.audit.epochs() - leaders
    ))
}

/// Goes on with the chain, with one fault for each step, until the wanted size is there and healthy.
async fn faults_until_ready(
    world: &mut World,
    writers: &[Writer; 2],
    to: u16,
    rng: &mut Rng,
) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let wanted = Voters::first(to, 0);
    let mut step = world.template_voters();
    let mut fault: Option<Fault> = None;
    let mut restarts = 0;
    let mut moment = None;
    loop {
        let mut servers = world.addresses();
        writers[0].use_servers(servers.clone());
        servers.reverse();
        writers[1].use_servers(servers);
        world.pass().await?;
        let ended = world.is_ready() && world.template_voters().as_ref() == Some(&wanted);
        let next = world.template_voters() != step;
        if let Some(due) = &fault {
            if world.restarts() >= restarts + due.restarts {
                moment = moment.or(Some(Instant::now() + due.later));
            }
            // A step may be over before its fault is due; then it comes now.
            if next || ended || moment.is_some_and(|moment| Instant::now() >= moment) {
                due.strike(world).await?;
                (fault, moment) = (None, None);
            }
        } else if ended {
            return Ok(());
        }
        if next {
            step = world.template_voters();
            restarts = world.restarts();
            fault = step.as_ref().map(|voters| Fault::draw(rng, voters));
        }
        ensure!(
            Instant::now() < deadline,
            "stuck for {PATIENCE:?}: {}; {}",
            world.message(),
            world.picture()
        );
    }
}
