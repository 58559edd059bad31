//! Pods that nobody owns and that use volumes which are being deleted.
//!
//! `kubectl delete statefulset --cascade=orphan` leaves pods without an owner. If their claims are deleted too, for example with
//! the ensemble, Kubernetes keeps the claims for as long as a pod uses them (`kubernetes.io/pvc-protection`), and nobody ends
//! the pods: that would last for ever.

use bellwether_api::ensemble::status::Reason;

use super::trouble::Trouble;
use crate::observation::{ClaimObservation, Observation, PodObservation};

/// What a person has to do where such pods keep an ensemble from being created.
pub(super) fn volumes_in_use(observation: &Observation) -> Option<Trouble> {
    let observers = &observation.observers;
    let mut pods = Vec::new();
    let mut claims = Vec::new();
    let mut add =
        |of: &[PodObservation], volumes: &[ClaimObservation], logs: &[ClaimObservation]| {
            for pod in of
                .iter()
                .filter(|p| p.controller.is_none() && !p.terminating)
            {
                let own = volumes.iter().chain(logs);
                let own = own.filter(|c| c.ordinal == pod.ordinal && c.terminating);
                let before = claims.len();
                claims.extend(own.map(|claim| claim.name.clone()));
                if claims.len() > before {
                    pods.push(pod.name.clone());
                }
            }
        };
    // A StatefulSet takes pods that nobody owns.
    if observation.stateful_set.is_none() {
        let (claims, logs) = (&observation.claims, &observation.log_claims);
        add(&observation.pods, claims, logs);
    }
    if observers.stateful_set.is_none() {
        add(&observers.pods, &observers.claims, &observers.log_claims);
    }
    (!pods.is_empty()).then(|| Trouble {
        reason: Reason::UnknownState,
        message: format!(
            "No StatefulSet owns the pods {pods}, and they use volumes that are being deleted ({claims}): nothing ends them, \
             and Kubernetes keeps the volumes until they end. Members are created when the volumes are gone. Copy what you \
             need of the data, and delete these pods.",
            pods = pods.join(", "),
            claims = claims.join(", "),
        ),
    })
}
