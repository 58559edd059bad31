//! An ensemble in the small world, with what its users, nodes and disks do to it.
//!
//! After every pass at most two voter sets are live, and at most one server leads.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bellwether_api::ensemble::{ClientsTls, Config, ReclaimPolicy, ServersTls, Tls};
use bellwether_api::{ZooKeeperEnsemble, ZooKeeperEnsembleSpec, labels};
use bellwether_ensemble::desired::ObjectKind;
use bellwether_ensemble::desired::claims::data_claim;
use bellwether_ensemble::observation::{Acceptance, ClaimObservation};
use bellwether_ensemble::plan::{Step, plan_under};
use bellwether_ensemble::rules::Rules;
use bellwether_ensemble::stage::Stage as _;
use bellwether_ensemble::validate::Context;
use bellwether_ensemble::world::event::Event;
use bellwether_ensemble::world::{self, Pod};
use bellwether_ensemble::{Plan, ServerId, Voters, validate};
use serde_json::{Value, json};

use crate::faults::Broken;

/// After this many passes without any change the world is at rest.
const QUIET: u32 = 8;

/// The world.
pub(crate) struct World {
    ensemble: ZooKeeperEnsemble,
    /// Which safety rules the planner keeps.
    pub(crate) rules: Rules,
    context: Context,
    world: world::World<Broken>,
    last: Option<Plan>,
    quiet: u32,
}

fn server(ordinal: u16) -> ServerId {
    ServerId::of_ordinal(ordinal, 0)
}

impl World {
    /// An ensemble that is asked for and does not exist.
    pub(crate) fn new(replicas: i32) -> Self {
        let spec = ZooKeeperEnsembleSpec {
            replicas,
            ..Default::default()
        };
        let mut ensemble = ZooKeeperEnsemble::new("zk", spec);
        ensemble.metadata.namespace = Some("default".to_owned());
        ensemble.metadata.uid = Some("ensemble".to_owned());
        let context = Context {
            member_image: "bellwether:1".to_owned(),
            version: "1".to_owned(),
            ..Context::default()
        };
        let valid = validate(&ensemble, &context).unwrap();
        Self {
            ensemble,
            rules: Rules::ALL,
            context,
            world: world::World::new(valid, Broken::default()),
            last: None,
            quiet: 0,
        }
    }

    /// An ensemble that runs.
    pub(crate) fn started(replicas: i32) -> Self {
        Self::new(replicas).start()
    }

    /// An ensemble that runs, with plaintext between servers.
    pub(crate) fn plaintext(replicas: i32) -> Self {
        let mut world = Self::new(replicas);
        world.tls(ServersTls::Disabled);
        world.start()
    }

    fn start(self) -> Self {
        let mut world = self;
        while world.reconcile().is_some() {}
        let all = ["All ", "zk-0 serves and leads"];
        assert!(
            all.iter().any(|all| world.message().starts_with(all)),
            "{}",
            world.message()
        );
        world.world.events.clear();
        world
    }

    /// What is broken; any change of it makes further passes necessary.
    pub(crate) fn faults(&mut self) -> &mut Broken {
        &mut self.act().faults
    }

    /// The world, to be changed from outside: something may move again.
    fn act(&mut self) -> &mut world::World<Broken> {
        self.quiet = 0;
        &mut self.world
    }

    /// The spec, to be changed by its user.
    fn spec(&mut self) -> &mut ZooKeeperEnsembleSpec {
        self.quiet = 0;
        &mut self.ensemble.spec
    }

    /// Sets an annotation of the ensemble, or takes it away.
    fn annotate(&mut self, key: &str, value: Option<&str>) {
        let annotations = self.ensemble.metadata.annotations.get_or_insert_default();
        annotations.remove(key);
        annotations.extend(value.map(|value| (key.to_owned(), value.to_owned())));
        self.quiet = 0;
    }

    /// Makes this server the leader, by restarting those that are in its way.
    pub(crate) fn elect(&mut self, id: i32) {
        let id = ServerId(u16::try_from(id).unwrap());
        assert!(self.world.pods.contains_key(&id));
        self.act().elect(id);
    }

    pub(crate) fn scale(&mut self, replicas: i32) {
        self.spec().replicas = replicas;
    }

    pub(crate) fn configure(&mut self, key: &str, value: &str) {
        assert_eq!(key, "snapCount");
        self.spec().config = Some(Config {
            snap_count: Some(value.parse().unwrap()),
            ..Default::default()
        });
    }

    pub(crate) fn image(&mut self, image: &str) {
        self.spec().image = Some(image.to_owned());
    }

    pub(crate) fn tls(&mut self, servers: ServersTls) {
        self.spec().tls = Some(Tls {
            servers: Some(servers),
            clients: Some(ClientsTls::Disabled),
            ..Tls::default()
        });
    }

    /// Asks for TLS of clients, beside plaintext between the servers.
    pub(crate) fn tls_of_clients(&mut self, clients: ClientsTls) {
        self.spec().tls = Some(Tls {
            servers: Some(ServersTls::Disabled),
            clients: Some(clients),
            ..Tls::default()
        });
    }

    /// How clients connect to every member.
    pub(crate) fn clients(&self) -> Vec<&'static str> {
        let pods = self.world.pods.values();
        pods.map(|pod| pod.revision.tls.clients.as_str()).collect()
    }

    /// The state of TLS of every member's server.
    pub(crate) fn tls_of_servers(&self) -> Vec<&'static str> {
        let pods = self.world.pods.values();
        pods.map(|pod| pod.revision.tls.servers.as_str()).collect()
    }

    pub(crate) fn pause(&mut self) {
        self.spec().paused = true;
    }

    pub(crate) fn reclaim(&mut self, policy: ReclaimPolicy) {
        let storage = self.spec().storage.get_or_insert_default();
        storage.reclaim_policy = Some(policy);
    }

    /// The user asks for a restart, or takes the annotation away.
    pub(crate) fn ask_for_restart(&mut self, at: Option<&str>) {
        self.annotate(labels::RESTART_AT, at);
    }

    /// Somebody sets the annotation that accepts a loss.
    pub(crate) fn accept(&mut self, token: &str) {
        self.annotate(labels::ACCEPT_DATA_LOSS, Some(token));
    }

    pub(crate) fn upgrade_operator(&mut self) {
        self.context.version.push('1');
        self.context.member_image.push('1');
        self.quiet = 0;
    }

    fn set(&self) -> &Value {
        let set = self.world.objects.get(ObjectKind::StatefulSet, "zk");
        set.unwrap()
    }

    fn edit_set(&mut self, change: impl FnOnce(&mut Value)) {
        let objects = &mut self.act().objects;
        objects.edit(ObjectKind::StatefulSet, "zk", change);
    }

    pub(crate) fn template(&self) -> Value {
        self.set()["spec"]["template"].clone()
    }

    /// The list that the pod template names.
    pub(crate) fn list(&self) -> String {
        let template = self.world.objects.template("zk");
        template.unwrap().revision.voters.to_string()
    }

    /// Somebody puts an earlier pod template back, as `kubectl rollout undo` does.
    pub(crate) fn undo(&mut self, template: Value) {
        self.edit_set(|set| {
            set["spec"]["template"] = template;
            set["metadata"]["managedFields"] = json!([{
                "manager": "kubectl",
                "fieldsV1": { "f:spec": { "f:template": {} } },
            }]);
        });
    }

    /// Somebody sets another image in the pod template, as `kubectl set image` does.
    pub(crate) fn set_image(&mut self, image: &str) {
        let mut template = self.template();
        template["spec"]["containers"][0]["image"] = json!(image);
        self.undo(template);
    }

    /// The StatefulSet is as an operator made it that left volumes to Kubernetes.
    pub(crate) fn forget_retention(&mut self) {
        self.edit_set(|set| {
            set["spec"]["persistentVolumeClaimRetentionPolicy"] =
                json!({ "whenDeleted": "Delete", "whenScaled": "Delete" });
        });
    }

    /// What the StatefulSet says of volumes.
    pub(crate) fn retention(&self) -> Value {
        self.set()["spec"]["persistentVolumeClaimRetentionPolicy"].clone()
    }

    /// A person deletes the StatefulSet; its pods are deleted with it, or stay.
    pub(crate) fn delete_set(&mut self, orphan: bool) {
        let world = self.act();
        world.objects.remove(ObjectKind::StatefulSet, "zk");
        if !orphan {
            world.pods.clear();
        }
    }

    /// The ensemble is deleted and created again, maybe with another size. Volumes stay.
    pub(crate) fn recreate(&mut self, replicas: i32) {
        let world = self.act();
        world.objects.keep_only(ObjectKind::PersistentVolumeClaim);
        world.pods.clear();
        self.scale(replicas);
    }

    /// The member's node is lost, and its new pod fits on no other node.
    pub(crate) fn lose_node(&mut self, ordinal: u16) {
        self.faults().homeless.insert(ordinal);
        self.delete_pod(ordinal);
    }

    /// A pod is deleted by hand, and created again.
    pub(crate) fn delete_pod(&mut self, ordinal: u16) {
        let world = self.act();
        world.create(false, ordinal);
        world.elections();
    }

    /// A server's process ends; its pod stays.
    pub(crate) fn crash(&mut self, id: i32) {
        let id = ServerId(u16::try_from(id).unwrap());
        let world = self.act();
        if let Some(pod) = world.pods.get_mut(&id) {
            pod.age = 0;
            pod.make_unready(world.now);
        }
        world.elections();
    }

    pub(crate) fn wait(&mut self, seconds: i64) {
        self.act().now += jiff::SignedDuration::from_secs(seconds);
    }

    /// No server answers the operator any more, although all run.
    pub(crate) fn mute_all(&mut self) {
        self.faults().muted = Some(self.world.now);
    }

    /// A member does not answer any more.
    pub(crate) fn silence(&mut self, ordinal: u16) {
        let now = self.world.now;
        self.faults().cut_off.insert(ordinal, now);
    }

    /// The member loses its leader and has a large snapshot to copy before it follows again.
    pub(crate) fn copy(&mut self, ordinal: u16) {
        self.faults().copying.insert(ordinal);
        let pod = self.world.pods.get_mut(&server(ordinal)).unwrap();
        pod.make_unready(self.world.now);
    }

    /// These members separate from the others, with a leader of their own or none, in a later epoch.
    pub(crate) fn split(&mut self, ordinals: &[u16], leader: Option<u16>) {
        let world = self.act();
        for id in ordinals.iter().copied().map(server) {
            let pod = world.pods.get_mut(&id).unwrap();
            match leader {
                Some(leader) => pod.following = Some(server(leader)),
                None => pod.make_unready(world.now),
            }
            world.disks.insert(id, (world.epoch + 1) << 32);
        }
    }

    /// A volume claim is lost, and with it the disk.
    pub(crate) fn lose_claim(&mut self, ordinal: u16) {
        let world = self.act();
        let (kind, claim) = (ObjectKind::PersistentVolumeClaim, data_claim("zk", ordinal));
        world.objects.remove(kind, &claim);
        world.disks.remove(&server(ordinal));
        world.pods.remove(&server(ordinal));
        world.elections();
    }

    /// Whether the member has data.
    pub(crate) fn has_database(&self, ordinal: u16) -> bool {
        self.world.disks.contains_key(&server(ordinal))
    }

    /// Writes a transaction to these disks.
    pub(crate) fn write(&mut self, ordinals: &[u16]) {
        for ordinal in ordinals {
            *self.world.disks.get_mut(&server(*ordinal)).unwrap() += 1;
        }
    }

    /// The newest transaction on any disk.
    pub(crate) fn newest(&self) -> u64 {
        self.world.disks.values().copied().max().unwrap_or(0)
    }

    fn claims(&self) -> Vec<ClaimObservation> {
        self.world.observe().claims
    }

    fn edit_claim(&mut self, ordinal: u16, change: impl FnOnce(&mut Value)) {
        let claim = data_claim("zk", ordinal);
        let objects = &mut self.world.objects;
        objects.edit(ObjectKind::PersistentVolumeClaim, &claim, |claim| {
            change(&mut claim["metadata"]);
        });
    }

    /// The claims that are deleted with the ensemble, and all claims, by ordinal.
    pub(crate) fn owned(&self) -> (Vec<u16>, Vec<u16>) {
        let uid = self.ensemble.metadata.uid.as_ref().unwrap();
        let mut claims = self.claims();
        let all = claims.iter().map(|c| c.ordinal).collect();
        claims.retain(|c| c.owners.iter().any(|o| o.uid == *uid));
        (claims.iter().map(|c| c.ordinal).collect(), all)
    }

    /// A claim gets an owner, as by an earlier operator's StatefulSet.
    pub(crate) fn add_owner(&mut self, ordinal: u16, kind: &str) {
        let owner = json!({ "apiVersion": "", "kind": kind, "name": "", "uid": kind });
        self.edit_claim(ordinal, |claim| claim["ownerReferences"] = json!([owner]));
    }

    pub(crate) fn owners(&self, ordinal: u16) -> Vec<String> {
        let claim = self.claims().into_iter().find(|c| c.ordinal == ordinal);
        let owners = claim.unwrap().owners.into_iter();
        owners.map(|o| o.kind).collect()
    }

    /// The claims are as an operator left them that recorded the finished list only.
    pub(crate) fn forget_begun_lists(&mut self) {
        for claim in self.claims() {
            self.edit_claim(claim.ordinal, |claim| {
                claim["annotations"][labels::NEXT_VOTERS] = Value::Null;
            });
        }
    }

    /// The lists that the claims carry, by ordinal.
    pub(crate) fn records(&self) -> Vec<String> {
        let text = |v: &Option<Voters>| v.as_ref().map_or("-".to_owned(), ToString::to_string);
        let one = |claim: &ClaimObservation| match &claim.next {
            Some(next) => format!("{} > {next}", text(&claim.voters)),
            None => text(&claim.voters),
        };
        self.claims().iter().map(one).collect()
    }

    /// The members that may start with an empty disk, and what was accepted last.
    pub(crate) fn permission(&self) -> (String, Option<Acceptance>) {
        let map = self.world.objects.bootstrap("zk").unwrap();
        let ids = map.initialize.as_ref().map(ToString::to_string);
        (ids.unwrap_or_default(), map.acceptance)
    }

    /// What the bootstrap ConfigMap says of epochs.
    pub(crate) fn epochs(&self) -> Vec<(u16, u64)> {
        let map = self.world.objects.bootstrap("zk").unwrap();
        map.epochs.iter().map(|(id, e)| (id.0, *e)).collect()
    }

    /// The leader's server id.
    pub(crate) fn leader(&self) -> Option<u16> {
        self.world.leaders().next().map(|id| id.0)
    }

    /// The list that the leader judges by; empty while none leads.
    pub(crate) fn leader_list(&self) -> String {
        let lists = self
            .world
            .leaders()
            .map(|id| &self.world.pods[&id].revision);
        lists.map(|revision| revision.voters.to_string()).collect()
    }

    /// The server lists that pods run.
    fn lists(&self) -> BTreeSet<&Voters> {
        let pods = self.world.pods.values();
        pods.map(|pod| &pod.revision.voters).collect()
    }

    pub(crate) fn size(&self) -> i32 {
        let state = || self.last.as_ref().map(|p| self.line(p)).unwrap_or_default();
        assert_eq!(self.lists().len(), 1, "{}", state());
        assert_eq!(self.down(), 0, "{}", self.message());
        i32::try_from(self.world.pods.len()).unwrap()
    }

    pub(crate) fn down(&self) -> usize {
        let looks = |pod: &&Pod| pod.following.is_none();
        self.world.pods.values().filter(looks).count()
    }

    /// Restarts of each member since it started, by ordinal.
    pub(crate) fn restarts(&self) -> Vec<usize> {
        let count = |id: &ServerId| {
            let events = self.world.events.iter();
            let restarts = |e: &&Event| matches!(e, Event::Restart { id: one, .. } if one == id);
            events.filter(restarts).count()
        };
        self.world.pods.keys().map(count).collect()
    }

    /// The revision that each restart since the start led to, and whether the member led.
    fn steps(&self) -> Vec<(&str, bool)> {
        let mut newest = "";
        let mut steps = Vec::new();
        for event in &self.world.events {
            match event {
                Event::Configure { revision, .. } => newest = revision,
                Event::Restart { leads, .. } => steps.push((newest, *leads)),
                _ => {}
            }
        }
        steps
    }

    /// Whether in every step the leader restarted last.
    pub(crate) fn leader_was_last_in_every_step(&self) -> bool {
        let last = |pair: &[(&str, bool)]| !pair[0].1 || pair[0].0 != pair[1].0;
        self.steps().windows(2).all(last)
    }

    pub(crate) fn summary(&self) -> String {
        let steps = self.steps();
        let leaders = steps.iter().filter(|(_, led)| *led).count();
        let all = steps.len();
        format!("{all} restarts, {leaders} of them of a leader\n")
    }

    pub(crate) fn message(&self) -> String {
        let last = self.last.as_ref();
        last.map(|p| p.report.message.clone()).unwrap_or_default()
    }

    /// What the report says is wrong.
    pub(crate) fn trouble(&self) -> Option<(&'static str, String)> {
        let trouble = self.last.as_ref()?.report.trouble()?;
        Some((trouble.reason.as_str(), trouble.message.clone()))
    }

    /// The token that the status gives.
    pub(crate) fn token(&self) -> Option<String> {
        let (_, message) = self.trouble()?;
        let (_, rest) = message.split_once("accept-data-loss=")?;
        Some(rest.split(". ").next()?.to_owned())
    }

    /// Whether the last plan accepted a loss.
    pub(crate) fn accepts(&self) -> bool {
        self.last.as_ref().is_some_and(|p| p.accepted.is_some())
    }

    /// The accepted loss in the last report.
    pub(crate) fn told_accepted(&self) -> Option<&Acceptance> {
        self.last.as_ref()?.report.accepted.as_ref()
    }

    fn plan(&mut self) -> Plan {
        self.world.ensemble = validate(&self.ensemble, &self.context).unwrap();
        plan_under(self.rules, &self.world.ensemble, &self.world.observe())
    }

    /// What the operator would do now; the world stays as it is.
    pub(crate) fn look(&mut self) -> Option<Step> {
        let plan = self.plan();
        let step = plan.step.clone();
        self.last = Some(plan);
        step
    }

    /// One pass of the operator and one tick of the world. `None` when nothing moves any more.
    pub(crate) fn reconcile(&mut self) -> Option<String> {
        let plan = self.plan();
        let line = self.line(&plan);
        let moved = self.world.pass(&plan).unwrap();
        self.last = Some(plan);
        let lists = self.lists();
        assert!(lists.len() <= 2, "three voter sets are live: {lists:?}");
        assert!(self.world.leaders().count() <= 1, "two servers lead");
        self.quiet = if moved { 0 } else { self.quiet + 1 };
        (self.quiet < QUIET).then_some(line)
    }

    fn line(&self, plan: &Plan) -> String {
        let mut line = format!("{:?}: {}\n   ", plan.report.phase, plan.report.message);
        for member in &plan.report.members {
            let pod = self.world.pods.get(&member.id);
            let voters = pod.map(|pod| pod.revision.voters.to_string());
            let voters = voters.unwrap_or_default().replace(',', "");
            let _ = write!(line, " {} {} {{{voters}}}", member.pod, member.role);
        }
        line
    }
}
