//! `bellwether page`: the page on this machine, with the rights of whoever runs it. The operator need not serve one.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::Context as _;
use bellwether::{admin, wait};
use clap::Args;
use tokio::sync::watch;

use super::cluster::Target;
use crate::page;
use crate::run::asked_to_stop;

/// What to show, and where.
#[derive(Debug, Args)]
pub(crate) struct Page {
    /// What is in all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// The port of this machine; 0 takes one that is free. Only this machine reaches it.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    #[command(flatten)]
    target: Target,
}

/// Serves it until the command is interrupted.
///
/// # Errors
/// When there is no cluster, or the port is taken.
pub(crate) async fn page(arguments: &Page) -> anyhow::Result<ExitCode> {
    let cluster = arguments.target.open().await?;
    let namespace = (!arguments.all_namespaces).then_some(cluster.namespace);
    let names = page::Names {
        cluster_domain: "cluster.local".to_owned(),
        added: Vec::new(),
    };
    let shown = page::Operator {
        version: env!("CARGO_PKG_VERSION"),
        identity: "bellwether page".to_owned(),
    };
    let (stop, stopped) = watch::channel(false);
    let routes = page::routes(
        cluster.client,
        vec![namespace],
        names,
        shown,
        stopped.clone(),
    );
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port));
    let listener = admin::listen(address).await;
    let listener = listener.context("choose another port with --port")?;
    let asked = asked_to_stop()?;
    writeln!(io::stdout(), "http://{}/page", listener.local_addr()?)?;
    let served = admin::serve(listener, routes, None, wait(stopped));
    tokio::select! {
        served = served => served?,
        () = asked => drop(stop),
    }
    Ok(ExitCode::SUCCESS)
}
