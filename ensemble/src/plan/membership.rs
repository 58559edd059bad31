//! Which voters the pod template should name next, and how many pods there should be.
//!
//! A size change is a chain of steps of one member. Step k is finished on every voter before step
//! k + 1 is written, so at most two voter sets are live at any time. A new target in the middle of a
//! step may reverse the chain, back to the set that the step started from.

use crate::encryption::Encryption;
use crate::ids::{ServerId, Voters};
use crate::observation::{Revision, StatefulSetObservation};
use crate::plan::reconfiguration::{self, Ask};
use crate::plan::verdict::WaitingOn;
use crate::plan::view::{Member, View};
use crate::plan::volumes;
use crate::rules::Rule;
use crate::safety::{holds_majority, may_become_live, may_live_together, never_joins};
use crate::validate::ValidEnsemble;

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The voters that the template should name.
    pub voters: Voters,
    /// The version of that list, where members change at run time.
    pub version: Option<u64>,
    /// How many pods there should be.
    pub replicas: u16,
    /// The newcomer that initializes its empty disk; only in the step from one to two members.
    pub initialize: Option<ServerId>,
    /// What is encrypted under the template.
    pub tls: Encryption,
    /// A leaver that leads and must be restarted first, so that another member leads.
    pub bounce: Option<ServerId>,
    /// The list of a step that may begin as soon as every volume claim carries it.
    pub begins: Option<Voters>,
    /// The list to ask the members for, where they change at run time.
    pub ask: Option<Ask>,
    /// What the next list waits for, where members change at run time.
    pub waiting: Option<WaitingOn>,
    /// Why nothing restarts: server lists are live that must not be live together.
    pub held: Option<String>,
}

impl Change {
    /// The list and the encryption stay those of this revision, and nothing else is done.
    pub(super) fn none(of: &Revision, replicas: u16) -> Self {
        Self {
            voters: of.voters.clone(),
            version: of.version,
            replicas,
            initialize: None,
            tls: of.tls,
            bounce: None,
            begins: None,
            ask: None,
            waiting: None,
            held: None,
        }
    }
}

/// Decides on the next voters, and on TLS.
///
/// A size change is finished before a new state of TLS begins, and every member runs the template's state before a step
/// of a size change begins.
pub fn next(ensemble: &ValidEnsemble, view: &View<'_>, set: &StatefulSetObservation) -> Change {
    let mut change = match &view.lists {
        Some(lists) => reconfiguration::next_list(ensemble, view, lists, set),
        None => next_voters(ensemble, view, set),
    };
    let wanted_voters = Voters::first(ensemble.size, ensemble.id_offset);
    let same = change.voters == view.template.voters && change.bounce.is_none();
    let sized = same && change.voters == wanted_voters;
    let wanted = view.template.tls.wanted(&ensemble.tls);
    // A single server has no other to reach, and its clients no other one to connect to. It runs the state before until its
    // pod is gone: the template must not return to that.
    let single = wanted_voters.len() == 1 && view.tls.pods == 1;
    if !view.rules.keep(Rule::TlsInTurn) || sized && single {
        change.tls = wanted;
        return change;
    }
    let at_rest = sized && view.is_finished();
    change.tls = Encryption::next(view.template.tls, &view.tls, wanted, at_rest);
    change
}

fn next_voters(ensemble: &ValidEnsemble, view: &View<'_>, set: &StatefulSetObservation) -> Change {
    let template = &view.template.voters;
    let wanted = Voters::first(ensemble.size, ensemble.id_offset);
    let named = view.template.initialize;
    let named = named.filter(|_| may_name(view, template));
    let mut change = Change::none(view.template, set.replicas);
    change.initialize = named;
    let checked = view.rules.keep(Rule::SmallSteps) && view.rules.keep(Rule::FinishedFirst);
    let takes_back = checked && view.rules.keep(Rule::TakeBack);
    if let Some(voters) = taken_back(view, &wanted).filter(|_| takes_back) {
        change.voters = voters.clone();
        change.initialize = newcomer_of(view, voters);
        change.replicas = replicas(view, set, &change.voters);
        return change;
    }
    if *template != wanted {
        // The ensemble must stay able to start again from the list on the claims: see `volumes`.
        let closed = !view.may_initialize || !view.rules.keep(Rule::EmptyDisksDoNotVote);
        // A shrinking ensemble does not wait for a last member that is down: that may be why it shrinks.
        let finished = view.is_finished() || wanted.len() < template.len() && view.is_settled();
        let free = !view.rules.keep(Rule::ClaimsFirst);
        let ready = finished && (view.claims_agree || free) && closed && speaks_as_told(view);
        if ready || !view.rules.keep(Rule::FinishedFirst) {
            begin_step(ensemble, view, &wanted, &mut change);
            // Writes may be acknowledged under the new list as soon as the template carries it.
            let carried = free || volumes::carry(view.claims, &change.voters);
            if change.voters != *template && !carried {
                change.begins = Some(std::mem::replace(&mut change.voters, template.clone()));
                change.initialize = named;
            }
        } else if let Some(back) = turn_round(view, &wanted) {
            change.initialize = newcomer_of(view, &back);
            change.voters = back;
        }
    }
    if let Err(unsafe_voters) = may_become_live(view.live.iter().copied(), &change.voters)
        && checked
        && !(change.voters == *template && is_as_finished(view))
    {
        change.held = Some(unsafe_voters.to_string());
        change.voters = template.clone();
        change.initialize = named;
        change.bounce = None;
        return change;
    }
    change.replicas = replicas(view, set, &change.voters);
    change
}

/// Whether every voter speaks to the others as the template says, but for one that has been away for long: a shrinking ensemble
/// need not wait for it.
fn speaks_as_told(view: &View<'_>) -> bool {
    let gone = view.gone();
    let mut members = view.members.values().filter(|m| !gone.contains(m.id));
    let state = |m: &Member<'_>| m.pod.revision.as_ref().map(|revision| revision.tls.servers);
    members.all(|m| state(m) == Some(view.template.tls.servers))
}

/// The list to restore if somebody else wrote a list into the template that must not become live beside the
/// members' lists, as `kubectl rollout undo` over several steps does.
///
/// The operator restores a list only while the members that already run the template's list cannot commit by
/// themselves, and a majority of the restored list does not run the template's: after that write no new pod
/// gets the template's list. A template with the last finished list is the operator's own, and stays.
fn taken_back<'a>(view: &View<'a>, wanted: &Voters) -> Option<&'a Voters> {
    let template = &view.template.voters;
    let mut others = view.live.clone();
    others.remove(template);
    if view.claims_agree || may_become_live(others.iter().copied(), template).is_ok() {
        return None;
    }
    let (foreign, own): (Vec<_>, Vec<_>) =
        (view.members.values()).partition(|m| m.voters == template);
    let ids = |members: Vec<&Member<'_>>| members.iter().map(|m| m.id).collect::<Voters>();
    let meet = may_live_together(others.iter().copied());
    let others = others.into_iter();
    let nearest = others.min_by_key(|v| v.len().abs_diff(wanted.len()))?;
    let safe = meet && holds_majority(&ids(own), nearest);
    (safe && !holds_majority(&ids(foreign), template)).then_some(nearest)
}

/// Whether the template has the list of the last finished step, and no member with another list leads: then
/// members with other lists are foreign, and restart into the template's list as in any roll.
fn is_as_finished(view: &View<'_>) -> bool {
    let leader = view.leader.and_then(|id| view.members.get(&id));
    let own = leader.is_none_or(|m| *m.voters == view.template.voters);
    view.claims_agree && view.leaders <= 1 && own
}

/// One member more or less than the template, which every voter runs.
fn begin_step(ensemble: &ValidEnsemble, view: &View<'_>, wanted: &Voters, change: &mut Change) {
    let template = &view.template.voters;
    // Every set of this operator is an interval from the first id.
    let size = u16::try_from(template.len()).unwrap_or(u16::MAX);
    if !view.rules.keep(Rule::SmallSteps) {
        change.voters = wanted.clone();
        return;
    }
    if wanted.len() > template.len() {
        change.voters = Voters::first(size + 1, ensemble.id_offset);
        change.initialize = change
            .voters
            .last()
            .filter(|_| size == 1 || !view.rules.keep(Rule::EmptyDisksDoNotVote));
        return;
    }
    match template.last() {
        // Under the new list the restarted leaver would not vote; under the old one it returns as a follower,
        // and then leaves without an election. Of two members the leaver would only be elected again, and the
        // other has every acknowledged write.
        Some(leaver)
            if view.leader == Some(leaver)
                && !never_joins(leaver, template)
                && view.rules.keep(Rule::LeaverStepsDown) =>
        {
            change.bounce = Some(leaver);
        }
        _ => {
            change.voters = Voters::first(size - 1, ensemble.id_offset);
            change.initialize = None;
        }
    }
}

/// The newcomer that initializes its empty disk under a list that members run already. A return to the step
/// from one member to two continues that step: without the permission the newcomer would not vote, and member
/// 1, restarted into the list of two, could not lead.
fn newcomer_of(view: &View<'_>, voters: &Voters) -> Option<ServerId> {
    let members = view.members.values();
    let mut revisions = members.filter_map(|m| m.pod.revision.as_ref());
    revisions
        .find(|r| r.voters == *voters && r.initialize.is_some() && may_name(view, voters))?
        .initialize
}

/// Whether a template with this list may name a newcomer: that is so only in the step from one to two.
fn may_name(view: &View<'_>, voters: &Voters) -> bool {
    voters.len() == 2 || !view.rules.keep(Rule::EmptyDisksDoNotVote)
}

/// Whether the template names a newcomer that this operator did not name. `kubectl rollout undo` to the
/// template of an earlier step restores such a field: that person owns it then, and an apply keeps it.
pub fn names_foreign_newcomer(view: &View<'_>) -> bool {
    view.template.initialize.is_some() && !may_name(view, &view.template.voters)
}

/// The set that the unfinished step started from, if the target is now closer to that set.
fn turn_round(view: &View<'_>, wanted: &Voters) -> Option<Voters> {
    let template = &view.template.voters;
    let mut others = view.live.clone();
    others.remove(template);
    let old = others.pop_first().filter(|_| others.is_empty())?;
    let distance = |v: &Voters| v.len().abs_diff(wanted.len());
    (distance(old) < distance(template)).then(|| old.clone())
}

/// A leaver's pod stays until every voter serves without it in its list.
fn replicas(view: &View<'_>, set: &StatefulSetObservation, voters: &Voters) -> u16 {
    let size = u16::try_from(voters.len()).unwrap_or(u16::MAX);
    if size >= set.replicas || !view.rules.keep(Rule::LeaverGoesLast) {
        return size;
    }
    let done = view.template.voters == *voters && view.all_run(voters);
    // The leaver may lead still, if it was elected in the middle of the step.
    let leaver_leads = view.leader.is_some_and(|l| !voters.contains(l));
    if done && !leaver_leads {
        size
    } else {
        set.replicas
    }
}

#[cfg(test)]
#[path = "membership/tests.rs"]
mod tests;
