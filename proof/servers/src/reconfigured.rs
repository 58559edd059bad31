//! An ensemble of real servers whose members change at run time, by the rule of
//! [`bellwether_ensemble::safety::reconfiguration`].
//!
//! [`Ensemble::pass`] does what an operator does that knows nothing but what the servers answer: it may be killed after any
//! request. Servers that end are started again from their files, as the kubelet does.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellwether_api::ensemble::MemberRole;
use bellwether_ensemble::four_letter::{parse_conf, parse_srvr};
use bellwether_ensemble::safety::reconfiguration::{
    Held, Lists, Next, list_of_newcomer, may_remove, next,
};
use bellwether_ensemble::{ServerId, Voters};
use bellwether_member::{STORED, committed_file, is_pending, zoo_cfg};
use futures::future::join_all;
use sha1::{Digest, Sha1};
use tempfile::TempDir;
use tokio::time::timeout;
use zookeeper_client::{Client, EnsembleUpdate};

use crate::authority;
use crate::installation::Installation;
use crate::network::Network;
use crate::server::{Process, Server};
use crate::zookeeper::{MAX_ANSWER, TIMEOUT, ask_for};

/// How long a request for another list may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a server that ended stays away, as a pod does that is made again. A leader that has to step down would be elected
/// again if it came back sooner than the others elect.
const AWAY: Duration = Duration::from_millis(1500);

/// The ensemble.
#[derive(Debug)]
pub struct Ensemble {
    installation: Installation,
    network: Network,
    members: BTreeMap<ServerId, Member>,
    /// The list that was last known as that of the ensemble.
    known: Voters,
    /// How many requests for another list were made.
    pub requests: u32,
    /// How many leaders had to step down because they leave.
    pub stepped_down: u32,
    // Dropped last, when the servers have ended.
    directory: TempDir,
}

#[derive(Debug)]
struct Member {
    server: Server,
    /// That of the super user, for this start of this server.
    password: String,
    /// Since when it is known to have ended.
    ended: Option<Instant>,
}

/// What the servers say of their lists.
#[derive(Debug, Default)]
pub struct Look {
    /// The one server that leads.
    pub leader: Option<ServerId>,
    /// What those say that answer and serve, or have stored a list.
    pub held: BTreeMap<ServerId, Held>,
}

impl Look {
    /// For the rules.
    pub fn lists(&self) -> Lists<'_> {
        Lists {
            leader: self.leader,
            held: &self.held,
        }
    }
}

impl Ensemble {
    /// An ensemble of the servers from 1 to `size`, all of which are started at once, without data.
    ///
    /// # Errors
    /// When no server can be started.
    pub fn start(installation: &Installation, size: u16) -> Result<Self> {
        let (directory, network) = (tempfile::tempdir()?, Network::reserve()?);
        authority::write_stores(directory.path(), &network)?;
        let mut ensemble = Self {
            installation: installation.clone(),
            network,
            members: BTreeMap::new(),
            known: Voters::first(size, 0),
            requests: 0,
            stepped_down: 0,
            directory,
        };
        for id in ensemble.known.clone().iter() {
            ensemble.run(id)?;
        }
        Ok(ensemble)
    }

    fn home(&self, id: ServerId) -> PathBuf {
        self.directory.path().join(id.to_string())
    }

    /// Where its servers listen for clients.
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        let ids = self.members.keys();
        ids.map(|id| self.network.address(*id)).collect()
    }

    /// Its servers, those that are down among them.
    pub fn servers(&self) -> Voters {
        self.members.keys().copied().collect()
    }

    fn lines(&self, list: &Voters) -> String {
        let line = |id: ServerId| {
            let address = self.network.address(id);
            format!("server.{id}={address}:2888:3888:participant\n")
        };
        list.iter().map(line).collect()
    }

    /// The name of the file with the list that a server knows as committed.
    fn committed(&self, id: ServerId) -> Option<String> {
        let last = fs::read_to_string(self.home(id).join("zoo.cfg")).ok()?;
        committed_file(&last).map(str::to_owned)
    }

    /// Starts a server from its files, or as a newcomer if it has none.
    fn run(&mut self, id: ServerId) -> Result<()> {
        let home = self.home(id);
        let data = home.join("data");
        fs::create_dir_all(&data)?;
        fs::write(data.join("myid"), id.to_string())?;
        fs::write(home.join("logback.xml"), LOGBACK)?;
        let password = format!("{:032x}", fastrand::u128(..));
        let committed = self.committed(id).map(|name| home.join(name));
        let committed = committed.and_then(|path| {
            let list = fs::read_to_string(&path).ok()?;
            Some((path.display().to_string(), list))
        });
        let text = zoo_cfg(
            &self.settings(id, &password),
            committed
                .as_ref()
                .map(|(path, list)| (path.as_str(), list.as_str())),
            id.0,
            &self.lines(&list_of_newcomer(id, &self.known)),
        );
        fs::write(home.join("zoo.cfg"), text)?;
        let (address, log) = (self.network.address(id), home.join("log"));
        let server = Server::start(&self.installation, address, &home, &log)?;
        self.members.insert(
            id,
            Member {
                server,
                password,
                ended: None,
            },
        );
        Ok(())
    }

    fn settings(&self, id: ServerId, password: &str) -> String {
        let user = format!("super:{password}");
        let digest = STANDARD.encode(Sha1::digest(user.as_bytes()));
        format!(
            "dataDir={}\ntickTime=1000\ninitLimit=10\nsyncLimit=5\nclientPort=2181\nclientPortAddress={}\n\
             admin.enableServer=false\nstandaloneEnabled=false\nreconfigEnabled=true\n\
             4lw.commands.whitelist=srvr,conf\nfastleader.maxNotificationInterval=500\n\
             leader.maxTimeToWaitForEpoch=2000\nleaderConnectDelayDuringRetryMs=200\nelectionPortBindRetry=0\n\
             sslQuorum=true\nssl.quorum.hostnameVerification=false\n\
             ssl.quorum.keyStore.location={directory}/member.pem\n\
             ssl.quorum.trustStore.location={directory}/authorities.pem\n\
             DigestAuthenticationProvider.superDigest=super:{digest}\n",
            self.home(id).join("data").display(),
            self.network.address(id),
            directory = self.directory.path().display(),
        )
    }

    /// The process of a server, to be ended while a request is under way.
    pub fn handle(&self, id: ServerId) -> Option<Process> {
        self.server(id)?.process()
    }

    fn server(&self, id: ServerId) -> Option<&Server> {
        Some(&self.members.get(&id)?.server)
    }

    /// Ends a server at once. [`Self::look_after`] starts it again.
    pub fn kill(&self, id: ServerId) {
        if let Some(server) = self.server(id) {
            server.kill();
        }
    }

    /// Stops a server, with its connections open.
    pub fn freeze(&self, id: ServerId) {
        if let Some(server) = self.server(id) {
            server.freeze();
        }
    }

    /// Ends a server and removes all that it has, as when its pod and its volume are deleted.
    ///
    /// # Errors
    /// When its files stay.
    pub async fn remove(&mut self, id: ServerId) -> Result<()> {
        if let Some(mut member) = self.members.remove(&id) {
            member.server.kill();
            member.server.wait().await?;
        }
        Ok(fs::remove_dir_all(self.home(id))?)
    }

    /// Starts servers again that ended a while ago.
    ///
    /// # Errors
    /// When a server cannot be started.
    pub fn look_after(&mut self) -> Result<()> {
        let mut due = Vec::new();
        for (id, member) in &mut self.members {
            if member.server.ended().is_some() {
                let since = *member.ended.get_or_insert_with(Instant::now);
                due.extend((since.elapsed() >= AWAY).then_some(*id));
            }
        }
        due.into_iter().try_for_each(|id| self.run(id))
    }

    /// Asks every server for its list.
    pub async fn look(&self) -> Look {
        let all = self
            .members
            .keys()
            .map(|id| async { (*id, self.held(*id).await) });
        let mut look = Look::default();
        let mut leaders = Vec::new();
        for (id, (role, held)) in join_all(all).await {
            leaders.extend((role == Some(MemberRole::Leader)).then_some(id));
            look.held.extend(held.map(|held| (id, held)));
        }
        look.leader = leaders.pop().filter(|_| leaders.is_empty());
        look
    }

    /// What a server says, and what is on its disk, which the member program tells.
    async fn held(&self, id: ServerId) -> (Option<MemberRole>, Option<Held>) {
        let address = self.network.address(id).into();
        let ask = |word| ask_for(address, word, TIMEOUT, MAX_ANSWER);
        let stored = fs::read_to_string(self.home(id).join(STORED)).ok();
        let pending = is_pending(self.committed(id).as_deref(), stored.as_deref());
        let serving = ask("srvr")
            .await
            .ok()
            .and_then(|srvr| parse_srvr(&srvr).ok()?);
        let configuration = ask("conf")
            .await
            .ok()
            .and_then(|conf| parse_conf(&conf).ok()?);
        let role = serving.map(|serving| serving.role);
        let held = match configuration {
            Some(said) => Some(Held {
                version: said.version,
                voters: said.voters,
                pending,
                serves: role.is_some(),
            }),
            // It does not say which list it knows, and has stored another one.
            None => pending.then(|| Held {
                version: 0,
                voters: self.known.clone(),
                pending,
                serves: false,
            }),
        };
        (role, held)
    }

    /// Asks a server for this list, if that of the ensemble has this version. The answer says nothing about the outcome.
    ///
    /// # Errors
    /// What the server answers, or that it does not.
    pub async fn ask(&mut self, of: ServerId, list: &Voters, version: u64) -> Result<()> {
        self.requests += 1;
        let member = self.members.get(&of).context("no such server")?;
        let user = format!("super:{}", member.password);
        let connector = Client::connector()
            .with_session_timeout(Duration::from_secs(4))
            .with_auth("digest", user.as_bytes())
            .with_fail_eagerly();
        let address = format!("{}:2181", self.network.address(of));
        let client = timeout(PATIENCE, connector.connect(&address)).await??;
        let lines = self.lines(list);
        let ensemble = lines.lines();
        let asked = client.update_ensemble(
            EnsembleUpdate::New { ensemble },
            i64::try_from(version).ok(),
        );
        timeout(PATIENCE, asked).await??;
        Ok(())
    }

    /// One pass of an operator that wants these members.
    ///
    /// # Errors
    /// When a server cannot be started.
    pub async fn pass(&mut self, wanted: &Voters) -> Result<Pass> {
        self.look_after()?;
        let look = self.look().await;
        let Ok((_, list)) = look.lists().settled() else {
            return Ok(Pass::Wait);
        };
        self.known = list.clone();
        for newcomer in wanted.difference(&self.servers()).iter() {
            self.run(newcomer)?;
        }
        if self.known == *wanted {
            for leaver in self.servers().difference(wanted).iter() {
                if may_remove(leaver, look.lists()).is_ok() {
                    self.remove(leaver).await?;
                }
            }
            let serves = |id| look.held.get(&id).is_some_and(|held| held.serves);
            return Ok(match wanted.iter().all(serves) {
                true => Pass::Done,
                false => Pass::Wait,
            });
        }
        match next(look.lists(), wanted) {
            Ok(Next::Ask(list, version)) => {
                // Any server that serves may be asked; the first is as good as another.
                let of = look.held.iter().find(|(_, held)| held.serves);
                Ok(of.map_or(Pass::Wait, |(of, _)| Pass::Ask(*of, list, version)))
            }
            Ok(Next::StepDown(leader)) => {
                self.stepped_down += 1;
                self.kill(leader);
                Ok(Pass::Wait)
            }
            Err(_) => Ok(Pass::Wait),
        }
    }

    /// Keeps the servers' files, to be looked at after a failure. Returns where they are.
    pub fn keep_files(mut self) -> PathBuf {
        self.members.clear();
        self.directory.disable_cleanup(true);
        self.directory.path().to_owned()
    }

    /// What is known, for people.
    pub async fn picture(&self) -> String {
        let look = self.look().await;
        format!("leader {:?}, {:?}", look.leader, look.held)
    }
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Nothing, until the servers say something else.
    Wait,
    /// This server is to be asked for this list, by [`Ensemble::ask`], if that of the ensemble has this version.
    Ask(ServerId, Voters, u64),
    /// The ensemble has the wanted members, all of which serve, and nobody else.
    Done,
}

const LOGBACK: &str = r#"<configuration>
  <appender name="CONSOLE" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5p [%t:%C{1}@%L] - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="CONSOLE" /></root>
</configuration>
"#;
