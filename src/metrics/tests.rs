use bellwether_api::ensemble::Phase;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::*;

fn metrics() -> Metrics {
    Metrics::new(|_| ())
}

fn seen(metrics: &Metrics, name: &str, phase: Phase) {
    let report = Report::new(phase, String::new());
    let degraded = Condition {
        type_: "Degraded".to_owned(),
        status: "True".to_owned(),
        reason: "PodFailing".to_owned(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
    };
    let status = ZooKeeperEnsembleStatus {
        phase: Some(phase),
        conditions: vec![degraded],
        ..ZooKeeperEnsembleStatus::default()
    };
    metrics.observe(("shop", name), 3, &report, &status);
}

/// The value of a series.
fn value(metrics: &Metrics, series: &str) -> Option<String> {
    let text = metrics.text();
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(str::to_owned)
}

#[test]
fn one_phase_and_one_status_of_a_condition_is_1() {
    let metrics = metrics();
    seen(&metrics, "a", Phase::Ready);
    let at = |rest: &str| {
        let series =
            format!("bellwether_ensemble_{rest}").replace("@", "namespace=\"shop\",name=\"a\"");
        value(&metrics, &series)
    };
    assert_eq!(at("phase{@,phase=\"Ready\"}").as_deref(), Some("1"));
    assert_eq!(at("phase{@,phase=\"Growing\"}").as_deref(), Some("0"));
    let condition = |type_: &str, status: &str| {
        at(&format!(
            "condition{{@,type=\"{type_}\",status=\"{status}\"}}"
        ))
        .unwrap_or_default()
    };
    assert_eq!(condition("Degraded", "true"), "1");
    assert_eq!(condition("Degraded", "false"), "0");
    // A condition that it does not carry is neither true nor false.
    assert_eq!(condition("Stalled", "unknown"), "1");
    assert_eq!(condition("Stalled", "true"), "0");
    assert_eq!(at("wanted_members{@}").as_deref(), Some("3"));
    assert_eq!(at("leader_server_id{@}").as_deref(), Some("0"));
    assert_eq!(at("epoch{@}"), None, "nobody leads");
    assert_eq!(
        at("waiting_members{@,reason=\"leader\"}").as_deref(),
        Some("0")
    );
    seen(&metrics, "a", Phase::Growing);
    assert_eq!(at("phase{@,phase=\"Ready\"}").as_deref(), Some("0"));
}

#[test]
fn restarts_are_counted_and_what_is_gone_has_no_series() {
    let metrics = metrics();
    metrics.restarted("shop", "a");
    seen(&metrics, "a", Phase::Ready);
    metrics.restarted("shop", "a");
    seen(&metrics, "b", Phase::Ready);
    let restarts = "bellwether_ensemble_member_restarts_total{namespace=\"shop\",name=\"a\"}";
    assert_eq!(value(&metrics, restarts).as_deref(), Some("2"));
    // Ensemble `a` leaves the controller's store, and no call reports that.
    metrics.watch(|namespace, name| (namespace, name) == ("shop", "b"));
    let text = metrics.text();
    assert!(!text.contains("name=\"a\""), "{text}");
    assert!(text.contains("name=\"b\""), "{text}");
}

#[test]
fn a_reconcile_without_an_outcome_has_failed() {
    let metrics = metrics();
    metrics.reconcile_started("ZooKeeperEnsemble").done("done");
    drop(metrics.reconcile_started("ZooKeeperEnsemble"));
    let reconciles = |outcome: &str| {
        let series = format!(
            "bellwether_reconciles_total{{kind=\"ZooKeeperEnsemble\",outcome=\"{outcome}\"}}"
        );
        value(&metrics, &series).unwrap_or_default()
    };
    assert_eq!(
        (reconciles("done"), reconciles("failed")),
        ("1".into(), "1".into())
    );
    assert_eq!(
        value(&metrics, "bellwether_reconcile_seconds_count").as_deref(),
        Some("2")
    );
}

/// What Prometheus' own tool asks of names (`promtool check metrics`), which also runs where it is installed.
#[test]
fn names_and_help_follow_the_conventions() {
    let text = reference();
    let mut families = 0;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("# HELP ") else {
            continue;
        };
        families += 1;
        let (name, help) = rest.split_once(' ').unwrap_or_default();
        assert!(
            name.starts_with("bellwether_") || name.starts_with("process_"),
            "{name}"
        );
        assert!(
            name.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{name}"
        );
        for unit in [
            "_ms", "_millis", "_minutes", "_kb", "_mb", "_percent", "_total",
        ] {
            assert!(!name.ends_with(unit), "{name}");
        }
        assert!(help.len() > 10, "{name}: {help}");
        let series = [
            " ", "{", "_total ", "_total{", "_count ", "_count{", "_info{",
        ];
        let shown = series
            .iter()
            .any(|s| text.contains(&format!("\n{name}{s}")));
        assert!(shown, "{name} shows no series");
        let takes_time = text.contains(&format!("# TYPE {name} histogram"));
        assert!(
            !takes_time || name.ends_with("_seconds"),
            "{name} has no unit"
        );
    }
    assert!(families > 25, "only {families} are there");
}
