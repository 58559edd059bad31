//! Asking one ZooKeeper server what it is: the four-letter words over TCP.

use std::net::IpAddr;
use std::time::Duration;

use bellwether_ensemble::desired::config::CLIENT_PORT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a server may take for one answer. A server that cannot answer within this time is not
/// one to rely on for a majority.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);

/// The longest answer that is read; `conf` of 13 servers has about 2 KiB.
pub(crate) const MAX_ANSWER: u64 = 64 * 1024;

/// Asks the server at `address` for what a four-letter word stands for: at most `most` bytes, within
/// this time.
pub(crate) async fn ask_for(
    address: IpAddr,
    word: &str,
    patience: Duration,
    most: u64,
) -> anyhow::Result<String> {
    let answer = async {
        let mut stream = TcpStream::connect((address, CLIENT_PORT)).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut bytes = Vec::new();
        stream.take(most).read_to_end(&mut bytes).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    match tokio::time::timeout(patience, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => anyhow::bail!("no answer within {patience:?}"),
    }
}
