//! A client that writes all the time and remembers every acknowledged write.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bellwether_ensemble::desired::config::CLIENT_PORT;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode, Error};

/// How long one request or one connection may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait before the next server is tried.
const PAUSE: Duration = Duration::from_millis(5);

/// A session with one server, or an error at once. Every attempt is a new session, so that none can
/// have expired.
///
/// # Errors
/// When the server serves no session.
pub async fn connect(address: Ipv4Addr) -> Result<Client> {
    let connector = Client::connector()
        .with_session_timeout(Duration::from_secs(8))
        .with_fail_eagerly();
    let client = timeout(
        PATIENCE,
        connector.connect(&format!("{address}:{CLIENT_PORT}")),
    )
    .await??;
    Ok(client)
}

/// Creates a node; after an error it may or may not exist.
///
/// # Errors
/// What the server answers, or that it does not.
pub async fn create(client: &Client, path: &str, data: &[u8]) -> Result<()> {
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    timeout(PATIENCE, client.create(path, data, &options)).await??;
    Ok(())
}

/// Creates the parent of a writer's nodes; it may be there already.
async fn create_parent(client: &Client, parent: &str) -> Result<()> {
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    match timeout(PATIENCE, client.create(parent, b"", &options)).await? {
        Ok(_) | Err(Error::NodeExists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What the writer did so far.
#[derive(Debug)]
struct Record {
    acknowledged: BTreeSet<u64>,
    attempted: u64,
    last: Instant,
    longest: Duration,
}

/// Writes one node after another, each to any server that serves.
#[derive(Debug)]
pub struct Writer {
    parent: String,
    record: Arc<Mutex<Record>>,
    servers: Arc<Mutex<Vec<Ipv4Addr>>>,
    task: JoinHandle<()>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    /// Starts to write below `parent`, one node every `pace` at most.
    pub fn start(parent: &str, servers: Vec<Ipv4Addr>, pace: Duration) -> Self {
        let record = Arc::new(Mutex::new(Record {
            acknowledged: BTreeSet::new(),
            attempted: 0,
            last: Instant::now(),
            longest: Duration::ZERO,
        }));
        let servers = Arc::new(Mutex::new(servers));
        let work = Work {
            parent: parent.to_owned(),
            record: Arc::clone(&record),
            servers: Arc::clone(&servers),
            pace,
        };
        let task = tokio::spawn(work.write());
        Self {
            parent: parent.to_owned(),
            record,
            servers,
            task,
        }
    }

    /// Names the servers to use from now on.
    pub fn use_servers(&self, servers: Vec<Ipv4Addr>) {
        *lock(&self.servers) = servers;
    }

    /// How many writes were acknowledged.
    pub fn acknowledged(&self) -> usize {
        lock(&self.record).acknowledged.len()
    }

    /// Waits until so many more writes are acknowledged.
    ///
    /// # Errors
    /// When that takes longer than `patience`.
    pub async fn wait_for(&self, more: usize, patience: Duration) -> Result<()> {
        let wanted = self.acknowledged() + more;
        let deadline = Instant::now() + patience;
        while self.acknowledged() < wanted {
            ensure!(
                Instant::now() < deadline,
                "no write is acknowledged any more: {} of {wanted} after {patience:?}",
                self.acknowledged()
            );
            sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// The longest time without an acknowledged write since this was asked last.
    pub fn longest_gap(&self) -> Duration {
        let mut record = lock(&self.record);
        let longest = record.longest.max(record.last.elapsed());
        record.longest = Duration::ZERO;
        longest
    }

    /// Stops writing and reads every acknowledged write back from each of `servers`.
    ///
    /// # Errors
    /// The writes that a server does not have, or a server that cannot be read.
    pub async fn read_back(&mut self, servers: &[Ipv4Addr]) -> Result<usize> {
        self.task.abort();
        let acknowledged = lock(&self.record).acknowledged.clone();
        for server in servers {
            let there = children(*server, &self.parent)
                .await
                .with_context(|| format!("reading the writes back from {server}"))?;
            let lost: Vec<&u64> = acknowledged.difference(&there).collect();
            ensure!(
                lost.is_empty(),
                "{} acknowledged writes are not on server {server}: {:?} ...",
                lost.len(),
                &lost[..lost.len().min(10)]
            );
        }
        Ok(acknowledged.len())
    }
}

/// The numbers below `parent` that a server has once it is up to date.
async fn children(server: Ipv4Addr, parent: &str) -> Result<BTreeSet<u64>> {
    let client = connect(server).await?;
    let read = async {
        client.sync(parent).await?;
        match client.list_children(parent).await {
            Err(Error::NoNode) => Ok(Vec::new()),
            other => other,
        }
    };
    let paths = timeout(Duration::from_secs(20), read).await??;
    let number = |path: &String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.parse().with_context(|| format!("nobody wrote {path}"))
    };
    paths.iter().map(number).collect()
}

/// What the task of a writer works with.
struct Work {
    parent: String,
    record: Arc<Mutex<Record>>,
    servers: Arc<Mutex<Vec<Ipv4Addr>>>,
    pace: Duration,
}

impl Work {
    async fn write(self) {
        for turn in 0.. {
            let server = {
                let servers = lock(&self.servers);
                servers.get(turn % servers.len().max(1)).copied()
            };
            if let Some(server) = server {
                // The session ended or was never made: on to the next server.
                let _ = self.write_to(server).await;
            }
            sleep(PAUSE).await;
        }
    }

    /// Writes to one server until it fails or is no longer to be used.
    async fn write_to(&self, server: Ipv4Addr) -> Result<()> {
        let client = connect(server).await?;
        create_parent(&client, &self.parent).await?;
        while lock(&self.servers).contains(&server) {
            let number = {
                let mut record = lock(&self.record);
                record.attempted += 1;
                record.attempted
            };
            create(&client, &format!("{}/{number}", self.parent), b"").await?;
            {
                let mut record = lock(&self.record);
                record.acknowledged.insert(number);
                record.longest = record.longest.max(record.last.elapsed());
                record.last = Instant::now();
            }
            sleep(self.pace).await;
        }
        Ok(())
    }
}
