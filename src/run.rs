//! Starting and stopping: clients, lease, controllers, in this order and back.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context as _;
use bellwether_ensemble::validate::Context as Contribution;
use futures::future::join_all;
use kube::Client;
use kube::runtime::events::Reporter;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::arguments::Run;
use crate::backoff::Backoff;
use crate::lease::Claim;
use crate::metrics::Metrics;
use crate::{admin, election, ensemble, page};

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

    let namespaces = namespaces(&arguments.watch_namespaces)?;
    let page = arguments.page.then(|| {
        let operator = page::Operator {
            version: env!("CARGO_PKG_VERSION"),
            identity: arguments.identity.clone(),
        };
        page::routes(
            client.clone(),
            namespaces.clone(),
            operator,
            stopped.clone(),
        )
    });
    let serving = tokio::spawn(admin::serve(
        arguments.listen,
        metrics.clone(),
        page,
        wait(stopped.clone()),
    ));
    let mut tasks = vec![serving];
    // An election, its ensemble, its pods and its Secrets are all in one namespace, so that mirrors of
    // several namespaces need not know of each other.
    for namespace in &namespaces {
        let scope = election::Scope {
            namespace: namespace.clone(),
            cluster_domain: arguments.cluster_domain.clone(),
        };
        tasks.push(tokio::spawn(election::run(
            client.clone(),
            scope,
            lease.clone(),
            elections.clone(),
            wait(stopped.clone()),
        )));
    }
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
        creation: Default::default(),
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
        namespaces = ?arguments.watch_namespaces,
        "bellwether started"
    );

    let controller = async {
        // Only the holder of the lease plans and acts.
        let mut lease = lease.clone();
        let _ = lease.wait_for(|held| *held).await;
        context.metrics.lease(true);
        let controllers = namespaces
            .into_iter()
            .map(|namespace| ensemble::run(context.clone(), namespace, wait(stopped.clone())));
        join_all(controllers).await;
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
        for task in tasks {
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

/// The namespaces to work in, each once; one `None` for all of them.
///
/// # Errors
/// When one is empty: it would be taken for all, which nobody asked for.
fn namespaces(asked: &[String]) -> anyhow::Result<Vec<Option<String>>> {
    anyhow::ensure!(
        asked.iter().all(|namespace| !namespace.is_empty()),
        "--watch-namespace is given without a name; leave it out to work in all namespaces"
    );
    let asked: BTreeSet<&String> = asked.iter().collect();
    if asked.is_empty() {
        return Ok(vec![None]);
    }
    Ok(asked.into_iter().cloned().map(Some).collect())
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

#[cfg(test)]
mod tests {
    use super::namespaces;

    #[test]
    fn no_namespace_means_all_of_them_and_each_counts_once() {
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(namespaces(&[]).unwrap(), [None]);
        let asked = ["b", "a", "b"].map(str::to_owned);
        assert_eq!(namespaces(&asked).unwrap(), [some("a"), some("b")]);
    }

    #[test]
    fn an_empty_name_is_refused_and_does_not_mean_all() {
        let error = namespaces(&[String::new()]).unwrap_err().to_string();
        assert!(error.contains("--watch-namespace"), "{error}");
    }
}
