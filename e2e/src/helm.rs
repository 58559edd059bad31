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

/// The hosts that the tests' elections connect to, and the keys of their labels.
const ALLOWED: [(&str, &[&str]); 2] = [
    ("connections.allowedHosts", &["*.svc.cluster.local"]),
    ("projections.labelKeys", &["role", "tier"]),
];

/// The shared release with these values beside those of the tests, installed or upgraded; returns when
/// its pods are ready.
pub fn install(values: &BTreeMap<&str, Value>) -> Result<()> {
    let allowed = ALLOWED.map(|(name, value)| (name, Value::from(value.to_vec())));
    let mut all = BTreeMap::from(allowed);
    all.extend(values.iter().map(|(name, value)| (*name, value.clone())));
    install_from(&chart(), "dev", &all)
}

/// The same with another chart and another tag of the operator's image.
pub fn install_from(chart: &Path, tag: &str, values: &BTreeMap<&str, Value>) -> Result<()> {
    let chart = chart.to_string_lossy();
    let mut words = ["upgrade", "--install", RELEASE, &chart]
        .map(str::to_owned)
        .to_vec();
    words.extend(["--namespace", OPERATOR_NAMESPACE].map(str::to_owned));
    let own = format!("image.tag={tag},page.enabled=true");
    words.extend(["--set", &own, "--wait", "--timeout", "180s"].map(str::to_owned));
    for (name, value) in values {
        words.extend(["--set-json".to_owned(), format!("{name}={value}")]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
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
