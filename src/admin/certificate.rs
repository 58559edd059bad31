//! What the endpoint for people and Prometheus presents.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::time::Instant;

/// How long a certificate is presented before the files are read again.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// A certificate and its key.
pub struct Certificate {
    /// Where it is read again from time to time; none if nobody signed it.
    directory: Option<PathBuf>,
    presented: Mutex<(Instant, Arc<CertifiedKey>)>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({:?})", self.directory)
    }
}

impl Certificate {
    /// That of the files `tls.crt` and `tls.key`, as in a Secret of the type `kubernetes.io/tls`. Changed files are presented
    /// within a minute; while they are of no use, what was presented before is.
    ///
    /// # Errors
    /// When they cannot be read, or do not belong together.
    pub fn of_directory(directory: &Path) -> Result<Self> {
        let presented = Mutex::new((Instant::now(), Arc::new(read(directory)?)));
        let directory = Some(directory.to_owned());
        Ok(Self {
            directory,
            presented,
        })
    }

    /// A self-signed one with these names: it keeps from listening, and proves nothing.
    ///
    /// # Errors
    /// When a name is none of DNS.
    pub fn self_signed(names: Vec<String>) -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(names)?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let key = certified(vec![made.cert.der().clone()], key.into())?;
        Ok(Self {
            directory: None,
            presented: Mutex::new((Instant::now(), Arc::new(key))),
        })
    }

    /// How to present it.
    ///
    /// # Errors
    /// When the library of TLS lacks a version.
    pub(super) fn configuration(self) -> Result<Arc<ServerConfig>> {
        let mut configuration = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self));
        configuration.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(configuration))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut presented = self
            .presented
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (since, key) = &mut *presented;
        if let Some(directory) = &self.directory
            && since.elapsed() >= READ_AGAIN
        {
            *since = Instant::now();
            match read(directory) {
                Ok(read) => *key = Arc::new(read),
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(error, "the certificate before is presented");
                }
            }
        }
        Some(key.clone())
    }
}

fn read(directory: &Path) -> Result<CertifiedKey> {
    let (chain, key) = (directory.join("tls.crt"), directory.join("tls.key"));
    let of = |file: &Path| format!("{} is of no use", file.display());
    let certificates = CertificateDer::pem_file_iter(&chain)
        .and_then(Iterator::collect)
        .with_context(|| of(&chain))?;
    let private = PrivateKeyDer::from_pem_file(&key).with_context(|| of(&key))?;
    certified(certificates, private).with_context(|| of(&chain))
}

/// They have to belong together.
fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey> {
    Ok(CertifiedKey::from_der(chain, key, &default_provider())?)
}
