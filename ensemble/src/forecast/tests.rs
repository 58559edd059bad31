//! The forecasts of whole changes, as people read them.

use bellwether_api::ensemble::{Config, MembershipChange, Observers, Storage};
use bellwether_api::{ZooKeeperEnsemble, ZooKeeperEnsembleSpec};

use super::*;
use crate::validate::{Context, validate};

fn valid(change: impl FnOnce(&mut ZooKeeperEnsembleSpec)) -> ValidEnsemble {
    let mut spec = ZooKeeperEnsembleSpec {
        replicas: 3,
        ..Default::default()
    };
    change(&mut spec);
    let mut ensemble = ZooKeeperEnsemble::new("zk", spec);
    ensemble.metadata.namespace = Some("shop".to_owned());
    let context = Context {
        member_image: "bellwether:1".to_owned(),
        version: "1".to_owned(),
        ..Context::default()
    };
    validate(&ensemble, &context).unwrap()
}

fn of_size(replicas: i32) -> ValidEnsemble {
    valid(|spec| spec.replicas = replicas)
}

fn events(forecast: &Forecast) -> Vec<String> {
    assert!(forecast.complete, "{forecast:#?}");
    forecast.events.iter().map(ToString::to_string).collect()
}

#[test]
fn every_change_of_the_size_comes_to_an_end_with_the_leader_last() {
    for from in [1, 3, 5, 7] {
        for to in [1, 3, 5, 7, 9] {
            for leader in [1, from] {
                let leader = ServerId(u16::try_from(leader).unwrap());
                let forecast = forecast(Some(&of_size(from)), &of_size(to), Some(leader));
                assert_eq!(
                    forecast.phase,
                    Phase::Ready,
                    "{from} {to} {leader}: {forecast:#?}"
                );
                assert!(forecast.complete);
                assert_eq!(from == to, forecast.events.is_empty());
            }
        }
    }
}

#[test]
fn growing_is_told_step_by_step() {
    let forecast = forecast(Some(&of_size(3)), &of_size(5), Some(ServerId(2)));
    assert_eq!(forecast.restarts(), (7, 2));
    let told = events(&forecast);
    assert!(
        told[0].ends_with(": voters {1,2,3} -> {1,2,3,4}"),
        "{told:#?}"
    );
    assert_eq!(told[1], "pod zk-3 is created");
    assert!(
        told[2].starts_with("pod zk-0 restarts: its server list changes"),
        "{told:#?}"
    );
    assert!(
        told[4].starts_with("pod zk-1, the leader, restarts"),
        "{told:#?}"
    );
    let Event::Configure {
        zoo_cfg, template, ..
    } = &forecast.events[0]
    else {
        panic!("{:?}", forecast.events[0]);
    };
    let lines: Vec<String> = zoo_cfg.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        ["+server.4=zk-3.zk-members.shop.svc.cluster.local:2888:3888:participant"]
    );
    assert!(template.is_empty(), "{template:?}");
}

#[test]
fn a_setting_and_an_image_show_what_changes_and_restart_each_member_once() {
    let new = valid(|spec| {
        spec.version = Some("3.8.6".to_owned());
        spec.config = Some(Config {
            tick_time: Some(3000),
            ..Default::default()
        });
    });
    let forecast = forecast(Some(&of_size(3)), &new, None);
    assert_eq!(forecast.restarts(), (3, 1));
    let Event::Configure {
        zoo_cfg, template, ..
    } = &forecast.events[0]
    else {
        panic!("{:?}", forecast.events[0]);
    };
    let lines: Vec<String> = zoo_cfg
        .iter()
        .chain(template)
        .map(ToString::to_string)
        .collect();
    let has = |line: &str| lines.iter().any(|l| l == line);
    assert!(has("-tickTime=2000") && has("+tickTime=3000"), "{lines:#?}");
    assert!(
        lines
            .iter()
            .any(|l| l.starts_with('+') && l.ends_with(": docker.io/library/zookeeper:3.8.6")),
        "{lines:#?}"
    );
}

#[test]
fn observers_come_and_volumes_grow_without_a_restart() {
    let new = valid(|spec| {
        spec.observers = Some(Observers { replicas: 2 });
        let size = k8s_openapi::apimachinery::pkg::api::resource::Quantity("20Gi".to_owned());
        spec.storage = Some(Storage {
            size: Some(size),
            ..Default::default()
        });
    });
    let forecast = forecast(Some(&of_size(3)), &new, None);
    assert_eq!(forecast.restarts(), (0, 0), "{:#?}", forecast.events);
    let told = events(&forecast);
    assert!(
        told.contains(&"pod zk-observer-1 is created".to_owned()),
        "{told:#?}"
    );
    assert!(
        told.iter()
            .any(|t| t.starts_with("claim data-zk-0 asks for 20Gi")),
        "{told:#?}"
    );
}

#[test]
fn a_new_ensemble_is_created_and_a_paused_one_left_alone() {
    let created = forecast(None, &of_size(3), None);
    assert_eq!((created.phase, created.restarts()), (Phase::Ready, (0, 0)));
    let created = events(&created);
    assert_eq!(created.len(), 4, "{created:#?}");
    let paused = valid(|spec| {
        spec.replicas = 5;
        spec.paused = true;
    });
    let paused = forecast(Some(&of_size(3)), &paused, None);
    assert_eq!((paused.phase, paused.events.len()), (Phase::Paused, 0));
}

fn at_run_time(replicas: i32) -> ValidEnsemble {
    valid(|spec| {
        spec.replicas = replicas;
        spec.membership_change = Some(MembershipChange::Reconfiguration);
    })
}

#[test]
fn members_that_change_at_run_time_come_and_go_at_once_and_only_a_leader_that_leaves_restarts() {
    for from in [1, 3, 5, 7] {
        for to in [1, 3, 5, 7, 9] {
            for leader in [1, from] {
                let leader = ServerId(u16::try_from(leader).unwrap());
                let forecast = forecast(Some(&at_run_time(from)), &at_run_time(to), Some(leader));
                let story = format!("{from} {to} {leader}: {:#?}", events(&forecast));
                assert_eq!(forecast.phase, Phase::Ready, "{story}");
                let leaves = i32::from(leader.0) > to && to > 1;
                assert_eq!(
                    forecast.restarts(),
                    (usize::from(leaves), usize::from(leaves)),
                    "{story}"
                );
                let agree = |e: &&Event| matches!(e, Event::Agree { .. });
                let agreed = forecast.events.iter().filter(agree).count();
                let most = if i32::from(leader.0) > to {
                    2
                } else {
                    usize::from(from != to)
                };
                assert!(agreed <= most && (agreed > 0) == (from != to), "{story}");
            }
        }
    }
}

#[test]
fn newcomers_are_created_all_at_once_and_follow_before_they_vote() {
    let forecast = forecast(Some(&at_run_time(1)), &at_run_time(5), None);
    let expected = [
        "pod zk-1 is created",
        "pod zk-2 is created",
        "pod zk-3 is created",
        "pod zk-4 is created",
        "the members agree on the server list {1,2,3,4,5}",
    ];
    assert_eq!(events(&forecast), expected);
}

#[test]
fn one_roll_switches_to_changes_at_run_time_and_the_size_changes_after_it() {
    let forecast = forecast(Some(&of_size(3)), &at_run_time(5), Some(ServerId(2)));
    let told = events(&forecast);
    assert_eq!(forecast.restarts(), (3, 1), "{told:#?}");
    let last = [
        "pod zk-4 is created",
        "the members agree on the server list {1,2,3,4,5}",
    ];
    assert!(told.ends_with(&last.map(str::to_owned)), "{told:#?}");
}

#[test]
fn a_roll_of_members_that_change_at_run_time_restarts_the_leader_last() {
    let mut other = at_run_time(3);
    other.heap_mib = 1024;
    let forecast = forecast(Some(&at_run_time(3)), &other, Some(ServerId(2)));
    assert_eq!(forecast.restarts(), (3, 1), "{:#?}", events(&forecast));
    assert_eq!(forecast.phase, Phase::Ready);
}
