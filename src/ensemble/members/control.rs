//! The control port of members: HTTP over mutual TLS, on connections that stay open.

use std::future::ready;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bellwether_ensemble::ServerId;
use bellwether_ensemble::certificates::{AuthorityName, MEMBER, presented};
use bellwether_ensemble::desired::stateful_set::CONTROL_PORT;
use bellwether_ensemble::four_letter::probe_by;
use bellwether_ensemble::ids::ServerList;
use bellwether_ensemble::observation::{Credentials, ServerReport};
use bellwether_ensemble::volume_report::{self, VolumeReport};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::Service;

use crate::certificates::Authorities;
use crate::zookeeper::{self, TIMEOUT};

/// The longest answer that is read, in bytes.
const MAX_ANSWER: usize = zookeeper::MAX_ANSWER as usize;
/// How long a member may take for most answers, and how long they are.
const ANSWER: (Duration, usize) = (TIMEOUT, MAX_ANSWER);
/// The same for lists: those of some ten thousand clients.
const LIST: (Duration, usize) = (Duration::from_secs(3), 8 * 1024 * 1024);
/// The same for a request for another list of servers: longer than the member program waits for its server.
const ACT: (Duration, usize) = (Duration::from_secs(5), MAX_ANSWER);
/// For how long a connection to a leader stays open that nothing is asked on: longer than the time between two looks at
/// an ensemble at rest, so that they cost no handshake.
const IDLE: Duration = Duration::from_secs(25);

type Pool = Client<Connector, Empty<&'static [u8]>>;

/// Asks on the control ports of members.
pub(super) struct Control {
    /// Connections that stay open, to leaders of ensembles at rest.
    kept: Pool,
    /// Connections for one question: thousands of followers that are asked every few minutes would hold much memory.
    closed: Pool,
    authorities: Arc<Authorities>,
}

/// What a member program reports: the answers of its server, and what is on its volumes.
#[derive(Debug, Deserialize)]
pub(super) struct Report {
    srvr: Answer<String>,
    conf: Answer<String>,
    volumes: Answer<Value>,
    /// `None` of a member program of an earlier version.
    certificates: Option<Answer<Certificates>>,
    /// `None` of a member program of an earlier version.
    credentials: Option<Answer<ClientCredentials>>,
}

/// What the server has of its clients.
#[derive(Clone, Debug, Deserialize)]
struct ClientCredentials {
    outdated: bool,
    /// The authority of the certificate of the user's Secret for clients, as PEM.
    client_authority: Option<String>,
}

/// What the member presents to others, as PEM.
#[derive(Clone, Debug, Deserialize)]
struct Certificates {
    authorities: String,
    certificate: String,
}

/// What was answered, or why the question failed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer<T> {
    Answer(T),
    Failure(String),
}

impl<T: Clone> Answer<T> {
    fn known(&self) -> Result<T, String> {
        match self {
            Self::Answer(answer) => Ok(answer.clone()),
            Self::Failure(why) => Err(why.clone()),
        }
    }
}

impl Report {
    /// What the server is, if it is the one with this id.
    pub(super) async fn server(&self, id: ServerId) -> ServerReport {
        let answer = |word| match word {
            "srvr" => self.srvr.known(),
            _ => self.conf.known(),
        };
        probe_by(id, |word| ready(answer(word))).await
    }

    /// What the member presents to others, if it knows.
    pub(super) fn presents(&self) -> Option<String> {
        let known = self.certificates.as_ref()?.known().ok()?;
        Some(presented(&known.authorities, &known.certificate))
    }

    /// What the member says of the users and the authorities of its clients.
    pub(super) fn credentials(&self) -> Credentials {
        match self.credentials.as_ref().map(Answer::known) {
            None
            | Some(Ok(ClientCredentials {
                outdated: false, ..
            })) => Credentials::Current,
            Some(Ok(ClientCredentials { outdated: true, .. })) => Credentials::Outdated,
            Some(Err(why)) => Credentials::Unusable(why),
        }
    }

    /// The authority of the certificate that it presents to clients, if that is of the user's Secret.
    pub(super) fn client_authority(&self) -> Option<String> {
        self.credentials.as_ref()?.known().ok()?.client_authority
    }

    /// What is on the volumes, or why that is not known.
    pub(super) fn volumes(&self) -> Result<VolumeReport, String> {
        volume_report::read(&self.volumes.known()?)
    }
}

impl Control {
    pub(super) fn new(authorities: Arc<Authorities>) -> Self {
        let pool = |idle| {
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(idle)
                .http1_max_buf_size(MAX_ANSWER)
                .build(Connector(authorities.clone()))
        };
        Self {
            kept: pool(1),
            closed: pool(0),
            authorities,
        }
    }

    /// What the server of the member at `address` says of itself; if it leads, also of its learners.
    ///
    /// # Errors
    /// When the member does not answer in time, or answers that it cannot tell.
    pub(super) async fn state(
        &self,
        address: IpAddr,
        authority: &AuthorityName,
    ) -> anyhow::Result<String> {
        self.get(&self.kept, address, authority, "state").await
    }

    /// What the member at `address` reports.
    ///
    /// # Errors
    /// When the member does not answer in time, or its answer makes no sense.
    pub(super) async fn report(
        &self,
        address: IpAddr,
        authority: &AuthorityName,
    ) -> anyhow::Result<Report> {
        let text = self.get(&self.closed, address, authority, "report").await?;
        serde_json::from_str(&text).context("the member's report makes no sense")
    }

    /// What the server of the member at `address` lists, as JSON: its `connections`, or its `watches`. `None` if the member
    /// program is of an earlier version, which does not know.
    ///
    /// # Errors
    /// When the member does not answer in time, or answers that it cannot tell.
    pub(super) async fn list(
        &self,
        address: IpAddr,
        authority: &AuthorityName,
        what: &str,
    ) -> anyhow::Result<Option<String>> {
        let answer = self
            .ask(&self.closed, address, authority, (Method::GET, what), LIST)
            .await?;
        match answer {
            (StatusCode::OK, list) => Ok(Some(list)),
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (_, why) => bail!("{}", why.trim()),
        }
    }

    /// Asks the server of the member at `address` for another list, if the present one has this version.
    ///
    /// # Errors
    /// When the member refuses, or does not answer in time.
    pub(super) async fn reconfigure(
        &self,
        address: IpAddr,
        authority: &AuthorityName,
        list: &ServerList,
        version: u64,
    ) -> anyhow::Result<()> {
        let what = format!("reconfigure?version={version:x}&members={list}");
        let request = (Method::POST, what.as_str());
        let answer = self
            .ask(&self.closed, address, authority, request, ACT)
            .await?;
        match answer {
            (StatusCode::OK, _) => Ok(()),
            (_, why) => bail!("{}", why.trim()),
        }
    }

    async fn get(
        &self,
        pool: &Pool,
        address: IpAddr,
        authority: &AuthorityName,
        what: &str,
    ) -> anyhow::Result<String> {
        let question = (Method::GET, what);
        match self.ask(pool, address, authority, question, ANSWER).await? {
            (StatusCode::OK, text) => Ok(text),
            // The member program says why its server does not answer.
            (_, why) => bail!("{}", why.trim()),
        }
    }

    async fn ask(
        &self,
        pool: &Pool,
        address: IpAddr,
        authority: &AuthorityName,
        (method, what): (Method, &str),
        (patience, longest): (Duration, usize),
    ) -> anyhow::Result<(StatusCode, String)> {
        // Making a key takes time, and the first one needs the API server; neither is the member's time.
        self.authorities.client(authority).await?;
        let uri = uri(address, authority, what)?;
        let answer = async {
            let mut request = Request::new(Empty::new());
            (*request.method_mut(), *request.uri_mut()) = (method, uri);
            let answer = pool.request(request).await.map_err(innermost)?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), longest);
            let bytes = body.collect().await;
            let bytes = bytes.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
            Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
        };
        match timeout(patience, answer).await {
            Ok(answer) => answer,
            Err(_) => bail!("no answer within {patience:?}"),
        }
    }
}

/// The error at the end of the chain: the others say that connecting failed.
fn innermost(error: Error) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    let cause = error.root_cause().to_string();
    anyhow::anyhow!(cause)
}

/// The name of a member, by which connections are told apart: one to the same address of another ensemble is another
/// one. No part of it holds a dot.
fn uri(address: IpAddr, authority: &AuthorityName, what: &str) -> anyhow::Result<Uri> {
    let AuthorityName {
        namespace,
        ensemble,
        id,
        other,
    } = authority;
    let ids = match other {
        Some(other) => format!("{id}-{other}"),
        None => id.clone(),
    };
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let address = u128::from(address);
    let uri = format!("https://{address:032x}.{ids}.{ensemble}.{namespace}/{what}");
    uri.parse().context("the name of a member is malformed")
}

/// The inverse of [`uri`].
fn parse(uri: &Uri) -> Option<(IpAddr, AuthorityName)> {
    let mut parts = uri.host()?.split('.');
    let address = u128::from_str_radix(parts.next()?, 16).ok()?;
    let [ids, ensemble, namespace] = [parts.next()?, parts.next()?, parts.next()?];
    let (id, other) = match ids.split_once('-') {
        Some((id, other)) => (id, Some(other.to_owned())),
        None => (ids, None),
    };
    let authority = AuthorityName {
        namespace: namespace.to_owned(),
        ensemble: ensemble.to_owned(),
        id: id.to_owned(),
        other,
    };
    Some((Ipv6Addr::from(address).to_canonical(), authority))
}

/// Connects to members.
#[derive(Clone)]
struct Connector(Arc<Authorities>);

impl Service<Uri> for Connector {
    type Response = TokioIo<Secured>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let authorities = self.0.clone();
        async move {
            let (address, authority) = parse(&uri).ok_or(io::ErrorKind::InvalidInput)?;
            let config = authorities.client(&authority).await;
            let config = config.map_err(io::Error::other)?;
            let connect = async {
                let stream = TcpStream::connect((address, CONTROL_PORT)).await?;
                stream.set_nodelay(true)?;
                let name = ServerName::try_from(MEMBER).map_err(io::Error::other)?;
                TlsConnector::from(config).connect(name, stream).await
            };
            // The pool goes on connecting when the request has ended without an answer.
            let stream = timeout(TIMEOUT, connect).await??;
            Ok(TokioIo::new(Secured(stream)))
        }
        .boxed()
    }
}

/// A connection to a member that has shown its certificate.
struct Secured(TlsStream<TcpStream>);

impl Connection for Secured {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_member_reads_back() {
        let authority = |other: Option<&str>| AuthorityName {
            namespace: "a-shop".to_owned(),
            ensemble: "zk-1".to_owned(),
            id: "0a1b".to_owned(),
            other: other.map(str::to_owned),
        };
        for (address, authority) in [
            ("10.0.0.7", authority(None)),
            ("fd00::7", authority(Some("2c3d"))),
            ("::1", authority(None)),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let uri = uri(address, &authority, "state").unwrap();
            assert_eq!(uri.path(), "/state");
            assert_eq!(parse(&uri), Some((address, authority.clone())));
        }
    }
}
