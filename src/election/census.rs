//! Asks the members of an ensemble from where sessions are connected and who watches what.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether_election::census::{parse_connections, parse_watchers};
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

/// How members are asked over TLS, and since when that is known.
type Trusted = Option<(Instant, Arc<ClientConfig>)>;

#[derive(Default)]
struct Known {
    trusted: Trusted,
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
        let answers = self.ask_all().await;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let connections: Vec<_> = answers
            .iter()
            .flat_map(|(connections, _)| parse_connections(connections))
            .collect();
        known.at = Some(at);
        known.addresses = connections.iter().map(|c| (c.session, c.address)).collect();
        known.watchers.clear();
        known.all_answered = !answers.is_empty();
        let mirrors: Vec<i64> = connections
            .iter()
            .filter(|c| c.is_mirror)
            .map(|c| c.session)
            .collect();
        for (_, watchers) in &answers {
            known.all_answered &= !watchers.contains("whitelist");
            for (path, sessions) in parse_watchers(watchers) {
                let waiting = sessions.into_iter().filter(|s| !mirrors.contains(s));
                known
                    .watchers
                    .entry(path.to_owned())
                    .or_default()
                    .extend(waiting);
            }
        }
    }

    /// Every member's answers to `cons` and `wchp`. A member without an answer to the latter counts as
    /// `UNANSWERED`: the other members' watchers alone would be too few.
    async fn ask_all(&self) -> Vec<(String, String)> {
        let found = timeout(PATIENCE, tokio::net::lookup_host(&*self.members)).await;
        let members: Vec<SocketAddr> = match found {
            Ok(Ok(members)) => members.collect(),
            Ok(Err(error)) => {
                debug!(members = &*self.members, %error, "the members have no addresses");
                return Vec::new();
            }
            Err(_) => return Vec::new(),
        };
        let tls = match self.trusted().await {
            Ok(tls) => tls,
            Err(error) => {
                debug!(members = &*self.members, %error, "the members are not trusted yet");
                return Vec::new();
            }
        };
        let ask = |member: SocketAddr| ask_member(member.ip(), tls.as_ref());
        join_all(members.into_iter().map(ask)).await
    }

    /// How to ask members that take TLS.
    async fn trusted(&self) -> anyhow::Result<Option<Tls>> {
        let uid = match &*self.presence.borrow() {
            Presence::Present(ensemble) if ensemble.takes_tls => ensemble.uid.clone(),
            _ => return Ok(None),
        };
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known().trusted.clone();
        let config = match before.filter(|(at, _)| at.elapsed() < TRUSTED) {
            Some((_, config)) => config,
            None => {
                let config = self.trust.in_ensemble(&self.ensemble, &uid).await?;
                known().trusted = Some((Instant::now(), config.clone()));
                config
            }
        };
        let name = ServerName::try_from(self.service.to_string())?;
        Ok(Some(Tls { config, name }))
    }
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

/// What one member answers to `cons` and `wchp`.
async fn ask_member(member: IpAddr, tls: Option<&Tls>) -> (String, String) {
    let answer_or = |word: &str, answer: anyhow::Result<String>, otherwise: &str| {
        answer.unwrap_or_else(|error| {
            debug!(%member, word, %error, "a member does not report its clients");
            otherwise.to_owned()
        })
    };
    let connections = ask(member, tls, "cons").await;
    let watchers = ask(member, tls, "wchp").await;
    (
        answer_or("cons", connections, ""),
        answer_or("wchp", watchers, UNANSWERED),
    )
}

/// Part of the answer of a server that does not know or allow a word; it also stands for a missing answer.
const UNANSWERED: &str = "not in the whitelist";
