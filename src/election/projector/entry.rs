//! What the projector knows about one election.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bellwether_api::LeaderElection;
use bellwether_api::conditions::NewCondition;
use bellwether_api::election::{LeaderElectionStatus, Reason};
use bellwether_election::handover::cordoned;
use bellwether_election::permissions::Permissions;
use bellwether_election::projection::{
    Binder, CandidatePods, Failure, Projection, Subject, believed, candidate_pods, kept, report,
};
use bellwether_election::terms::{Deeds, Terms};
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::Key;
use super::super::messages::Projected;
use super::super::noticed::Noticed;
use super::super::pace::Pace;
use super::super::sighting::Sighting;
use super::claims::{Inquiry, Scene};
use super::feed::Observation;
use super::handovers::{Answered, Question, Questioner};
use super::job::{Job, Objects};
use super::pod_watches::{PodSelection, PodWatches};
use super::rollouts::{Look, Rollout};
use super::store::ProjectionStore;

/// How often what one election is projected to may be changed: so many times in a row, and then once
/// in this time. An election that flaps must not flood the API server.
const BURST: u32 = 16;
const GAP: Duration = Duration::from_millis(250);

/// What is known about one election.
pub(super) struct Entry {
    pub(super) object: Arc<LeaderElection>,
    pub(super) status: Option<Arc<LeaderElectionStatus>>,
    /// When the leader was last read, and when it had to run at the latest.
    pub(super) sighting: Option<Sighting>,
    pub(super) owned: Option<Timestamp>,
    pub(super) binder: Result<Binder, String>,
    pub(super) pod_watch: Option<Result<PodSelection, Failure>>,
    pub(super) objects: Objects,
    pub(super) rollout: Rollout,
    /// How the leader was asked to hand over, and what the status tells of it.
    question: Option<Question>,
    handed_over: Option<NewCondition>,
    terms: Terms,
    /// Whether other pods say that they lead.
    pub(super) inquiry: Inquiry,
    /// The pods whose leader is asked because of a cordoned node, by uid, with the token: each for one term, until other
    /// nodes are cordoned. Otherwise a lead that comes back would be handed over without end.
    pub(super) asked_by_cordon: BTreeMap<String, String>,
    /// The last report to the writer, and its generation.
    pub(super) reported: Option<(Option<i64>, Projection)>,
    /// When the first event came that is not carried out yet.
    pub(super) noticed: Option<Noticed>,
    pub(super) pace: Pace,
    pub(super) failures: u32,
    pub(super) due: Option<Instant>,
    pub(super) running: bool,
    /// Something changed while a job was running.
    pub(super) again: bool,
    /// Tells the job that is running that the election changed, or that its leader was read again.
    pub(super) outdates: Arc<AtomicBool>,
    /// An object was deleted while a job was running, so the job's copy of it may be outdated.
    pub(super) reread: bool,
}

/// What a job was started from; its report needs it again.
pub(super) struct JobContext {
    pub(super) subject: Subject,
    /// The pods of the candidates, or why they cannot be found; `None` if no projection needs them.
    pub(super) pods: Option<Result<CandidatePods, Failure>>,
    /// What is wrong with the spec and no job can do: it is reported, and not tried again.
    pub(super) refused: Option<Failure>,
}

/// What the projector knows beside the election.
#[derive(Clone, Copy)]
pub(super) struct Sight<'p> {
    pub(super) store: &'p ProjectionStore,
    pub(super) pod_watches: &'p PodWatches,
    /// The nodes that are cordoned.
    pub(super) cordoned: &'p BTreeSet<String>,
    pub(super) permissions: &'p Permissions,
    pub(super) observations: &'p mpsc::Sender<Observation>,
    /// Whether this replica holds the operator's lease.
    pub(super) is_holder: bool,
}

impl Entry {
    pub(super) fn new(
        object: Arc<LeaderElection>,
        status: Option<Arc<LeaderElectionStatus>>,
    ) -> Self {
        let mut entry = Self {
            object,
            status,
            sighting: None,
            owned: None,
            binder: Ok(Binder::default()),
            pod_watch: None,
            objects: Objects::default(),
            rollout: Rollout::default(),
            question: None,
            handed_over: None,
            terms: Terms::default(),
            inquiry: Inquiry::default(),
            asked_by_cordon: BTreeMap::new(),
            reported: None,
            noticed: None,
            pace: Pace::new(GAP, BURST),
            failures: 0,
            due: None,
            running: false,
            again: false,
            outdates: Arc::default(),
            reread: false,
        };
        entry.respecify();
        entry
    }

    /// Applies a changed spec.
    pub(super) fn respecify(&mut self) {
        let spec = &self.object.spec;
        self.binder = Binder::new(spec.pod_binding.as_deref());
        self.pod_watch = spec.needs_pods().then(|| {
            let namespace = self.object.namespace().unwrap_or_default();
            PodSelection::new(namespace, spec.pod_binding.as_deref())
        });
        if spec.handover.is_none() {
            self.handed_over = None;
        }
        if !spec.needs_pods() {
            self.terms = Terms::default();
        }
        if spec.leadership_check.is_none() {
            self.inquiry = Inquiry::default();
        }
        self.failures = 0;
    }

    /// The pods of the candidates, or why they cannot be found; `None` before the pods were listed.
    fn candidate_pods(
        &self,
        subject: &Subject,
        pod_watches: &PodWatches,
    ) -> Option<Result<CandidatePods, Failure>> {
        // Without a selector nothing is done to any pod, whatever else is wrong.
        let pod_watch = match self.pod_watch.as_ref()? {
            Ok(pod_watch) => pod_watch,
            Err(failure) => return Some(Err(failure.clone())),
        };
        let binder = match &self.binder {
            Ok(binder) => binder,
            Err(what) => {
                return Some(Err(Failure {
                    reason: Reason::PatternInvalid,
                    what: what.clone(),
                }));
            }
        };
        match pod_watches.pods(pod_watch)? {
            Ok(pods) => {
                let slice = self.objects.slice.get();
                Some(Ok(candidate_pods(subject, binder, pods, slice)))
            }
            Err(failure) => Some(Err(failure.clone())),
        }
    }

    /// Looks at the leader's pod, and asks the others whether they lead. Returns what a look at the rollout of a workload starts
    /// from, if there is one.
    fn look(
        &mut self,
        subject: &Subject,
        candidate_pods: Result<&CandidatePods, &Failure>,
        sight: Sight<'_>,
    ) -> Option<Look> {
        let pods = match self.pod_watch.as_ref()? {
            Ok(pod_watch) => sight.pod_watches.pods(pod_watch).and_then(Result::ok),
            Err(_) => None,
        };
        if let (Ok(candidate_pods), Some(pods)) = (candidate_pods, pods) {
            let mut terms = std::mem::take(&mut self.terms);
            let binding = candidate_pods.leader.as_ref();
            terms.look(subject, binding, pods, self, Timestamp::now());
            self.terms = terms;
            if sight.is_holder {
                let scene = Scene {
                    subject,
                    candidate_pods,
                    pods,
                    permissions: sight.permissions,
                    observations: sight.observations,
                };
                let terms = &self.terms;
                let led_before = |uid: &str| terms.led_before(uid);
                self.inquiry.look(&scene, led_before);
            }
        } else if candidate_pods.is_err() {
            // The condition LeaderBound says why.
            self.inquiry = Inquiry::default();
        }
        self.rollout
            .look(subject, candidate_pods, pods, self.sighting.clone())
    }

    /// What has to be done, and what is needed to report what became of it, if that can be reported.
    pub(super) fn job(&mut self, sight: Sight<'_>, now: Instant) -> (Job, Option<Box<JobContext>>) {
        let Sight {
            store,
            pod_watches,
            permissions,
            ..
        } = sight;
        let uid = self.object.uid().unwrap_or_default();
        // The labels that pods carry are unknown until the labelled pods were listed.
        let labels_known = store.labels_known();
        let subject = self.subject(now);
        let read = self.sighting.as_ref().map(Sighting::time);
        let needs_pods = self.object.spec.needs_pods();
        let pods = match (&subject, needs_pods) {
            (Some(subject), true) => self.candidate_pods(subject, pod_watches),
            _ => None,
        };
        // Conditions about pods wait until the pods and their labels are known.
        let complete = match &pods {
            None => !needs_pods,
            Some(Err(_)) => true,
            Some(Ok(_)) => labels_known || !self.labels_pods(),
        };
        let stale = subject.as_ref().is_none_or(Subject::is_stale);
        let mut candidate_pods = match &pods {
            Some(Ok(candidate_pods)) => Some(candidate_pods.clone()),
            // The pod stays unknown until the spec changes, and the leader may change before that.
            Some(Err(failure)) if failure.reason == Reason::PatternInvalid && !stale => {
                Some(CandidatePods::nobody())
            }
            // What an earlier operator did to pods that nobody selected is taken back, with or without sight.
            Some(Err(failure)) if failure.reason == Reason::SelectorRequired => {
                Some(CandidatePods::nobody())
            }
            _ => None,
        };
        let refused = self.label_refusal(permissions);
        let labels_allowed = refused.is_none()
            && !matches!(&pods, Some(Err(failure)) if failure.reason == Reason::SelectorRequired);
        if !labels_known && let Some(candidate_pods) = &mut candidate_pods {
            candidate_pods.roles = None;
        }
        let look = match (&subject, &pods) {
            (Some(subject), Some(pods)) => self.look(subject, pods.as_ref(), sight),
            _ => None,
        };
        let questioner = match (&subject, &pods) {
            (Some(subject), Some(pods)) => self.questioner(sight, subject, pods.as_ref().ok()),
            _ => None,
        };
        self.outdates = Arc::default();
        let job = Job {
            object: self.object.clone(),
            subject: subject.clone(),
            read: read.unwrap_or_else(Timestamp::now),
            candidate_pods,
            labels_allowed,
            applied_labels: store.applied_labels(&uid),
            owned: store.owned(&uid),
            objects: self.objects.clone(),
            look,
            questioner,
            is_outdated: self.outdates.clone(),
        };
        let context = subject.filter(|_| complete).map(|subject| {
            Box::new(JobContext {
                subject,
                pods,
                refused,
            })
        });
        (job, context)
    }

    /// What has to be known to ask the leader to hand over, if the spec says how.
    fn questioner(
        &mut self,
        sight: Sight<'_>,
        subject: &Subject,
        pods: Option<&CandidatePods>,
    ) -> Option<Questioner> {
        let due = pods.and_then(|pods| cordoned(subject, pods, sight.cordoned));
        let due = due.filter(|due| {
            let asked = self.asked_by_cordon.entry(due.pod.clone());
            *asked.or_insert_with(|| due.token.clone()) == due.token
        });
        let question = self.question.clone();
        Questioner::new(
            subject,
            sight.permissions,
            due,
            question,
            sight.observations,
        )
    }

    /// Whether the leader is asked to hand over when its node is cordoned.
    pub(super) fn hands_over_on_cordon(&self) -> bool {
        let handover = self.object.spec.handover.as_ref();
        handover.is_some_and(|handover| handover.on_cordon)
    }

    /// Whether pods have to be labelled.
    pub(super) fn labels_pods(&self) -> bool {
        let projections = self.object.spec.projections.as_ref();
        projections.is_some_and(|projections| projections.pod_labels.is_some())
    }

    /// Why pods must not get the label that the spec asks for, if they must not.
    fn label_refusal(&self, permissions: &Permissions) -> Option<Failure> {
        let key = permissions.refused_label_key(&self.object.spec)?;
        Some(Failure {
            reason: Reason::LabelNotAllowed,
            what: format!("Elections may not set the label {key} on pods."),
        })
    }

    /// The election with its status, if that is known.
    fn subject(&self, now: Instant) -> Option<Subject> {
        let until = self.believed_until();
        Some(Subject {
            object: self.object.clone(),
            status: self.status.clone()?,
            owned: self.owned,
            is_confirmed: until.is_none_or(|until| now < until),
            is_outlived: self.kept_until(now).is_some_and(|until| until <= now),
        })
    }

    /// Until when the leader's address is kept without the leader being read; `None` without a limit. What an operator
    /// before this one did not see counts, too, as the status says.
    fn kept_until(&self, now: Instant) -> Option<Instant> {
        let kept = kept(&self.object.spec)?;
        let unseen = self.status.as_ref().and_then(|status| {
            let end = status.stale_since.as_ref()?.0.checked_add(kept).ok()?;
            let left = Duration::try_from(end.duration_since(Timestamp::now()));
            Some(now + left.unwrap_or_default())
        });
        let kept = Duration::try_from(kept).ok()?;
        let unread = self.sighting.as_ref().map(|sighting| sighting.until(kept));
        unread.into_iter().chain(unseen).min()
    }

    /// Takes what became of a question to the leader. Returns how soon to look again.
    pub(super) fn answered(&mut self, answered: Answered) -> Option<Duration> {
        self.question = answered.question;
        self.handed_over = answered.told;
        answered.again
    }

    /// Until when what was read of the leader is believed; `None` if nothing limits that.
    fn believed_until(&self) -> Option<Instant> {
        let believed = Duration::try_from(believed(&self.object.spec)?).ok()?;
        Some(self.sighting.as_ref()?.until(believed))
    }

    /// When the leader is not believed any more unless it is read again before, or its address is not kept any more.
    pub(super) fn doubt(&self, now: Instant) -> Option<Instant> {
        let leads = self.subject(now)?;
        leads.leader()?;
        match leads.is_stale() {
            false => self.believed_until(),
            true => self.kept_until(now).filter(|until| *until > now),
        }
    }

    /// The report to the writer, if it differs from the last one.
    pub(super) fn report(
        &mut self,
        key: &Key,
        context: &JobContext,
        failures: &[Failure],
    ) -> Option<Projected> {
        let JobContext {
            subject,
            pods,
            refused,
        } = context;
        let binding = match pods {
            Some(Ok(candidate_pods)) => candidate_pods.leader.clone().map(Ok),
            Some(Err(failure)) => Some(Err(failure.clone())),
            None => None,
        };
        let failures: Vec<Failure> = refused.iter().chain(failures).cloned().collect();
        let others = self
            .rollout
            .told()
            .into_iter()
            .chain(self.handed_over.clone())
            .chain(self.inquiry.told());
        let mut projection = report(subject, binding.as_ref(), &failures, others);
        projection.outlook = self.terms.present(self);
        projection.last = self.terms.last().cloned();
        let generation = subject.object.metadata.generation;
        let reported = Some((generation, projection));
        if self.reported == reported {
            return None;
        }
        self.reported = reported;
        let (generation, projection) = self.reported.clone()?;
        Some(Projected {
            key: key.clone(),
            uid: subject.uid().to_owned(),
            generation,
            projection,
        })
    }
}

impl Deeds for Entry {
    fn evicted(&self, uid: &str) -> bool {
        self.rollout.has_evicted(uid)
    }

    fn asked(&self, token: &str) -> bool {
        let handover = self.object.spec.handover.as_ref();
        let seconds = handover.and_then(|handover| u64::try_from(handover.timeout_seconds).ok());
        let timeout = Duration::from_secs(seconds.unwrap_or_default());
        let question = self.question.as_ref();
        question.is_some_and(|question| question.is_open(token, timeout))
    }
}
