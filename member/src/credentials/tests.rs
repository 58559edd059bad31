use std::fs;

use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair};

use super::*;

struct Pod(PathBuf);

impl Pod {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        for directory in ["identity", "tls"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        let pod = Self(root);
        fs::write(pod.0.join("identity/client-ca.crt"), authority("operator")).unwrap();
        pod
    }

    fn credentials(&self) -> Credentials {
        let at = |name: &str| self.0.join(name);
        Credentials {
            users: at("users"),
            super_user: None,
            authorities: at("authorities"),
            client_port: at("client-port"),
            identity: at("identity"),
            tls: at("tls"),
        }
    }

    fn write(&self, file: &str, content: &str) {
        let file = self.0.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    fn written(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.0.join("tls").join(name)).ok()
    }

    fn refusal(&self) -> String {
        let refused = self.credentials().provide().unwrap_err();
        assert_eq!(self.credentials().are_outdated(), Err(refused.clone()));
        refused
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The certificate of an authority of this name.
fn authority(name: &str) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem()
}

#[test]
fn clients_that_need_not_prove_who_they_are_cost_no_file() {
    let pod = Pod::new("credentials-none");
    pod.credentials().provide().unwrap();
    assert_eq!(pod.credentials().are_outdated(), Ok(None));
    assert_eq!((pod.written(JAAS), pod.written(TRUST)), (None, None));
}

#[test]
fn users_are_written_as_java_reads_them_and_a_change_is_told() {
    let pod = Pod::new("credentials-users");
    pod.write("users/alice", r#"a "b" \ ;"#);
    pod.write("users/b.o-b", "pw");
    let credentials = pod.credentials();
    assert_eq!(credentials.are_outdated(), Ok(Some(true)));
    credentials.provide().unwrap();
    assert_eq!(credentials.are_outdated(), Ok(Some(false)));
    let expected = r#"Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required
  user_alice="a \"b\" \\ ;"
  user_b.o-b="pw";
};
"#;
    assert_eq!(pod.written(JAAS).as_deref(), Some(expected));
    // The operator's mirror is a client, too.
    assert!(pod.written(TRUST).unwrap().contains("BEGIN CERTIFICATE"));
    pod.write("users/alice", "another");
    assert_eq!(credentials.are_outdated(), Ok(Some(true)));
}

#[test]
fn a_super_user_without_a_password_is_told() {
    let pod = Pod::new("credentials-super-user");
    pod.write("users/alice", "pw");
    let credentials = Credentials {
        super_user: Some("admin".to_owned()),
        ..pod.credentials()
    };
    let refused = credentials.provide().unwrap_err();
    assert!(refused.contains("has no key admin"), "{refused}");
    assert_eq!(pod.written(JAAS), None);
    pod.write("users/admin", "pw");
    credentials.provide().unwrap();
}

#[test]
fn authorities_are_trusted_beside_the_operators_own() {
    let pod = Pod::new("credentials-authorities");
    let added = authority("bank");
    pod.write("authorities/ca.crt", &added);
    pod.credentials().provide().unwrap();
    let trust = pod.written(TRUST).unwrap();
    assert_eq!(trust.matches("BEGIN CERTIFICATE").count(), 2);
    assert!(trust.ends_with(&added));
    pod.write("authorities/ca.crt", &(added + &authority("another")));
    assert_eq!(pod.credentials().are_outdated(), Ok(Some(true)));
}

#[test]
fn what_cannot_be_used_is_told_and_replaces_nothing() {
    let pod = Pod::new("credentials-bad");
    fs::create_dir_all(pod.0.join("users")).unwrap();
    assert!(pod.refusal().contains("does not exist, or is empty"));
    pod.write("users/alice", "good");
    pod.credentials().provide().unwrap();
    let before = pod.written(JAAS);
    for (password, why) in [
        ("", "is empty"),
        ("secret\n", "line break"),
        ("sécret", "printable ASCII"),
        ("a\0b", "printable ASCII"),
        ("${java.home}", "Java would replace"),
    ] {
        pod.write("users/alice", password);
        let refusal = pod.refusal();
        assert!(refusal.contains(why), "{refusal}");
        assert!(refusal.contains("alice"), "{refusal}");
        assert!(
            password.is_empty() || !refusal.contains(password),
            "{refusal}"
        );
    }
    pod.write("users/alice", &"x".repeat(MOST + 1));
    assert!(pod.refusal().contains("more than"));
    assert_eq!(pod.written(JAAS), before);

    let pod = Pod::new("credentials-bad-authorities");
    fs::create_dir_all(pod.0.join("authorities")).unwrap();
    assert!(pod.refusal().contains("has no key ca.crt"));
    for (pem, why) in [
        ("no PEM", "no certificate"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "cannot be read",
        ),
        (&*authority("operator"), "same subject"),
    ] {
        pod.write("authorities/ca.crt", pem);
        let refusal = pod.refusal();
        assert!(refusal.contains(why), "{refusal}");
    }
    assert_eq!(pod.written(TRUST), None);
    fs::remove_file(pod.0.join("identity/client-ca.crt")).unwrap();
    assert!(pod.refusal().contains("The operator writes it"));
}

/// The Secret is what cert-manager writes: a certificate until this year, and its key. Returns that of its authority.
fn write_certificate(pod: &Pod, until: i32) -> String {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority
        .distinguished_name
        .push(DnType::CommonName, "shop");
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::new(vec!["zk".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().unwrap();
    pod.write("client-port/ca.crt", &issuer.pem());
    pod.write(
        "client-port/tls.crt",
        &params.signed_by(&key, &issuer).unwrap().pem(),
    );
    pod.write("client-port/tls.key", &key.serialize_pem());
    issuer.pem()
}

#[test]
fn the_users_certificate_for_clients_is_taken_up_as_it_changes_and_needs_no_restart() {
    let pod = Pod::new("credentials-certificate");
    for _ in 0..2 {
        let authority = write_certificate(&pod, 4096);
        pod.credentials().provide().unwrap();
        let told = pod.credentials().state().unwrap().client_authority;
        assert_eq!(told, Some(authority));
        let written = pod.written(CLIENT_PORT).unwrap();
        let certificate = fs::read_to_string(pod.0.join("client-port/tls.crt")).unwrap();
        assert!(written.starts_with("-----BEGIN PRIVATE KEY") && written.ends_with(&certificate));
        assert_eq!(pod.credentials().are_outdated(), Ok(None));
    }
}

#[test]
fn a_certificate_that_clients_could_not_trust_replaces_nothing() {
    let pod = Pod::new("credentials-certificate-bad");
    fs::create_dir_all(pod.0.join("client-port")).unwrap();
    assert!(pod.refusal().contains("tls.crt, tls.key and ca.crt"));
    write_certificate(&pod, 4096);
    pod.credentials().provide().unwrap();
    let before = pod.written(CLIENT_PORT);
    pod.write("client-port/ca.crt", &authority("another"));
    assert!(pod.refusal().contains("UnknownIssuer"), "{}", pod.refusal());
    write_certificate(&pod, 1990);
    assert!(pod.refusal().contains("expired") || pod.refusal().contains("Expired"));
    let key = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";
    pod.write("client-port/tls.key", key);
    assert!(pod.refusal().contains("not PKCS#8"));
    assert_eq!(pod.written(CLIENT_PORT), before);
}
