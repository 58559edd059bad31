//! The request for another list of servers, which the member program makes in a pod.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bellwether_ensemble::desired::config::SERVERS;
use bellwether_ensemble::{ServerId, Voters};
use tokio::time::{sleep, timeout};
use zookeeper_client::{Client, EnsembleUpdate};

use super::World;
use crate::kubelet::Pod;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// What goes wrong in a request for another list.
#[derive(Clone, Copy, Debug)]
pub enum InRequest {
    /// This server ends so much later than the request begins.
    Kill(Victim, Duration),
    /// The newcomers stop, and end after the request without coming back.
    HoldNewcomers,
    /// It stays on its way until [`World::deliver`].
    Late,
}

/// A server, as a request finds it.
#[derive(Clone, Copy, Debug)]
pub enum Victim {
    /// The leader.
    Leader,
    /// One of those that come or go, by a number.
    Moving(usize),
    /// Any, by a number.
    Any(usize),
}

impl World {
    /// Asks a server for this list, if that of the ensemble has this version. The answer says nothing about the outcome: a server may
    /// be killed meanwhile.
    pub(super) async fn reconfigure(
        &mut self,
        of: ServerId,
        list: &Voters,
        version: u64,
    ) -> Result<()> {
        let fault = self.in_request.take();
        if matches!(fault, Some(InRequest::Late)) {
            self.late = Some((of, list.clone(), version));
            bail!("the request is on its way");
        }
        let present = self.lists().remove(&of).unwrap_or_default();
        let newcomers = list.difference(&present);
        let moving = newcomers.union(&present.difference(list));
        let (mut victim, mut moment) = (None, Duration::ZERO);
        match fault {
            Some(InRequest::Kill(which, later)) => {
                victim = self.victim(which, of, &moving);
                moment = later;
            }
            Some(InRequest::HoldNewcomers) => {
                let pods = self.pods.values();
                let held = pods.filter(|pod| newcomers.contains(ServerId(pod.ordinal + 1)));
                held.for_each(Pod::freeze);
            }
            Some(InRequest::Late) | None => {}
        }
        if let Some(fault) = fault {
            self.tell(&format!("FAULT: {fault:?} | {}", self.picture()));
        }
        let process = victim.and_then(|id| self.pods.get(&(id.0 - 1))?.process());
        let kill = async {
            sleep(moment).await;
            process.inspect(|process| process.kill());
        };
        let (asked, ()) = tokio::join!(self.ask_for_list(of, list, version), kill);
        if matches!(fault, Some(InRequest::HoldNewcomers)) {
            for id in newcomers.iter() {
                self.held.insert(id.0 - 1);
                self.kill(id);
            }
        }
        asked
    }

    /// A request arrives that was on its way.
    ///
    /// # Errors
    /// What the server answers.
    pub async fn deliver(&mut self) -> Result<()> {
        let (of, list, version) = self.late.take().context("no request is on its way")?;
        self.tell(&format!(
            "FAULT: the request for {{{list}}} arrives | {}",
            self.picture()
        ));
        self.ask_for_list(of, &list, version).await
    }

    fn victim(&self, which: Victim, leader: ServerId, moving: &Voters) -> Option<ServerId> {
        let all: Vec<ServerId> = self.lists().into_keys().collect();
        match which {
            Victim::Leader => Some(leader),
            Victim::Moving(number) => moving.iter().nth(number % moving.len().max(1)),
            Victim::Any(number) => all.get(number % all.len().max(1)).copied(),
        }
    }

    async fn ask_for_list(&self, of: ServerId, list: &Voters, version: u64) -> Result<()> {
        let pod = self.pods.get(&(of.0 - 1)).context("no such pod")?;
        let conf = pod.conf(&self.node);
        let user = format!("super:{}", fs::read_to_string(conf.join("super-password"))?);
        let connector = Client::connector()
            .with_session_timeout(Duration::from_secs(4))
            .with_auth("digest", user.as_bytes())
            .with_fail_eagerly();
        let address = format!("{}:2181", pod.address);
        let client = timeout(PATIENCE, connector.connect(&address)).await??;
        let servers = fs::read_to_string(conf.join(SERVERS))?;
        let named = |line: &&str| {
            let mut ids = list.iter();
            ids.any(|id| line.starts_with(&format!("server.{id}=")))
        };
        let lines: Vec<&str> = servers.lines().filter(named).collect();
        let ensemble = lines.into_iter();
        let update = EnsembleUpdate::New { ensemble };
        let asked = client.update_ensemble(update, i64::try_from(version).ok());
        timeout(PATIENCE, asked).await??;
        Ok(())
    }
}
