//! What is started, waited for or refused where there is no StatefulSet.
#![allow(clippy::unwrap_used, reason = "a test may")]

use bellwether_api::ZooKeeperEnsembleSpec;
use bellwether_api::ensemble::{MembershipChange, Storage, TransactionLog};
use jiff::Timestamp;

use super::*;
use crate::encryption::Encryption;
use crate::observation::{ClaimObservation, PodObservation, PodState, ServerReport};
use crate::validate::example;

fn claim(volume: &str, ordinal: u16) -> ClaimObservation {
    let voters = (volume == "data").then(|| Voters::first(3, 0));
    ClaimObservation {
        name: format!("{volume}-zk-{ordinal}"),
        ordinal,
        uid: ordinal.to_string(),
        voters,
        ..Default::default()
    }
}

/// The reason and message of the refusal of an ensemble with or without a volume for the log.
fn refused(asks: bool, data: &[u16], logs: &[u16]) -> Option<(Reason, String)> {
    let spec = ZooKeeperEnsembleSpec {
        replicas: 3,
        storage: Some(Storage {
            transaction_log: asks.then(TransactionLog::default),
            ..Default::default()
        }),
        ..Default::default()
    };
    let ensemble = example(spec);
    let all = |volume: &str, ordinals: &[u16]| {
        let claims = ordinals.iter().map(|o| claim(volume, *o));
        claims.collect::<Vec<_>>()
    };
    let observation = Observation {
        claims: all("data", data),
        log_claims: all("datalog", logs),
        ..Default::default()
    };
    let trouble = plan_start(Rules::ALL, &ensemble, &observation)
        .report
        .trouble()?;
    Some((trouble.reason, trouble.message))
}

#[test]
fn a_member_without_its_transaction_log_has_lost_its_disk() {
    assert_eq!(refused(true, &[0, 1, 2], &[0, 1, 2]), None);
    assert_eq!(refused(true, &[0, 1, 2], &[0, 2]), None);
    let (reason, message) = refused(true, &[0, 1], &[0]).unwrap();
    assert_eq!(reason, Reason::VolumesLost);
    let gone = "datalog-zk-1, data-zk-2 are gone";
    assert!(message.contains(gone), "{message}");
}

#[test]
fn transaction_logs_are_not_left_behind() {
    assert_eq!(refused(false, &[0, 1, 2], &[]), None);
    for (asks, data, words) in [
        (false, &[0, 1, 2][..], "Set storage.transactionLog"),
        (true, &[], "the data volumes that go with them are gone"),
    ] {
        let (reason, message) = refused(asks, data, &[0, 1, 2]).unwrap();
        assert_eq!(reason, Reason::VolumesLeftOver);
        assert!(message.contains(words), "{message}");
    }
}

/// An observation of three members' pods and claims that outlived their StatefulSet.
fn outlived(controller: Option<&str>) -> (ValidEnsemble, Observation) {
    let ensemble = example(ZooKeeperEnsembleSpec {
        replicas: 3,
        ..Default::default()
    });
    let voters = Voters::first(3, 0);
    let revision = config::render(&ensemble, &voters, None, Encryption::NONE).revision;
    let pod = |ordinal: u16| PodObservation {
        name: format!("zk-{ordinal}"),
        ordinal,
        uid: ordinal.to_string(),
        resource_version: "1".to_owned(),
        revision: Some(revision.clone()),
        controller_revision: Some("1".to_owned()),
        template_hash: None,
        terminating: false,
        controller: controller.map(str::to_owned),
        silent_since: None,
        failing_container: None,
        state: PodState::Running,
        ready: true,
        unready_since: None,
        created: Timestamp::UNIX_EPOCH,
        node: None,
        server: ServerReport::Looking,
        volumes: None,
        presents: None,
        credentials: Default::default(),
        client_authority: None,
    };
    let observation = Observation {
        pods: (0..3).map(pod).collect(),
        claims: (0..3).map(|o| claim("data", o)).collect(),
        ..Default::default()
    };
    (ensemble, observation)
}

/// What is waited for; `None` where a StatefulSet is created.
fn waits(ensemble: &ValidEnsemble, observation: &Observation) -> Option<String> {
    let plan = crate::plan(ensemble, observation);
    assert!(
        plan.report.trouble().is_none(),
        "{:?}",
        plan.report.trouble()
    );
    let message = plan.report.message;
    plan.objects.is_empty().then_some(message)
}

#[test]
fn pods_whose_statefulset_let_go_of_them_are_adopted() {
    let (ensemble, observation) = outlived(None);
    assert_eq!(waits(&ensemble, &observation), None);
}

#[test]
fn pods_whose_statefulset_is_gone_are_waited_for() {
    let (ensemble, observation) = outlived(Some("gone"));
    let message = waits(&ensemble, &observation).unwrap();
    assert!(message.contains("zk-0, zk-1, zk-2"), "{message}");
    assert!(message.contains("--cascade=orphan"), "{message}");
    // Without the rule they are adopted, and die a moment later.
    let rules = Rules::ALL.without(Rule::AdoptOrphansOnly);
    let plan = crate::plan::plan_under(rules, &ensemble, &observation);
    assert!(!plan.objects.is_empty());
}

#[test]
fn pods_that_are_being_deleted_are_waited_for() {
    let (ensemble, mut observation) = outlived(None);
    observation.pods[1].terminating = true;
    let message = waits(&ensemble, &observation).unwrap();
    assert!(message.contains("zk-1"), "{message}");
}

#[test]
fn pods_whose_claims_are_being_deleted_are_not_adopted() {
    let (ensemble, mut observation) = outlived(None);
    observation.claims[2].terminating = true;
    observation.leftovers = vec!["PersistentVolumeClaim data-zk-2".to_owned()];
    // Nobody ends the pods, so this would last for ever.
    for leftovers in [true, false] {
        let plan = crate::plan(&ensemble, &observation);
        let trouble = plan.report.trouble().unwrap();
        assert_eq!(trouble.reason, Reason::UnknownState);
        let words = "No StatefulSet owns the pods zk-2, and they use volumes that are being deleted (data-zk-2)";
        assert!(
            trouble.message.starts_with(words),
            "{leftovers} {}",
            trouble.message
        );
        assert!(plan.objects.is_empty());
        observation.leftovers.clear();
    }
    // The claim of a pod that is gone is about to go, too.
    observation.pods.truncate(2);
    let message = waits(&ensemble, &observation).unwrap();
    assert!(message.contains("data-zk-2"), "{message}");
}

#[test]
fn what_a_deleted_ensemble_of_the_same_name_owned_is_waited_for() {
    for running in [false, true] {
        let (ensemble, mut observation) = outlived(None);
        if !running {
            observation.pods.clear();
        }
        observation.leftovers = vec!["PersistentVolumeClaim data-zk-0".to_owned()];
        let message = waits(&ensemble, &observation).unwrap();
        assert!(
            message.contains("PersistentVolumeClaim data-zk-0"),
            "{message}"
        );
    }
}

/// The message of what is created, with the server list; or of the refusal.
fn starts(ensemble: &ValidEnsemble, observation: &Observation) -> String {
    let plan = crate::plan(ensemble, observation);
    assert_eq!(plan.step, None);
    assert_eq!(plan.report.trouble().is_some(), plan.objects.is_empty());
    plan.report.message
}

/// How many pods the StatefulSet is created with.
fn pods(ensemble: &ValidEnsemble, observation: &Observation) -> u64 {
    let plan = crate::plan(ensemble, observation);
    let set = plan
        .objects
        .iter()
        .find(|o| o.kind == desired::ObjectKind::StatefulSet);
    set.unwrap().body["spec"]["replicas"].as_u64().unwrap()
}

fn list(ensemble: &ValidEnsemble, size: u16) -> Option<Revision> {
    let voters = Voters::first(size, 0);
    Some(config::render(ensemble, &voters, None, Encryption::NONE).revision)
}

#[test]
fn of_two_lists_that_pods_run_the_one_nearer_to_the_wanted_size_is_adopted() {
    let (mut ensemble, mut observation) = outlived(None);
    observation.pods[0].revision = list(&ensemble, 4);
    for (size, voters) in [(3, "{1,2,3}"), (5, "{1,2,3,4}")] {
        ensemble.size = size;
        let message = starts(&ensemble, &observation);
        let expected =
            format!("The StatefulSet is gone; creating it again for the members {voters}.");
        assert_eq!(message, expected);
    }
    // No pod is removed because of it, not even that of a member that leaves.
    observation.pods[2].ordinal = 4;
    assert_eq!(pods(&ensemble, &observation), 5);
}

#[test]
fn pods_are_not_adopted_whose_lists_are_unknown_or_must_not_live_together() {
    let (ensemble, mut observation) = outlived(None);
    observation.pods[0].revision = list(&ensemble, 5);
    let message = starts(&ensemble, &observation);
    let lists = "The pods run the server lists {1,2,3} and {1,2,3,4,5}, under which two leaders could commit";
    assert!(message.starts_with(lists), "{message}");
    observation.pods[0].revision = None;
    let message = starts(&ensemble, &observation);
    assert!(
        message.starts_with("Pod zk-0 does not say which servers vote"),
        "{message}"
    );
}

#[test]
fn adopted_pods_may_start_empty_only_if_none_has_served() {
    type Change = fn(&mut Observation);
    let cases: [(bool, Change); 5] = [
        (true, |_| {}),
        (false, |o| o.pods[1].ready = true),
        (false, |o| {
            o.pods[1].server = ServerReport::Serving {
                role: bellwether_api::ensemble::MemberRole::Follower,
                zxid: 1,
                voters: Voters::first(3, 0),
                observers: Default::default(),
                version: 0,
            };
        }),
        (false, |o| o.bootstrap.as_mut().unwrap().until = Some(o.now)),
        (false, |o| o.bootstrap = None),
    ];
    for (opens, change) in cases {
        let (ensemble, mut observation) = outlived(None);
        for pod in &mut observation.pods {
            pod.ready = false;
        }
        observation.bootstrap = Some(BootstrapPermission {
            initialize: Some(Voters::first(3, 0)),
            until: Some(observation.now + PERMISSION),
            ..Default::default()
        });
        change(&mut observation);
        let plan = crate::plan(&ensemble, &observation);
        let permission = plan.objects.iter().find(|o| o.name == "zk-bootstrap");
        let initialize = permission.unwrap().body["data"]["initialize"].as_str();
        assert_eq!(initialize, Some(if opens { "1,2,3" } else { "" }));
        let until = permission.unwrap().body["data"]["until"].as_str();
        assert_eq!(until, Some(if opens { "600" } else { "" }));
    }
}

/// Claims that carry no list.
fn unlabelled(ordinals: &[u16]) -> Observation {
    let claim = |o: &u16| ClaimObservation {
        voters: None,
        ..claim("data", *o)
    };
    Observation {
        claims: ordinals.iter().map(claim).collect(),
        ..Default::default()
    }
}

#[test]
fn claims_that_carry_no_list_are_taken_up_only_where_they_match_the_size() {
    let (ensemble, _) = outlived(None);
    let message = starts(&ensemble, &unlabelled(&[0, 1, 2]));
    assert_eq!(message, "Creating 3 members on the volumes that exist.");
    // No size takes up an even number of them, or those of later members.
    let delete = "Delete them, if their data is not needed";
    for (ordinals, advice) in [
        (&[0, 1, 2, 3, 4][..], "Set replicas to 5 to take them up"),
        (&[0, 1], delete),
        (&[1, 2, 3], delete),
    ] {
        let message = starts(&ensemble, &unlabelled(ordinals));
        assert!(message.contains(advice), "{message}");
    }
    // An ensemble that has not served yet continues its start.
    let mut observation = unlabelled(&[0, 1]);
    observation.bootstrap = Some(BootstrapPermission {
        initialize: Some(Voters::first(3, 0)),
        until: Some(observation.now + PERMISSION),
        ..Default::default()
    });
    assert_eq!(starts(&ensemble, &observation), "Creating 3 members.");
}

#[test]
fn what_is_lost_is_named_with_what_is_left() {
    let (ensemble, _) = outlived(None);
    for (left, words) in [
        (
            &[1][..],
            "only {2} of them has a volume: data-zk-0, data-zk-2 are gone",
        ),
        (
            &[3],
            "none of them has a volume: data-zk-0, data-zk-1, data-zk-2 are gone",
        ),
    ] {
        let observation = Observation {
            claims: left.iter().map(|o| claim("data", *o)).collect(),
            ..Default::default()
        };
        let message = starts(&ensemble, &observation);
        let start = "The last members that are known to have served are {1,2,3}, and ";
        assert!(message.starts_with(&format!("{start}{words}")), "{message}");
    }
}

#[test]
fn claims_of_other_servers_or_of_different_times_start_nothing() {
    let (mut ensemble, mut observation) = outlived(None);
    observation.pods.clear();
    observation.claims[0].voters = Some(Voters::first(5, 0));
    observation.claims[1].next = Some(Voters::first(4, 0));
    let message = starts(&ensemble, &observation);
    let lists =
        "{1,2,3} (data-zk-1, data-zk-2) and {1,2,3,4} (data-zk-1) and {1,2,3,4,5} (data-zk-0)";
    assert!(message.contains(lists), "{message}");
    let (_, mut observation) = outlived(None);
    observation.pods.clear();
    ensemble.id_offset = 10;
    let message = starts(&ensemble, &observation);
    assert!(
        message.contains("servers {1,2,3}, and with idOffset 10"),
        "{message}"
    );
}

#[test]
fn the_first_start_lets_every_member_begin_empty_for_a_while() {
    let (ensemble, _) = outlived(None);
    let observation = Observation::default();
    let plan = crate::plan(&ensemble, &observation);
    assert_eq!(plan.report.message, "Creating 3 members.");
    let kinds: Vec<&str> = plan.objects.iter().map(|o| o.name.as_str()).collect();
    let permission = plan
        .objects
        .iter()
        .find(|o| o.name == "zk-bootstrap")
        .unwrap();
    assert_eq!(permission.body["data"]["initialize"], "1,2,3", "{kinds:?}");
    assert_eq!(permission.body["data"]["until"], "600");
    assert_eq!(pods(&ensemble, &observation), 3);
}

/// Claims of members whose list changed at run time.
fn at_run_time(ordinals: &[u16], list: u16, next: Option<u16>) -> Observation {
    let claim = |ordinal: &u16| ClaimObservation {
        voters: Some(Voters::first(list, 0)),
        version: Some(1 << 32 | 7),
        next: next.map(|next| Voters::first(next, 0)),
        ..claim("data", *ordinal)
    };
    Observation {
        claims: ordinals.iter().map(claim).collect(),
        ..Default::default()
    }
}

#[test]
fn members_that_change_at_run_time_start_with_the_latest_list_and_all_who_may_be_in_it() {
    let spec = |change| ZooKeeperEnsembleSpec {
        replicas: 3,
        membership_change: change,
        ..Default::default()
    };
    let ensemble = example(spec(Some(MembershipChange::Reconfiguration)));
    let version = |observation: &Observation| {
        let plan = plan_start(Rules::ALL, &ensemble, observation);
        plan.report.revision.and_then(|revision| revision.version)
    };
    let mut rest = at_run_time(&[0, 1, 2], 3, None);
    // One that was away for longer.
    rest.claims[2].voters = Some(Voters::first(5, 0));
    rest.claims[2].version = Some(1 << 32);
    assert_eq!(
        (pods(&ensemble, &rest), version(&rest)),
        (3, Some(1 << 32 | 7))
    );
    // The outcome of the last request is not known.
    let asked = at_run_time(&[0, 1, 2], 1, Some(3));
    assert_eq!(
        (pods(&ensemble, &asked), version(&asked)),
        (3, Some(1 << 32 | 7))
    );
    let lost = at_run_time(&[0], 1, Some(3));
    let plan = plan_start(Rules::ALL, &ensemble, &lost);
    assert_eq!(plan.report.trouble().unwrap().reason, Reason::VolumesLost);
    // With lists in files again: at rest all start with the same one.
    let files = example(spec(None));
    assert_eq!(list(&files, 3).map(|r| r.version), Some(None));
    let plan = plan_start(Rules::ALL, &files, &rest);
    assert_eq!(plan.report.revision.map(|r| r.version), Some(None));
    let plan = plan_start(Rules::ALL, &files, &asked);
    let message = plan.report.trouble().unwrap().message;
    assert!(
        message.contains("membershipChange: Reconfiguration"),
        "{message}"
    );
}

#[test]
fn adopted_pods_that_change_at_run_time_go_on_with_the_list_that_their_servers_tell() {
    let (ensemble, mut observation) = outlived(None);
    let known = 1 << 32 | 9;
    for (pod, made) in observation.pods.iter_mut().zip([1, 3, 3]) {
        let revision = pod.revision.as_mut().unwrap();
        revision.voters = Voters::first(made, 0);
        revision.version = Some(1 << 32 | u64::from(made));
        pod.volumes = Some(crate::plan::example::volumes(true, Some(1)));
        pod.server = ServerReport::Serving {
            role: match pod.ordinal {
                0 => bellwether_api::ensemble::MemberRole::Leader,
                _ => bellwether_api::ensemble::MemberRole::Follower,
            },
            zxid: 1 << 32,
            voters: Voters::first(3, 0),
            observers: Default::default(),
            version: known,
        };
    }
    let plan = plan_start(Rules::ALL, &ensemble, &observation);
    let revision = plan.report.revision.unwrap();
    assert_eq!(
        (revision.voters, revision.version),
        (Voters::first(3, 0), Some(known))
    );
}
