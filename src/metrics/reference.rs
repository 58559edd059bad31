//! Every metric with every label, as text: what the page `docs/metrics.md` is made of.

use std::time::Duration;

use bellwether_api::ensemble::{MemberRole, Phase, ZooKeeperEnsembleStatus};
use bellwether_ensemble::ServerId;
use bellwether_ensemble::plan::report::{MemberReport, Report};
use bellwether_ensemble::plan::verdict::Verdict;

use super::Metrics;
use crate::election;

/// What `/metrics` says after everything was counted once.
pub(crate) fn reference() -> String {
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
    let status = ZooKeeperEnsembleStatus::default();
    metrics.observe(("shop", "main"), 3, &report, &status);
    metrics.restarted("shop", "main");
    metrics.text()
}
