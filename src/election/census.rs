//! Asks the members of an ensemble from where sessions are connected and who watches what.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether_election::census::{
    Connection, listed_connections, listed_watchers, parse_connections, parse_watchers,
};
use bellwether_ensemble::certificates::AuthorityName;
use bellwether_ensemble::desired::config::{CLIENT_PORT, SECURE_CLIENT_PORT};
use bellwether_ensemble::desired::members_service;
use futures::future::join_all;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tracing::debug;

use super::ensembles::Trust;
use super::session::Presence;
use super::{Key, Scope};
use crate::ensemble::members::Contact;
use crate::zookeeper::{ask_for, ask_on};

/// The time between two questions to an ensemble, however many elections want to know.
const PAUSE: Duration = Duration::from_secs(1);

/// For how long what the members' ConfigMap says of trust is not read again.
const TRUSTED: Duration = Duration::from_secs(60);

/// How long a member may take, and how much it may send: some ten thousand connections.
const PATIENCE: Duration = Duration::from_secs(3);
const MAX_ANSWER: u64 = 8 * 1024 * 1024;

/// What the members of one ensemble report of their clients. Copies share what is known.
#[derive(Clone)]
pub(super) struct Census {
    ensemble: Arc<Key>,
    /// The DNS name that resolves to every member, and a port.
    members: Arc<str>,
    /// The name in the certificate that every member presents to clients.
    service: Arc<str>,
    trust: Trust,
    /// Whether the members take TLS.
    presence: watch::Receiver<Presence>,
    known: Arc<Mutex<Known>>,
    /// Held while the members are asked.
    asking: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Known {
    /// How members are asked, and since when that is known.
    trusted: Option<(Instant, Arc<Trusted>)>,
    /// When it was asked for; `None` if never.
    at: Option<Instant>,
    addresses: HashMap<i64, IpAddr>,
    /// Without the sessions of mirrors.
    watchers: HashMap<String, Vec<i64>>,
    /// Whether every member reported its watches.
    all_answered: bool,
}

impl Census {
    pub(super) fn new(
        ensemble: Key,
        scope: &Scope,
        trust: Trust,
        presence: watch::Receiver<Presence>,
    ) -> Self {
        let within = format!("{}.svc.{}", ensemble.namespace, scope.cluster_domain);
        let members = members_service(&ensemble.name);
        Self {
            members: format!("{members}.{within}:{CLIENT_PORT}").into(),
            service: format!("{}.{within}", ensemble.name).into(),
            ensemble: Arc::new(ensemble),
            trust,
            presence,
            known: Arc::default(),
            asking: Arc::default(),
        }
    }

    /// From where these sessions are connected, as far as it is known.
    pub(super) fn addresses(
        &self,
        sessions: impl IntoIterator<Item = i64>,
    ) -> BTreeMap<i64, IpAddr> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let address = |session| Some((session, *known.addresses.get(&session)?));
        sessions.into_iter().filter_map(address).collect()
    }

    /// How many sessions but that of its owner watch a path, by an answer that is not older than
    /// `since`.
    pub(super) fn watchers(&self, path: &str, owner: i64, since: Instant) -> Option<usize> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let current = known.all_answered && known.at.is_some_and(|at| at >= since);
        let waiting = known.watchers.get(path).into_iter().flatten();
        current.then(|| waiting.filter(|session| **session != owner).count())
    }

    /// Asks the members, unless they were asked after `since`.
    pub(super) async fn take(&self, since: Instant) {
        let _asking = self.asking.lock().await;
        let last = self.known.lock().unwrap_or_else(PoisonError::into_inner).at;
        if last.is_some_and(|at| at >= since) {
            return;
        }
        if let Some(last) = last {
            sleep_until(last + PAUSE).await;
        }
        let at = Instant::now();
        let told = self.ask_all().await;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let connections = || told.iter().flat_map(|told| &told.connections);
        known.at = Some(at);
        known.addresses = connections().map(|c| (c.session, c.address)).collect();
        known.watchers.clear();
        // The other members' watchers alone would be too few.
        known.all_answered = !told.is_empty() && told.iter().all(|told| told.watchers.is_some());
        let mirrors = connections().filter(|c| c.is_mirror).map(|c| c.session);
        let mirrors: Vec<i64> = mirrors.collect();
        for (path, sessions) in told.iter().flat_map(|told| told.watchers.iter().flatten()) {
            let waiting = sessions.iter().filter(|s| !mirrors.contains(s));
            let entry = known.watchers.entry(path.clone()).or_default();
            entry.extend(waiting);
        }
    }

    /// What every member tells of its clients.
    async fn ask_all(&self) -> Vec<Told> {
        let found = timeout(PATIENCE, tokio::net::lookup_host(&*self.members)).await;
        let members: Vec<SocketAddr> = match found {
            Ok(Ok(members)) => members.collect(),
            Ok(Err(error)) => {
                debug!(members = &*self.members, %error, "the members have no addresses");
                return Vec::new();
            }
            Err(_) => return Vec::new(),
        };
        let trusted = match self.trusted().await {
            Ok(trusted) => trusted,
            Err(error) => {
                debug!(members = &*self.members, %error, "the members are not trusted yet");
                return Vec::new();
            }
        };
        let ask = |member: SocketAddr| self.ask_member(member.ip(), &trusted);
        join_all(members.into_iter().map(ask)).await
    }

    /// What one member tells.
    async fn ask_member(&self, address: IpAddr, trusted: &Trusted) -> Told {
        let contact = Contact {
            address,
            authority: trusted.authority.clone(),
        };
        let listed = self.trust.members.clients(&contact).await;
        let listed = listed.and_then(|listed| {
            let Some([connections, watches]) = listed else {
                return Ok(None);
            };
            Ok(Some(Told {
                connections: listed_connections(&connections)?,
                watchers: Some(listed_watchers(&watches)?),
            }))
        });
        match listed {
            Ok(Some(told)) => told,
            // A member of an earlier operator version.
            Ok(None) => ask_by_words(address, trusted.tls.as_ref()).await,
            Err(error) => {
                debug!(%address, %error, "a member does not report its clients");
                Told::default()
            }
        }
    }

    /// How to ask the members.
    async fn trusted(&self) -> anyhow::Result<Arc<Trusted>> {
        let uid = match &*self.presence.borrow() {
            Presence::Present(ensemble) if ensemble.takes_tls => Some(ensemble.uid.clone()),
            _ => None,
        };
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known().trusted.clone();
        let is_current = |at: &Instant, trusted: &Trusted| {
            at.elapsed() < TRUSTED && trusted.tls.is_some() == uid.is_some()
        };
        if let Some((at, trusted)) = before
            && is_current(&at, &trusted)
        {
            return Ok(trusted);
        }
        let authority = self.trust.authority(&self.ensemble).await?;
        let tls = match &uid {
            None => None,
            Some(uid) => Some(Tls {
                config: self.trust.in_ensemble(&self.ensemble, uid).await?,
                name: ServerName::try_from(self.service.to_string())?,
            }),
        };
        let trusted = Arc::new(Trusted { authority, tls });
        known().trusted = Some((Instant::now(), trusted.clone()));
        Ok(trusted)
    }
}

/// How members are asked.
struct Trusted {
    /// The authority of the members; `None` while it is not on record.
    authority: Option<AuthorityName>,
    /// How members of an earlier operator version are asked where they take TLS.
    tls: Option<Tls>,
}

/// What a member tells of its clients.
#[derive(Default)]
struct Told {
    connections: Vec<Connection>,
    /// The sessions that watch each path, if the member tells.
    watchers: Option<HashMap<String, Vec<i64>>>,
}

/// How members are asked over TLS.
struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// What one member answers to a word.
async fn ask(member: IpAddr, tls: Option<&Tls>, word: &str) -> anyhow::Result<String> {
    let Some(Tls { config, name }) = tls else {
        return ask_for(member, word, PATIENCE, MAX_ANSWER).await;
    };
    let connect = async {
        let stream = TcpStream::connect((member, SECURE_CLIENT_PORT)).await?;
        let connector = TlsConnector::from(config.clone());
        connector.connect(name.clone(), stream).await
    };
    ask_on(connect, word, PATIENCE, MAX_ANSWER).await
}

/// What a member of an earlier operator version answers to `cons` and `wchp`.
async fn ask_by_words(member: IpAddr, tls: Option<&Tls>) -> Told {
    let answer = async |word: &str| match ask(member, tls, word).await {
        Ok(answer) => Some(answer).filter(|answer| !answer.contains(NOT_ALLOWED)),
        Err(error) => {
            debug!(%member, word, %error, "a member does not report its clients");
            None
        }
    };
    let connections = answer("cons").await.unwrap_or_default();
    let watchers = answer("wchp").await;
    Told {
        connections: parse_connections(&connections),
        watchers: watchers.as_deref().map(parse_watchers),
    }
}

/// Part of the answer of a server that does not know or allow a word.
const NOT_ALLOWED: &str = "not in the whitelist";
