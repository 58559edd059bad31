//! Whether a volume claim may grow.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;

use super::Context;

/// Whether the volumes of each StorageClass that these claims name may grow. A class that cannot be
/// read is absent: then the API server decides about the attempt.
pub(crate) async fn expandable(
    context: &Context,
    claims: &[PersistentVolumeClaim],
) -> BTreeMap<String, bool> {
    let api: Api<StorageClass> = Api::all(context.client.clone());
    let mut known = BTreeMap::new();
    for name in claims.iter().filter_map(|claim| class_of(claim)) {
        if known.contains_key(name) {
            continue;
        }
        match api.get(name).await {
            Ok(class) => {
                let grows = class.allow_volume_expansion == Some(true);
                known.insert(name.to_owned(), grows);
            }
            Err(error) => tracing::debug!(class = name, %error, "cannot read the StorageClass"),
        }
    }
    known
}

/// The StorageClass of a claim.
pub(crate) fn class_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}
