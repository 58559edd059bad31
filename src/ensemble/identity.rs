//! The members' certificate: made before a pod needs it, and again before it ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether_api::ZooKeeperEnsemble;
use bellwether_ensemble::ValidEnsemble;
use bellwether_ensemble::certificates::{
    AuthorityName, Record, VALID, authorities_config_map, authority, config_map, is_due, names,
    secret,
};
use bellwether_ensemble::desired::ObjectKind;
use bellwether_ensemble::observation::Observation;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use tokio::time::Instant;
use tracing::{Span, instrument};

use super::Context;
use super::error::Error;
use super::execute;
use super::gather::{Gathered, Live};
use super::stores::Key;
use crate::certificates::Issuer;
use crate::traces::SPANS;

/// For how long a member is silent before the operator looks whether the Secret exists: a member without a certificate
/// does not answer.
const SILENT: SignedDuration = SignedDuration::from_secs(30);
/// How often it looks, while a member is silent.
const PERIOD: Duration = Duration::from_secs(60);

/// The certificates of all ensembles' members.
pub(crate) struct Identities {
    issuer: Arc<dyn Issuer>,
    /// When the operator last looked whether the Secret of an ensemble exists.
    looked: Mutex<HashMap<Key, Instant>>,
}

/// Why a certificate is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// No certificate is on record, or the one on record ends soon or has other names than the members have now.
    New,
    /// The Secret may be gone.
    IfMissing,
}

/// The record of the members' certificate.
pub(crate) fn record(live: &Live, ensemble: &str) -> Option<Record> {
    let name = authorities_config_map(ensemble);
    Record::parse(live.get(&(ObjectKind::ConfigMap, name))?)
}

/// The authority of an ensemble.
pub(crate) fn authority_of(ensemble: &ZooKeeperEnsemble, live: &Live) -> AuthorityName {
    let name = ensemble.name_any();
    let namespace = ensemble.namespace().unwrap_or_default();
    let uid = ensemble.uid().unwrap_or_default();
    authority(&namespace, &name, &uid, record(live, &name).as_ref())
}

impl Identities {
    pub(crate) fn new(issuer: Arc<dyn Issuer>) -> Self {
        Self {
            issuer,
            looked: Mutex::default(),
        }
    }

    /// Whether the certificate has to be written now. A paused ensemble gets no first one, but a new one before the end
    /// of the one that its servers trust each other by.
    pub(crate) fn wanted(&self, gathered: &Gathered, valid: &ValidEnsemble) -> Option<Wanted> {
        let observation = &gathered.observation;
        if valid.paused && observation.identity.is_none() {
            return None;
        }
        if is_due(valid, observation.identity.as_ref(), observation.now) {
            return Some(Wanted::New);
        }
        let key = (valid.namespace.clone(), valid.name.clone());
        let looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = looked.get(&key).is_none_or(|at| at.elapsed() >= PERIOD);
        (is_time && somebody_is_silent(observation)).then_some(Wanted::IfMissing)
    }

    /// Writes the certificate if it has to be written.
    pub(crate) async fn provide(
        &self,
        context: &Context,
        gathered: &Gathered,
        valid: &ValidEnsemble,
    ) -> Result<(), Error> {
        let Some(wanted) = self.wanted(gathered, valid) else {
            return Ok(());
        };
        if wanted == Wanted::IfMissing {
            let key = (valid.namespace.clone(), valid.name.clone());
            let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
            looked.retain(|_, at| at.elapsed() < PERIOD);
            looked.insert(key, Instant::now());
        }
        let authority = &gathered.authority;
        let issued = self
            .issuer
            .issue(authority, names(valid), Timestamp::now(), VALID)
            .await
            .map_err(Error::Certificate)?;
        if !context.lease.is_held() {
            return Err(Error::LeaseLost);
        }
        let secret = secret(valid, &issued);
        if !write(context, &valid.namespace, &secret, wanted).await? {
            return Ok(());
        }
        let (namespace, secret) = (&valid.namespace, secret.name_any());
        tracing::info!(%namespace, %secret, until = %issued.until, "the members have a new certificate");
        // The record comes last: after an interruption the certificate is made again.
        let record = config_map(valid, &authority.id, &issued);
        execute::write(context, gathered, &record).await
    }
}

/// Writes the Secret. Returns false if it exists and is not to be replaced.
#[instrument(target = SPANS, skip_all, fields(
    otel.kind = "client", k8s.object.kind = "Secret", k8s.object.name = secret.name_any(),
    error.type, otel.status_code
))]
async fn write(
    context: &Context,
    namespace: &str,
    secret: &Secret,
    wanted: Wanted,
) -> Result<bool, Error> {
    let name = secret.name_any();
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let params = PostParams::default();
    let written = match secrets.create(&params, secret).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            if wanted == Wanted::IfMissing {
                return Ok(false);
            }
            // The operator cannot read Secrets, so it cannot compare: it replaces the whole.
            secrets.replace(&name, &params, secret).await
        }
        created => created,
    };
    written
        .map_err(Error::write(format!("Secret {name}")))
        .inspect_err(|error| error.show(&Span::current()))?;
    context.metrics.written("Secret");
    Ok(true)
}

/// Whether a member has not answered for so long that its certificate may be missing.
fn somebody_is_silent(observation: &Observation) -> bool {
    let pods = observation.pods.iter().chain(&observation.observers.pods);
    let now = observation.now;
    pods.filter_map(|pod| pod.silent_since)
        .any(|since| now.duration_since(since) >= SILENT)
}
