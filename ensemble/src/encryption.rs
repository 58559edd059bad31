//! What is encrypted: between the servers, and from clients to servers.

use bellwether_api::ensemble::Tls;

use crate::client_tls::ClientTls;
use crate::server_tls::ServerTls;
use crate::stage::{Running, Stage};

/// The state of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Encryption {
    /// How servers speak to each other.
    pub servers: ServerTls,
    /// How clients connect.
    pub clients: ClientTls,
}

impl Encryption {
    /// Plaintext everywhere.
    pub const NONE: Self = Self {
        servers: ServerTls::Disabled,
        clients: ClientTls::Disabled,
    };

    /// What a new ensemble has. All members of an ensemble that does not run yet start in the same state.
    pub fn of_new(asked: &Tls) -> Self {
        Self {
            servers: ServerTls::of_new(asked.servers),
            clients: ClientTls::of_new(asked.clients),
        }
    }

    /// What an ensemble in this state goes to in the end.
    pub fn wanted(self, asked: &Tls) -> Self {
        Self {
            servers: self.servers.wanted(asked.servers),
            clients: self.clients.wanted(asked.clients),
        }
    }

    /// What the pod template has to say next; see [`Stage::next`]. The two do not depend on each other, and may change
    /// in the same roll.
    pub fn next(template: Self, running: &Running<Self>, wanted: Self, finished: bool) -> Self {
        let servers = running.map(|state| state.servers);
        let clients = running.map(|state| state.clients);
        Self {
            servers: Stage::next(template.servers, &servers, wanted.servers, finished),
            clients: Stage::next(template.clients, &clients, wanted.clients, finished),
        }
    }

    /// The least that all of these have.
    pub fn least(running: &Running<Self>) -> Option<Self> {
        Some(Self {
            servers: running.all.iter().map(|state| state.servers).min()?,
            clients: running.all.iter().map(|state| state.clients).min()?,
        })
    }

    /// Whether anything is encrypted, so that a member needs its certificates before it starts.
    pub fn needs_certificates(self) -> bool {
        self != Self::NONE
    }
}
