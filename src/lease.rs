//! The operator's own lease: of several replicas one works, the others wait.
//!
//! Every write carries the resourceVersion that was read, so of two claims one gets a conflict.
//! Whether a holder is alive is judged by when *this* process last saw the record change, not by the
//! holder's clock. The lease makes two working replicas rare, not impossible; what makes them
//! harmless are the preconditions of every destructive write.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// How long a holder that stopped renewing keeps the lease.
const DURATION: Duration = Duration::from_secs(15);
/// A holder that could not renew for this long stops working: others may take over soon.
const DEADLINE: Duration = Duration::from_secs(10);
/// How often the holder renews, and the others look.
const PERIOD: Duration = Duration::from_secs(3);

/// Whether this replica holds the lease, for everything that writes.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    held: watch::Receiver<bool>,
    until: Arc<Mutex<Option<Instant>>>,
}

impl Held {
    /// As if this replica held the lease for ever: what the simulation shows to be wrong.
    pub(crate) fn always() -> Self {
        let (sender, held) = watch::channel(true);
        tokio::spawn(async move { sender.closed().await });
        let until = Instant::now().checked_add(Duration::from_secs(1 << 30));
        Self {
            held,
            until: Arc::new(Mutex::new(until)),
        }
    }

    /// Whether this replica holds the lease now. A process that was frozen sees as soon as it runs again that
    /// its time is over, before the task that renews the lease has run.
    pub(crate) fn is_held(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *self.held.borrow() && until.is_some_and(|until| Instant::now() < until)
    }

    /// Waits until the lease is taken or lost. An error means that neither can happen any more.
    pub(crate) async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.held.changed().await
    }

    /// Waits until this replica holds the lease.
    pub(crate) async fn acquired(&mut self) {
        // An error means that the process ends.
        let _ = self.held.wait_for(|held| *held).await;
    }
}

/// The other end of [`Held`], for the task that renews the lease.
#[derive(Debug)]
pub(crate) struct Holder {
    held: watch::Sender<bool>,
    until: Arc<Mutex<Option<Instant>>>,
}

impl Holder {
    /// Both ends. The lease is not held at first.
    pub(crate) fn new() -> (Self, Held) {
        let (sender, receiver) = watch::channel(false);
        let until = Arc::new(Mutex::new(None));
        let held = Held {
            held: receiver,
            until: Arc::clone(&until),
        };
        let held_by = Self {
            held: sender,
            until,
        };
        (held_by, held)
    }

    /// Both ends of a lease that is held for ever, or not at all.
    #[cfg(test)]
    pub(crate) fn held(is_held: bool) -> (Self, Held) {
        let (holder, held) = Self::new();
        if is_held {
            holder.hold_for_ever();
        }
        (holder, held)
    }

    /// The lease is held for as long as a test takes.
    #[cfg(test)]
    pub(crate) fn hold_for_ever(&self) {
        self.hold(Instant::now() + Duration::from_secs(1_000_000_000));
    }

    /// The lease is held until then.
    pub(crate) fn hold(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        self.held
            .send_if_modified(|held| !std::mem::replace(held, true));
    }

    /// The lease is not held any more.
    pub(crate) fn lose(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.held
            .send_if_modified(|held| std::mem::replace(held, false));
    }
}

/// One replica's view of the lease.
pub(crate) struct Claim {
    api: Api<Lease>,
    name: String,
    identity: String,
    /// The record as last seen, and when it was first seen so.
    seen: Option<(Option<LeaseSpec>, Instant)>,
}

impl Claim {
    /// A claim on the lease `name` for the replica `identity`.
    pub(crate) fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            seen: None,
        }
    }

    /// Waits for the lease, then holds it and publishes that in `held`. Returns when the lease is lost; the
    /// process then ends, since a new process has no stale state.
    pub(crate) async fn hold(&mut self, held: &Holder) {
        let mut renewed: Option<Instant> = None;
        loop {
            let asked = Instant::now();
            match timeout(DEADLINE / 2, self.renew()).await {
                Ok(Ok(true)) => {
                    if renewed.is_none() {
                        tracing::info!(lease = %self.name, identity = %self.identity, "holding the lease");
                    }
                    // Other replicas count from when the record was written, which was not before `asked`.
                    renewed = Some(asked);
                    held.hold(asked + DEADLINE);
                }
                Ok(Ok(false)) if renewed.is_some() => {
                    tracing::error!(lease = %self.name, "another replica holds the lease");
                    held.lose();
                    return;
                }
                Ok(Ok(false)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.name, %error, "cannot renew the lease")
                }
                Err(_) => tracing::warn!(lease = %self.name, "renewing the lease takes too long"),
            }
            if renewed.is_some_and(|r| r.elapsed() >= DEADLINE) {
                tracing::error!(lease = %self.name, "the lease could not be renewed in time");
                held.lose();
                return;
            }
            sleep(if renewed.is_some() {
                PERIOD
            } else {
                PERIOD / 2
            })
            .await;
        }
    }

    /// One try to take or renew. Whether the lease is ours now.
    async fn renew(&mut self) -> Result<bool, kube::Error> {
        let now = MicroTime(Timestamp::now());
        let Some(mut lease) = self.api.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    ..Default::default()
                },
                spec: Some(self.spec(now.clone(), now, 0)),
            };
            return conflict_is_false(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.clone();
        if self.seen.as_ref().is_none_or(|(s, _)| *s != spec) {
            self.seen = Some((spec.clone(), Instant::now()));
        }
        let spec = spec.unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let mine = holder == self.identity;
        let expired = self
            .seen
            .as_ref()
            .is_some_and(|(_, since)| since.elapsed() >= DURATION);
        if !mine && !holder.is_empty() && !expired {
            return Ok(false);
        }
        let transitions = spec.lease_transitions.unwrap_or(0) + i32::from(!mine);
        let acquired = spec
            .acquire_time
            .filter(|_| mine)
            .unwrap_or_else(|| now.clone());
        lease.spec = Some(self.spec(acquired, now, transitions));
        conflict_is_false(
            self.api
                .replace(&self.name, &PostParams::default(), &lease)
                .await,
        )
    }

    /// Gives the lease back, so that another replica need not wait.
    pub(crate) async fn release(&self) {
        let given_back = async {
            let Some(mut lease) = self.api.get_opt(&self.name).await? else {
                return Ok(());
            };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() == Some(&self.identity) {
                spec.holder_identity = Some(String::new());
                self.api
                    .replace(&self.name, &PostParams::default(), &lease)
                    .await?;
                tracing::info!(lease = %self.name, "gave the lease back");
            }
            Ok::<(), kube::Error>(())
        };
        if let Ok(Err(error)) = timeout(Duration::from_secs(3), given_back).await {
            tracing::warn!(%error, "could not give the lease back; it expires by itself");
        }
    }

    fn spec(&self, acquired: MicroTime, renewed: MicroTime, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: Some(acquired),
            renew_time: Some(renewed),
            lease_transitions: Some(transitions),
            ..Default::default()
        }
    }
}

fn conflict_is_false<T>(result: Result<T, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(s)) if s.is_conflict() || s.is_already_exists() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_was_frozen_does_not_hold_the_lease_when_it_goes_on() {
        let (holder, held) = Holder::new();
        assert!(!held.is_held());
        holder.hold(Instant::now() + DEADLINE);
        assert!(held.is_held());
        // The task that renews did not run in between either.
        tokio::time::advance(DEADLINE * 2).await;
        assert!(!held.is_held());
        holder.hold(Instant::now() + DEADLINE);
        assert!(held.is_held());
        holder.lose();
        assert!(!held.is_held());
    }
}
