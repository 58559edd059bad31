//! Members that are played: one listener answers for every address, as the server or the member program behind it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// The port of ZooKeeper, and that of the member program.
const PORTS: [u16; 2] = [2181, 8079];
/// The network of the members. The kernel must take all of it for this machine's.
pub(super) const NETWORK: &str = "10.200.0.0/16";
/// Room for the members of one ensemble.
const EACH: u32 = 4;
/// How long a member that hangs keeps a connection.
const HANGS: Duration = Duration::from_secs(30);

/// What every member answers.
#[derive(Clone, Default)]
pub(super) struct Members(Arc<Mutex<HashMap<u32, Ensemble>>>);

/// One ensemble.
#[derive(Default)]
struct Ensemble {
    /// The members that run, and the voters of their configuration.
    running: HashMap<u32, String>,
    leader: Option<u32>,
    epoch: u64,
    hangs: bool,
}

impl Ensemble {
    /// Elects the running member after the last leader, if a majority runs.
    fn elect(&mut self) {
        let voters = self.running.values().map(|list| list.split(',').count());
        let needed = voters.max().unwrap_or(1) / 2 + 1;
        let mut running: Vec<u32> = self.running.keys().copied().collect();
        running.sort_unstable();
        let last = self.leader.take();
        if running.len() < needed {
            return;
        }
        let next = running.iter().find(|member| Some(**member) > last);
        self.leader = next.or(running.first()).copied();
        self.epoch += 1;
    }
}

/// The address of a member.
pub(super) fn address(ensemble: u32, ordinal: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 200, 0, 0)) + ensemble * EACH + ordinal)
}

impl Members {
    fn all(&self) -> MutexGuard<'_, HashMap<u32, Ensemble>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member starts with this list of voters.
    pub(super) fn start(&self, ensemble: u32, ordinal: u32, voters: &str) {
        let mut all = self.all();
        let ensemble = all.entry(ensemble).or_default();
        ensemble.running.insert(ordinal, voters.to_owned());
        if ensemble.leader.is_none() {
            ensemble.elect();
        }
    }

    /// A member stops.
    pub(super) fn stop(&self, ensemble: u32, ordinal: u32) {
        let mut all = self.all();
        let ensemble = all.entry(ensemble).or_default();
        if ensemble.running.remove(&ordinal).is_some() && ensemble.leader == Some(ordinal) {
            ensemble.elect();
        }
    }

    /// Another member leads. Returns which.
    pub(super) fn change(&self, ensemble: u32) -> Option<u32> {
        let mut all = self.all();
        let ensemble = all.get_mut(&ensemble)?;
        ensemble.elect();
        ensemble.leader
    }

    /// The member that leads.
    pub(super) fn leader(&self, ensemble: u32) -> Option<u32> {
        self.all().get(&ensemble)?.leader
    }

    /// From now on its members accept connections and do not answer; or answer again.
    pub(super) fn hang(&self, ensemble: u32, hangs: bool) {
        self.all().entry(ensemble).or_default().hangs = hangs;
    }

    /// Answers for all of them.
    pub(super) async fn serve(&self) -> Result<()> {
        for port in PORTS {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await;
            let listener = listener.with_context(|| format!("listen on port {port}"))?;
            let members = self.clone();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let members = members.clone();
                    tokio::spawn(async move {
                        // A caller that is gone needs no answer.
                        let _ = members.answer(stream, port).await;
                    });
                }
            });
        }
        Ok(())
    }

    async fn answer(&self, mut stream: TcpStream, port: u16) -> Result<()> {
        let IpAddr::V4(address) = stream.local_addr()?.ip() else {
            return Ok(());
        };
        let number = u32::from(address) - u32::from(Ipv4Addr::new(10, 200, 0, 0));
        let (ensemble, ordinal) = (number / EACH, number % EACH);
        let mut word = [0; 4];
        stream.read_exact(&mut word).await?;
        let text = {
            let all = self.all();
            let ensemble = all
                .get(&ensemble)
                .filter(|e| e.running.contains_key(&ordinal));
            ensemble.map(|e| (e.hangs, said(e, ordinal, &word, port)))
        };
        match text {
            Some((true, _)) => sleep(HANGS).await,
            Some((false, text)) => stream.write_all(text.as_bytes()).await?,
            None => {}
        }
        Ok(())
    }
}

/// What a member says.
fn said(ensemble: &Ensemble, ordinal: u32, word: &[u8], port: u16) -> String {
    let epoch = ensemble.epoch;
    if port != PORTS[0] {
        let usage = r#"{"total":1073741824,"free":1000000000}"#;
        return format!(
            "HTTP/1.0 200 OK\r\n\r\n{{\"database\":true,\"currentEpoch\":{epoch},\"acceptedEpoch\":{epoch},\"data\":{usage},\"datalog\":null}}"
        );
    }
    let Some(leader) = ensemble.leader else {
        return "This ZooKeeper instance is not currently serving requests\n".to_owned();
    };
    let voters = ensemble.running.get(&ordinal).map_or("", String::as_str);
    match word {
        b"srvr" => {
            let mode = if leader == ordinal {
                "leader"
            } else {
                "follower"
            };
            format!("Zxid: {:#x}\nMode: {mode}\nNode count: 5\n", epoch << 32)
        }
        b"conf" => {
            let servers = voters.split(',');
            let servers: Vec<String> = servers
                .map(|id| format!("server.{id}=host-{id}:2888:3888:participant\n"))
                .collect();
            let id = ordinal + 1;
            format!("serverId={id}\nmembership: \n{}version=0", servers.concat())
        }
        _ => "imok".to_owned(),
    }
}
