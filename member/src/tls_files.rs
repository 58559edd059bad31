//! The files from which the server reads its certificates: the one for the other servers, and the one for clients.
//!
//! ZooKeeper wants key and certificate in one file, and notices a new file only if it is renamed into the directory
//! that it watches (`common/FileChangeWatcher.java`). A Secret volume is neither, so its content is copied: before the
//! server starts, and whenever the Secret changes. A server that runs gets one file at a time, and again until it has
//! taken it up ([`crate::taken_up`]).

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::control::identity;
use serde_json::{Value, json};

use crate::credentials::Credentials;
use crate::files::{describe, read_if_there, remove_if_there, replace, write_atomically};
use crate::taken_up::{Shown, look};

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

/// There from the moment that a file is replaced under a server until that shows that it has taken it up. Why the member
/// cannot say what its server presents; empty if no server listens.
const PENDING: &str = "not-taken-up";
/// The pauses before the server is asked whether it has taken up a file. Each time costs a warning in its log.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
];

/// Puts the files in place as the Secret has them now, for a server that does not run yet.
///
/// # Errors
/// When the Secret is incomplete or its parts do not belong together, and nothing is changed; or when a file cannot
/// be written.
pub(crate) fn provide(credentials: &Credentials) -> Result<(), String> {
    renew(credentials, None)
}

/// As [`provide`], under the server that listens for elections at this address. A Secret of an earlier operator version
/// has no certificate for clients.
///
/// # Errors
/// Also when the server has not taken up a file; those for clients are in place all the same.
fn renew(credentials: &Credentials, elections: Option<SocketAddr>) -> Result<(), String> {
    let (secret, tls) = (&credentials.identity, &credentials.tls);
    let files = identity::read(secret).and_then(|files| identity::configure(&files).map(|_| files));
    let files = files.map_err(|error| {
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
    if let Some([authorities, certificate, key]) = for_clients {
        write_atomically(&tls.join("client-authorities.pem"), &authorities, 0o600)?;
        if !credentials.has_certificate() {
            write_atomically(&tls.join(CLIENT_PORT), &joined(&key, &certificate), 0o600)?;
        }
    }
    if let Some(server) = elections {
        return hand_over(&files, tls, server);
    }
    let [authorities, certificate, key] = &files;
    write_atomically(&tls.join(AUTHORITIES), authorities, 0o600)?;
    write_atomically(&tls.join(MEMBER), &joined(key, certificate), 0o600)
}

/// Whether two servers show the same of what a file holds.
type Agree = fn(&Shown, &Shown) -> bool;

/// Gives the server the files that it does not have, one after the other.
///
/// # Errors
/// When it has not taken up one of them, or a file cannot be written.
fn hand_over(files: &identity::Files, tls: &Path, server: SocketAddr) -> Result<(), String> {
    let wanted = Shown::of(files).map_err(|error| error.to_string())?;
    let [authorities, certificate, key] = files;
    let member = joined(key, certificate);
    let pending = tls.join(PENDING);
    let mut listens = true;
    // A new certificate may be signed by an authority that only the new file has.
    let in_order: [(&str, &[u8], Agree); 2] = [
        (AUTHORITIES, authorities, Shown::same_authorities),
        (MEMBER, &member, Shown::same_certificate),
    ];
    for (name, content, agree) in in_order {
        let path = tls.join(name);
        let shows = |pause| {
            thread::sleep(pause);
            match look(server, files) {
                Ok(Some(shown)) if agree(&shown, &wanted) => Ok(true),
                Ok(Some(_)) => Err("it shows what it had before".to_owned()),
                Ok(None) => Ok(false),
                Err(error) => Err(error.to_string()),
            }
        };
        let is_there = read_if_there(&path)?.as_deref() == Some(content);
        if is_there && !pending.exists() {
            continue;
        }
        let mut shown = Err(String::new());
        if is_there {
            shown = shows(Duration::ZERO);
        }
        if shown.is_err() {
            let why = format!("the server has not taken up {name} yet, and is given it again");
            write_atomically(&pending, why.as_bytes(), 0o600)?;
            replace(&path, content, 0o600)?;
            for pause in PAUSES {
                shown = shows(pause);
                if shown.is_ok() {
                    break;
                }
            }
        }
        listens &= shown.map_err(|why| {
            format!("the server at {server} has not taken up {name}, and is given it again: {why}")
        })?;
    }
    if listens {
        remove_if_there(&pending).map(drop)
    } else if pending.exists() {
        write_atomically(&pending, b"", 0o600)
    } else {
        Ok(())
    }
}

/// Key and certificate in one file.
pub(crate) fn joined(key: &[u8], certificate: &[u8]) -> Vec<u8> {
    [key, b"\n", certificate].concat()
}

/// What this member presents to others, as PEM: the authorities that it trusts, and its certificate. A member without a
/// directory for its server presents what the Secret holds.
///
/// # Errors
/// Also when the server has not taken up its files.
pub(crate) fn presented(secret: &Path, tls: &Path) -> Result<Value, String> {
    let pending = read_if_there(&tls.join(PENDING))?.unwrap_or_default();
    if !pending.is_empty() {
        return Err(String::from_utf8_lossy(&pending).into_owned());
    }
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
/// `elections` is where the server listens for elections, if it speaks TLS there.
pub(crate) fn keep(credentials: &Credentials, elections: Option<SocketAddr>) {
    let mut told = None;
    while credentials.tls.is_dir() {
        let for_clients = credentials.provide_certificate();
        let failure = renew(credentials, elections).and(for_clients).err();
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
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;

    use rcgen::{CertificateParams, DnType, KeyPair};
    use rustls::ServerConnection;

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
            let mut params = CertificateParams::new(vec!["member".to_owned()]).unwrap();
            let signing_key = KeyPair::generate().unwrap();
            // Each authority has another subject.
            let subject = signing_key.serialize_pem();
            params.distinguished_name.push(DnType::CommonName, subject);
            let cert = params.self_signed(&signing_key).unwrap();
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
            provide(&self.credentials())
        }

        fn credentials(&self) -> Credentials {
            Credentials {
                users: self.0.join("users"),
                super_user: None,
                authorities: self.0.join("authorities"),
                client_port: self.0.join("client-port"),
                identity: self.0.join("secret"),
                tls: self.0.join("tls"),
            }
        }

        fn presented(&self) -> Result<Value, String> {
            presented(&self.0.join("secret"), &self.0.join("tls"))
        }

        /// Starts a server that takes up both files when one is replaced, but not the first `missed` times.
        fn start(&self, mut missed: usize) -> SocketAddr {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = listener.local_addr().unwrap();
            let tls = self.0.join("tls");
            let state = move || {
                let inode = |name| fs::metadata(tls.join(name)).unwrap().ino();
                let member = fs::read_to_string(tls.join(MEMBER)).unwrap();
                let (key, certificate) = member.split_at(member.find(CERTIFICATE).unwrap());
                let authorities = fs::read(tls.join(AUTHORITIES)).unwrap();
                let files = [authorities, certificate.into(), key.into()];
                ((inode(AUTHORITIES), inode(MEMBER)), files)
            };
            let (mut seen, mut files) = state();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let (now, on_disk) = state();
                    if now != seen && missed == 0 {
                        files = on_disk;
                    } else if now != seen {
                        missed -= 1;
                    }
                    seen = now;
                    let config = identity::configure(&files).unwrap();
                    let mut connection = ServerConnection::new(config).unwrap();
                    let mut stream = stream.unwrap();
                    while connection
                        .complete_io(&mut stream)
                        .is_ok_and(|n| n != (0, 0))
                    {}
                }
            });
            address
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
    fn a_server_gets_its_files_again_until_it_presents_them() {
        let pod = Pod::new("taken-up");
        pod.sign();
        pod.provide().unwrap();
        let server = pod.start(2);
        pod.sign();
        let held = || fs::read_to_string(pod.0.join("secret/tls.crt")).unwrap();
        // It trusts what it trusted before, so its certificate is not even replaced.
        for _ in 0..2 {
            let member = pod.member();
            let failure = renew(&pod.credentials(), Some(server)).unwrap_err();
            assert!(failure.contains("authorities.pem"), "{failure}");
            assert_eq!(pod.member(), member);
            let unknown = pod.presented().unwrap_err();
            assert!(unknown.contains("not taken up"), "{unknown}");
        }
        renew(&pod.credentials(), Some(server)).unwrap();
        assert_eq!(pod.presented().unwrap()["certificate"], held());
        assert!(!pod.0.join("tls").join(PENDING).exists());
    }

    #[test]
    fn what_no_server_showed_before_this_program_restarted_is_looked_at_again() {
        let pod = Pod::new("restarted");
        pod.sign();
        pod.provide().unwrap();
        let server = pod.start(0);
        pod.sign();
        renew(&pod.credentials(), Some(server)).unwrap();
        fs::write(pod.0.join("tls").join(PENDING), "the reason").unwrap();
        assert_eq!(pod.presented().unwrap_err(), "the reason");
        renew(&pod.credentials(), Some(server)).unwrap();
        pod.presented().unwrap();
    }

    #[test]
    fn where_no_server_listens_the_files_count_and_are_looked_at_later() {
        let pod = Pod::new("nobody-listens");
        pod.sign();
        pod.provide().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let nobody = listener.local_addr().unwrap();
        drop(listener);
        pod.sign();
        renew(&pod.credentials(), Some(nobody)).unwrap();
        pod.presented().unwrap();
        assert!(pod.0.join("tls").join(PENDING).exists());
        let server = pod.start(0);
        renew(&pod.credentials(), Some(server)).unwrap();
        assert!(!pod.0.join("tls").join(PENDING).exists());
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
