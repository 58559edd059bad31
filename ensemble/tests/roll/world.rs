//! A small world for the planner: what the StatefulSet controller, the kubelets and ZooKeeper's
//! servers do, one tick for each pass of the operator.
//!
//! It checks in every tick that at most two voter sets are live and that at most one server leads.

#[path = "world/cluster.rs"]
mod cluster;
#[path = "world/operator.rs"]
mod operator;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Write as _;

use bellwether_api::ensemble::{Config, MemberRole, ReclaimPolicy};
use bellwether_api::{ZooKeeperEnsemble, ZooKeeperEnsembleSpec, labels};
use bellwether_ensemble::desired::stateful_set::{INITIALIZE, restart_request};
use bellwether_ensemble::desired::written::edited;
use bellwether_ensemble::desired::{DesiredObject, ObjectKind, Write, parse_bootstrap, short_hash};
use bellwether_ensemble::execute::objects::Objects;
use bellwether_ensemble::execute::{self, execute};
use bellwether_ensemble::observation::{
    Acceptance, BootstrapPermission, ClaimObservation, PodObservation, PodState, Revision,
    ServerReport, StatefulSetObservation,
};
use bellwether_ensemble::plan::facts::Facts;
use bellwether_ensemble::plan::{Expect, Step, plan_under};
use bellwether_ensemble::rules::Rules;
use bellwether_ensemble::safety::{can_join, holds_majority};
use bellwether_ensemble::validate::Context;
use bellwether_ensemble::volume_report::{Usage, VolumeReport};
use bellwether_ensemble::{Observation, Plan, ServerId, Voters, validate};
use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
struct Pod {
    revision: Revision,
    template: String,
    image: String,
    uid: u32,
    age: u32,
    created: i64,
    following: Option<ServerId>,
    unready: u32,
}

#[derive(Clone, Debug)]
struct Set {
    replicas: u16,
    template: Value,
    annotations: BTreeMap<String, String>,
    retention: Value,
    /// Whether somebody else changed the template since it was written.
    touched: bool,
}

impl Set {
    fn edited(&self) -> Option<Value> {
        let fields = if self.touched { json!({}) } else { Value::Null };
        edited(&json!({
            "metadata": {
                "annotations": self.annotations,
                "managedFields": [{
                    "manager": "kubectl",
                    "fieldsV1": { "f:spec": { "f:template": fields } },
                }],
            },
            "spec": { "template": self.template },
        }))
    }
}

/// The world.
pub(crate) struct World {
    ensemble: ZooKeeperEnsemble,
    /// Which safety rules the planner keeps.
    pub(crate) rules: Rules,
    context: Context,
    now: i64,
    set: Option<Set>,
    pods: BTreeMap<u16, Pod>,
    /// Last transaction on each disk; a disk without ZooKeeper data is absent.
    disks: BTreeMap<u16, u64>,
    /// The lists that each claim carries, by ordinal.
    claims: BTreeMap<u16, (Option<Voters>, Option<Voters>)>,
    bootstrap: Option<BootstrapPermission>,
    revisions: BTreeSet<String>,
    epoch: u64,
    uids: u32,
    muted: Option<i64>,
    restarted: BTreeMap<u16, u32>,
    /// Each restart by plan: which server list was new, and whether the member led.
    steps: Vec<(String, bool)>,
    last: Option<Plan>,
    quiet: u32,
    /// Whether claims cannot be written.
    pub(crate) claims_frozen: bool,
    /// How full every volume is.
    pub(crate) usage: Usage,
    /// Members that do not say what is on their disks, by ordinal.
    pub(crate) silent: BTreeSet<u16>,
    /// Whether new pods see no permission yet.
    pub(crate) stale_permission: bool,
    /// Unique ids of claims.
    claim_uids: BTreeMap<u16, u32>,
    /// The owners of claims, by ordinal.
    owners: BTreeMap<u16, Vec<OwnerReference>>,
    /// Members that copy a large snapshot: they join no leader, and have looked since this time.
    pub(crate) copying: BTreeMap<u16, i64>,
    /// Members that run and cannot be asked since this time, by ordinal.
    pub(crate) cut_off: BTreeMap<u16, i64>,
    /// Members that fit on no node, by ordinal.
    homeless: BTreeSet<u16>,
    objects: Objects,
}

fn template_revision(template: &Value) -> Revision {
    let notes = &template["metadata"]["annotations"];
    let text = |key: &str| notes[key].as_str().map(str::to_owned);
    Revision {
        name: text(labels::CONFIG_REVISION).unwrap(),
        voters: text(labels::VOTERS).unwrap().parse().unwrap(),
        initialize: text(INITIALIZE).map(|id| ServerId(id.parse().unwrap())),
    }
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
            cluster_domain: "cluster.local".to_owned(),
            version: "1".to_owned(),
        };
        Self {
            ensemble,
            rules: Rules::ALL,
            context,
            now: 1_700_000_000,
            set: None,
            pods: BTreeMap::new(),
            disks: BTreeMap::new(),
            claims: BTreeMap::new(),
            bootstrap: None,
            revisions: BTreeSet::new(),
            epoch: 0,
            uids: 0,
            muted: None,
            restarted: BTreeMap::new(),
            steps: Vec::new(),
            last: None,
            quiet: 0,
            claims_frozen: false,
            usage: Usage {
                total: 8 << 30,
                free: 7 << 30,
            },
            silent: BTreeSet::new(),
            stale_permission: false,
            claim_uids: BTreeMap::new(),
            owners: BTreeMap::new(),
            copying: BTreeMap::new(),
            cut_off: BTreeMap::new(),
            homeless: BTreeSet::new(),
            objects: Objects::default(),
        }
    }

    /// An ensemble that runs.
    pub(crate) fn started(replicas: i32) -> Self {
        let mut world = Self::new(replicas);
        while world.reconcile().is_some() {}
        assert!(world.message().starts_with("All "), "{}", world.message());
        world.steps.clear();
        world
    }

    /// Makes this server the leader, by restarting those that are in its way.
    pub(crate) fn elect(&mut self, id: i32) {
        let id = ServerId(u16::try_from(id).unwrap());
        assert!(self.pods.contains_key(&(id.0 - 1)));
        for pod in self.pods.values_mut() {
            pod.following = Some(id);
        }
        self.bump_epoch();
        self.quiet = 0;
    }

    fn bump_epoch(&mut self) {
        self.epoch += 1;
        for (ordinal, pod) in &self.pods {
            if pod.following.is_some() {
                self.disks.insert(*ordinal, self.epoch << 32);
            }
        }
    }

    pub(crate) fn scale(&mut self, replicas: i32) {
        self.ensemble.spec.replicas = replicas;
        self.quiet = 0;
    }

    pub(crate) fn configure(&mut self, key: &str, value: &str) {
        assert_eq!(key, "snapCount");
        let snap_count = Some(value.parse().unwrap());
        self.ensemble.spec.config = Some(Config {
            snap_count,
            ..Default::default()
        });
        self.quiet = 0;
    }

    pub(crate) fn image(&mut self, image: &str) {
        self.ensemble.spec.image = Some(image.to_owned());
        self.quiet = 0;
    }

    /// The user asks for a restart, or takes the annotation away.
    pub(crate) fn ask_for_restart(&mut self, at: Option<&str>) {
        let annotations = self.ensemble.metadata.annotations.get_or_insert_default();
        annotations.remove(labels::RESTART_AT);
        annotations.extend(at.map(|at| (labels::RESTART_AT.to_owned(), at.to_owned())));
        self.quiet = 0;
    }

    pub(crate) fn template(&self) -> Value {
        self.set.as_ref().unwrap().template.clone()
    }

    /// The list that the pod template names.
    pub(crate) fn list(&self) -> String {
        template_revision(&self.template()).voters.to_string()
    }

    /// Somebody puts an earlier pod template back, as `kubectl rollout undo` does.
    pub(crate) fn undo(&mut self, template: Value) {
        let set = self.set.as_mut().unwrap();
        set.template = template.clone();
        set.touched = true;
        self.objects.edit(ObjectKind::StatefulSet, "zk", |set| {
            set["spec"]["template"] = template;
        });
        self.quiet = 0;
    }

    /// Somebody sets another image in the pod template, as `kubectl set image` does.
    pub(crate) fn set_image(&mut self, image: &str) {
        let mut template = self.template();
        template["spec"]["containers"][0]["image"] = json!(image);
        self.undo(template);
    }

    /// The member's node is lost, and its pod, made anew, fits on no other.
    pub(crate) fn lose_node(&mut self, ordinal: u16) {
        self.homeless.insert(ordinal);
        self.delete_pod(ordinal);
    }

    /// A pod is deleted by hand, and made anew.
    pub(crate) fn delete_pod(&mut self, ordinal: u16) {
        let set = self.set.clone().unwrap();
        self.create(ordinal, &set);
        self.elections();
        self.quiet = 0;
    }

    pub(crate) fn wait(&mut self, seconds: i64) {
        self.now += seconds;
        self.quiet = 0;
    }

    pub(crate) fn pause(&mut self) {
        self.ensemble.spec.paused = true;
    }

    pub(crate) fn upgrade_operator(&mut self) {
        self.context.version.push('1');
        self.context.member_image.push('1');
        self.quiet = 0;
    }

    /// No server answers the operator any more, although all run.
    pub(crate) fn mute_all(&mut self) {
        self.muted = Some(self.now);
        self.quiet = 0;
    }

    /// A member loses its volume; a new pod begins with an empty one.
    pub(crate) fn has_database(&self, ordinal: u16) -> bool {
        self.disks.contains_key(&ordinal)
    }

    /// The ensemble is deleted and created again, maybe with another size. Volumes stay.
    pub(crate) fn recreate(&mut self, replicas: i32) {
        self.set = None;
        self.objects.clear();
        self.pods.clear();
        self.bootstrap = None;
        self.revisions.clear();
        self.scale(replicas);
    }

    /// Somebody deletes the StatefulSet; the pods go with it, or stay.
    pub(crate) fn delete_set(&mut self, orphan: bool) {
        self.set = None;
        self.objects.remove(ObjectKind::StatefulSet, "zk");
        if !orphan {
            self.pods.clear();
        }
        self.quiet = 0;
    }

    /// A volume claim is lost, and with it the disk.
    pub(crate) fn lose_claim(&mut self, ordinal: u16) {
        self.delete_claim(ordinal);
        self.pods.remove(&ordinal);
        self.elections();
        self.quiet = 0;
    }

    pub(super) fn delete_claim(&mut self, ordinal: u16) {
        let claim = format!("data-zk-{ordinal}");
        self.objects
            .remove(ObjectKind::PersistentVolumeClaim, &claim);
        self.claims.remove(&ordinal);
        self.claim_uids.remove(&ordinal);
        self.owners.remove(&ordinal);
        self.disks.remove(&ordinal);
    }

    pub(crate) fn reclaim(&mut self, policy: ReclaimPolicy) {
        let storage = self.ensemble.spec.storage.get_or_insert_default();
        storage.reclaim_policy = Some(policy);
        self.quiet = 0;
    }

    /// The claims that are deleted with the ensemble, and all claims, by ordinal.
    pub(crate) fn owned(&self) -> (Vec<u16>, Vec<u16>) {
        let uid = self.ensemble.metadata.uid.as_ref().unwrap();
        let owned = self
            .owners
            .iter()
            .filter(|(_, o)| o.iter().any(|o| o.uid == *uid));
        (
            owned.map(|(o, _)| *o).collect(),
            self.claims.keys().copied().collect(),
        )
    }

    /// A claim gets an owner, as by an earlier operator's StatefulSet.
    pub(crate) fn add_owner(&mut self, ordinal: u16, kind: &str) {
        let owner = OwnerReference {
            kind: kind.to_owned(),
            uid: kind.to_owned(),
            ..Default::default()
        };
        self.owners.entry(ordinal).or_default().push(owner);
    }

    pub(crate) fn owners(&self, ordinal: u16) -> Vec<&str> {
        let owners = self.owners.get(&ordinal).into_iter().flatten();
        owners.map(|o| o.kind.as_str()).collect()
    }

    /// The StatefulSet is as an operator made it that left volumes to Kubernetes.
    pub(crate) fn forget_retention(&mut self) {
        self.set.as_mut().unwrap().retention = Value::Null;
        self.objects.edit(ObjectKind::StatefulSet, "zk", |set| {
            set["spec"]["persistentVolumeClaimRetentionPolicy"] =
                json!({ "whenDeleted": "Delete", "whenScaled": "Delete" });
        });
    }

    /// What the StatefulSet says of volumes.
    pub(crate) fn retention(&self) -> Value {
        self.set.as_ref().unwrap().retention.clone()
    }

    /// Somebody sets the annotation that accepts a loss.
    pub(crate) fn accept(&mut self, token: &str) {
        let annotations = self.ensemble.metadata.annotations.get_or_insert_default();
        annotations.insert(labels::ACCEPT_DATA_LOSS.to_owned(), token.to_owned());
        self.quiet = 0;
    }

    /// The token that the status gives.
    pub(crate) fn token(&self) -> Option<String> {
        let (_, message) = self.trouble()?;
        let (_, rest) = message.split_once("accept-data-loss=")?;
        Some(rest.split(". ").next()?.to_owned())
    }

    /// The members that may start with an empty disk, and what was accepted last.
    pub(crate) fn permission(&self) -> (String, Option<Acceptance>) {
        let map = self.bootstrap.as_ref().unwrap();
        let ids = map.initialize.as_ref().map(ToString::to_string);
        (ids.unwrap_or_default(), map.acceptance.clone())
    }

    /// Whether the last plan accepted a loss.
    pub(crate) fn accepts(&self) -> bool {
        self.last.as_ref().is_some_and(|p| p.accepted.is_some())
    }

    /// The accepted loss that the last report tells of.
    pub(crate) fn told_accepted(&self) -> Option<&Acceptance> {
        self.last.as_ref()?.report.accepted.as_ref()
    }

    /// The list that the leader judges by; empty while none leads.
    pub(crate) fn leader_list(&self) -> String {
        let leader = self.leader().and_then(|id| self.pods.get(&(id - 1)));
        leader.map_or_else(String::new, |pod| pod.revision.voters.to_string())
    }

    /// The claims are as an operator left them that recorded the finished list only.
    pub(crate) fn forget_begun_lists(&mut self) {
        for (_, next) in self.claims.values_mut() {
            *next = None;
        }
    }

    /// The leader's server id.
    pub(crate) fn leader(&self) -> Option<u16> {
        let leads = |(o, p): &(&u16, &Pod)| p.following == Some(ServerId(**o + 1));
        self.pods.iter().find(leads).map(|(o, _)| o + 1)
    }

    /// Writes a transaction to these disks.
    pub(crate) fn write(&mut self, ordinals: &[u16]) {
        for ordinal in ordinals {
            *self.disks.get_mut(ordinal).unwrap() += 1;
        }
    }

    /// The member loses its leader and has a large snapshot to copy before it follows again.
    pub(crate) fn copy(&mut self, ordinal: u16) {
        self.copying.insert(ordinal, self.now);
        let pod = self.pods.get_mut(&ordinal).unwrap();
        (pod.following, pod.unready) = (None, 9);
    }

    /// Nothing is heard of a member any more.
    pub(crate) fn silence(&mut self, ordinal: u16) {
        self.cut_off.insert(ordinal, self.now);
        self.quiet = 0;
    }

    /// What the report says is wrong.
    pub(crate) fn trouble(&self) -> Option<(&'static str, String)> {
        let trouble = self.last.as_ref()?.report.trouble.as_ref()?;
        Some((trouble.reason.as_str(), trouble.message.clone()))
    }

    /// The lists that the claims carry, by ordinal.
    pub(crate) fn records(&self) -> Vec<String> {
        let text = |v: &Option<Voters>| v.as_ref().map_or("-".to_owned(), ToString::to_string);
        let one = |(voters, next): &(Option<Voters>, Option<Voters>)| match next {
            Some(next) => format!("{} > {next}", text(voters)),
            None => text(voters),
        };
        self.claims.values().map(one).collect()
    }

    /// What the bootstrap ConfigMap says of epochs.
    pub(crate) fn epochs(&self) -> Vec<(u16, u64)> {
        let map = self.bootstrap.as_ref().unwrap();
        map.epochs.iter().map(|(id, e)| (id.0, *e)).collect()
    }

    /// The newest transaction on any disk.
    pub(crate) fn newest(&self) -> u64 {
        self.disks.values().copied().max().unwrap_or(0)
    }

    /// A server's process ends; its pod stays.
    pub(crate) fn crash(&mut self, id: i32) {
        let ordinal = u16::try_from(id - 1).unwrap();
        if let Some(pod) = self.pods.get_mut(&ordinal) {
            pod.following = None;
            pod.age = 0;
            pod.created = self.now;
        }
        self.quiet = 0;
        self.elections();
    }

    pub(crate) fn size(&self) -> i32 {
        let sets: BTreeSet<&Voters> = self.pods.values().map(|p| &p.revision.voters).collect();
        let serving = self.pods.values().filter(|p| p.following.is_some()).count();
        let state = || self.last.as_ref().map(|p| self.line(p)).unwrap_or_default();
        assert_eq!(sets.len(), 1, "{}", state());
        assert_eq!(serving, self.pods.len(), "{}", self.message());
        i32::try_from(serving).unwrap()
    }

    pub(crate) fn down(&self) -> usize {
        self.pods.values().filter(|p| p.following.is_none()).count()
    }

    /// Restarts of each member since it started, by ordinal.
    pub(crate) fn restarts(&self) -> Vec<u32> {
        (0..u16::try_from(self.pods.len()).unwrap())
            .map(|o| self.restarted.get(&o).copied().unwrap_or(0))
            .collect()
    }

    pub(crate) fn message(&self) -> String {
        self.last
            .as_ref()
            .map(|p| p.report.message.clone())
            .unwrap_or_default()
    }

    /// Whether in every step nobody restarted after the leader had.
    pub(crate) fn leader_was_last_in_every_step(&self) -> bool {
        self.steps
            .windows(2)
            .all(|pair| !pair[0].1 || pair[0].0 != pair[1].0)
    }

    pub(crate) fn summary(&self) -> String {
        let leaders = self.steps.iter().filter(|(_, led)| *led).count();
        format!(
            "{} restarts, {leaders} of them of a leader\n",
            self.steps.len()
        )
    }

    /// These members leave the others, with a leader of their own or none, in a later epoch.
    pub(crate) fn split(&mut self, ordinals: &[u16], leader: Option<u16>) {
        for ordinal in ordinals {
            let pod = self.pods.get_mut(ordinal).unwrap();
            pod.following = leader.map(|o| ServerId(o + 1));
            pod.unready = if leader.is_none() { 9 } else { 0 };
            self.disks.insert(*ordinal, (self.epoch + 1) << 32);
        }
    }

    /// What the operator would do now; the world stays as it is.
    pub(crate) fn look(&mut self) -> Option<Step> {
        let valid = validate(&self.ensemble, &self.context).unwrap();
        let plan = plan_under(self.rules, &valid, &self.observe());
        let step = plan.step.clone();
        self.last = Some(plan);
        step
    }

    /// One pass of the operator and one tick of the world. `None` when nothing moves any more.
    pub(crate) fn reconcile(&mut self) -> Option<String> {
        let valid = validate(&self.ensemble, &self.context).unwrap();
        let observation = self.observe();
        let plan = plan_under(self.rules, &valid, &observation);
        let before = self.fingerprint();
        let line = self.line(&plan);
        let name = self.ensemble.metadata.name.clone().unwrap();
        // Nothing in this world is waited for, so the execution is over when it is polled once.
        execute(self, &name, &plan).now_or_never().unwrap();
        self.last = Some(plan);
        self.tick();
        self.quiet = if before == self.fingerprint() {
            self.quiet + 1
        } else {
            0
        };
        (self.quiet < 8).then_some(line)
    }

    fn fingerprint(&self) -> String {
        let pods: Vec<_> = self
            .pods
            .values()
            .map(|p| {
                (
                    p.uid,
                    &p.template,
                    p.following,
                    p.age.min(3),
                    p.unready.min(3),
                )
            })
            .collect();
        format!(
            "{pods:?} {:?} {:?} {:?}",
            self.claims,
            self.owners,
            self.set
                .as_ref()
                .map(|s| (s.replicas, s.template.to_string()))
        )
    }

    fn line(&self, plan: &Plan) -> String {
        let mut line = format!("{:?}: {}\n   ", plan.report.phase, plan.report.message);
        for member in &plan.report.members {
            let ordinal = member.id.0 - 1;
            let voters = self
                .pods
                .get(&ordinal)
                .map(|p| p.revision.voters.to_string());
            let _ = write!(
                line,
                " {} {} {{{}}}",
                member.pod,
                member.role,
                voters.unwrap_or_default().replace(',', "")
            );
        }
        line
    }
}
