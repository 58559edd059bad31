//! The operator's own lease: of several replicas one works, the others wait.
//!
//! Every write carries the resourceVersion that was read, so of two claims one gets a conflict.
//! Whether a holder is alive is judged by when *this* process last saw the record change, not by the
//! holder's clock. The lease makes two working replicas rare, not impossible; what makes them
//! harmless are the preconditions of every destructive write.

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

    /// Waits for the lease, then holds it. `held` says so to everybody. Returns when the lease is
    /// lost, which ends the process: a fresh start knows nothing stale.
    pub(crate) async fn hold(&mut self, held: &watch::Sender<bool>) {
        let mut renewed: Option<Instant> = None;
        loop {
            match timeout(DEADLINE / 2, self.renew()).await {
                Ok(Ok(true)) => {
                    if renewed.is_none() {
                        tracing::info!(lease = %self.name, identity = %self.identity, "holding the lease");
                    }
                    renewed = Some(Instant::now());
                    held.send_replace(true);
                }
                Ok(Ok(false)) if renewed.is_some() => {
                    tracing::error!(lease = %self.name, "another replica holds the lease");
                    held.send_replace(false);
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
                held.send_replace(false);
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
