//! What the status says about a rollout.

use bellwether_api::conditions::{ConditionStatus, NewCondition};
use bellwether_api::election::{ConditionType, Reason, WorkloadRef};

use super::{Wait, Workload, WorkloadPod};
use crate::decode::presentable;
use crate::projection::Failure;
use crate::words::{condition, names};

/// What became of a look at a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every pod has the newest revision.
    Done,
    /// Nothing was done.
    Waits(Wait),
    /// These pods were evicted.
    Evicted(Vec<String>),
    /// The leader's pod was evicted.
    EvictedLeader(String),
    /// This pod may not be evicted now, in the API server's words.
    Refused(String, String),
    /// The workload cannot be rolled out, or a request failed.
    Failed(Failure),
}

/// The condition `RolledOut`. `seen` is the workload and its pods, if they are known.
pub fn told(
    named: &WorkloadRef,
    seen: Option<(&Workload, &[WorkloadPod])>,
    outcome: &Outcome,
) -> NewCondition {
    let say =
        |status, reason, what: &str| condition(ConditionType::RolledOut, status, reason, what);
    let progress = seen.map_or(String::new(), |(workload, pods)| {
        let has = |pod: &&WorkloadPod| pod.revision.as_ref() == Some(&workload.revision);
        let current = pods.iter().filter(has).count();
        let all = workload.replicas.max(pods.len());
        format!("{current} of {all} pods of the {named} have its newest revision.")
    });
    let not_yet = |reason, what: &str| {
        let what = format!("{progress} {what}");
        say(ConditionStatus::False, reason, what.trim_start())
    };
    let replacing = |what: String| not_yet(Reason::Replacing, &what);
    let unled = |what: &str| not_yet(Reason::LeaderUnknown, what);
    match outcome {
        Outcome::Done => say(ConditionStatus::True, Reason::Replaced, &progress),
        Outcome::Evicted(pods) => replacing(format!("{} evicted.", were(pods))),
        Outcome::EvictedLeader(pod) => replacing(format!(
            "{}, in which the leader ran, was evicted as the last one.",
            presentable(pod)
        )),
        Outcome::Refused(pod, message) => {
            let (pod, message) = (presentable(pod), message.trim_end_matches('.'));
            let what = format!("{pod} may not be evicted now: {message}.");
            not_yet(Reason::EvictionRefused, &what)
        }
        Outcome::Failed(failure) => {
            let status = match failure.reason {
                Reason::WorkloadUnusable => ConditionStatus::False,
                _ => ConditionStatus::Unknown,
            };
            say(status, failure.reason, &failure.what)
        }
        Outcome::Waits(wait) => match wait {
            Wait::Observation => {
                let what =
                    format!("The controller of the {named} has not seen its newest spec yet.");
                say(ConditionStatus::Unknown, Reason::Replacing, &what)
            }
            Wait::Sight => unled("It is not known who leads."),
            Wait::Binding => unled("It is not known in which pod the leader runs."),
            Wait::Leader => replacing("Nobody leads at the moment.".to_owned()),
            Wait::Reading => replacing("The leader is read once more first.".to_owned()),
            Wait::Handover => replacing("The leader was asked to hand over.".to_owned()),
            Wait::Creation(missing) => replacing(format!(
                "So many pods do not exist, or spec.podBinding.selector does not select them: {missing}."
            )),
            Wait::Readiness(pods) => replacing(format!("Not ready: {}.", names(pods))),
            Wait::Age(pods) => replacing(format!(
                "Ready for less than minReadySeconds: {}.",
                names(pods)
            )),
            Wait::Candidacy(pods) => {
                replacing(format!("Ready, and not yet a candidate: {}.", names(pods)))
            }
        },
    }
}

fn were(pods: &[String]) -> String {
    let verb = if pods.len() == 1 { "was" } else { "were" };
    format!("{} {verb}", names(pods))
}
