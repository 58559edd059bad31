//! Patches of volume claims. The StatefulSet controller makes the claims; the operator only adds to
//! them.

use bellwether_api::labels;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;

use super::{DesiredObject, ObjectKind, Write};
use crate::ids::Voters;
use crate::observation::ClaimObservation;
use crate::validate::ValidEnsemble;

/// The claim of this member with the list that was finished, its version where it has one, and the list of the step that begins
/// after it. With the uid the API server rejects the patch for a claim that replaced the observed one.
pub fn record(
    claim: &ClaimObservation,
    (voters, version): (&Voters, Option<u64>),
    next: Option<&Voters>,
) -> DesiredObject {
    DesiredObject {
        kind: ObjectKind::PersistentVolumeClaim,
        name: claim.name.clone(),
        body: json!({
            "metadata": {
                "uid": claim.uid,
                "annotations": {
                    labels::VOTERS: voters.to_string(),
                    labels::LIST_VERSION: version.map(|version| format!("{version:x}")),
                    labels::NEXT_VOTERS: next.map(ToString::to_string),
                },
            },
        }),
        write: Write::Merge,
    }
}

/// The claim with the ensemble as its owner, so that Kubernetes deletes it with the ensemble, or without that
/// owner. `None` where the claim needs no change.
///
/// A patch replaces all owners, so it applies only to the observed version of the claim.
pub fn owned(
    claim: &ClaimObservation,
    ensemble: &ValidEnsemble,
    owned: bool,
) -> Option<DesiredObject> {
    let is_own = |owner: &&OwnerReference| owner.uid == ensemble.uid;
    if claim.owners.iter().any(|owner| is_own(&owner)) == owned {
        return None;
    }
    let others = claim.owners.iter().filter(|owner| !is_own(owner));
    let mut owners: Vec<OwnerReference> = others.cloned().collect();
    if owned {
        owners.push(OwnerReference {
            api_version: format!("{}/{}", bellwether_api::GROUP, bellwether_api::VERSION),
            kind: "ZooKeeperEnsemble".to_owned(),
            name: ensemble.name.clone(),
            uid: ensemble.uid.clone(),
            ..Default::default()
        });
    }
    Some(DesiredObject {
        kind: ObjectKind::PersistentVolumeClaim,
        name: claim.name.clone(),
        body: json!({
            "metadata": {
                "uid": claim.uid,
                "resourceVersion": claim.resource_version,
                "ownerReferences": owners,
            },
        }),
        write: Write::Merge,
    })
}

/// The claim with a request for this size.
pub fn grow(claim: &ClaimObservation, size: &Quantity) -> DesiredObject {
    DesiredObject {
        kind: ObjectKind::PersistentVolumeClaim,
        name: claim.name.clone(),
        body: json!({
            "metadata": { "uid": claim.uid },
            "spec": { "resources": { "requests": { "storage": size } } },
        }),
        write: Write::Merge,
    }
}

/// The name of the claim template of the data volume.
pub const DATA: &str = "data";
/// The name of the claim template of the transaction log's volume.
pub const LOG: &str = "datalog";

/// The sizes in the claim templates of a StatefulSet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClaimSizes<'a> {
    /// That of the data volume.
    pub data: &'a Quantity,
    /// That of the transaction log's volume, if it has one of its own.
    pub log: Option<&'a Quantity>,
}

impl<'a> ClaimSizes<'a> {
    /// Those that the user asks for.
    pub fn wanted(ensemble: &'a ValidEnsemble) -> Self {
        Self {
            data: &ensemble.storage_size,
            log: ensemble.transaction_log.as_ref().map(|log| &log.size),
        }
    }
}

/// The name of the claim of the transaction log's volume of the pod with this ordinal.
pub fn log_claim(ensemble: &str, ordinal: u16) -> String {
    format!("{LOG}-{ensemble}-{ordinal}")
}

/// The name of the claim of the data volume of the pod with this ordinal.
pub fn data_claim(ensemble: &str, ordinal: u16) -> String {
    format!("{DATA}-{ensemble}-{ordinal}")
}
