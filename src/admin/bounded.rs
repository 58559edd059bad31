//! An HTTP server of which no client can take more than its share: what listens here is asked by kubelets, whose probes
//! decide whether the operator is killed, and can be reached by others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// How long to wait when the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);
/// How much of a request's head is read.
const HEAD: usize = 16 * 1024;

/// What clients may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How many connections are open at once.
    pub(super) connections: usize,
    /// How long a client may take for the handshake of TLS, for the head of a request, and be silent before the next one.
    pub(super) head: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            head: Duration::from_secs(30),
        }
    }
}

/// Answers until `shutdown`.
pub(super) async fn serve(
    listener: TcpListener,
    app: Router,
    tls: Option<Arc<ServerConfig>>,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let tls = tls.map(TlsAcceptor::from);
    let mut open = Open::default();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => return,
        };
        let Ok((stream, from)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let (app, tls) = (app.clone(), tls.clone());
        let task = tokio::spawn(async move {
            match tls {
                None => answer(stream, app, limits).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) = timeout(limits.head, tls.accept(stream)).await {
                        answer(stream, app, limits).await;
                    }
                }
            }
        });
        open.admit(from.ip().to_canonical(), task.abort_handle(), limits);
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    app: Router,
    limits: Limits,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD);
    let service = TowerToHyperService::new(app);
    // An error only means that the client went away or was too slow.
    drop(http.serve_connection(TokioIo::new(stream), service).await);
}

/// The connections that are open, the oldest first.
#[derive(Default)]
struct Open(Vec<(IpAddr, AbortHandle)>);

impl Open {
    /// Admits a connection. If there are too many, closes the oldest one of the address that has most of them.
    fn admit(&mut self, from: IpAddr, task: AbortHandle, limits: Limits) {
        self.0.retain(|(_, task)| !task.is_finished());
        self.0.push((from, task));
        if self.0.len() <= limits.connections {
            return;
        }
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (from, _) in &self.0 {
            *counts.entry(*from).or_default() += 1;
        }
        let most = counts.values().max().copied().unwrap_or_default();
        let crowds = |(from, _): &(IpAddr, AbortHandle)| counts.get(from) == Some(&most);
        if let Some(place) = self.0.iter().position(crowds) {
            self.0.remove(place).1.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpSocket, TcpStream};

    use super::*;

    async fn started(limits: Limits) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/livez", get(|| async { "ok\n" }));
        tokio::spawn(serve(listener, app, None, limits, std::future::pending()));
        address
    }

    async fn connect(from: &str, to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        socket.connect(to).await.unwrap()
    }

    async fn get_livez(stream: &mut TcpStream) -> String {
        let request = b"GET /livez HTTP/1.1\r\nHost: operator\r\n\r\n";
        let _ = stream.write_all(request).await;
        let mut answer = [0; 1024];
        let n = stream.read(&mut answer).await.unwrap_or_default();
        String::from_utf8_lossy(&answer[..n]).into_owned()
    }

    #[tokio::test]
    async fn a_client_that_does_not_finish_its_request_is_left() {
        let limits = Limits {
            head: Duration::from_millis(100),
            ..Limits::default()
        };
        let mut stream = connect("127.0.0.1", started(limits).await).await;
        stream.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
        let mut rest = Vec::new();
        // It ends, with or without an answer.
        let _ = stream.read_to_end(&mut rest).await;
        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(!rest.contains(" 200 "), "{rest}");
    }

    /// A probe is answered though another address holds all connections.
    #[tokio::test]
    async fn who_holds_all_connections_loses_one_of_them() {
        let limits = Limits {
            connections: 4,
            ..Limits::default()
        };
        let address = started(limits).await;
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut stream = connect("127.0.0.1", address).await;
            assert!(get_livez(&mut stream).await.ends_with("ok\n"));
            held.push(stream);
        }
        let mut kubelet = connect("127.0.0.2", address).await;
        assert!(get_livez(&mut kubelet).await.ends_with("ok\n"));
        assert_eq!(get_livez(&mut held[0]).await, "");
        for stream in &mut held[1..] {
            assert!(get_livez(stream).await.ends_with("ok\n"));
        }
        assert!(get_livez(&mut kubelet).await.ends_with("ok\n"));
    }
}
