//! Members that are played: one listener answers for every address, as the member program behind it; for an operator of
//! an earlier version also as the server.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::ByteString;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, version};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

/// The port of ZooKeeper.
const CLIENT: u16 = 2181;
/// The port of the member program for the operator.
const CONTROL: u16 = 8078;
/// All ports; the last one is where an earlier version of the operator asks the member program.
const PORTS: [u16; 3] = [CLIENT, CONTROL, 8079];
/// The longest request.
const LONGEST: usize = 4096;
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
    /// What its members present, once the operator has made it.
    identity: Option<Arc<ServerConfig>>,
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

    /// Whether the members of an ensemble have a certificate.
    pub(super) fn has_identity(&self, ensemble: u32) -> bool {
        let all = self.all();
        all.get(&ensemble).is_some_and(|e| e.identity.is_some())
    }

    /// The members of an ensemble have the certificate in this Secret.
    pub(super) fn identify(
        &self,
        ensemble: u32,
        secret: &BTreeMap<String, ByteString>,
    ) -> Result<()> {
        let identity = identity(secret)?;
        self.all().entry(ensemble).or_default().identity = Some(identity);
        Ok(())
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
        if port != CONTROL {
            let mut word = [0; 4];
            stream.read_exact(&mut word).await?;
            let word = match port {
                CLIENT => str::from_utf8(&word)?,
                _ => "volumes",
            };
            let Some(text) = self.says(ensemble, ordinal, word).await else {
                return Ok(());
            };
            let head = match port {
                CLIENT => "",
                _ => "HTTP/1.0 200 OK\r\n\r\n",
            };
            return Ok(stream.write_all(format!("{head}{text}").as_bytes()).await?);
        }
        let identity = self.all().get(&ensemble).and_then(|e| e.identity.clone());
        let Some(identity) = identity else {
            return Ok(());
        };
        let mut stream = TlsAcceptor::from(identity).accept(stream).await?;
        while let Some(path) = request(&mut stream).await? {
            let Some(text) = self.says(ensemble, ordinal, &path).await else {
                return Ok(());
            };
            let length = text.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}");
            stream.write_all(answer.as_bytes()).await?;
            stream.flush().await?;
        }
        Ok(())
    }

    /// What a member says; `None` if it does not run, or hangs.
    async fn says(&self, ensemble: u32, ordinal: u32, word: &str) -> Option<String> {
        let (hangs, text) = {
            let all = self.all();
            let ensemble = all.get(&ensemble)?;
            ensemble.running.get(&ordinal)?;
            let text = match word {
                "report" => {
                    let said = |word| said(ensemble, ordinal, word);
                    let volumes: Value = serde_json::from_str(&said("volumes")).ok()?;
                    json!({
                        "srvr": { "answer": said("srvr") },
                        "conf": { "answer": said("conf") },
                        "volumes": { "answer": volumes },
                    })
                    .to_string()
                }
                word => said(ensemble, ordinal, word),
            };
            (ensemble.hangs, text)
        };
        if hangs {
            sleep(HANGS).await;
            return None;
        }
        Some(text)
    }
}

/// What members present that have this Secret.
fn identity(secret: &BTreeMap<String, ByteString>) -> Result<Arc<ServerConfig>> {
    let text = |key: &str| {
        let ByteString(bytes) = secret.get(key).with_context(|| format!("no {key}"))?;
        Ok::<_, anyhow::Error>(bytes.as_slice())
    };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(text("ca.crt")?)?)?;
    let certificate = CertificateDer::from_pem_slice(text("tls.crt")?)?;
    let key = PrivateKeyDer::from_pem_slice(text("tls.key")?)?;
    let provider = Arc::new(default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(clients.build()?)
        .with_single_cert(vec![certificate], key)?;
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The path of the next request; `None` when the operator has closed the connection.
async fn request(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<Option<String>> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(n) => head.extend_from_slice(&buffer[..n]),
        }
        if head.len() > LONGEST {
            bail!("the request does not end");
        }
    }
    let head = String::from_utf8(head)?;
    let path = head.split(' ').nth(1).unwrap_or_default();
    Ok(Some(path.trim_start_matches('/').to_owned()))
}

/// What a member says.
fn said(ensemble: &Ensemble, ordinal: u32, word: &str) -> String {
    let epoch = ensemble.epoch;
    if word == "volumes" {
        let usage = r#"{"total":1073741824,"free":1000000000}"#;
        return format!(
            "{{\"database\":true,\"currentEpoch\":{epoch},\"acceptedEpoch\":{epoch},\"data\":{usage},\"datalog\":null}}"
        );
    }
    let Some(leader) = ensemble.leader else {
        return "This ZooKeeper instance is not currently serving requests\n".to_owned();
    };
    let voters = ensemble.running.get(&ordinal).map_or("", String::as_str);
    match word {
        "srvr" | "state" => {
            let mode = if leader == ordinal {
                "leader"
            } else {
                "follower"
            };
            let mut text = format!("Zxid: {:#x}\nMode: {mode}\nNode count: 5\n", epoch << 32);
            if word == "state" && leader == ordinal {
                let followers = ensemble.running.len() - 1;
                text.push_str(&format!(
                    "zk_synced_followers\t{followers}\nzk_synced_observers\t0\n"
                ));
            }
            text
        }
        "conf" => {
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
