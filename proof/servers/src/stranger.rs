//! A server that belongs to no ensemble, and reads all data of one as an observer if its members let it.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use bellwether_ensemble::ServerId;
use bellwether_ensemble::four_letter::probe_by;
use bellwether_ensemble::observation::ServerReport;
use tokio::time::sleep;

use crate::installation::Installation;
use crate::server::Server;
use crate::zookeeper::{MAX_ANSWER, TIMEOUT, ask_for};

/// The server.
#[derive(Debug)]
pub struct Stranger {
    id: ServerId,
    server: Server,
}

impl Stranger {
    /// Starts it: it knows the members' addresses, and has no certificate.
    ///
    /// # Errors
    /// When the process cannot be made.
    pub fn start(
        installation: &Installation,
        directory: &Path,
        (id, address): (ServerId, Ipv4Addr),
        members: &[(ServerId, Ipv4Addr)],
    ) -> Result<Self> {
        let data = directory.join("data");
        fs::create_dir_all(&data)?;
        fs::write(data.join("myid"), id.to_string())?;
        fs::write(directory.join("logback.xml"), "<configuration/>")?;
        let mut text = format!(
            "dataDir={}\ntickTime=2000\ninitLimit=10\nsyncLimit=5\nclientPort=2181\n\
             clientPortAddress={address}\nadmin.enableServer=false\npeerType=observer\n\
             4lw.commands.whitelist=srvr,conf\nserver.{id}={address}:2888:3888:observer\n",
            data.display()
        );
        for (member, address) in members {
            let _ = writeln!(text, "server.{member}={address}:2888:3888:participant");
        }
        fs::write(directory.join("zoo.cfg"), text)?;
        let log = directory.join("log");
        let server = Server::start(installation, address, directory, &log)?;
        Ok(Self { id, server })
    }

    /// Whether it serves the ensemble's data within this time.
    pub async fn serves_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            let address = self.server.address;
            let ask = move |word| ask_for(address.into(), word, TIMEOUT, MAX_ANSWER);
            if let ServerReport::Serving { .. } = probe_by(self.id, ask).await {
                return true;
            }
            sleep(Duration::from_millis(100)).await;
        }
        false
    }
}
