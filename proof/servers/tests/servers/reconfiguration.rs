//! Members come and go at run time, under clients that remember what was acknowledged to them, while servers are killed around
//! each request.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use bellwether_ensemble::safety::reconfiguration::may_remove;
use bellwether_ensemble::{ServerId, Voters};
use bellwether_servers::client::Writer;
use bellwether_servers::installation::Installation;
use bellwether_servers::reconfigured::{Ensemble, Pass};
use fastrand::Rng;
use tokio::time::sleep;

/// How long a change may take, with every fault in it.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long until writes go on.
const WRITES: Duration = Duration::from_secs(60);
/// The pace of the client.
const PACE: Duration = Duration::from_millis(10);
/// How long the operator rests after each pass.
const REST: Duration = Duration::from_millis(50);
/// The latest moment of a fault after a request has begun. The request takes some hundredths of a second.
const LATEST: Duration = Duration::from_millis(60);
/// How long nobody serves where nobody can: longer than the servers need to elect and to serve.
const SILENCE: Duration = Duration::from_secs(5);

/// Through these sizes, each change at once, with a fault at a random moment of its first request.
pub(crate) async fn survives(
    installation: &Installation,
    sizes: &[u16],
    seed: u64,
) -> Result<String> {
    let mut rng = Rng::with_seed(seed);
    let mut ensemble = Ensemble::start(installation, sizes[0])?;
    let result = changes(&mut ensemble, sizes, &mut rng).await;
    match result {
        Ok(summary) => Ok(format!("seed {seed}, {summary}")),
        Err(error) => {
            let picture = ensemble.picture().await;
            let files = ensemble.keep_files();
            Err(error.context(format!(
                "seed {seed}, sizes {sizes:?}: {picture}; the servers' files are in {}",
                files.display()
            )))
        }
    }
}

async fn changes(ensemble: &mut Ensemble, sizes: &[u16], rng: &mut Rng) -> Result<String> {
    reach(ensemble, &Voters::first(sizes[0], 0), None).await?;
    let mut writer = Writer::start("/reconfigured", ensemble.addresses(), PACE);
    writer.wait_for(10, WRITES).await?;
    writer.longest_gap();
    let begin = Instant::now();
    let mut gaps = Vec::new();
    for size in &sizes[1..] {
        let fault = (rng.u8(0..4), LATEST.mul_f64(rng.f64()), rng.usize(..));
        reach(ensemble, &Voters::first(*size, 0), Some(fault)).await?;
        writer.use_servers(ensemble.addresses());
        writer.wait_for(10, WRITES).await?;
        gaps.push(format!("{:.2}", writer.longest_gap().as_secs_f64()));
    }
    let seconds = begin.elapsed().as_secs_f64();
    let writes = writer.read_back(&ensemble.addresses()).await?;
    Ok(format!(
        "{writes} writes on every member, longest gaps {} s, {} requests, {} leaders stepped down, {seconds:.0} s of change",
        gaps.join(" "),
        ensemble.requests,
        ensemble.stepped_down
    ))
}

/// Which server is killed, how long after the request has begun, and a number that chooses one among several.
type Fault = (u8, Duration, usize);

/// Passes until the ensemble has these members.
async fn reach(ensemble: &mut Ensemble, wanted: &Voters, mut fault: Option<Fault>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let before = ensemble.servers();
    loop {
        match ensemble.pass(wanted).await? {
            Pass::Done => return Ok(()),
            Pass::Ask(of, list, version) => {
                let moving = wanted.difference(&before).union(&before.difference(wanted));
                ask(ensemble, (of, &list, version), fault.take(), &moving).await;
            }
            Pass::Wait => {}
        }
        sleep(REST).await;
        if Instant::now() > deadline {
            bail!("the members are not {{{wanted}}} after {PATIENCE:?}");
        }
    }
}

/// Asks for a list, and kills a server meanwhile. The operator reads nothing from the answer. `moving` are those who come and go.
async fn ask(
    ensemble: &mut Ensemble,
    (of, list, version): (ServerId, &Voters, u64),
    fault: Option<Fault>,
    moving: &Voters,
) {
    let Some((kind, later, number)) = fault else {
        let _ = ensemble.ask(of, list, version).await;
        return;
    };
    let leader = ensemble.look().await.leader;
    let all = ensemble.servers();
    let one_of = |ids: &Voters| ids.iter().nth(number % ids.len().max(1));
    let victim = match kind {
        0 => leader,
        1 => one_of(moving),
        _ => one_of(&all),
    };
    let handle = victim.and_then(|id| ensemble.handle(id));
    let strike = async {
        sleep(later).await;
        if let Some(handle) = handle {
            handle.kill();
        }
    };
    let _ = tokio::join!(ensemble.ask(of, list, version), strike);
}

/// One to three, and both newcomers vanish before they have stored the list that the leader proposed: nobody serves until
/// one of them is back (ZooKeeper's test `ReconfigRecoveryTest.testNextConfigUnreachable`). So nobody is removed while the outcome
/// is not known.
pub(crate) async fn stops_without_its_newcomers(installation: &Installation) -> Result<String> {
    let (one, three) = (Voters::first(1, 0), Voters::first(3, 0));
    let newcomers = three.difference(&one);
    let mut ensemble = Ensemble::start(installation, 1)?;
    reach(&mut ensemble, &one, None).await?;
    let mut writer = Writer::start("/reconfigured", ensemble.addresses(), PACE);
    writer.wait_for(10, WRITES).await?;
    let (of, version) = loop {
        match ensemble.pass(&three).await? {
            Pass::Ask(of, _, version) => break (of, version),
            _ => sleep(REST).await,
        }
    };
    newcomers.iter().for_each(|id| ensemble.freeze(id));
    let asked = ensemble.ask(of, &three, version).await;
    ensure!(
        asked.is_err(),
        "two of three were frozen, and the list changed"
    );
    newcomers.iter().for_each(|id| ensemble.kill(id));
    // Nobody starts the newcomers again: as if they had been removed.
    let begin = Instant::now();
    let mut served_until = Duration::ZERO;
    while begin.elapsed() < served_until + SILENCE {
        let look = ensemble.look().await;
        if look.leader.is_some() {
            served_until = begin.elapsed();
        }
        for newcomer in newcomers.iter() {
            let may = may_remove(newcomer, look.lists());
            ensure!(may.is_err(), "server {newcomer} may be removed: {look:?}");
        }
        ensure!(
            begin.elapsed() < PATIENCE,
            "server 1 serves alone: {look:?}"
        );
        sleep(REST).await;
    }
    let writes = writer.acknowledged();
    reach(&mut ensemble, &three, None).await?;
    writer.use_servers(ensemble.addresses());
    writer.wait_for(10, WRITES).await?;
    let more = writer.read_back(&ensemble.addresses()).await? - writes;
    Ok(format!(
        "nobody served after {:.1} s without the newcomers, {more} more writes when they were back",
        served_until.as_secs_f64()
    ))
}
