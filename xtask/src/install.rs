//! The operator, installed from this tree's chart and image, as a user would install it.

use anyhow::{Context, Result};

use crate::{
    build::{self, root},
    cluster::{Cluster, Target},
    process,
    progress::say,
};

/// The namespace that the operator is installed in.
pub(crate) const NAMESPACE: &str = "bellwether-system";
/// The nodes of a cluster on this machine.
const NODES: u8 = 3;

/// Starts the cluster if it is this machine's, brings the images, and installs the chart.
pub(crate) fn operator(target: &Target) -> Result<Cluster> {
    operator_built(target, false)
}

/// The same with a program that is optimized, if `release`.
pub(crate) fn operator_built(target: &Target, release: bool) -> Result<Cluster> {
    let archive = build::operator_image(release)?;
    let cluster = if target.is_existing()? {
        Cluster::open(target)?
    } else {
        Cluster::up(NODES)?
    };
    cluster.load_test_images()?;
    cluster.load(&archive)?;
    say("installing the chart ...");
    let chart = root().join("charts/bellwether");
    let chart = chart.to_str().context("the project's path is not text")?;
    let values = root().join("e2e/values.yaml");
    let values = values.to_str().context("the project's path is not text")?;
    let helm = [
        "helm",
        "upgrade",
        "--install",
        "bellwether",
        chart,
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--values",
        values,
        "--set",
        "image.tag=dev",
        "--wait",
        "--timeout",
        "120s",
    ];
    process::run(&mut cluster.exec(&helm)?)?;
    // The tag stays the same from build to build: the pods have to be recreated to take the new image.
    let restart = [
        "--namespace",
        NAMESPACE,
        "rollout",
        "restart",
        "deployment/bellwether",
    ];
    process::run(&mut cluster.kubectl(&restart)?)?;
    let wait = [
        "--namespace",
        NAMESPACE,
        "rollout",
        "status",
        "deployment/bellwether",
        "--timeout=120s",
    ];
    process::run(&mut cluster.kubectl(&wait)?)?;
    Ok(cluster)
}
