//! TLS between servers is switched on and off on a running ensemble, under clients that remember what was acknowledged
//! to them; and what it keeps out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bellwether_api::ensemble::{ClientsTls, ServersTls, Tls};
use bellwether_ensemble::client_tls::ClientTls;
use bellwether_ensemble::encryption::Encryption;
use bellwether_ensemble::server_tls::ServerTls;
use bellwether_servers::client::Writer;
use bellwether_servers::world::World;

/// How long a whole change may take.
const PATIENCE: Duration = Duration::from_secs(400);
/// How long until writes go on.
const WRITES: Duration = Duration::from_secs(60);
const PACE: Duration = Duration::from_millis(20);
/// How long a stranger tries to join; it takes two seconds where nothing keeps it out.
const TRIES: Duration = Duration::from_secs(10);

fn ask_for(world: &mut World, servers: ServersTls) {
    world.tell(&format!("the user wants TLS between servers {servers:?}"));
    world.ensemble.spec.tls = Some(Tls {
        servers: Some(servers),
        clients: Some(ClientsTls::Disabled),
        ..Tls::default()
    });
}

/// This between the servers, and plaintext for clients.
fn between(servers: ServerTls) -> Encryption {
    Encryption {
        servers,
        clients: ClientTls::Disabled,
    }
}

/// On, turned round in the second of its three rolls, on again, and off.
pub(crate) async fn is_switched(mut world: World) -> (World, Result<String>) {
    let result = switches(&mut world).await;
    (world, result)
}

async fn switches(world: &mut World) -> Result<String> {
    ask_for(world, ServersTls::Disabled);
    world.settle(PATIENCE).await?;
    let mut writer = Writer::start("/tls", world.addresses(), PACE);
    writer.wait_for(10, WRITES).await?;
    {
        let stranger = world.stranger()?;
        ensure!(
            stranger.serves_within(WRITES).await,
            "plaintext keeps a stranger out"
        );
    }
    writer.longest_gap();

    let (begin, restarts) = (Instant::now(), world.restarts());
    ask_for(world, ServersTls::Required);
    pass_until(world, |tls| {
        tls.get(&between(ServerTls::Preferred)) == Some(&1)
    })
    .await?;
    ask_for(world, ServersTls::Disabled);
    pass_until(world, |tls| tls.contains_key(&Encryption::NONE)).await?;
    ask_for(world, ServersTls::Required);
    world.settle(PATIENCE).await?;
    ensure!(world.tls() == BTreeMap::from([(between(ServerTls::Required), 3)]));
    let gap = writer.longest_gap();
    let (seconds, restarts) = (begin.elapsed().as_secs_f64(), world.restarts() - restarts);
    {
        let stranger = world.stranger()?;
        ensure!(!stranger.serves_within(TRIES).await, "a stranger joined");
    }
    ask_for(world, ServersTls::Disabled);
    world.settle(PATIENCE).await?;
    ensure!(world.tls() == BTreeMap::from([(Encryption::NONE, 3)]));
    writer.wait_for(10, WRITES).await?;
    let writes = writer.read_back(&world.addresses()).await?;
    Ok(format!(
        "{writes} writes on every member, longest gap {:.2} s, {restarts} restarts, {seconds:.0} s of change",
        gap.as_secs_f64()
    ))
}

async fn pass_until(
    world: &mut World,
    is_so: impl Fn(&BTreeMap<Encryption, usize>) -> bool,
) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so(&world.tls()) {
        world.pass().await?;
        ensure!(Instant::now() < deadline, "stuck: {}", world.message());
    }
    Ok(())
}
