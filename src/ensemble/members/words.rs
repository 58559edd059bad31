//! Members in pods that an earlier operator version made: their servers over the client port, their member programs
//! over the port of the probes, both in clear.

use std::net::IpAddr;

use bellwether_ensemble::ServerId;
use bellwether_ensemble::desired::stateful_set::PROBE_PORT;
use bellwether_ensemble::four_letter::probe_by;
use bellwether_ensemble::observation::ServerReport;
use bellwether_ensemble::volume_report::{self, VolumeReport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::zookeeper::{MAX_ANSWER, TIMEOUT, ask_for};

/// Asks the server at `address` for what a four-letter word stands for.
pub(super) async fn ask(address: IpAddr, word: &str) -> anyhow::Result<String> {
    ask_for(address, word, TIMEOUT, MAX_ANSWER).await
}

/// What the server is, if it has this id, and what the member program reports of the volumes; `None` when it does not
/// know the question, because an older operator version made the pod.
pub(super) async fn report(
    address: IpAddr,
    id: ServerId,
) -> (ServerReport, Option<Result<VolumeReport, String>>) {
    let server = probe_by(id, |word| ask(address, word));
    let (server, volumes) = futures::join!(server, timeout(TIMEOUT, volumes(address)));
    let volumes = volumes.ok().flatten();
    (server, volumes.map(|text| volume_report::parse(&text)))
}

/// What the member program reports of the volumes.
async fn volumes(address: IpAddr) -> Option<String> {
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
