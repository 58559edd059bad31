//! How many writes an ensemble of three takes, and how long each lasts: in plaintext, with TLS between the servers, and
//! with TLS from the clients as well. One ensemble of each kind runs all the time, and they are loaded one after the other, in
//! rounds, so that what else the machine does meets all of them.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bellwether_api::ensemble::{ClientsTls, ServersTls, Tls};
use bellwether_servers::classes;
use bellwether_servers::installation::Installation;
use bellwether_servers::world::World;
use futures::future::try_join_all;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, TlsOptions};

/// How long one ensemble is loaded in a round.
const LOADED: Duration = Duration::from_secs(5);
/// How many rounds it takes until the virtual machines have compiled what runs often.
const WARM_UP: usize = 6;
/// How long an ensemble may take to start, or a session to open.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is encrypted.
const KINDS: [(&str, ServersTls, bool); 3] = [
    ("plaintext", ServersTls::Disabled, false),
    ("TLS between servers", ServersTls::Required, false),
    (
        "TLS between servers and for clients",
        ServersTls::Required,
        true,
    ),
];

/// How the ensemble is loaded: sessions, and how many writes each has under way.
const LOADS: [(&str, usize, usize); 2] = [
    ("4 clients that wait for each answer", 4, 1),
    ("12 clients with 32 writes under way each", 12, 32),
];

/// An ensemble with sessions to it.
struct Subject {
    name: &'static str,
    /// It ends with this.
    world: World,
    sessions: Vec<Client>,
}

/// What one round showed.
#[derive(Clone, Copy)]
struct Round {
    /// Acknowledged writes a second.
    rate: f64,
    /// How long the slowest of a hundred writes lasted.
    p99: Duration,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut installation =
        Installation::from_environment().context("run `cargo xtask bench writes`")?;
    installation.check()?;
    installation.compile_fully();
    let rounds: usize = std::env::args().nth(1).map_or(Ok(3), |n| n.parse())?;
    let directory = tempfile::tempdir()?;
    let archive = classes::archive(&installation, directory.path()).await?;
    installation.share_classes(archive);
    let mut subjects = Vec::new();
    for (name, servers, over_tls) in KINDS {
        subjects.push(Subject::start(&installation, name, servers, over_tls).await?);
    }
    for (load, sessions, depth) in LOADS {
        println!("\n{load}, {rounds} rounds of {} s\n", LOADED.as_secs());
        let mut all = vec![Vec::new(); subjects.len()];
        // What the virtual machines compile first counts for none of them.
        for subject in &subjects {
            for _ in 0..WARM_UP {
                subject.load(sessions, depth).await?;
            }
        }
        for _ in 0..rounds {
            for (subject, rounds) in subjects.iter().zip(&mut all) {
                rounds.push(subject.load(sessions, depth).await?);
            }
        }
        let medians: Vec<Round> = all.iter().map(|rounds| median(rounds)).collect();
        let base = medians[0];
        for (subject, round) in subjects.iter().zip(&medians) {
            println!(
                "  {:36} {:7.0} writes/s ({:.2})   p99 {:6.1} ms ({:.2})",
                subject.name,
                round.rate,
                round.rate / base.rate,
                round.p99.as_secs_f64() * 1000.0,
                round.p99.as_secs_f64() / base.p99.as_secs_f64(),
            );
        }
    }
    Ok(())
}

impl Subject {
    async fn start(
        installation: &Installation,
        name: &'static str,
        servers: ServersTls,
        over_tls: bool,
    ) -> Result<Self> {
        let mut world = World::new(installation, 3)?;
        let clients = match over_tls {
            true => ClientsTls::Optional,
            false => ClientsTls::Disabled,
        };
        world.ensemble.spec.tls = Some(Tls {
            servers: Some(servers),
            clients: Some(clients),
            ..Tls::default()
        });
        world.settle(PATIENCE).await?;
        let authority = over_tls.then(|| world.client_authority()).transpose()?;
        let addresses = world.addresses();
        let most = LOADS.iter().map(|(_, sessions, _)| *sessions).max();
        let mut sessions = Vec::new();
        let addresses = addresses.iter().cycle().take(most.unwrap_or_default());
        for (number, address) in addresses.enumerate() {
            let session = connect(*address, authority.as_deref());
            let session = timeout(PATIENCE, session).await.context(name)??;
            let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
            session.create(&node(number), &[], &options).await?;
            sessions.push(session);
        }
        Ok(Self {
            name,
            world,
            sessions,
        })
    }

    /// Writes with so many sessions, each with `depth` writes under way.
    async fn load(&self, sessions: usize, depth: usize) -> Result<Round> {
        let begin = Instant::now();
        let writer = |number: usize, client: Client| async move {
            let mut times = Vec::new();
            while begin.elapsed() < LOADED {
                let since = Instant::now();
                client.set_data(&node(number), &[0; 100], None).await?;
                times.push(since.elapsed());
            }
            anyhow::Ok(times)
        };
        let clients = self.sessions.iter().take(sessions).enumerate();
        let writers = clients
            .flat_map(|(number, client)| (0..depth).map(move |_| writer(number, client.clone())));
        let times = try_join_all(writers.collect::<Vec<_>>()).await?;
        let seconds = begin.elapsed().as_secs_f64();
        ensure!(self.world.leaders().len() == 1, "{}", self.world.picture());
        let mut times: Vec<Duration> = times.into_iter().flatten().collect();
        times.sort();
        let p99 = times.get(times.len() * 99 / 100).copied();
        Ok(Round {
            rate: times.len() as f64 / seconds,
            p99: p99.context("no write was acknowledged")?,
        })
    }
}

async fn connect(address: Ipv4Addr, authority: Option<&str>) -> Result<Client> {
    let connector = Client::connector().with_session_timeout(Duration::from_secs(20));
    Ok(match authority {
        None => connector.connect(&format!("{address}:2181")).await?,
        Some(authority) => {
            let options = TlsOptions::new().with_pem_ca(authority)?;
            let connector = connector.with_tls(options);
            connector.secure_connect(&format!("{address}:2281")).await?
        }
    })
}

/// Where a session writes: always the same node, so that the servers' memory does not grow.
fn node(number: usize) -> String {
    format!("/session-{number}")
}

/// The medians of both figures.
fn median(rounds: &[Round]) -> Round {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Round {
        rate: middle(rounds.iter().map(|round| round.rate).collect()),
        p99: Duration::from_secs_f64(middle(
            rounds.iter().map(|round| round.p99.as_secs_f64()).collect(),
        )),
    }
}
