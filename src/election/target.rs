//! What a session is opened to, and as whom.

use bellwether_api::LeaderElectionSpec;
use bellwether_api::election::{Authentication, Connection};
use bellwether_election::permissions::{Permissions, Refusal};

use super::{Key, Scope};

/// Elections that agree in this share a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    /// The namespace of the elections, of the ensemble and of the Secrets.
    pub(super) namespace: String,
    pub(super) holder: Holder,
    pub(super) authentication: Option<Authentication>,
}

/// What holds the elections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// An ensemble that Bellwether runs, by its name.
    Ensemble(String),
    /// A ZooKeeper that it does not run.
    External(Connection),
}

impl Target {
    /// The target of an election; `None` if its spec names none, which the API server refuses.
    pub(super) fn from_spec(spec: &LeaderElectionSpec, namespace: &str) -> Option<Self> {
        let holder = match (&spec.ensemble_ref, &spec.connection) {
            (Some(ensemble), None) => Holder::Ensemble(ensemble.name.clone()),
            (None, Some(connection)) => Holder::External(Connection::clone(connection)),
            _ => return None,
        };
        Some(Self {
            namespace: namespace.to_owned(),
            holder,
            authentication: spec.authentication.clone(),
        })
    }

    /// The ensemble, if Bellwether runs it.
    pub(super) fn ensemble(&self) -> Option<Key> {
        match &self.holder {
            Holder::Ensemble(name) => Some(Key {
                namespace: self.namespace.clone(),
                name: name.clone(),
            }),
            Holder::External(_) => None,
        }
    }

    /// The connection, if Bellwether does not run the ensemble.
    pub(super) fn connection(&self) -> Option<&Connection> {
        match &self.holder {
            Holder::Ensemble(_) => None,
            Holder::External(connection) => Some(connection),
        }
    }

    /// Why it must not be connected to, if it must not.
    pub(super) fn refusal(&self, permissions: &Permissions) -> Option<Refusal> {
        permissions.refusal(self.connection()?, self.authentication.is_some())
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> &str {
        match &self.holder {
            Holder::Ensemble(name) => name,
            Holder::External(connection) => &connection.connect_string,
        }
    }

    /// Where clients reach it, in the words of ZooKeeper's clients; `port` is the one of an ensemble that Bellwether runs.
    pub(super) fn connect_string(&self, scope: &Scope, port: u16) -> String {
        match self.ensemble() {
            Some(ensemble) => scope.connect_string(&ensemble, port),
            None => self.name().to_owned(),
        }
    }
}
