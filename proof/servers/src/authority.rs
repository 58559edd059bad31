//! The Secret with the members' certificate, as the operator writes it.

use std::fs;
use std::path::Path;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Writes a new authority, and a certificate of it for every member, into this directory.
///
/// # Errors
/// When no key can be made, or the disk refuses the files.
pub fn write_secret(directory: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = params.self_signed(&key)?;
    let issuer = Issuer::new(params, key);

    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["member".to_owned()])?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let certificate = params.signed_by(&key, &issuer)?;

    fs::create_dir_all(directory)?;
    for (name, text) in [
        ("ca.crt", authority.pem()),
        ("tls.crt", certificate.pem()),
        ("tls.key", key.serialize_pem()),
    ] {
        fs::write(directory.join(name), text)?;
    }
    Ok(())
}
