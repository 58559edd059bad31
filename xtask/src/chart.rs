//! The chart: its plain manifest and the tests of its alerts.

use std::fmt::Write as _;

use anyhow::{Result, bail};

use crate::{build::root, install, process};

/// The operator as a plain manifest, for those who install without Helm: what the chart renders without
/// any value set, free of what only Helm needs. The definitions and the namespace are files of their own.
pub(crate) fn plain_manifest(helm: &std::path::Path) -> Result<String> {
    let mut render = process::command(
        helm,
        ["template", "bellwether", "charts/bellwether", "--namespace"],
    );
    render.args([install::NAMESPACE, "--set", "crds.install=false"]);
    let rendered = process::output(render.current_dir(root()))?;
    let of_helm = |line: &str| {
        let line = line.trim_start();
        [
            "# Source:",
            "helm.sh/chart:",
            "app.kubernetes.io/managed-by: Helm",
        ]
        .iter()
        .any(|start| line.starts_with(start))
    };
    let mut text = String::new();
    for line in rendered.lines().filter(|line| !of_helm(line)) {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    Ok(text)
}

/// Tests the alerts with recorded series.
///
/// # Errors
/// When an alert is not as it should be.
pub(crate) fn test_alerts(promtool: &std::path::Path) -> Result<()> {
    let mut test = process::command(promtool, ["test", "rules", "alerts.yaml"]);
    test.current_dir(root().join("charts/bellwether/tests"));
    // promtool reports failures on standard output and successes on standard error.
    let output = test.output()?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("{}", String::from_utf8_lossy(&said));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_alert_has_a_test_and_a_section_in_the_runbook() {
        let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
        let alerts = read("charts/bellwether/files/alerts.yaml");
        let tests = read("charts/bellwether/tests/alerts.yaml");
        let runbook = read("docs/runbook.md");
        let names: Vec<&str> = alerts
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- alert: "))
            .collect();
        assert!(!names.is_empty());
        for name in names {
            let heading = format!("### {name}\n");
            assert!(runbook.contains(&heading), "the runbook has no {name}");
            let link = format!("runbook_url: docs/runbook.md#{}\n", name.to_lowercase());
            assert!(alerts.contains(&link), "{name} does not name its section");
            // One evaluation that expects it, one that does not.
            let mentions = tests.matches(&format!("alertname: {name}\n")).count();
            assert!(mentions >= 2, "{name} is not tested");
        }
    }
}
