//! `bellwether replace`: have a member whose node or disk is gone for good replaced by a fresh one.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use bellwether_api::{ZooKeeperEnsemble, labels};
use bellwether_ensemble::desired::claims::data_claim;
use clap::Args;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use serde_json::json;

use super::act::Decision;
use super::cluster::{Target, unanswered};

/// Which member.
#[derive(Debug, Args)]
pub(crate) struct Replace {
    /// The ensemble.
    name: String,
    /// The member: the name of its pod.
    pod: String,
    /// Say what would happen and let the API server check it, but change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    target: Target,
}

/// Asks for the replacement, and prints what will happen.
///
/// # Errors
/// When the cluster cannot be asked or refuses, or has no such ensemble, member or claim.
pub(crate) async fn replace(arguments: &Replace) -> anyhow::Result<ExitCode> {
    let cluster = arguments.target.open().await?;
    let ensemble = cluster.ensemble(&arguments.name).await?;
    let name = claim_of(&ensemble, &arguments.pod)?;
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let claim = claims.get_opt(&name).await.map_err(unanswered)?;
    let uid = claim
        .and_then(|claim| claim.metadata.uid)
        .with_context(|| {
            format!(
                "there is no claim {name}: {} gets an empty volume without being asked",
                arguments.pod
            )
        })?;
    let request = format!("{}:{uid}", arguments.pod);
    let patch = json!({ "metadata": { "annotations": { labels::REPLACE_MEMBER: request } } });
    let decision = Decision {
        patch: Some(patch),
        says: says(arguments, &name),
    };
    decision
        .carry_out(&cluster, &arguments.name, arguments.dry_run)
        .await
}

/// The name of the claim of a member's data volume.
fn claim_of(ensemble: &ZooKeeperEnsemble, pod: &str) -> anyhow::Result<String> {
    let name = ensemble.metadata.name.as_deref().unwrap_or_default();
    let ordinal = pod.strip_prefix(name).and_then(|o| o.strip_prefix('-'));
    match ordinal.and_then(|o| o.parse().ok()) {
        Some(ordinal) => Ok(data_claim(name, ordinal)),
        None => bail!("{pod} is no member of {name}: name its pod, such as {name}-1"),
    }
}

fn says(arguments: &Replace, claim: &str) -> String {
    let Replace { name, pod, .. } = arguments;
    format!(
        "{name}: the operator deletes the claim {claim} and the pod {pod}, with what is on the volume, once {pod} has not run for a \
         minute and the others serve without it. A fresh {pod} copies everything from them. `bellwether status {name} --watch` shows it."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_named_by_its_pod() {
        let ensemble: ZooKeeperEnsemble = serde_json::from_value(json!({
            "metadata": { "name": "main" }, "spec": { "replicas": 3 },
        }))
        .unwrap();
        assert_eq!(claim_of(&ensemble, "main-1").unwrap(), "data-main-1");
        for pod in ["main", "main-", "main-x", "other-1", "main-observer-0"] {
            let why = claim_of(&ensemble, pod).unwrap_err().to_string();
            assert!(why.contains("such as main-1"), "{why}");
        }
    }
}
