//! The operator and others, on the loopback interface.

use std::net::{Ipv4Addr, SocketAddr};

use rcgen::{CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use std::path::PathBuf;

use super::*;

const MEMBER: &str = "member.zookeeper.bellwether.dev";
const OPERATOR: &str = "operator.zookeeper.bellwether.dev";

/// An authority, as PEM with what it signs.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    /// A certificate with this name, and its key.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A client that trusts this authority, with such a certificate.
    fn client(&self, identity: Option<(String, String)>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config
                    .with_client_auth_cert(vec![certificate], key)
                    .unwrap()
            }
        })
    }
}

/// A member program.
struct Member {
    authority: Authority,
    directory: PathBuf,
    port: u16,
}

impl Member {
    fn start(name: &str) -> Self {
        let name = format!("member-control-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let member = Self {
            authority: Authority::new(),
            directory,
            port,
        };
        member.present(&member.authority);
        let volumes = Volumes {
            data: std::env::temp_dir(),
            datalog: "/nonexistent".into(),
        };
        // Nothing listens on the port of the server.
        let credentials = Credentials {
            users: "/nonexistent".into(),
            super_user: None,
            authorities: "/nonexistent".into(),
            client_port: "/nonexistent".into(),
            identity: member.directory.clone(),
            tls: "/nonexistent".into(),
        };
        let control = Arc::new(Control::new(1, "/nonexistent".into(), volumes, credentials));
        thread::spawn(move || control.run(&listener));
        member
    }

    /// The Secret changes to a certificate of this authority.
    fn present(&self, authority: &Authority) {
        let (certificate, key) = authority.issue(MEMBER);
        for (name, text) in [
            ("ca.crt", &authority.pem),
            ("tls.crt", &certificate),
            ("tls.key", &key),
        ] {
            std::fs::write(self.directory.join(name), text).unwrap();
        }
    }

    fn operator(&self) -> Arc<ClientConfig> {
        self.authority.client(Some(self.authority.issue(OPERATOR)))
    }

    fn connect(&self, config: Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        socket.set_read_timeout(Some(2 * PATIENCE)).unwrap();
        let name = ServerName::try_from(MEMBER).unwrap();
        StreamOwned::new(ClientConnection::new(config, name).unwrap(), socket)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Sends a question, and reads the answer.
fn get(stream: &mut (impl Read + Write), path: &str) -> io::Result<String> {
    request(stream, "GET", path)
}

/// Sends a request, and reads the answer.
fn request(stream: &mut (impl Read + Write), method: &str, path: &str) -> io::Result<String> {
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: member\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|l| l.strip_prefix("Content-Length: "));
        if body.len() == length.unwrap().parse::<usize>().unwrap() {
            return Ok(text);
        }
    }
}

#[test]
fn the_operator_is_answered_again_and_again_on_one_connection() {
    let member = Member::start("answers");
    let mut stream = member.connect(member.operator());
    let report = get(&mut stream, "/report").unwrap();
    assert!(report.starts_with("HTTP/1.1 200 "), "{report}");
    assert!(report.contains(r#""database":"#), "{report}");
    let certificate = std::fs::read_to_string(member.directory.join("tls.crt")).unwrap();
    let certificate = serde_json::to_string(&certificate).unwrap();
    let shown = format!(r#""certificate":{certificate}"#);
    assert!(report.contains(&shown), "{report}");
    let unknown = r#""failure":"cannot connect"#;
    assert_eq!(report.matches(unknown).count(), 2, "{report}");
    let text = get(&mut stream, "/state").unwrap();
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    assert!(text.contains("cannot connect"), "{text}");
    for path in ["/ready", "/volumes", "/cons", "/../state"] {
        let text = get(&mut stream, path).unwrap();
        assert!(text.starts_with("HTTP/1.1 404 "), "{text}");
    }
}

#[test]
fn nobody_but_the_operator_is_answered() {
    let member = Member::start("refuses");
    let own = &member.authority;
    let foreign = Authority::new();
    let mut pretender = foreign.client(Some(foreign.issue(OPERATOR)));
    // It does not care whom it talks to.
    Arc::make_mut(&mut pretender)
        .dangerous()
        .set_certificate_verifier(Arc::new(Anybody));
    for (who, config) in [
        ("no certificate", own.client(None)),
        ("another member", own.client(Some(own.issue(MEMBER)))),
        (
            "another name",
            own.client(Some(own.issue("operator.example.com"))),
        ),
        ("another authority", pretender),
    ] {
        let answer = get(&mut member.connect(config), "/report");
        assert!(answer.is_err(), "{who}: {answer:?}");
    }
    let mut plain = TcpStream::connect((Ipv4Addr::LOCALHOST, member.port)).unwrap();
    let answer = get(&mut plain, "/report");
    assert!(answer.is_err(), "plain: {answer:?}");
    assert!(get(&mut member.connect(member.operator()), "/report").is_ok());
}

#[test]
fn a_renewed_certificate_is_presented_to_the_next_connection_and_a_broken_one_is_not() {
    let mut member = Member::start("renews");
    let mut before = member.connect(member.operator());
    get(&mut before, "/report").unwrap();
    let renewed = Authority::new();
    member.present(&renewed);
    assert!(get(&mut member.connect(member.operator()), "/report").is_err());
    member.authority = renewed;
    assert!(get(&mut member.connect(member.operator()), "/report").is_ok());
    assert!(
        get(&mut before, "/report").is_ok(),
        "the open connection ended"
    );
    for broken in [
        "",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    ] {
        std::fs::write(member.directory.join("tls.key"), broken).unwrap();
        assert!(get(&mut member.connect(member.operator()), "/report").is_ok());
    }
    std::fs::remove_file(member.directory.join("ca.crt")).unwrap();
    assert!(get(&mut member.connect(member.operator()), "/report").is_ok());
}

#[test]
fn a_crowd_closes_neither_the_door_nor_the_operators_connection() {
    let member = Member::start("crowd");
    let mut open = member.connect(member.operator());
    get(&mut open, "/report").unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, member.port));
    let crowd: Vec<TcpStream> = (0..4 * connections::MOST)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    assert!(get(&mut open, "/report").is_ok());
    assert!(get(&mut member.connect(member.operator()), "/report").is_ok());
    let mut closed = 0;
    for stream in &crowd {
        stream.set_nonblocking(true).unwrap();
        let mut stream = stream;
        closed += usize::from(matches!(stream.read(&mut [0; 1]), Ok(0)));
    }
    assert!(closed >= 3 * connections::MOST - 2, "{closed} are closed");
}

#[test]
fn who_sends_slowly_or_without_end_is_cut_off() {
    let member = Member::start("slow");
    let since = Instant::now();
    let mut slow = TcpStream::connect((Ipv4Addr::LOCALHOST, member.port)).unwrap();
    slow.set_read_timeout(Some(PATIENCE / 30)).unwrap();
    while slow
        .read(&mut [0; 64])
        .is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
    {
        assert!(since.elapsed() < 2 * PATIENCE, "it drips for ever");
        let _ = slow.write_all(&[22]);
    }
    let mut endless = member.connect(member.operator());
    get(&mut endless, "/report").unwrap();
    let mut sent = 0;
    while endless
        .write_all(&[b'x'; 1024])
        .and_then(|()| endless.flush())
        .is_ok()
    {
        sent += 1024;
        assert!(sent < 64 * 1024 * 1024, "{sent} bytes were read");
    }
}

/// Trusts every server.
#[derive(Debug)]
struct Anybody;

impl rustls::client::danger::ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> std::result::Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> std::result::Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> std::result::Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

#[test]
fn a_list_is_only_asked_for_in_so_many_words_and_where_lists_change_at_run_time() {
    let member = Member::start("reconfigures");
    let mut stream = member.connect(member.operator());
    let mut post = |path: &str| request(&mut stream, "POST", path).unwrap();
    let answer = post("/reconfigure?members=1,2");
    assert!(answer.contains("needs the version"), "{answer}");
    let answer = post("/reconfigure?version=100000000&members=1,2");
    assert!(answer.contains("file of the operator's"), "{answer}");
    assert!(post("/report").starts_with("HTTP/1.1 404"));
    let mut stream = member.connect(member.operator());
    let answer = get(&mut stream, "/reconfigure?version=1&members=1").unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}
