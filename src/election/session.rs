//! One ZooKeeper session for each ensemble or connection, and whether it is up.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use bellwether_api::election::Reason;
use bellwether_election::census::MIRROR_SESSION_TIMEOUT;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use zookeeper_client::{Client, Error, SessionState};

use super::credentials::{Credentials, CredentialsError};
use super::metrics::{Counted, Metrics};
use super::reach;
use super::target::Target;

/// The session timeout to ask for. The mirror owns no ephemeral nodes, so nothing depends on its
/// session; a short timeout finds a silent connection soon (two fifths of it).
const SESSION_TIMEOUT: Duration = Duration::from_millis(MIRROR_SESSION_TIMEOUT as u64);

/// How long to wait for the session to change before a failed sync is tried again.
const SYNC_RETRY: Duration = Duration::from_secs(1);

/// How often the Secrets of a session that is up are read again.
const SECRETS_PERIOD: Duration = Duration::from_secs(60);

/// Whether what a session is to be opened to exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The ensembles were not listed yet.
    Unknown,
    /// There is none.
    Absent,
    /// There is one, with this uid; the uid of what Bellwether does not run is empty.
    Present(String),
}

/// What mirrors may know about the session of their ensemble.
#[derive(Clone, Debug)]
pub(super) enum Link {
    /// It has not been tried long enough to say anything.
    Starting,
    /// It is up, and the server had caught up with the leader when it came up.
    Up {
        /// The client to read with.
        client: Arc<Client>,
    },
    /// It is down.
    Down {
        /// Why, as a reason of the condition `Synced`.
        reason: Reason,
        /// The same as a sentence.
        detail: String,
        /// Since when it is down.
        since: Timestamp,
    },
}

/// What is needed to keep a session.
pub(super) struct Keeper {
    /// What the session is opened to, and as whom.
    pub(super) target: Target,
    /// Where that is.
    pub(super) address: String,
    /// Whether it exists.
    pub(super) presence: watch::Receiver<Presence>,
    /// Where to say whether the session is up.
    pub(super) link: watch::Sender<Link>,
    /// Reads the Secrets.
    pub(super) kube: kube::Client,
    pub(super) metrics: Metrics,
}

impl Keeper {
    /// Keeps the session and says in `link` whether it is up.
    ///
    /// Every time that the session connects or reconnects, `link` changes: whoever reads must then
    /// read everything again. Runs until it is dropped, or until `presence` has no sender.
    pub(super) async fn keep(mut self) {
        let mut retries = backoff();
        loop {
            let present = self.presence.borrow_and_update().clone();
            match present {
                Presence::Present(_) => {}
                Presence::Absent => {
                    let name = self.target.name();
                    let detail = format!("There is no ensemble {name} in this namespace.");
                    down(&self.link, Reason::EnsembleNotFound, detail);
                    retries = backoff();
                    if self.presence.changed().await.is_err() {
                        return;
                    }
                    continue;
                }
                Presence::Unknown => {
                    if self.presence.changed().await.is_err() {
                        return;
                    }
                    continue;
                }
            }
            let connected = tokio::select! {
                connected = connect(&self.kube, &self.target, &self.address) => connected,
                changed = self.presence.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            };
            match connected {
                Ok((client, credentials)) => {
                    retries = backoff();
                    let session = client.session_id();
                    info!(ensemble = %self.address, %session, "session opened");
                    let _counted = Counted::new(&self.metrics.sessions);
                    tokio::select! {
                        () = follow(&self.target, &self.address, Arc::new(client), &self.link) => {}
                        () = changed(&self.kube, &self.target, credentials) => {
                            info!(ensemble = %self.address, "the Secrets changed");
                        }
                        changed = self.presence.changed() => if changed.is_err() { return },
                    }
                }
                Err((reason, detail)) => {
                    let delay = retries.next().unwrap_or(Duration::from_secs(10));
                    warn!(ensemble = %self.address, detail, ?delay, "no session");
                    down(&self.link, reason, detail);
                    tokio::select! {
                        () = sleep(delay) => {}
                        changed = self.presence.changed() => if changed.is_err() { return },
                    }
                }
            }
        }
    }
}

/// Opens a session, or says in a reason and a sentence why none can be opened.
async fn connect(
    kube: &kube::Client,
    target: &Target,
    address: &str,
) -> Result<(Client, Credentials), (Reason, String)> {
    let told = |error: CredentialsError| (error.reason(), error.to_string());
    let credentials = Credentials::read(kube, target).await.map_err(told)?;
    let connector = credentials.connector().map_err(told)?;
    let connector = connector.with_session_timeout(SESSION_TIMEOUT);
    let connected = if credentials.secure() {
        connector.secure_connect(address).await
    } else {
        connector.connect(address).await
    };
    match connected {
        Ok(client) => Ok((client, credentials)),
        Err(error) => {
            let (reason, mut detail) = unconnected(target, &error);
            if target.connection().is_some()
                && let Some(obstacle) = reach::obstacle(address, &credentials).await
            {
                detail = format!("{detail} {obstacle}.");
            }
            Err((reason, detail))
        }
    }
}

/// Waits until the Secrets of a target hold something else. While they cannot be read, the session
/// that is there stays.
async fn changed(kube: &kube::Client, target: &Target, credentials: Credentials) {
    if !credentials.any() {
        return std::future::pending().await;
    }
    loop {
        sleep(SECRETS_PERIOD).await;
        match Credentials::read(kube, target).await {
            Ok(now) if now != credentials => return,
            Ok(_) => {}
            Err(error) => warn!(ensemble = target.name(), %error, "the session goes on"),
        }
    }
}

/// Follows the states of a session until it ends.
async fn follow(target: &Target, address: &str, client: Arc<Client>, link: &watch::Sender<Link>) {
    let name = target.name();
    let mut states = client.state_watcher();
    let mut state = states.peek_state();
    loop {
        if state.is_terminated() {
            info!(ensemble = %address, %state, "session ended");
            let (reason, detail) = match state {
                SessionState::AuthFailed => unconnected(target, &Error::AuthFailed),
                _ => (
                    Reason::SessionExpired,
                    format!("The session to {name} ended ({state})."),
                ),
            };
            down(link, reason, detail);
            return;
        }
        if state == SessionState::Disconnected {
            info!(ensemble = %address, "disconnected");
            let detail = format!("The connection to {name} is lost.");
            down(link, Reason::Disconnected, detail);
        } else {
            // A server may lag behind: what it says before a sync may be older than what was
            // already said.
            tokio::select! {
                biased;
                changed = states.changed() => {
                    state = changed;
                    continue;
                }
                synced = client.sync("/") => match synced {
                    Ok(()) => {
                        link.send_replace(Link::Up { client: client.clone() });
                    }
                    Err(error) => {
                        info!(ensemble = %address, %error, "sync failed");
                        if let Ok(changed) = timeout(SYNC_RETRY, states.changed()).await {
                            state = changed;
                        }
                        continue;
                    }
                },
            }
        }
        state = states.changed().await;
    }
}

/// Says that the session is down, since the time that it first was.
fn down(link: &watch::Sender<Link>, reason: Reason, detail: String) {
    link.send_modify(|link| {
        let since = match link {
            Link::Down { since, .. } => *since,
            _ => Timestamp::now(),
        };
        *link = Link::Down {
            reason,
            detail,
            since,
        };
    });
}

fn unconnected(target: &Target, error: &Error) -> (Reason, String) {
    let name = target.name();
    match (error, &target.authentication) {
        (Error::AuthFailed, Some(authentication)) => {
            let secret = &authentication.secret_ref.name;
            let detail = format!(
                "{name} does not accept the user name and password of the Secret {secret}."
            );
            (Reason::AuthenticationFailed, detail)
        }
        (Error::AuthFailed, None) => {
            let detail = format!("{name} wants clients to authenticate: set spec.authentication.");
            (Reason::AuthenticationFailed, detail)
        }
        (error, _) if target.connection().is_some() => (
            Reason::Unreachable,
            format!("No server of {name} opens a session: {error}."),
        ),
        (error, _) => (
            Reason::EnsembleNotReady,
            format!("No member of {name} opens a session: {error}."),
        ),
    }
}

fn backoff() -> impl Iterator<Item = Duration> {
    // The attempt itself waits up to the session timeout, so the pauses need not be long.
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(250))
        .with_max_delay(Duration::from_secs(5))
        .with_jitter()
        .without_max_times()
        .build()
}
