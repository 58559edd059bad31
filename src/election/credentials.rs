//! The Secrets that a connection names.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::election::{AuthenticationType, Reason};
use bellwether_api::labels::SECRET_HOSTS;
use bellwether_election::permissions::HostPatterns;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use thiserror::Error;
use tokio::time::sleep;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tracing::warn;
use zookeeper_client::{Connector, SaslOptions};

use super::target::Target;

/// How often the Secrets of a session that is up are read again.
const SECRETS_PERIOD: Duration = Duration::from_secs(60);

/// Why a session cannot be opened until a Secret or the operator's rights change.
///
/// The author of an election need not have the right to read Secrets. So one message tells that there is no
/// such Secret, that it lacks a key, and that its owner did not permit the connection.
#[derive(Debug, Error)]
pub(super) enum CredentialsError {
    #[error("There is no Secret {namespace}/{name} with {wanted}.")]
    Absent {
        namespace: String,
        name: String,
        wanted: String,
    },
    #[error(
        "The operator may not read the Secret {namespace}/{name}: install the chart with rbac.secrets=true, or grant it the verb get."
    )]
    Forbidden { namespace: String, name: String },
    #[error("The Secret {namespace}/{name} could not be read: {source}.")]
    Api {
        namespace: String,
        name: String,
        source: Box<kube::Error>,
    },
    #[error("The Secret {namespace}/{name} is of no use: {problem}.")]
    Invalid {
        namespace: String,
        name: String,
        problem: String,
    },
}

impl CredentialsError {
    /// The reason of the condition `Synced`.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Absent { .. } => Reason::SecretNotFound,
            Self::Forbidden { .. } => Reason::SecretForbidden,
            Self::Api { .. } => Reason::SecretUnreadable,
            Self::Invalid { .. } => Reason::SecretInvalid,
        }
    }

    /// Whether the session that is open has to end: its Secrets are gone, or not meant for it any more. An API
    /// server that does not answer says nothing about them.
    fn ends_session(&self) -> bool {
        !matches!(self, Self::Api { .. })
    }
}

/// What the Secrets of a target hold. It is compared to notice that they changed, and never printed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    tls: Option<Tls>,
    login: Option<Login>,
}

#[derive(Clone, PartialEq, Eq)]
struct Tls {
    authorities: String,
    identity: Option<(String, String)>,
    /// Where they come from, for messages.
    authorities_from: (String, String),
    identity_from: String,
    namespace: String,
}

#[derive(Clone, PartialEq, Eq)]
struct Login {
    type_: AuthenticationType,
    username: String,
    password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Reads the Secrets that a target names; empty if the target names no Secret.
    pub(super) async fn read(client: &Client, target: &Target) -> Result<Self, CredentialsError> {
        let hosts = target.hosts_to_permit();
        let secrets = Secrets {
            api: Api::namespaced(client.clone(), &target.namespace),
            namespace: &target.namespace,
            hosts: hosts.as_deref(),
        };
        let mut tls = None;
        if let Some(asked) = target.connection().and_then(|c| c.tls.as_ref()) {
            let from = &asked.ca_secret_ref;
            // Certificates of authorities are no secrets, and are shown to nobody.
            let [authorities] = secrets.read(&from.name, [&from.key], false).await?;
            let mut identity = None;
            if let Some(from) = &asked.client_certificate_secret_ref {
                let keys = ["tls.crt", "tls.key"];
                let [certificate, key] = secrets.read(&from.name, keys, true).await?;
                identity = Some((certificate, key));
            }
            let shown = asked.client_certificate_secret_ref.as_ref();
            tls = Some(Tls {
                authorities,
                identity,
                authorities_from: (from.name.clone(), from.key.clone()),
                identity_from: shown.map(|s| s.name.clone()).unwrap_or_default(),
                namespace: target.namespace.clone(),
            });
        }
        let mut login = None;
        if let Some(asked) = &target.authentication {
            let name = &asked.secret_ref.name;
            let keys = ["username", "password"];
            let [username, password] = secrets.read(name, keys, true).await?;
            if username.contains(':') {
                return Err(CredentialsError::Invalid {
                    namespace: target.namespace.clone(),
                    name: name.clone(),
                    problem: "the user name holds a colon".to_owned(),
                });
            }
            login = Some(Login {
                type_: asked.type_,
                username,
                password,
            });
        }
        Ok(Self { tls, login })
    }

    /// The connector for sessions with these credentials. It does not encrypt: the relay does that where it
    /// is needed.
    pub(super) fn connector(&self) -> Connector {
        let connector = zookeeper_client::Client::connector();
        match &self.login {
            None => connector,
            Some(login) => match login.type_ {
                AuthenticationType::Digest => {
                    let plain = format!("{}:{}", login.username, login.password);
                    connector.with_auth("digest", plain.as_bytes())
                }
                AuthenticationType::SaslDigestMd5 => connector.with_sasl(SaslOptions::digest_md5(
                    login.username.clone(),
                    login.password.clone(),
                )),
            },
        }
    }

    /// Waits until the Secrets of a target hold something else, or are not there for it any more. While the API
    /// server does not answer, what was read stands.
    pub(super) async fn changed(self, client: &Client, target: &Target) {
        if self.tls.is_none() && self.login.is_none() {
            return std::future::pending().await;
        }
        loop {
            sleep(SECRETS_PERIOD).await;
            match Self::read(client, target).await {
                Ok(now) if now != self => return,
                Ok(_) => {}
                Err(error) => {
                    let ends = error.ends_session();
                    warn!(ensemble = target.name(), %error, ends, "the Secrets of an open session");
                    if ends {
                        return;
                    }
                }
            }
        }
    }

    /// What encrypts the connection, if it has to be encrypted.
    pub(super) fn tls_config(&self) -> Result<Option<Arc<ClientConfig>>, CredentialsError> {
        let Some(tls) = &self.tls else {
            return Ok(None);
        };
        let (name, key) = &tls.authorities_from;
        let roots = roots(&tls.authorities).map_err(|e| tls.invalid(name, &e))?;
        if roots.is_empty() {
            // The author names the key, so that it must not tell whether any other text is there.
            return Err(absent(&tls.namespace, name, &[key], None));
        }
        let config = ClientConfig::builder().with_root_certificates(roots);
        let config = match &tls.identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => identity(certificate, key)
                .and_then(|(chain, key)| Ok(config.with_client_auth_cert(chain, key)?))
                .map_err(|e| tls.invalid(&tls.identity_from, &e))?,
        };
        Ok(Some(Arc::new(config)))
    }
}

type Unusable = Box<dyn std::error::Error>;

/// The authorities in a text, which need not have any.
pub(super) fn roots(text: &str) -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        roots.add(certificate?)?;
    }
    Ok(roots)
}

/// The certificates and the key in two texts.
fn identity(
    certificate: &str,
    key: &str,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Unusable> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>()?;
    Ok((chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?))
}

impl Tls {
    fn invalid(&self, name: &str, problem: &impl fmt::Display) -> CredentialsError {
        CredentialsError::Invalid {
            namespace: self.namespace.clone(),
            name: name.to_owned(),
            problem: problem.to_string(),
        }
    }
}

/// The Secrets of a namespace, for one target.
struct Secrets<'a> {
    api: Api<Secret>,
    namespace: &'a str,
    /// The connect string of a ZooKeeper that Bellwether does not run, or the Service of an ensemble in another namespace.
    hosts: Option<&'a str>,
}

/// The error that tells that a Secret is not there, or not as it is needed.
fn absent(namespace: &str, name: &str, keys: &[&str], permits: Option<&str>) -> CredentialsError {
    let (word, keys) = (
        if keys.len() > 1 { "keys" } else { "key" },
        keys.join(" and "),
    );
    let permission = match permits {
        Some(connect_string) => {
            let hosts = connect_string.split('/').next().unwrap_or_default();
            format!(", and with {hosts} in its annotation {SECRET_HOSTS}")
        }
        None => String::new(),
    };
    CredentialsError::Absent {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        wanted: format!("the {word} {keys}{permission}"),
    }
}

impl Secrets<'_> {
    /// The texts under these keys of a Secret. What `is_shown` to servers outside the namespace has to be permitted
    /// for its hosts by an annotation on the Secret.
    async fn read<const N: usize>(
        &self,
        name: &str,
        keys: [&str; N],
        is_shown: bool,
    ) -> Result<[String; N], CredentialsError> {
        let permits = self.hosts.filter(|_| is_shown);
        let absent = || absent(self.namespace, name, &keys, permits);
        let secret = match self.api.get(name).await {
            Ok(secret) => secret,
            Err(error) => return Err(self.failed(name, error, absent)),
        };
        let annotations = secret.metadata.annotations.as_ref();
        let named = annotations.and_then(|all| all.get(SECRET_HOSTS));
        let named = HostPatterns::listed(named.map(String::as_str).unwrap_or_default());
        if permits.is_some_and(|hosts| !named.allow(hosts)) {
            return Err(absent());
        }
        let data = secret.data.unwrap_or_default();
        let mut texts = keys.map(|_| String::new());
        for (text, key) in texts.iter_mut().zip(keys) {
            let value = data
                .get(key)
                .map(|value| String::from_utf8(value.0.clone()));
            match value {
                Some(Ok(value)) if !value.is_empty() => *text = value,
                _ => return Err(absent()),
            }
        }
        Ok(texts)
    }

    fn failed(
        &self,
        name: &str,
        error: kube::Error,
        absent: impl Fn() -> CredentialsError,
    ) -> CredentialsError {
        let (namespace, name) = (self.namespace.to_owned(), name.to_owned());
        match &error {
            kube::Error::Api(status) if status.code == 404 => absent(),
            kube::Error::Api(status) if status.code == 403 => {
                CredentialsError::Forbidden { namespace, name }
            }
            _ => CredentialsError::Api {
                namespace,
                name,
                source: Box::new(error),
            },
        }
    }
}

#[cfg(test)]
mod tests;
