//! What the operator sees of the world, and what its executor does to it.

use super::*;

impl World {
    pub(super) fn observe(&self) -> Observation {
        let set = self.set.as_ref().map(|s| StatefulSetObservation {
            replicas: s.replicas,
            template: Some(template_revision(&s.template)),
            update_revision: Some(short_hash(&s.template)),
            inputs_hash: s.annotations.get(labels::INPUTS_HASH).cloned(),
            rendered_by: s.annotations.get(labels::RENDERED_BY).cloned(),
            claim_size: None,
            log_claim_size: None,
            restart: restart_request(&s.template),
            terminating: false,
        });
        let created = |pod: &Pod| Timestamp::from_second(pod.created).unwrap();
        let pods = self.pods.iter().map(|(ordinal, pod)| PodObservation {
            name: format!("zk-{ordinal}"),
            ordinal: *ordinal,
            uid: pod.uid.to_string(),
            resource_version: pod.uid.to_string(),
            revision: Some(pod.revision.clone()),
            controller_revision: Some(pod.template.clone()),
            terminating: false,
            state: if self.homeless.contains(ordinal) {
                PodState::Failing {
                    reason: "Unschedulable".to_owned(),
                    message: String::new(),
                }
            } else if pod.image.starts_with("bad") {
                PodState::Failing {
                    reason: "ImagePullBackOff".to_owned(),
                    message: String::new(),
                }
            } else if pod.age == 0 {
                PodState::Starting
            } else {
                PodState::Running
            },
            ready: pod.unready < 3 && pod.age > 0 && !self.homeless.contains(ordinal),
            unready_since: (self.homeless.contains(ordinal)).then(|| created(pod)),
            created: created(pod),
            node: None,
            server: self.report(*ordinal, pod),
            volumes: (!self.silent.contains(ordinal) && !self.homeless.contains(ordinal)).then(
                || VolumeReport {
                    has_database: self.disks.contains_key(ordinal),
                    current_epoch: self.disks.get(ordinal).map(|zxid| zxid >> 32),
                    accepted_epoch: None,
                    data: self.usage,
                    transaction_log: None,
                },
            ),
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
                ..Default::default()
            })
            .collect()
    }

    fn report(&self, ordinal: u16, pod: &Pod) -> ServerReport {
        if self.muted || !self.runs(ordinal) {
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
    pub(super) fn apply(&mut self, plan: &Plan) -> bool {
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

    pub(super) fn take(&mut self, step: &Step) {
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
}
