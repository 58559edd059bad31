//! A holder of the lock of the crate `zookeeper-client`, named as Curator's: `HOSTS PATH ID`.
//!
//! It takes the lock as soon as it can, says whom a second session sees waiting, and prints one JSON
//! object a line like all client programs of the tests. With the file of an authority in the environment variable CA
//! it connects over TLS; CERTIFICATE is a file with the certificate that it shows and the key, and SASL_NAME and
//! SASL_PASSWORD are what it logs in with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use zookeeper_client::{
    Acls, Client, CreateMode, LockOptions, LockPrefix, SaslOptions, TlsOptions,
};

const SESSION: Duration = Duration::from_secs(10);
/// How often the queue is looked at.
const INTERVAL: Duration = Duration::from_millis(300);

fn say(event: &str, mut fields: Value) {
    fields["event"] = json!(event);
    println!("{fields}");
}

async fn connect(hosts: &str) -> Result<Client> {
    let mut connector = Client::connector().with_session_timeout(SESSION);
    if let Ok(name) = std::env::var("SASL_NAME") {
        let password = std::env::var("SASL_PASSWORD")?;
        connector = connector.with_sasl(SaslOptions::digest_md5(name, password));
    }
    let Some(ca) = std::env::var_os("CA") else {
        return Ok(connector.connect(hosts).await?);
    };
    let mut options = TlsOptions::new().with_pem_ca(&std::fs::read_to_string(ca)?)?;
    if let Some(file) = std::env::var_os("CERTIFICATE") {
        let pem = std::fs::read_to_string(file)?;
        options = options.with_pem_identity(&pem, &pem)?;
    }
    Ok(connector.with_tls(options).secure_connect(hosts).await?)
}

/// Takes the lock and holds it for good.
async fn hold(client: Client, path: String, id: String, held: Arc<AtomicBool>) -> Result<()> {
    let directories = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(directories)?;
    let prefix = LockPrefix::new_curator(&path, "lock-")?;
    let _lock = client.lock(prefix, id.as_bytes(), options).await?;
    held.store(true, Ordering::Release);
    say("leader", json!({ "id": id }));
    std::future::pending().await
}

/// The data of the lock's nodes, in the crate's order: what follows the label, as text.
async fn queue(client: &Client, path: &str) -> Result<Vec<String>> {
    let mut names = client.list_children(path).await?;
    names.sort_by_key(|name| {
        let suffix = name.rsplit_once("lock-");
        suffix.map(|(_, sequence)| sequence.to_owned())
    });
    let mut found = Vec::new();
    for name in names {
        let (data, _) = client.get_data(&format!("{path}/{name}")).await?;
        found.push(String::from_utf8_lossy(&data).into_owned());
    }
    Ok(found)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| {
        arguments
            .next()
            .with_context(|| format!("{what} is missing"))
    };
    let (hosts, path, id) = (next("HOSTS")?, next("PATH")?, next("ID")?);
    say("started", json!({ "pid": std::process::id(), "id": id }));
    let mut stop = signal(SignalKind::terminate())?;
    let held = Arc::new(AtomicBool::new(false));
    let holder = hold(connect(&hosts).await?, path.clone(), id, Arc::clone(&held));
    let holder = tokio::spawn(async move {
        if let Err(error) = holder.await {
            say("failed", json!({ "error": error.to_string() }));
        }
    });
    // A session of its own: a lock that waits must not be disturbed by the questions.
    let observer = connect(&hosts).await?;
    let mut last = Value::Null;
    loop {
        let now = match queue(&observer, &path).await {
            Ok(queue) => json!({
                "leader": queue.first(),
                "queue": queue,
                "hasLeadership": held.load(Ordering::Acquire),
            }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        if now != last {
            say("view", now.clone());
            last = now;
        }
        tokio::select! {
            _ = stop.recv() => break,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
    holder.abort();
    Ok(())
}
