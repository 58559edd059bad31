//! The members' certificates: made before a pod needs them, and again before they end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether_api::ZooKeeperEnsemble;
use bellwether_ensemble::ValidEnsemble;
use bellwether_ensemble::certificates::replacement::{Other, Trust};
use bellwether_ensemble::certificates::{
    AuthorityName, Certificates, Party, Record, VALID, authorities_config_map, authority,
    client_authority, client_port_names, config_map, due, first, names, secret,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// None is on record, the one on record ends soon or has other names than the members have now, or their authority is
    /// replaced.
    New(Trust),
    /// The Secret may be gone.
    IfMissing(Trust),
}

/// The record of the members' certificates.
pub(crate) fn record(live: &Live, ensemble: &str) -> Option<Record> {
    let name = authorities_config_map(ensemble);
    Record::parse(live.get(&(ObjectKind::ConfigMap, name))?)
}

/// The authorities of an ensemble's members: those on record, or the first one.
pub(crate) fn authority_of(ensemble: &ZooKeeperEnsemble, live: &Live) -> AuthorityName {
    let name = ensemble.name_any();
    let trust = record(live, &name).map(|record| record.trust);
    let trust = trust.unwrap_or_else(|| first(&ensemble.uid().unwrap_or_default()));
    authority(&ensemble.namespace().unwrap_or_default(), &name, &trust)
}

impl Identities {
    pub(crate) fn new(issuer: Arc<dyn Issuer>) -> Self {
        Self {
            issuer,
            looked: Mutex::default(),
        }
    }

    /// Whether certificates have to be written now, and of which authorities. A paused ensemble gets no first ones, but new
    /// ones before the end of those that its servers trust each other by.
    pub(crate) async fn wanted(
        &self,
        gathered: &Gathered,
        valid: &ValidEnsemble,
    ) -> Option<Wanted> {
        let observation = &gathered.observation;
        if valid.paused && observation.identity.is_none() {
            return None;
        }
        // Without it nothing is concluded from it; an attempt to write tells why it cannot be had.
        let root = self.issuer.root().await.ok();
        if let Some(trust) = due(valid, observation, root.as_deref()) {
            return Some(Wanted::New(trust));
        }
        let key = (valid.namespace.clone(), valid.name.clone());
        let looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = looked.get(&key).is_none_or(|at| at.elapsed() >= PERIOD);
        let record = observation.identity.as_ref()?;
        let again = || Wanted::IfMissing(record.trust.clone());
        (is_time && somebody_is_silent(observation)).then(again)
    }

    /// Writes the certificates if they have to be written.
    pub(crate) async fn provide(
        &self,
        context: &Context,
        gathered: &Gathered,
        valid: &ValidEnsemble,
    ) -> Result<(), Error> {
        let Some(wanted) = self.wanted(gathered, valid).await else {
            return Ok(());
        };
        if let Wanted::IfMissing(_) = wanted {
            let key = (valid.namespace.clone(), valid.name.clone());
            let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
            looked.retain(|_, at| at.elapsed() < PERIOD);
            looked.insert(key, Instant::now());
        }
        let (Wanted::New(trust) | Wanted::IfMissing(trust)) = &wanted;
        let known = gathered.observation.identity.as_ref();
        let root = self.issuer.root().await.map_err(Error::Certificate)?;
        let issued = self.issue(valid, trust, &root, known).await?;
        if !context.lease.is_held() {
            return Err(Error::LeaseLost);
        }
        let secret = secret(valid, &issued);
        if !write(context, &valid.namespace, &secret, &wanted).await? {
            return Ok(());
        }
        let (namespace, secret) = (&valid.namespace, secret.name_any());
        let (until, signer) = (&issued.members.until, &trust.signer);
        let other = trust.other.as_ref().map(Other::id);
        tracing::info!(%namespace, %secret, %until, authority = %signer, also_trusted = other, "the members have new certificates");
        // The record comes last: after an interruption the certificates are made again.
        let record = config_map(valid, (trust, &root), &issued, known);
        execute::write(context, gathered, &record).await
    }

    /// Makes the certificates of these authorities.
    async fn issue(
        &self,
        valid: &ValidEnsemble,
        trust: &Trust,
        root: &str,
        known: Option<&Record>,
    ) -> Result<Certificates, Error> {
        let now = Timestamp::now();
        let of_members = authority(&valid.namespace, &valid.name, trust);
        let of_clients = client_authority(&valid.namespace, &valid.name, &valid.uid, root);
        let issue = |authority, party, names| async move {
            let issued = self.issuer.issue(authority, party, names, now, VALID);
            issued.await.map_err(Error::Certificate)
        };
        let mut members = issue(&of_members, Party::Members, names(valid)).await?;
        // Members that still present certificates of the root key before are trusted until the next renewal.
        if let Some(record) = known.filter(|record| record.is_of_another(root)) {
            members.authority.push_str(&record.authorities);
        }
        let clients = issue(&of_clients, Party::Clients, client_port_names(valid)).await?;
        Ok(Certificates { members, clients })
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
    wanted: &Wanted,
) -> Result<bool, Error> {
    let name = secret.name_any();
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let params = PostParams::default();
    let written = match secrets.create(&params, secret).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            if matches!(wanted, Wanted::IfMissing(_)) {
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
