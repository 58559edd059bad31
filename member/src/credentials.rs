//! What tells clients from others: the users with their passwords, and the authorities of clients' certificates. And the
//! user's certificate that members present to clients, in the place of the operator's.
//!
//! ZooKeeper reads the first two once, when it starts (`SaslServerCallbackHandler`, `X509AuthenticationProvider`). So they are
//! written before it starts, and this program says when the Secret or the ConfigMap has changed since: the operator then
//! restarts the member in its turn.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use webpki::anchor_from_trusted_cert;

use crate::control::identity::{self, CLIENT_AUTHORITY, version};
use crate::files::{names, read_if_there, write_atomically};
use crate::tls_files::{CLIENT_PORT, joined};

/// The users, in the directory that the server reads.
const JAAS: &str = "jaas.conf";
/// The authorities of clients' certificates, in that directory.
const TRUST: &str = "client-trust.pem";
/// The certificate that this program presents to its own server, in that directory, and its key.
const OWN_CLIENT: [&str; 2] = ["own-client.crt", "own-client.key"];
/// The name in it.
const OWN_NAME: &str = "own-client.zookeeper.bellwether.dev";
/// The most bytes of names and passwords: the directory is in memory.
const MOST: usize = 256 * 1024;

/// Where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// The Secret with the users; absent if there are none.
    pub(crate) users: PathBuf,
    /// The one among them whom no ACL holds up, if there is to be one.
    pub(crate) super_user: Option<String>,
    /// The ConfigMap with the authorities; absent if there are none.
    pub(crate) authorities: PathBuf,
    /// The Secret with the certificate for clients; absent if the operator makes it.
    pub(crate) client_port: PathBuf,
    /// The Secret with the member's certificate, and with the clients' authority of the operator, whose mirror of elections is
    /// a client.
    pub(crate) identity: PathBuf,
    /// The directory that the server reads; absent where nothing is encrypted.
    pub(crate) tls: PathBuf,
}

impl Default for Credentials {
    fn default() -> Self {
        Self {
            users: "/etc/bellwether/users".into(),
            super_user: None,
            authorities: "/etc/bellwether/client-authorities".into(),
            client_port: "/etc/bellwether/client-port".into(),
            identity: "/etc/bellwether/identity".into(),
            tls: "/tls".into(),
        }
    }
}

/// What the operator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Whether the server has other users or authorities than there are now; `None` where there are none.
    pub(crate) outdated: Option<bool>,
    /// The authority of the user's certificate for clients, as PEM, if there is one.
    pub(crate) client_authority: Option<String>,
}

/// The files as they have to be, by their names.
type Files = Vec<(&'static str, Vec<u8>)>;

impl Credentials {
    /// Writes the files for the server; none where clients do not have to prove who they are.
    ///
    /// # Errors
    /// What is missing or wrong, and nothing is written.
    pub(crate) fn provide(&self) -> Result<(), String> {
        for (name, content) in self.files()? {
            write_atomically(&self.tls.join(name), &content, 0o600)?;
        }
        self.provide_certificate()
    }

    /// Makes a certificate by which this program is a client of its own server, and of no other: where members change at run
    /// time, it asks for another list. It lasts as long as the pod.
    ///
    /// # Errors
    /// When it cannot be made or written.
    pub(crate) fn make_own_client(&self) -> Result<(), String> {
        let (certificate, key) =
            own_client().map_err(|error| format!("cannot make a certificate: {error}"))?;
        for (name, content) in OWN_CLIENT.into_iter().zip([certificate, key]) {
            write_atomically(&self.tls.join(name), content.as_bytes(), 0o600)?;
        }
        Ok(())
    }

    /// The certificate that the server presents to clients, the one for this program to present, and the key of that; `None` if
    /// the server does not ask clients who they are.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(crate) fn own_client(&self) -> Result<Option<identity::Files>, String> {
        if !self.tls.join(TRUST).exists() {
            return Ok(None);
        }
        let read = |name| read_if_there(&self.tls.join(name));
        let [certificate, key] = OWN_CLIENT;
        let files = (read(CLIENT_PORT)?, read(certificate)?, read(key)?);
        let (Some(server), Some(certificate), Some(key)) = files else {
            return Ok(None);
        };
        Ok(Some([server, certificate, key]))
    }

    /// Writes the user's certificate for clients, which the server reads for each connection.
    ///
    /// # Errors
    /// What is missing or wrong, and nothing is written.
    pub(crate) fn provide_certificate(&self) -> Result<(), String> {
        let Some([_, certificate, key]) = self.certificate()? else {
            return Ok(());
        };
        let certificate = joined(&key, &certificate);
        write_atomically(&self.tls.join(CLIENT_PORT), &certificate, 0o600)
    }

    /// Whether the certificate for clients is the user's own.
    pub(crate) fn has_certificate(&self) -> bool {
        self.client_port.is_dir()
    }

    fn certificate(&self) -> Result<Option<identity::Files>, String> {
        if !self.has_certificate() {
            return Ok(None);
        }
        let files = identity::read(&self.client_port).and_then(|files| {
            identity::verify_server(&files)?;
            Ok(files)
        });
        let files = files.map_err(|why| {
            format!(
                "The Secret with the certificate for clients cannot be used: {why}. It needs tls.crt, tls.key and ca.crt."
            )
        });
        files.map(Some)
    }

    /// Whether the server has other users or authorities than there are now; `None` where there are none.
    ///
    /// # Errors
    /// What is missing or wrong. The server goes on with what it has.
    pub(crate) fn are_outdated(&self) -> Result<Option<bool>, String> {
        self.state().map(|state| state.outdated)
    }

    /// As [`Self::are_outdated`], and whom clients have to trust.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub(crate) fn state(&self) -> Result<State, String> {
        let files = self.files()?;
        let authority = self.certificate()?.map(|[authority, ..]| authority);
        let mut outdated = (!files.is_empty()).then_some(false);
        for (name, content) in &files {
            if read_if_there(&self.tls.join(name))?.as_ref() != Some(content) {
                outdated = Some(true);
                break;
            }
        }
        Ok(State {
            outdated,
            client_authority: authority.map(|pem| String::from_utf8_lossy(&pem).into_owned()),
        })
    }

    fn files(&self) -> Result<Files, String> {
        let (has_users, has_authorities) = (self.users.is_dir(), self.authorities.is_dir());
        let mut files = Vec::new();
        if has_users {
            let users = jaas(&version(&self.users), self.super_user.as_deref());
            let users =
                users.map_err(|why| format!("The Secret with the users of clients {why}"))?;
            files.push((JAAS, users));
        }
        if has_users || has_authorities {
            files.push((TRUST, self.trust(has_authorities)?));
        }
        Ok(files)
    }

    /// The operator's authority of clients, this program's certificate if it has one, and the authorities of the user.
    fn trust(&self, has_authorities: bool) -> Result<Vec<u8>, String> {
        let mut trust = read_if_there(&version(&self.identity).join(CLIENT_AUTHORITY))?
            .ok_or_else(|| {
                format!(
                    "There is no authority of clients in {}. The operator writes it; its log says why if it cannot.",
                    self.identity.display()
                )
            })?;
        if let Some(own) = read_if_there(&self.tls.join(OWN_CLIENT[0]))? {
            trust.push(b'\n');
            trust.extend(own);
        }
        if has_authorities {
            let added = read_if_there(&version(&self.authorities).join("ca.crt"))?;
            let added = added.ok_or_else(|| "does not exist, or has no key ca.crt.".to_owned());
            let added = added.and_then(|added| {
                check_authorities(&trust, &added)?;
                Ok(added)
            });
            let added = added
                .map_err(|why| format!("The ConfigMap with the authorities of clients {why}"))?;
            trust.push(b'\n');
            trust.extend(added);
        }
        Ok(trust)
    }
}

/// A certificate that signed itself, as PEM, and its key.
fn own_client() -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, OWN_NAME);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// The users as the login configuration of Java has them (`sun.security.provider.ConfigFile`).
fn jaas(directory: &Path, super_user: Option<&str>) -> Result<Vec<u8>, String> {
    let mut text =
        String::from("Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule required");
    let mut users = names(directory)?;
    // The kubelet's own entries.
    users.retain(|name| !name.starts_with(".."));
    for name in &users {
        let password = read_if_there(&directory.join(name))?.unwrap_or_default();
        let password =
            quoted(&password).map_err(|why| format!("has a password for {name:?} that {why}"))?;
        text.push_str(&format!("\n  user_{name}={password}"));
        if text.len() > MOST {
            return Err(format!(
                "has more than {MOST} bytes of names and passwords."
            ));
        }
    }
    if users.is_empty() {
        return Err(
            "does not exist, or is empty: each of its keys is a name, the value its password."
                .to_owned(),
        );
    }
    if let Some(absent) = super_user.filter(|name| users.iter().all(|user| user != name)) {
        return Err(format!(
            "has no key {absent}, the user whom authentication.users.superUser names."
        ));
    }
    text.push_str(";\n};\n");
    Ok(text.into_bytes())
}

/// A password between quotes.
fn quoted(password: &[u8]) -> Result<String, &'static str> {
    let text = std::str::from_utf8(password).unwrap_or("\0");
    if text.is_empty() {
        return Err("is empty.");
    }
    if text.ends_with('\n') {
        return Err("ends with a line break: write it with `printf`, not with `echo`.");
    }
    if text.chars().any(|c| !(' '..='~').contains(&c)) {
        return Err("is not printable ASCII.");
    }
    // Java puts the values of system properties there.
    if text.contains("${") {
        return Err("contains ${, which Java would replace.");
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!("\"{escaped}\""))
}

/// ZooKeeper keeps only one authority of a subject (ZOOKEEPER-4992).
fn check_authorities(own: &[u8], added: &[u8]) -> Result<(), String> {
    let mut subjects = BTreeSet::new();
    let mut count = 0;
    for pem in [own, added] {
        count = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let broken = |why: String| format!("has a certificate that cannot be read: {why}.");
            let certificate = certificate.map_err(|error| broken(error.to_string()))?;
            let anchor = anchor_from_trusted_cert(&certificate);
            let anchor = anchor.map_err(|error| broken(error.to_string()))?;
            if !subjects.insert(anchor.subject.to_vec()) {
                return Err(
                    "has two certificates of the same subject, of which ZooKeeper would trust one: give each authority another name."
                        .to_owned(),
                );
            }
            count += 1;
        }
    }
    match count {
        0 => Err("has no certificate under ca.crt.".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
