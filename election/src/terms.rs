//! What ends the term of a leader, as far as its pod and what the operator did tell.
//!
//! While a leader leads, what becomes of its pod is kept in mind: by the time its znode goes, the pod may be gone for long,
//! since a session outlives its client by its timeout. What came first counts.

use bellwether_api::election::{EndOfTerm, Leader};
use jiff::{SignedDuration, Timestamp};

use crate::projection::{Binding, PodFacts, Pods, Subject};

/// For how long after the end of a term what is learned of its pod still counts: a client that ends in an orderly way closes
/// its session at once, and its kubelet tells of it about a second later.
pub const SETTLES: SignedDuration = SignedDuration::from_secs(3);

/// What ended the term of a leader, or would have ended it if it led no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// The node of the leader.
    pub node: String,
    /// Its fencing token.
    pub token: Option<String>,
    /// What is told; `None` if its pod is not known.
    pub cause: Option<EndOfTerm>,
    /// Whether nothing runs any more of what leads, although its znode is still there.
    pub has_ended: bool,
}

impl Outlook {
    /// Whether this is about the leader with this node and token.
    pub fn is_of(&self, node: &str, token: Option<&str>) -> bool {
        self.node == node && self.token.as_deref() == token
    }

    /// Whether this is about that leader.
    pub fn is_of_leader(&self, leader: &Leader) -> bool {
        self.is_of(&leader.node, leader.fencing_token.as_deref())
    }
}

/// What the operator did to a leader.
pub trait Deeds {
    /// Whether it evicted the pod with this uid in a rollout.
    fn evicted(&self, uid: &str) -> bool;
    /// Whether it asked the leader with this fencing token to hand over, a moment ago.
    fn asked(&self, token: &str) -> bool;
}

/// The present term of an election, and the one before.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    present: Option<Term>,
    /// The last one that ended, and when that was seen.
    last: Option<(Term, Timestamp)>,
}

#[derive(Clone, Debug)]
struct Term {
    outlook: Outlook,
    /// When the leader had to run at the latest.
    owned: Option<Timestamp>,
    /// The name and the uid of the pod in which it was first found.
    pod: Option<(String, String)>,
}

impl Terms {
    /// Takes in what is known now. `binding` is the leader's pod among `pods`.
    pub fn look(
        &mut self,
        subject: &Subject,
        binding: Option<&Binding>,
        pods: &Pods,
        deeds: &impl Deeds,
        now: Timestamp,
    ) {
        let leader = subject.leader();
        let goes_on = |term: &Term| leader.is_some_and(|leader| term.outlook.is_of_leader(leader));
        if let Some(ended) = self.present.take_if(|term| !goes_on(term)) {
            let outlook = ended.told(deeds);
            self.last = Some((Term { outlook, ..ended }, now));
        }
        if let Some((term, ended)) = &mut self.last
            && now.duration_since(*ended) <= SETTLES
        {
            term.look(pods, deeds);
        }
        let Some(leader) = leader else { return };
        let term = self.present.get_or_insert_with(|| Term::new(leader));
        term.owned = subject.owned();
        if let (None, Some(Binding::Pod(name))) = (&term.pod, binding) {
            // Before the kubelet tells that it runs, nothing can be said to have ended.
            let pod = pods.get(name).filter(|pod| pod.began.is_some());
            term.pod = pod.map(|pod| (pod.name.clone(), pod.uid.clone()));
        }
        term.look(pods, deeds);
    }

    /// What would be told of the present leader.
    pub fn present(&self, deeds: &impl Deeds) -> Option<Outlook> {
        Some(self.present.as_ref()?.told(deeds))
    }

    /// The fencing token with which the leader in the pod with this uid led before, if it was the last one.
    pub fn led_before(&self, uid: &str) -> Option<String> {
        let (term, _) = self.last.as_ref()?;
        let (_, pod) = term.pod.as_ref()?;
        term.outlook.token.clone().filter(|_| pod == uid)
    }

    /// What is told of the leader before.
    pub fn last(&self) -> Option<&Outlook> {
        self.last.as_ref().map(|(term, _)| &term.outlook)
    }
}

impl Term {
    fn new(leader: &Leader) -> Self {
        Self {
            outlook: Outlook {
                node: leader.node.clone(),
                token: leader.fencing_token.clone(),
                ..Outlook::default()
            },
            owned: None,
            pod: None,
        }
    }

    /// Takes in what became of the pod. Its first misfortune counts.
    fn look(&mut self, pods: &Pods, deeds: &impl Deeds) {
        let Some((name, uid)) = &self.pod else { return };
        let pod = pods.get(name).filter(|pod| pod.uid == *uid);
        self.outlook.has_ended = pod.is_none_or(|pod| has_ended(pod, self.owned));
        let cause = match pod {
            Some(pod) if !pod.terminating && !self.outlook.has_ended => None,
            _ if deeds.evicted(uid) => Some(EndOfTerm::RolledOut),
            Some(pod) if pod.is_disrupted => Some(EndOfTerm::Evicted),
            Some(pod) if !pod.terminating => Some(EndOfTerm::Restarted),
            _ => Some(EndOfTerm::Deleted),
        };
        let known = &mut self.outlook.cause;
        if matches!(known, None | Some(EndOfTerm::ReleasedOrExpired)) {
            *known = cause.or(Some(EndOfTerm::ReleasedOrExpired));
        }
    }

    fn told(&self, deeds: &impl Deeds) -> Outlook {
        let mut outlook = self.outlook.clone();
        let asked = outlook
            .token
            .as_deref()
            .is_some_and(|token| deeds.asked(token));
        // A process that ended by itself did not hand over.
        if asked && outlook.cause != Some(EndOfTerm::Restarted) {
            outlook.cause = Some(EndOfTerm::HandedOver);
        }
        outlook
    }
}

/// Whether what runs in a pod cannot be what leads since a time: nothing runs, or all of it started later.
fn has_ended(pod: &PodFacts, owned: Option<Timestamp>) -> bool {
    match (pod.began, owned) {
        (None, _) => true,
        (Some(began), Some(owned)) => began > crate::projection::latest_start(owned),
        (Some(_), None) => false,
    }
}

/// What ended the term of that leader, as a sentence. There is none where its pod ran on, as far as is known so far.
pub fn sentence(cause: EndOfTerm, identity: &str) -> Option<String> {
    let what = match cause {
        EndOfTerm::HandedOver => format!("{identity} was asked to hand over."),
        EndOfTerm::RolledOut => {
            format!("The pod of {identity} was evicted by the rollout of its workload.")
        }
        EndOfTerm::Evicted => format!("The pod of {identity} was evicted."),
        EndOfTerm::Deleted => format!("The pod of {identity} was deleted, or had ended."),
        EndOfTerm::Restarted => format!("The containers of {identity} ended or were restarted."),
        EndOfTerm::ReleasedOrExpired => return None,
    };
    Some(what)
}

#[cfg(test)]
mod tests;
