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
            edited: s.edited(),
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
            controller: None,
            silent_since: (self.muted.as_ref().or(self.cut_off.get(ordinal)))
                .map(|at| Timestamp::from_second(*at).unwrap()),
            terminating: false,
            failing_container: None,
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
            unready_since: match self.copying.get(ordinal) {
                Some(since) => Some(Timestamp::from_second(*since).unwrap()),
                None => (self.homeless.contains(ordinal)).then(|| created(pod)),
            },
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
            .map(|(ordinal, (voters, next))| ClaimObservation {
                name: format!("data-zk-{ordinal}"),
                ordinal: *ordinal,
                uid: self.claim_uids[ordinal].to_string(),
                voters: voters.clone(),
                next: next.clone(),
                owners: self.owners.get(ordinal).cloned().unwrap_or_default(),
                ..Default::default()
            })
            .collect()
    }

    fn report(&self, ordinal: u16, pod: &Pod) -> ServerReport {
        if self.muted.is_some() || self.cut_off.contains_key(&ordinal) || !self.runs(ordinal) {
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

    /// Keeps what an object says that this world acts on.
    fn note(&mut self, object: &DesiredObject) {
        let body = &object.body;
        match (object.kind, object.write) {
            (ObjectKind::ConfigMap, _) if object.name.ends_with("-bootstrap") => {
                self.bootstrap = Some(parse_bootstrap(|key| body["data"][key].as_str()));
            }
            (ObjectKind::ConfigMap, _) => {
                self.revisions.insert(object.name.clone());
            }
            (ObjectKind::PersistentVolumeClaim, _) => {
                self.write_claim(object);
            }
            (ObjectKind::StatefulSet, Write::Merge) => {
                let replicas = body["spec"]["replicas"].as_u64().unwrap();
                let set = self.set.as_mut().unwrap();
                set.replicas = u16::try_from(replicas).unwrap();
                set.retention = body["spec"]["persistentVolumeClaimRetentionPolicy"].clone();
            }
            (ObjectKind::StatefulSet, Write::Apply) => {
                let annotations = body["metadata"]["annotations"].clone();
                self.set = Some(Set {
                    replicas: u16::try_from(body["spec"]["replicas"].as_u64().unwrap()).unwrap(),
                    template: body["spec"]["template"].clone(),
                    touched: false,
                    annotations: serde_json::from_value(annotations).unwrap(),
                    retention: body["spec"]["persistentVolumeClaimRetentionPolicy"].clone(),
                });
            }
            _ => {}
        }
    }

    fn write_claim(&mut self, object: &DesiredObject) {
        let ordinal = object.name.rsplit('-').next().unwrap().parse().unwrap();
        let metadata = &object.body["metadata"];
        assert_eq!(metadata["uid"], self.claim_uids[&ordinal].to_string());
        let list = |key| metadata["annotations"][key].as_str();
        if let Some(voters) = list(labels::VOTERS) {
            let next = list(labels::NEXT_VOTERS).map(|next| next.parse().unwrap());
            *self.claims.get_mut(&ordinal).unwrap() = (Some(voters.parse().unwrap()), next);
        }
        if metadata["ownerReferences"].is_array() {
            let owners = serde_json::from_value(metadata["ownerReferences"].clone());
            self.owners.insert(ordinal, owners.unwrap());
        }
    }
}

impl execute::World for World {
    type Error = Infallible;

    fn may_act(&self) -> Result<(), Infallible> {
        Ok(())
    }

    fn live(&self, kind: ObjectKind, name: &str) -> Option<&Value> {
        self.objects.get(kind, name)
    }

    async fn write(&mut self, object: &DesiredObject) -> Result<Option<String>, Infallible> {
        if self.claims_frozen && object.kind == ObjectKind::PersistentVolumeClaim {
            return Ok(None);
        }
        self.note(object);
        Ok(Some(self.objects.write(object)))
    }

    async fn facts(&mut self) -> Result<Option<Facts>, Infallible> {
        Ok(Some(Facts::of(
            self.ensemble.metadata.generation,
            &self.observe(),
        )))
    }

    async fn take(&mut self, step: &Step) -> Result<bool, Infallible> {
        let (pod, uid, expect, id) = match step {
            Step::RestartMember {
                pod,
                uid,
                expect,
                id,
                ..
            } => (pod, uid, expect, id),
            Step::DeleteClaim { claim, uid, id, .. } => {
                let ordinal = id.0 - 1;
                assert_eq!(*claim, format!("data-zk-{ordinal}"));
                assert_eq!(self.claim_uids[&ordinal].to_string(), *uid);
                assert!(!self.pods.contains_key(&ordinal), "{claim} is in use");
                self.delete_claim(ordinal);
                return Ok(true);
            }
        };
        let ordinal = id.0 - 1;
        assert_eq!(*pod, format!("zk-{ordinal}"));
        assert_eq!(self.pods[&ordinal].uid.to_string(), *uid);
        let list = template_revision(&self.set.as_ref().unwrap().template).name;
        self.steps.push((list, *expect == Expect::Leader));
        *self.restarted.entry(ordinal).or_default() += 1;
        self.pods.remove(&ordinal);
        self.elections();
        Ok(true)
    }

    fn declined(&mut self, _: &Step, _: &str) {}

    async fn prune(&mut self, revision: &str) -> Result<(), Infallible> {
        self.revisions.remove(revision);
        self.objects.remove(ObjectKind::ConfigMap, revision);
        Ok(())
    }
}
