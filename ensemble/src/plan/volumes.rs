//! What the volume claims remember: the last server list that was finished.
//!
//! Every claim carries the last list that every voter ran and served under. The next membership step
//! is not begun before all claims carry the list of the step before, so at any moment the list on
//! the claims is one of the live lists or one member away from them, and every majority of it meets
//! every majority of theirs. It is therefore always safe to start the ensemble again from it, also
//! when StatefulSet, pods and ConfigMaps are gone. A claim whose member is not in that list is a
//! former member's; its data is that of a disk that was away for long.

use std::collections::BTreeSet;

use crate::desired::{DesiredObject, claims};
use crate::ids::{ServerId, Voters};
use crate::observation::{ClaimObservation, Observation};
use crate::plan::view::View;
use crate::safety::{every_majority_meets, holds_majority};
use crate::validate::ValidEnsemble;

/// Whether every claim that stays carries this list.
pub fn agree(claims: &[ClaimObservation], voters: &Voters) -> bool {
    claims
        .iter()
        .filter(|c| !c.terminating)
        .all(|c| c.voters.as_ref() == Some(voters))
}

/// The claims that have to be given the present list.
///
/// It is written when the step is finished. An ensemble whose claims carry no list at all (it served
/// for the first time, or an earlier operator version made it) need not be complete: one list is
/// live, and a leader leads under it.
pub fn plan_records(claims: &[ClaimObservation], view: &View<'_>) -> Vec<DesiredObject> {
    let voters = &view.template.voters;
    let first =
        claims.iter().all(|c| c.voters.is_none()) && view.live.len() == 1 && view.leader.is_some();
    if view.claims_agree || !(view.is_settled() || first) {
        return Vec::new();
    }
    claims
        .iter()
        .filter(|c| !c.terminating && c.voters.as_ref() != Some(voters))
        .map(|claim| claims::record(claim, voters))
        .collect()
}

/// What the claims say about an ensemble whose StatefulSet is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// No claim carries a list.
    Nothing,
    /// The list to start from; a majority of its members has its volume.
    Start(Voters),
    /// Too few of the members have their volume.
    Lost {
        /// The list that was finished last.
        voters: Voters,
        /// Those of it whose volume is there.
        intact: Voters,
    },
    /// The claims cannot be of one ensemble at one time; why.
    Disagree(String),
}

/// Chooses the list to start from.
///
/// Claims may carry two lists, if the operator was interrupted while it wrote the newer one. Both
/// are safe then, and the one nearer to the wanted size is taken. An even list of which exactly half
/// is left may start as the list of one member less: every write was acknowledged by more than half
/// of the even list, so by at least one of that half.
pub fn recorded(ensemble: &ValidEnsemble, observation: &Observation) -> Recorded {
    let claims = &observation.claims;
    let lists: BTreeSet<&Voters> = claims.iter().filter_map(|c| c.voters.as_ref()).collect();
    if lists.is_empty() {
        return Recorded::Nothing;
    }
    if let Some(why) = disagreement(ensemble, claims, &lists) {
        return Recorded::Disagree(why);
    }
    let volumes: Voters = claims
        .iter()
        .filter(|c| !c.terminating && c.voters.is_some())
        .filter(|c| ensemble.transaction_log.is_none() || has_log(observation, c.ordinal))
        .map(|c| ServerId::of_ordinal(c.ordinal, ensemble.id_offset))
        .collect();
    let mut by_distance: Vec<&Voters> = lists.iter().copied().collect();
    by_distance.sort_by_key(|v| v.len().abs_diff(usize::from(ensemble.size)));
    let smaller = by_distance.iter().filter_map(|v| without_last(v));
    let candidates: Vec<Voters> = by_distance
        .iter()
        .map(|v| (*v).clone())
        .chain(smaller)
        .collect();
    let start = candidates.iter().find(|candidate| {
        holds_majority(&volumes, candidate)
            && lists.iter().all(|v| every_majority_meets(v, candidate))
    });
    match (start, by_distance.first()) {
        (Some(start), _) => Recorded::Start(start.clone()),
        (None, Some(voters)) => Recorded::Lost {
            voters: (*voters).clone(),
            intact: volumes.intersection(voters),
        },
        (None, None) => Recorded::Nothing,
    }
}

/// Whether the member's transaction log is there. Without it its snapshots are an old copy.
fn has_log(observation: &Observation, ordinal: u16) -> bool {
    let mut logs = observation.log_claims.iter();
    logs.any(|c| c.ordinal == ordinal && !c.terminating)
}

/// An even list without its last member.
fn without_last(voters: &Voters) -> Option<Voters> {
    let last = voters.last().filter(|_| voters.len().is_multiple_of(2))?;
    Some(voters.difference(&Voters::from_iter([last])))
}

fn disagreement(
    ensemble: &ValidEnsemble,
    claims: &[ClaimObservation],
    lists: &BTreeSet<&Voters>,
) -> Option<String> {
    let offset = ensemble.id_offset;
    let foreign = |v: &Voters| {
        u16::try_from(v.len())
            .map(|n| Voters::first(n, offset))
            .as_ref()
            != Ok(v)
    };
    if let Some(list) = lists.iter().find(|v| foreign(v)) {
        return Some(format!(
            "the volume claims are of an ensemble of the servers {{{list}}}, and with idOffset \
             {offset} the servers would be others"
        ));
    }
    let meet = lists
        .iter()
        .all(|a| lists.iter().all(|b| every_majority_meets(a, b)));
    if meet && lists.len() <= 2 {
        return None;
    }
    let each: Vec<String> = lists
        .iter()
        .map(|list| {
            let names: Vec<&str> = claims
                .iter()
                .filter(|c| c.voters.as_ref() == Some(list))
                .map(|c| c.name.as_str())
                .collect();
            format!("{{{list}}} ({})", names.join(", "))
        })
        .collect();
    Some(format!(
        "the volume claims are of different times: they name the servers {}",
        each.join(" and ")
    ))
}
