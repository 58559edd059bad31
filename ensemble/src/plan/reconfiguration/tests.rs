//! Which list is asked for, and when pods come and go.
#![allow(clippy::unwrap_used, reason = "a test may")]

use bellwether_api::ensemble::Phase;

use super::*;
use crate::desired::{ObjectKind, Write, config};
use crate::encryption::Encryption;
use crate::plan::Expect;
use crate::plan::example::{Running, ago, claim, first, looks, outdate, pod, serves};

/// The version of the list in these tests: of epoch 1, in which the leader leads.
const VERSION: u64 = 1 << 32 | 7;

fn ids(ids: &[u16]) -> Voters {
    ids.iter().map(|id| ServerId(*id)).collect()
}

/// So many members at rest whose list changes at run time, the last of which leads, and another size wanted.
fn wanting(size: u16, wanted: u16) -> Running {
    let mut running = Running::new(size, 0);
    running.ensemble.membership_change = MembershipChange::Reconfiguration;
    let rendered = config::render(&running.ensemble, &first(size), None, Encryption::NONE);
    let mut revision = rendered.revision;
    revision.version = Some(VERSION);
    running.observation.revisions = [revision.name.clone()].into();
    running.set().template = Some(revision.clone());
    running.set().template_hash = Some("template".to_owned());
    running.render();
    running.set().template = Some(revision.clone());
    for pod in &mut running.observation.pods {
        pod.revision = Some(revision.clone());
        pod.template_hash = Some("template".to_owned());
    }
    for claim in &mut running.observation.claims {
        claim.version = Some(VERSION);
    }
    tell(&mut running, &first(size), VERSION);
    running.ensemble.size = wanted;
    running
}

/// All servers that serve tell this list.
fn tell(running: &mut Running, list: &Voters, now: u64) {
    for pod in &mut running.observation.pods {
        if let ServerReport::Serving {
            voters, version, ..
        } = &mut pod.server
        {
            (*voters, *version) = (list.clone(), now);
        }
    }
}

/// The pods of newcomers run, and their servers follow.
fn follow(running: &mut Running, ordinals: &[u16]) {
    let revision = running.set().template.clone().unwrap();
    for ordinal in ordinals {
        let name = format!("zk-{ordinal}");
        let mut newcomer = pod(&name, *ordinal, &revision, MemberRole::Follower);
        newcomer.template_hash = Some("template".to_owned());
        running.observation.pods.push(newcomer);
        running.observation.claims.push(claim("zk", *ordinal, None));
    }
    running.set().replicas = running.observation.pods.len().try_into().unwrap();
    let list = revision.voters;
    tell(running, &list, VERSION);
}

/// The claims carry the list that is asked for.
fn carry(running: &mut Running, next: &Voters) {
    let list = running.set().template.clone().unwrap().voters;
    for claim in &mut running.observation.claims {
        claim.voters = Some(list.clone());
        claim.version = Some(VERSION);
        claim.next = Some(next.clone());
    }
}

/// The list that is asked for, under which version.
fn asks(running: &Running) -> Option<(Voters, u64)> {
    match running.plan().step {
        Some(Step::Reconfigure { list, version, .. }) => Some((list.voters, version)),
        Some(other) => panic!("{other:?}"),
        None => None,
    }
}

fn stateful_set(running: &Running) -> DesiredObject {
    let mut objects = running.plan().objects.into_iter();
    objects.find(|o| o.kind == ObjectKind::StatefulSet).unwrap()
}

/// The annotations of the pod template that is written.
fn annotations(running: &Running) -> serde_json::Value {
    stateful_set(running).body["spec"]["template"]["metadata"]["annotations"].clone()
}

/// How many pods there are to be.
fn replicas(running: &Running) -> u64 {
    stateful_set(running).body["spec"]["replicas"]
        .as_u64()
        .unwrap()
}

/// The lists that are written on claims: the finished one, and the next.
fn records(running: &Running) -> Vec<[String; 2]> {
    let objects = running.plan().objects.into_iter();
    let claims = objects.filter(|o| o.kind == ObjectKind::PersistentVolumeClaim);
    let note = |o: &DesiredObject, key: &str| {
        let note = o.body["metadata"]["annotations"][key].as_str();
        note.unwrap_or_default().to_owned()
    };
    let lists = |o: DesiredObject| {
        [
            note(&o, bellwether_api::labels::VOTERS),
            note(&o, bellwether_api::labels::NEXT_VOTERS),
        ]
    };
    claims.map(lists).collect()
}

#[test]
fn at_rest_nothing_is_asked_for_or_written() {
    let running = wanting(3, 3);
    assert_eq!((asks(&running), replicas(&running)), (None, 3));
    assert_eq!(records(&running), Vec::<[String; 2]>::new());
    assert_eq!(running.report().phase, Phase::Ready);
}

#[test]
fn newcomers_come_at_once_and_are_asked_for_when_all_follow_and_every_claim_says_so() {
    let mut running = wanting(3, 7);
    assert_eq!((asks(&running), replicas(&running)), (None, 7));
    follow(&mut running, &[3, 4, 5]);
    let report = running.report();
    assert!(
        report.message.contains("pod zk-6 to be created"),
        "{}",
        report.message
    );
    follow(&mut running, &[6]);
    assert_eq!(asks(&running), None);
    let both = ["1,2,3", "1,2,3,4,5,6,7"].map(str::to_owned);
    assert_eq!(records(&running), vec![both; 7]);
    carry(&mut running, &first(7));
    assert_eq!(asks(&running), Some((first(7), VERSION)));
    assert_eq!(records(&running), Vec::<[String; 2]>::new());
    let Some(Step::Reconfigure { pod, .. }) = running.plan().step else {
        panic!("no request");
    };
    assert_eq!(pod, "zk-2");
}

#[test]
fn a_newcomer_that_cannot_follow_holds_up_only_itself() {
    let mut running = wanting(3, 5);
    follow(&mut running, &[3, 4]);
    let late = running.voter(4);
    looks(late, 30);
    late.created = ago(30);
    let waits = running.report().message;
    assert!(waits.contains("zk-4 to join the leader"), "{waits}");
    running.voter(4).state = PodState::Failing {
        reason: "ErrImagePull".to_owned(),
        message: String::new(),
    };
    carry(&mut running, &first(4));
    assert_eq!(asks(&running), Some((first(4), VERSION)));
    // Long enough to load a large snapshot.
    running.voter(4).state = PodState::Running;
    running.voter(4).created = ago(1000);
    assert_eq!(asks(&running), Some((first(4), VERSION)));
    assert_eq!(replicas(&running), 5);
}

#[test]
fn while_the_list_is_not_known_nothing_comes_or_goes() {
    let unknown: [fn(&mut Running); 4] = [
        |r| {
            let stored = Some(VERSION + 1);
            r.voter(1).volumes.as_mut().unwrap().stored_list = stored;
        },
        // A member program that does not tell what is on the volume.
        |r| r.voter(1).volumes = None,
        |r| looks(r.voter(2), 5),
        |r| {
            looks(r.voter(0), 5);
            looks(r.voter(1), 5);
        },
    ];
    for (case, change) in unknown.into_iter().enumerate() {
        for wanted in [1, 3, 7] {
            let mut running = wanting(3, wanted);
            follow(&mut running, &[3, 4]);
            change(&mut running);
            let list = running.set().template.clone().unwrap().voters;
            carry(&mut running, &list);
            assert_eq!(
                (asks(&running), replicas(&running)),
                (None, 5),
                "{case} {wanted}"
            );
            let message = running.report().message;
            assert!(message.contains("server list to be known"), "{message}");
        }
    }
}

#[test]
fn members_that_leave_go_when_the_servers_say_so() {
    let mut running = wanting(5, 3);
    serves(running.voter(4), MemberRole::Follower, 1);
    serves(running.voter(0), MemberRole::Leader, 1);
    tell(&mut running, &first(5), VERSION);
    assert_eq!((asks(&running), replicas(&running)), (None, 5));
    carry(&mut running, &first(3));
    assert_eq!(
        (asks(&running), replicas(&running)),
        (Some((first(3), VERSION)), 5)
    );
    // Only the leader knows of it.
    let said = |pod: &mut PodObservation| {
        if let ServerReport::Serving {
            voters, version, ..
        } = &mut pod.server
        {
            (*voters, *version) = (first(3), VERSION + 1);
        }
    };
    said(running.voter(0));
    assert_eq!((asks(&running), replicas(&running)), (None, 5));
    said(running.voter(1));
    assert_eq!((asks(&running), replicas(&running)), (None, 3));
}

/// The leader's list names these observers.
fn name_observers(running: &mut Running, ids: &[u16]) {
    for pod in &mut running.observation.pods {
        if let ServerReport::Serving { observers, .. } = &mut pod.server {
            *observers = ids.iter().copied().map(ServerId).collect();
        }
    }
}

#[test]
fn the_list_names_the_observers_that_are_wanted() {
    let mut running = wanting(3, 3);
    let asked = |running: &Running| match running.plan().step {
        Some(Step::Reconfigure { list, version, .. }) => Some((list.to_string(), version)),
        _ => None,
    };
    assert_eq!(asked(&running), None);
    running.ensemble.observers = 2;
    let both = Some(("1,2,3,101,102".to_owned(), VERSION));
    assert_eq!(asked(&running), both);
    name_observers(&mut running, &[101, 102]);
    assert_eq!(asked(&running), None);
    // So does every other list, and one that has left is taken out.
    running.ensemble.observers = 1;
    assert_eq!(asked(&running), Some(("1,2,3,101".to_owned(), VERSION)));
    // A roll comes first.
    outdate(running.voter(0));
    assert_eq!(asked(&running), None);
}

#[test]
fn a_leader_that_leaves_steps_down_when_the_others_have_left() {
    let mut running = wanting(5, 3);
    let others = ids(&[1, 2, 3, 5]);
    carry(&mut running, &others);
    assert_eq!(asks(&running), Some((others.clone(), VERSION)));
    tell(&mut running, &others, VERSION + 1);
    // The pod template takes over the new list first.
    assert_eq!(running.restart(), None);
    let template = running.set().template.as_mut().unwrap();
    (template.voters, template.version) = (others, Some(VERSION + 1));
    let (pod, expect, _) = running.restart().unwrap();
    assert_eq!((pod.as_str(), expect), ("zk-4", Expect::Leader));
    assert_eq!(replicas(&running), 5);
}

#[test]
fn before_newcomers_go_that_were_asked_for_the_present_list_is_asked_for_again() {
    let mut running = wanting(3, 3);
    follow(&mut running, &[3, 4]);
    // Nobody asked for them.
    assert_eq!((asks(&running), replicas(&running)), (None, 3));
    carry(&mut running, &first(5));
    assert_eq!(
        (asks(&running), replicas(&running)),
        (Some((first(3), VERSION)), 5)
    );
    assert_eq!(records(&running), Vec::<[String; 2]>::new());
    tell(&mut running, &first(3), VERSION + 1);
    assert_eq!((asks(&running), replicas(&running)), (None, 3));
    assert_eq!(records(&running), vec![["1,2,3", ""].map(str::to_owned); 5]);
}

#[test]
fn another_list_than_the_last_is_asked_for_under_another_version() {
    let mut running = wanting(3, 5);
    follow(&mut running, &[3, 4]);
    carry(&mut running, &first(4));
    assert_eq!(asks(&running), Some((first(3), VERSION)));
}

#[test]
fn a_change_of_the_list_restarts_nobody_and_another_template_does() {
    let mut running = wanting(3, 5);
    follow(&mut running, &[3, 4]);
    tell(&mut running, &first(5), VERSION + 1);
    running.set().update_revision = Some("with another list".to_owned());
    let set = running.set();
    let template = set.template.as_mut().unwrap();
    (template.voters, template.version) = (first(5), Some(VERSION + 1));
    assert_eq!(running.restarts(), None);
    running.set().template_hash = Some("another".to_owned());
    assert_eq!(running.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn a_pod_of_a_template_that_somebody_else_wrote_restarts() {
    let mut running = wanting(3, 3);
    running.voter(1).controller_revision = Some("edited".to_owned());
    assert_eq!(running.restarts().as_deref(), Some("zk-1"));
}

#[test]
fn members_that_are_about_to_restart_do_so_before_the_list_changes() {
    let mut running = wanting(3, 5);
    for ordinal in 0..3 {
        outdate(running.voter(ordinal));
    }
    assert_eq!(replicas(&running), 3);
    assert_eq!(running.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn a_newcomer_of_an_old_template_restarts_first() {
    let mut running = wanting(3, 5);
    follow(&mut running, &[3, 4]);
    outdate(running.voter(3));
    // It may be copying the data.
    looks(running.voter(3), 10);
    assert_eq!(running.restarts(), None);
    let message = running.report().message;
    assert!(message.contains("zk-3 to join the leader"), "{message}");
    looks(running.voter(3), 100);
    let (pod, expect, _) = running.restart().unwrap();
    assert_eq!((pod.as_str(), expect), ("zk-3", Expect::Idle));
    // Not while a member that stays does not run with the new template, which may be a bad one.
    running.voter(0).server = ServerReport::Unreachable("connection refused".to_owned());
    running.voter(0).state = PodState::Failing {
        reason: "ImagePullBackOff".to_owned(),
        message: String::new(),
    };
    assert_eq!(running.restarts(), None);
    assert_eq!(running.report().phase, Phase::Blocked);
    // That member is the next when it has an old template again.
    outdate(running.voter(0));
    assert_eq!(running.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn what_an_earlier_operator_rendered_stays_but_for_the_list() {
    let mut running = wanting(3, 5);
    follow(&mut running, &[3, 4]);
    tell(&mut running, &first(5), VERSION + 1);
    running.set().rendered_by = Some("earlier".to_owned());
    assert_eq!(stateful_set(&running).write, Write::Merge);
    let expected = serde_json::json!({
        bellwether_api::labels::VOTERS: "1,2,3,4,5",
        bellwether_api::labels::LIST_VERSION: format!("{:x}", VERSION + 1),
    });
    assert_eq!(annotations(&running), expected);
}

#[test]
fn who_changes_at_run_time_once_does_so_whatever_the_spec_says() {
    let mut running = wanting(3, 5);
    running.ensemble.membership_change = MembershipChange::RollingRestart;
    follow(&mut running, &[3, 4]);
    carry(&mut running, &first(5));
    assert_eq!(asks(&running), Some((first(5), VERSION)));
}

#[test]
fn pods_of_members_come_back_when_somebody_scaled_the_stateful_set() {
    let mut running = wanting(5, 5);
    running.set().replicas = 2;
    running.observation.pods.truncate(2);
    for ordinal in 0..2 {
        looks(running.voter(ordinal), 1);
    }
    assert_eq!(replicas(&running), 5);
    // As long as a request for them may come, newcomers are needed as well.
    carry(&mut running, &first(7));
    assert_eq!(replicas(&running), 7);
}

#[test]
fn a_template_from_the_time_of_lists_in_files_is_taken_back() {
    let mut running = wanting(3, 3);
    let template = running.set().template.as_mut().unwrap();
    (template.voters, template.version) = (first(1), None);
    running.set().edited = Some(serde_json::json!({}));
    let template = |running: &Running| {
        let annotations = annotations(running);
        [
            bellwether_api::labels::VOTERS,
            bellwether_api::labels::LIST_VERSION,
        ]
        .map(|key| annotations[key].as_str().unwrap_or_default().to_owned())
    };
    let own = ["1,2,3".to_owned(), format!("{VERSION:x}")];
    assert_eq!(template(&running), own);
    assert_eq!(running.restarts(), None);
    // Also while nobody can tell the list.
    for ordinal in 0..3 {
        looks(running.voter(ordinal), 1);
    }
    assert_eq!(template(&running), own);
}

#[test]
fn the_way_to_run_time_begins_when_the_step_under_way_is_over() {
    let mut running = Running::stepping(3, 4, &[0]);
    running.ensemble.size = 5;
    running.ensemble.membership_change = MembershipChange::Reconfiguration;
    let version =
        |running: &Running| annotations(running)[bellwether_api::labels::LIST_VERSION].clone();
    assert_eq!(version(&running), serde_json::Value::Null);
    let mut running = Running::new(3, 0);
    running.ensemble.size = 5;
    running.ensemble.membership_change = MembershipChange::Reconfiguration;
    assert_eq!((version(&running), replicas(&running)), ("0".into(), 3));
}
