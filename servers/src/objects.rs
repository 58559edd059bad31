//! The objects that the operator writes, as the API server keeps them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, bail};
use bellwether_api::labels;
use bellwether_ensemble::desired::claims::data_claim;
use bellwether_ensemble::desired::stateful_set::INITIALIZE;
use bellwether_ensemble::desired::{DesiredObject, ObjectKind, Write, parse_bootstrap, short_hash};
use bellwether_ensemble::execute::objects::Objects as Written;
use bellwether_ensemble::observation::{
    BootstrapPermission, ClaimObservation, Revision, StatefulSetObservation,
};
use bellwether_ensemble::{ServerId, Voters};
use serde_json::Value;

use crate::kubelet::Node;

/// The StatefulSet.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    /// How many pods it wants.
    pub(crate) replicas: u16,
    /// Its pod template.
    pub(crate) template: Value,
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
struct Claim {
    uid: u32,
    voters: Option<Voters>,
    next: Option<Voters>,
}

/// Everything that the operator reads back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) set: Option<Set>,
    pub(crate) bootstrap: Option<BootstrapPermission>,
    pub(crate) revisions: BTreeSet<String>,
    claims: BTreeMap<u16, Claim>,
    written: Written,
    uids: u32,
}

impl Set {
    /// The configuration revision that a pod gets now.
    pub(crate) fn revision(&self) -> Result<Revision> {
        let notes = &self.template["metadata"]["annotations"];
        let text = |key: &str| notes[key].as_str();
        let name = text(labels::CONFIG_REVISION).context("a template without a revision")?;
        let voters = text(labels::VOTERS).context("a template without voters")?;
        Ok(Revision {
            name: name.to_owned(),
            voters: voters.parse()?,
            initialize: text(INITIALIZE).map(str::parse).transpose()?.map(ServerId),
        })
    }

    /// The name that the StatefulSet controller gives to the template.
    pub(crate) fn template_hash(&self) -> String {
        short_hash(&self.template)
    }
}

impl Objects {
    /// The StatefulSet as the operator sees it; its controller is never behind.
    pub(crate) fn observe_set(&self) -> Option<StatefulSetObservation> {
        self.set.as_ref().map(|set| StatefulSetObservation {
            replicas: set.replicas,
            template: set.revision().ok(),
            update_revision: Some(set.template_hash()),
            inputs_hash: set.annotations.get(labels::INPUTS_HASH).cloned(),
            rendered_by: set.annotations.get(labels::RENDERED_BY).cloned(),
            edited: None,
            claim_size: None,
            log_claim_size: None,
            restart: None,
            terminating: false,
        })
    }

    /// The volume claims as the operator sees them.
    pub(crate) fn observe_claims(&self, ensemble: &str) -> Vec<ClaimObservation> {
        let observe = |(ordinal, claim): (&u16, &Claim)| ClaimObservation {
            name: data_claim(ensemble, *ordinal),
            ordinal: *ordinal,
            uid: claim.uid.to_string(),
            voters: claim.voters.clone(),
            next: claim.next.clone(),
            ..Default::default()
        };
        self.claims.iter().map(observe).collect()
    }

    /// Makes the claim of a pod if there is none.
    pub(crate) fn claim(&mut self, ordinal: u16) {
        self.uids += 1;
        let uid = self.uids;
        self.claims.entry(ordinal).or_insert(Claim {
            uid,
            voters: None,
            next: None,
        });
    }

    /// Removes a claim and its volume.
    pub(crate) fn lose_claim(&mut self, node: &Node, ensemble: &str, ordinal: u16) -> Result<()> {
        self.claims.remove(&ordinal);
        let kind = ObjectKind::PersistentVolumeClaim;
        self.written.remove(kind, &data_claim(ensemble, ordinal));
        match fs::remove_dir_all(node.volume(ordinal)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The object of this kind and name.
    pub(crate) fn live(&self, kind: ObjectKind, name: &str) -> Option<&Value> {
        self.written.get(kind, name)
    }

    /// Writes an object and returns its resource version.
    pub(crate) fn write(&mut self, object: &DesiredObject, node: &Node) -> Result<String> {
        match (object.kind, object.write) {
            (ObjectKind::ConfigMap, _) => self.write_files(object, node)?,
            (ObjectKind::PersistentVolumeClaim, _) => self.write_claim(object)?,
            (ObjectKind::StatefulSet, write) => self.write_set(object, write)?,
            // Nothing here asks Services or budgets.
            (ObjectKind::Service | ObjectKind::PodDisruptionBudget, _) => {}
        }
        Ok(self.written.write(object))
    }

    /// Removes a configuration revision.
    pub(crate) fn prune(&mut self, node: &Node, revision: &str) -> Result<()> {
        self.revisions.remove(revision);
        self.written.remove(ObjectKind::ConfigMap, revision);
        Ok(fs::remove_dir_all(node.revision(revision))?)
    }

    fn write_files(&mut self, object: &DesiredObject, node: &Node) -> Result<()> {
        let data = &object.body["data"];
        let directory = if object.name.ends_with("-bootstrap") {
            self.bootstrap = Some(parse_bootstrap(|key| data[key].as_str()));
            node.bootstrap()
        } else if self.revisions.insert(object.name.clone()) {
            node.revision(&object.name)
        } else {
            return Ok(());
        };
        fs::create_dir_all(&directory)?;
        for (name, text) in data.as_object().into_iter().flatten() {
            fs::write(directory.join(name), text.as_str().unwrap_or_default())?;
        }
        Ok(())
    }

    fn write_claim(&mut self, object: &DesiredObject) -> Result<()> {
        let metadata = &object.body["metadata"];
        let ordinal = object.name.rsplit('-').next().and_then(|o| o.parse().ok());
        let claim = ordinal.and_then(|ordinal: u16| self.claims.get_mut(&ordinal));
        let claim = claim.with_context(|| format!("a patch of {}, which is gone", object.name))?;
        // The API server refuses the patch of a claim that took the place of another.
        if metadata["uid"].as_str() == Some(&claim.uid.to_string()) {
            let list = |key: &str| metadata["annotations"][key].as_str().map(str::parse);
            claim.voters = list(labels::VOTERS).transpose()?;
            claim.next = list(labels::NEXT_VOTERS).transpose()?;
        }
        Ok(())
    }

    fn write_set(&mut self, object: &DesiredObject, write: Write) -> Result<()> {
        let body = &object.body;
        let spec = &body["spec"];
        let replicas = spec["replicas"]
            .as_u64()
            .and_then(|r| u16::try_from(r).ok());
        let replicas = replicas.context("a StatefulSet without replicas")?;
        match (write, &mut self.set) {
            (Write::Merge, Some(set)) => {
                set.replicas = replicas;
                Ok(())
            }
            (Write::Merge, None) => bail!("a patch of a StatefulSet that does not exist"),
            (Write::Apply, set) => {
                let new = Set {
                    replicas,
                    template: spec["template"].clone(),
                    annotations: serde_json::from_value(body["metadata"]["annotations"].clone())?,
                };
                *set = Some(new);
                Ok(())
            }
        }
    }
}
