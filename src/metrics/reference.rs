//! Every metric with every label, as text: what the page `docs/metrics.md` is made of.

use std::time::Duration;

use bellwether_api::ensemble::status::CertificateStatus;
use bellwether_api::ensemble::{MemberRole, Phase, ZooKeeperEnsembleStatus};
use bellwether_ensemble::ServerId;
use bellwether_ensemble::plan::report::{MemberReport, Report};
use bellwether_ensemble::plan::verdict::Verdict;

use super::Metrics;
use crate::election;

/// What `/metrics` says after everything was counted once.
pub fn reference() -> String {
    let elections = election::Metrics::default();
    elections.show_every_family();
    let metrics = Metrics::new(|registry| elections.register(registry));
    metrics.reconcile_started("ZooKeeperEnsemble").done("done");
    metrics.written("StatefulSet");
    metrics.probed("looking", Duration::ZERO);
    let leader = MemberReport {
        pod: "main-0".to_owned(),
        id: ServerId(1),
        role: MemberRole::Leader,
        zxid: Some(1 << 32),
        revision: None,
        node: None,
        ready: true,
        verdict: Verdict::UpToDate,
    };
    let report = Report {
        members: vec![leader],
        ..Report::new(Phase::Ready, String::new())
    };
    let certificate = CertificateStatus {
        until: "2026-06-01T00:00:00Z".to_owned(),
        ..CertificateStatus::default()
    };
    let status = ZooKeeperEnsembleStatus {
        certificate: Some(certificate),
        ..ZooKeeperEnsembleStatus::default()
    };
    metrics.observe(("shop", "main"), 3, &report, &status);
    metrics.restarted("shop", "main");
    metrics.text()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::metrics::PREFIX;

    /// The files of the program's own code.
    fn sources(directory: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .flat_map(|path| match path.extension() {
                _ if path.is_dir() => sources(&path),
                Some(extension) if extension == "rs" => vec![path],
                _ => Vec::new(),
            })
            .collect()
    }

    /// The names of the families that the code registers: the literal that each call begins with.
    fn registered() -> Vec<String> {
        let files = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
        let calls = ["register", "register_with_unit"].map(|call| format!("registry.{call}("));
        let literal = |rest: &str| {
            let name = rest.trim_start().strip_prefix('"')?.split('"').next()?;
            Some(name.to_owned())
        };
        let names = |text: String| -> Vec<String> {
            let after = calls.iter().flat_map(|call| text.split(call).skip(1));
            // The test fails for a name that is not a literal, since it could not check that name.
            after.map(|rest| literal(rest).unwrap()).collect()
        };
        texts.flat_map(names).collect()
    }

    /// A family without a series is not in the text that `docs/metrics.md` is made of.
    #[test]
    fn every_family_that_is_registered_is_in_the_reference() {
        let text = reference();
        let names = registered();
        assert!(names.len() > 12, "{names:?}");
        for name in names {
            let plain = format!("# HELP {PREFIX}_{name} ");
            let with_unit = format!("# HELP {PREFIX}_{name}_seconds ");
            assert!(
                text.contains(&plain) || text.contains(&with_unit),
                "{name} has no series in `reference`, so docs/metrics.md does not show it"
            );
        }
    }
}
