//! One ZooKeeper session for each ensemble, and whether it is up.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use bellwether_api::election::Reason;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use zookeeper_client::{Client, Error, SessionState};

use super::metrics::{Counted, Metrics};

/// The session timeout to ask for. The mirror owns no ephemeral nodes, so nothing depends on its
/// session; a short timeout finds a silent connection soon (two fifths of it).
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);

/// How long to wait for the session to change before a failed sync is tried again.
const SYNC_RETRY: Duration = Duration::from_secs(1);

/// Whether an ensemble of a name exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The ensembles were not listed yet.
    Unknown,
    /// There is none.
    Absent,
    /// There is one, with this uid.
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
        client: Client,
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

/// Keeps a session to the ensemble `name` at `address` and says in `link` whether it is up.
///
/// Every time that the session connects or reconnects, `link` changes: whoever reads must then read
/// everything again. Runs until it is dropped, or until `presence` has no sender.
pub(super) async fn keep(
    name: String,
    address: String,
    mut presence: watch::Receiver<Presence>,
    link: watch::Sender<Link>,
    metrics: Metrics,
) {
    let mut retries = backoff();
    loop {
        let present = presence.borrow_and_update().clone();
        match present {
            Presence::Present(_) => {}
            Presence::Absent => {
                let detail = format!("There is no ensemble {name} in this namespace.");
                down(&link, Reason::EnsembleNotFound, detail);
                retries = backoff();
                if presence.changed().await.is_err() {
                    return;
                }
                continue;
            }
            Presence::Unknown => {
                if presence.changed().await.is_err() {
                    return;
                }
                continue;
            }
        }
        let connector = Client::connector().with_session_timeout(SESSION_TIMEOUT);
        let connected = tokio::select! {
            connected = connector.connect(&address) => connected,
            changed = presence.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        match connected {
            Ok(client) => {
                retries = backoff();
                info!(ensemble = %address, session = %client.session_id(), "session opened");
                let _counted = Counted::new(&metrics.sessions);
                tokio::select! {
                    () = follow(&name, &address, client, &link) => {}
                    changed = presence.changed() => if changed.is_err() { return },
                }
            }
            Err(error) => {
                let delay = retries.next().unwrap_or(Duration::from_secs(10));
                warn!(ensemble = %address, %error, ?delay, "no session");
                let (reason, detail) = unconnected(&name, &error);
                down(&link, reason, detail);
                tokio::select! {
                    () = sleep(delay) => {}
                    changed = presence.changed() => if changed.is_err() { return },
                }
            }
        }
    }
}

/// Follows the states of a session until it ends.
async fn follow(name: &str, address: &str, client: Client, link: &watch::Sender<Link>) {
    let mut states = client.state_watcher();
    let mut state = states.peek_state();
    loop {
        if state.is_terminated() {
            info!(ensemble = %address, %state, "session ended");
            let (reason, detail) = match state {
                SessionState::AuthFailed => unconnected(name, &Error::AuthFailed),
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

fn unconnected(name: &str, error: &Error) -> (Reason, String) {
    match error {
        Error::AuthFailed => {
            let detail = format!("{name} does not accept the operator's credentials.");
            (Reason::AuthenticationFailed, detail)
        }
        error => (
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
