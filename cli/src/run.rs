//! Starting and stopping the process: its client, its endpoints, and the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bellwether_ensemble::rules::Rules;
use bellwether_ensemble::validate::{Catalogue, Context as Contribution, OperatorPods};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};

use bellwether::admin::{self, Certificate};
use bellwether::{Authorities, Guards, Network, Operator, Permissions, Servers, Settings, wait};

use crate::arguments::Run;
use crate::page;

/// Runs the operator until it is told to stop or loses its lease.
///
/// # Errors
/// When it cannot start, when it lost the lease, or when a part of it ended.
pub(crate) async fn run(arguments: Run) -> anyhow::Result<()> {
    let client = client().await?;
    let namespaces = namespaces(&arguments.watch_namespaces)?;
    let authorities = Authorities::new(
        client.clone(),
        &arguments.lease_namespace,
        &arguments.root_secret,
    );
    let authorities = Arc::new(authorities);
    let labels: BTreeMap<_, _> = arguments.own_pod_labels.into_iter().collect();
    let operator_pods = (!labels.is_empty()).then(|| OperatorPods {
        namespace: arguments.lease_namespace.clone(),
        labels,
    });
    let names = page::Names {
        cluster_domain: arguments.cluster_domain.clone(),
        added: arguments.page_hosts,
    };
    let settings = Settings {
        identity: arguments.identity.clone(),
        lease_namespace: arguments.lease_namespace,
        lease_name: arguments.lease_name,
        namespaces: namespaces.clone(),
        contribution: Contribution {
            member_image: arguments.member_image,
            cluster_domain: arguments.cluster_domain,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            operator_pods,
            cert_manager: arguments.cert_manager,
            catalogue: Catalogue {
                repository: arguments.zookeeper_repository,
                digests: arguments.zookeeper_digests.into_iter().collect(),
            },
        },
        permissions: Permissions {
            hosts: arguments.allowed_hosts.into(),
            label_keys: arguments.allowed_label_keys,
            handover_ports: arguments.allowed_handover_ports,
            check_ports: arguments.allowed_check_ports,
            handover_on_cordon: arguments.handover_on_cordon,
            bridges: arguments.allow_bridges,
            own_series: arguments.election_series,
        },
        rules: Rules::ALL,
        guards: Guards::ALL,
    };
    let members = Arc::new(Network::new(authorities.clone()));
    let reviewer = client.clone();
    let zookeepers = Arc::new(Servers);
    let mut operator = Operator::new(settings, client.clone(), members, zookeepers, authorities);
    let page = arguments.page.then(|| {
        let shown = page::Operator {
            version: env!("CARGO_PKG_VERSION"),
            identity: arguments.identity.clone(),
        };
        page::routes(client, namespaces, names, shown, operator.stopped())
    });
    let reports = admin::reports(operator.metrics().clone(), page);
    let plain = match arguments.secure_listen {
        None => admin::health().merge(reports),
        Some(address) => {
            let certificate = match &arguments.serving_certificate {
                Some(directory) => Certificate::of_directory(directory)?,
                None => Certificate::self_signed(vec!["localhost".to_owned()])?,
            };
            let reports = admin::guarded(reports, reviewer);
            let listener = admin::listen(address).await?;
            let stopped = wait(operator.stopped());
            operator.add(admin::serve(listener, reports, Some(certificate), stopped));
            admin::health()
        }
    };
    let listener = admin::listen(arguments.listen).await?;
    operator.add(admin::serve(
        listener,
        plain,
        None,
        wait(operator.stopped()),
    ));
    let stop = asked_to_stop()?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = %arguments.identity,
        namespaces = ?arguments.watch_namespaces,
        "bellwether started"
    );
    operator.run(Box::pin(stop)).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Completes when this process is told to stop.
///
/// # Errors
/// When the system does not tell of signals.
pub(crate) fn asked_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// The namespaces to work in, each once; one `None` for all of them.
///
/// # Errors
/// When one is empty: an empty name would select all namespaces, which the user did not ask for.
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
    // An answer that has begun must go on; a watch is sent a bookmark every minute.
    config.read_timeout = Some(Duration::from_secs(120));
    config.reset_reader_on_write = true;
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
