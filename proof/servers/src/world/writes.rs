//! What the executor does to the world.

use std::fs;

use anyhow::Result;
use bellwether_ensemble::desired::{DesiredObject, ObjectKind};
use bellwether_ensemble::execute;
use bellwether_ensemble::plan::facts::Facts;
use bellwether_ensemble::plan::{Step, Unwanted};
use serde_json::Value;

use super::World;
use crate::kubelet::Pod;

impl execute::World for World {
    type Error = anyhow::Error;

    fn may_act(&self) -> Result<()> {
        Ok(())
    }

    fn live(&self, kind: ObjectKind, name: &str) -> Option<&Value> {
        self.objects.get(kind, name)
    }

    async fn write(&mut self, object: &DesiredObject) -> Result<Option<String>> {
        let version = self.objects.write(object)?;
        if object.kind == ObjectKind::ConfigMap {
            self.node.write_files(object)?;
        }
        Ok(Some(version))
    }

    async fn facts(&mut self) -> Result<Option<Facts>> {
        self.ask_servers().await;
        let generation = self.ensemble.metadata.generation;
        Ok(Some(Facts::of(generation, &self.observe())))
    }

    async fn take(&mut self, step: &Step) -> Result<bool> {
        let (uid, resource_version, id) = match step {
            Step::RestartMember {
                uid,
                resource_version,
                id,
                ..
            } => (uid, resource_version, id),
            Step::Reconfigure {
                id, list, version, ..
            } => {
                self.requests += 1;
                if let Err(error) = self.reconfigure(*id, &list.voters, *version).await {
                    self.tell(&format!("{{{list}}} was asked for: {error:#}"));
                }
                return Ok(true);
            }
            Step::Replace { id, .. } => {
                self.lose_disk(*id).await?;
                return Ok(true);
            }
            Step::DeleteClaim { id, .. } => {
                self.lose_claim(id.0 - 1)?;
                return Ok(true);
            }
        };
        let same = |pod: &&mut Pod| {
            pod.uid.to_string() == *uid && pod.resource_version.to_string() == *resource_version
        };
        let Some(pod) = self.pods.get_mut(&(id.0 - 1)).filter(same) else {
            return Ok(false);
        };
        pod.delete();
        self.restarts += 1;
        Ok(true)
    }

    fn declined(&mut self, _: &Step, why: &str) {
        self.tell(&format!("the step is planned anew: {why}"));
    }

    async fn prune(&mut self, object: &Unwanted) -> Result<()> {
        self.objects.remove(object.kind, &object.name);
        if object.kind == ObjectKind::ConfigMap {
            fs::remove_dir_all(self.node.revision(&object.name))?;
        }
        Ok(())
    }
}
