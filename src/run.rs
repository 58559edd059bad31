//! Starting and stopping the process: its client, its endpoints, and the operator.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bellwether_ensemble::validate::Context as Contribution;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::arguments::Run;
use crate::ensemble::members::Network;
use crate::operator::{Operator, Settings, report, wait};
use crate::{admin, page};

/// How long the endpoints may take to stop.
const ENDPOINTS_GRACE: Duration = Duration::from_secs(5);

/// Runs the operator until it is told to stop or loses its lease.
///
/// # Errors
/// When it cannot start, or when it lost the lease.
pub(crate) async fn run(arguments: Run) -> anyhow::Result<()> {
    let client = client().await?;
    let (stop, stopped) = watch::channel(false);
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
    let settings = Settings {
        identity: arguments.identity.clone(),
        lease_namespace: arguments.lease_namespace,
        lease_name: arguments.lease_name,
        namespaces,
        contribution: Contribution {
            member_image: arguments.member_image,
            cluster_domain: arguments.cluster_domain,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
    };
    let operator = Operator::new(settings, client, Arc::new(Network));
    let serving = tokio::spawn(admin::serve(
        arguments.listen,
        operator.metrics().clone(),
        page,
        wait(stopped),
    ));
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = %arguments.identity,
        namespaces = ?arguments.watch_namespaces,
        "bellwether started"
    );
    let told = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let lost = operator.run(told).await;
    stop.send_replace(true);
    let _ = tokio::time::timeout(ENDPOINTS_GRACE, report(vec![serving])).await;
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

async fn client() -> anyhow::Result<Client> {
    let mut config = kube::Config::infer().await.context(
        "cannot find a cluster: neither in-cluster configuration nor a kubeconfig works",
    )?;
    // A request that hangs must not hold up a reconcile for long; the next one asks again.
    config.connect_timeout = Some(Duration::from_secs(5));
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
