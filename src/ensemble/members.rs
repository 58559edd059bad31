//! How the operator asks members.

mod control;
mod words;

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bellwether_ensemble::certificates::AuthorityName;
use bellwether_ensemble::volume_report::{VolumeReport, parse};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::certificates::Authorities;
use crate::zookeeper::TIMEOUT;
use control::Control;

/// Where a member is, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contact {
    /// Its address.
    pub address: IpAddr,
    /// The authority of its ensemble, if its program answers on the control port. `None` for a pod that an earlier
    /// operator version made.
    pub authority: Option<AuthorityName>,
}

/// What the operator asks the members of ensembles. The network and the simulation each implement it.
#[async_trait]
pub trait Members: Send + Sync {
    /// What a member answers to a word: a four-letter word of its server, or `state` on the control port, which is
    /// `srvr` with the numbers of a leader's learners.
    ///
    /// # Errors
    /// When it does not answer in time.
    async fn ask(&self, contact: &Contact, word: &'static str) -> anyhow::Result<String>;

    /// What a member reports of its volumes; `None` when it does not answer, or does not know the question because
    /// an earlier operator version made the pod.
    async fn volumes(&self, contact: &Contact) -> Option<VolumeReport>;
}

/// How many members may be asked at once. A member that hangs takes one of these for a second.
const CONVERSATIONS: usize = 256;

/// The members over the network.
pub struct Network {
    turns: Semaphore,
    control: Control,
}

impl Network {
    /// Speaks to the members of each ensemble by its authority.
    pub fn new(authorities: Arc<Authorities>) -> Self {
        Self {
            turns: Semaphore::new(CONVERSATIONS),
            control: Control::new(authorities),
        }
    }
}

#[async_trait]
impl Members for Network {
    async fn ask(&self, contact: &Contact, word: &'static str) -> anyhow::Result<String> {
        // The member's time to answer begins with its turn.
        let _turn = self.turns.acquire().await?;
        match &contact.authority {
            Some(authority) => self.control.get(contact.address, authority, word).await,
            None => words::ask(contact.address, word).await,
        }
    }

    async fn volumes(&self, contact: &Contact) -> Option<VolumeReport> {
        let _turn = self.turns.acquire().await.ok()?;
        let answer = match &contact.authority {
            Some(authority) => {
                let answer = self.control.get(contact.address, authority, "volumes");
                answer.await.ok()?
            }
            None => timeout(TIMEOUT, words::volumes(contact.address))
                .await
                .ok()??,
        };
        let report = parse(&answer);
        if let Err(error) = &report {
            let address = contact.address;
            tracing::debug!(%address, %error, "the member's report on its volumes makes no sense");
        }
        report.ok()
    }
}
