//! Whether the server has taken up the files with its certificates.
//!
//! ZooKeeper watches two files, each with a thread of its own, and each thread reads both when its file is replaced
//! (`X509Util.newFileChangeWatcher`, `resetDefaultSSLContextAndOptions`). Whichever stores last wins, also if it read first. And
//! key and chain are read one after the other (`PemReader`), so a thread may read the key of one certificate and the
//! chain of the next. The server then presents an old certificate until that ends, or one without its key: of 60
//! renewals of both files within 20 ms, three real servers did. So the server is asked, with a handshake.

use std::collections::BTreeSet;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};

use crate::control::identity::{self, Files};

/// How long a server may take to connect, and for each message of the handshake.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What a server shows of its certificates to whoever connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The certificate that it presents, and whose key it has.
    certificate: Vec<u8>,
    /// The subjects of the authorities that it trusts. Empty if it does not say.
    trusted: BTreeSet<Vec<u8>>,
}

impl Shown {
    /// What a server with these files shows.
    ///
    /// # Errors
    /// When they are no certificates.
    pub(crate) fn of(files: &Files) -> Result<Self> {
        let [authorities, certificate, _] = files;
        let certificate = identity::certificates(certificate)?;
        let subjects = identity::roots(authorities)?.subjects();
        Ok(Self {
            certificate: certificate.first().map_or(Vec::new(), |leaf| leaf.to_vec()),
            trusted: subjects.iter().map(|name| name.as_ref().to_vec()).collect(),
        })
    }

    /// Whether the server presents the first certificate of this text.
    ///
    /// # Errors
    /// When it is not PEM.
    pub(crate) fn presents(&self, certificate: &[u8]) -> Result<bool> {
        let chain = identity::certificates(certificate)?;
        Ok(chain
            .first()
            .is_some_and(|leaf| **leaf == *self.certificate))
    }

    /// Whether both present the same certificate.
    pub(crate) fn same_certificate(&self, other: &Self) -> bool {
        self.certificate == other.certificate
    }

    /// Whether both trust the same authorities, as far as they say.
    pub(crate) fn same_authorities(&self, other: &Self) -> bool {
        let silent = self.trusted.is_empty() || other.trusted.is_empty();
        silent || self.trusted == other.trusted
    }
}

/// What the server at this address shows to a client with these files; `None` if nothing listens there.
///
/// # Errors
/// When the server does not end the handshake, or presents a certificate whose key it does not have.
pub(crate) fn look(server: SocketAddr, files: &Files) -> Result<Option<Shown>> {
    let mut stream = match TcpStream::connect_timeout(&server, TIMEOUT) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
        stream => stream?,
    };
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let [_, certificate, key] = files;
    let (mut connection, shown) = shake_hands(&mut stream, server.ip(), [certificate, key])?;
    // The server need not wait for more.
    connection.send_close_notify();
    let _ = connection.complete_io(&mut stream);
    Ok(Some(shown))
}

/// Connects over TLS as a client with this certificate and its key. Every certificate whose key the server has is believed:
/// the caller compares.
///
/// # Errors
/// As for [`look`].
pub(crate) fn shake_hands(
    stream: &mut (impl Read + Write),
    server: IpAddr,
    [certificate, key]: [&[u8]; 2],
) -> Result<(ClientConnection, Shown)> {
    let provider = Arc::new(default_provider());
    let (chain, key) = (identity::certificates(certificate)?, identity::key(key)?);
    let witness = Arc::new(Witness {
        own: Arc::new(CertifiedKey::from_der(chain, key, &provider).map_err(Error::other)?),
        provider: provider.clone(),
        shown: Mutex::default(),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(witness.clone())
        .with_client_cert_resolver(witness.clone());
    let name = ServerName::IpAddress(server.into());
    let mut connection = ClientConnection::new(config.into(), name).map_err(Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(stream)?;
    }
    let shown = witness.shown.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((connection, shown.clone()))
}

/// Notes what a server shows, and believes every certificate whose key the server has.
#[derive(Debug)]
struct Witness {
    own: Arc<CertifiedKey>,
    provider: Arc<CryptoProvider>,
    shown: Mutex<Shown>,
}

impl Witness {
    fn note(&self, what: impl FnOnce(&mut Shown)) {
        what(&mut self.shown.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        self.note(|shown| shown.certificate = certificate.to_vec());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

impl ResolvesClientCert for Witness {
    fn resolve(
        &self,
        trusted: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        let trusted = trusted.iter().map(|name| name.to_vec()).collect();
        self.note(|shown| shown.trusted = trusted);
        Some(self.own.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
