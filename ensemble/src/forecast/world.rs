//! A world without faults: what is in it, what the operator sees of it and writes to it, and what the
//! StatefulSet controller and the kubelets do.

mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use bellwether_api::ensemble::MemberRole;
use bellwether_api::labels;
use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use super::{Event, difference};
use crate::desired::claims::{DATA, LOG};
use crate::desired::stateful_set::{INITIALIZE, restart_request};
use crate::desired::{
    DesiredObject, ObjectKind, Write, bootstrap_config_map, observers, parse_bootstrap, short_hash,
};
use crate::execute::objects::Objects;
use crate::execute::{self, execute};
use crate::ids::{ServerId, Voters};
use crate::observation::{
    BootstrapPermission, ClaimObservation, Observation, ObserversObservation, PodObservation,
    PodState, Revision, ServerReport, StatefulSetObservation,
};
use crate::plan::facts::Facts;
use crate::plan::{Plan, Step};
use crate::quantity::bytes;
use crate::validate::ValidEnsemble;
use crate::volume_report::{Usage, VolumeReport};

/// After how many passes without a leader a pod is not ready any more.
const READINESS: u32 = 3;
/// A volume with room.
const ROOM: Usage = Usage {
    total: 8 << 30,
    free: 7 << 30,
};

/// Which of the two StatefulSets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Voters,
    Observers,
}

#[derive(Clone, Debug)]
struct Set {
    replicas: u16,
    template: Value,
    annotations: BTreeMap<String, String>,
    sizes: BTreeMap<String, Quantity>,
}

#[derive(Clone, Debug)]
struct Pod {
    revision: Revision,
    template: String,
    uid: u32,
    age: u32,
    following: Option<ServerId>,
    unready: u32,
}

#[derive(Clone, Debug)]
struct Claim {
    ordinal: u16,
    template: String,
    part: Part,
    uid: u32,
    voters: Option<Voters>,
    next: Option<Voters>,
    owners: Vec<OwnerReference>,
    bytes: Option<u64>,
}

/// The world.
#[derive(Default)]
pub(super) struct World {
    /// What happened.
    pub(super) events: Vec<Event>,
    passes: i64,
    sets: BTreeMap<Part, Set>,
    pods: BTreeMap<(Part, u16), Pod>,
    /// The last transaction on each voter's disk.
    disks: BTreeMap<u16, u64>,
    claims: BTreeMap<String, Claim>,
    bootstrap: Option<BootstrapPermission>,
    /// The `zoo.cfg` of a voter by configuration revision.
    revisions: BTreeMap<String, String>,
    epoch: u64,
    uids: u32,
    objects: Objects,
}

fn revision(template: &Value) -> Option<Revision> {
    let notes = &template["metadata"]["annotations"];
    let text = |key: &str| notes[key].as_str();
    Some(Revision {
        name: text(labels::CONFIG_REVISION)?.to_owned(),
        voters: text(labels::VOTERS)?.parse().ok()?,
        initialize: text(INITIALIZE).and_then(|id| Some(ServerId(id.parse().ok()?))),
    })
}

fn set_name(ensemble: &ValidEnsemble, part: Part) -> String {
    match part {
        Part::Voters => ensemble.name.clone(),
        Part::Observers => observers::set_name(&ensemble.name),
    }
}

fn id(ensemble: &ValidEnsemble, (part, ordinal): (Part, u16)) -> ServerId {
    match part {
        Part::Voters => ServerId::of_ordinal(ordinal, ensemble.id_offset),
        Part::Observers => ServerId::of_observer(ordinal, ensemble.id_offset),
    }
}

impl World {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + self.passes).unwrap_or_default()
    }

    /// Everything that may still move, so that two equal ones mean that nothing did.
    pub(super) fn fingerprint(&self) -> String {
        let moving = |(key, pod): (&(Part, u16), &Pod)| {
            let ages = (pod.age.min(READINESS), pod.unready.min(READINESS));
            format!(
                "{key:?} {} {} {:?} {ages:?}",
                pod.uid, pod.template, pod.following
            )
        };
        let pods: Vec<String> = self.pods.iter().map(moving).collect();
        let sets: Vec<_> = self
            .sets
            .values()
            .map(|s| (s.replicas, short_hash(&s.template)))
            .collect();
        let claims: Vec<_> = self
            .claims
            .iter()
            .map(|(n, c)| (n, &c.voters, &c.next, c.bytes))
            .collect();
        format!("{pods:?} {sets:?} {claims:?}")
    }

    /// Makes a server the leader, if it votes.
    pub(super) fn elect(&mut self, ensemble: &ValidEnsemble, leader: ServerId) {
        let votes = |key: &(Part, u16)| key.0 == Part::Voters && id(ensemble, *key) == leader;
        if self.pods.keys().any(votes) {
            for pod in self.pods.values_mut() {
                pod.following = Some(leader);
            }
            self.begin_epoch();
        }
    }

    fn begin_epoch(&mut self) {
        self.epoch += 1;
        for ((part, ordinal), pod) in &self.pods {
            if *part == Part::Voters && pod.following.is_some() {
                self.disks.insert(*ordinal, self.epoch << 32);
            }
        }
    }

    /// What the operator would see.
    pub(super) fn observe(&self, ensemble: &ValidEnsemble) -> Observation {
        let claims = |part: Part, template: &str| -> Vec<ClaimObservation> {
            let of = |(_, c): &(&String, &Claim)| c.part == part && c.template == template;
            let claims = self.claims.iter().filter(of);
            claims
                .map(|(name, claim)| ClaimObservation {
                    name: name.clone(),
                    ordinal: claim.ordinal,
                    uid: claim.uid.to_string(),
                    voters: claim.voters.clone(),
                    next: claim.next.clone(),
                    owners: claim.owners.clone(),
                    requested: claim.bytes,
                    capacity: claim.bytes,
                    ..ClaimObservation::default()
                })
                .collect()
        };
        Observation {
            now: self.now(),
            stateful_set: self.sets.get(&Part::Voters).map(observe_set),
            pods: self.observe_pods(ensemble, Part::Voters),
            claims: claims(Part::Voters, DATA),
            log_claims: claims(Part::Voters, LOG),
            bootstrap: self.bootstrap.clone(),
            revisions: self.revisions.keys().cloned().collect::<BTreeSet<_>>(),
            refused: BTreeMap::new(),
            leftovers: Vec::new(),
            observers: ObserversObservation {
                stateful_set: self.sets.get(&Part::Observers).map(observe_set),
                pods: self.observe_pods(ensemble, Part::Observers),
                claims: claims(Part::Observers, DATA),
                log_claims: claims(Part::Observers, LOG),
                overdue: BTreeSet::new(),
            },
        }
    }

    fn observe_pods(&self, ensemble: &ValidEnsemble, part: Part) -> Vec<PodObservation> {
        let pods = self.pods.iter().filter(|((p, _), _)| *p == part);
        pods.map(|(key, pod)| {
            let own = id(ensemble, *key);
            let zxid = self
                .disks
                .get(&key.1)
                .copied()
                .filter(|_| part == Part::Voters);
            let server = match pod.following {
                _ if pod.age == 0 => ServerReport::Unreachable("it starts".to_owned()),
                None => ServerReport::Looking,
                Some(leader) => ServerReport::Serving {
                    role: if leader == own {
                        MemberRole::Leader
                    } else if pod.revision.voters.contains(own) {
                        MemberRole::Follower
                    } else {
                        MemberRole::Observer
                    },
                    zxid: zxid.unwrap_or(self.epoch << 32),
                    voters: pod.revision.voters.clone(),
                },
            };
            PodObservation {
                name: format!("{}-{}", set_name(ensemble, part), key.1),
                ordinal: key.1,
                uid: pod.uid.to_string(),
                resource_version: pod.uid.to_string(),
                revision: Some(pod.revision.clone()),
                controller_revision: Some(pod.template.clone()),
                controller: None,
                silent_since: None,
                terminating: false,
                failing_container: None,
                state: if pod.age == 0 {
                    PodState::Starting
                } else {
                    PodState::Running
                },
                ready: pod.age > 0 && pod.unready < READINESS,
                unready_since: None,
                created: self.now(),
                node: None,
                server,
                volumes: Some(VolumeReport {
                    has_database: part == Part::Observers || zxid.is_some(),
                    current_epoch: zxid.map(|zxid| zxid >> 32),
                    accepted_epoch: None,
                    data: ROOM,
                    transaction_log: None,
                }),
            }
        })
        .collect()
    }

    /// One pass: what the plan says is done, and the world goes on.
    pub(super) fn pass(&mut self, ensemble: &ValidEnsemble, plan: &Plan) {
        let mut cluster = Cluster {
            world: self,
            ensemble,
        };
        // Nothing in this world is waited for, so the execution is over when it is polled once.
        let _ = execute(&mut cluster, &ensemble.name, plan).now_or_never();
        self.tick(ensemble);
    }

    /// Writes an object.
    fn write(&mut self, ensemble: &ValidEnsemble, object: &DesiredObject) {
        let body = &object.body;
        match object.kind {
            ObjectKind::ConfigMap if object.name == bootstrap_config_map(&ensemble.name) => {
                self.bootstrap = Some(parse_bootstrap(|key| body["data"][key].as_str()));
            }
            ObjectKind::ConfigMap => {
                let voters = body["metadata"]["annotations"][labels::VOTERS].as_str();
                // Another ConfigMap, such as the one for clients, is no configuration revision.
                let Some(voters) = voters.and_then(|v| v.parse::<Voters>().ok()) else {
                    return;
                };
                let first = voters.iter().next();
                let file = first.and_then(|id| body["data"][format!("zoo-{id}.cfg")].as_str());
                let text = file.unwrap_or_default().to_owned();
                self.revisions.insert(object.name.clone(), text);
            }
            ObjectKind::PersistentVolumeClaim => self.write_claim(object),
            ObjectKind::StatefulSet => {
                let part = if object.name == ensemble.name {
                    Part::Voters
                } else {
                    Part::Observers
                };
                self.write_set(part, object);
            }
            ObjectKind::Service | ObjectKind::PodDisruptionBudget => {}
        }
    }

    fn write_claim(&mut self, object: &DesiredObject) {
        let Some(claim) = self.claims.get_mut(&object.name) else {
            return;
        };
        let voters = object.body["metadata"]["annotations"][labels::VOTERS].as_str();
        if let Some(voters) = voters {
            claim.voters = voters.parse().ok();
            let next = object.body["metadata"]["annotations"][labels::NEXT_VOTERS].as_str();
            claim.next = next.and_then(|next| next.parse().ok());
        }
        let owners = &object.body["metadata"]["ownerReferences"];
        if let Ok(owners) = serde_json::from_value(owners.clone()) {
            claim.owners = owners;
        }
        let size = object.body["spec"]["resources"]["requests"]["storage"].as_str();
        if let Some(size) = size {
            claim.bytes = bytes(&Quantity(size.to_owned()));
            self.events.push(Event::Grow {
                claim: object.name.clone(),
                size: size.to_owned(),
            });
        }
    }

    fn write_set(&mut self, part: Part, object: &DesiredObject) {
        let spec = &object.body["spec"];
        let replicas = spec["replicas"]
            .as_u64()
            .and_then(|r| u16::try_from(r).ok());
        let replicas = replicas.unwrap_or_default();
        if object.write == Write::Merge {
            if let Some(set) = self.sets.get_mut(&part) {
                set.replicas = replicas;
            }
            return;
        }
        let template = spec["template"].clone();
        let old = self.sets.get(&part).cloned();
        let changed = old.as_ref().is_none_or(|old| old.template != template);
        if changed && part == Part::Voters {
            self.tell_template(old.as_ref().map(|old| &old.template), &template);
        }
        let notes = object.body["metadata"]["annotations"].as_object();
        let notes = notes.into_iter().flatten();
        let text =
            |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let sizes = old
            .as_ref()
            .map_or_else(|| claim_sizes(spec), |old| old.sizes.clone());
        let set = Set {
            replicas,
            template,
            annotations: notes.filter_map(text).collect(),
            sizes,
        };
        self.sets.insert(part, set);
    }

    fn tell_template(&mut self, old: Option<&Value>, new: &Value) {
        let Some(after) = revision(new) else { return };
        let before = old.and_then(revision);
        let text = |r: &Revision| self.revisions.get(&r.name).cloned().unwrap_or_default();
        let was = before.as_ref().map(text).unwrap_or_default();
        // The list and the revision are told in words.
        let mut hidden = vec![labels::CONFIG_REVISION, labels::VOTERS, INITIALIZE];
        hidden.push(&after.name);
        hidden.extend(before.as_ref().map(|before| before.name.as_str()));
        self.events.push(Event::Configure {
            revision: after.name.clone(),
            from: before.as_ref().map(|before| before.voters.clone()),
            zoo_cfg: difference::of_texts(&was, &text(&after)),
            template: old
                .map(|old| difference::of_objects(old, new, &hidden))
                .unwrap_or_default(),
            voters: after.voters,
        });
    }

    fn restart(&mut self, ensemble: &ValidEnsemble, pod: &str, server: ServerId, reason: &str) {
        let key = self
            .pods
            .keys()
            .copied()
            .find(|key| id(ensemble, *key) == server);
        let removed = key.and_then(|key| self.pods.remove(&key));
        self.events.push(Event::Restart {
            pod: pod.to_owned(),
            id: server,
            leads: removed.is_some_and(|pod| pod.following == Some(server)),
            reason: reason.to_owned(),
        });
        self.elections(ensemble);
    }

    fn delete_claim(&mut self, name: &str) {
        self.objects.remove(ObjectKind::PersistentVolumeClaim, name);
        let claim = self.claims.remove(name);
        if let Some(claim) = claim.filter(|c| c.part == Part::Voters) {
            self.disks.remove(&claim.ordinal);
        }
    }

    /// What happens by itself.
    fn tick(&mut self, ensemble: &ValidEnsemble) {
        self.passes += 1;
        for pod in self.pods.values_mut() {
            pod.age += 1;
            pod.unready = if pod.following.is_some() {
                0
            } else {
                pod.unready + 1
            };
        }
        for (part, set) in self.sets.clone() {
            self.scale(ensemble, part, &set);
        }
        self.elections(ensemble);
    }

    /// The StatefulSet controller.
    fn scale(&mut self, ensemble: &ValidEnsemble, part: Part, set: &Set) {
        let name = set_name(ensemble, part);
        let gone = self
            .pods
            .keys()
            .filter(|(p, o)| *p == part && *o >= set.replicas);
        for key in gone.copied().collect::<Vec<_>>() {
            self.pods.remove(&key);
            let pod = format!("{name}-{}", key.1);
            self.events.push(Event::Remove {
                pod,
                volumes: ensemble.reclaim_policy,
            });
        }
        let Some(revision) = revision(&set.template) else {
            return;
        };
        for ordinal in 0..set.replicas {
            if self.pods.contains_key(&(part, ordinal)) {
                continue;
            }
            self.uids += 1;
            let own = id(ensemble, (part, ordinal));
            let permitted = self.bootstrap.as_ref().and_then(|b| b.initialize.as_ref());
            let permitted = permitted.is_some_and(|voters| voters.contains(own));
            if part == Part::Voters && (permitted || revision.initialize == Some(own)) {
                self.disks.entry(ordinal).or_insert(0);
            }
            let mut new = false;
            for (template, size) in &set.sizes {
                let uid = self.uids;
                self.claims
                    .entry(format!("{template}-{name}-{ordinal}"))
                    .or_insert_with(|| {
                        new = true;
                        let bytes = bytes(size);
                        Claim {
                            ordinal,
                            template: template.clone(),
                            part,
                            uid,
                            voters: None,
                            next: None,
                            owners: Vec::new(),
                            bytes,
                        }
                    });
            }
            let pod = format!("{name}-{ordinal}");
            // One that restarts was told of already.
            let told = matches!(
                self.events.iter().rev().find(|e| !matches!(e, Event::Grow { .. })),
                Some(Event::Restart { pod: restarted, .. }) if *restarted == pod
            );
            if !told {
                self.events.push(Event::Create { pod });
            }
            let pod = Pod {
                revision: revision.clone(),
                template: short_hash(&set.template),
                uid: self.uids,
                age: 0,
                following: None,
                // No probe of its readiness has succeeded yet.
                unready: READINESS,
            };
            self.pods.insert((part, ordinal), pod);
        }
    }
}

/// The executor's view of this world.
struct Cluster<'a> {
    world: &'a mut World,
    ensemble: &'a ValidEnsemble,
}

impl execute::World for Cluster<'_> {
    type Error = Infallible;

    fn may_act(&self) -> Result<(), Infallible> {
        Ok(())
    }

    fn live(&self, kind: ObjectKind, name: &str) -> Option<&Value> {
        self.world.objects.get(kind, name)
    }

    async fn write(&mut self, object: &DesiredObject) -> Result<Option<String>, Infallible> {
        self.world.write(self.ensemble, object);
        Ok(Some(self.world.objects.write(object)))
    }

    async fn facts(&mut self) -> Result<Option<Facts>, Infallible> {
        let observation = self.world.observe(self.ensemble);
        Ok(Some(Facts::of(self.ensemble.generation, &observation)))
    }

    async fn take(&mut self, step: &Step) -> Result<bool, Infallible> {
        match step {
            Step::RestartMember {
                pod, id, reason, ..
            } => self.world.restart(self.ensemble, pod, *id, reason),
            Step::DeleteClaim { claim, .. } => self.world.delete_claim(claim),
        }
        Ok(true)
    }

    fn declined(&mut self, _: &Step, _: &str) {}

    async fn prune(&mut self, revision: &str) -> Result<(), Infallible> {
        self.world.revisions.remove(revision);
        self.world.objects.remove(ObjectKind::ConfigMap, revision);
        Ok(())
    }
}

fn observe_set(set: &Set) -> StatefulSetObservation {
    StatefulSetObservation {
        replicas: set.replicas,
        template: revision(&set.template),
        update_revision: Some(short_hash(&set.template)),
        inputs_hash: set.annotations.get(labels::INPUTS_HASH).cloned(),
        rendered_by: set.annotations.get(labels::RENDERED_BY).cloned(),
        edited: None,
        claim_size: set.sizes.get(DATA).cloned(),
        log_claim_size: set.sizes.get(LOG).cloned(),
        restart: restart_request(&set.template),
        terminating: false,
    }
}

/// The sizes in the claim templates of a StatefulSet, by name.
fn claim_sizes(spec: &Value) -> BTreeMap<String, Quantity> {
    let templates = spec["volumeClaimTemplates"]
        .as_array()
        .into_iter()
        .flatten();
    templates
        .filter_map(|template| {
            let claim: PersistentVolumeClaim = serde_json::from_value(template.clone()).ok()?;
            let size = claim.spec?.resources?.requests?.get("storage")?.clone();
            Some((claim.metadata.name?, size))
        })
        .collect()
}
