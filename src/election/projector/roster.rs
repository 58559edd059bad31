//! The pods that elections may be bound to: one watch for each namespace and selector.

use std::collections::{BTreeSet, HashMap, HashSet};

use bellwether_api::election::{PodBinding, Reason};
use bellwether_election::projection::{Failure, PodFacts, Pods};
use kube::Client;
use kube::core::Selector;
use tokio::sync::mpsc;

use super::super::Key;
use super::super::registry::Task;
use super::feed::{self, Fact, News};

/// Which pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RosterKey {
    namespace: String,
    selector: String,
}

impl RosterKey {
    /// The pods of a namespace that a spec allows.
    ///
    /// # Errors
    ///
    /// A sentence that says why the selector cannot be used.
    pub(super) fn new(namespace: String, binding: Option<&PodBinding>) -> Result<Self, String> {
        let selector = match binding.and_then(|binding| binding.selector.clone()) {
            Some(selector) => Selector::try_from(selector)
                .map_err(|error| format!("spec.podBinding.selector cannot be used: {error}."))?
                .to_string(),
            None => String::new(),
        };
        Ok(Self {
            namespace,
            selector,
        })
    }
}

/// The pods of one namespace that one selector allows.
struct Roster {
    number: u64,
    pods: Pods,
    /// The names that the list under way has told, if one is.
    listing: Option<BTreeSet<String>>,
    is_listed: bool,
    failure: Option<Failure>,
    users: HashSet<Key>,
    /// None before the operator's lease is held.
    watch: Option<Task>,
}

/// All rosters that elections use.
#[derive(Default)]
pub(super) struct Rosters {
    rosters: HashMap<RosterKey, Roster>,
    numbers: HashMap<u64, RosterKey>,
    by_user: HashMap<Key, RosterKey>,
    last_number: u64,
    has_begun: bool,
}

impl Rosters {
    /// Starts the watches; from now on new ones start at once.
    pub(super) fn begin(&mut self, client: &Client, facts: &mpsc::Sender<Fact>) {
        self.has_begun = true;
        for (key, roster) in &mut self.rosters {
            roster.watch = Some(feed::pods(
                client,
                &key.namespace,
                &key.selector,
                roster.number,
                facts,
            ));
        }
    }

    /// Says which pods an election needs, if any.
    pub(super) fn assign(
        &mut self,
        user: &Key,
        wanted: Option<&RosterKey>,
        client: &Client,
        facts: &mpsc::Sender<Fact>,
    ) {
        if self.by_user.get(user) == wanted {
            return;
        }
        if let Some(old) = self.by_user.remove(user)
            && let Some(roster) = self.rosters.get_mut(&old)
        {
            roster.users.remove(user);
            if roster.users.is_empty() {
                self.numbers.remove(&roster.number);
                self.rosters.remove(&old);
            }
        }
        let Some(wanted) = wanted else { return };
        self.by_user.insert(user.clone(), wanted.clone());
        let (numbers, last_number) = (&mut self.numbers, &mut self.last_number);
        let has_begun = self.has_begun;
        let roster = self.rosters.entry(wanted.clone()).or_insert_with(|| {
            *last_number += 1;
            numbers.insert(*last_number, wanted.clone());
            let RosterKey {
                namespace,
                selector,
            } = wanted;
            let watch =
                has_begun.then(|| feed::pods(client, namespace, selector, *last_number, facts));
            Roster {
                number: *last_number,
                pods: Pods::new(namespace),
                listing: None,
                is_listed: false,
                failure: None,
                users: HashSet::new(),
                watch,
            }
        });
        roster.users.insert(user.clone());
    }

    /// The pods, or why they are not known; `None` if they are not known yet.
    pub(super) fn pods(&self, key: &RosterKey) -> Option<Result<&Pods, &Failure>> {
        let roster = self.rosters.get(key)?;
        match &roster.failure {
            Some(failure) => Some(Err(failure)),
            None => roster.is_listed.then_some(Ok(&roster.pods)),
        }
    }

    /// Whether a watch ended, as none does by itself but by a defect.
    pub(super) fn is_over(&self) -> bool {
        let mut watches = self
            .rosters
            .values()
            .filter_map(|roster| roster.watch.as_ref());
        watches.any(Task::is_over)
    }

    /// Takes up news about pods. The elections that have to be looked at again.
    pub(super) fn learn(&mut self, number: u64, news: News<PodFacts>) -> Vec<Key> {
        let Some(key) = self.numbers.get(&number) else {
            return Vec::new();
        };
        let Some(roster) = self.rosters.get_mut(key) else {
            return Vec::new();
        };
        let changed = match news {
            News::Listing => {
                roster.listing = Some(BTreeSet::new());
                false
            }
            News::Is(facts) => {
                if let Some(listing) = &mut roster.listing {
                    listing.insert(facts.name.clone());
                }
                roster.pods.insert(facts) && roster.is_listed
            }
            News::Listed => {
                let listed = roster.listing.take().unwrap_or_default();
                let gone = roster.pods.retain(&listed);
                let news = gone || !roster.is_listed || roster.failure.is_some();
                roster.is_listed = true;
                roster.failure = None;
                news
            }
            News::Gone(facts) => roster.pods.remove(&facts.name) && roster.is_listed,
            News::Failed { forbidden, message } => {
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
                // What was listed before is believed until the watch works again.
                let news = !roster.is_listed && roster.failure.is_none();
                if news {
                    roster.failure = Some(failure);
                }
                news
            }
        };
        if changed {
            roster.users.iter().cloned().collect()
        } else {
            Vec::new()
        }
    }
}
