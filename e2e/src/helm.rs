//! The chart, as a user installs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::world::OPERATOR_NAMESPACE;

/// The release of the operator that all tests share.
pub const RELEASE: &str = "bellwether";

/// The chart's directory in this tree.
pub fn chart() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/bellwether"))
}

/// Runs helm, which `cargo xtask` puts into the path, and returns standard output.
pub fn helm(arguments: &[&str]) -> Result<String> {
    let output = Command::new("helm")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("starting helm: is it in the path?")?;
    if !output.status.success() {
        bail!(
            "helm {} failed: {}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim(),
            String::from_utf8_lossy(&output.stdout).trim(),
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The shared release with these values beside those of the tests, installed or upgraded; returns when
/// its pods are ready.
///
/// # Errors
/// When helm fails, or the pods are not ready in time.
pub fn install(values: &BTreeMap<&str, Value>) -> Result<()> {
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/values.yaml");
    let words = ["--values".to_owned(), shared.to_owned()];
    upgrade(&chart(), "dev", &[&words, &*set(values)].concat())
}

/// Values as helm takes them.
fn set(values: &BTreeMap<&str, Value>) -> Vec<String> {
    let word =
        |(name, value): (&&str, &Value)| ["--set-json".to_owned(), format!("{name}={value}")];
    values.iter().flat_map(word).collect()
}

/// The same from another chart, with another tag of the operator's image, and with that chart's own values beside these.
///
/// # Errors
/// When helm fails, or the pods are not ready in time.
pub fn install_from(chart: &Path, tag: &str, values: &BTreeMap<&str, Value>) -> Result<()> {
    upgrade(chart, tag, &set(values))
}

fn upgrade(chart: &Path, tag: &str, values: &[String]) -> Result<()> {
    let (chart, tag) = (chart.to_string_lossy(), format!("image.tag={tag}"));
    let mut words = vec!["upgrade", "--install", RELEASE, &chart];
    words.extend(["--namespace", OPERATOR_NAMESPACE, "--set", &tag]);
    words.extend(["--wait", "--timeout", "180s"]);
    words.extend(values.iter().map(String::as_str));
    helm(&words).map(drop)
}

/// Removes the shared release and waits until its pods are gone.
pub fn uninstall() -> Result<()> {
    helm(&[
        "uninstall",
        RELEASE,
        "--namespace",
        OPERATOR_NAMESPACE,
        "--cascade",
        "foreground",
        "--wait",
        "--timeout",
        "120s",
    ])
    .map(drop)
}
