//! What the volume claims of an ensemble show.

use bellwether_api::{ZooKeeperEnsemble, labels};
use bellwether_ensemble::desired::claims::{DATA, LOG};
use bellwether_ensemble::desired::observers;
use bellwether_ensemble::execute::objects::version;
use bellwether_ensemble::observation::ClaimObservation;
use bellwether_ensemble::quantity::bytes;
use bellwether_ensemble::validate::{log_volume, storage_size};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimStatus};
use kube::ResourceExt;

use crate::ensemble::{Context, volumes};

/// Every claim of an ensemble.
pub(super) struct Claims {
    pub(super) voters: Vec<ClaimObservation>,
    pub(super) voters_logs: Vec<ClaimObservation>,
    pub(super) observers: Vec<ClaimObservation>,
    pub(super) observers_logs: Vec<ClaimObservation>,
}

/// The ensemble's claims. Their StorageClasses are read only when one has another size than the spec.
pub(super) async fn observe(
    context: &Context,
    ensemble: &ZooKeeperEnsemble,
    claims: &[PersistentVolumeClaim],
) -> Claims {
    let name = ensemble.name_any();
    let observing = observers::set_name(&name);
    let storage = ensemble.spec.storage.clone().unwrap_or_default();
    let data = bytes(&storage_size(Some(&storage)));
    let log = log_volume(&storage).and_then(|log| bytes(&log.size));
    let of = |template: &str, set: &str| -> Vec<ClaimObservation> {
        let observe = |claim| observe_claim(claim, template, set);
        claims.iter().filter_map(observe).collect()
    };
    let mut all = Claims {
        voters: of(DATA, &name),
        voters_logs: of(LOG, &name),
        observers: of(DATA, &observing),
        observers_logs: of(LOG, &observing),
    };
    let other = |claims: &[ClaimObservation], wanted: Option<u64>| {
        wanted.is_some() && claims.iter().any(|c| c.requested != wanted)
    };
    let differs = other(&all.voters, data)
        || other(&all.observers, data)
        || other(&all.voters_logs, log)
        || other(&all.observers_logs, log);
    if differs {
        let expandable = volumes::expandable(context, claims).await;
        let data = all.voters.iter_mut().chain(&mut all.observers);
        let logs = all.voters_logs.iter_mut().chain(&mut all.observers_logs);
        for claim in data.chain(logs) {
            let class = claim.class.as_ref();
            claim.expandable = class.and_then(|c| expandable.get(c).copied());
        }
    }
    all
}

/// A claim of this claim template and StatefulSet; `None` if the StatefulSet controller does not give its
/// claims such a name.
fn observe_claim(
    claim: &PersistentVolumeClaim,
    template: &str,
    set: &str,
) -> Option<ClaimObservation> {
    let name = claim.name_any();
    let ordinal = name
        .strip_prefix(&format!("{template}-{set}-"))?
        .parse()
        .ok()?;
    let spec = claim.spec.as_ref();
    let requests = spec.and_then(|s| s.resources.as_ref()?.requests.as_ref());
    let requested = requests.and_then(|r| r.get("storage"));
    let status = claim.status.as_ref();
    let list = |key| claim.annotations().get(key).and_then(|v| v.parse().ok());
    Some(ClaimObservation {
        ordinal,
        uid: claim.uid().unwrap_or_default(),
        resource_version: claim.resource_version().unwrap_or_default(),
        owners: claim.owner_references().to_vec(),
        voters: list(labels::VOTERS),
        version: claim
            .annotations()
            .get(labels::LIST_VERSION)
            .and_then(|text| version(text)),
        next: list(labels::NEXT_VOTERS),
        terminating: claim.metadata.deletion_timestamp.is_some(),
        requested: requested.and_then(bytes),
        capacity: status
            .and_then(|s| s.capacity.as_ref()?.get("storage"))
            .and_then(bytes),
        resize: status.and_then(resize),
        class: volumes::class_of(claim).map(str::to_owned),
        expandable: None,
        name,
    })
}

/// What the conditions of a claim report of an expansion that is under way.
fn resize(status: &PersistentVolumeClaimStatus) -> Option<String> {
    let conditions = status.conditions.iter().flatten();
    conditions
        .filter(|c| c.status == "True")
        .filter(|c| c.type_.contains("Resiz"))
        .map(|c| match c.message.as_deref() {
            Some(message) if !message.is_empty() => format!("{}: {message}", c.type_),
            _ => c.type_.clone(),
        })
        .next()
}
