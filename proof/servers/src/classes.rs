//! The archive of a server's classes, written once for all servers of a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bellwether_ensemble::ServerId;
use bellwether_ensemble::four_letter::probe_by;
use bellwether_ensemble::observation::ServerReport;

use crate::installation::Installation;
use crate::network::Network;
use crate::server::Server;
use crate::zookeeper::{MAX_ANSWER, TIMEOUT, ask_for};

/// How long a server may take to start, and to write the archive when it ends.
const PATIENCE: Duration = Duration::from_secs(90);

/// Runs one server until it serves, and keeps the classes that it loaded.
///
/// # Errors
/// When the server does not start, which no test would survive either.
pub async fn archive(installation: &Installation, directory: &Path) -> Result<PathBuf> {
    let network = Network::reserve()?;
    let id = ServerId(1);
    let address = network.address(id);
    let data = directory.join("data");
    fs::create_dir_all(&data)?;
    fs::write(data.join("myid"), "1")?;
    fs::write(
        directory.join("zoo.cfg"),
        format!(
            "dataDir={}\ntickTime=2000\ninitLimit=10\nsyncLimit=5\nclientPort=2181\nclientPortAddress={address}\nadmin.enableServer=false\n\
             standaloneEnabled=false\n4lw.commands.whitelist=srvr,conf\n\
             server.1={address}:2888:3888:participant\n",
            data.display()
        ),
    )?;
    fs::write(directory.join("logback.xml"), "<configuration/>")?;
    let archive = directory.join("classes.jsa");
    let flag = format!("-XX:ArchiveClassesAtExit={}", archive.display());
    let log = directory.join("log");
    let mut server = Server::start_with(installation, address, directory, &log, &[&flag])?;
    let deadline = Instant::now() + PATIENCE;
    while !matches!(
        probe_by(id, |word| ask_for(
            address.into(),
            word,
            TIMEOUT,
            MAX_ANSWER
        ))
        .await,
        ServerReport::Serving { .. }
    ) {
        let said = || fs::read_to_string(&log).unwrap_or_default();
        ensure!(server.ended().is_none(), "a server ended: {}", said());
        ensure!(Instant::now() < deadline, "no server starts: {}", said());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.terminate();
    tokio::time::timeout(PATIENCE, server.wait()).await??;
    ensure!(archive.exists(), "Java wrote no archive of classes");
    Ok(archive)
}
