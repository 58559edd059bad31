//! Starting and stopping: clients, lease, controllers, in this order and back.

use std::sync::Arc;

use anyhow::Context as _;
use bellwether_ensemble::validate::Context as Contribution;
use kube::Client;
use kube::runtime::events::Reporter;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::arguments::Run;
use crate::backoff::Backoff;
use crate::lease::Claim;
use crate::metrics::Metrics;
use crate::{admin, election, ensemble};

/// Runs the operator until it is told to stop or loses its lease.
///
/// # Errors
/// When it cannot start, or when it lost the lease.
pub(crate) async fn run(arguments: Run) -> anyhow::Result<()> {
    let client = client().await?;
    let (stop, stopped) = watch::channel(false);
    let (held, lease) = watch::channel(false);
    let elections = election::Metrics::default();
    let metrics = Metrics::new(|registry| elections.register(registry));

    let serving = tokio::spawn(admin::serve(
        arguments.listen,
        metrics.clone(),
        wait(stopped.clone()),
    ));
    let scope = election::Scope {
        namespace: None,
        cluster_domain: arguments.cluster_domain.clone(),
    };
    let mirroring = tokio::spawn(election::run(
        client.clone(),
        scope,
        lease.clone(),
        elections,
        wait(stopped.clone()),
    ));
    let context = Arc::new(ensemble::Context {
        client: client.clone(),
        contribution: Contribution {
            member_image: arguments.member_image.clone(),
            cluster_domain: arguments.cluster_domain.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        reporter: Reporter {
            controller: "bellwether".to_owned(),
            instance: Some(arguments.identity.clone()),
        },
        lease: lease.clone(),
        metrics,
        backoff: Backoff::default(),
    });
    let mut claim = Claim::new(
        client,
        &arguments.lease_namespace,
        &arguments.lease_name,
        &arguments.identity,
    );
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = %arguments.identity,
        "bellwether started"
    );

    let controller = async {
        // Only the holder of the lease plans and acts.
        let mut lease = lease.clone();
        let _ = lease.wait_for(|held| *held).await;
        ensemble::run(context, wait(stopped.clone())).await;
    };
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let lost = {
        tokio::pin!(controller);
        let lost = tokio::select! {
            _ = interrupt.recv() => false,
            _ = terminate.recv() => false,
            () = &mut controller => false,
            () = claim.hold(&held) => true,
        };
        tracing::info!(lease_lost = lost, "stopping");
        stop.send_replace(true);
        if *lease.borrow() {
            // A reconcile that is under way may finish; a new one does not start.
            let grace = std::time::Duration::from_secs(10);
            let _ = tokio::time::timeout(grace, controller).await;
        }
        lost
    };
    held.send_replace(false);
    if !lost {
        claim.release().await;
    }
    let _ = tokio::time::timeout(std::time::Duration::from_secs(5), async {
        for task in [serving, mirroring] {
            match task.await {
                Ok(Err(error)) => tracing::error!(%error, "a part of the operator failed"),
                Err(error) => tracing::error!(%error, "a part of the operator failed"),
                Ok(Ok(())) => {}
            }
        }
    })
    .await;
    anyhow::ensure!(!lost, "the lease was lost; starting afresh");
    tracing::info!("stopped");
    Ok(())
}

async fn wait(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn client() -> anyhow::Result<Client> {
    let mut config = kube::Config::infer().await.context(
        "cannot find a cluster: neither in-cluster configuration nor a kubeconfig works",
    )?;
    // A request that hangs must not hold up a reconcile for long; the next one asks again.
    config.connect_timeout = Some(std::time::Duration::from_secs(5));
    config.default_retry = false;
    Client::try_from(config).context("cannot make a client for the cluster")
}
