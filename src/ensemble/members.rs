//! How the operator asks members: their servers over the client port, their member programs about volumes.

use std::net::IpAddr;

use async_trait::async_trait;
use bellwether_ensemble::ServerId;
use bellwether_ensemble::observation::ServerReport;
use bellwether_ensemble::volume_report::VolumeReport;

use super::volumes;
use crate::zookeeper;

/// What the operator asks the members of ensembles. The simulation has another one than the network.
#[async_trait]
pub trait Members: Send + Sync {
    /// What the server at this address, which should be `id`, is and does.
    async fn server(&self, address: IpAddr, id: ServerId) -> ServerReport;

    /// What the member at this address reports of its volumes; `None` when it does not answer, or does
    /// not know the question because an earlier operator version made the pod.
    async fn volumes(&self, address: IpAddr) -> Option<VolumeReport>;
}

/// The members over the network.
#[derive(Debug)]
pub struct Network;

#[async_trait]
impl Members for Network {
    async fn server(&self, address: IpAddr, id: ServerId) -> ServerReport {
        zookeeper::probe(address, id).await
    }

    async fn volumes(&self, address: IpAddr) -> Option<VolumeReport> {
        volumes::ask(address).await
    }
}
