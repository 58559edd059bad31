//! How the operator asks members: their servers over the client port, their member programs about volumes.

use std::net::IpAddr;

use async_trait::async_trait;
use bellwether_ensemble::volume_report::VolumeReport;

use super::volumes;
use crate::zookeeper;

/// What the operator asks the members of ensembles. The simulation has another one than the network.
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

/// The members over the network.
#[derive(Debug)]
pub struct Network;

#[async_trait]
impl Members for Network {
    async fn ask(&self, address: IpAddr, word: &'static str) -> anyhow::Result<String> {
        let (patience, most) = (zookeeper::TIMEOUT, zookeeper::MAX_ANSWER);
        zookeeper::ask_for(address, word, patience, most).await
    }

    async fn volumes(&self, address: IpAddr) -> Option<VolumeReport> {
        volumes::ask(address).await
    }
}
