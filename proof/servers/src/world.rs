//! A small world: the API server's objects, the StatefulSet controller, the kubelets and one pass
//! after another of the operator, around real servers.

mod reconfigure;
mod writes;

pub use reconfigure::{InRequest, Victim};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use bellwether_api::ensemble::{ClientsTls, MemberRole, MembershipChange, Phase, Tls};
use bellwether_api::{ZooKeeperEnsemble, ZooKeeperEnsembleSpec};
use bellwether_ensemble::desired::claims::data_claim;
use bellwether_ensemble::desired::{ObjectKind, pod_name};
use bellwether_ensemble::encryption::Encryption;
use bellwether_ensemble::execute::execute;
use bellwether_ensemble::execute::objects::Objects;
use bellwether_ensemble::four_letter::probe_by;
use bellwether_ensemble::observation::{PodObservation, ServerReport};
use bellwether_ensemble::plan::plan_under;
use bellwether_ensemble::rules::Rules;
use bellwether_ensemble::safety::holds_majority;
use bellwether_ensemble::validate::{Context, invalid_message};
use bellwether_ensemble::volume_report::{Usage, VolumeReport};
use bellwether_ensemble::{Observation, Plan, ServerId, ValidEnsemble, Voters, validate};
use bellwether_member::{STORED, committed_file, pending};
use futures::future::join_all;
use jiff::Timestamp;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::audit::Audit;
use crate::authority;
use crate::installation::Installation;
use crate::kubelet::{Node, Pod, own_files};
use crate::network::Network;
use crate::stranger::Stranger;
use crate::zookeeper::{MAX_ANSWER, TIMEOUT, ask_for};

/// How long the world rests after each pass. In a cluster, pod events and the plan's requeue time
/// wake the operator.
const PASS: Duration = Duration::from_millis(100);

/// The ensemble's name.
const NAME: &str = "zk";

/// The world.
#[derive(Debug)]
pub struct World {
    /// The ensemble as the user wants it.
    pub ensemble: ZooKeeperEnsemble,
    /// Which safety rules the planner keeps.
    pub rules: Rules,
    /// Watches for two leaders.
    pub audit: Audit,
    network: Network,
    node: Node,
    objects: Objects,
    pods: BTreeMap<u16, Pod>,
    uids: u32,
    restarts: u32,
    requests: u32,
    in_request: Option<InRequest>,
    /// A request for another list that is on its way: whom it asks, for what, and under which version.
    late: Option<(ServerId, Voters, u64)>,
    /// The pods whose servers stay away.
    held: BTreeSet<u16>,
    reports: BTreeMap<ServerId, ServerReport>,
    last: Option<Plan>,
    began: Instant,
    story: String,
    // Dropped last, when the servers have ended.
    directory: Option<TempDir>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.pods.clear();
        if std::thread::panicking()
            && let Some(directory) = self.directory.take()
        {
            let path = directory.keep();
            eprintln!("the servers' files stay in {}", path.display());
        }
    }
}

impl World {
    /// An ensemble that is asked for and does not exist.
    ///
    /// # Errors
    /// When there is no room for it on this machine.
    pub fn new(installation: &Installation, size: u16) -> Result<Self> {
        let spec = ZooKeeperEnsembleSpec {
            replicas: size.into(),
            // A server with a port for TLS takes more of the processor to start.
            tls: Some(Tls {
                clients: Some(ClientsTls::Disabled),
                ..Default::default()
            }),
            ..Default::default()
        };
        let mut ensemble = ZooKeeperEnsemble::new(NAME, spec);
        ensemble.metadata.namespace = Some("default".to_owned());
        let directory = tempfile::Builder::new()
            .prefix("bellwether-servers-")
            .tempdir()?;
        let root = directory.path().to_owned();
        fs::create_dir_all(root.join("bootstrap"))?;
        let network = Network::reserve()?;
        authority::write_secret(&root.join("secret"), &network)?;
        Ok(Self {
            ensemble,
            rules: Rules::ALL,
            audit: Audit::default(),
            network,
            node: Node {
                installation: installation.clone(),
                root,
            },
            objects: Objects::default(),
            pods: BTreeMap::new(),
            uids: 0,
            restarts: 0,
            requests: 0,
            in_request: None,
            late: None,
            held: BTreeSet::new(),
            reports: BTreeMap::new(),
            last: None,
            began: Instant::now(),
            story: String::new(),
            directory: Some(directory),
        })
    }

    /// Keeps the directory with the servers' logs.
    pub fn keep_files(&mut self) -> Option<std::path::PathBuf> {
        self.directory.take().map(TempDir::keep)
    }

    /// Sets the wanted size.
    pub fn scale(&mut self, size: u16) {
        self.ensemble.spec.replicas = size.into();
        self.tell(&format!("the user wants {size} members"));
    }

    /// The address of a server.
    pub fn address(&self, id: ServerId) -> Ipv4Addr {
        self.network.address(id)
    }

    /// The addresses of every server that has a pod.
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        self.pods.values().map(|pod| pod.address).collect()
    }

    /// What every server answered last.
    pub fn reports(&self) -> &BTreeMap<ServerId, ServerReport> {
        &self.reports
    }

    /// The servers that said last that they lead.
    pub fn leaders(&self) -> Vec<ServerId> {
        let leads = |report: &ServerReport| report.role() == MemberRole::Leader;
        self.reports
            .iter()
            .filter(|(_, r)| leads(r))
            .map(|(id, _)| *id)
            .collect()
    }

    /// The voters that the pod template names.
    pub fn template_voters(&self) -> Option<Voters> {
        let template = self.objects.template(NAME)?;
        Some(template.revision.voters)
    }

    /// The certificate of the authority that clients trust, as PEM.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn client_authority(&self) -> Result<String> {
        let secret = self.node.root.join("secret");
        Ok(fs::read_to_string(
            secret.join(authority::CLIENT_AUTHORITY),
        )?)
    }

    /// How many pods run each state of TLS.
    pub fn tls(&self) -> BTreeMap<Encryption, usize> {
        let mut all = BTreeMap::new();
        for pod in self.pods.values() {
            *all.entry(pod.revision.tls).or_default() += 1;
        }
        all
    }

    /// Starts a server with the plain software that observes without being asked to.
    ///
    /// # Errors
    /// When the process cannot be made.
    pub fn stranger(&self) -> Result<Stranger> {
        let members = self.lists().into_keys();
        let members: Vec<_> = members.map(|id| (id, self.address(id))).collect();
        let id = ServerId(100);
        let directory = self.node.root.join("stranger");
        Stranger::start(
            &self.node.installation,
            &directory,
            (id, self.address(id)),
            &members,
        )
    }

    /// The voters that each server judges by: those of its file, or where members change at run time, what it told last.
    pub fn lists(&self) -> BTreeMap<ServerId, Voters> {
        let list = |pod: &Pod| {
            let id = ServerId(pod.ordinal + 1);
            let told = self.reports.get(&id).and_then(ServerReport::voters);
            let told = told.filter(|_| pod.revision.version.is_some());
            (id, told.unwrap_or(pod.voters()).clone())
        };
        self.pods.values().map(list).collect()
    }

    /// Lets members change at run time from now on.
    pub fn change_at_run_time(&mut self) {
        self.ensemble.spec.membership_change = Some(MembershipChange::Reconfiguration);
        self.tell("the user wants members to change at run time");
    }

    /// How many requests for another list were made.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// What goes wrong in the next request for another list.
    pub fn fail_in_request(&mut self, fault: InRequest) {
        self.in_request = Some(fault);
    }

    /// Lets servers start again that were held.
    pub fn release(&mut self) {
        self.held.clear();
    }

    /// How many restarts the plan asked for and got so far.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// What the plan says.
    pub fn message(&self) -> &str {
        self.last.as_ref().map_or("", |plan| &plan.report.message)
    }

    /// Whether the plan says that all is as wanted.
    pub fn is_ready(&self) -> bool {
        self.last
            .as_ref()
            .is_some_and(|plan| plan.report.phase == Phase::Ready)
    }

    /// Everything that happened, line by line.
    pub fn story(&self) -> &str {
        &self.story
    }

    /// Adds a line to the story.
    pub fn tell(&mut self, line: &str) {
        let _ = writeln!(
            self.story,
            "{:7.2} {line}",
            self.began.elapsed().as_secs_f64()
        );
    }

    /// Goes on until the plan says that all is as wanted.
    ///
    /// # Errors
    /// When it takes longer than `patience`, or harm is done on the way.
    pub async fn settle(&mut self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            self.pass().await?;
            if self.is_ready() {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "stuck for {patience:?}: {}; {}",
                self.message(),
                self.picture()
            );
        }
    }

    /// One pass of everybody: the operator, the StatefulSet controller, the kubelets.
    ///
    /// # Errors
    /// When harm is done: three voter sets live, two leaders that commit, a file pruned that is used.
    pub async fn pass(&mut self) -> Result<()> {
        self.ask().await;
        self.operate().await?;
        self.controllers()?;
        sleep(PASS).await;
        Ok(())
    }

    /// One pass of everybody but the operator.
    ///
    /// # Errors
    /// When a server cannot be started.
    pub async fn pass_without_operator(&mut self) -> Result<()> {
        self.ask().await;
        self.controllers()?;
        sleep(PASS).await;
        Ok(())
    }

    /// Asks every server, lets their probes see it, and watches for two leaders.
    async fn ask(&mut self) {
        self.ask_servers().await;
        for (id, report) in &self.reports {
            if let Some(pod) = self.pods.get_mut(&(id.0 - 1)) {
                pod.probe(report);
            }
        }
        self.audit
            .round(self.reports.iter().map(|(id, report)| (*id, report)));
    }

    async fn ask_servers(&mut self) {
        let questions = self.pods.values().map(|pod| {
            let id = ServerId(pod.ordinal + 1);
            let address = pod.address;
            let ask = move |word| ask_for(address.into(), word, TIMEOUT, MAX_ANSWER);
            async move { (id, probe_by(id, ask).await) }
        });
        self.reports = join_all(questions).await.into_iter().collect();
    }

    async fn operate(&mut self) -> Result<()> {
        let valid = self.valid()?;
        let plan = plan_under(self.rules, &valid, &self.observe());
        if self.message() != plan.report.message {
            let line = format!(
                "{:?}: {} | {}",
                plan.report.phase,
                plan.report.message,
                self.picture()
            );
            self.tell(&line);
        }
        let outcome = execute(self, NAME, &plan).await;
        if let Some(failure) = outcome.failure.or(outcome.refused) {
            return Err(failure);
        }
        self.last = Some(plan);
        self.check()
    }

    fn check(&self) -> Result<()> {
        if self.rules != Rules::ALL {
            return Ok(());
        }
        if let Some(two) = self.audit.two_leaders() {
            bail!("two leaders: {two}");
        }
        let template = self.objects.template(NAME);
        if template.is_some_and(|template| template.revision.version.is_some()) {
            return Ok(());
        }
        let mut live: BTreeSet<Voters> = self.lists().into_values().collect();
        live.extend(self.template_voters());
        ensure!(
            live.len() <= 2,
            "more than two voter sets are live: {live:?}"
        );
        Ok(())
    }

    fn valid(&self) -> Result<ValidEnsemble> {
        let context = Context {
            member_image: "bellwether".to_owned(),
            version: "1".to_owned(),
            ..Context::default()
        };
        validate(&self.ensemble, &context).map_err(|p| anyhow::anyhow!(invalid_message(&p)))
    }

    fn observe(&self) -> Observation {
        let unasked = ServerReport::Unreachable("it was not asked yet".to_owned());
        let pods = self.pods.values().map(|pod| PodObservation {
            name: pod_name(NAME, pod.ordinal),
            ordinal: pod.ordinal,
            uid: pod.uid.to_string(),
            resource_version: pod.resource_version.to_string(),
            revision: Some(pod.revision.clone()),
            controller_revision: Some(pod.template.clone()),
            template_hash: pod.template_hash.clone(),
            controller: None,
            silent_since: None,
            terminating: pod.terminating,
            failing_container: None,
            state: pod.state(),
            ready: pod.ready,
            unready_since: None,
            created: pod.created,
            node: None,
            volumes: self.volumes(pod),
            presents: None,
            credentials: Default::default(),
            client_authority: None,
            server: self
                .reports
                .get(&ServerId(pod.ordinal + 1))
                .unwrap_or(&unasked)
                .clone(),
        });
        Observation {
            now: Timestamp::now(),
            pods: pods.collect(),
            ..self.objects.observe(NAME)
        }
    }

    /// What the member program says of the volume, where members change at run time.
    fn volumes(&self, pod: &Pod) -> Option<VolumeReport> {
        pod.revision.version?;
        let volume = self.node.volume(pod.ordinal);
        let own = own_files(&volume);
        let text = |name: &str| fs::read_to_string(own.join(name)).ok();
        let last = text("zoo.cfg").unwrap_or_default();
        let room = Usage {
            total: 8 << 30,
            free: 7 << 30,
        };
        Some(VolumeReport {
            has_database: fs::read_dir(volume.join("version-2"))
                .is_ok_and(|mut files| files.next().is_some()),
            current_epoch: None,
            accepted_epoch: None,
            stored_list: pending(committed_file(&last), text(STORED).as_deref()),
            data: room,
            transaction_log: None,
        })
    }

    /// The StatefulSet controller and the kubelets.
    fn controllers(&mut self) -> Result<()> {
        let Some(template) = self.objects.template(NAME) else {
            return Ok(());
        };
        let mut gone = Vec::new();
        for (ordinal, pod) in &mut self.pods {
            if *ordinal >= template.replicas && !pod.terminating {
                pod.delete();
            }
            if self.held.contains(ordinal) && !pod.terminating {
                continue;
            }
            if pod.look_after(&self.node)? {
                gone.push(*ordinal);
            }
        }
        for ordinal in gone {
            self.pods.remove(&ordinal);
        }
        let valid = self.valid()?;
        for ordinal in 0..template.replicas {
            if self.pods.contains_key(&ordinal) {
                continue;
            }
            self.uids += 1;
            let template = template.clone();
            self.objects.claim(NAME, ordinal);
            let address = |id| self.network.address(id);
            let pod = Pod::start(&self.node, &valid, ordinal, self.uids, template, address)?;
            self.pods.insert(ordinal, pod);
        }
        Ok(())
    }

    /// Ends a server at once; its container starts again with the same files.
    pub fn kill(&mut self, id: ServerId) {
        self.tell(&format!(
            "FAULT: server {id} is killed | {}",
            self.picture()
        ));
        if let Some(pod) = self.pods.get(&(id.0 - 1)) {
            pod.kill();
        }
    }

    /// Deletes a pod, as a drained node does; the next one is made from the current template.
    pub fn evict(&mut self, id: ServerId) {
        self.tell(&format!(
            "FAULT: the pod of server {id} is deleted | {}",
            self.picture()
        ));
        if let Some(pod) = self.pods.get_mut(&(id.0 - 1)) {
            pod.delete();
        }
    }

    /// Takes a pod and its volume away, as the loss of a node with local disks does.
    ///
    /// # Errors
    /// When the volume cannot be removed.
    pub async fn lose_disk(&mut self, id: ServerId) -> Result<()> {
        self.tell(&format!(
            "FAULT: server {id} loses its disk | {}",
            self.picture()
        ));
        if let Some(mut pod) = self.pods.remove(&(id.0 - 1)) {
            pod.kill();
            pod.ended().await?;
            self.lose_claim(pod.ordinal)?;
        }
        Ok(())
    }

    /// Removes a claim and its volume.
    fn lose_claim(&mut self, ordinal: u16) -> Result<()> {
        let kind = ObjectKind::PersistentVolumeClaim;
        self.objects.remove(kind, &data_claim(NAME, ordinal));
        self.node.remove_volume(ordinal)
    }

    /// Whether the disks of a majority of every live list are up to date without this server's.
    pub fn may_lose_disk(&self, id: ServerId) -> bool {
        let serves = |report: &ServerReport| matches!(report, ServerReport::Serving { .. });
        let others: Voters = self
            .reports
            .iter()
            .filter(|(o, r)| **o != id && serves(r))
            .map(|(o, _)| *o)
            .collect();
        let mut live: BTreeSet<Voters> = self.lists().into_values().collect();
        live.extend(self.template_voters());
        live.iter().all(|list| holds_majority(&others, list))
    }

    /// Every server's role and list in one line.
    pub fn picture(&self) -> String {
        let mut text = String::new();
        let lists = self.lists();
        for pod in self.pods.values() {
            let id = ServerId(pod.ordinal + 1);
            let role = self
                .reports
                .get(&id)
                .map_or(MemberRole::Down, ServerReport::role);
            let role = match (pod.terminating, role) {
                (true, _) => "ending".to_owned(),
                (false, role) => role.to_string().to_lowercase(),
            };
            let list = lists.get(&id).map(ToString::to_string);
            let list = list.unwrap_or_default().replace(',', "");
            let _ = write!(text, "{id}:{role}{{{list}}} ");
        }
        text
    }
}
