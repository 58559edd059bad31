//! The Secrets that a connection names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bellwether_api::election::{AuthenticationType, Reason};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use thiserror::Error;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use zookeeper_client::{Connector, SaslOptions};

use super::target::Target;

/// Why a session cannot be opened until a Secret or the operator's rights change.
#[derive(Debug, Error)]
pub(super) enum CredentialsError {
    #[error("There is no Secret {namespace}/{name}.")]
    NotFound { namespace: String, name: String },
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
            Self::NotFound { .. } => Reason::SecretNotFound,
            Self::Forbidden { .. } => Reason::SecretForbidden,
            Self::Api { .. } => Reason::SecretUnreadable,
            Self::Invalid { .. } => Reason::SecretInvalid,
        }
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
    authorities_from: String,
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
        let secrets = Secrets {
            api: Api::namespaced(client.clone(), &target.namespace),
            namespace: &target.namespace,
        };
        let mut tls = None;
        if let Some(asked) = target.connection().and_then(|c| c.tls.as_ref()) {
            let from = &asked.ca_secret_ref;
            let authorities = secrets.read(&from.name).await?.text(&from.key)?;
            let mut identity = None;
            if let Some(from) = &asked.client_certificate_secret_ref {
                let secret = secrets.read(&from.name).await?;
                identity = Some((secret.text("tls.crt")?, secret.text("tls.key")?));
            }
            let shown = asked.client_certificate_secret_ref.as_ref();
            tls = Some(Tls {
                authorities,
                identity,
                authorities_from: from.name.clone(),
                identity_from: shown.map(|s| s.name.clone()).unwrap_or_default(),
                namespace: target.namespace.clone(),
            });
        }
        let mut login = None;
        if let Some(asked) = &target.authentication {
            let secret = secrets.read(&asked.secret_ref.name).await?;
            let username = secret.text("username")?;
            if username.contains(':') {
                return Err(secret.invalid("the user name holds a colon"));
            }
            login = Some(Login {
                type_: asked.type_,
                username,
                password: secret.text("password")?,
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

    /// Whether there are any credentials.
    pub(super) fn any(&self) -> bool {
        self.tls.is_some() || self.login.is_some()
    }

    /// What encrypts the connection, if it has to be encrypted.
    pub(super) fn tls_config(&self) -> Result<Option<Arc<ClientConfig>>, CredentialsError> {
        let Some(tls) = &self.tls else {
            return Ok(None);
        };
        let roots = roots(&tls.authorities).map_err(|e| tls.invalid(&tls.authorities_from, &e))?;
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

/// The authorities in a text.
fn roots(text: &str) -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err("it holds no certificate".into());
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

/// The Secrets of a namespace.
struct Secrets<'a> {
    api: Api<Secret>,
    namespace: &'a str,
}

/// A Secret of that namespace.
struct Found<'a> {
    namespace: &'a str,
    name: String,
    data: BTreeMap<String, k8s_openapi::ByteString>,
}

impl<'a> Secrets<'a> {
    async fn read(&self, name: &str) -> Result<Found<'a>, CredentialsError> {
        let (namespace, name) = (self.namespace, name.to_owned());
        let failed = |name: String, error: kube::Error| {
            let namespace = namespace.to_owned();
            match &error {
                kube::Error::Api(status) if status.code == 404 => {
                    CredentialsError::NotFound { namespace, name }
                }
                kube::Error::Api(status) if status.code == 403 => {
                    CredentialsError::Forbidden { namespace, name }
                }
                _ => CredentialsError::Api {
                    namespace,
                    name,
                    source: Box::new(error),
                },
            }
        };
        match self.api.get(&name).await {
            Ok(secret) => Ok(Found {
                namespace,
                name,
                data: secret.data.unwrap_or_default(),
            }),
            Err(error) => Err(failed(name, error)),
        }
    }
}

impl Found<'_> {
    /// The text under a key.
    fn text(&self, key: &str) -> Result<String, CredentialsError> {
        let Some(value) = self.data.get(key) else {
            return Err(self.invalid(&format!("it has no key {key}")));
        };
        match String::from_utf8(value.0.clone()) {
            Ok(text) if text.is_empty() => Err(self.invalid(&format!("its key {key} is empty"))),
            Ok(text) => Ok(text),
            Err(_) => Err(self.invalid(&format!("its key {key} is not text"))),
        }
    }

    fn invalid(&self, problem: &str) -> CredentialsError {
        CredentialsError::Invalid {
            namespace: self.namespace.to_owned(),
            name: self.name.clone(),
            problem: problem.to_owned(),
        }
    }
}
