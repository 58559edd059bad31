//! The member's certificate, and who is the operator.

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, version};
use webpki::EndEntityCert;

/// The name in the operator's certificate.
const OPERATOR: &str = "operator.zookeeper.bellwether.dev";

/// The file with the clients' authority.
pub(crate) const CLIENT_AUTHORITY: &str = "client-ca.crt";

/// The files in the Secret: the authority, the certificate, its key.
pub(crate) type Files = [Vec<u8>; 3];

/// The member's certificate, from files that change while the program runs.
#[derive(Debug)]
pub(super) struct Identity {
    directory: PathBuf,
    /// What was read last, and what it makes.
    last: Mutex<Option<(Files, Arc<ServerConfig>)>>,
}

impl Identity {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            last: Mutex::default(),
        }
    }

    /// What to present now. Files that are of no use do not replace those that were.
    ///
    /// # Errors
    /// When there have never been files of use.
    pub(super) fn current(&self) -> Result<Arc<ServerConfig>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let read = read(&self.directory);
        if let (Some((files, config)), Ok(read)) = (&*last, &read)
            && files == read
        {
            return Ok(config.clone());
        }
        match (
            read.and_then(|files| Ok((configure(&files)?, files))),
            &*last,
        ) {
            (Ok((config, files)), _) => {
                *last = Some((files, config.clone()));
                Ok(config)
            }
            (Err(_), Some((_, config))) => Ok(config.clone()),
            (Err(error), None) => Err(error),
        }
    }
}

/// Reads the files of one version of the Secret: the kubelet replaces the directory that `..data` names.
///
/// # Errors
/// When one cannot be read.
pub(crate) fn read(directory: &Path) -> Result<Files> {
    let version = version(directory);
    let file = |name| std::fs::read(version.join(name));
    Ok([file("ca.crt")?, file("tls.crt")?, file("tls.key")?])
}

/// As [`read`], what members present to clients: the clients' authority, the certificate, its key. `None` if the Secret
/// has none.
///
/// # Errors
/// When the parts do not belong together, or one is missing.
pub(crate) fn read_for_clients(directory: &Path) -> Result<Option<Files>> {
    let version = version(directory);
    let file = |name| std::fs::read(version.join(name));
    let certificate = match file("client-port.crt") {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        certificate => certificate?,
    };
    let files = [
        file(CLIENT_AUTHORITY)?,
        certificate,
        file("client-port.key")?,
    ];
    configure(&files)?;
    Ok(Some(files))
}

/// The directory with the files of one version.
pub(crate) fn version(directory: &Path) -> PathBuf {
    let version = directory.join("..data").canonicalize();
    version.unwrap_or_else(|_| directory.to_owned())
}

/// The certificates in a text.
///
/// # Errors
/// When it is not PEM.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_slice_iter(pem);
    let all: std::result::Result<_, _> = all.collect();
    all.map_err(Error::other)
}

/// The authorities in a text.
///
/// # Errors
/// When it is not PEM, or one cannot be an authority.
pub(crate) fn roots(authorities: &[u8]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities)? {
        roots.add(certificate).map_err(Error::other)?;
    }
    Ok(roots)
}

/// The key in a text.
///
/// # Errors
/// When it is not PEM.
pub(crate) fn key(key: &[u8]) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(key).map_err(Error::other)
}

/// How to answer with this certificate.
///
/// # Errors
/// When the files are not PEM, or the certificate is not of this key.
pub(crate) fn configure([authority, certificate, key]: &Files) -> Result<Arc<ServerConfig>> {
    let (roots, chain, key) = (
        roots(authority)?,
        certificates(certificate)?,
        self::key(key)?,
    );
    let provider = Arc::new(default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .map_err(Error::other)?
        .with_client_cert_verifier(clients.build().map_err(Error::other)?)
        .with_single_cert(chain, key)
        .map_err(Error::other)?;
    // The operator's connections stay open, so nothing is gained by taking sessions up again.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Whether a server may present this certificate to clients of its authority now, with a key that ZooKeeper reads.
///
/// # Errors
/// When it may not, and why.
pub(crate) fn verify_server(files: &Files) -> Result<()> {
    let [authority, certificate, key] = files;
    // `util/PemReader.java`
    let begin = "-----BEGIN PRIVATE KEY-----";
    if !String::from_utf8_lossy(key).contains(begin) {
        return Err(Error::other(
            "its key is not PKCS#8, the only form that ZooKeeper reads (cert-manager: privateKey.encoding: PKCS8)",
        ));
    }
    configure(files)?;
    let (authorities, chain) = (certificates(authority)?, certificates(certificate)?);
    let anchors = authorities.iter().map(webpki::anchor_from_trusted_cert);
    let anchors: std::result::Result<Vec<_>, _> = anchors.collect();
    let anchors = anchors.map_err(Error::other)?;
    let [leaf, intermediates @ ..] = &*chain else {
        return Err(Error::other("tls.crt has no certificate"));
    };
    let leaf = EndEntityCert::try_from(leaf).map_err(Error::other)?;
    let verified = leaf.verify_for_usage(
        webpki::ALL_VERIFICATION_ALGS,
        &anchors,
        intermediates,
        UnixTime::now(),
        webpki::KeyUsage::server_auth(),
        None,
        None,
    );
    verified.map(drop).map_err(Error::other)
}

/// Whether the client is the operator: other members have certificates of the same authority.
///
/// # Errors
/// When it is not.
pub(super) fn expect_operator(chain: Option<&[CertificateDer<'_>]>) -> Result<()> {
    let certificate = chain.and_then(<[_]>::first);
    let certificate = certificate.ok_or_else(|| Error::other("no certificate"))?;
    let certificate = EndEntityCert::try_from(certificate).map_err(Error::other)?;
    let operator = ServerName::try_from(OPERATOR).map_err(Error::other)?;
    certificate
        .verify_is_valid_for_subject_name(&operator)
        .map_err(Error::other)
}
