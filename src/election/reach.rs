//! Why no session opens to a ZooKeeper that Bellwether does not run: the client library reports only that
//! it does not.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::credentials::Credentials;

/// How long one host may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many hosts are tried: the first of them show enough.
const MOST_HOSTS: usize = 3;

/// Connects to the hosts of a connect string and returns what fails with each; `None` if nothing
/// does.
pub(super) async fn obstacle(connect_string: &str, credentials: &Credentials) -> Option<String> {
    let mut found = Vec::new();
    for host in hosts(connect_string).take(MOST_HOSTS) {
        let (name, port) = host;
        match timeout(PATIENCE, connect(name, port, credentials)).await {
            Ok(Ok(())) => {}
            Ok(Err(problem)) => found.push(format!("{name}:{port}: {problem}")),
            Err(_) => found.push(format!("{name}:{port}: no answer within {PATIENCE:?}")),
        }
    }
    (!found.is_empty()).then(|| found.join("; "))
}

async fn connect(name: &str, port: u16, credentials: &Credentials) -> Result<(), String> {
    let stream = TcpStream::connect((name, port)).await;
    let stream = stream.map_err(|e| e.to_string())?;
    let config = credentials.tls_config().map_err(|e| e.to_string())?;
    let Some(config) = config else {
        return Ok(());
    };
    let server = ServerName::try_from(name.to_owned()).map_err(|e| e.to_string())?;
    let connected = TlsConnector::from(config).connect(server, stream).await;
    connected.map(|_| ()).map_err(|e| e.to_string())
}

/// The hosts and ports of a connect string.
pub(super) fn hosts(connect_string: &str) -> impl Iterator<Item = (&str, u16)> {
    let hosts = connect_string.split('/').next().unwrap_or_default();
    hosts.split(',').map(|host| {
        let bare = |name: &'_ str| name.len() > 2 && name.starts_with('[') && name.ends_with(']');
        match host.rsplit_once(':') {
            Some((name, port)) if !bare(host) => {
                let name = name.trim_start_matches('[').trim_end_matches(']');
                (name, port.parse().unwrap_or(2181))
            }
            _ => (host.trim_start_matches('[').trim_end_matches(']'), 2181),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_as_clients_read_them() {
        let text = "a.b:2281,c,[::1]:3,[fe80::1]/chroot/d:4";
        let expected = [("a.b", 2281), ("c", 2181), ("::1", 3), ("fe80::1", 2181)];
        assert_eq!(hosts(text).collect::<Vec<_>>(), expected);
    }
}
