//! A small world for the operator: the StatefulSet controller, the kubelets and ZooKeeper's servers of one
//! ensemble, which move on by one tick after each pass.
//!
//! The real planner and the real executor act on it. The forecast runs it without faults; the tests break
//! it through [`faults::Faults`] and by changing what is in it.

pub mod difference;
pub mod event;
pub mod faults;
mod observe;
mod servers;
mod writes;

use std::collections::{BTreeMap, BTreeSet};

use bellwether_api::ensemble::Phase;
use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};

use self::event::Event;
use self::faults::Faults;
use crate::desired::{observers, pod_name};
use crate::execute::execute;
use crate::execute::objects::{Objects, Refused};
use crate::ids::{ServerId, Voters};
use crate::observation::Revision;
use crate::plan::Plan;
use crate::validate::ValidEnsemble;

/// After how many ticks without a leader a pod is not ready any more.
pub const READINESS: u32 = 3;

/// A pod with its server.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its ordinal in its StatefulSet.
    pub ordinal: u16,
    /// Whether it belongs to the StatefulSet of the observers.
    pub observes: bool,
    /// The configuration revision that it was made with.
    pub revision: Revision,
    /// The hash of the pod template that it was made from.
    pub template: String,
    /// The hash of that template without the server list, where members change at run time.
    pub template_hash: Option<String>,
    /// The image of ZooKeeper's container.
    pub image: String,
    /// Its unique id.
    pub uid: u32,
    /// How many ticks ago its containers were started.
    pub age: u32,
    /// When it was made.
    pub created: Timestamp,
    /// The leader that its server follows, or the server itself while it leads.
    pub following: Option<ServerId>,
    /// For how many ticks its server has followed no leader.
    pub unready: u32,
    /// Since when it is not ready, if it is not.
    pub unready_since: Timestamp,
}

impl Pod {
    /// From now on the pod is not ready, until its server follows a leader.
    pub fn make_unready(&mut self, now: Timestamp) {
        self.following = None;
        self.unready = READINESS;
        self.unready_since = now;
    }
}

/// The world of one ensemble.
pub struct World<F> {
    /// The ensemble as its user wants it.
    pub ensemble: ValidEnsemble,
    /// What goes wrong.
    pub faults: F,
    /// The time.
    pub now: Timestamp,
    /// The objects of the API server, pods left out.
    pub objects: Objects,
    /// The pods by server id.
    pub pods: BTreeMap<ServerId, Pod>,
    /// The last transaction on each server's disk; one without a database is absent.
    pub disks: BTreeMap<ServerId, u64>,
    /// The list that each server knows as committed, with its version, where members change at run time.
    pub lists: BTreeMap<ServerId, (u64, Voters)>,
    /// The observers that the list of the ensemble names.
    pub listed_observers: BTreeSet<ServerId>,
    /// What happened.
    pub events: Vec<Event>,
    /// The epoch of the last election.
    pub epoch: u64,
    /// The phase of the last plan.
    pub phase: Phase,
    uids: u32,
}

impl<F: Faults> World<F> {
    /// A world in which nothing of this ensemble exists yet.
    pub fn new(ensemble: ValidEnsemble, faults: F) -> Self {
        Self {
            ensemble,
            faults,
            now: Timestamp::from_second(1_700_000_000).unwrap_or_default(),
            objects: Objects::default(),
            pods: BTreeMap::new(),
            disks: BTreeMap::new(),
            lists: BTreeMap::new(),
            listed_observers: BTreeSet::new(),
            events: Vec::new(),
            epoch: 0,
            phase: Phase::Starting,
            uids: 0,
        }
    }

    /// The operator carries its plan out, and a moment passes. Returns whether anything moved.
    pub fn pass(&mut self, plan: &Plan) -> Result<bool, Refused> {
        let before = self.state();
        let name = self.ensemble.name.clone();
        // No future of this world has to wait, so one poll completes the execution.
        let outcome = execute(self, &name, plan).now_or_never();
        self.phase = plan.report.phase;
        self.tick();
        match outcome.and_then(|outcome| outcome.failure.or(outcome.refused)) {
            Some(refused) => Err(refused),
            None => Ok(before != self.state()),
        }
    }

    /// Everything that may still change: if two states are equal, nothing has changed.
    fn state(&self) -> (u64, Vec<[u32; 4]>) {
        let pods = self.pods.values().map(|pod| {
            let leader = pod.following.map_or(0, |id| id.0.into());
            [
                pod.uid,
                leader,
                pod.age.min(READINESS),
                pod.unready.min(READINESS),
            ]
        });
        (self.objects.version(), pods.collect())
    }

    /// What happens without the operator in one tick.
    fn tick(&mut self) {
        self.now += SignedDuration::from_secs(1);
        for pod in self.pods.values_mut() {
            pod.age += 1;
            match pod.following {
                Some(_) => pod.unready = 0,
                None => pod.unready += 1,
            }
            if pod.unready == READINESS {
                pod.unready_since = self.now;
            }
        }
        self.scale(false);
        self.scale(true);
        self.elections();
    }

    /// The name of the StatefulSet of the voters, or of the observers.
    fn set_name(&self, observes: bool) -> String {
        match observes {
            false => self.ensemble.name.clone(),
            true => observers::set_name(&self.ensemble.name),
        }
    }

    fn id(&self, observes: bool, ordinal: u16) -> ServerId {
        match observes {
            false => ServerId::of_ordinal(ordinal, self.ensemble.id_offset),
            true => ServerId::of_observer(ordinal, self.ensemble.id_offset),
        }
    }

    /// The StatefulSet controller.
    fn scale(&mut self, observes: bool) {
        let Some(template) = self.objects.template(&self.set_name(observes)) else {
            return;
        };
        let replicas = template.replicas;
        let leaves = |pod: &Pod| pod.observes == observes && pod.ordinal >= replicas;
        let volumes = self.ensemble.reclaim_policy;
        for (_, pod) in self.pods.extract_if(.., |_, pod| leaves(pod)) {
            let pod = pod.name;
            self.events.push(Event::Remove { pod, volumes });
        }
        for ordinal in 0..replicas {
            if !self.pods.contains_key(&self.id(observes, ordinal)) {
                self.create(observes, ordinal);
            }
        }
    }

    /// The StatefulSet controller makes a pod from the template, in the place of the one that exists, and
    /// a claim for each of its volumes that has none.
    pub fn create(&mut self, observes: bool, ordinal: u16) {
        let set = self.set_name(observes);
        let Some(template) = self.objects.template(&set) else {
            return;
        };
        let id = self.id(observes, ordinal);
        let permission = self.objects.bootstrap(&self.ensemble.name);
        let permitted = permission.and_then(|p| p.initialize);
        let permitted = permitted.is_some_and(|p| p.contains(id) && self.faults.shows_permission());
        if permitted || template.revision.initialize == Some(id) {
            self.disks.entry(id).or_insert(0);
        }
        self.objects.claim(&set, ordinal);
        let name = pod_name(&set, ordinal);
        // The event of a restart covers the new pod too.
        let mut events = self.events.iter().rev();
        let last = events.find(|event| !matches!(event, Event::Grow { .. }));
        if !matches!(last, Some(Event::Restart { pod, .. }) if *pod == name) {
            self.events.push(Event::Create { pod: name.clone() });
        }
        self.uids += 1;
        let pod = Pod {
            name,
            ordinal,
            observes,
            revision: template.revision,
            template: template.hash,
            template_hash: template.template_hash,
            image: template.image,
            uid: self.uids,
            age: 0,
            created: self.now,
            following: None,
            // No probe of its readiness has succeeded yet.
            unready: READINESS,
            unready_since: self.now,
        };
        self.pods.insert(id, pod);
    }
}
