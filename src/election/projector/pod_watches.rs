//! The pods in which candidates may run: one watch for each namespace and selector.

use std::collections::{BTreeSet, HashMap, HashSet};

use bellwether_api::election::{PodBinding, Reason};
use bellwether_election::projection::{Failure, PodFacts, Pods};
use kube::Client;
use kube::core::Selector;
use tokio::sync::mpsc;

use super::super::Key;
use super::super::registry::Task;
use super::feed::{self, Observation, WatchEvent};

/// The pods that an election needs: those of a namespace that a selector allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PodSelection {
    namespace: String,
    selector: String,
}

impl PodSelection {
    /// The pods of a namespace that a spec allows.
    ///
    /// # Errors
    ///
    /// If there is no selector, or it cannot be used.
    pub(super) fn new(namespace: String, binding: Option<&PodBinding>) -> Result<Self, Failure> {
        let selector = binding.filter(|binding| binding.selects());
        let Some(selector) = selector.and_then(|binding| binding.selector.clone()) else {
            // The API server refuses such a spec, unless it is older than that rule.
            return Err(Failure {
                reason: Reason::SelectorRequired,
                what: "No selector says which pods the candidates may be.".to_owned(),
            });
        };
        let selector = Selector::try_from(selector).map_err(|error| Failure {
            reason: Reason::PatternInvalid,
            what: format!("spec.podBinding.selector cannot be used: {error}."),
        })?;
        let selector = selector.to_string();
        Ok(Self {
            namespace,
            selector,
        })
    }
}

/// The watch of one selection, with the pods that it found.
struct PodWatch {
    number: u64,
    pods: Pods,
    /// The names that the running list has contained so far; `None` while no list runs.
    listing: Option<BTreeSet<String>>,
    is_listed: bool,
    failure: Option<Failure>,
    users: HashSet<Key>,
    /// `None` before the operator holds its lease.
    watch: Option<Task>,
}

/// The watches of all selections that elections need.
#[derive(Default)]
pub(super) struct PodWatches {
    pod_watches: HashMap<PodSelection, PodWatch>,
    numbers: HashMap<u64, PodSelection>,
    by_user: HashMap<Key, PodSelection>,
    last_number: u64,
    has_begun: bool,
}

impl PodWatches {
    /// Starts the watches; from now on new ones start at once.
    pub(super) fn begin(&mut self, client: &Client, observations: &mpsc::Sender<Observation>) {
        self.has_begun = true;
        for (key, pod_watch) in &mut self.pod_watches {
            pod_watch.watch = Some(feed::pods(
                client,
                &key.namespace,
                &key.selector,
                pod_watch.number,
                observations,
            ));
        }
    }

    /// Sets which pods an election needs, if any. The last election that stops needing a selection ends its watch.
    pub(super) fn assign(
        &mut self,
        user: &Key,
        wanted: Option<&PodSelection>,
        client: &Client,
        observations: &mpsc::Sender<Observation>,
    ) {
        if self.by_user.get(user) == wanted {
            return;
        }
        if let Some(old) = self.by_user.remove(user)
            && let Some(pod_watch) = self.pod_watches.get_mut(&old)
        {
            pod_watch.users.remove(user);
            if pod_watch.users.is_empty() {
                self.numbers.remove(&pod_watch.number);
                self.pod_watches.remove(&old);
            }
        }
        let Some(wanted) = wanted else { return };
        self.by_user.insert(user.clone(), wanted.clone());
        let (numbers, last_number) = (&mut self.numbers, &mut self.last_number);
        let has_begun = self.has_begun;
        let pod_watch = self.pod_watches.entry(wanted.clone()).or_insert_with(|| {
            *last_number += 1;
            numbers.insert(*last_number, wanted.clone());
            let PodSelection {
                namespace,
                selector,
            } = wanted;
            let watch = has_begun
                .then(|| feed::pods(client, namespace, selector, *last_number, observations));
            PodWatch {
                number: *last_number,
                pods: Pods::new(namespace),
                listing: None,
                is_listed: false,
                failure: None,
                users: HashSet::new(),
                watch,
            }
        });
        pod_watch.users.insert(user.clone());
    }

    /// The pods of a selection, or why they cannot be watched; `None` before they were listed.
    pub(super) fn pods(&self, key: &PodSelection) -> Option<Result<&Pods, &Failure>> {
        let pod_watch = self.pod_watches.get(key)?;
        match &pod_watch.failure {
            Some(failure) => Some(Err(failure)),
            None => pod_watch.is_listed.then_some(Ok(&pod_watch.pods)),
        }
    }

    /// Whether a watch ended. A watch ends by itself only because of a defect.
    pub(super) fn is_over(&self) -> bool {
        let mut watches = self
            .pod_watches
            .values()
            .filter_map(|pod_watch| pod_watch.watch.as_ref());
        watches.any(Task::is_over)
    }

    /// Applies an event of the watch with this number. Returns the elections that have to be looked at again.
    pub(super) fn observe(&mut self, number: u64, event: WatchEvent<Box<PodFacts>>) -> Vec<Key> {
        let Some(key) = self.numbers.get(&number) else {
            return Vec::new();
        };
        let Some(pod_watch) = self.pod_watches.get_mut(key) else {
            return Vec::new();
        };
        let changed = match event {
            WatchEvent::ListStarted => {
                pod_watch.listing = Some(BTreeSet::new());
                false
            }
            WatchEvent::Applied(facts) => {
                if let Some(listing) = &mut pod_watch.listing {
                    listing.insert(facts.name.clone());
                }
                pod_watch.pods.insert(*facts) && pod_watch.is_listed
            }
            WatchEvent::ListFinished => {
                let listed = pod_watch.listing.take().unwrap_or_default();
                let gone = pod_watch.pods.retain(&listed);
                let changed = gone || !pod_watch.is_listed || pod_watch.failure.is_some();
                pod_watch.is_listed = true;
                pod_watch.failure = None;
                changed
            }
            WatchEvent::Deleted(facts) => pod_watch.pods.remove(&facts.name) && pod_watch.is_listed,
            WatchEvent::Failed { forbidden, message } => {
                let failure = Failure {
                    reason: if forbidden {
                        Reason::Forbidden
                    } else {
                        Reason::WriteFailed
                    },
                    what: format!(
                        "The pods of {} cannot be watched: {message}.",
                        key.namespace
                    ),
                };
                // Pods that were listed before stay valid until the watch works again.
                let changed = !pod_watch.is_listed && pod_watch.failure.is_none();
                if changed {
                    pod_watch.failure = Some(failure);
                }
                changed
            }
        };
        if changed {
            pod_watch.users.iter().cloned().collect()
        } else {
            Vec::new()
        }
    }
}
