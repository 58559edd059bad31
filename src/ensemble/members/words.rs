//! Members in pods that an earlier operator version made: their servers over the client port, their member programs
//! over the port of the probes, both in clear.

use std::net::IpAddr;

use bellwether_ensemble::desired::stateful_set::PROBE_PORT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::zookeeper::{MAX_ANSWER, TIMEOUT, ask_for};

/// Asks the server at `address` for what a four-letter word stands for.
pub(super) async fn ask(address: IpAddr, word: &str) -> anyhow::Result<String> {
    ask_for(address, word, TIMEOUT, MAX_ANSWER).await
}

/// What the member program reports of the volumes.
pub(super) async fn volumes(address: IpAddr) -> Option<String> {
    let mut stream = TcpStream::connect((address, PROBE_PORT)).await.ok()?;
    let request = b"GET /volumes HTTP/1.0\r\n\r\n";
    stream.write_all(request).await.ok()?;
    let mut bytes = Vec::new();
    let mut stream = stream.take(MAX_ANSWER);
    stream.read_to_end(&mut bytes).await.ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    (head.split(' ').nth(1) == Some("200")).then(|| body.to_owned())
}
