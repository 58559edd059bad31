//! The files from which the server reads its certificates: the one for the other servers, and the one for clients.
//!
//! ZooKeeper wants key and certificate in one file, and notices a new file only if it is renamed into the directory
//! that it watches (`common/FileChangeWatcher.java`). A Secret volume is neither, so its content is copied: before the
//! server starts, and whenever the Secret changes.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::control::identity;
use serde_json::{Value, json};

use crate::credentials::Credentials;
use crate::files::{describe, write_atomically};

/// How often a running member looks for a new certificate. The kubelet takes a minute to show one.
const PERIOD: Duration = Duration::from_secs(5);

/// How a certificate begins in PEM.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE";
/// The server's certificate for other servers with its key, in the directory that it reads.
const MEMBER: &str = "member.pem";
/// The authorities that it trusts.
const AUTHORITIES: &str = "authorities.pem";
/// The server's certificate for clients with its key, in the directory that it reads.
pub(crate) const CLIENT_PORT: &str = "client-port.pem";

/// Puts the files in place as the Secret has them now. A Secret of an earlier operator version has no certificate for
/// clients.
///
/// # Errors
/// When the Secret is incomplete or its parts do not belong together, and nothing is changed; or when a file cannot
/// be written.
pub(crate) fn provide(credentials: &Credentials) -> Result<(), String> {
    let (secret, tls) = (&credentials.identity, &credentials.tls);
    let files = identity::read(secret).and_then(|files| identity::configure(&files).map(|_| files));
    let [authorities, certificate, key] = files.map_err(|error| {
        format!(
            "the member's certificate in {} cannot be used: {error}. The operator writes it; its log says why if it \
             cannot.",
            secret.display()
        )
    })?;
    let for_clients = identity::read_for_clients(secret).map_err(|error| {
        format!(
            "the member's certificate for clients in {} cannot be used: {error}. The operator writes it; its log says \
             why if it cannot.",
            secret.display()
        )
    })?;
    // A new certificate may be signed by an authority that only the new file has.
    write_atomically(&tls.join(AUTHORITIES), &authorities, 0o600)?;
    write_atomically(&tls.join(MEMBER), &joined(&key, &certificate), 0o600)?;
    let Some([authorities, certificate, key]) = for_clients else {
        return Ok(());
    };
    write_atomically(&tls.join("client-authorities.pem"), &authorities, 0o600)?;
    if credentials.has_certificate() {
        return Ok(());
    }
    write_atomically(&tls.join(CLIENT_PORT), &joined(&key, &certificate), 0o600)
}

/// Key and certificate in one file.
pub(crate) fn joined(key: &[u8], certificate: &[u8]) -> Vec<u8> {
    [key, b"\n", certificate].concat()
}

/// What this member presents to others, as PEM: the authorities that it trusts, and its certificate. A member without a
/// directory for its server presents what the Secret holds.
pub(crate) fn presented(secret: &Path, tls: &Path) -> Result<Value, String> {
    let (authorities, certificate) = match tls.join(MEMBER).exists() {
        true => {
            let member = read_to_string(&tls.join(MEMBER))?;
            let begin = member.find(CERTIFICATE).unwrap_or(member.len());
            let authorities = read_to_string(&tls.join(AUTHORITIES))?;
            (
                authorities,
                member.get(begin..).unwrap_or_default().to_owned(),
            )
        }
        false => {
            let files = identity::read(secret).map_err(|error| error.to_string())?;
            let [authorities, certificate, _] = files;
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            (text(authorities), text(certificate))
        }
    };
    Ok(json!({ "authorities": authorities, "certificate": certificate }))
}

fn read_to_string(path: &Path) -> Result<String, String> {
    describe(std::fs::read_to_string(path), "read", path)
}

/// Keeps the files as the Secret has them, for ever. A member whose servers speak plaintext has no such directory.
pub(crate) fn keep(credentials: &Credentials) {
    let mut told = None;
    while credentials.tls.is_dir() {
        let provided = provide(credentials).and_then(|()| credentials.provide_certificate());
        let failure = provided.err();
        if let Some(failure) = failure.as_ref().filter(|_| failure != told) {
            eprintln!("{failure}");
        }
        told = failure;
        thread::sleep(PERIOD);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    struct Pod(PathBuf);

    impl Pod {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            fs::create_dir_all(root.join("tls")).unwrap();
            fs::create_dir_all(root.join("secret")).unwrap();
            Self(root)
        }

        /// The Secret holds a certificate that signed itself; returns its key.
        fn sign(&self) -> String {
            let CertifiedKey { cert, signing_key } =
                generate_simple_self_signed(vec!["member".to_owned()]).unwrap();
            let key = signing_key.serialize_pem();
            for (name, text) in [
                ("ca.crt", cert.pem()),
                ("tls.crt", cert.pem()),
                ("tls.key", key.clone()),
            ] {
                fs::write(self.0.join("secret").join(name), text).unwrap();
            }
            key
        }

        fn provide(&self) -> Result<(), String> {
            provide(&Credentials {
                users: self.0.join("users"),
                authorities: self.0.join("authorities"),
                client_port: self.0.join("client-port"),
                identity: self.0.join("secret"),
                tls: self.0.join("tls"),
            })
        }

        fn member(&self) -> Option<String> {
            fs::read_to_string(self.0.join("tls/member.pem")).ok()
        }
    }

    impl Drop for Pod {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_server_gets_key_and_certificate_in_one_file_and_a_new_one_when_the_secret_changes() {
        let pod = Pod::new("server-tls");
        for _ in 0..2 {
            let key = pod.sign();
            pod.provide().unwrap();
            let member = pod.member().unwrap();
            assert!(member.starts_with(&key) && member.contains("BEGIN CERTIFICATE"));
            assert!(pod.0.join("tls/authorities.pem").exists());
        }
    }

    /// The operator compares what it gave with what the member presents.
    #[test]
    fn what_a_member_presents_is_what_the_secret_held_when_it_was_copied() {
        let pod = Pod::new("presented");
        let (secret, tls) = (pod.0.join("secret"), pod.0.join("tls"));
        pod.sign();
        let text = |name: &str| fs::read_to_string(secret.join(name)).unwrap();
        let held = json!({ "authorities": text("ca.crt"), "certificate": text("tls.crt") });
        assert_eq!(presented(&secret, &tls).unwrap(), held);
        pod.provide().unwrap();
        pod.sign();
        assert_eq!(presented(&secret, &tls).unwrap(), held);
        pod.provide().unwrap();
        assert_ne!(presented(&secret, &tls).unwrap(), held);
        let none = pod.0.join("none");
        assert!(presented(&none, &none).is_err());
    }

    #[test]
    fn parts_that_do_not_belong_together_replace_nothing() {
        let pod = Pod::new("server-tls-parts");
        assert!(pod.provide().is_err());
        assert_eq!(pod.member(), None);
        pod.sign();
        pod.provide().unwrap();
        let before = pod.member();
        let certificate = fs::read(pod.0.join("secret/tls.crt")).unwrap();
        pod.sign();
        fs::write(pod.0.join("secret/tls.crt"), certificate).unwrap();
        let failure = pod.provide().unwrap_err();
        assert!(failure.contains("cannot be used"), "{failure}");
        assert_eq!(pod.member(), before);
    }
}
