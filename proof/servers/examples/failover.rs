//! How long the writes of a client stop when the leader is restarted, under variants of stopping it
//! and of the configuration.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bellwether_servers::classes;
use bellwether_servers::client::Writer;
use bellwether_servers::installation::Installation;
use bellwether_servers::world::World;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut installation = Installation::from_environment().context("set the variables")?;
    installation.check()?;
    let directory = tempfile::tempdir()?;
    if std::env::var_os("CDS").is_some() {
        let archive = classes::archive(&installation, directory.path()).await?;
        installation.share_classes(archive);
    }
    let rounds: usize = std::env::args().nth(1).map_or(Ok(20), |n| n.parse())?;
    let mut gaps: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut worlds = Vec::new();
    for delay in [None, Some("20")] {
        let mut world = World::new(&installation, 3)?;
        if let Some(delay) = delay {
            let mut config = bellwether_api::ensemble::Config::default();
            config.additional.insert(
                "leaderConnectDelayDuringRetryMs".to_owned(),
                delay.to_owned(),
            );
            world.ensemble.spec.config = Some(config);
        }
        world.settle(Duration::from_secs(120)).await?;
        let writer = Writer::start("/writes", world.addresses(), Duration::from_millis(1));
        writer.wait_for(50, Duration::from_secs(20)).await?;
        worlds.push((delay.unwrap_or("100"), world, writer));
    }
    for round in 0..rounds {
        for kill in [false, true] {
            for (delay, world, writer) in &mut worlds {
                let gap = restart_leader(world, writer, kill).await?;
                let name = format!("{} delay={delay}", if kill { "KILL" } else { "TERM" });
                println!("{round} {name}: {gap:.3}");
                gaps.entry(name).or_default().push(gap);
            }
        }
    }
    for (name, mut gaps) in gaps {
        gaps.sort_by(f64::total_cmp);
        let n = gaps.len();
        println!(
            "{name}: min {:.3} p25 {:.3} median {:.3} p75 {:.3} max {:.3} ({n} restarts)",
            gaps[0],
            gaps[n / 4],
            gaps[n / 2],
            gaps[n * 3 / 4],
            gaps[n - 1]
        );
    }
    Ok(())
}

async fn restart_leader(world: &mut World, writer: &Writer, kill: bool) -> Result<f64> {
    // The other ensembles are quiet meanwhile.
    writer.use_servers(world.addresses());
    for _ in 0..5 {
        world.pass().await?;
    }
    let [leader] = world.leaders()[..] else {
        bail!("{}", world.picture())
    };
    writer.wait_for(20, Duration::from_secs(20)).await?;
    writer.longest_gap();
    if kill {
        world.kill(leader);
    } else {
        world.evict(leader);
    }
    let begin = Instant::now();
    let mut away = false;
    loop {
        world.pass().await?;
        away |= world.leaders() != [leader];
        let serving = world
            .reports()
            .values()
            .filter(|r| r.zxid().is_some())
            .count();
        if away && world.leaders().len() == 1 && serving == 3 {
            break;
        }
        ensure!(
            begin.elapsed() < Duration::from_secs(60),
            "{}",
            world.picture()
        );
    }
    writer.wait_for(20, Duration::from_secs(20)).await?;
    let gap = writer.longest_gap().as_secs_f64();
    writer.use_servers(Vec::new());
    Ok(gap)
}
