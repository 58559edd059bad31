//! The cluster that the operator works in: API servers, controllers, kubelets, ZooKeeper servers and a client
//! that writes, all of them driven by one clock.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bellwether::{Contact, Issuer, Members, Told};
use bellwether_api_server::{ApiServer, Kind};
use bellwether_ensemble::ServerId;
use bellwether_ensemble::certificates::{AuthorityName, Issued, Party};
use bellwether_ensemble::four_letter::probe_by;
use bellwether_ensemble::ids::ServerList;
use bellwether_ensemble::volume_report::VolumeReport;
use bellwether_member::learner_lines;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep};

use crate::controllers::Controllers;
use crate::kubelet::Kubelets;
use crate::zookeeper::clients::Writer;
use crate::zookeeper::{ClientId, Zoo};

/// The namespace of everything.
pub const NAMESPACE: &str = "default";
/// The name of the ensemble.
pub const NAME: &str = "zk";
/// How `Zoo` calls the ensemble.
pub const ENSEMBLE: &str = "default/zk";
/// How long the operator waits for an answer that does not come.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it waits for servers to agree on another list.
const DECIDED: Duration = Duration::from_secs(5);
/// How many machines there are.
pub const NODES: usize = 6;

/// Everything but the operator.
#[derive(Debug)]
pub struct Machines {
    /// The kubelets and what runs on their nodes.
    pub kubelets: Kubelets,
    /// The ZooKeeper servers.
    pub zoo: Zoo,
    /// The controllers of Kubernetes.
    pub controllers: Controllers,
    /// A client that writes.
    pub writer: Writer,
    /// Operators whose questions to members are lost.
    pub deaf: BTreeSet<String>,
}

/// The cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The API servers.
    pub api: ApiServer,
    machines: Arc<Mutex<Machines>>,
    begin: Instant,
}

impl Cluster {
    /// A cluster without ensembles, behind this many API servers.
    pub fn new(seed: u64, front_ends: usize) -> Self {
        let pace = Duration::from_millis(200);
        let writer = Writer::new(ClientId(1), ENSEMBLE, pace, Duration::ZERO);
        let machines = Machines {
            kubelets: Kubelets::new(seed ^ 1, NODES),
            zoo: Zoo::new(seed ^ 2),
            controllers: Controllers::default(),
            writer,
            deaf: BTreeSet::new(),
        };
        Self {
            api: ApiServer::new(seed ^ 4, front_ends),
            machines: Arc::new(Mutex::new(machines)),
            begin: Instant::now(),
        }
    }

    /// The machines. Never hold them across an await, and take the store after them.
    pub fn machines(&self) -> MutexGuard<'_, Machines> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the cluster began.
    pub fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Everything that happens by itself up to now.
    pub fn step(&self) {
        let now = self.now();
        let mut machines = self.machines();
        let machines = &mut *machines;
        let mut store = self.api.store();
        machines.controllers.step_if_due(&mut store);
        machines.kubelets.step(now, &mut store, &mut machines.zoo);
        machines.kubelets.forget_claims(&store);
        machines.writer.use_servers(machines.kubelets.processes());
        let answers = machines.zoo.take_answers();
        machines.writer.advance(&mut machines.zoo, now, &answers);
    }

    /// Whether members have a certificate to present.
    pub fn has_identity(&self) -> bool {
        let store = self.api.store();
        let mut secrets = store.list(Kind::SECRET, Some(NAMESPACE));
        secrets.any(|secret| secret.name().starts_with("zk-identity-"))
    }

    /// The members as the operator of this name reaches them.
    pub fn members(&self, operator: &str) -> Arc<dyn Members> {
        Arc::new(Reach {
            cluster: self.clone(),
            operator: operator.to_owned(),
        })
    }
}

/// The way from an operator to the members.
struct Reach {
    cluster: Cluster,
    operator: String,
}

impl Reach {
    /// Whether members answer this operator: it hears them, and they have a certificate to present.
    fn is_answered(&self) -> bool {
        let deaf = self.cluster.machines().deaf.contains(&self.operator);
        !deaf && self.cluster.has_identity()
    }
}

/// Signs nothing: the simulated network is not encrypted.
pub struct Unsigned;

#[async_trait]
impl Issuer for Unsigned {
    async fn root(&self) -> anyhow::Result<String> {
        Ok("root".to_owned())
    }

    async fn issue(
        &self,
        _: &AuthorityName,
        party: Party,
        names: Vec<String>,
        now: Timestamp,
        valid: SignedDuration,
    ) -> anyhow::Result<Issued> {
        Ok(Issued {
            authority: format!("authority of {party:?}"),
            authority_until: now + valid,
            certificate: format!("certificate of {}", names.join(",")),
            key: "key".to_owned(),
            until: now + valid,
        })
    }
}

#[async_trait]
impl Members for Reach {
    async fn state(&self, contact: &Contact) -> anyhow::Result<String> {
        self.ask(contact, "state").await
    }

    async fn reconfigure(
        &self,
        contact: &Contact,
        list: &ServerList,
        version: u64,
    ) -> anyhow::Result<()> {
        let stops = self.cluster.api.stops();
        stops.passed(&self.operator).await;
        sleep(Duration::from_millis(2)).await;
        if !self.is_answered() {
            sleep(PATIENCE).await;
            anyhow::bail!("no answer");
        }
        let request = {
            let now = self.cluster.now();
            let mut machines = self.cluster.machines();
            let process = machines.kubelets.process_at(contact.address);
            process.map(|process| machines.zoo.reconfigure(now, process, list, version))
        };
        let Some(request) = request else {
            sleep(PATIENCE).await;
            anyhow::bail!("no answer");
        };
        let begin = self.cluster.now();
        loop {
            sleep(Duration::from_millis(20)).await;
            let outcome = {
                let now = self.cluster.now();
                let mut machines = self.cluster.machines();
                machines.zoo.advance(now);
                machines.zoo.outcome(request)
            };
            stops.passed(&self.operator).await;
            if let Some(outcome) = outcome.filter(|_| self.is_answered()) {
                return outcome.map_err(anyhow::Error::msg);
            }
            if self.cluster.now() > begin + DECIDED {
                anyhow::bail!("no answer");
            }
        }
    }

    async fn clients(&self, _contact: &Contact) -> anyhow::Result<Option<[String; 2]>> {
        Ok(None)
    }

    async fn report(&self, contact: &Contact, id: ServerId) -> Told {
        let volumes = self.volumes(contact);
        let server = probe_by(id, |word| self.ask(contact, word));
        let (server, volumes) = tokio::join!(server, volumes);
        Told {
            server,
            volumes,
            presents: None,
            credentials: Default::default(),
            client_authority: None,
        }
    }
}

impl Reach {
    async fn ask(&self, contact: &Contact, word: &'static str) -> anyhow::Result<String> {
        let stops = self.cluster.api.stops();
        stops.passed(&self.operator).await;
        sleep(Duration::from_millis(2)).await;
        let answer = {
            let now = self.cluster.now();
            let mut machines = self.cluster.machines();
            machines.zoo.advance(now);
            let process = machines.kubelets.process_at(contact.address);
            let ask = |word| machines.zoo.answer(process?, word);
            match word {
                "state" => ask("srvr").map(|srvr| {
                    let mntr = ask("mntr").unwrap_or_default();
                    srvr + &learner_lines(&mntr)
                }),
                word => ask(word),
            }
        };
        stops.passed(&self.operator).await;
        match answer.filter(|_| self.is_answered()) {
            Some(answer) => Ok(answer),
            None => {
                sleep(PATIENCE).await;
                anyhow::bail!("no answer within 1s")
            }
        }
    }

    async fn volumes(&self, contact: &Contact) -> Option<VolumeReport> {
        let stops = self.cluster.api.stops();
        stops.passed(&self.operator).await;
        sleep(Duration::from_millis(2)).await;
        let report = {
            let machines = self.cluster.machines();
            let disks = machines.kubelets.volumes_at(contact.address);
            disks.map(|(data, log)| machines.zoo.volume_report(data, log))
        };
        stops.passed(&self.operator).await;
        if report.is_none() || !self.is_answered() {
            sleep(PATIENCE).await;
            return None;
        }
        report
    }
}
