//! Elections whose candidates come and go all the time, and what ZooKeeper says about them in the end.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use zookeeper_client::{Acls, Client, CreateMode};

/// How many sessions come and go.
const SESSIONS: u64 = 4;
/// The pause of one session between two changes.
const PAUSE: Duration = Duration::from_millis(25);
/// How many candidates an election has at most.
const CROWD: usize = 6;

/// The recipe of an election: how candidates are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recipe {
    ZkElection,
    CuratorLatch,
    Kazoo,
    SingleText,
}

impl Recipe {
    const ALL: [Self; 4] = [
        Self::ZkElection,
        Self::CuratorLatch,
        Self::Kazoo,
        Self::SingleText,
    ];

    fn of(election: usize) -> Self {
        Self::ALL[election % Self::ALL.len()]
    }

    fn dialect(self) -> &'static str {
        match self {
            Self::ZkElection => "ZkElection",
            Self::CuratorLatch => "CuratorLatch",
            Self::Kazoo => "Kazoo",
            Self::SingleText => "SingleText",
        }
    }

    /// What stands before the sequence number of the candidate with this number.
    fn prefix(self, candidate: u64) -> String {
        match self {
            Self::ZkElection | Self::SingleText => "n_".to_owned(),
            Self::CuratorLatch => format!("_c_00000000-0000-4000-8000-{candidate:012x}-latch-"),
            Self::Kazoo => format!("{candidate:032x}__lock__"),
        }
    }
}

/// The name of the object that mirrors an election.
fn name(election: usize) -> String {
    format!("election-{election:03}")
}

fn path(election: usize) -> String {
    format!("/churn/{election:03}")
}

/// What one election is, and what the mirror has to show of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truth {
    /// The object's name.
    pub name: String,
    /// Node, fencing token and identity of the leader.
    pub leader: Option<(String, String, String)>,
    /// The nodes of all candidates, the leader first.
    pub queue: Vec<String>,
}

impl Truth {
    /// The same as a status shows it.
    pub fn shown(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let status = &object["status"];
        let leader = &status["leader"];
        let queue = status["candidates"].as_array().into_iter().flatten();
        Self {
            name: text(&object["metadata"]["name"]),
            leader: leader.is_object().then(|| {
                let [node, token, identity] = ["node", "fencingToken", "identity"];
                (
                    text(&leader[node]),
                    text(&leader[token]),
                    text(&leader[identity]),
                )
            }),
            queue: queue.map(|candidate| text(&candidate["node"])).collect(),
        }
    }
}

/// Candidates that come and go until [`Churn::stop`].
#[derive(Debug)]
pub struct Churn {
    runtime: Runtime,
    hosts: String,
    elections: usize,
    shared: Arc<Shared>,
    sessions: Vec<JoinHandle<Option<Client>>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    /// The number of the last candidate.
    candidates: AtomicU64,
    changes: AtomicU64,
    /// Everybody who ever stood for an election, from before the node was created.
    stood: Mutex<HashSet<(usize, String)>>,
}

impl Shared {
    fn stood(&self) -> MutexGuard<'_, HashSet<(usize, String)>> {
        self.stood.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Churn {
    /// The objects that mirror so many elections in an ensemble.
    pub fn manifests(ensemble: &str, elections: usize) -> Vec<Value> {
        let manifest = |election| {
            json!({
                "apiVersion": "zookeeper.bellwether.dev/v1alpha1",
                "kind": "LeaderElection",
                "metadata": { "name": name(election) },
                "spec": {
                    "ensembleRef": { "name": ensemble },
                    "path": path(election),
                    "dialect": { "type": Recipe::of(election).dialect() },
                },
            })
        };
        (0..elections).map(manifest).collect()
    }

    /// Makes the node under which the elections are.
    pub async fn prepare(hosts: &str) -> Result<()> {
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let client = Client::connect(hosts).await.context("connecting")?;
        client.create("/churn", b"", &persistent).await?;
        Ok(())
    }

    /// Begins. The choices depend on the seed alone, though not what comes of them.
    pub fn start(hosts: &str, elections: usize, seed: u64) -> Result<Self> {
        let runtime = Runtime::new()?;
        let shared = Arc::new(Shared::default());
        let sessions = (0..SESSIONS)
            .map(|session| {
                let (hosts, shared) = (hosts.to_owned(), Arc::clone(&shared));
                let choices = Rng::with_seed(seed.wrapping_mul(SESSIONS).wrapping_add(session));
                runtime.spawn(stand(hosts, elections, shared, choices))
            })
            .collect();
        Ok(Self {
            runtime,
            hosts: hosts.to_owned(),
            elections,
            shared,
            sessions,
        })
    }

    /// How many changes were made.
    pub fn changes(&self) -> u64 {
        self.shared.changes.load(Ordering::Relaxed)
    }

    /// Whether a candidate of this identity ever stood for the election of this object.
    pub fn stood(&self, object: &str, identity: &str) -> bool {
        let election = (0..self.elections).find(|election| name(*election) == object);
        election.is_some_and(|election| {
            let stood = self.shared.stood();
            stood.contains(&(election, identity.to_owned()))
        })
    }

    /// Stops all joining and leaving; present candidates stay. Returns what a new client reads
    /// after it has caught up with the leader of the ensemble.
    pub fn stop(&mut self) -> Result<(Still, Vec<Truth>)> {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let sessions = std::mem::take(&mut self.sessions);
        let (hosts, elections) = (self.hosts.clone(), self.elections);
        self.runtime.block_on(async move {
            let mut clients = Vec::new();
            for session in sessions {
                clients.extend(session.await?);
            }
            let client = Client::connect(&hosts).await.context("connecting")?;
            // Sessions that were lost before the end take a moment to expire.
            let mut before = None;
            for _ in 0..60 {
                client.sync("/").await?;
                let now = read(&client, elections).await?;
                if before.as_ref() == Some(&now) {
                    return Ok((Still { _clients: clients }, now));
                }
                before = Some(now);
                sleep(QUIET).await;
            }
            anyhow::bail!("the elections do not come to rest")
        })
    }
}

/// How long nothing may change before it counts as rest: longer than a session that was lost lives.
const QUIET: Duration = Duration::from_secs(12);

/// The sessions of those who stand in the end; dropping it ends them.
#[derive(Debug)]
pub struct Still {
    _clients: Vec<Client>,
}

/// What ZooKeeper says about each election.
async fn read(client: &Client, elections: usize) -> Result<Vec<Truth>> {
    let mut truths = Vec::new();
    for election in 0..elections {
        let path = path(election);
        let text = |data: Vec<u8>| String::from_utf8_lossy(&data).into_owned();
        let mut nodes: Vec<(String, i64, String)> = Vec::new();
        if Recipe::of(election) == Recipe::SingleText {
            match client.get_data(&path).await {
                Ok((data, stat)) => {
                    let node = path.rsplit('/').next().unwrap_or_default();
                    nodes.push((node.to_owned(), stat.czxid, text(data)));
                }
                Err(zookeeper_client::Error::NoNode) => {}
                Err(error) => return Err(error.into()),
            }
        } else {
            let children = match client.list_children(&path).await {
                Ok(children) => children,
                Err(zookeeper_client::Error::NoNode) => Vec::new(),
                Err(error) => return Err(error.into()),
            };
            for child in children {
                // A node that is deleted meanwhile is skipped; the next read shows another picture.
                match client.get_data(&format!("{path}/{child}")).await {
                    Ok((data, stat)) => nodes.push((child, stat.czxid, text(data))),
                    Err(zookeeper_client::Error::NoNode) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let sequence = |node: &str| -> Result<u32> {
            let digits = node.len().checked_sub(10).and_then(|at| node.get(at..));
            let digits = digits.with_context(|| format!("{node} has no sequence number"))?;
            Ok(digits.parse()?)
        };
        if nodes.len() > 1 {
            for (node, ..) in &nodes {
                sequence(node)?;
            }
            nodes.sort_by_key(|(node, ..)| sequence(node).unwrap_or_default());
        }
        truths.push(Truth {
            name: name(election),
            leader: nodes
                .first()
                .map(|(node, czxid, identity)| (node.clone(), czxid.to_string(), identity.clone())),
            queue: nodes.into_iter().map(|(node, ..)| node).collect(),
        });
    }
    ensure!(truths.len() == elections, "not all elections were read");
    Ok(truths)
}

/// One client after the other, each for a while, until it is over. Returns the last one.
async fn stand(
    hosts: String,
    elections: usize,
    shared: Arc<Shared>,
    mut choices: Rng,
) -> Option<Client> {
    loop {
        let connected = Client::connect(&hosts).await;
        if shared.stopped.load(Ordering::Relaxed) {
            return connected.ok();
        }
        let Ok(client) = connected else {
            sleep(PAUSE * 10).await;
            continue;
        };
        for _ in 0..choices.usize(100..300) {
            if shared.stopped.load(Ordering::Relaxed) {
                return Some(client);
            }
            if client.state().is_terminated() {
                break;
            }
            // Whatever fails, fails: the servers roll meanwhile.
            if change(&client, elections, &shared, &mut choices)
                .await
                .is_ok()
            {
                shared.changes.fetch_add(1, Ordering::Relaxed);
            }
            sleep(PAUSE).await;
        }
        // The session ends with all its candidates, some of which led.
    }
}

/// A candidate joins an election, or leaves it.
async fn change(
    client: &Client,
    elections: usize,
    shared: &Shared,
    choices: &mut Rng,
) -> Result<(), zookeeper_client::Error> {
    let election = choices.usize(..elections);
    let recipe = Recipe::of(election);
    let path = path(election);
    let candidate = shared.candidates.fetch_add(1, Ordering::Relaxed) + 1;
    let identity = format!("candidate-{candidate}");
    let stands = || shared.stood().insert((election, identity.clone()));
    if recipe == Recipe::SingleText {
        if choices.bool() {
            return client.delete(&path, None).await;
        }
        stands();
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        client
            .create(&path, identity.as_bytes(), &ephemeral)
            .await?;
        return Ok(());
    }
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let children = match client.list_children(&path).await {
        Err(zookeeper_client::Error::NoNode) => {
            client.create(&path, b"", &persistent).await?;
            Vec::new()
        }
        children => children?,
    };
    if children.is_empty() && choices.u8(..4) == 0 {
        // ZooKeeper deletes an empty container in the same way: sequence numbers start again.
        return client.delete(&path, None).await;
    }
    if children.len() >= CROWD || (!children.is_empty() && choices.bool()) {
        let child = &children[choices.usize(..children.len())];
        return client.delete(&format!("{path}/{child}"), None).await;
    }
    stands();
    let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let node = format!("{path}/{}", recipe.prefix(candidate));
    client
        .create(&node, identity.as_bytes(), &ephemeral)
        .await?;
    Ok(())
}
