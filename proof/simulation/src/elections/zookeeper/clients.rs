//! The sessions of operators, as their requests meet them.

use tokio::sync::{oneshot, watch};
use zookeeper_client::{Error, SessionState};

use super::super::tree::{Change, Tree};
use super::{Client, Watch, Watched, Zoo};

impl Zoo {
    /// Opens a session of an operator; returns its number here, and its states.
    pub(in crate::elections) fn connect(
        &mut self,
        operator: &str,
    ) -> Option<(u64, i64, watch::Receiver<SessionState>)> {
        let server = self.any_server()?;
        self.next_session += 1;
        self.next_client += 1;
        let (session, id) = (self.next_session, self.next_client);
        self.commit(Change::Open(session));
        let (states, state) = watch::channel(SessionState::SyncConnected);
        let now = self.now();
        let client = Client {
            operator: operator.to_owned(),
            session,
            server: Some(server),
            connections: 0,
            cut_until: now,
            silent_since: now,
            states,
            is_closed: false,
        };
        self.clients.insert(id, client);
        Some((id, session, state))
    }

    /// Closes a session of an operator.
    pub(in crate::elections) fn disconnect_for_good(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        client.is_closed = true;
        let session = client.session;
        client.states.send_replace(SessionState::Closed);
        if self.truth.has_session(session) {
            self.commit(Change::Close(session));
        }
        self.disconnect(id, std::time::Duration::ZERO);
    }

    /// The connection that a request of this client goes over now.
    ///
    /// # Errors
    /// If there is none.
    pub(in crate::elections) fn connection(&self, id: u64) -> Result<u64, Error> {
        let client = self.clients.get(&id).ok_or(Error::SessionExpired)?;
        match client.server {
            Some(_) => Ok(client.connections),
            None => Err(Error::ConnectionLoss),
        }
    }

    /// Whether the next request of this client breaks off; it does so once.
    pub(in crate::elections) fn breaks(&mut self, id: u64) -> bool {
        let Some(client) = self.clients.get(&id) else {
            return false;
        };
        let breaks = self.breaks.iter().position(|name| *name == client.operator);
        breaks.map(|at| self.breaks.remove(at)).is_some()
    }

    /// What the client's server knows, as it has carried out everything up to now.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(in crate::elections) fn view(&mut self, id: u64, connection: u64) -> Result<&Tree, Error> {
        let at = self.server(id, connection)?;
        let now = self.now();
        self.carry_out(at, now);
        Ok(&self.servers[at].tree)
    }

    fn server(&self, id: u64, connection: u64) -> Result<usize, Error> {
        let client = self.clients.get(&id).ok_or(Error::SessionExpired)?;
        let server = client.server.ok_or(Error::ConnectionLoss)?;
        match client.connections == connection {
            true => Ok(server),
            false => Err(Error::ConnectionLoss),
        }
    }

    /// Sets a watch at the client's server.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(in crate::elections) fn watch(
        &mut self,
        id: u64,
        connection: u64,
        path: &str,
        watched: Watched,
    ) -> Result<oneshot::Receiver<()>, Error> {
        let at = self.server(id, connection)?;
        let (fire, fired) = oneshot::channel();
        self.servers[at].watches.push(Watch {
            connection: id,
            path: path.to_owned(),
            watched,
            fire,
        });
        Ok(fired)
    }

    /// Whether the client's server has carried out so many transactions.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(in crate::elections) fn has_carried_out(
        &mut self,
        id: u64,
        connection: u64,
        transactions: usize,
    ) -> Result<bool, Error> {
        let at = self.server(id, connection)?;
        let now = self.now();
        self.carry_out(at, now);
        Ok(self.servers[at].applied >= transactions.min(self.log.len()))
    }
}
