//! A running ensemble for the tests of the planner's modules: at rest, until a test changes it.

use bellwether_api::ZooKeeperEnsembleSpec;
use bellwether_api::ensemble::{MemberRole, Observers};
use jiff::{SignedDuration, Timestamp};

use super::report::Report;
use super::{Expect, Plan, Step, plan};
use crate::desired::claims::ClaimSizes;
use crate::desired::{config, stateful_set};
use crate::encryption::Encryption;
use crate::ids::{ServerId, Voters};
use crate::observation::{
    ClaimObservation, FailingContainer, Observation, PodObservation, PodState, Revision,
    ServerReport, StatefulSetObservation,
};
use crate::validate::{ValidEnsemble, example};
use crate::volume_report::{Usage, VolumeReport};

/// When everything is observed, in seconds.
pub(crate) const NOW: i64 = 100_000;

/// The time this many seconds ago.
pub(crate) fn ago(seconds: i64) -> Timestamp {
    Timestamp::constant(NOW, 0) - SignedDuration::from_secs(seconds)
}

/// The servers of an ensemble of this size.
pub(crate) fn first(size: u16) -> Voters {
    Voters::first(size, 0)
}

/// The ensemble `shop/zk` and what is observed of it.
#[derive(Clone)]
pub(crate) struct Running {
    /// Its spec.
    pub(crate) ensemble: ValidEnsemble,
    /// What is observed.
    pub(crate) observation: Observation,
}

/// A pod of the current template that has served for long.
pub(crate) fn pod(
    name: &str,
    ordinal: u16,
    revision: &Revision,
    role: MemberRole,
) -> PodObservation {
    PodObservation {
        name: name.to_owned(),
        ordinal,
        uid: format!("uid of {name}"),
        resource_version: "1".to_owned(),
        revision: Some(revision.clone()),
        controller_revision: Some("new".to_owned()),
        template_hash: None,
        controller: None,
        silent_since: None,
        terminating: false,
        failing_container: None,
        state: PodState::Running,
        ready: true,
        unready_since: None,
        created: ago(10_000),
        node: None,
        volumes: Some(volumes(true, Some(1))),
        presents: None,
        credentials: Default::default(),
        client_authority: None,
        server: ServerReport::Serving {
            role,
            zxid: 1 << 32,
            voters: revision.voters.clone(),
            observers: Default::default(),
            version: 0,
        },
    }
}

/// A member's report about a volume that is half full.
pub(crate) fn volumes(has_database: bool, epoch: Option<u64>) -> VolumeReport {
    VolumeReport {
        has_database,
        current_epoch: epoch,
        accepted_epoch: epoch,
        stored_list: None,
        data: Usage {
            total: 8 << 30,
            free: 4 << 30,
        },
        transaction_log: None,
    }
}

/// The claim of a member that carries this list as the last that was finished.
pub(crate) fn claim(name: &str, ordinal: u16, voters: Option<Voters>) -> ClaimObservation {
    ClaimObservation {
        name: format!("data-{name}-{ordinal}"),
        ordinal,
        uid: format!("uid of {name} {ordinal}"),
        voters,
        ..Default::default()
    }
}

impl Running {
    /// An ensemble of `size` voters, the last of which leads, and of this many observers.
    pub(crate) fn new(size: u16, observers: u16) -> Self {
        let mut ensemble = example(ZooKeeperEnsembleSpec {
            replicas: 3,
            observers: Some(Observers {
                replicas: i32::from(observers),
            }),
            ..Default::default()
        });
        ensemble.size = size;
        let revision = config::render(&ensemble, &first(size), None, Encryption::NONE).revision;
        let set = |replicas| StatefulSetObservation {
            replicas,
            template: Some(revision.clone()),
            template_hash: None,
            update_revision: Some("new".to_owned()),
            inputs_hash: Some(inputs(&ensemble, &revision)),
            rendered_by: Some("test".to_owned()),
            edited: None,
            left_over: None,
            client_port_secret: None,
            claim_size: None,
            log_claim_size: None,
            restart: None,
            terminating: false,
        };
        let voter = |ordinal| {
            let role = match ordinal + 1 == size {
                true => MemberRole::Leader,
                false => MemberRole::Follower,
            };
            pod(&format!("zk-{ordinal}"), ordinal, &revision, role)
        };
        let observer = |ordinal| {
            let name = format!("zk-observer-{ordinal}");
            pod(&name, ordinal, &revision, MemberRole::Observer)
        };
        let mut observation = Observation {
            now: ago(0),
            stateful_set: Some(set(size)),
            pods: (0..size).map(voter).collect(),
            claims: (0..size)
                .map(|o| claim("zk", o, Some(first(size))))
                .collect(),
            revisions: [revision.name.clone()].into(),
            ..Observation::default()
        };
        if observers > 0 {
            observation.observers.stateful_set = Some(set(observers));
            observation.observers.pods = (0..observers).map(observer).collect();
        }
        Self {
            ensemble,
            observation,
        }
    }

    /// The same after a change of the template: no pod was made from it yet.
    pub(crate) fn outdated(mut self) -> Self {
        let pods = self.observation.pods.iter_mut();
        for pod in pods.chain(&mut self.observation.observers.pods) {
            outdate(pod);
        }
        self
    }

    /// A size change in the middle: the template names this many members, and each of these ordinals runs
    /// it already. Pods of newcomers exist and serve.
    pub(crate) fn stepping(from: u16, to: u16, updated: &[u16]) -> Self {
        let mut running = Self::new(from, 0);
        let new = running.template(to, (from == 1).then_some(ServerId(2)));
        for ordinal in from..to {
            let name = format!("zk-{ordinal}");
            let newcomer = pod(&name, ordinal, &new, MemberRole::Follower);
            running.observation.pods.push(newcomer);
        }
        for pod in &mut running.observation.pods {
            match updated.contains(&pod.ordinal) {
                true => runs(pod, &new),
                false if pod.ordinal < from => outdate(pod),
                false => {}
            }
        }
        for claim in &mut running.observation.claims {
            claim.next = Some(first(to));
        }
        running.ensemble.size = to;
        running
    }

    /// Writes a template with this many voters.
    pub(crate) fn template(&mut self, size: u16, initialize: Option<ServerId>) -> Revision {
        let revision =
            config::render(&self.ensemble, &first(size), initialize, Encryption::NONE).revision;
        let inputs = inputs(&self.ensemble, &revision);
        let set = self.set();
        set.template = Some(revision.clone());
        set.inputs_hash = Some(inputs);
        set.replicas = set.replicas.max(size);
        revision
    }

    /// The StatefulSets have what the spec asks for by now.
    pub(crate) fn render(&mut self) {
        let template = self.set().template.clone().unwrap();
        let size = u16::try_from(template.voters.len()).unwrap();
        let revision = self.template(size, template.initialize);
        let inputs = inputs(&self.ensemble, &revision);
        if let Some(set) = &mut self.observation.observers.stateful_set {
            set.inputs_hash = Some(inputs);
        }
    }

    /// The voters' StatefulSet.
    pub(crate) fn set(&mut self) -> &mut StatefulSetObservation {
        self.observation.stateful_set.as_mut().unwrap()
    }

    /// A voter's pod.
    pub(crate) fn voter(&mut self, ordinal: usize) -> &mut PodObservation {
        &mut self.observation.pods[ordinal]
    }

    /// An observer's pod.
    pub(crate) fn observer(&mut self, ordinal: usize) -> &mut PodObservation {
        &mut self.observation.observers.pods[ordinal]
    }

    pub(crate) fn plan(&self) -> Plan {
        plan(&self.ensemble, &self.observation)
    }

    pub(crate) fn report(&self) -> Report {
        self.plan().report
    }

    /// The names of the objects that are not wanted any more.
    pub(crate) fn pruned(&self) -> Vec<String> {
        let prune = self.plan().prune.into_iter();
        prune.map(|object| object.name).collect()
    }

    /// The pod that restarts now, the role that its server must have, and why.
    pub(crate) fn restart(&self) -> Option<(String, Expect, String)> {
        self.plan().step.map(|step| match step {
            Step::RestartMember {
                pod,
                expect,
                reason,
                ..
            } => (pod, expect, reason),
            other => panic!("{other:?}"),
        })
    }

    /// The pod that restarts now.
    pub(crate) fn restarts(&self) -> Option<String> {
        self.restart().map(|(pod, ..)| pod)
    }

    /// The verdict on every voter and observer, a line each.
    pub(crate) fn verdicts(&self) -> Vec<String> {
        let report = self.report();
        let members = report.members.iter().chain(&report.observers);
        members
            .map(|m| format!("{}: {}", m.pod, m.verdict))
            .collect()
    }
}

fn inputs(ensemble: &ValidEnsemble, revision: &Revision) -> String {
    stateful_set::inputs_hash(ensemble, revision, ClaimSizes::wanted(ensemble))
}

/// The pod was made from an earlier template.
pub(crate) fn outdate(pod: &mut PodObservation) {
    pod.controller_revision = Some("old".to_owned());
}

/// The pod was created from the current template.
pub(crate) fn update(pod: &mut PodObservation) {
    pod.controller_revision = Some("new".to_owned());
}

/// The pod was created with this revision, and serves.
pub(crate) fn runs(pod: &mut PodObservation, revision: &Revision) {
    update(pod);
    pod.revision = Some(revision.clone());
    pod.server = ServerReport::Serving {
        role: pod.server.role(),
        zxid: 1 << 32,
        voters: revision.voters.clone(),
        observers: Default::default(),
        version: 0,
    };
}

/// The server serves in this role.
pub(crate) fn serves(pod: &mut PodObservation, role: MemberRole, epoch: u64) {
    let voters = pod.revision.as_ref().unwrap().voters.clone();
    pod.server = ServerReport::Serving {
        role,
        zxid: epoch << 32,
        voters,
        observers: Default::default(),
        version: 0,
    };
}

/// The server looks for a leader, and its pod has not been ready for so many seconds.
pub(crate) fn looks(pod: &mut PodObservation, since: i64) {
    pod.server = ServerReport::Looking;
    pod.ready = false;
    pod.unready_since = Some(ago(since));
}

/// The pod was made so many seconds ago, and its server does not answer yet.
pub(crate) fn away(pod: &mut PodObservation, since: i64) {
    pod.server = ServerReport::Unreachable("silent".to_owned());
    pod.ready = false;
    pod.created = ago(since);
}

/// Kubernetes counts the pod as ready, and the operator has not been able to ask its server for so long.
pub(crate) fn silent(pod: &mut PodObservation, since: i64) {
    pod.server = ServerReport::Unreachable("connection refused".to_owned());
    pod.silent_since = Some(ago(since));
}

/// The server cannot run.
pub(crate) fn fails(pod: &mut PodObservation, message: &str) {
    away(pod, 10_000);
    pod.state = PodState::Failing {
        reason: "CrashLoopBackOff".to_owned(),
        message: message.to_owned(),
    };
}

/// The container with the probes does not run, so the pod is not ready.
pub(crate) fn break_probes(pod: &mut PodObservation) {
    pod.ready = false;
    pod.failing_container = Some(FailingContainer {
        name: "probes".to_owned(),
        reason: "CrashLoopBackOff".to_owned(),
        message: "port in use".to_owned(),
    });
}
