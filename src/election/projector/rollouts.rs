//! The rollout of one election's workload: what is known of it, and what is done about its pods.
//!
//! The rule is [`bellwether_election::rollout`]'s. Just before pods are evicted the workload is read once more, and an
//! eviction counts only for the pod with the uid that was looked at. The leader's pod is evicted only right after the leader
//! was read in ZooKeeper.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bellwether_api::conditions::NewCondition;
use bellwether_api::election::{ConditionType, Reason, RolloutProjection, WorkloadKind};
use bellwether_election::projection::{CandidatePods, Failure, PodFacts, Pods, Subject};
use bellwether_election::rollout::{
    Outcome, Step, Unled, Wait, Workload, daemon_set, leadership, stateful_set, step, told, unled,
    unsettled, workload_pods,
};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, info};

use super::super::Key;
use super::super::registry::Task;
use super::super::sighting::Sighting;
use super::feed::Observation;
use super::handovers::Questioner;
use super::job::Job;
use super::requests::{ProjectionClient, RequestError};

/// How old the reading may be by which the leader's pod is evicted.
const FRESH: Duration = Duration::from_secs(2);

/// How soon a rollout that is under way is looked at again if nothing changes before, and one that cannot go on.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const FAILED_AGAIN: Duration = Duration::from_secs(30);

/// What is known of a rollout between two looks.
#[derive(Default)]
pub(super) struct Rollout {
    /// The watch of the workload, and what it was started for.
    watch: Option<(RolloutProjection, Task)>,
    /// The workload as last read; `None` if it may have changed since.
    workload: Option<Workload>,
    /// Whether the watch has shown no change of the workload since the look that is under way began.
    is_unchanged: bool,
    /// The pods that were evicted, by uid, until the watch shows that they are gone.
    evicted: HashSet<String>,
    /// What is not known of the leader, and since when.
    unled: Option<(Unled, Instant)>,
    /// The last outcome, as the status tells it.
    told: Option<NewCondition>,
}

/// What a look at a rollout starts from.
pub(super) struct Look {
    rollout: RolloutProjection,
    workload: Option<Workload>,
    /// The pods that the election may bind, or why they are not known.
    pods: Result<Vec<PodFacts>, Failure>,
    evicted: HashSet<String>,
    unled: Option<(Unled, Duration)>,
    sighting: Option<Sighting>,
}

/// What a look found and did.
#[derive(Debug)]
pub(super) struct Looked {
    workload: Option<Workload>,
    evicted: Vec<String>,
    told: NewCondition,
    /// How soon to look again if nothing changes before.
    again: Option<Duration>,
}

impl Rollout {
    /// Watches the workload that the spec names, if it names one.
    pub(super) fn watch(
        &mut self,
        wanted: Option<&RolloutProjection>,
        key: &Key,
        client: &Client,
        observations: &mpsc::Sender<Observation>,
    ) {
        if self.watch.as_ref().map(|(of, _)| of) == wanted {
            return;
        }
        let evicted = std::mem::take(&mut self.evicted);
        *self = Self {
            evicted,
            watch: wanted.map(|wanted| (wanted.clone(), watch(wanted, key, client, observations))),
            ..Self::default()
        };
    }

    /// Notes that the workload may have changed.
    pub(super) fn outdate(&mut self) {
        self.workload = None;
        self.is_unchanged = false;
    }

    /// What a look starts from. `pods` are those that the election may bind, or why they are not known.
    pub(super) fn look(
        &mut self,
        subject: &Subject,
        candidate_pods: Result<&CandidatePods, &Failure>,
        pods: Option<&Pods>,
        sighting: Option<Sighting>,
    ) -> Option<Look> {
        let projections = subject.spec().projections.as_ref()?;
        let rollout = projections.rollout.clone()?;
        let now = Instant::now();
        let binding = candidate_pods.ok().and_then(|pods| pods.leader.as_ref());
        let unled = unled(subject, binding).map(|unled| match self.unled {
            Some((same, since)) if same == unled => (unled, since),
            _ => (unled, now),
        });
        self.unled = unled;
        let pods = match candidate_pods {
            Ok(_) => Ok(pods?.iter().cloned().collect::<Vec<_>>()),
            Err(failure) => Err(failure.clone()),
        };
        if let Ok(pods) = &pods {
            let exists = |uid: &String| pods.iter().any(|pod| pod.uid == *uid);
            self.evicted.retain(exists);
        }
        self.is_unchanged = true;
        Some(Look {
            rollout,
            workload: self.workload.clone(),
            pods,
            evicted: self.evicted.clone(),
            unled: unled.map(|(unled, since)| (unled, now - since)),
            sighting,
        })
    }

    /// Takes what a look found. Returns how soon to look again.
    pub(super) fn looked(&mut self, looked: Looked) -> Option<Duration> {
        // What the look read may be older than a change that came meanwhile.
        self.workload = looked.workload.filter(|_| self.is_unchanged);
        self.evicted.extend(looked.evicted);
        self.told = Some(looked.told);
        looked.again
    }

    /// Whether the pod with this uid was evicted, as far as it may still exist.
    pub(super) fn has_evicted(&self, uid: &str) -> bool {
        self.evicted.contains(uid)
    }

    /// What the status tells.
    pub(super) fn told(&self) -> Option<NewCondition> {
        self.told.clone()
    }

    /// Whether the watch ended. A watch ends by itself only because of a defect.
    pub(super) fn is_over(&self) -> bool {
        self.watch.as_ref().is_some_and(|(_, task)| task.is_over())
    }
}

fn watch(
    rollout: &RolloutProjection,
    key: &Key,
    client: &Client,
    observations: &mpsc::Sender<Observation>,
) -> Task {
    match rollout.workload.kind {
        WorkloadKind::StatefulSet => follow::<StatefulSet>(rollout, key, client, observations),
        WorkloadKind::DaemonSet => follow::<DaemonSet>(rollout, key, client, observations),
    }
}

fn follow<K>(
    rollout: &RolloutProjection,
    key: &Key,
    client: &Client,
    observations: &mpsc::Sender<Observation>,
) -> Task
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + Debug + Send + 'static,
{
    let api = Api::<K>::namespaced(client.clone(), &key.namespace);
    let (name, key, observations) = (
        rollout.workload.name.clone(),
        key.clone(),
        observations.clone(),
    );
    let task = async move {
        let mut changes = watch_object(api, &name).default_backoff().boxed();
        while let Some(change) = changes.next().await {
            if let Err(error) = change {
                // The look that reads the workload tells what is wrong.
                debug!(election = %key, workload = name, %error, "a workload cannot be watched");
                continue;
            }
            if observations
                .send(Observation::Workload(key.clone()))
                .await
                .is_err()
            {
                return;
            }
        }
    };
    Task(tokio::spawn(task).abort_handle())
}

impl ProjectionClient {
    /// Looks at a rollout, and takes the next step.
    pub(super) async fn roll_out(
        &self,
        job: &Job,
        look: &Look,
        questioner: Option<&mut Questioner>,
        writes: &mut usize,
    ) -> Option<Looked> {
        let subject = job.subject.as_ref()?;
        let named = &look.rollout.workload;
        let failed = |failure: Failure| Looked {
            workload: None,
            evicted: Vec::new(),
            told: told(named, None, &Outcome::Failed(failure)),
            again: Some(FAILED_AGAIN),
        };
        let (facts, candidate_pods) = match (&look.pods, &job.candidate_pods) {
            (Ok(facts), Some(candidate_pods)) => (facts, candidate_pods),
            (Err(failure), _) => return Some(failed(failure.clone())),
            (_, None) => return None,
        };
        let was_over = was_rolled_out(subject);
        let decide = |workload: &Workload| {
            let is_evicted = |uid: &str| look.evicted.contains(uid);
            let facts = facts.iter();
            let now = Timestamp::now();
            let pods = workload_pods(workload, facts, subject, candidate_pods, is_evicted, now);
            let leads = leadership(candidate_pods.leader.as_ref(), &pods, look.unled);
            let next = match step(workload, &pods, &leads) {
                // Pods that fail after a rollout are no part of it.
                Step::Done if !was_over => match unsettled(workload, &pods, &leads) {
                    Some(wait) => Step::Wait(wait),
                    None => Step::Done,
                },
                next => next,
            };
            (pods, next)
        };
        let mut known = look.workload.clone();
        let (workload, pods, next) = loop {
            let is_fresh = known.is_none();
            let workload = match known.take() {
                Some(workload) => workload,
                None => match self.workload(subject.namespace(), &look.rollout).await {
                    Ok(workload) => workload,
                    Err(failure) => return Some(failed(failure)),
                },
            };
            let (pods, next) = decide(&workload);
            let acts = matches!(next, Step::Evict(_) | Step::EvictLeader(..));
            if is_fresh || !acts {
                break (workload, pods, next);
            }
        };
        let mut evicted = Vec::new();
        let outcome = match next {
            Step::EvictLeader(..) if holds_up(questioner, job, subject) => {
                Outcome::Waits(Wait::Handover)
            }
            next => self.take_step(job, look, next, &mut evicted, writes).await,
        };
        let told = told(named, Some((&workload, &pods)), &outcome);
        let again = match outcome {
            Outcome::Done => None,
            Outcome::Failed(_) => Some(FAILED_AGAIN),
            _ => Some(LOOK_AGAIN),
        };
        Some(Looked {
            workload: Some(workload),
            evicted,
            told,
            again,
        })
    }

    async fn take_step(
        &self,
        job: &Job,
        look: &Look,
        next: Step,
        evicted: &mut Vec<String>,
        writes: &mut usize,
    ) -> Outcome {
        let is_outdated = || job.is_outdated.load(Ordering::Relaxed);
        let is_fresh = |sighting: &Sighting| Instant::now() < sighting.until(FRESH);
        match next {
            Step::Done => Outcome::Done,
            Step::Wait(wait) => Outcome::Waits(wait),
            Step::Evict(pods) => {
                let mut names = Vec::new();
                for (name, uid) in pods {
                    if is_outdated() {
                        return Outcome::Waits(Wait::Reading);
                    }
                    if let Err(outcome) = self.evict(job, &name, &uid).await {
                        return outcome;
                    }
                    *writes += 1;
                    evicted.push(uid);
                    names.push(name);
                }
                Outcome::Evicted(names)
            }
            Step::EvictLeader(name, uid) => {
                if is_outdated() || !look.sighting.as_ref().is_some_and(is_fresh) {
                    return Outcome::Waits(Wait::Reading);
                }
                if let Err(outcome) = self.evict(job, &name, &uid).await {
                    return outcome;
                }
                *writes += 1;
                evicted.push(uid);
                Outcome::EvictedLeader(name)
            }
        }
    }

    /// Evicts a pod of this uid. That it is gone by now is no error.
    async fn evict(&self, job: &Job, name: &str, uid: &str) -> Result<(), Outcome> {
        let (election, namespace) = (&job.object.metadata.name, &job.object.metadata.namespace);
        let namespace = namespace.as_deref().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.kube.clone(), namespace);
        // kube's own request has the options under a name that the API server does not know, and the uid would not count.
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": name, "namespace": namespace },
            "deleteOptions": { "preconditions": { "uid": uid } },
        });
        let params = PostParams::default();
        let request = api.create_subresource::<Value, Value>("eviction", name, &params, &body);
        match self.write(request).await {
            Ok(_) => {
                info!(
                    namespace,
                    election,
                    pod = name,
                    "evicted a pod of an older revision"
                );
                Ok(())
            }
            Err(error) if error.is_outdated() => Ok(()),
            Err(RequestError::Api(kube::Error::Api(status))) if status.code == 429 => {
                Err(Outcome::Refused(name.to_owned(), status.message.clone()))
            }
            Err(error) => Err(Outcome::Failed(refused(
                error.failure(&format!("the eviction of the pod {name}")),
            ))),
        }
    }

    /// The workload as it is now.
    async fn workload(
        &self,
        namespace: &str,
        rollout: &RolloutProjection,
    ) -> Result<Workload, Failure> {
        let named = &rollout.workload;
        let unusable = |what: String| Failure {
            reason: Reason::WorkloadUnusable,
            what,
        };
        let missing = || unusable(format!("There is no {named} in {namespace}."));
        let what = format!("the {named}");
        match named.kind {
            WorkloadKind::StatefulSet => {
                let api: Api<StatefulSet> = Api::namespaced(self.kube.clone(), namespace);
                let set = self.read(api.get_opt(&named.name)).await;
                let set = set.map_err(|error| refused(error.unread(&what)))?;
                stateful_set(&set.ok_or_else(missing)?, rollout).map_err(unusable)
            }
            WorkloadKind::DaemonSet => {
                let api: Api<DaemonSet> = Api::namespaced(self.kube.clone(), namespace);
                let set = self.read(api.get_opt(&named.name)).await;
                let set = set.map_err(|error| refused(error.unread(&what)))?;
                let set = set.ok_or_else(missing)?;
                let api: Api<ControllerRevision> = Api::namespaced(self.kube.clone(), namespace);
                let labels = set.spec.as_ref().and_then(|spec| {
                    let labels = spec.selector.match_labels.as_ref()?;
                    let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
                    Some(labels.collect::<Vec<_>>().join(","))
                });
                let params = ListParams::default().labels(&labels.unwrap_or_default());
                let revisions = self.read(api.list(&params)).await;
                let revisions = revisions.map_err(|error| refused(error.unread(&what)))?;
                daemon_set(&set, &revisions.items, rollout).map_err(unusable)
            }
        }
    }
}

/// Asks the leader to hand over before its pod is evicted, where the spec says how. Returns whether the eviction has to wait.
fn holds_up(questioner: Option<&mut Questioner>, job: &Job, subject: &Subject) -> bool {
    let pods = job.candidate_pods.as_ref();
    questioner.is_some_and(|questioner| questioner.holds_up_eviction(subject, pods))
}

/// Whether the status says that every pod has the newest revision.
fn was_rolled_out(subject: &Subject) -> bool {
    let mut conditions = subject.status.conditions.iter();
    conditions.any(|condition| {
        condition.type_ == ConditionType::RolledOut.as_str() && condition.status == "True"
    })
}

/// The same failure with the reasons of a rollout, whose rights are others than those of the other projections.
fn refused(failure: Failure) -> Failure {
    let reason = match failure.reason {
        Reason::Forbidden => Reason::RolloutForbidden,
        _ => Reason::WriteFailed,
    };
    Failure { reason, ..failure }
}
