//! One ZooKeeper session for each ensemble or connection, and whether it is up.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use bellwether_api::election::Reason;
use bellwether_election::census::MIRROR_SESSION_TIMEOUT;
use futures::FutureExt;
use jiff::Timestamp;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use zookeeper_client::{Client, Error, SessionState};

use super::credentials::{Credentials, CredentialsError};
use super::metrics::{Counted, Metrics};
use super::reach;
use super::relay::{Limits, Relay};
use super::supervise::{PAUSE, supervise};
use super::target::Target;

/// The session timeout to ask for. The mirror owns no ephemeral nodes, so nothing depends on its
/// session; a short timeout finds a silent connection soon (two fifths of it).
const SESSION_TIMEOUT: Duration = Duration::from_millis(MIRROR_SESSION_TIMEOUT as u64);

/// How long to wait for the session to change before a failed sync is tried again.
const SYNC_RETRY: Duration = Duration::from_secs(1);

/// How long to wait after a server broke a limit before it is connected to again.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(30);

/// A session that lasted this long is opened again at once when it ends.
const LASTING: Duration = Duration::from_secs(30);

/// How many candidates one session reads at the same time. Each may have data of 1 MiB.
const CONCURRENT_READS: usize = 16;

/// How long a session that is doubted may take to answer.
const SYNC_PATIENCE: Duration = Duration::from_secs(10);

/// How often the Secrets of a session that is up are read again.
const SECRETS_PERIOD: Duration = Duration::from_secs(60);

/// Whether the target of a session exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The ensembles were not listed yet.
    Unknown,
    /// The ensemble does not exist.
    Absent,
    /// The ensemble exists, with this uid; one that Bellwether does not run has an empty uid.
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
        /// One permit for each candidate that is being read, of all elections of the session.
        reads: Arc<Semaphore>,
        /// Where to say that the session may be broken.
        doubts: Arc<Notify>,
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

impl Link {
    /// Has the session checked, since a user of it broke off.
    pub(super) fn doubt(&self) {
        if let Self::Up { doubts, .. } = self {
            doubts.notify_one();
        }
    }
}

/// What is needed to keep a session.
#[derive(Clone)]
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
    /// Keeps the session as [`run`](Self::run) does, and does so again when that breaks off.
    pub(super) async fn keep(self) {
        let what = format!("the session to {}", self.address);
        let link = self.link.clone();
        let name = self.target.name().to_owned();
        let run = move || self.clone().run().boxed();
        let report = move |pause: Duration| {
            let detail = format!(
                "The session to {name} broke off by a defect of the operator, whose log says more. Another one is opened in {pause:?}."
            );
            down(&link, Reason::Disconnected, detail);
            std::future::ready(()).boxed()
        };
        supervise(&what, PAUSE, run, report).await;
    }

    /// Keeps the session and reports in `link` whether it is up.
    ///
    /// Every time that the session connects or reconnects, `link` changes: every mirror must then
    /// read everything again. Runs until it is dropped, or until `presence` has no sender.
    async fn run(mut self) {
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
            let pause = match connected {
                Ok(opened) => {
                    let began = Instant::now();
                    let pause = match self.live(opened).await {
                        Some(pause) => pause,
                        None => return,
                    };
                    if began.elapsed() >= LASTING {
                        retries = backoff();
                    }
                    pause
                }
                Err(Unopened {
                    reason,
                    detail,
                    pause,
                }) => {
                    warn!(ensemble = %self.address, detail, "no session");
                    down(&self.link, reason, detail);
                    pause
                }
            };
            let delay = match pause {
                Pause::None => continue,
                Pause::Usual => retries.next().unwrap_or(Duration::from_secs(10)),
                Pause::Complaint => COMPLAINT_PAUSE,
            };
            tokio::select! {
                () = sleep(delay) => {}
                changed = self.presence.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Follows an open session until another one is needed, and returns how long to wait before; `None` if
    /// `presence` has no sender.
    async fn live(&mut self, opened: Opened) -> Option<Pause> {
        let Opened {
            client,
            credentials,
            relay,
        } = opened;
        let session = client.session_id();
        info!(ensemble = %self.address, %session, "session opened");
        let _counted = Counted::new(&self.metrics.sessions);
        tokio::select! {
            () = follow(&self.target, &self.address, Arc::new(client), &self.link) => {
                Some(Pause::Usual)
            }
            () = changed(&self.kube, &self.target, credentials) => {
                info!(ensemble = %self.address, "the Secrets changed");
                Some(Pause::None)
            }
            complaint = relay.complaint() => {
                down(&self.link, Reason::ReadFailed, complained(&complaint));
                Some(Pause::Complaint)
            }
            changed = self.presence.changed() => changed.is_ok().then_some(Pause::None),
        }
    }
}

/// How long to wait before the next session.
enum Pause {
    None,
    Usual,
    Complaint,
}

/// An open session.
struct Opened {
    client: Client,
    credentials: Credentials,
    /// The relay between the client and the servers.
    relay: Relay,
}

/// Why no session is open.
struct Unopened {
    reason: Reason,
    detail: String,
    pause: Pause,
}

/// The message about a server that broke a limit.
fn complained(complaint: &str) -> String {
    format!(
        "{complaint} The operator closed the connection: see whether that is a ZooKeeper server."
    )
}

/// Opens a session, or says in a reason and a sentence why none can be opened.
async fn connect(kube: &kube::Client, target: &Target, address: &str) -> Result<Opened, Unopened> {
    let unopened = |error: CredentialsError| Unopened {
        reason: error.reason(),
        detail: error.to_string(),
        pause: Pause::Usual,
    };
    let credentials = Credentials::read(kube, target).await.map_err(unopened)?;
    let tls = credentials.tls_config().map_err(unopened)?;
    let relay = Relay::open(address, tls, Limits::default()).await;
    let relay = relay.map_err(|error| Unopened {
        reason: Reason::ReadFailed,
        detail: format!("The operator cannot listen on loopback: {error}."),
        pause: Pause::Usual,
    })?;
    let connector = credentials.connector();
    let connector = connector.with_session_timeout(SESSION_TIMEOUT);
    let connected = tokio::select! {
        biased;
        complaint = relay.complaint() => {
            return Err(Unopened {
                reason: Reason::ReadFailed,
                detail: complained(&complaint),
                pause: Pause::Complaint,
            });
        }
        connected = connector.connect(relay.address()) => connected,
    };
    match connected {
        Ok(client) => Ok(Opened {
            client,
            credentials,
            relay,
        }),
        Err(error) => {
            let (reason, mut detail) = unconnected(target, &error);
            if target.connection().is_some()
                && let Some(obstacle) = reach::obstacle(address, &credentials).await
            {
                detail = format!("{detail} {obstacle}.");
            }
            Err(Unopened {
                reason,
                detail,
                pause: Pause::Usual,
            })
        }
    }
}

/// Waits until the Secrets of a target hold something else. While they cannot be read, the open session
/// stays.
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
    let reads = Arc::new(Semaphore::new(CONCURRENT_READS));
    let doubts = Arc::new(Notify::new());
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
            // A server may lag behind: before a sync, its answers may be older than what was already
            // reported.
            tokio::select! {
                biased;
                changed = states.changed() => {
                    state = changed;
                    continue;
                }
                synced = client.sync("/") => match synced {
                    Ok(()) => {
                        link.send_replace(Link::Up {
                            client: client.clone(),
                            reads: reads.clone(),
                            doubts: doubts.clone(),
                        });
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
        state = tokio::select! {
            changed = states.changed() => changed,
            () = doubts.notified() => match timeout(SYNC_PATIENCE, client.sync("/")).await {
                Ok(Ok(())) => state,
                // The library's task for the session has ended or does not answer; the library reports that
                // in no other way.
                _ => {
                    let detail = format!("The session to {name} does not answer any more.");
                    down(link, Reason::Disconnected, detail);
                    return;
                }
            },
        };
    }
}

/// Reports that the session is down, since the first of such reports in a row.
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

#[cfg(test)]
pub(in crate::election) mod tests;
