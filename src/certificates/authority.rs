//! One authority: its key, its certificate, and what it signs.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use bellwether_ensemble::certificates::{AUTHORITY_VALID, AuthorityName, Issued, OPERATOR, Party};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, version};
use time::OffsetDateTime;

/// Keeps these keys apart from whatever else may follow from the root key one day.
const PURPOSE: &[u8] = b"bellwether: the authority of an ensemble";
/// How many keys are tried. One of 2^32 is not on the curve.
const ATTEMPTS: u8 = 8;
/// For how long the operator's own certificate is valid.
const OPERATOR_VALID: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How long before now a certificate begins, since clocks differ.
const BEFORE: SignedDuration = SignedDuration::from_hours(1);

/// An authority.
pub(super) struct Authority {
    party: Party,
    issuer: rcgen::Issuer<'static, KeyPair>,
    certificate: Certificate,
}

impl Authority {
    /// The authority of this name. Its key is always the same; its certificate begins now.
    pub(super) fn derive(
        root: &[u8],
        name: &AuthorityName,
        party: Party,
        now: Timestamp,
    ) -> Result<Self> {
        let key = key(root, name, party)?;
        let mut params = params(Vec::new(), now, AUTHORITY_VALID)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // The id is in the subject: ZooKeeper keeps only one authority of a subject (ZOOKEEPER-4992).
        let subject = &mut params.distinguished_name;
        subject.push(
            DnType::CommonName,
            format!("{} authority {}", subject_of(party), name.id),
        );
        subject.push(DnType::OrganizationalUnitName, name.ensemble.clone());
        subject.push(DnType::OrganizationName, name.namespace.clone());
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            party,
            issuer: rcgen::Issuer::new(params, key),
            certificate,
        })
    }

    /// Signs a certificate with these names, for a new key.
    pub(super) fn issue(
        &self,
        names: Vec<String>,
        now: Timestamp,
        valid: SignedDuration,
    ) -> Result<Issued> {
        let (certificate, key) = self.sign(names, now, valid)?;
        Ok(Issued {
            authority: self.certificate(),
            authority_until: now + AUTHORITY_VALID,
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            until: now + valid,
        })
    }

    /// Its own certificate, as PEM.
    pub(super) fn certificate(&self) -> String {
        self.certificate.pem()
    }

    /// How the operator speaks to a server of this authority, or of the other one, while one is replaced.
    pub(super) fn client(&self, other: Option<&Self>) -> Result<ClientConfig> {
        let now = Timestamp::now();
        let (certificate, key) = self.sign(vec![OPERATOR.to_owned()], now, OPERATOR_VALID)?;
        let mut roots = RootCertStore::empty();
        for authority in std::iter::once(self).chain(other) {
            roots.add(authority.certificate.der().clone())?;
        }
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&version::TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate.der().clone()], key)?;
        // Connections stay open, and members take no session up again.
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }

    fn sign(
        &self,
        names: Vec<String>,
        now: Timestamp,
        valid: SignedDuration,
    ) -> Result<(Certificate, KeyPair)> {
        let key = KeyPair::generate()?;
        let first = names
            .first()
            .cloned()
            .context("a certificate without a name")?;
        let mut params = params(names, now, valid)?;
        params.distinguished_name.push(DnType::CommonName, first);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        // A member cannot pass for a client by what it presents to clients, nor a client for a member.
        params.extended_key_usages = match self.party {
            Party::Members => vec![ServerAuth, ClientAuth],
            Party::Clients => vec![ServerAuth],
            Party::Client => vec![ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((certificate, key))
    }
}

/// The first word of the subject of an authority.
fn subject_of(party: Party) -> &'static str {
    match party {
        Party::Members => "ensemble",
        Party::Clients | Party::Client => "client",
    }
}

/// What all certificates have in common.
fn params(names: Vec<String>, now: Timestamp, valid: SignedDuration) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    let at = |time: Timestamp| OffsetDateTime::from_unix_timestamp(time.as_second());
    params.not_before = at(now - BEFORE)?;
    params.not_after = at(now + valid)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    Ok(params)
}

/// Tells root keys apart, and tells nothing else of them.
pub(super) fn root_id(root: &[u8]) -> Result<String> {
    let mut id = [0; 32];
    Salt::new(HKDF_SHA256, PURPOSE)
        .extract(root)
        .expand(&[b"the id of the root key"], HKDF_SHA256)
        .and_then(|bytes| bytes.fill(&mut id))
        .map_err(|_| anyhow!("the id of the root key cannot be derived"))?;
    let first = id.iter().take(8);
    Ok(first.map(|byte| format!("{byte:02x}")).collect())
}

/// The key of an authority: a scalar of P-256 by HKDF from the root key.
fn key(root: &[u8], name: &AuthorityName, party: Party) -> Result<KeyPair> {
    let secret = Salt::new(HKDF_SHA256, PURPOSE).extract(root);
    // None of the three can hold a slash.
    let mut name = format!("{}/{}/{}", name.namespace, name.ensemble, name.id);
    if party != Party::Members {
        name.push_str("/clients");
    }
    let failed = |_| anyhow!("the key of an authority cannot be derived");
    for attempt in 0..ATTEMPTS {
        let mut scalar = [0; 32];
        secret
            .expand(&[name.as_bytes(), &[attempt]], HKDF_SHA256)
            .and_then(|bytes| bytes.fill(&mut scalar))
            .map_err(failed)?;
        let Ok(key) = PrivateKey::from_private_key(&ECDH_P256, &scalar) else {
            continue;
        };
        let der: EcPrivateKeyRfc5915Der<'_> = key.as_der().map_err(failed)?;
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let key = EcdsaKeyPair::from_private_key_der(algorithm, der.as_ref())
            .map_err(|_| anyhow!("the key of an authority is refused"))?;
        let der = key.to_pkcs8v1().map_err(failed)?;
        return Ok(KeyPair::try_from(der.as_ref())?);
    }
    bail!("no key of an authority is on the curve")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(id: &str) -> AuthorityName {
        AuthorityName {
            namespace: "shop".to_owned(),
            ensemble: "zk".to_owned(),
            id: id.to_owned(),
            other: None,
        }
    }

    #[test]
    fn the_id_of_a_root_key_tells_it_from_others() {
        let id = |byte| root_id(&[byte; 32]).unwrap();
        assert_eq!(id(1), id(1));
        assert_ne!(id(1), id(2));
        assert_eq!(id(1).len(), 16);
    }

    #[test]
    fn the_key_follows_from_root_and_name() {
        let public_of = |root: u8, id: &str, party| {
            let key = key(&[root; 32], &name(id), party).unwrap();
            key.public_key_raw().to_vec()
        };
        let public = |root, id| public_of(root, id, Party::Members);
        assert_ne!(public(1, "a"), public_of(1, "a", Party::Clients));
        assert_eq!(public(1, "a"), public(1, "a"));
        assert_ne!(public(1, "a"), public(2, "a"));
        assert_ne!(public(1, "a"), public(1, "b"));
    }

    /// An ensemble's members keep their certificates while its authority is derived again, by another replica.
    #[test]
    fn what_one_process_signed_another_one_trusts() {
        let now = Timestamp::now();
        let valid = SignedDuration::from_hours(1);
        let authority = || Authority::derive(&[7; 32], &name("a"), Party::Members, now).unwrap();
        let issued = authority()
            .issue(vec!["zk".to_owned()], now, valid)
            .unwrap();
        assert_eq!(issued.until, now + valid);
        assert!(
            issued.key.starts_with("-----BEGIN PRIVATE KEY-----"),
            "not PKCS#8"
        );
        let again = authority();
        let certificate = pem(&issued.certificate);
        let certificate = webpki::EndEntityCert::try_from(&certificate).unwrap();
        let verify = |authority: &Authority| {
            let anchor = webpki::anchor_from_trusted_cert(authority.certificate.der()).unwrap();
            let time = std::time::Duration::from_secs(now.as_second().unsigned_abs());
            certificate
                .verify_for_usage(
                    webpki::ALL_VERIFICATION_ALGS,
                    &[anchor],
                    &[],
                    rustls::pki_types::UnixTime::since_unix_epoch(time),
                    webpki::KeyUsage::server_auth(),
                    None,
                    None,
                )
                .is_ok()
        };
        assert!(verify(&again));
        for (root, id, party) in [
            (7, "b", Party::Members),
            (8, "a", Party::Members),
            (7, "a", Party::Clients),
        ] {
            let other = Authority::derive(&[root; 32], &name(id), party, now).unwrap();
            assert!(!verify(&other), "{root} {id} {party:?}");
        }
    }

    fn pem(text: &str) -> rustls::pki_types::CertificateDer<'static> {
        rustls::pki_types::pem::PemObject::from_pem_slice(text.as_bytes()).unwrap()
    }
}
