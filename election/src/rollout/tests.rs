use proptest::prelude::*;

use super::*;

const OLD: &str = "web-old";
const NEW: &str = "web-new";

fn workload() -> Workload {
    Workload {
        uid: "set".to_owned(),
        revision: NEW.to_owned(),
        is_observed: true,
        replicas: 3,
        max_unavailable: 1,
        min_ready: Duration::ZERO,
        goes_on_after: None,
    }
}

fn pod(ordinal: usize, revision: &str) -> WorkloadPod {
    WorkloadPod {
        name: format!("web-{ordinal}"),
        uid: format!("uid-{ordinal}"),
        revision: Some(revision.to_owned()),
        is_ready: true,
        has_stayed_ready: true,
        is_terminating: false,
        is_candidate: true,
    }
}

fn three() -> Vec<WorkloadPod> {
    (0..3).map(|ordinal| pod(ordinal, OLD)).collect()
}

fn leads(ordinal: usize) -> Leadership {
    Leadership::Pod(format!("web-{ordinal}"))
}

fn evicts(ordinals: &[usize]) -> Step {
    let named = |ordinal| (format!("web-{ordinal}"), format!("uid-{ordinal}"));
    Step::Evict(ordinals.iter().map(named).collect())
}

fn waits_for(step: Step) -> Wait {
    match step {
        Step::Wait(wait) => wait,
        step => panic!("{step:?}"),
    }
}

fn names(ordinals: &[usize]) -> Vec<String> {
    let name = |ordinal| format!("web-{ordinal}");
    ordinals.iter().map(name).collect()
}

#[test]
fn followers_go_from_the_highest_on_and_the_leader_last() {
    let mut pods = three();
    assert_eq!(step(&workload(), &pods, &leads(2)), evicts(&[1]));
    pods[1] = pod(1, NEW);
    assert_eq!(step(&workload(), &pods, &leads(2)), evicts(&[0]));
    pods[0] = pod(0, NEW);
    let leader = Step::EvictLeader("web-2".to_owned(), "uid-2".to_owned());
    assert_eq!(step(&workload(), &pods, &leads(2)), leader);
    pods[2] = pod(2, NEW);
    assert_eq!(step(&workload(), &pods, &leads(0)), Step::Done);
}

#[test]
fn a_rollout_is_settled_when_the_last_pod_is_a_candidate_again() {
    let mut pods: Vec<_> = (0..3).map(|ordinal| pod(ordinal, NEW)).collect();
    let unsettled = |pods: &[WorkloadPod]| unsettled(&workload(), pods, &leads(0));
    assert_eq!(unsettled(&pods), None);
    pods[2].is_candidate = false;
    assert_eq!(unsettled(&pods), Some(Wait::Candidacy(names(&[2]))));
    pods[2].is_ready = false;
    assert_eq!(unsettled(&pods), Some(Wait::Readiness(names(&[2]))));
    assert_eq!(unsettled(&pods[..2]), Some(Wait::Creation(1)));
}

#[test]
fn a_pod_that_is_ready_for_a_moment_only_is_not_available() {
    let mut pods = three();
    pods[1] = WorkloadPod {
        has_stayed_ready: false,
        ..pod(1, NEW)
    };
    let wait = || Wait::Age(names(&[1]));
    assert_eq!(waits_for(step(&workload(), &pods, &leads(2))), wait());
    // Nor does the leader go before the last follower has stayed ready.
    pods[0] = pod(0, NEW);
    assert_eq!(waits_for(step(&workload(), &pods, &leads(2))), wait());
    pods[2] = pod(2, NEW);
    assert_eq!(unsettled(&workload(), &pods, &leads(2)), Some(wait()));
}

#[test]
fn ten_comes_before_nine() {
    let pods = vec![pod(9, OLD), pod(10, OLD), pod(0, OLD)];
    assert_eq!(step(&workload(), &pods, &leads(0)), evicts(&[10]));
}

#[test]
fn a_pod_is_replaced_when_it_is_ready_and_a_candidate_again() {
    let mut pods = three();
    pods.remove(1);
    assert_eq!(
        waits_for(step(&workload(), &pods, &leads(2))),
        Wait::Creation(1)
    );
    pods.push(WorkloadPod {
        is_ready: false,
        is_candidate: false,
        ..pod(1, NEW)
    });
    assert_eq!(
        waits_for(step(&workload(), &pods, &leads(2))),
        Wait::Readiness(names(&[1]))
    );
    pods[2].is_ready = true;
    assert_eq!(
        waits_for(step(&workload(), &pods, &leads(2))),
        Wait::Candidacy(names(&[1]))
    );
    pods[2].is_candidate = true;
    assert_eq!(step(&workload(), &pods, &leads(2)), evicts(&[0]));
}

#[test]
fn the_leader_waits_for_every_other_pod() {
    let mut pods = vec![pod(0, NEW), pod(1, NEW), pod(2, OLD)];
    pods[0].is_candidate = false;
    let two = Workload {
        max_unavailable: 2,
        ..workload()
    };
    assert_eq!(
        waits_for(step(&two, &pods, &leads(2))),
        Wait::Candidacy(names(&[0]))
    );
}

#[test]
fn a_broken_image_stops_before_the_leader_and_goes_back_at_once() {
    let mut pods = three();
    pods[1] = WorkloadPod {
        is_ready: false,
        ..pod(1, NEW)
    };
    assert_eq!(
        waits_for(step(&workload(), &pods, &leads(2))),
        Wait::Readiness(names(&[1]))
    );
    let undone = Workload {
        revision: OLD.to_owned(),
        ..workload()
    };
    assert_eq!(step(&undone, &pods, &leads(2)), evicts(&[1]));
}

#[test]
fn a_leader_that_is_not_ready_does_not_hold_up_the_others() {
    let mut pods = three();
    pods[2].is_ready = false;
    assert_eq!(step(&workload(), &pods, &leads(2)), evicts(&[1]));
}

#[test]
fn so_many_go_at_a_time_as_may_be_unavailable() {
    let pods: Vec<_> = (0..5).map(|ordinal| pod(ordinal, OLD)).collect();
    let two = Workload {
        replicas: 5,
        max_unavailable: 2,
        ..workload()
    };
    assert_eq!(step(&two, &pods, &leads(0)), evicts(&[4, 3]));
}

#[test]
fn nobody_goes_while_it_is_not_known_who_leads() {
    let minute = Duration::from_secs(60);
    let step = |leadership: &Leadership| step(&workload(), &three(), leadership);
    assert_eq!(waits_for(step(&Leadership::Unknown(minute))), Wait::Sight);
    assert_eq!(waits_for(step(&Leadership::Unbound(minute))), Wait::Binding);
    let moment = Duration::from_secs(1);
    assert_eq!(waits_for(step(&Leadership::Nobody(moment))), Wait::Leader);
    assert_eq!(step(&Leadership::Nobody(minute)), evicts(&[2]));
    assert_eq!(step(&Leadership::Elsewhere), evicts(&[2]));
}

#[test]
fn the_ordinary_order_follows_a_deadline_if_there_is_one() {
    let impatient = Workload {
        goes_on_after: Some(Duration::from_secs(60)),
        ..workload()
    };
    let mut pods = three();
    let blind = |seconds| Leadership::Unknown(Duration::from_secs(seconds));
    assert_eq!(waits_for(step(&impatient, &pods, &blind(59))), Wait::Sight);
    assert_eq!(step(&impatient, &pods, &blind(60)), evicts(&[2]));
    // Without sight it is not known who is a candidate, either.
    pods[2] = WorkloadPod {
        is_candidate: false,
        ..pod(2, NEW)
    };
    assert_eq!(step(&impatient, &pods, &blind(60)), evicts(&[1]));
}

#[test]
fn nothing_happens_before_the_controller_has_seen_the_spec() {
    let unseen = Workload {
        is_observed: false,
        ..workload()
    };
    assert_eq!(
        waits_for(step(&unseen, &three(), &leads(0))),
        Wait::Observation
    );
}

/// An application whose candidates lead in the order in which they came, and the workload that makes its pods.
struct World {
    pods: Vec<WorkloadPod>,
    /// The uids of the candidates in the order in which they lead.
    queue: Vec<String>,
    made: usize,
    /// How often another candidate came to lead.
    changes: usize,
    /// Whether pods of the new revision become ready.
    works: bool,
}

impl World {
    fn new(replicas: usize, leader: usize) -> Self {
        let pods: Vec<_> = (0..replicas).map(|ordinal| pod(ordinal, OLD)).collect();
        let uids = pods.iter().map(|pod| pod.uid.clone());
        let mut queue: Vec<String> = uids.collect();
        queue.rotate_left(leader % replicas);
        Self {
            pods,
            queue,
            made: replicas,
            changes: 0,
            works: true,
        }
    }

    fn leader(&self) -> Option<&WorkloadPod> {
        let uid = self.queue.first()?;
        self.pods.iter().find(|pod| pod.uid == *uid)
    }

    fn leadership(&self) -> Leadership {
        match self.leader() {
            Some(pod) => Leadership::Pod(pod.name.clone()),
            None => Leadership::Nobody(Duration::ZERO),
        }
    }

    fn evict(&mut self, uid: &str) {
        let pod = self.pods.iter_mut().find(|pod| pod.uid == uid);
        pod.expect("the pod exists").is_terminating = true;
    }

    /// One thing that happens in the cluster by itself, if it is there to happen.
    fn happen(&mut self, chance: usize) {
        let at = chance % self.pods.len();
        let is_old = self.pods[at].revision.as_deref() == Some(OLD);
        let works = self.works || is_old;
        let comes_first = (chance / self.pods.len()).is_multiple_of(2);
        let pod = &mut self.pods[at];
        if pod.is_terminating {
            let led = self.queue.first() == Some(&pod.uid);
            self.queue.retain(|uid| *uid != pod.uid);
            self.changes += usize::from(led);
            self.made += 1;
            *pod = WorkloadPod {
                uid: format!("uid-{}", self.made),
                revision: Some(NEW.to_owned()),
                is_ready: false,
                has_stayed_ready: false,
                is_terminating: false,
                is_candidate: false,
                name: pod.name.clone(),
            };
        } else if !pod.is_ready && works {
            pod.is_ready = true;
        } else if !pod.has_stayed_ready && works && comes_first {
            pod.has_stayed_ready = true;
        } else if !pod.is_candidate && works {
            pod.is_candidate = true;
            self.queue.push(pod.uid.clone());
        }
    }
}

proptest! {
    /// Whatever the order in which pods end, start and become candidates: the leader changes once, and no more pods than
    /// allowed are away at a time.
    #[test]
    fn a_rollout_changes_the_leader_once(
        replicas in 1_usize..7,
        leader in 0_usize..7,
        max_unavailable in 1_usize..4,
        chances in proptest::collection::vec(0_usize..64, 400),
    ) {
        let workload = Workload { replicas, max_unavailable, ..workload() };
        let mut world = World::new(replicas, leader);
        let mut chances = chances.into_iter().chain(0..);
        for _ in 0..2000 {
            match step(&workload, &world.pods, &world.leadership()) {
                Step::Done => break,
                Step::Evict(pods) => pods.iter().for_each(|(_, uid)| world.evict(uid)),
                Step::EvictLeader(_, uid) => world.evict(&uid),
                Step::Wait(_) => {}
            }
            let is_away = |pod: &&WorkloadPod| {
                pod.is_terminating || !pod.is_candidate || !pod.has_stayed_ready
            };
            prop_assert!(world.pods.iter().filter(is_away).count() <= max_unavailable);
            world.happen(chances.next().unwrap_or_default());
        }
        prop_assert!(world.pods.iter().all(|pod| pod.revision.as_deref() == Some(NEW)));
        prop_assert_eq!(world.changes, 1);
    }

    /// Where the new revision does not work, the leader stays.
    #[test]
    fn a_broken_revision_never_reaches_the_leader(
        replicas in 2_usize..7,
        leader in 0_usize..7,
        max_unavailable in 1_usize..4,
        chances in proptest::collection::vec(0_usize..64, 400),
    ) {
        let max_unavailable = max_unavailable.min(replicas - 1);
        let workload = Workload { replicas, max_unavailable, ..workload() };
        let mut world = World::new(replicas, leader);
        world.works = false;
        for chance in chances {
            match step(&workload, &world.pods, &world.leadership()) {
                Step::Evict(pods) => pods.iter().for_each(|(_, uid)| world.evict(uid)),
                Step::Wait(_) => {}
                step => prop_assert!(false, "{step:?}"),
            }
            world.happen(chance);
        }
        prop_assert_eq!(world.changes, 0);
    }
}
