//! How the operator asks members.

mod control;
mod words;

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::bail;
use async_trait::async_trait;
use bellwether_ensemble::ServerId;
use bellwether_ensemble::certificates::AuthorityName;
use bellwether_ensemble::ids::ServerList;
use bellwether_ensemble::observation::{Credentials, ServerReport};
use bellwether_ensemble::volume_report::VolumeReport;
use tokio::sync::Semaphore;

use crate::certificates::Authorities;
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
    /// What a server answers to `srvr`, with the numbers of a leader's learners if its member program tells them.
    ///
    /// # Errors
    /// When it does not answer in time.
    async fn state(&self, contact: &Contact) -> anyhow::Result<String>;

    /// All that is known of a member, whose server should be the one with this id.
    async fn report(&self, contact: &Contact, id: ServerId) -> Told;

    /// Asks a member for another list of servers, if the present one has this version.
    ///
    /// # Errors
    /// When it refuses, or does not answer in time. The list may have changed all the same.
    async fn reconfigure(
        &self,
        contact: &Contact,
        list: &ServerList,
        version: u64,
    ) -> anyhow::Result<()>;

    /// Who is connected to a server, and who watches what: two lists of its AdminServer, as JSON. `None` if the member is of
    /// an earlier operator version, which does not know.
    ///
    /// # Errors
    /// When it does not answer in time, or answers that it cannot tell.
    async fn clients(&self, contact: &Contact) -> anyhow::Result<Option<[String; 2]>>;
}

/// What a member tells.
pub struct Told {
    /// What its server is.
    pub server: ServerReport,
    /// What is on its volumes, if that is known.
    pub volumes: Option<VolumeReport>,
    /// What it presents to other members, if it says so: see `bellwether_ensemble::certificates::presented`.
    pub presents: Option<String>,
    /// What it says of the users and the authorities of its clients.
    pub credentials: Credentials,
    /// The authority of the certificate that it presents to clients, as PEM, if that is of the user's Secret.
    pub client_authority: Option<String>,
}

impl Told {
    /// Only this is known of the member.
    pub fn only(server: ServerReport) -> Self {
        Self {
            server,
            volumes: None,
            presents: None,
            credentials: Default::default(),
            client_authority: None,
        }
    }
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
    async fn state(&self, contact: &Contact) -> anyhow::Result<String> {
        // The member's time to answer begins with its turn.
        let _turn = self.turns.acquire().await?;
        match &contact.authority {
            Some(authority) => self.control.state(contact.address, authority).await,
            None => words::ask(contact.address, "srvr").await,
        }
    }

    async fn reconfigure(
        &self,
        contact: &Contact,
        list: &ServerList,
        version: u64,
    ) -> anyhow::Result<()> {
        let Some(authority) = &contact.authority else {
            bail!("the pod is of an operator version that changes no members at run time");
        };
        let _turn = self.turns.acquire().await?;
        let control = &self.control;
        control
            .reconfigure(contact.address, authority, list, version)
            .await
    }

    async fn clients(&self, contact: &Contact) -> anyhow::Result<Option<[String; 2]>> {
        let Some(authority) = &contact.authority else {
            return Ok(None);
        };
        let _turn = self.turns.acquire().await?;
        let list = |what| self.control.list(contact.address, authority, what);
        let Some(connections) = list("connections").await? else {
            return Ok(None);
        };
        let watches = list("watches").await?;
        Ok(watches.map(|watches| [connections, watches]))
    }

    async fn report(&self, contact: &Contact, id: ServerId) -> Told {
        let _turn = self.turns.acquire().await.ok();
        let mut told = Told::only(ServerReport::Looking);
        let volumes = match &contact.authority {
            Some(authority) => match self.control.report(contact.address, authority).await {
                Ok(report) => {
                    told.server = report.server(id).await;
                    told.presents = report.presents();
                    told.credentials = report.credentials();
                    told.client_authority = report.client_authority();
                    Some(report.volumes())
                }
                Err(error) => return Told::only(ServerReport::Unreachable(error.to_string())),
            },
            None => {
                let (server, volumes) = words::report(contact.address, id).await;
                told.server = server;
                volumes
            }
        };
        told.volumes = volumes.transpose().unwrap_or_else(|error| {
            let address = contact.address;
            tracing::debug!(%address, %error, "what a member reports of its volumes makes no sense");
            None
        });
        told
    }
}
