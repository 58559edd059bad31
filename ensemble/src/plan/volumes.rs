//! What the volume claims remember: the server lists under which writes may have been acknowledged.
//!
//! Every claim carries the last finished list, which every voter ran and served under: each of its members then
//! had every earlier write. The operator writes the next list into the pod template only when every claim
//! carries that list too; newcomers' claims get both as soon as they have data. So the claims always carry
//! every list under which a write can have been acknowledged that a member of the finished list lacks, and the
//! ensemble can start again from them even without StatefulSet, pods and ConfigMaps. A claim whose member is in
//! neither list belongs to a former member; its data is that of a disk that was away for long.

use std::collections::BTreeSet;

use crate::desired::{DesiredObject, claims};
use crate::ids::{ServerId, Voters};
use crate::observation::{ClaimObservation, Observation};
use crate::plan::membership::Change;
use crate::plan::reconfiguration;
use crate::plan::view::{Member, View};
use crate::rules::{Rule, Rules};
use crate::safety::{holds_majority, may_live_together, may_start};
use crate::validate::ValidEnsemble;

/// The claims that are not being deleted.
pub(super) fn staying(claims: &[ClaimObservation]) -> impl Iterator<Item = &ClaimObservation> {
    claims.iter().filter(|c| !c.terminating)
}

/// Whether every claim that stays carries this list as the last that was finished, and no version of a list that changed at run time.
pub fn agree(claims: &[ClaimObservation], voters: &Voters) -> bool {
    staying(claims).all(|c| c.voters.as_ref() == Some(voters) && c.version.is_none())
}

/// Whether every claim that stays carries this list as that of the step that begins.
pub fn carry(claims: &[ClaimObservation], voters: &Voters) -> bool {
    staying(claims).all(|c| c.next.as_ref() == Some(voters))
}

/// Every list on the claims.
pub fn lists(claims: &[ClaimObservation]) -> impl Iterator<Item = &Voters> {
    claims.iter().flat_map(|c| c.voters.iter().chain(&c.next))
}

/// The claims whose lists have to change.
///
/// A list is recorded as finished when its step is finished, and the list of the next step only when all claims
/// carry the finished one: so the claims never carry more than two lists. An ensemble whose claims carry no
/// list at all (it served for the first time, or an earlier operator version made it) need not be complete: one
/// list is live, and a leader leads under it.
pub fn plan_records(view: &View<'_>, change: &Change) -> Vec<DesiredObject> {
    if let Some(lists) = &view.lists {
        return reconfiguration::plan_records(view, lists, change);
    }
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
        .filter(|c| {
            let differs = c.voters.as_ref() != Some(voters) || c.next.as_ref() != next;
            differs || c.version.is_some()
        })
        .map(|claim| claims::record(claim, (voters, None), next))
        .collect()
}

/// While a step is under way: newcomers' claims get the lists that the others carry, and every claim gets a
/// live list that it lacks, as after the upgrade of an operator that recorded less.
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
            return Some(claims::record(claim, (voters, None), *next));
        };
        let mut others = view.live.iter().copied().filter(|list| *list != voters);
        let other = others.next().filter(|_| others.next().is_none())?;
        if is_taken_back(view, change, voters, other) {
            return None;
        }
        (next.as_ref() != Some(other)).then(|| claims::record(claim, (voters, None), Some(other)))
    };
    staying(view.claims).filter_map(record).collect()
}

/// Whether no write can be acknowledged under a list that somebody else wrote into the pod template: too few
/// members run it, and new pods do not get it. Claims that carried it beside `finished` would disagree, and no
/// ensemble could start from them.
fn is_taken_back(view: &View<'_>, change: &Change, finished: &Voters, foreign: &Voters) -> bool {
    let runs = |m: &&Member<'_>| m.voters == foreign;
    let running: Voters = view.members.values().filter(runs).map(|m| m.id).collect();
    !may_live_together([finished, foreign])
        && change.voters != *foreign
        && !holds_majority(&running, foreign)
}

/// What the claims record about an ensemble that has no StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// No claim carries a list.
    Nothing,
    /// The list to start from; a majority of its members has its volume.
    Start(Voters),
    /// The same, where members change at run time.
    AtRunTime {
        /// The list.
        list: Voters,
        /// Its version.
        version: u64,
        /// Whose pods there have to be: a change to another list may have been under way.
        pods: Voters,
    },
    /// Too few of the members have their volume.
    Lost {
        /// The list that was finished last.
        voters: Voters,
        /// Its members whose volume exists.
        intact: Voters,
    },
    /// The claims cannot be of one ensemble at one time; why.
    Disagree(String),
}

/// Chooses the list to start from.
///
/// In the middle of a step the claims carry more than one list. Each of them is safe then, and the finished one
/// is chosen if a majority of its members has volumes. An even list with exactly half of its volumes may start
/// as the list of one member less, unless a larger list was live: more than half of the even list acknowledged
/// every write, so at least one member of that half did.
pub fn recorded(rules: Rules, ensemble: &ValidEnsemble, observation: &Observation) -> Recorded {
    let claims = &observation.claims;
    if claims.iter().all(|c| c.voters.is_none()) {
        return Recorded::Nothing;
    }
    if claims.iter().any(|c| c.version.is_some()) {
        return recorded_at_run_time(ensemble, observation);
    }
    let mut all: BTreeSet<&Voters> = lists(claims).collect();
    if !rules.keep(Rule::StartFromClaims) {
        all = claims.iter().filter_map(|c| c.voters.as_ref()).collect();
    }
    if let Some(why) = disagreement(ensemble, claims, &all) {
        return Recorded::Disagree(why);
    }
    let volumes = intact(ensemble, observation);
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

/// The list to start from, where members change at run time: the one with the latest version. Its servers go on with the lists on
/// their volumes, and serve only with the majorities that these ask for.
fn recorded_at_run_time(ensemble: &ValidEnsemble, observation: &Observation) -> Recorded {
    let claims = || observation.claims.iter();
    let Some(version) = claims().filter_map(|c| c.version).max() else {
        return Recorded::Nothing;
    };
    let latest = || claims().filter(|c| c.version == Some(version));
    let lists: BTreeSet<&Voters> = latest().filter_map(|c| c.voters.as_ref()).collect();
    let next: BTreeSet<&Voters> = latest().filter_map(|c| c.next.as_ref()).collect();
    let (Some(list), 1) = (lists.first(), lists.len()) else {
        return Recorded::Disagree(
            "The volume claims name different servers for the same version of the server list"
                .to_owned(),
        );
    };
    let offset = ensemble.id_offset;
    if lists
        .union(&next)
        .any(|list| list.iter().any(|id| id.0 <= offset))
    {
        return Recorded::Disagree(format!(
            "The volume claims are of an ensemble of the servers {{{list}}}, and with idOffset {offset} the servers \
             would be others"
        ));
    }
    let begun = !next.is_empty() || foreign(list, offset);
    if !ensemble.changes_at_run_time() && begun {
        return Recorded::Disagree(format!(
            "The volume claims are of an ensemble whose members change at run time, in the middle of a change of the list \
             {{{list}}}. Set membershipChange: Reconfiguration"
        ));
    }
    let volumes = intact(ensemble, observation);
    match lists
        .union(&next)
        .all(|list| holds_majority(&volumes, list))
    {
        true if !ensemble.changes_at_run_time() => Recorded::Start((*list).clone()),
        true => Recorded::AtRunTime {
            list: (*list).clone(),
            version,
            pods: lists
                .union(&next)
                .fold(Voters::default(), |all, list| all.union(list)),
        },
        false => Recorded::Lost {
            voters: (*list).clone(),
            intact: volumes.intersection(list),
        },
    }
}

/// The servers whose volumes exist, with the transaction log if that has its own.
fn intact(ensemble: &ValidEnsemble, observation: &Observation) -> Voters {
    staying(&observation.claims)
        .filter(|c| c.voters.is_some())
        .filter(|c| ensemble.transaction_log.is_none() || has_log(observation, c.ordinal))
        .map(|c| ServerId::of_ordinal(c.ordinal, ensemble.id_offset))
        .collect()
}

/// The first list that may start: finished lists, then lists of begun steps, then even lists without their last
/// member.
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

/// Whether the member's transaction log exists. Without the log its snapshots are an old copy.
fn has_log(observation: &Observation, ordinal: u16) -> bool {
    let mut logs = observation.log_claims.iter();
    logs.any(|c| c.ordinal == ordinal && !c.terminating)
}

/// An even list without its last member.
fn without_last(voters: &Voters) -> Option<Voters> {
    let last = voters.last().filter(|_| voters.len().is_multiple_of(2))?;
    Some(voters.difference(&Voters::from_iter([last])))
}

/// Whether the servers of a list are not the first ones with this offset.
fn foreign(list: &Voters, offset: u16) -> bool {
    let size = u16::try_from(list.len());
    size.map(|size| Voters::first(size, offset)).as_ref() != Ok(list)
}

fn disagreement(
    ensemble: &ValidEnsemble,
    claims: &[ClaimObservation],
    lists: &BTreeSet<&Voters>,
) -> Option<String> {
    let offset = ensemble.id_offset;
    if let Some(list) = lists.iter().find(|v| foreign(v, offset)) {
        return Some(format!(
            "The volume claims are of an ensemble of the servers {{{list}}}, and with idOffset \
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
        "The volume claims are of different times: they name the servers {}",
        each.join(" and ")
    ))
}

#[cfg(test)]
#[path = "volumes/record_tests.rs"]
mod record_tests;
#[cfg(test)]
#[path = "volumes/tests.rs"]
mod tests;
