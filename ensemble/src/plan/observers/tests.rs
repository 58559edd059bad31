//! Which observer restarts when, and what voters wait for.
#![allow(clippy::unwrap_used, reason = "a test may")]

use bellwether_api::ZooKeeperEnsembleSpec;
use bellwether_api::ensemble::{MemberRole, Observers};
use jiff::Timestamp;

use super::*;
use crate::desired::claims::ClaimSizes;
use crate::desired::config;
use crate::ids::Voters;
use crate::observation::{FailingContainer, ObserversObservation, StatefulSetObservation};
use crate::plan::{Plan, plan};
use crate::validate::example;

/// Three voters and two observers that all serve; everything was changed a moment ago, and nobody
/// has restarted yet.
struct World {
    ensemble: ValidEnsemble,
    observation: Observation,
}

const NOW: i64 = 100_000;

fn pod(name: &str, ordinal: u16, revision: &Revision, role: MemberRole) -> PodObservation {
    PodObservation {
        name: name.to_owned(),
        ordinal,
        uid: format!("uid of {name}"),
        resource_version: "1".to_owned(),
        revision: Some(revision.clone()),
        controller_revision: Some("old".to_owned()),
        controller: None,
        silent_since: None,
        terminating: false,
        failing_container: None,
        state: PodState::Running,
        ready: true,
        unready_since: None,
        created: Timestamp::from_second(NOW - 10_000).unwrap(),
        node: None,
        volumes: None,
        server: ServerReport::Serving {
            role,
            zxid: 1,
            voters: revision.voters.clone(),
        },
    }
}

impl World {
    fn new() -> Self {
        let spec = ZooKeeperEnsembleSpec {
            replicas: 3,
            observers: Some(Observers { replicas: 2 }),
            ..Default::default()
        };
        let ensemble = example(spec);
        let revision = config::render(&ensemble, &Voters::first(3, 0), None).revision;
        let set = |replicas| StatefulSetObservation {
            replicas,
            template: Some(revision.clone()),
            update_revision: Some("new".to_owned()),
            inputs_hash: Some(stateful_set::inputs_hash(
                &ensemble,
                &revision,
                ClaimSizes::wanted(&ensemble),
            )),
            rendered_by: Some("test".to_owned()),
            edited: None,
            claim_size: None,
            log_claim_size: None,
            restart: None,
            terminating: false,
        };
        let voter = |ordinal| {
            let role = if ordinal == 2 {
                MemberRole::Leader
            } else {
                MemberRole::Follower
            };
            pod(&format!("zk-{ordinal}"), ordinal, &revision, role)
        };
        let observer = |o| {
            pod(
                &format!("zk-observer-{o}"),
                o,
                &revision,
                MemberRole::Observer,
            )
        };
        let observation = Observation {
            now: Timestamp::from_second(NOW).unwrap(),
            stateful_set: Some(set(3)),
            pods: (0..3).map(voter).collect(),
            revisions: [revision.name.clone()].into(),
            observers: ObserversObservation {
                claims: Vec::new(),
                log_claims: Vec::new(),
                stateful_set: Some(set(2)),
                pods: (0..2).map(observer).collect(),
                overdue: BTreeSet::new(),
            },
            ..Observation::default()
        };
        Self {
            ensemble,
            observation,
        }
    }

    fn plan(&self) -> Plan {
        plan(&self.ensemble, &self.observation)
    }

    /// The pod that restarts now.
    fn restarts(&self) -> Option<String> {
        self.plan().step.map(|step| match step {
            Step::RestartMember { pod, .. } => pod,
            Step::DeleteClaim { claim, .. } => panic!("{claim} is deleted"),
        })
    }

    fn observer(&mut self, ordinal: usize) -> &mut PodObservation {
        &mut self.observation.observers.pods[ordinal]
    }

    /// The pod was made anew from the new template and serves.
    fn restarted(pod: &mut PodObservation) {
        pod.controller_revision = Some("new".to_owned());
    }

    fn observers_done(mut self) -> Self {
        for ordinal in 0..2 {
            Self::restarted(self.observer(ordinal));
        }
        self
    }
}

fn away(pod: &mut PodObservation, since: i64) {
    pod.server = ServerReport::Unreachable("silent".to_owned());
    pod.ready = false;
    pod.created = Timestamp::from_second(NOW - since).unwrap();
}

#[test]
fn observers_restart_before_voters_one_at_a_time() {
    let mut world = World::new();
    assert_eq!(world.restarts().as_deref(), Some("zk-observer-0"));
    world.observer(0).terminating = true;
    assert_eq!(world.restarts(), None);
    world.observation.observers.pods.remove(0);
    assert_eq!(world.restarts(), None, "the StatefulSet controller is slow");
    let mut world = World::new();
    World::restarted(world.observer(0));
    away(world.observer(0), 10);
    assert_eq!(world.restarts(), None);
    world.observer(0).server = ServerReport::Looking;
    assert_eq!(world.restarts(), None);
    let mut world = World::new();
    World::restarted(world.observer(0));
    assert_eq!(world.restarts().as_deref(), Some("zk-observer-1"));
    World::restarted(world.observer(1));
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn an_updated_observer_that_cannot_run_stops_the_roll_and_says_why() {
    let mut world = World::new();
    let observer = world.observer(0);
    World::restarted(observer);
    away(observer, 10_000);
    observer.state = PodState::Failing {
        reason: "ImagePullBackOff".to_owned(),
        message: "no such image".to_owned(),
    };
    let plan = world.plan();
    assert_eq!(plan.step, None);
    assert_eq!(plan.report.phase, Phase::Blocked);
    let trouble = plan.report.trouble.unwrap();
    assert!(
        trouble.message.contains("zk-observer-0"),
        "{}",
        trouble.message
    );
    // Reverted: it is outdated again, and free to restart at once.
    world.observer(0).controller_revision = Some("bad".to_owned());
    assert_eq!(world.restarts().as_deref(), Some("zk-observer-0"));
}

#[test]
fn voters_do_not_wait_for_ever_for_an_observer_of_a_lost_node() {
    let mut world = World::new().observers_done();
    world.observer(0).terminating = true;
    away(world.observer(0), 10_000);
    assert_eq!(world.restarts(), None, "it may just be on its way out");
    world
        .observation
        .observers
        .overdue
        .insert("zk-observer-0".to_owned());
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));

    let mut world = World::new().observers_done();
    away(world.observer(0), 299);
    assert_eq!(world.restarts(), None);
    away(world.observer(0), 301);
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
    let trouble = world.plan().report.trouble.unwrap();
    assert_eq!(trouble.reason, Reason::MemberDown);

    // An outdated one that does not answer is nobody to wait for either.
    let mut world = World::new();
    away(world.observer(0), 10_000);
    World::restarted(world.observer(1));
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn without_a_leader_observers_hold_nobody_up() {
    let mut world = World::new();
    World::restarted(world.observer(0));
    away(world.observer(0), 10);
    for voter in &mut world.observation.pods {
        voter.server = ServerReport::Looking;
        voter.ready = false;
    }
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn the_repair_of_a_voter_goes_before_the_restart_of_an_observer() {
    let mut world = World::new();
    let voter = &mut world.observation.pods[0];
    away(voter, 10_000);
    voter.state = PodState::Failing {
        reason: "CrashLoopBackOff".to_owned(),
        message: String::new(),
    };
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
}

#[test]
fn an_observer_that_could_not_join_under_the_new_list_waits_for_the_voters() {
    // From one voter to two: a majority of two is both.
    let mut world = World::new();
    let two = Voters::first(2, 0);
    let old = config::render(&world.ensemble, &Voters::first(1, 0), None).revision;
    let new = config::render(&world.ensemble, &two, Some(ServerId(2))).revision;
    let hash =
        stateful_set::inputs_hash(&world.ensemble, &new, ClaimSizes::wanted(&world.ensemble));
    let set = world.observation.stateful_set.as_mut().unwrap();
    (set.replicas, set.template) = (2, Some(new.clone()));
    set.inputs_hash = Some(hash.clone());
    let set = world.observation.observers.stateful_set.as_mut().unwrap();
    (set.template, set.inputs_hash) = (Some(new.clone()), Some(hash));
    world.observation.pods = vec![
        pod("zk-0", 0, &old, MemberRole::Leader),
        pod("zk-1", 1, &new, MemberRole::Follower),
    ];
    World::restarted(&mut world.observation.pods[1]);
    world.observation.pods[1].server = ServerReport::Looking;
    for observer in &mut world.observation.observers.pods {
        observer.revision = Some(old.clone());
    }
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
    // The voters are done: now the observers follow.
    World::restarted(&mut world.observation.pods[0]);
    for (pod, role) in [(0, MemberRole::Leader), (1, MemberRole::Follower)] {
        let pod: &mut PodObservation = &mut world.observation.pods[pod];
        pod.revision = Some(new.clone());
        pod.server = ServerReport::Serving {
            role,
            zxid: 2,
            voters: two.clone(),
        };
    }
    world.ensemble.size = 2;
    assert_eq!(world.restarts().as_deref(), Some("zk-observer-0"));
}

#[test]
fn observers_count_in_no_majority() {
    let mut world = World::new().observers_done();
    for voter in &mut world.observation.pods {
        World::restarted(voter);
    }
    // One voter of three and two observers answer: three of five, and no majority.
    for voter in &mut world.observation.pods[..2] {
        away(voter, 10_000);
        voter.controller_revision = Some("old".to_owned());
    }
    assert_eq!(world.restarts(), None);
}

#[test]
fn ready_means_that_the_observers_serve_too() {
    let mut world = World::new().observers_done();
    for voter in &mut world.observation.pods {
        World::restarted(voter);
    }
    let report = world.plan().report;
    assert_eq!(report.phase, Phase::Ready, "{}", report.message);
    assert_eq!(report.observers.len(), 2);
    away(world.observer(1), 10);
    let report = world.plan().report;
    assert_eq!(report.phase, Phase::Growing, "{}", report.message);
    assert!(report.available);
    away(world.observer(1), 10_000);
    assert_eq!(world.plan().report.phase, Phase::Recovering);
}

#[test]
fn another_number_of_observers_changes_only_their_stateful_set() {
    let mut world = World::new().observers_done();
    for voter in &mut world.observation.pods {
        World::restarted(voter);
    }
    let before = world.plan();
    world.ensemble.observers = 5;
    let more = world.plan();
    assert_eq!(more.step, None);
    let changed: Vec<&str> = more
        .objects
        .iter()
        .filter(|o| !before.objects.contains(o))
        .map(|o| o.name.as_str())
        .collect();
    assert_eq!(changed, ["zk-observer"]);
    world.ensemble.observers = 0;
    let none = world.plan();
    let set = none.objects.iter().find(|o| o.name == "zk-observer");
    assert_eq!(set.unwrap().body["spec"]["replicas"], 0);
    world.observation.observers = ObserversObservation::default();
    assert!(world.plan().objects.iter().all(|o| o.name != "zk-observer"));
}

/// The container with the probes does not run, so the pod is not ready.
fn break_probes(pod: &mut PodObservation) {
    pod.ready = false;
    pod.failing_container = Some(FailingContainer {
        name: "probes".to_owned(),
        reason: "CrashLoopBackOff".to_owned(),
        message: "port in use".to_owned(),
    });
}

#[test]
fn a_failing_container_beside_a_server_does_not_free_it_for_a_restart() {
    // One of three voters is away; the others elect a leader, for which both are needed.
    let mut world = World::new().observers_done();
    let [broken, other, gone] = world.observation.pods.as_mut_slice() else {
        panic!("three voters");
    };
    break_probes(broken);
    away(gone, 10_000);
    for looking in [broken, other] {
        looking.server = ServerReport::Looking;
    }
    assert_eq!(world.restarts(), None);
    // While it serves, it restarts in its turn, with a majority beside it.
    let mut world = World::new().observers_done();
    break_probes(&mut world.observation.pods[0]);
    assert_eq!(world.restarts().as_deref(), Some("zk-0"));
    away(&mut world.observation.pods[1], 10);
    assert_eq!(world.restarts(), None);
}

#[test]
fn a_failing_container_in_an_updated_pod_stops_the_roll_and_is_named() {
    let mut world = World::new().observers_done();
    let voter = &mut world.observation.pods[0];
    World::restarted(voter);
    break_probes(voter);
    let observer = &mut World::new();
    World::restarted(observer.observer(0));
    break_probes(observer.observer(0));
    for (world, pod) in [(&mut world, "zk-0"), (observer, "zk-observer-0")] {
        let plan = world.plan();
        assert_eq!(plan.step, None);
        assert_eq!(plan.report.phase, Phase::Blocked);
        let trouble = plan.report.trouble.unwrap();
        assert_eq!(trouble.reason, Reason::ContainerFailing);
        for word in ["probes", pod, "CrashLoopBackOff (port in use)"] {
            assert!(trouble.message.contains(word), "{}", trouble.message);
        }
    }
}

#[test]
fn a_failing_container_is_told_while_every_member_serves() {
    let mut world = World::new().observers_done();
    world.observation.pods.iter_mut().for_each(World::restarted);
    assert_eq!(world.plan().report.trouble, None);
    break_probes(&mut world.observation.pods[1]);
    let report = world.plan().report;
    assert_eq!(report.phase, Phase::Ready);
    assert_eq!(report.trouble.unwrap().reason, Reason::ContainerFailing);
}
