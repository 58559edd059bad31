//! Pods that Kubernetes refuses to create: a quota, a policy, a missing priority class. A StatefulSet has no
//! condition for it; the StatefulSet controller reports it only in events.

use std::collections::BTreeMap;

use bellwether_api::ensemble::status::Reason;
use jiff::Timestamp;

use crate::plan::trouble::Trouble;

/// An event about a StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetEvent {
    /// When it happened last.
    pub at: Timestamp,
    /// What it says.
    pub message: String,
}

/// Why Kubernetes could not create these missing pods, in the API server's words. The result omits a pod
/// without such events, or whose last event reports its creation: the controller is about to create it.
///
/// The words are those of `recordPodEvent` and `recordClaimEvent` in Kubernetes'
/// `pkg/controller/statefulset/stateful_pod_control.go`.
pub fn refused(
    set: &str,
    missing: impl IntoIterator<Item = String>,
    events: &[SetEvent],
) -> BTreeMap<String, String> {
    let why = |pod: &str| {
        let subject = format!("Pod {pod} in StatefulSet {set} ");
        let told = events.iter().filter_map(|event| {
            let (what, outcome) = event.message.split_once(&subject)?;
            // Failed updates, such as that of a claim's owners, do not count: the pod exists then, or did.
            if !what.starts_with("create ") {
                return None;
            }
            let failure = outcome.strip_prefix("failed error: ");
            let created = what == "create " && outcome == "successful";
            // Event times are whole seconds: of two events in one second the success counts.
            (created || failure.is_some()).then_some((event.at, created, failure))
        });
        let (_, _, failure) = told.max_by_key(|(at, created, _)| (*at, *created))?;
        failure.map(str::to_owned)
    };
    missing
        .into_iter()
        .filter_map(|pod| Some((pod.clone(), why(&pod)?)))
        .collect()
}

/// Pods that cannot be created, by their names, and why.
pub(crate) fn trouble(refused: &BTreeMap<String, String>) -> Option<Trouble> {
    let (pod, why) = refused.first_key_value()?;
    let others = match refused.len() - 1 {
        0 => String::new(),
        others => format!(", and {others} more"),
    };
    Some(Trouble {
        reason: Reason::PodFailing,
        message: format!(
            "Kubernetes refuses to create pod {pod}{others}: {why}. Its StatefulSet tries again, at growing intervals."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(events: &[(i64, &str)]) -> Vec<(String, String)> {
        let event = |(at, message): &(i64, &str)| SetEvent {
            at: Timestamp::from_second(*at).unwrap(),
            message: (*message).to_owned(),
        };
        let events: Vec<SetEvent> = events.iter().map(event).collect();
        let missing = ["zk-1", "zk-2"].map(str::to_owned);
        refused("zk", missing, &events).into_iter().collect()
    }

    const QUOTA: &str = "create Pod zk-2 in StatefulSet zk failed error: pods \"zk-2\" is forbidden: exceeded quota: q";

    #[test]
    fn a_refused_pod_has_the_words_of_the_api_server() {
        let claim = "create Claim data-zk-2 Pod zk-2 in StatefulSet zk success";
        let other = "create Pod zk-0 in StatefulSet zk successful";
        let refused = found(&[(7, claim), (7, QUOTA), (8, other)]);
        let why = "pods \"zk-2\" is forbidden: exceeded quota: q".to_owned();
        assert_eq!(refused, [("zk-2".to_owned(), why)]);
    }

    #[test]
    fn a_refused_claim_counts_too() {
        let claim =
            "create Claim data-zk-1 Pod zk-1 in StatefulSet zk failed error: exceeded quota: disk";
        let why = "exceeded quota: disk".to_owned();
        assert_eq!(found(&[(1, claim)]), [("zk-1".to_owned(), why)]);
    }

    #[test]
    fn what_was_created_since_is_on_its_way() {
        let created = "create Pod zk-2 in StatefulSet zk successful";
        assert_eq!(found(&[(7, QUOTA), (7, created)]), []);
        assert_eq!(found(&[(9, created), (7, QUOTA)]), []);
        assert_eq!(found(&[(7, created), (9, QUOTA)]).len(), 1);
    }

    #[test]
    fn a_person_hears_of_it() {
        let of = |pods: &[&str]| {
            let pods = pods.iter().map(|pod| ((*pod).to_owned(), "why".to_owned()));
            trouble(&pods.collect())
        };
        let found = of(&["zk-1", "zk-2"]).unwrap();
        let expected = "Kubernetes refuses to create pod zk-1, and 1 more: why. Its StatefulSet tries again, at growing intervals.";
        assert_eq!(found.message, expected);
        assert_eq!(found.reason, Reason::PodFailing);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn other_sets_and_other_words_say_nothing() {
        let other = QUOTA.replace("StatefulSet zk", "StatefulSet zk-observers");
        let longer = QUOTA.replace("zk-2", "zk-21");
        assert_eq!(found(&[(1, &other), (2, &longer), (3, "anything")]), []);
        let update = "update Pod zk-2 in StatefulSet zk successful";
        assert_eq!(found(&[(7, QUOTA), (8, update)]).len(), 1);
        let odd = "create Pod zk-2 in StatefulSet zk in other words";
        assert_eq!(found(&[(7, QUOTA), (8, odd)]).len(), 1);
        let update = QUOTA.replace("create", "update");
        assert_eq!(found(&[(7, &update)]), []);
    }
}
