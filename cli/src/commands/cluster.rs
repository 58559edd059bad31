//! Which cluster, which namespace.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use bellwether_api::{LeaderElection, ZooKeeperEnsemble};
use clap::Args;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

/// How to reach the cluster; as with kubectl.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Target {
    /// The namespace. Default: that of the kubeconfig's context.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The context of the kubeconfig. Default: its current one.
    #[arg(long)]
    pub context: Option<String>,
    /// The kubeconfig. Default: what KUBECONFIG names, or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// A cluster that a command talks to.
pub(crate) struct Cluster {
    /// The API server.
    pub client: Client,
    /// The namespace that is meant where none is named.
    pub namespace: String,
}

impl Cluster {
    /// The ensembles of the namespace.
    pub(crate) fn ensembles(&self) -> Api<ZooKeeperEnsemble> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// One of them.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or has no such ensemble.
    pub(crate) async fn ensemble(&self, name: &str) -> anyhow::Result<ZooKeeperEnsemble> {
        let found = self.ensembles().get_opt(name).await;
        found.map_err(unanswered)?.with_context(|| {
            format!(
                "there is no ZooKeeperEnsemble {name} in the namespace {}",
                self.namespace
            )
        })
    }

    /// The elections of the namespace, or of all.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub(crate) async fn elections(self, of_all: bool) -> anyhow::Result<Vec<LeaderElection>> {
        let api: Api<LeaderElection> = match of_all {
            true => Api::all(self.client),
            false => Api::namespaced(self.client, &self.namespace),
        };
        let list = api.list(&ListParams::default()).await;
        Ok(list.map_err(unanswered)?.items)
    }
}

/// Why the cluster did not do as it was asked, in the API server's own words if it has any.
pub(crate) fn unanswered(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => {
            anyhow!("the API server answers: {}", status.message)
        }
        error => anyhow::Error::new(error).context("the cluster cannot be asked"),
    }
}

impl Target {
    /// Opens the cluster. Nothing is asked yet.
    ///
    /// # Errors
    /// When there is no kubeconfig, or it cannot be used.
    pub(crate) async fn open(&self) -> anyhow::Result<Cluster> {
        let mut config = match (&self.kubeconfig, &self.context) {
            (None, None) => Config::infer().await.context(
                "no cluster: neither a kubeconfig nor a pod's own configuration is there",
            )?,
            (file, context) => {
                let kubeconfig = match file {
                    Some(file) => Kubeconfig::read_from(file),
                    None => Kubeconfig::read(),
                };
                let options = KubeConfigOptions {
                    context: context.clone(),
                    ..KubeConfigOptions::default()
                };
                let kubeconfig = kubeconfig.context("the kubeconfig cannot be read")?;
                Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .context("the kubeconfig cannot be used")?
            }
        };
        config.connect_timeout = Some(std::time::Duration::from_secs(10));
        config.default_retry = false;
        let namespace = self.namespace.clone();
        Ok(Cluster {
            namespace: namespace.unwrap_or_else(|| config.default_namespace.clone()),
            client: Client::try_from(config).context("cannot make a client for the cluster")?,
        })
    }
}
