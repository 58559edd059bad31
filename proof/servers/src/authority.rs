//! The Secret with the members' certificates, as the operator writes it.

use std::fs;
use std::path::Path;

use anyhow::Result;
use bellwether_ensemble::Voters;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::network::Network;

/// The certificate of the authority that clients trust.
pub(crate) const CLIENT_AUTHORITY: &str = "client-ca.crt";

/// Writes two new authorities, each with the certificate that it signs for every member, into this directory. Clients
/// reach members by the addresses of this network.
///
/// # Errors
/// When no key can be made, or the disk refuses the files.
pub fn write_secret(directory: &Path, network: &Network) -> Result<()> {
    fs::create_dir_all(directory)?;
    let member = vec!["member".to_owned()];
    write_certificate(directory, ["ca.crt", "tls.crt", "tls.key"], member)?;
    let servers = Voters::first(14, 0);
    let addresses = servers.iter().map(|id| network.address(id).to_string());
    let for_clients = [CLIENT_AUTHORITY, "client-port.crt", "client-port.key"];
    write_certificate(directory, for_clients, addresses.collect())
}

/// Writes the stores of all servers into this directory, as the member program does: `member.pem` and `authorities.pem`.
///
/// # Errors
/// As [`write_secret`].
pub fn write_stores(directory: &Path, network: &Network) -> Result<()> {
    let secret = directory.join("secret");
    write_secret(&secret, network)?;
    let read = |name: &str| fs::read_to_string(secret.join(name));
    fs::write(directory.join("authorities.pem"), read("ca.crt")?)?;
    let member = read("tls.key")? + &read("tls.crt")?;
    Ok(fs::write(directory.join("member.pem"), member)?)
}

/// Writes a new authority, a certificate that it signs for these names, and the key of that, into these files.
fn write_certificate(directory: &Path, files: [&str; 3], names: Vec<String>) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = params.self_signed(&key)?;
    let issuer = Issuer::new(params, key);

    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let certificate = params.signed_by(&key, &issuer)?;
    let texts = [authority.pem(), certificate.pem(), key.serialize_pem()];
    for (name, text) in files.into_iter().zip(texts) {
        fs::write(directory.join(name), text)?;
    }
    Ok(())
}
