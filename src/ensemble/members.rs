//! How the operator asks members: their servers over the client port, their member programs about volumes.

use std::net::IpAddr;

use async_trait::async_trait;
use bellwether_ensemble::volume_report::VolumeReport;
use tokio::sync::Semaphore;

use super::volumes;
use crate::zookeeper;

/// What the operator asks the members of ensembles. The network and the simulation each implement it.
#[async_trait]
pub trait Members: Send + Sync {
    /// What the server at this address answers to a four-letter word.
    ///
    /// # Errors
    /// When it does not answer in time.
    async fn ask(&self, address: IpAddr, word: &'static str) -> anyhow::Result<String>;

    /// What the member at this address reports of its volumes; `None` when it does not answer, or does
    /// not know the question because an earlier operator version made the pod.
    async fn volumes(&self, address: IpAddr) -> Option<VolumeReport>;
}

/// How many members may be asked at once. A member that hangs takes one of these for a second.
const CONVERSATIONS: usize = 256;

/// The members over the network.
#[derive(Debug)]
pub struct Network(Semaphore);

impl Default for Network {
    fn default() -> Self {
        Self(Semaphore::new(CONVERSATIONS))
    }
}

#[async_trait]
impl Members for Network {
    async fn ask(&self, address: IpAddr, word: &'static str) -> anyhow::Result<String> {
        let (patience, most) = (zookeeper::TIMEOUT, zookeeper::MAX_ANSWER);
        // The member's time to answer begins with its turn.
        let _turn = self.0.acquire().await?;
        zookeeper::ask_for(address, word, patience, most).await
    }

    async fn volumes(&self, address: IpAddr) -> Option<VolumeReport> {
        let _turn = self.0.acquire().await.ok()?;
        volumes::ask(address).await
    }
}
