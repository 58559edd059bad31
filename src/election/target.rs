//! What a session is opened to, and as whom.

use std::borrow::Cow;

use bellwether_api::LeaderElectionSpec;
use bellwether_api::election::{Authentication, Connection};
use bellwether_election::permissions::{Permissions, Refusal};

use super::{Key, Scope};

/// Elections that agree in this share a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    /// The namespace of the Secrets, which is that of the elections; that of the ensemble where none is needed, so that elections
    /// of all namespaces share a session.
    pub(super) namespace: String,
    pub(super) holder: Holder,
    pub(super) authentication: Option<Authentication>,
}

/// What holds the elections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// An ensemble that Bellwether runs.
    Ensemble(Key),
    /// A ZooKeeper that it does not run.
    External(Connection),
}

impl Target {
    /// The target of an election; `None` if its spec names none, which the API server refuses.
    pub(super) fn from_spec(spec: &LeaderElectionSpec, namespace: &str) -> Option<Self> {
        let holder = match (&spec.ensemble_ref, &spec.connection) {
            (Some(ensemble), None) => Holder::Ensemble(Key {
                namespace: ensemble.namespace_for(namespace).to_owned(),
                name: ensemble.name.clone(),
            }),
            (None, Some(connection)) => Holder::External(Connection::clone(connection)),
            _ => return None,
        };
        let namespace = match &holder {
            Holder::Ensemble(ensemble) if spec.authentication.is_none() => &ensemble.namespace,
            _ => namespace,
        };
        Some(Self {
            namespace: namespace.to_owned(),
            holder,
            authentication: spec.authentication.clone(),
        })
    }

    /// The ensemble, if Bellwether runs it.
    pub(super) fn ensemble(&self) -> Option<&Key> {
        match &self.holder {
            Holder::Ensemble(ensemble) => Some(ensemble),
            Holder::External(_) => None,
        }
    }

    /// The ensemble, if it is in another namespace than the Secrets.
    pub(super) fn elsewhere(&self) -> Option<&Key> {
        self.ensemble()
            .filter(|ensemble| ensemble.namespace != self.namespace)
    }

    /// Which hosts a Secret has to permit in which names and passwords go there, if it has to.
    pub(super) fn hosts_to_permit(&self) -> Option<Cow<'_, str>> {
        let service = |Key { namespace, name }: &Key| format!("{name}.{namespace}.svc").into();
        let elsewhere = self.elsewhere().map(service);
        elsewhere.or_else(|| Some(self.connection()?.connect_string.as_str().into()))
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
            Holder::Ensemble(ensemble) => &ensemble.name,
            Holder::External(connection) => &connection.connect_string,
        }
    }

    /// Where clients reach it, in the words of ZooKeeper's clients; `port` is the one of an ensemble that Bellwether runs.
    pub(super) fn connect_string(&self, scope: &Scope, port: u16) -> String {
        match self.ensemble() {
            Some(ensemble) => scope.connect_string(ensemble, port),
            None => self.name().to_owned(),
        }
    }
}
