//! Following a script.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::labels;
use bellwether_api_server::{Delete, Kind, Object};
use bellwether_ensemble::desired::bootstrap_config_map;
use bellwether_ensemble::desired::stateful_set::CONTAINER;
use serde_json::Value;

use super::{Life, Options, Story, webhooks};
use crate::cluster::{ENSEMBLE, NAME, NAMESPACE};
use crate::script::{Condition, Deed, Line, Script};
use crate::zookeeper::Phase;

/// What a script remembers.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    template: Value,
    pods: BTreeMap<String, String>,
    claims: BTreeMap<String, String>,
}

/// The names of objects with their unique ids.
fn uids(objects: &[Arc<Object>]) -> BTreeMap<String, String> {
    let named = objects.iter().filter(|object| !object.is_terminating());
    let pair = |object: &Arc<Object>| (object.name().to_owned(), object.uid().to_owned());
    named.map(pair).collect()
}

/// Lives through a life as it is written down.
pub(super) async fn follow(options: &Options, script: &Script, mut rng: fastrand::Rng) -> Story {
    let policy = &script.spec["storage"]["reclaimPolicy"];
    let mut life = Life::new(options, 3, *policy == "Delete");
    life.spec = script.spec.clone();
    for _ in 0..script.operators {
        life.start_operator();
    }
    life.apply();
    for (number, line) in script.lines.iter().enumerate() {
        match line.clone() {
            Line::Act(act) => life.act(&mut rng, number, act),
            Line::Deed(deed) => life.deed(deed),
            Line::Pause(time) => life.go_on(time).await,
            Line::Await(condition, time) => life.wait_for(&condition, time).await,
        }
        if !life.story.violations.is_empty() {
            return life.finish();
        }
    }
    if script.ends_as_asked {
        life.end().await;
        if life.story.violations.is_empty() {
            life.compare_with_fresh().await;
        }
    }
    life.finish()
}

impl Life {
    async fn wait_for(&mut self, condition: &Condition, time: Duration) {
        let until = self.cluster.now() + time;
        while !self.is(condition) && self.story.violations.is_empty() {
            if self.cluster.now() >= until {
                let status = self.last_message.clone();
                return self.violate(format!(
                    "{:?}: {condition:?} did not come within {time:?}; the status was \"{status}\"",
                    self.cluster.now()
                ));
            }
            self.tick().await;
        }
        self.tell(&format!("SEEN {condition:?}"));
    }

    fn deed(&mut self, deed: Deed) {
        self.tell(&format!("DEED {deed:?}"));
        match deed {
            Deed::Spec(change) => {
                merge(&mut self.spec, change);
                self.deletes = self.spec["storage"]["reclaimPolicy"] == "Delete";
                self.apply();
            }
            Deed::HoldUp(held) => self.trouble().held.push(held),
            Deed::LoseClaim(ordinal) => {
                let now = Delete::default();
                self.delete(Kind::CLAIM, &format!("data-{NAME}-{ordinal}"), &now);
                self.delete(Kind::POD, &Self::pod(ordinal), &now);
            }
            Deed::Remember => {
                let set = self.set();
                let template = set.map(|set| set["spec"]["template"].clone());
                self.remembered = Remembered {
                    template: template.unwrap_or_default(),
                    pods: uids(&self.all(Kind::POD)),
                    claims: uids(&self.all(Kind::CLAIM)),
                };
            }
            Deed::Undo => {
                let template = self.remembered.template.clone();
                self.edit_set(|set| set["spec"]["template"] = template);
            }
            Deed::FailBeside(ordinal) => {
                if let Some(pod) = self.pod_of(ordinal) {
                    self.cluster.machines().kubelets.fail_beside(pod.uid());
                }
            }
            Deed::StartOperator => self.start_operator(),
            Deed::AcceptLoss => self.accept_loss(),
            Deed::ForeignField => {
                let target = (NAMESPACE, NAME);
                let mut store = self.cluster.api.store();
                let _ = store.update("somebody", Kind::SERVICE, target, |service| {
                    service["spec"]["sessionAffinity"] = "ClientIP".into();
                });
            }
            Deed::FalsifyStatus(fields) => {
                webhooks::falsify_status(&mut self.cluster.api.store().admission, fields);
            }
        }
    }

    /// The user copies the token out of the status.
    pub(super) fn accept_loss(&mut self) {
        let words: Vec<&str> = self.last_message.split([' ', '=', '.', ':']).collect();
        let token = words.windows(2).find_map(|pair| match pair {
            [name, token] if name.ends_with("/accept-data-loss") => Some((*token).to_owned()),
            _ => None,
        });
        let Some(token) = token else {
            return self.violate("the status names no token that accepts the loss".to_owned());
        };
        self.tell(&format!("the token is {token}"));
        let mut store = self.cluster.api.store();
        let target = (NAMESPACE, NAME);
        let _ = store.update("user", Kind::ENSEMBLE, target, |ensemble| {
            ensemble["metadata"]["annotations"][labels::ACCEPT_DATA_LOSS] = token.into();
        });
        drop(store);
        // Writes that only the lost disks had are not looked for any more.
        self.cluster.machines().zoo.excuse(ENSEMBLE);
    }

    fn set(&self) -> Option<Arc<Object>> {
        let store = self.cluster.api.store();
        store.get(Kind::STATEFUL_SET, NAMESPACE, NAME).cloned()
    }

    fn all(&self, kind: Kind) -> Vec<Arc<Object>> {
        let store = self.cluster.api.store();
        store.list(kind, Some(NAMESPACE)).cloned().collect()
    }

    fn pod_of(&self, ordinal: u16) -> Option<Arc<Object>> {
        let store = self.cluster.api.store();
        let pod = store.get(Kind::POD, NAMESPACE, &Self::pod(ordinal));
        pod.cloned()
    }

    fn phase(&self, ordinal: u16) -> Phase {
        let pod = self.pod_of(ordinal);
        let machines = self.cluster.machines();
        let process = pod.and_then(|pod| machines.kubelets.process_of(pod.uid()));
        process.map_or(Phase::Down, |process| machines.zoo.phase(process))
    }

    fn is(&self, condition: &Condition) -> bool {
        let serves = |o: u16| matches!(self.phase(o), Phase::Leading | Phase::Following);
        let voters = |object: &Value| object["annotations"][labels::VOTERS].clone();
        let update = || {
            let set = self.set()?;
            let seen = set["status"]["observedGeneration"] == set["metadata"]["generation"];
            let update = set["status"]["updateRevision"].as_str().filter(|_| seen);
            update.map(str::to_owned)
        };
        let newest =
            |pod: &Object, update: &str| pod.label("controller-revision-hash") == Some(update);
        match condition {
            Condition::AsAsked => self.is_as_asked(),
            Condition::Template(list) => self
                .set()
                .is_some_and(|set| voters(&set["spec"]["template"]["metadata"]) == *list),
            Condition::ServesWith(ordinal, list) => {
                let pod = self.pod_of(*ordinal);
                serves(*ordinal) && pod.is_some_and(|pod| voters(&pod["metadata"]) == *list)
            }
            Condition::Serves(ordinal) => serves(*ordinal),
            Condition::Down(ordinal) => self.phase(*ordinal) == Phase::Down,
            Condition::Looks(ordinal) => matches!(
                self.phase(*ordinal),
                Phase::Loading | Phase::Looking | Phase::Discovery
            ),
            Condition::Copies(ordinal) => matches!(
                self.phase(*ordinal),
                Phase::Synchronizing { bytes_left } if bytes_left > 0
            ),
            Condition::Leads(ordinal) => self.phase(*ordinal) == Phase::Leading,
            Condition::TwoLead => {
                let leads = |o: &u16| self.phase(*o) == Phase::Leading;
                (0..7).filter(leads).count() > 1
            }
            Condition::UpToDate(ordinal) => {
                let pod = self.pod_of(*ordinal).zip(update());
                serves(*ordinal) && pod.is_some_and(|(pod, update)| newest(&pod, &update))
            }
            Condition::Outdated => update()
                .is_some_and(|update| self.all(Kind::POD).iter().any(|pod| !newest(pod, &update))),
            Condition::Failing(ordinal) => self.pod_of(*ordinal).is_some_and(|pod| {
                let containers = pod["status"]["containerStatuses"].as_array();
                let mut containers = containers.into_iter().flatten();
                let server = containers.find(|c| c["name"] == CONTAINER);
                let waiting = server.map(|server| &server["state"]["waiting"]["reason"]);
                let reason = waiting.and_then(Value::as_str);
                reason.is_some_and(|reason| reason.ends_with("BackOff"))
            }),
            Condition::PermissionClosed => {
                let store = self.cluster.api.store();
                let map = store.get(Kind::CONFIG_MAP, NAMESPACE, &bootstrap_config_map(NAME));
                map.is_some_and(|map| {
                    let initialize = map["data"]["initialize"].as_str();
                    initialize.unwrap_or_default().is_empty()
                })
            }
            Condition::SamePods => uids(&self.all(Kind::POD)) == self.remembered.pods,
            Condition::SameClaims => uids(&self.all(Kind::CLAIM)) == self.remembered.claims,
            Condition::Reason(reason) => self.says(|c| c["reason"] == *reason),
            Condition::Says(type_, reason) => self
                .says(|c| c["type"] == *type_ && c["status"] == "True" && c["reason"] == *reason),
        }
    }

    /// Whether one of the status's conditions is so.
    fn says(&self, is_so: impl Fn(&Value) -> bool) -> bool {
        let store = self.cluster.api.store();
        let ensemble = store.get(Kind::ENSEMBLE, NAMESPACE, NAME);
        let conditions = ensemble.and_then(|e| e["status"]["conditions"].as_array());
        conditions.is_some_and(|all| all.iter().any(is_so))
    }
}

/// Puts the fields of `change` into `spec`.
pub(super) fn merge(spec: &mut Value, change: Value) {
    match (spec, change) {
        (Value::Object(spec), Value::Object(change)) => {
            for (key, value) in change {
                merge(spec.entry(key).or_insert(Value::Null), value);
            }
        }
        (spec, change) => *spec = change,
    }
}
