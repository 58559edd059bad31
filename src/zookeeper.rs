//! Asking one ZooKeeper server what it is: the four-letter words over TCP.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Duration;

use bellwether_ensemble::desired::config::CLIENT_PORT;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
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
    ask_on(
        TcpStream::connect((address, CLIENT_PORT)),
        word,
        patience,
        most,
    )
    .await
}

/// The same on a connection that is made within that time.
pub(crate) async fn ask_on<S: AsyncRead + AsyncWrite + Unpin>(
    connect: impl Future<Output = std::io::Result<S>>,
    word: &str,
    patience: Duration,
    most: u64,
) -> anyhow::Result<String> {
    let answer = async {
        let mut stream = connect.await?;
        stream.write_all(word.as_bytes()).await?;
        let mut bytes = Vec::new();
        match stream.take(most).read_to_end(&mut bytes).await {
            // ZooKeeper ends TLS without saying so.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
            read => drop(read?),
        }
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    match tokio::time::timeout(patience, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => anyhow::bail!("no answer within {patience:?}"),
    }
}
