//! A small world for the planner: what the StatefulSet controller, the kubelets and ZooKeeper's
//! servers do, one tick for each pass of the operator.
//!
//! It checks in every tick that at most two voter sets are live and that at most one server leads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use bellwether_api::ensemble::{Config, MemberRole};
use bellwether_api::{ZooKeeperEnsemble, ZooKeeperEnsembleSpec, labels};
use bellwether_ensemble::desired::stateful_set::INITIALIZE;
use bellwether_ensemble::desired::{ObjectKind, Write, parse_acceptance, parse_epochs, short_hash};
use bellwether_ensemble::observation::{
    Acceptance, BootstrapPermission, ClaimObservation, PodObservation, PodState, Revision,
    ServerReport, StatefulSetObservation,
};
use bellwether_ensemble::plan::{Expect, Step};
use bellwether_ensemble::safety::{can_join, holds_majority};
use bellwether_ensemble::validate::Context;
use bellwether_ensemble::volume_report::{Usage, VolumeReport};
use bellwether_ensemble::{Observation, Plan, ServerId, Voters, plan, validate};
use jiff::Timestamp;
use serde_json::Value;

#[derive(Clone, Debug)]
struct Pod {
    revision: Revision,
    template: String,
    image: String,
    uid: u32,
    age: u32,
    following: Option<ServerId>,
    unready: u32,
}

#[derive(Clone, Debug)]
struct Set {
    replicas: u16,
    template: Value,
    annotations: BTreeMap<String, String>,
    retains: bool,
}

/// The world.
pub(crate) struct World {
    ensemble: ZooKeeperEnsemble,
    context: Context,
    now: i64,
    set: Option<Set>,
    pods: BTreeMap<u16, Pod>,
    /// Last transaction on each disk; a disk without ZooKeeper data is absent.
    disks: BTreeMap<u16, u64>,
    /// The list that each claim carries, by ordinal.
    claims: BTreeMap<u16, Option<Voters>>,
    bootstrap: Option<BootstrapPermission>,
    revisions: BTreeSet<String>,
    epoch: u64,
    uids: u32,
    muted: bool,
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
        let context = Context {
            member_image: "bellwether:1".to_owned(),
            cluster_domain: "cluster.local".to_owned(),
            version: "1".to_owned(),
        };
        Self {
            ensemble,
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
            muted: false,
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
        self.muted = true;
    }

    /// The ensemble is deleted and created again, maybe with another size. Volumes stay.
    pub(crate) fn recreate(&mut self, replicas: i32) {
        self.set = None;
        self.pods.clear();
        self.bootstrap = None;
        self.revisions.clear();
        self.scale(replicas);
    }

    /// Somebody deletes the StatefulSet; the pods go with it, or stay.
    pub(crate) fn delete_set(&mut self, orphan: bool) {
        self.set = None;
        if !orphan {
            self.pods.clear();
        }
        self.quiet = 0;
    }

    /// A volume claim is lost, and with it the disk.
    pub(crate) fn lose_claim(&mut self, ordinal: u16) {
        self.claims.remove(&ordinal);
        self.claim_uids.remove(&ordinal);
        self.disks.remove(&ordinal);
        self.pods.remove(&ordinal);
        self.elections();
        self.quiet = 0;
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

    /// What the report says is wrong.
    pub(crate) fn trouble(&self) -> Option<(&'static str, String)> {
        let trouble = self.last.as_ref()?.report.trouble.as_ref()?;
        Some((trouble.reason.as_str(), trouble.message.clone()))
    }

    /// The lists that the claims carry, by ordinal.
    pub(crate) fn records(&self) -> Vec<String> {
        let text = |v: &Option<Voters>| v.as_ref().map_or("-".to_owned(), ToString::to_string);
        self.claims.values().map(text).collect()
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

    /// One pass of the operator and one tick of the world. `None` when nothing moves any more.
    pub(crate) fn reconcile(&mut self) -> Option<String> {
        let valid = validate(&self.ensemble, &self.context).unwrap();
        let observation = self.observe();
        let plan = plan(&valid, &observation);
        let before = self.fingerprint();
        let line = self.line(&plan);
        let set_changed = self.apply(&plan);
        if let (Some(step), false) = (&plan.step, set_changed) {
            self.take(step);
        }
        for name in &plan.prune {
            self.revisions.remove(name);
        }
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
            "{pods:?} {:?}",
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

    fn observe(&self) -> Observation {
        let set = self.set.as_ref().map(|s| StatefulSetObservation {
            replicas: s.replicas,
            template: Some(template_revision(&s.template)),
            update_revision: Some(short_hash(&s.template)),
            inputs_hash: s.annotations.get(labels::INPUTS_HASH).cloned(),
            rendered_by: s.annotations.get(labels::RENDERED_BY).cloned(),
            claim_size: None,
            log_claim_size: None,
            terminating: false,
        });
        let pods = self.pods.iter().map(|(ordinal, pod)| PodObservation {
            name: format!("zk-{ordinal}"),
            ordinal: *ordinal,
            uid: pod.uid.to_string(),
            resource_version: pod.uid.to_string(),
            revision: Some(pod.revision.clone()),
            controller_revision: Some(pod.template.clone()),
            terminating: false,
            state: if pod.image.starts_with("bad") {
                PodState::Failing {
                    reason: "ImagePullBackOff".to_owned(),
                    message: String::new(),
                }
            } else if pod.age == 0 {
                PodState::Starting
            } else {
                PodState::Running
            },
            ready: pod.unready < 3 && pod.age > 0,
            unready_since: None,
            created: Timestamp::from_second(self.now - i64::from(pod.age)).unwrap(),
            node: None,
            server: self.report(*ordinal, pod),
            volumes: (!self.silent.contains(ordinal)).then(|| VolumeReport {
                has_database: self.disks.contains_key(ordinal),
                current_epoch: self.disks.get(ordinal).map(|zxid| zxid >> 32),
                accepted_epoch: None,
                data: self.usage,
                transaction_log: None,
            }),
        });
        Observation {
            now: Timestamp::from_second(self.now).unwrap(),
            stateful_set: set,
            pods: pods.collect(),
            claims: self.observe_claims(),
            bootstrap: self.bootstrap.clone(),
            revisions: self.revisions.clone(),
            ..Observation::default()
        }
    }

    fn observe_claims(&self) -> Vec<ClaimObservation> {
        self.claims
            .iter()
            .map(|(ordinal, voters)| ClaimObservation {
                name: format!("data-zk-{ordinal}"),
                ordinal: *ordinal,
                uid: self.claim_uids[ordinal].to_string(),
                voters: voters.clone(),
                terminating: false,
                requested: None,
                capacity: None,
                resize: None,
                class: None,
                expandable: None,
            })
            .collect()
    }

    fn report(&self, ordinal: u16, pod: &Pod) -> ServerReport {
        if self.muted || pod.age == 0 || pod.image.starts_with("bad") {
            return ServerReport::Unreachable("silent".to_owned());
        }
        match pod.following {
            None => ServerReport::Looking,
            Some(leader) => ServerReport::Serving {
                role: if leader.0 == ordinal + 1 {
                    MemberRole::Leader
                } else if !pod.revision.voters.contains(ServerId(ordinal + 1)) {
                    MemberRole::Observer
                } else {
                    MemberRole::Follower
                },
                zxid: self.disks.get(&ordinal).copied().unwrap_or(0),
                voters: pod.revision.voters.clone(),
            },
        }
    }

    /// Applies the objects; whether the StatefulSet changed.
    fn apply(&mut self, plan: &Plan) -> bool {
        let mut changed = false;
        for object in &plan.objects {
            match (object.kind, object.write) {
                (ObjectKind::ConfigMap, _) if object.name.ends_with("-bootstrap") => {
                    let get = |key: &str| object.body["data"][key].as_str().unwrap_or_default();
                    self.bootstrap = Some(BootstrapPermission {
                        initialize: get("initialize").parse().ok(),
                        until: get("until")
                            .parse()
                            .ok()
                            .and_then(|s| Timestamp::from_second(s).ok()),
                        epochs: parse_epochs(get("epochs")),
                        acceptance: parse_acceptance(get("accepted")),
                    });
                }
                (ObjectKind::ConfigMap, _) => {
                    self.revisions.insert(object.name.clone());
                }
                (ObjectKind::PersistentVolumeClaim, _) => {
                    if self.claims_frozen {
                        continue;
                    }
                    let ordinal = object.name.rsplit('-').next().unwrap().parse().unwrap();
                    let voters = &object.body["metadata"]["annotations"][labels::VOTERS];
                    let voters = voters.as_str().unwrap().parse().unwrap();
                    *self.claims.get_mut(&ordinal).unwrap() = Some(voters);
                }
                (ObjectKind::StatefulSet, Write::Merge) => {
                    let replicas = object.body["spec"]["replicas"].as_u64().unwrap();
                    let set = self.set.as_mut().unwrap();
                    let replicas = u16::try_from(replicas).unwrap();
                    changed |= set.replicas != replicas;
                    set.replicas = replicas;
                }
                (ObjectKind::StatefulSet, Write::Apply) => {
                    let body = &object.body;
                    let annotations = body["metadata"]["annotations"].clone();
                    let new = Set {
                        replicas: u16::try_from(body["spec"]["replicas"].as_u64().unwrap())
                            .unwrap(),
                        template: body["spec"]["template"].clone(),
                        annotations: serde_json::from_value(annotations).unwrap(),
                        retains: body["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"]
                            == "Retain",
                    };
                    changed |= self.set.as_ref().is_none_or(|old| {
                        old.replicas != new.replicas || old.template != new.template
                    });
                    self.set = Some(new);
                }
                _ => {}
            }
        }
        changed
    }

    fn take(&mut self, step: &Step) {
        let Step::RestartMember {
            pod,
            uid,
            expect,
            id,
            ..
        } = step;
        let ordinal = id.0 - 1;
        assert_eq!(*pod, format!("zk-{ordinal}"));
        assert_eq!(self.pods[&ordinal].uid.to_string(), *uid);
        let list = template_revision(&self.set.as_ref().unwrap().template).name;
        self.steps.push((list, *expect == Expect::Leader));
        *self.restarted.entry(ordinal).or_default() += 1;
        self.pods.remove(&ordinal);
        self.elections();
    }

    fn tick(&mut self) {
        self.now += 1;
        for pod in self.pods.values_mut() {
            pod.age += 1;
            pod.unready = if pod.following.is_some() {
                0
            } else {
                pod.unready + 1
            };
        }
        if let Some(set) = self.set.clone() {
            let gone: Vec<u16> = self
                .pods
                .keys()
                .copied()
                .filter(|o| *o >= set.replicas)
                .collect();
            for ordinal in gone {
                self.pods.remove(&ordinal);
                if !set.retains {
                    self.disks.remove(&ordinal);
                    self.claims.remove(&ordinal);
                }
            }
            for ordinal in 0..set.replicas {
                if !self.pods.contains_key(&ordinal) {
                    self.create(ordinal, &set);
                }
            }
        }
        self.elections();
        let live: BTreeSet<&Voters> = self.pods.values().map(|p| &p.revision.voters).collect();
        assert!(live.len() <= 2, "three voter sets are live: {live:?}");
    }

    fn create(&mut self, ordinal: u16, set: &Set) {
        self.uids += 1;
        let revision = template_revision(&set.template);
        let id = ServerId(ordinal + 1);
        let permitted = revision.initialize == Some(id)
            || self
                .bootstrap
                .as_ref()
                .filter(|_| !self.stale_permission)
                .is_some_and(|b| b.initialize.as_ref().is_some_and(|v| v.contains(id)));
        if permitted {
            self.disks.entry(ordinal).or_insert(0);
        }
        self.claims.entry(ordinal).or_default();
        self.claim_uids.entry(ordinal).or_insert(self.uids);
        let image = set.template["spec"]["containers"][0]["image"]
            .as_str()
            .unwrap()
            .to_owned();
        let pod = Pod {
            revision,
            template: short_hash(&set.template),
            image,
            uid: self.uids,
            age: 0,
            following: None,
            unready: 0,
        };
        self.pods.insert(ordinal, pod);
    }

    fn runs(&self, ordinal: u16) -> bool {
        self.pods
            .get(&ordinal)
            .is_some_and(|p| p.age > 0 && !p.image.starts_with("bad"))
    }

    /// What ZooKeeper's servers do among themselves.
    fn elections(&mut self) {
        let pods = &mut self.pods;
        // Followers of a leader that is gone, and a leader without a majority of its own list, look.
        loop {
            let following: BTreeMap<u16, Option<ServerId>> =
                pods.iter().map(|(o, p)| (*o, p.following)).collect();
            let mut moved = false;
            for (ordinal, pod) in pods.iter_mut() {
                let Some(leader) = pod.following else {
                    continue;
                };
                let lost = if leader.0 == ordinal + 1 {
                    let acks: Voters = following
                        .iter()
                        .filter(|(_, f)| **f == Some(leader))
                        .map(|(o, _)| ServerId(o + 1))
                        .collect();
                    !holds_majority(&acks, &pod.revision.voters)
                } else {
                    following.get(&(leader.0 - 1)).copied().flatten() != Some(leader)
                };
                if lost {
                    pod.following = None;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        self.join();
        self.vote();
        self.join();
        let leaders = self
            .pods
            .iter()
            .filter(|(o, p)| p.following == Some(ServerId(**o + 1)));
        assert!(leaders.count() <= 1, "two servers lead");
    }

    fn join(&mut self) {
        for ordinal in self.pods.keys().copied().collect::<Vec<_>>() {
            let pod = &self.pods[&ordinal];
            if pod.following.is_some() || !self.runs(ordinal) {
                continue;
            }
            let serving: Voters = self
                .pods
                .iter()
                .filter(|(_, p)| p.following.is_some())
                .map(|(o, _)| ServerId(o + 1))
                .collect();
            let leader = self.pods.values().find_map(|p| p.following);
            let id = ServerId(ordinal + 1);
            if can_join(id, &pod.revision.voters, &serving, leader)
                && let Some(pod) = self.pods.get_mut(&ordinal)
            {
                pod.following = leader;
                self.disks.insert(ordinal, self.epoch << 32);
            }
        }
    }

    fn vote(&mut self) {
        if self.pods.values().any(|p| p.following.is_some()) {
            return;
        }
        let voters: Vec<(u64, u16)> = self
            .pods
            .keys()
            .filter(|o| self.runs(**o))
            .filter_map(|o| self.disks.get(o).map(|zxid| (*zxid, *o)))
            .collect();
        let mut candidates = voters.clone();
        candidates.sort_unstable();
        for (zxid, candidate) in candidates.into_iter().rev() {
            let id = ServerId(candidate + 1);
            // Each supporter knows the candidate and has nothing newer.
            let mut support: Voters = voters
                .iter()
                .filter(|(z, o)| *z <= zxid && self.pods[o].revision.voters.contains(id))
                .map(|(_, o)| ServerId(o + 1))
                .collect();
            // Each decides by its own list.
            loop {
                let decided: Voters = support
                    .iter()
                    .filter(|s| holds_majority(&support, &self.pods[&(s.0 - 1)].revision.voters))
                    .collect();
                if decided == support {
                    break;
                }
                support = decided;
            }
            if support.contains(id) {
                for s in support.iter() {
                    if let Some(pod) = self.pods.get_mut(&(s.0 - 1)) {
                        pod.following = Some(id);
                    }
                }
                self.bump_epoch();
                return;
            }
        }
    }
}
