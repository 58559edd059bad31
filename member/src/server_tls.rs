//! The files from which the server reads its certificate for TLS to the other servers.
//!
//! ZooKeeper wants key and certificate in one file, and notices a new file only if it is renamed into the directory
//! that it watches (`common/FileChangeWatcher.java`). A Secret volume is neither, so its content is copied: before the
//! server starts, and whenever the Secret changes.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::control::identity;
use crate::files::write_atomically;

/// How often a running member looks for a new certificate. The kubelet takes a minute to show one.
const PERIOD: Duration = Duration::from_secs(5);

/// Puts the files in place as the Secret has them now.
///
/// # Errors
/// When the Secret is incomplete or its parts do not belong together, and nothing is changed; or when a file cannot
/// be written.
pub(crate) fn provide(secret: &Path, tls: &Path) -> Result<(), String> {
    let files = identity::read(secret).and_then(|files| identity::configure(&files).map(|_| files));
    let [authorities, certificate, key] = files.map_err(|error| {
        format!(
            "the member's certificate in {} cannot be used: {error}. The operator writes it; its log says why if it \
             cannot.",
            secret.display()
        )
    })?;
    let member = [key.as_slice(), b"\n", certificate.as_slice()].concat();
    // A new certificate may be signed by an authority that only the new file has.
    write_atomically(&tls.join("authorities.pem"), &authorities, 0o600)?;
    write_atomically(&tls.join("member.pem"), &member, 0o600)
}

/// Keeps the files as the Secret has them, for ever. A member whose servers speak plaintext has no such directory.
pub(crate) fn keep(secret: &Path, tls: &Path) {
    let mut told = None;
    while tls.is_dir() {
        let failure = provide(secret, tls).err();
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
            provide(&self.0.join("secret"), &self.0.join("tls"))
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
