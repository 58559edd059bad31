//! One ZooKeeper session for each ensemble or connection, and whether it is up.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use bellwether_api::election::Reason;
use bellwether_election::census::MIRROR_SESSION_TIMEOUT;
use bellwether_election::guards::{Guard, Guards};
use bellwether_election::permissions::{Permissions, Refusal};
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};
use zookeeper_client::{Error, SessionState};

use super::budget::Budget;
use super::credentials::{Credentials, CredentialsError};
use super::ensembles::{Ensemble, Trust, Untrusted};
use super::metrics::{Counted, Metrics};
use super::supervise::{PAUSE, supervise};
use super::target::Target;
use super::zookeepers::{Connection, Opened, Opening, Session, Unopened, ZooKeepers};

/// The session timeout to ask for. The mirror owns no ephemeral nodes, so nothing depends on its
/// session; a short timeout finds a silent connection soon (two fifths of it).
const SESSION_TIMEOUT: Duration = Duration::from_millis(MIRROR_SESSION_TIMEOUT as u64);

/// How long to wait for the session to change before a failed sync is tried again.
const SYNC_RETRY: Duration = Duration::from_secs(1);

/// How often a sync may fail in a row before another session is opened.
const SYNC_FAILURES: usize = 5;

/// How long to wait after a server broke a limit before it is connected to again.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(30);

/// A session that lasted this long is opened again at once when it ends.
const LASTING: Duration = Duration::from_secs(30);

/// How long a session that is doubted may take to answer.
const SYNC_PATIENCE: Duration = Duration::from_secs(10);

/// How long an attempt to open a session takes that fails, where Bellwether does not run the ZooKeeper. Longer
/// than any failure needs: from the time that an attempt takes its author could tell a port that is closed from
/// one where something listens.
const ATTEMPT: Duration = Duration::from_secs(12);

/// Whether the target of a session exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The ensembles were not listed yet.
    Unknown,
    /// The ensemble does not exist.
    Absent,
    /// The ensemble exists. Of one that Bellwether does not run nothing is known.
    Present(Ensemble),
}

/// What mirrors may know about the session of their ensemble.
#[derive(Clone, Debug)]
pub(super) enum Link {
    /// It has not been tried long enough to say anything.
    Starting,
    /// It is up, and the server had caught up with the leader when it came up.
    Up {
        /// The session to read with.
        client: Arc<dyn Session>,
        /// What all elections of the session may have in memory.
        budget: Arc<Budget>,
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
    /// The same for TLS, where Bellwether runs the ensemble.
    pub(super) secure_address: String,
    /// Whether it exists.
    pub(super) presence: watch::Receiver<Presence>,
    /// Where to say whether the session is up.
    pub(super) link: watch::Sender<Link>,
    /// Which hosts may be connected to.
    pub(super) permissions: Arc<Permissions>,
    /// What it takes to connect to an ensemble that Bellwether runs.
    pub(super) trust: Trust,
    /// What opens sessions.
    pub(super) zookeepers: Arc<dyn ZooKeepers>,
    /// What is done so that nothing deceives the mirrors.
    pub(super) guards: Guards,
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
        if let Some(Refusal { reason, detail }) = self.target.refusal(&self.permissions) {
            warn!(ensemble = %self.address, detail, "no connection");
            down(&self.link, reason, detail);
            // What is allowed changes with the operator's arguments, and with the spec: either ends this.
            return std::future::pending().await;
        }
        let mut retries = backoff();
        loop {
            let present = self.presence.borrow_and_update().clone();
            let ensemble = match present {
                Presence::Present(ensemble) => match in_clear(&self.target, &ensemble) {
                    None => Some(ensemble),
                    Some(detail) => {
                        down(&self.link, Reason::CredentialsWithoutTls, detail);
                        None
                    }
                },
                Presence::Absent => {
                    let name = self.target.name();
                    let detail = format!("There is no ensemble {name} in this namespace.");
                    down(&self.link, Reason::EnsembleNotFound, detail);
                    None
                }
                Presence::Unknown => None,
            };
            let Some(ensemble) = ensemble else {
                retries = backoff();
                if self.presence.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let address = match ensemble.takes_tls {
                true => Address::Secure(&self.secure_address, &ensemble.uid),
                false => Address::Plain(&self.address),
            };
            let mut presence = self.presence.clone();
            let connected = tokio::select! {
                connected = self.connect(&address) => connected,
                changed = presence.changed() => match changed {
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
                Err(NoSession {
                    reason,
                    detail,
                    pause,
                    trouble,
                }) => {
                    warn!(ensemble = %self.address, detail, trouble, "no session");
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
    async fn live(&self, opened: Live) -> Option<Pause> {
        let Live {
            session,
            connection,
            credentials,
        } = opened;
        info!(ensemble = %self.address, session = session.id(), "session opened");
        let _counted = Counted::new(&self.metrics.sessions);
        let mut presence = self.presence.clone();
        tokio::select! {
            () = self.follow(session) => {
                Some(Pause::Usual)
            }
            () = credentials.changed(&self.trust.kube, &self.target) => {
                info!(ensemble = %self.address, "the Secrets changed, or are gone");
                Some(Pause::None)
            }
            complaint = connection.complaint() => {
                down(&self.link, Reason::ReadFailed, complained(&complaint));
                Some(Pause::Complaint)
            }
            changed = presence.changed() => changed.is_ok().then_some(Pause::None),
        }
    }

    /// Follows the states of a session until it ends.
    async fn follow(&self, session: Arc<dyn Session>) {
        let (target, address, link) = (&self.target, &self.address, &self.link);
        let name = target.name();
        let budget = Arc::new(Budget::new(target));
        let doubts = Arc::new(Notify::new());
        let mut states = session.states();
        let mut state = changed(&mut states).await;
        let mut failures = 0;
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
                let caught_up = async {
                    match self.guards.keep(Guard::CaughtUp) {
                        true => session.sync("/").await,
                        false => Ok(()),
                    }
                };
                tokio::select! {
                    biased;
                    changed = changed(&mut states) => {
                        state = changed;
                        continue;
                    }
                    synced = caught_up => match synced {
                        Ok(()) => {
                            failures = 0;
                            link.send_replace(Link::Up {
                                client: session.clone(),
                                budget: budget.clone(),
                                doubts: doubts.clone(),
                            });
                        }
                        Err(error) => {
                            info!(ensemble = %address, %error, "sync failed");
                            failures += 1;
                            if failures == SYNC_FAILURES {
                                let detail = format!("{name} does not answer as ZooKeeper does: {error}.");
                                down(link, Reason::ReadFailed, detail);
                                return;
                            }
                            if let Ok(changed) = timeout(SYNC_RETRY, changed(&mut states)).await {
                                state = changed;
                            }
                            continue;
                        }
                    },
                }
            }
            state = tokio::select! {
                changed = changed(&mut states) => changed,
                () = doubts.notified() => match timeout(SYNC_PATIENCE, session.sync("/")).await {
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

    /// Opens a session with what the target names, and with trust in an ensemble that takes TLS.
    async fn connect(&self, address: &Address<'_>) -> Result<Live, NoSession> {
        let (trust, target) = (&self.trust, &self.target);
        let unread = |error: CredentialsError| NoSession::new(error.reason(), error.to_string());
        let credentials = Credentials::read(&trust.kube, target).await;
        let credentials = credentials.map_err(unread)?;
        let tls = match (address, target.ensemble()) {
            (Address::Secure(_, uid), Some(ensemble)) => {
                let trust = trust.in_ensemble(ensemble, uid).await;
                let untrusted = |untrusted: Untrusted| {
                    NoSession::new(Reason::EnsembleNotReady, untrusted.to_string())
                };
                Some(trust.map_err(untrusted)?)
            }
            _ => credentials.tls_config().map_err(unread)?,
        };
        let (Address::Plain(servers) | Address::Secure(servers, _)) = address;
        let connector = credentials.connector();
        let opening = Opening {
            servers: (*servers).to_owned(),
            connector: connector.with_session_timeout(SESSION_TIMEOUT),
            tls,
            patience: target.connection().map(|_| ATTEMPT),
        };
        let Opened {
            session,
            connection,
        } = open(&*self.zookeepers, target, opening).await?;
        Ok(Live {
            session,
            connection,
            credentials,
        })
    }
}

/// Why credentials must not be sent to an ensemble in another namespace, if they must not.
fn in_clear(target: &Target, ensemble: &Ensemble) -> Option<String> {
    let elsewhere = target.elsewhere().filter(|_| !ensemble.takes_tls)?;
    target.authentication.as_ref()?;
    Some(format!(
        "spec.authentication would send credentials to the ensemble {} in the namespace {}, whose members do not all take TLS.",
        elsewhere.name, elsewhere.namespace
    ))
}

/// How long to wait before the next session.
enum Pause {
    None,
    Usual,
    Complaint,
}

/// An open session.
struct Live {
    session: Arc<dyn Session>,
    connection: Box<dyn Connection>,
    credentials: Credentials,
}

/// Why no session is open.
struct NoSession {
    reason: Reason,
    detail: String,
    pause: Pause,
    /// What went wrong on the way to the servers, for the log.
    trouble: Option<String>,
}

impl NoSession {
    /// For this reason, and the next attempt follows after the usual pause.
    fn new(reason: Reason, detail: String) -> Self {
        Self {
            reason,
            detail,
            pause: Pause::Usual,
            trouble: None,
        }
    }
}

/// The message about a server that broke a limit.
fn complained(complaint: &str) -> String {
    format!(
        "{complaint} The operator closed the connection: see whether that is a ZooKeeper server."
    )
}

/// Where to connect to.
enum Address<'a> {
    /// As the target says.
    Plain(&'a str),
    /// Over TLS, to an ensemble that Bellwether runs, which has this uid.
    Secure(&'a str, &'a str),
}

/// Opens a session, or says in a reason and a sentence why none can be opened.
async fn open(
    zookeepers: &dyn ZooKeepers,
    target: &Target,
    opening: Opening,
) -> Result<Opened, NoSession> {
    let end = Instant::now() + ATTEMPT;
    match zookeepers.open(opening).await {
        Ok(opened) => Ok(opened),
        Err(Unopened::Here(error)) => {
            let detail = format!("The operator cannot listen on loopback: {error}.");
            Err(NoSession::new(Reason::ReadFailed, detail))
        }
        Err(Unopened::Complaint(complaint)) => Err(NoSession {
            pause: Pause::Complaint,
            ..NoSession::new(Reason::ReadFailed, complained(&complaint))
        }),
        Err(Unopened::Refused { error, trouble }) => {
            let (reason, detail) = unconnected(target, &error);
            if reason == Reason::Unreachable {
                sleep_until(end).await;
            }
            Err(NoSession {
                trouble,
                ..NoSession::new(reason, detail)
            })
        }
    }
}

/// The next state of a session; none follows its end.
async fn changed(states: &mut BoxStream<'static, SessionState>) -> SessionState {
    match states.next().await {
        Some(state) => state,
        None => std::future::pending().await,
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
        // Whatever the error is: what listens where, and what does not, is not for the author to find out.
        _ if target.connection().is_some() => (
            Reason::Unreachable,
            format!("No server of {name} opens a session."),
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
