//! What the volume claims remember: the server lists under which writes may have been acknowledged.
//!
//! Every claim carries the last list that every voter ran and served under: each of its members then had
//! every earlier write. Before the next list is written into the pod template, every claim carries that one
//! too, and newcomers' claims get both as soon as they have data. So at any moment the lists on the claims
//! are all those under which a write can have been acknowledged that not every member of the first has, and
//! the ensemble can be started again from them also when StatefulSet, pods and ConfigMaps are gone. A claim
//! whose member is in neither list is a former member's; its data is that of a disk that was away for long.

use std::collections::BTreeSet;

use crate::desired::{DesiredObject, claims};
use crate::ids::{ServerId, Voters};
use crate::observation::{ClaimObservation, Observation};
use crate::plan::membership::Change;
use crate::plan::view::{Member, View};
use crate::rules::{Rule, Rules};
use crate::safety::{holds_majority, may_live_together, may_start};
use crate::validate::ValidEnsemble;

fn staying(claims: &[ClaimObservation]) -> impl Iterator<Item = &ClaimObservation> {
    claims.iter().filter(|c| !c.terminating)
}

/// Whether every claim that stays carries this list as the last that was finished.
pub fn agree(claims: &[ClaimObservation], voters: &Voters) -> bool {
    staying(claims).all(|c| c.voters.as_ref() == Some(voters))
}

/// Whether every claim that stays carries this list as that of the step that begins.
pub fn carry(claims: &[ClaimObservation], voters: &Voters) -> bool {
    staying(claims).all(|c| c.next.as_ref() == Some(voters))
}

/// Every list on the claims.
pub fn lists(claims: &[ClaimObservation]) -> impl Iterator<Item = &Voters> {
    claims.iter().flat_map(|c| c.voters.iter().chain(&c.next))
}

/// The claims that have to be given other lists.
///
/// The last list is written when its step is finished, and only when all carry it that of the step which
/// begins: so no more than two lists are ever on them. An ensemble whose claims carry no list at all (it
/// served for the first time, or an earlier operator version made it) need not be complete: one list is
/// live, and a leader leads under it.
pub fn plan_records(view: &View<'_>, change: &Change) -> Vec<DesiredObject> {
    let voters = &view.template.voters;
    let none = view.claims.iter().all(|c| c.voters.is_none());
    let first = none && view.live.len() == 1 && view.leader.is_some();
    if !(view.is_settled() || first) {
        return under_way(view, change);
    }
    if change.voters != *voters {
        return Vec::new();
    }
    let next = change.begins.as_ref().filter(|_| view.claims_agree);
    staying(view.claims)
        .filter(|c| c.voters.as_ref() != Some(voters) || c.next.as_ref() != next)
        .map(|claim| claims::record(claim, voters, next))
        .collect()
}

/// While a step is under way: newcomers' claims get what the others carry, and all of them a list that is
/// live and that they do not carry, as after the upgrade of an operator that recorded less.
fn under_way(view: &View<'_>, change: &Change) -> Vec<DesiredObject> {
    let pairs = staying(view.claims).filter_map(|c| Some((c.voters.as_ref()?, c.next.as_ref())));
    let pairs: BTreeSet<(&Voters, Option<&Voters>)> = pairs.collect();
    let common = pairs.first().filter(|_| pairs.len() == 1);
    let has_data = |claim: &ClaimObservation| {
        let member = view.members.get(&view.id(claim.ordinal));
        let says = |m: &Member<'_>| m.pod.volumes.as_ref().is_some_and(|v| v.has_database);
        member.is_some_and(|m| m.serves() || says(m))
    };
    let record = |claim: &ClaimObservation| {
        let ClaimObservation { voters, next, .. } = claim;
        let Some(voters) = voters else {
            let (voters, next) = common.filter(|_| has_data(claim))?;
            return Some(claims::record(claim, voters, *next));
        };
        let mut others = view.live.iter().copied().filter(|list| *list != voters);
        let other = others.next().filter(|_| others.next().is_none())?;
        if is_taken_back(view, change, voters, other) {
            return None;
        }
        (next.as_ref() != Some(other)).then(|| claims::record(claim, voters, Some(other)))
    };
    staying(view.claims).filter_map(record).collect()
}

/// Whether no write can be acknowledged under a list that somebody else wrote into the pod template: too few
/// run it, and no pod is made with it any more. On the claims it would stand beside `finished` as a list of
/// another time, of which nothing could be started.
fn is_taken_back(view: &View<'_>, change: &Change, finished: &Voters, foreign: &Voters) -> bool {
    let runs = |m: &&Member<'_>| m.voters == foreign;
    let running: Voters = view.members.values().filter(runs).map(|m| m.id).collect();
    !may_live_together([finished, foreign])
        && change.voters != *foreign
        && !holds_majority(&running, foreign)
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
/// Claims carry more than one list in the middle of a step. Each of them is safe then, and the one that was
/// finished is taken if a majority of it is left. An even list of which exactly half is left may start as
/// the list of one member less, unless a larger list was live: every write was acknowledged by more than
/// half of the even list, so by at least one of that half.
pub fn recorded(rules: Rules, ensemble: &ValidEnsemble, observation: &Observation) -> Recorded {
    let claims = &observation.claims;
    if claims.iter().all(|c| c.voters.is_none()) {
        return Recorded::Nothing;
    }
    let mut all: BTreeSet<&Voters> = lists(claims).collect();
    if !rules.keep(Rule::StartFromClaims) {
        all = claims.iter().filter_map(|c| c.voters.as_ref()).collect();
    }
    if let Some(why) = disagreement(ensemble, claims, &all) {
        return Recorded::Disagree(why);
    }
    let volumes: Voters = staying(claims)
        .filter(|c| c.voters.is_some())
        .filter(|c| ensemble.transaction_log.is_none() || has_log(observation, c.ordinal))
        .map(|c| ServerId::of_ordinal(c.ordinal, ensemble.id_offset))
        .collect();
    let finished: BTreeSet<&Voters> = claims.iter().filter_map(|c| c.voters.as_ref()).collect();
    let distance = |v: &&Voters| v.len().abs_diff(usize::from(ensemble.size));
    match choose(&finished, &all, &volumes, distance) {
        Some(start) => Recorded::Start(start),
        None => match finished.into_iter().min_by_key(distance) {
            Some(voters) => Recorded::Lost {
                voters: voters.clone(),
                intact: volumes.intersection(voters),
            },
            None => Recorded::Nothing,
        },
    }
}

/// The first list that may start: those that were finished, then those of steps that had begun, then the
/// even ones without their last member.
fn choose(
    finished: &BTreeSet<&Voters>,
    all: &BTreeSet<&Voters>,
    volumes: &Voters,
    distance: impl Fn(&&Voters) -> usize,
) -> Option<Voters> {
    let mut candidates: Vec<&Voters> = all.iter().copied().collect();
    candidates.sort_by_key(|v| (!finished.contains(v), distance(v)));
    let smaller = candidates.iter().filter_map(|v| without_last(v));
    let candidates = candidates.iter().map(|v| (*v).clone());
    candidates
        .chain(smaller)
        .find(|list| may_start(list, volumes, all.iter().copied()))
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
    if may_live_together(lists.iter().copied()) {
        return None;
    }
    let each: Vec<String> = lists
        .iter()
        .map(|list| {
            let names: Vec<&str> = claims
                .iter()
                .filter(|c| {
                    [&c.voters, &c.next]
                        .map(Option::as_ref)
                        .contains(&Some(*list))
                })
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

#[cfg(test)]
#[path = "volumes/record_tests.rs"]
mod record_tests;
#[cfg(test)]
#[path = "volumes/tests.rs"]
mod tests;
