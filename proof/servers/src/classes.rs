//! The archive of a server's classes, written once for all servers of a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bellwether_ensemble::ServerId;
use bellwether_ensemble::four_letter::probe_by;
use bellwether_ensemble::observation::ServerReport;

use crate::authority;
use crate::installation::Installation;
use crate::network::Network;
use crate::server::Server;
use crate::zookeeper::{MAX_ANSWER, TIMEOUT, ask_for};

/// How long a server may take to start, and to write the archive when it ends.
const PATIENCE: Duration = Duration::from_secs(90);

/// Runs a leader and a follower with TLS between them until they serve, and keeps the classes that the leader loaded:
/// nearly all that members of the tests load.
///
/// # Errors
/// When the servers do not start, which no test would survive either.
pub async fn archive(installation: &Installation, directory: &Path) -> Result<PathBuf> {
    let network = Network::reserve()?;
    authority::write_stores(directory, &network)?;
    let start = |id: ServerId, options: &[&str]| -> Result<Server> {
        let conf = directory.join(id.to_string());
        configure(&conf, directory, id, &network)?;
        let (address, log) = (network.address(id), conf.join("log"));
        Server::start_with(installation, address, &conf, &log, options)
    };
    let archive = directory.join("classes.jsa");
    let flag = format!("-XX:ArchiveClassesAtExit={}", archive.display());
    let mut follower = start(ServerId(1), &[])?;
    // Of two servers without data the one with the larger id leads (`FastLeaderElection.totalOrderPredicate`).
    let mut leader = start(ServerId(2), &[&flag])?;
    for (id, server) in [(1, &mut follower), (2, &mut leader)] {
        let log = directory.join(id.to_string()).join("log");
        wait_until_it_serves(server, ServerId(id), &log).await?;
    }
    leader.terminate();
    tokio::time::timeout(PATIENCE, leader.wait()).await??;
    ensure!(archive.exists(), "Java wrote no archive of classes");
    Ok(archive)
}

fn configure(conf: &Path, stores: &Path, id: ServerId, network: &Network) -> Result<()> {
    let data = conf.join("data");
    fs::create_dir_all(&data)?;
    fs::write(data.join("myid"), id.to_string())?;
    fs::write(conf.join("logback.xml"), "<configuration/>")?;
    let server = |id: u16| {
        let address = network.address(ServerId(id));
        format!("server.{id}={address}:2888:3888:participant\n")
    };
    let text = format!(
        "dataDir={}\ntickTime=2000\ninitLimit=10\nsyncLimit=5\nclientPort=2181\nclientPortAddress={}\n\
         admin.enableServer=false\nstandaloneEnabled=false\n4lw.commands.whitelist=srvr,conf\n\
         sslQuorum=true\nsslQuorumReloadCertFiles=true\nssl.quorum.hostnameVerification=false\n\
         ssl.quorum.keyStore.location={stores}/member.pem\n\
         ssl.quorum.trustStore.location={stores}/authorities.pem\n{}{}",
        data.display(),
        network.address(id),
        server(1),
        server(2),
        stores = stores.display(),
    );
    Ok(fs::write(conf.join("zoo.cfg"), text)?)
}

async fn wait_until_it_serves(server: &mut Server, id: ServerId, log: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let address = server.address;
    let ask = |word| ask_for(address.into(), word, TIMEOUT, MAX_ANSWER);
    while !matches!(probe_by(id, ask).await, ServerReport::Serving { .. }) {
        let said = || fs::read_to_string(log).unwrap_or_default();
        ensure!(server.ended().is_none(), "a server ended: {}", said());
        ensure!(Instant::now() < deadline, "no server starts: {}", said());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
