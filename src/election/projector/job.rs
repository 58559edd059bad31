//! One pass over what an election is projected to: reads what is not known, writes what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bellwether_api::LeaderElection;
use bellwether_api::election::Reason;
use bellwether_election::projection::{
    AppliedLabels, CandidatePods, Change, Failure, Roles, SliceOf, Step, Subject, changes, lease,
    lease_name, service, service_name, slice, slice_name, unreached,
};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, ResourceExt};

use super::feed::Kind;
use super::handovers::{Answered, Questioner};
use super::requests::{Cached, OwnedObject, ProjectionClient};
use super::rollouts::{Look, Looked};

/// What is known about the objects that one election is projected to.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) lease: Cached<Lease>,
    pub(super) service: Cached<Service>,
    pub(super) slice: Cached<EndpointSlice>,
}

/// What has to be done for one election.
pub(super) struct Job {
    pub(super) object: Arc<LeaderElection>,
    /// The election with its status; `None` if that is not known, and then nothing but leftovers is
    /// removed.
    pub(super) subject: Option<Subject>,
    /// When the leader was last read: a Lease runs from then.
    pub(super) read: Timestamp,
    /// The pods of the candidates; `None` if they are not known.
    pub(super) candidate_pods: Option<CandidatePods>,
    /// Whether pods may have the label that the spec asks for. If not, labels that they have are taken back.
    pub(super) labels_allowed: bool,
    pub(super) applied_labels: BTreeMap<String, AppliedLabels>,
    pub(super) owned: Vec<OwnedObject>,
    pub(super) objects: Objects,
    /// The rollout of a workload, if there is one.
    pub(super) look: Option<Look>,
    /// What has to be known to ask the leader to hand over, if the spec says how.
    pub(super) questioner: Option<Questioner>,
    /// Becomes true when the election changes, or its leader is read again.
    pub(super) is_outdated: Arc<AtomicBool>,
}

/// The outcome of a job.
#[derive(Debug, Default)]
pub(super) struct JobResult {
    pub(super) objects: Objects,
    pub(super) failures: Vec<Failure>,
    /// Pods as they are now, and names of pods that are gone.
    pub(super) pods: Vec<ObjectMeta>,
    pub(super) gone: Vec<String>,
    /// How many writes succeeded.
    pub(super) writes: usize,
    /// What became of the rollout.
    pub(super) looked: Option<Looked>,
    /// What became of a question to the leader.
    pub(super) answered: Option<Answered>,
    /// Whether labels are left to the next job, since there is something to do that must not wait for hundreds of pods.
    pub(super) is_partial: bool,
}

impl ProjectionClient {
    /// Does everything that has to be done for one election. A failure does not stop the rest.
    pub(super) async fn run(&self, mut job: Job) -> JobResult {
        let mut done = JobResult {
            objects: job.objects.clone(),
            ..JobResult::default()
        };
        let mut wanted = BTreeSet::new();
        if let Some(subject) = &job.subject {
            self.service(subject, job.candidate_pods.as_ref(), &mut done, &mut wanted)
                .await;
            self.lease(subject, job.read, &mut done, &mut wanted).await;
        } else if let Some(projections) = &job.object.spec.projections {
            // Objects that the spec still asks for are kept until the election is seen again.
            let name = job.object.name_any();
            if let Some(lease) = &projections.lease {
                wanted.insert((Kind::Lease, lease_name(&name, lease).to_owned()));
            }
            if let Some(service) = &projections.service {
                wanted.insert((Kind::EndpointSlice, slice_name(&name, service)));
                wanted.insert((Kind::Service, service_name(&name, service).to_owned()));
            }
        }
        let namespace = job.object.namespace().unwrap_or_default();
        for owned in &job.owned {
            if !wanted.contains(&(owned.kind, owned.name.clone())) {
                match self.remove(&namespace, owned).await {
                    Ok(()) => done.writes += 1,
                    Err(failure) => done.failures.push(failure),
                }
            }
        }
        self.labels(&job, &namespace, &mut done).await;
        let mut questioner = job.questioner.take();
        if let Some(look) = &job.look {
            let questioner = questioner.as_mut().filter(|_| self.lease.is_held());
            done.looked = self
                .roll_out(&job, look, questioner, &mut done.writes)
                .await;
        }
        if let Some(questioner) = questioner
            && self.lease.is_held()
        {
            done.answered = Some(questioner.answer(job.candidate_pods.as_ref()));
        }
        done
    }

    async fn lease(
        &self,
        subject: &Subject,
        read: Timestamp,
        done: &mut JobResult,
        wanted: &mut BTreeSet<(Kind, String)>,
    ) {
        let projections = subject.spec().projections.as_ref();
        let Some(projection) = projections.and_then(|all| all.lease.as_ref()) else {
            done.objects.lease = Cached::Unread;
            return;
        };
        let name = lease_name(subject.name(), projection);
        wanted.insert((Kind::Lease, name.to_owned()));
        let id = (Kind::Lease, subject.namespace(), name);
        let decide = |live: Option<&Lease>| lease(subject, projection, live, read);
        let settled = self.settle(id, &mut done.objects.lease, &mut done.writes, decide);
        done.failures.extend(settled.await.err());
    }

    async fn service(
        &self,
        subject: &Subject,
        candidate_pods: Option<&CandidatePods>,
        done: &mut JobResult,
        wanted: &mut BTreeSet<(Kind, String)>,
    ) {
        let projections = subject.spec().projections.as_ref();
        let Some(projection) = projections.and_then(|all| all.service.as_ref()) else {
            done.objects.service = Cached::Unread;
            done.objects.slice = Cached::Unread;
            return;
        };
        let (name, namespace) = (
            service_name(subject.name(), projection),
            subject.namespace(),
        );
        wanted.insert((Kind::Service, name.to_owned()));
        let id = (Kind::Service, namespace, name);
        let known = &mut done.objects.service;
        let decide = |live: Option<&Service>| service(subject, projection, live);
        if let Err(failure) = self.settle(id, known, &mut done.writes, decide).await {
            // An address must not get into a Service that does not belong to the election.
            let ours = failure.reason != Reason::NameTaken;
            done.failures.push(failure);
            if ours {
                wanted.insert((Kind::EndpointSlice, slice_name(subject.name(), projection)));
            }
            return;
        }
        let name = slice_name(subject.name(), projection);
        wanted.insert((Kind::EndpointSlice, name.clone()));
        let (Some(candidate_pods), Some(live)) = (candidate_pods, known.get()) else {
            return;
        };
        let of = SliceOf {
            service: live,
            pod: candidate_pods.reached(),
        };
        let id = (Kind::EndpointSlice, namespace, name.as_str());
        let known = &mut done.objects.slice;
        // Without sight, the slice may show the pod of a later leader than that of the status: once it was read, the next job
        // knows whether that pod is there.
        let only_read = subject.is_stale() && matches!(known, Cached::Unread);
        let decide = |live: Option<&EndpointSlice>| match only_read {
            true => Step::Nothing,
            false => slice(subject, projection, of, live),
        };
        let settled = self.settle(id, known, &mut done.writes, decide).await;
        done.is_partial = only_read && settled.is_ok();
        done.failures.extend(settled.err());
        let pod = of.pod.filter(|_| !subject.is_stale());
        done.failures
            .extend(pod.and_then(|pod| unreached(projection, pod)));
    }

    async fn labels(&self, job: &Job, namespace: &str, done: &mut JobResult) {
        let projections = job.object.spec.projections.as_ref();
        let asked = projections.is_some_and(|all| all.pod_labels.is_some());
        let switched_on = asked && job.labels_allowed;
        let nothing = Roles::default();
        let roles = if switched_on {
            // While the status is unknown or stale, labels stay as they are.
            if job.subject.as_ref().is_none_or(Subject::is_stale) {
                return;
            }
            job.candidate_pods
                .as_ref()
                .and_then(|candidate_pods| candidate_pods.roles.as_ref())
        } else {
            Some(&nothing)
        };
        let Some(roles) = roles else { return };
        let (uid, name) = (job.object.uid().unwrap_or_default(), job.object.name_any());
        let mut failed = false;
        for change in changes(roles, &job.applied_labels) {
            if job.is_outdated.load(Ordering::Relaxed) {
                done.is_partial = true;
                return;
            }
            if change.only_after_all && failed {
                continue;
            }
            let labelled = self.label(namespace, (&uid, &name), &change, &mut done.writes);
            match labelled.await {
                Ok(Some(meta)) => done.pods.push(meta),
                Ok(None) => done.gone.push(change.pod),
                Err(failure) => {
                    failed = true;
                    done.failures.push(failure);
                }
            }
        }
    }

    /// Takes back the labels of an election on a pod if the election does not exist.
    pub(super) async fn release(
        &self,
        namespace: &str,
        election_uid: &str,
        pods: BTreeMap<String, AppliedLabels>,
    ) -> JobResult {
        let mut done = JobResult::default();
        let api: Api<LeaderElection> = Api::namespaced(self.kube.clone(), namespace);
        for (pod, applied) in pods {
            // A pod without the name of the election has lost the annotation. No election has an empty name,
            // so a request would fail.
            let exists = if applied.election.is_empty() {
                Ok(None)
            } else {
                self.read(api.get_metadata_opt(&applied.election)).await
            };
            match exists {
                Ok(Some(object)) if object.metadata.uid.as_deref() == Some(election_uid) => {
                    continue;
                }
                Ok(_) => {}
                Err(error) => {
                    done.failures
                        .push(error.failure("labels of a deleted election"));
                    continue;
                }
            }
            let change = Change {
                pod: pod.clone(),
                pod_uid: applied.pod_uid.clone(),
                labels: BTreeMap::new(),
                is_costly: false,
                only_after_all: false,
            };
            let election = (election_uid, applied.election.as_str());
            match self
                .label(namespace, election, &change, &mut done.writes)
                .await
            {
                Ok(Some(meta)) => done.pods.push(meta),
                Ok(None) => done.gone.push(pod),
                Err(failure) => done.failures.push(failure),
            }
        }
        done
    }
}
