//! What the executor does to the world.

use bellwether_api::labels;
use serde_json::Value;

use super::event::Event;
use super::faults::Faults;
use super::{World, difference};
use crate::desired::config::SETTINGS;
use crate::desired::stateful_set::{INITIALIZE, template_hash};
use crate::desired::{DesiredObject, ObjectKind};
use crate::execute;
use crate::execute::objects::{Refused, storage};
use crate::observation::Revision;
use crate::plan::facts::Facts;
use crate::plan::{Step, Unwanted};

impl<F: Faults> execute::World for World<F> {
    type Error = Refused;

    fn may_act(&self) -> Result<(), Refused> {
        Ok(())
    }

    fn live(&self, kind: ObjectKind, name: &str) -> Option<&Value> {
        self.objects.get(kind, name)
    }

    async fn write(&mut self, object: &DesiredObject) -> Result<Option<String>, Refused> {
        if !self.faults.lets_through(object) {
            return Ok(None);
        }
        let before = self.objects.get(object.kind, &object.name).cloned();
        let version = self.objects.write(object)?;
        self.report(object, &before.unwrap_or_default());
        Ok(Some(version))
    }

    async fn facts(&mut self) -> Result<Option<Facts>, Refused> {
        Ok(Some(Facts::of(self.ensemble.generation, &self.observe())))
    }

    async fn take(&mut self, step: &Step) -> Result<bool, Refused> {
        match step {
            Step::RestartMember {
                pod,
                uid,
                id,
                reason,
                ..
            } => {
                let is_meant = |p: &&super::Pod| p.name == *pod && p.uid.to_string() == *uid;
                let removed = self.pods.get(id).filter(is_meant);
                let leads = removed.map(|removed| removed.following == Some(*id));
                self.events.push(Event::Restart {
                    pod: pod.clone(),
                    id: *id,
                    leads: leads.ok_or_else(|| Refused(pod.clone()))?,
                    reason: reason.clone(),
                });
                self.pods.remove(id);
                self.elections();
            }
            Step::Reconfigure { list, version, .. } => {
                if !self.agree(list, *version) {
                    return Ok(false);
                }
                let voters = list.voters.clone();
                self.events.push(Event::Agree { voters });
                self.elections();
            }
            Step::Replace {
                id, claims, pod, ..
            } => {
                let kind = ObjectKind::PersistentVolumeClaim;
                for claim in claims {
                    self.objects.remove(kind, &claim.name);
                }
                self.disks.remove(id);
                self.lists.remove(id);
                if let Some(pod) = pod {
                    self.events.push(Event::Restart {
                        pod: pod.name.clone(),
                        id: *id,
                        leads: false,
                        reason: "its volume is given up".to_owned(),
                    });
                    self.pods.remove(id);
                }
                self.elections();
            }
            Step::DeleteClaim { claim, uid, id, .. } => {
                let kind = ObjectKind::PersistentVolumeClaim;
                let is_meant = |c: &&Value| c["metadata"]["uid"] == **uid;
                let found = self.objects.get(kind, claim).filter(is_meant);
                if found.is_none() || self.pods.contains_key(id) {
                    return Err(Refused(claim.clone()));
                }
                self.objects.remove(kind, claim);
                self.disks.remove(id);
                self.lists.remove(id);
            }
        }
        Ok(true)
    }

    fn declined(&mut self, _: &Step, _: &str) {}

    async fn prune(&mut self, object: &Unwanted) -> Result<(), Refused> {
        self.objects.remove(object.kind, &object.name);
        Ok(())
    }
}

impl<F: Faults> World<F> {
    /// Records what the write of an object changed.
    fn report(&mut self, object: &DesiredObject, before: &Value) {
        let Some(after) = self.objects.get(object.kind, &object.name) else {
            return;
        };
        let event = match object.kind {
            ObjectKind::StatefulSet if object.name == self.ensemble.name => {
                let (before, after) = (&before["spec"]["template"], &after["spec"]["template"]);
                let without_list = |template: &Value| {
                    let mut template = template.clone();
                    if template_hash(&template).is_some() {
                        let annotations = &mut template["metadata"]["annotations"];
                        for list in [labels::VOTERS, labels::LIST_VERSION] {
                            annotations[list] = Value::Null;
                        }
                    }
                    template
                };
                (without_list(before) != without_list(after))
                    .then(|| self.configured(before, after))
                    .flatten()
            }
            ObjectKind::PersistentVolumeClaim => {
                let size = storage(after).filter(|size| storage(before).as_ref() != Some(size));
                size.map(|size| Event::Grow {
                    claim: object.name.clone(),
                    size: size.0,
                })
            }
            _ => None,
        };
        self.events.extend(event);
    }

    /// The event of another pod template.
    fn configured(&self, old: &Value, new: &Value) -> Option<Event> {
        let after = Revision::of(new)?;
        let before = Revision::of(old);
        let was = before.as_ref().map(|before| self.zoo_cfg(before));
        // The list and the revision are in the event's words.
        let mut hidden = vec![
            labels::CONFIG_REVISION,
            labels::VOTERS,
            labels::LIST_VERSION,
            labels::TEMPLATE_HASH,
            INITIALIZE,
        ];
        hidden.push(&after.name);
        hidden.extend(before.as_ref().map(|before| before.name.as_str()));
        Some(Event::Configure {
            revision: after.name.clone(),
            from: before.as_ref().map(|before| before.voters.clone()),
            zoo_cfg: difference::of_texts(was.unwrap_or_default(), self.zoo_cfg(&after)),
            template: match old {
                Value::Null => Vec::new(),
                old => difference::of_objects(old, new, &hidden),
            },
            voters: after.voters,
        })
    }

    /// The `zoo.cfg` of the first voter under this revision.
    fn zoo_cfg(&self, revision: &Revision) -> &str {
        let map = self.objects.get(ObjectKind::ConfigMap, &revision.name);
        let first = revision.voters.iter().next();
        let file = map.zip(first);
        let text = file.and_then(|(map, id)| {
            let own = map["data"][format!("zoo-{id}.cfg")].as_str();
            own.or(map["data"][SETTINGS].as_str())
        });
        text.unwrap_or_default()
    }
}
