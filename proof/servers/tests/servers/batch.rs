//! Why the size changes in steps of one: with that rule switched off, the same planner on the same
//! servers gives two leaders that both commit, without any fault of the network.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use bellwether_ensemble::Voters;
use bellwether_ensemble::rules::{Rule, Rules};
use bellwether_servers::client::{self, Writer};
use bellwether_servers::world::World;

const PATIENCE: Duration = Duration::from_secs(120);
/// Both leaders acknowledge writes to this node, with different content.
const SPLIT: &str = "/split";

/// Both new members start, and the leader restarts first.
pub(crate) async fn leader_first(mut world: World) -> (World, Result<String>) {
    world.rules = Rules::ALL
        .without(Rule::SmallSteps)
        .without(Rule::LeaderLast);
    let result = async {
        until_first_restart(&mut world).await?;
        two_leaders_lose_writes(&mut world).await
    };
    let result = result.await;
    (world, result)
}

/// Both new members start, one follower restarts, and then the leader's process ends and comes back.
pub(crate) async fn leader_last_and_one_crash(mut world: World) -> (World, Result<String>) {
    world.rules = Rules::ALL.without(Rule::SmallSteps);
    let result = async {
        until_first_restart(&mut world).await?;
        let new = Voters::first(5, 0);
        let restarted = |world: &World| {
            let updated = world.lists().into_values().filter(|list| *list == new);
            updated.count() == 3 && serving(world) == 5
        };
        wait(&mut world, "a follower has restarted", restarted).await?;
        let [leader] = world.leaders()[..] else {
            bail!("not one leader: {}", world.picture())
        };
        ensure!(
            world.lists()[&leader] == Voters::first(3, 0),
            "the leader restarted too early"
        );
        world.kill(leader);
        two_leaders_lose_writes(&mut world).await
    };
    let result = result.await;
    (world, result)
}

fn serving(world: &World) -> usize {
    world
        .reports()
        .values()
        .filter(|report| report.zxid().is_some())
        .count()
}

/// The planner goes to work, and stops after the first restart.
async fn until_first_restart(world: &mut World) -> Result<()> {
    world.settle(PATIENCE).await?;
    world.scale(5);
    let deadline = Instant::now() + PATIENCE;
    while world.restarts() == 0 {
        world.pass().await?;
        ensure!(
            Instant::now() < deadline,
            "nothing restarts: {}",
            world.message()
        );
    }
    Ok(())
}

async fn wait(world: &mut World, what: &str, holds: impl Fn(&World) -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds(world) {
        world.pass_without_operator().await?;
        ensure!(
            Instant::now() < deadline,
            "waiting until {what}: {}",
            world.picture()
        );
    }
    world.tell(&format!("{what} | {}", world.picture()));
    Ok(())
}

async fn two_leaders_lose_writes(world: &mut World) -> Result<String> {
    wait(world, "two servers lead", |world| {
        world.leaders().len() == 2
    })
    .await?;
    let [one, two] = world.leaders()[..] else {
        bail!("not two leaders")
    };
    let (one, two) = (world.address(one), world.address(two));
    for leader in [one, two] {
        let client = client::connect(leader).await?;
        client::create(&client, SPLIT, leader.to_string().as_bytes()).await?;
    }
    ensure!(
        read(one).await? != read(two).await?,
        "both leaders have the same content"
    );
    // The instruments that watch the chains must notice: the audit sees two leaders, and one writer
    // misses what was acknowledged to it.
    let pace = Duration::from_millis(10);
    let mut writers = [
        Writer::start("/one", vec![one], pace),
        Writer::start("/two", vec![two], pace),
    ];
    wait(world, "the audit has proof", |world| {
        world.audit.two_leaders().is_some()
    })
    .await?;
    for writer in &writers {
        writer.wait_for(10, PATIENCE).await?;
        writer.use_servers(Vec::new());
    }
    // The change goes on to its end: every member that has the old list gets the new one.
    let old = Voters::first(3, 0);
    for (id, list) in world.lists() {
        if list == old {
            world.evict(id);
        }
    }
    let done = |world: &World| {
        let new = world
            .lists()
            .values()
            .all(|list| *list == Voters::first(5, 0));
        new && serving(world) == 5 && world.leaders().len() == 1
    };
    wait(world, "all five serve the new list", done).await?;
    // Both leaders counted the same epoch, so the members cannot distinguish the two histories:
    // which writes are lost differs from member to member.
    let mut lost = Vec::new();
    for writer in &mut writers {
        let read = writer.read_back(&world.addresses()).await;
        lost.extend(read.err().map(|error| format!("{error:#}")));
    }
    ensure!(!lost.is_empty(), "no acknowledged write was lost");
    Ok(format!("two leaders, and {}", lost.join(", and ")))
}

async fn read(server: Ipv4Addr) -> Result<Vec<u8>> {
    let client = client::connect(server).await?;
    client.sync(SPLIT).await?;
    Ok(client.get_data(SPLIT).await?.0)
}
