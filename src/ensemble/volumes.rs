//! Asking about volumes: a member's own report, and whether a claim may grow.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use bellwether_ensemble::desired::stateful_set::PROBE_PORT;
use bellwether_ensemble::volume_report::{VolumeReport, parse};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Context;

/// How long a member may take to answer.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The longest answer that is read; a report has about 200 bytes.
const MAX_ANSWER: u64 = 16 * 1024;

/// The volume report of the member at `address`; `None` when it does not answer, or does not know
/// the question because an earlier operator version made the pod.
pub(crate) async fn ask(address: IpAddr) -> Option<VolumeReport> {
    let answer = async {
        let mut stream = TcpStream::connect((address, PROBE_PORT)).await?;
        stream.write_all(b"GET /volumes HTTP/1.0\r\n\r\n").await?;
        let mut bytes = Vec::new();
        stream.take(MAX_ANSWER).read_to_end(&mut bytes).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = tokio::time::timeout(TIMEOUT, answer).await.ok()?.ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    if head.split(' ').nth(1) != Some("200") {
        return None;
    }
    match parse(body) {
        Ok(report) => Some(report),
        Err(error) => {
            tracing::debug!(%address, %error, "the member's report on its volumes makes no sense");
            None
        }
    }
}

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
