//! What is read back from the objects: what the operator observes of them, and what the StatefulSet
//! controller does with them.

use bellwether_api::labels;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

use super::Objects;
use crate::desired::certificate::{self, certificate_name};
use crate::desired::claims::{DATA, LOG};
use crate::desired::network::policy_name;
use crate::desired::stateful_set::{
    INITIALIZE, client_port_secret, restart_request, template_hash,
};
use crate::desired::written::{edited, left_over};
use crate::desired::{
    DesiredObject, ObjectKind, Write, bootstrap_config_map, observers, parse_bootstrap, short_hash,
};
use crate::encryption::Encryption;
use crate::ids::ServerId;
use crate::observation::{
    BootstrapPermission, ClaimObservation, Observation, ObserversObservation, Revision,
    StatefulSetObservation,
};
use crate::quantity::bytes;
use crate::stage::Stage;

/// A pod template.
#[derive(Clone, Debug)]
pub struct Template {
    /// How many pods the StatefulSet asks for.
    pub replicas: u16,
    /// The configuration revision in its annotations.
    pub revision: Revision,
    /// The name that the StatefulSet controller gives to it.
    pub hash: String,
    /// See [`labels::TEMPLATE_HASH`].
    pub template_hash: Option<String>,
    /// The image of ZooKeeper's container.
    pub image: String,
}

impl Objects {
    /// All that the operator observes of this ensemble but the pods and the time. The StatefulSet
    /// controller is never behind, and a volume has the size that its claim asks for.
    pub fn observe(&self, ensemble: &str) -> Observation {
        let observers = observers::set_name(ensemble);
        let prefix = format!("{ensemble}-config-");
        let maps = self.of(ObjectKind::ConfigMap).map(|(name, _)| name);
        let revisions = maps.filter(|name| name.starts_with(&prefix));
        let policy = self.get(ObjectKind::NetworkPolicy, &policy_name(ensemble));
        let certificate = self.get(ObjectKind::Certificate, &certificate_name(ensemble));
        Observation {
            stateful_set: self.observe_set(ensemble),
            claims: self.observe_claims(DATA, ensemble),
            log_claims: self.observe_claims(LOG, ensemble),
            bootstrap: self.bootstrap(ensemble),
            revisions: revisions.map(str::to_owned).collect(),
            network_policy: policy
                .and_then(|policy| policy["metadata"]["uid"].as_str().map(str::to_owned)),
            certificate: certificate.map(certificate::observe),
            observers: ObserversObservation {
                stateful_set: self.observe_set(&observers),
                claims: self.observe_claims(DATA, &observers),
                log_claims: self.observe_claims(LOG, &observers),
                ..Default::default()
            },
            ..Default::default()
        }
    }

    /// What the bootstrap ConfigMap of an ensemble says, if it exists.
    pub fn bootstrap(&self, ensemble: &str) -> Option<BootstrapPermission> {
        let map = self.get(ObjectKind::ConfigMap, &bootstrap_config_map(ensemble))?;
        Some(parse_bootstrap(|key| map["data"][key].as_str()))
    }

    /// What the StatefulSet controller makes pods from; `None` without a StatefulSet of this name.
    pub fn template(&self, set: &str) -> Option<Template> {
        let spec = &self.get(ObjectKind::StatefulSet, set)?["spec"];
        let template = &spec["template"];
        let image = template["spec"]["containers"][0]["image"].as_str();
        Some(Template {
            replicas: replicas(spec),
            revision: Revision::of(template)?,
            hash: short_hash(template),
            template_hash: template_hash(template),
            image: image.unwrap_or_default().to_owned(),
        })
    }

    /// The StatefulSet controller makes the claims of a pod that do not exist.
    pub fn claim(&mut self, set: &str, ordinal: u16) {
        let set_object = self.get(ObjectKind::StatefulSet, set);
        let templates = set_object.and_then(|set| set["spec"]["volumeClaimTemplates"].as_array());
        for template in templates.cloned().unwrap_or_default() {
            let volume = template["metadata"]["name"].as_str().unwrap_or_default();
            let claim = DesiredObject {
                kind: ObjectKind::PersistentVolumeClaim,
                name: format!("{volume}-{set}-{ordinal}"),
                body: template,
                write: Write::Apply,
            };
            if self.get(claim.kind, &claim.name).is_none() {
                let _ = self.write(&claim);
            }
        }
    }

    fn observe_set(&self, name: &str) -> Option<StatefulSetObservation> {
        let set = self.get(ObjectKind::StatefulSet, name)?;
        let template = &set["spec"]["template"];
        let note = |key: &str| {
            let note = set["metadata"]["annotations"][key].as_str();
            note.map(str::to_owned)
        };
        let claims = set["spec"]["volumeClaimTemplates"].as_array();
        let size = |name: &str| {
            let mut claims = claims.into_iter().flatten();
            storage(claims.find(|claim| claim["metadata"]["name"] == name)?)
        };
        Some(StatefulSetObservation {
            replicas: replicas(&set["spec"]),
            template: Revision::of(template),
            update_revision: Some(short_hash(template)),
            template_hash: template_hash(template),
            inputs_hash: note(labels::INPUTS_HASH),
            rendered_by: note(labels::RENDERED_BY),
            client_port_secret: client_port_secret(template),
            edited: edited(set),
            left_over: left_over(set),
            claim_size: size(DATA),
            log_claim_size: size(LOG),
            restart: restart_request(template),
            terminating: false,
        })
    }

    fn observe_claims(&self, volume: &str, set: &str) -> Vec<ClaimObservation> {
        let prefix = format!("{volume}-{set}-");
        let observe = |(name, claim): (&str, &Value)| {
            let metadata = &claim["metadata"];
            let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
            let list = |key: &str| metadata["annotations"][key].as_str()?.parse().ok();
            let owners = serde_json::from_value(metadata["ownerReferences"].clone());
            let size = storage(claim).as_ref().and_then(bytes);
            Some(ClaimObservation {
                name: name.to_owned(),
                ordinal: name.strip_prefix(&prefix)?.parse().ok()?,
                uid: text("uid"),
                resource_version: text("resourceVersion"),
                owners: owners.unwrap_or_default(),
                voters: list(labels::VOTERS),
                version: metadata["annotations"][labels::LIST_VERSION]
                    .as_str()
                    .and_then(version),
                next: list(labels::NEXT_VOTERS),
                requested: size,
                capacity: size,
                ..Default::default()
            })
        };
        let claims = self.of(ObjectKind::PersistentVolumeClaim);
        let mut claims: Vec<_> = claims.filter_map(observe).collect();
        claims.sort_by_key(|claim| claim.ordinal);
        claims
    }
}

impl Revision {
    /// The configuration revision in the annotations of a pod template.
    pub fn of(template: &Value) -> Option<Self> {
        let notes = &template["metadata"]["annotations"];
        Self::of_annotations(|key| notes[key].as_str())
    }

    /// The configuration revision in annotations; `note` is the text of one. `None` if one is missing or malformed.
    pub fn of_annotations<'a>(note: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        Some(Self {
            name: note(labels::CONFIG_REVISION)?.to_owned(),
            voters: note(labels::VOTERS)?.parse().ok()?,
            version: match note(labels::LIST_VERSION) {
                Some(text) => Some(version(text)?),
                None => None,
            },
            initialize: match note(INITIALIZE) {
                Some(id) => Some(ServerId(id.parse().ok()?)),
                None => None,
            },
            tls: Encryption {
                servers: state(note(labels::SERVER_TLS))?,
                clients: state(note(labels::CLIENT_TLS))?,
            },
        })
    }
}

/// The version of a server list in an annotation.
pub fn version(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// The state that an annotation names: the first one without the annotation, `None` if there is no such state.
fn state<S: Default + Stage>(annotation: Option<&str>) -> Option<S> {
    annotation.map_or(Some(S::default()), S::of_word)
}

fn replicas(spec: &Value) -> u16 {
    let replicas = spec["replicas"].as_u64();
    replicas.and_then(|r| u16::try_from(r).ok()).unwrap_or(0)
}

/// The size that a volume claim asks for.
pub fn storage(claim: &Value) -> Option<Quantity> {
    let size = claim["spec"]["resources"]["requests"]["storage"].as_str();
    size.map(|size| Quantity(size.to_owned()))
}
