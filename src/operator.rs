//! The operator's parts and their order: elections at once, ensembles when this replica holds the lease, and
//! all of them back in the end.

use std::sync::Arc;
use std::time::Duration;

use bellwether_ensemble::validate::Context as Contribution;
use futures::future::join_all;
use kube::Client;
use kube::runtime::events::Reporter;
use tokio::sync::watch;

use crate::backoff::Backoff;
use crate::ensemble::members::Members;
use crate::lease::{Claim, Holder};
use crate::metrics::Metrics;
use crate::{election, ensemble};

/// How long a reconcile that is under way may take to finish when the operator stops.
const GRACE: Duration = Duration::from_secs(10);
/// How long the mirror of elections may take to stop.
const ELECTIONS_GRACE: Duration = Duration::from_secs(5);

/// What an operator is told when it starts.
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
}

/// An operator, ready to run.
pub struct Operator {
    settings: Settings,
    client: Client,
    members: Arc<dyn Members>,
    metrics: Metrics,
    elections: election::Metrics,
}

impl Operator {
    /// An operator that works through this client and asks these members.
    pub fn new(settings: Settings, client: Client, members: Arc<dyn Members>) -> Self {
        let elections = election::Metrics::default();
        let metrics = Metrics::new(|registry| elections.register(registry));
        Self {
            settings,
            client,
            members,
            metrics,
            elections,
        }
    }

    /// The operator's metrics.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Runs until `stop` completes or the lease is lost. Returns whether the lease was lost.
    ///
    /// A reconcile that is under way may finish first; a new one does not start.
    pub async fn run(self, stop: impl Future<Output = ()>) -> bool {
        let (stopping, stopped) = watch::channel(false);
        let (holder, lease) = Holder::new();
        let Settings {
            identity,
            lease_namespace,
            lease_name,
            namespaces,
            contribution,
        } = self.settings;
        // An election, its ensemble, its pods and its Secrets are all in one namespace, so that mirrors of
        // several namespaces need not know of each other.
        let elections: Vec<_> = namespaces
            .iter()
            .map(|namespace| {
                let scope = election::Scope {
                    namespace: namespace.clone(),
                    cluster_domain: contribution.cluster_domain.clone(),
                };
                tokio::spawn(election::run(
                    self.client.clone(),
                    scope,
                    lease.clone(),
                    self.elections.clone(),
                    wait(stopped.clone()),
                ))
            })
            .collect();
        let context = Arc::new(ensemble::Context {
            client: self.client.clone(),
            members: self.members,
            contribution,
            reporter: Reporter {
                controller: "bellwether".to_owned(),
                instance: Some(identity.clone()),
            },
            lease: lease.clone(),
            metrics: self.metrics,
            backoff: Backoff::default(),
            creation: Default::default(),
            silence: Default::default(),
        });
        let mut claim = Claim::new(self.client, &lease_namespace, &lease_name, &identity);
        let controller = async {
            // Only the holder of the lease plans and acts.
            lease.clone().acquired().await;
            context.metrics.lease(true);
            let controllers = namespaces
                .into_iter()
                .map(|namespace| ensemble::run(context.clone(), namespace, wait(stopped.clone())));
            join_all(controllers).await;
        };
        let lost = {
            tokio::pin!(controller);
            let lost = tokio::select! {
                () = stop => false,
                () = &mut controller => false,
                () = claim.hold(&holder) => true,
            };
            tracing::info!(lease_lost = lost, "stopping");
            stopping.send_replace(true);
            if lease.is_held() {
                let _ = tokio::time::timeout(GRACE, controller).await;
            }
            lost
        };
        holder.lose();
        if !lost {
            claim.release().await;
        }
        let _ = tokio::time::timeout(ELECTIONS_GRACE, report(elections)).await;
        lost
    }
}

/// A part of the operator that runs in a task of its own.
pub(crate) type Part = tokio::task::JoinHandle<anyhow::Result<()>>;

/// Waits for the end of these parts and logs how they failed.
pub(crate) async fn report(parts: Vec<Part>) {
    for part in parts {
        match part.await {
            Ok(Err(error)) => tracing::error!(%error, "a part of the operator failed"),
            Err(error) => tracing::error!(%error, "a part of the operator failed"),
            Ok(Ok(())) => {}
        }
    }
}

/// Completes when the operator stops.
pub(crate) async fn wait(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
