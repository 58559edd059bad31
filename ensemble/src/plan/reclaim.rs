//! What becomes of volumes that no member uses any more: `storage.reclaimPolicy`.
//!
//! With `Delete` every claim has the ensemble as an owner, so it is deleted with the ensemble and with
//! nothing else; and the claims of members that left are deleted one after the other, when everything
//! else is done. With `Retain` the operator deletes no claim and removes that owner again.

use std::collections::BTreeSet;

use bellwether_api::ensemble::ReclaimPolicy;

use super::Step;
use super::view::View;
use crate::desired::{DesiredObject, claims};
use crate::ids::{ServerId, Voters};
use crate::observation::{ClaimObservation, Observation, PodObservation, StatefulSetObservation};
use crate::rules::Rule;
use crate::safety::{Departure, may_delete_volume};
use crate::validate::ValidEnsemble;

/// Claims that have to gain or lose the ensemble as an owner.
pub fn plan_owners(ensemble: &ValidEnsemble, observation: &Observation) -> Vec<DesiredObject> {
    let owned = ensemble.reclaim_policy == ReclaimPolicy::Delete && !ensemble.uid.is_empty();
    let observers = &observation.observers;
    let voters = observation.claims.iter().chain(&observation.log_claims);
    let all = voters.chain(observers.claims.iter().chain(&observers.log_claims));
    all.filter(|claim| !claim.terminating)
        .filter_map(|claim| claims::owned(claim, ensemble, owned))
        .collect()
}

/// The volume claim of a member or an observer that left, to be deleted now.
pub fn plan_deletion(
    ensemble: &ValidEnsemble,
    observation: &Observation,
    view: &View<'_>,
) -> Option<Step> {
    if ensemble.reclaim_policy != ReclaimPolicy::Delete {
        return None;
    }
    let claims = &observation.claims;
    let recorded: BTreeSet<&Voters> = super::volumes::lists(claims).collect();
    let wanted = Voters::first(ensemble.size, ensemble.id_offset);
    let departure = Departure {
        live: &view.live,
        recorded: &recorded,
        wanted: &wanted,
        template: &view.template.voters,
        serving: &view.serving,
        finished: view.is_finished(),
    };
    let observers = &observation.observers;
    let set = observation.stateful_set.as_ref();
    let voter = |ordinal| view.id(ordinal);
    let observer = |ordinal| ServerId::of_observer(ordinal, ensemble.id_offset);
    let voters = (claims.iter().chain(&observation.log_claims)).map(|claim| {
        let uses = uses(claim, set, &observation.pods, ensemble.size);
        (claim, voter(claim.ordinal), uses)
    });
    let observing = (observers.claims.iter().chain(&observers.log_claims)).map(|claim| {
        let set = observers.stateful_set.as_ref();
        let uses = uses(claim, set, &observers.pods, ensemble.observers);
        (claim, observer(claim.ordinal), uses)
    });
    let rule = view.rules.keep(Rule::DeleteLeaversOnly);
    let may = |id, uses| match rule {
        true => may_delete_volume(id, uses, &departure).is_ok(),
        false => !uses,
    };
    let mut left = voters.chain(observing).filter(|(c, ..)| !c.terminating);
    let (claim, id, _) = left.find(|(_, id, uses)| may(*id, *uses))?;
    Some(Step::DeleteClaim {
        claim: claim.name.clone(),
        uid: claim.uid.clone(),
        resource_version: claim.resource_version.clone(),
        id,
        reason: "the member left, and storage.reclaimPolicy is Delete".to_owned(),
    })
}

/// Whether a pod of this ordinal exists, is wanted, or is about to be made.
fn uses(
    claim: &ClaimObservation,
    set: Option<&StatefulSetObservation>,
    pods: &[PodObservation],
    wanted: u16,
) -> bool {
    let made = set.map_or(0, |set| set.replicas);
    claim.ordinal < wanted.max(made) || pods.iter().any(|p| p.ordinal == claim.ordinal)
}

#[cfg(test)]
#[path = "reclaim/tests.rs"]
mod tests;
