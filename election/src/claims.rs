//! Whether a pod says that it leads, while another one leads by the znodes.
//!
//! A leader that hangs for longer than its session leads no more, and does not know it: its znode is gone, another candidate
//! leads, and when the process goes on, it writes as before (M. Kleppmann, "How to do distributed locking", 2016). No look
//! into ZooKeeper shows that. So the pods are asked. Only an answer to a question that was put under the present leader counts,
//! and only the second in a row: for a moment after each change the leader before is about to notice.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bellwether_api::conditions::{ConditionStatus, NewCondition};
use bellwether_api::election::{ConditionType, Leader, LeadershipCheck, Reason};

use crate::decode::presentable;
use crate::projection::{Binding, PodFacts, Pods, Subject};
use crate::words::{condition, names};

/// How many pods of an election are asked at most, in the order of their names.
pub const MAX_PODS: usize = 64;

/// How many answers in a row make a claim.
const CONFIRMED: u32 = 2;

/// What a pod answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It leads.
    Leads,
    /// It does not.
    Follows,
    /// Nothing that could be understood.
    Silent,
}

/// The node and the fencing token of the leader when a question was put; `None` if nobody led.
pub type Term = Option<(String, Option<String>)>;

/// The present term.
pub fn term(subject: &Subject) -> Term {
    let of = |leader: &Leader| (leader.node.clone(), leader.fencing_token.clone());
    subject.leader().map(of)
}

/// A pod that is to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its uid.
    pub uid: String,
    /// Where it is asked.
    pub address: SocketAddr,
}

/// The pods that are to be asked: those that run. Pods in the network of their node are left out, since the request might reach
/// something else there.
pub fn asked(check: &LeadershipCheck, pods: &Pods) -> Vec<Asked> {
    let Ok(port) = u16::try_from(check.http.port) else {
        return Vec::new();
    };
    let asked = pods.iter().filter(|pod| may_answer(pod)).filter_map(|pod| {
        Some(Asked {
            uid: pod.uid.clone(),
            address: SocketAddr::new(*pod.ips.first()?, port),
        })
    });
    asked.take(MAX_PODS).collect()
}

fn may_answer(pod: &PodFacts) -> bool {
    pod.began.is_some() && !pod.is_on_node_network
}

/// What the pods said under one leader.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    term: Term,
    /// The last answer of each pod, by uid, and how often in a row it said that it leads.
    heard: BTreeMap<String, (Answer, u32)>,
}

impl Claims {
    /// Forgets what pods said under another leader. Returns whether the leader changed.
    pub fn follow(&mut self, subject: &Subject) -> bool {
        let term = term(subject);
        let changed = self.term != term;
        if changed {
            *self = Self {
                term,
                heard: BTreeMap::new(),
            };
        }
        changed
    }

    /// Takes in the answers to questions that were put under `term`.
    pub fn hear(&mut self, term: &Term, answers: &[(String, Answer)]) {
        if self.term != *term {
            return;
        }
        let mut before = std::mem::take(&mut self.heard);
        for (uid, answer) in answers {
            let times = match answer {
                Answer::Leads => before.remove(uid).map_or(0, |(_, times)| times) + 1,
                Answer::Follows | Answer::Silent => 0,
            };
            self.heard.insert(uid.clone(), (answer.clone(), times));
        }
    }

    /// Whether a pod other than the leader's said last that it leads, so that it has to be asked again soon.
    pub fn is_doubtful(&self, leader: Option<&PodFacts>) -> bool {
        let is_other = |uid: &String| leader.is_none_or(|leader| leader.uid != *uid);
        let mut heard = self.heard.iter();
        heard.any(|(uid, (answer, _))| *answer == Answer::Leads && is_other(uid))
    }

    /// The condition `SoleLeader`. `binding` is the leader's pod among `pods`; `led_before` is the fencing token with which the
    /// pod with a uid led before, if that is known.
    pub fn told(
        &self,
        subject: &Subject,
        binding: Option<&Binding>,
        pods: &Pods,
        led_before: impl Fn(&str) -> Option<String>,
    ) -> NewCondition {
        let say =
            |status, reason, what: &str| condition(ConditionType::SoleLeader, status, reason, what);
        if subject.is_stale() {
            let what = "It is not known who leads.";
            return say(ConditionStatus::Unknown, Reason::NotObserved, what);
        }
        let leader = subject.leader();
        let leaders_pod = match binding {
            Some(Binding::Pod(name)) => Some(name.as_str()),
            _ => None,
        };
        let said = |pod: &PodFacts| self.heard.get(&pod.uid);
        let claims = |pod: &&PodFacts| said(pod).is_some_and(|(_, times)| *times >= CONFIRMED);
        let claimants: Vec<&PodFacts> = pods.iter().filter(claims).collect();
        let is_rival = |pod: &&&PodFacts| Some(pod.name.as_str()) != leaders_pod;
        let rivals: Vec<&PodFacts> = claimants.iter().filter(is_rival).copied().collect();
        // One that says so may be the leader itself where that one's pod is not known.
        let is_explained = leader.is_some() && leaders_pod.is_none() && rivals.len() < 2;
        if let (Some(rival), false) = (rivals.first(), is_explained) {
            let by_znode = match leader {
                Some(leader) => format!(
                    "{} leads by its znode{}.",
                    leader.identity,
                    match &leader.fencing_token {
                        Some(token) => format!(", with the fencing token {token}"),
                        None => String::new(),
                    }
                ),
                None => "Nobody leads by the znodes.".to_owned(),
            };
            let says = if rivals.len() == 1 {
                "says that it leads"
            } else {
                "say that they lead"
            };
            let named: Vec<&str> = rivals.iter().map(|pod| pod.name.as_str()).collect();
            let names = names(&named);
            let before = match led_before(&rival.uid) {
                Some(token) => format!(
                    " {} led before, with the fencing token {token}, which is refused where tokens are checked.",
                    presentable(&rival.name)
                ),
                None => String::new(),
            };
            let what = format!("{by_znode} But {names} {says}.{before}");
            return say(ConditionStatus::False, Reason::RivalLeader, &what);
        }
        let silent = pods.iter().filter(|pod| {
            let has_answered = said(pod).is_some_and(|(answer, _)| *answer != Answer::Silent);
            pod.ready && !pod.terminating && may_answer(pod) && !has_answered
        });
        let silent: Vec<&str> = silent.map(|pod| pod.name.as_str()).collect();
        if !silent.is_empty() {
            let what = format!("No answer whether they lead: {}.", names(&silent));
            return say(ConditionStatus::Unknown, Reason::NoAnswer, &what);
        }
        if let (Some(leader), Some(rival)) = (leader, rivals.first()) {
            let what = format!(
                "{} says that it leads, and it is not known in which pod {} runs, which leads by its znode.",
                presentable(&rival.name),
                leader.identity
            );
            return say(ConditionStatus::Unknown, Reason::NoAnswer, &what);
        }
        let what = match leaders_pod {
            Some(pod) => format!("No pod but {} says that it leads.", presentable(pod)),
            None => "No pod says that it leads.".to_owned(),
        };
        say(ConditionStatus::True, Reason::NobodyElse, &what)
    }
}

/// The condition `SoleLeader` where the administrator did not allow the port.
pub fn not_allowed(check: &LeadershipCheck) -> NewCondition {
    let port = check.http.port;
    let what = format!("Pods may not be asked at port {port} whether they lead.");
    let (status, reason) = (ConditionStatus::Unknown, Reason::CheckNotAllowed);
    condition(ConditionType::SoleLeader, status, reason, &what)
}

#[cfg(test)]
mod tests;
