//! What sessions need to know of the ensembles that Bellwether runs, and how they trust them.

use std::borrow::Cow;
use std::sync::Arc;

use bellwether_api::ZooKeeperEnsemble;
use bellwether_ensemble::certificates::{
    AuthorityName, MIRROR, Party, Record, authorities_config_map, authority, client_authority,
};
use bellwether_ensemble::client_tls::ClientTls;
use bellwether_ensemble::desired::discovery::client_config_map;
use bellwether_ensemble::stage::Stage as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Key;
use super::credentials::roots;
use crate::certificates::Issuer;
use crate::ensemble::members::Members;

/// An ensemble as the API server shows it. What sessions do not need is dropped when it is known.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Shown {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl Shown {
    /// The namespaces beside its own whose elections it admits.
    pub(super) fn admits(&self) -> Vec<String> {
        let names = self.spec["elections"]["namespaces"].as_array();
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    }
}

/// An ensemble that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ensemble {
    /// Its uid.
    pub(super) uid: String,
    /// Whether every member takes TLS from clients.
    pub(super) takes_tls: bool,
}

impl From<&Shown> for Ensemble {
    fn from(shown: &Shown) -> Self {
        let clients = shown.status["tls"]["clients"].as_str();
        let clients = clients.and_then(ClientTls::of_word);
        Self {
            uid: shown.uid().unwrap_or_default(),
            takes_tls: clients.is_some_and(ClientTls::takes_tls),
        }
    }
}

impl Resource for Shown {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(dynamic: &()) -> Cow<'_, str> {
        ZooKeeperEnsemble::kind(dynamic)
    }

    fn group(dynamic: &()) -> Cow<'_, str> {
        ZooKeeperEnsemble::group(dynamic)
    }

    fn version(dynamic: &()) -> Cow<'_, str> {
        ZooKeeperEnsemble::version(dynamic)
    }

    fn plural(dynamic: &()) -> Cow<'_, str> {
        ZooKeeperEnsemble::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Why an ensemble cannot be trusted yet.
#[derive(Debug, Error)]
pub(super) enum Untrusted {
    #[error("The ConfigMap {0} cannot be read: {1}. The operator tries again.")]
    Unread(String, Box<kube::Error>),
    #[error(
        "The ConfigMap {0} has no certificate of an authority under ca.crt, which the operator needs to connect over \
         TLS. The operator writes it with the next change of the ensemble."
    )]
    Without(String),
    #[error(
        "The operator has no certificate to show to the ensemble: {0:#}. The operator tries again."
    )]
    Nobody(anyhow::Error),
}

/// How long the certificate of the mirror is valid. It is in this process's memory only.
const IDENTITY_VALID: SignedDuration = SignedDuration::from_hours(5 * 365 * 24);

/// What it takes to connect to an ensemble over TLS.
#[derive(Clone)]
pub(super) struct Trust {
    /// Reads the ConfigMaps for clients.
    pub(super) kube: Client,
    /// Signs the certificate of the mirror.
    pub(super) issuer: Arc<dyn Issuer>,
    /// Asks members for their clients.
    pub(super) members: Arc<dyn Members>,
}

impl Trust {
    /// The authority of the members, as it is on record; `None` if it is not.
    pub(super) async fn authority(&self, key: &Key) -> kube::Result<Option<AuthorityName>> {
        let maps: Api<ConfigMap> = Api::namespaced(self.kube.clone(), &key.namespace);
        let map = maps.get_opt(&authorities_config_map(&key.name)).await?;
        let record = map.and_then(|map| Record::parse(&serde_json::to_value(map).ok()?));
        Ok(record.map(|record| authority(&key.namespace, &key.name, &record.trust)))
    }

    /// How to connect to the ensemble with this uid: as its other clients do, by what its ConfigMap for clients says, and with
    /// a certificate that says that this is the mirror. Members ask for it where clients can prove who they are.
    pub(super) async fn in_ensemble(
        &self,
        key: &Key,
        uid: &str,
    ) -> Result<Arc<ClientConfig>, Untrusted> {
        let Key {
            namespace,
            name: ensemble,
        } = key;
        let name = client_config_map(ensemble);
        let maps: Api<ConfigMap> = Api::namespaced(self.kube.clone(), namespace);
        let map = match maps.get(&name).await {
            Ok(map) => map,
            Err(error) => return Err(Untrusted::Unread(name, Box::new(error))),
        };
        let data = map.data.unwrap_or_default();
        let known = data.get("ca.crt").and_then(|text| roots(text).ok());
        let Some(known) = known.filter(|roots| !roots.is_empty()) else {
            return Err(Untrusted::Without(name));
        };
        let (chain, key) = self
            .identity(namespace, ensemble, uid)
            .await
            .map_err(Untrusted::Nobody)?;
        let config = ClientConfig::builder().with_root_certificates(known);
        let config = config.with_client_auth_cert(chain, key);
        Ok(Arc::new(
            config.map_err(|error| Untrusted::Nobody(error.into()))?,
        ))
    }

    /// What the mirror shows to the members of an ensemble.
    async fn identity(
        &self,
        namespace: &str,
        ensemble: &str,
        uid: &str,
    ) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let root = self.issuer.root().await?;
        let of_clients = client_authority(namespace, ensemble, uid, &root);
        let names = vec![MIRROR.to_owned()];
        let now = Timestamp::now();
        let issued = self
            .issuer
            .issue(&of_clients, Party::Client, names, now, IDENTITY_VALID);
        let issued = issued.await?;
        let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes())?;
        Ok((vec![certificate], key))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ensemble(status: &Value) -> Ensemble {
        let object = json!({ "metadata": { "name": "zk", "uid": "u" }, "status": status });
        Ensemble::from(&serde_json::from_value::<Shown>(object).unwrap())
    }

    #[test]
    fn tls_is_spoken_when_every_member_takes_it() {
        let with = |clients: &str| {
            let tls = json!({ "servers": "Required", "clients": clients });
            ensemble(&json!({ "tls": tls })).takes_tls
        };
        assert!(!with("Disabled"));
        assert!(with("Optional"));
        assert!(with("Required"));
        assert!(!with("Sometimes"));
        for status in [
            json!(null),
            json!({}),
            json!({ "tls": { "servers": "Disabled" } }),
        ] {
            let uid = "u".to_owned();
            let takes_tls = false;
            assert_eq!(ensemble(&status), Ensemble { uid, takes_tls });
        }
    }
}
