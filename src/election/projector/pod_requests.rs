//! Requests to pods, in clear and without a body.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

/// Asks the pod at this address once. No redirection is followed, the body of the answer is not read, and the connection is
/// closed with the client.
///
/// # Errors
/// A sentence without its end, if no answer comes within `patience` or none in HTTP.
pub(super) async fn ask(
    address: SocketAddr,
    request: Request<Empty<Bytes>>,
    patience: Duration,
) -> Result<StatusCode, String> {
    let client: Client<HttpConnector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let answer = timeout(patience, client.request(request)).await;
    let answer = answer.map_err(|_| format!("{address} did not answer within {patience:?}"))?;
    let answer = answer.map_err(|error| match error.is_connect() {
        true => format!("{address} takes no connection"),
        false => format!("{address} did not answer in HTTP"),
    })?;
    Ok(answer.status())
}

#[cfg(test)]
pub(super) mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    use super::*;

    /// A server that gives one request this answer, and returns the request.
    pub(in super::super) async fn server(answer: &'static str) -> (SocketAddr, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        (address, server)
    }
}
