//! The operator's parts and their order: elections at once, ensembles when this replica holds the lease, and
//! all of them stop in the end.

use std::sync::Arc;
use std::time::Duration;

use bellwether_election::guards::{Guard, Guards};
use bellwether_election::permissions::Permissions;
use bellwether_ensemble::rules::Rules;
use bellwether_ensemble::validate::Context as Contribution;
use futures::future::{BoxFuture, try_join_all};
use kube::Client;
use kube::runtime::events::Reporter;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::certificates::Issuer;
use crate::election::Outside;
use crate::election::zookeepers::ZooKeepers;
use crate::ensemble::identity::Identities;
use crate::ensemble::members::Members;
use crate::lease::{Claim, Held, Holder};
use crate::limited::{at_most, limited};
use crate::metrics::Metrics;
use crate::{election, ensemble};

/// How long a reconcile that is under way may take to finish when the operator stops.
const GRACE: Duration = Duration::from_secs(10);
/// How many requests for ensembles may be under way at once. Those for the lease are not among them.
const REQUESTS: usize = 32;
/// How long the other parts may take to stop.
const PARTS_GRACE: Duration = Duration::from_secs(5);

/// The settings of an operator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who holds the lease: this replica.
    pub identity: String,
    /// The namespace of the operator's own lease.
    pub lease_namespace: String,
    /// The name of the operator's own lease.
    pub lease_name: String,
    /// The namespaces to work in, each once; one `None` for all of them.
    pub namespaces: Vec<Option<String>>,
    /// What the operator contributes to every ensemble.
    pub contribution: Contribution,
    /// What elections may do beyond their namespace. By default they connect to no ZooKeeper that the operator
    /// does not run.
    pub permissions: Permissions,
    /// The safety rules that the planner keeps. Only the simulation can build another value than all of them.
    pub rules: Rules,
    /// What the mirror of elections does so that nothing deceives it. Only the simulation can build another value than all of it.
    pub guards: Guards,
}

/// An operator, ready to run.
pub struct Operator {
    settings: Settings,
    client: Client,
    members: Arc<dyn Members>,
    zookeepers: Arc<dyn ZooKeepers>,
    issuer: Arc<dyn Issuer>,
    metrics: Metrics,
    elections: election::Metrics,
    parts: Parts,
    stopping: watch::Sender<bool>,
}

/// What runs in tasks of its own.
type Parts = JoinSet<anyhow::Result<()>>;

impl Operator {
    /// An operator that works through this client, asks these members, opens sessions to ZooKeeper here, and has their certificates signed here.
    pub fn new(
        settings: Settings,
        client: Client,
        members: Arc<dyn Members>,
        zookeepers: Arc<dyn ZooKeepers>,
        issuer: Arc<dyn Issuer>,
    ) -> Self {
        let elections = election::Metrics::default();
        elections.limit_series(settings.permissions.own_series);
        let metrics = Metrics::new(|registry| elections.register(registry));
        Self {
            settings,
            client: limited(client),
            members,
            zookeepers,
            issuer,
            metrics,
            elections,
            parts: Parts::new(),
            stopping: watch::channel(false).0,
        }
    }

    /// The operator's metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Becomes true when the operator stops.
    pub fn stopped(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Starts a part that has to run as long as the operator does.
    pub fn add(&mut self, part: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.parts.spawn(part);
    }

    /// Runs until `stop` completes. A reconcile that is under way may finish; a new one does not start.
    ///
    /// # Errors
    /// When the lease was lost, or a part of the operator ended: a missing part would go unnoticed until it
    /// is needed, so the whole operator has to start again.
    pub fn run(self, stop: BoxFuture<'static, ()>) -> BoxFuture<'static, anyhow::Result<()>> {
        // Both are boxed, or every program that runs an operator would compile all of it once more.
        Box::pin(self.run_until(stop))
    }

    async fn run_until(mut self, stop: BoxFuture<'static, ()>) -> anyhow::Result<()> {
        let (holder, lease) = Holder::new();
        let stopped = self.stopped();
        // An operator of some namespaces mirrors within each of them: an election there whose ensemble is in another one is not
        // admitted.
        let permissions = Arc::new(self.settings.permissions.clone());
        let mirrors_lease = match self.settings.guards.keep(Guard::LeaseHeld) {
            true => lease.clone(),
            false => Held::always(),
        };
        let outside = Outside {
            issuer: self.issuer.clone(),
            members: self.members.clone(),
            zookeepers: self.zookeepers,
        };
        for namespace in &self.settings.namespaces {
            let scope = election::Scope {
                namespace: namespace.clone(),
                cluster_domain: self.settings.contribution.cluster_domain.clone(),
                permissions: permissions.clone(),
                guards: self.settings.guards,
            };
            self.parts.spawn(election::run(
                self.client.clone(),
                outside.clone(),
                scope,
                mirrors_lease.clone(),
                self.elections.clone(),
                wait(stopped.clone()),
            ));
        }
        let Settings {
            identity,
            lease_namespace,
            lease_name,
            namespaces,
            contribution,
            permissions: _,
            rules,
            guards: _,
        } = self.settings;
        let context = Arc::new(ensemble::Context {
            client: at_most(REQUESTS, self.client.clone()),
            members: self.members,
            identities: Identities::new(self.issuer),
            contribution,
            rules,
            reporter: Reporter {
                controller: "bellwether".to_owned(),
                instance: Some(identity.clone()),
            },
            lease: lease.clone(),
            metrics: self.metrics,
            backoff: Backoff::default(),
            creation: Default::default(),
            durations: Default::default(),
        });
        let mut claim = Claim::new(self.client, &lease_namespace, &lease_name, &identity);
        let controller = async {
            // Only the holder of the lease plans and acts.
            lease.clone().acquired().await;
            context.metrics.lease(true);
            let controllers = namespaces.into_iter().map(|namespace| async {
                ensemble::run(context.clone(), namespace, wait(stopped.clone())).await;
                anyhow::ensure!(*stopped.borrow(), "a controller of ensembles ended");
                Ok(())
            });
            try_join_all(controllers).await.map(drop)
        };
        let result = {
            tokio::pin!(controller);
            let mut runs = true;
            let result = tokio::select! {
                () = stop => Ok(()),
                ended = &mut controller => {
                    runs = false;
                    ended
                }
                failure = failure(&mut self.parts) => Err(failure),
                () = claim.hold(&holder) => Err(anyhow::anyhow!("the lease was lost; starting afresh")),
            };
            if let Err(error) = &result {
                tracing::error!(error = format!("{error:#}"), "the operator cannot go on");
            }
            tracing::info!("stopping");
            self.stopping.send_replace(true);
            if runs && lease.is_held() {
                let _ = timeout(GRACE, controller).await;
            }
            result
        };
        let held = lease.is_held();
        holder.lose();
        if held {
            claim.release().await;
        }
        let _ = timeout(PARTS_GRACE, async {
            while let Some(ended) = self.parts.join_next().await {
                match ended {
                    Ok(Err(error)) => tracing::error!(%error, "a part of the operator failed"),
                    Err(error) => tracing::error!(%error, "a part of the operator failed"),
                    Ok(Ok(())) => {}
                }
            }
        })
        .await;
        result
    }
}

/// The error of a part that ended before the operator stopped.
async fn failure(parts: &mut Parts) -> anyhow::Error {
    match parts.join_next().await {
        Some(Ok(Ok(()))) => anyhow::anyhow!("a part of the operator ended"),
        Some(Ok(Err(error))) => error.context("a part of the operator failed"),
        Some(Err(error)) => anyhow::Error::new(error).context("a part of the operator broke off"),
        None => std::future::pending().await,
    }
}

/// Completes when the operator stops.
pub async fn wait(mut stopped: watch::Receiver<bool>) {
    // An error means that the operator was dropped, which is a stop, too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_that_ends_in_any_way_is_noticed() {
        let how = async |part: BoxFuture<'static, anyhow::Result<()>>| {
            let mut parts = Parts::new();
            parts.spawn(std::future::pending());
            parts.spawn(part);
            failure(&mut parts).await.to_string()
        };
        let broke = how(Box::pin(async { panic!("a defect") })).await;
        assert_eq!(broke, "a part of the operator broke off");
        let failed = how(Box::pin(async { anyhow::bail!("no address") })).await;
        assert_eq!(failed, "a part of the operator failed");
        let ended = how(Box::pin(async { Ok(()) })).await;
        assert_eq!(ended, "a part of the operator ended");
    }
}
