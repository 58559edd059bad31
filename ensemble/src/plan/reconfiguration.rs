//! Members that change at run time (`spec.membershipChange: Reconfiguration`): what their servers judge by, which list comes
//! next, and how many pods there are. The rule is in [`crate::safety::reconfiguration`].
//!
//! A pod's annotation tells the list of the ensemble when the pod was made. The list that counts is the one that the servers
//! tell. All newcomers start at once and follow without a vote; one request makes voters of all that follow. Members that leave
//! are taken out of the list by one request, and their pods go when the servers say that the list is another one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bellwether_api::ensemble::{MemberRole, MembershipChange};

use crate::desired::{DesiredObject, claims, pod_name};
use crate::ids::{ServerId, ServerList, Voters};
use crate::observation::{
    ClaimObservation, Observation, PodObservation, PodState, ServerReport, StatefulSetObservation,
};
use crate::plan::Step;
use crate::plan::membership::Change;
use crate::plan::verdict::WaitingOn;
use crate::plan::view::{Member, View};
use crate::plan::volumes;
use crate::safety::holds_majority;
use crate::safety::reconfiguration::{self, Held, Next, Unsettled, may_remove};
use crate::validate::ValidEnsemble;

/// What the servers tell of their lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    leader: Option<ServerId>,
    epoch: u64,
    held: BTreeMap<ServerId, Held>,
    /// The observers in the leader's list.
    observers: BTreeSet<ServerId>,
}

/// The request for another list, to one of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The voters of the list. It also names the observers that are wanted.
    pub list: Voters,
    /// The version that the present one must have.
    pub version: u64,
}

impl Lists {
    /// What was observed; `None` where servers have their lists in files that the operator writes.
    pub fn of(observation: &Observation, id_offset: u16) -> Option<Self> {
        // Somebody may have put back a template from the time of lists in files.
        let template = observation.stateful_set.as_ref();
        let template = template.and_then(|set| set.template.as_ref());
        let pods = observation.pods.iter().filter_map(|p| p.revision.as_ref());
        let mut revisions = template.into_iter().chain(pods);
        let says_so = revisions.any(|revision| revision.version.is_some());
        if !says_so {
            return None;
        }
        let id = |pod: &PodObservation| ServerId::of_ordinal(pod.ordinal, id_offset);
        let pods = || observation.pods.iter();
        let mut leading = pods().filter_map(|pod| match pod.server {
            ServerReport::Serving {
                role: MemberRole::Leader,
                zxid,
                ref observers,
                ..
            } => Some((id(pod), zxid >> 32, observers)),
            _ => None,
        });
        let leader = leading.next().filter(|_| leading.next().is_none());
        let held = pods().filter_map(|pod| Some((id(pod), held(pod)?)));
        Some(Self {
            leader: leader.map(|(id, ..)| id),
            epoch: leader.map_or(0, |(_, epoch, _)| epoch),
            held: held.collect(),
            observers: leader.map_or_else(BTreeSet::new, |(.., observers)| observers.clone()),
        })
    }

    /// For the rules.
    pub fn seen(&self) -> reconfiguration::Lists<'_> {
        reconfiguration::Lists {
            leader: self.leader,
            epoch: self.epoch,
            held: &self.held,
        }
    }

    /// The version of the ensemble's list, and that list.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn settled(&self) -> Result<(u64, &Voters), Unsettled> {
        self.seen().settled()
    }
}

/// What a server holds; `None` if it says nothing of its lists. A member program that does not say what is on the volume may
/// hide a list there.
fn held(pod: &PodObservation) -> Option<Held> {
    pod.revision.as_ref()?.version?;
    let stored = match &pod.volumes {
        Some(volumes) => volumes.stored_list,
        None => Some(u64::MAX).filter(|_| pod.answers()),
    };
    match &pod.server {
        ServerReport::Serving {
            voters, version, ..
        } => Some(Held {
            version: *version,
            voters: voters.clone(),
            pending: stored,
            serves: true,
        }),
        ServerReport::Looking | ServerReport::Unreachable(_) => stored.map(|_| Held {
            version: 0,
            voters: Voters::default(),
            pending: stored,
            serves: false,
        }),
    }
}

/// The ensemble as it changes for now: one whose members change at run time once goes on so, and one whose members are to do so
/// begins when the step under way is finished. Its size changes after that.
pub fn for_now<'a>(
    ensemble: &'a ValidEnsemble,
    view: &View<'_>,
    set: &StatefulSetObservation,
) -> Cow<'a, ValidEnsemble> {
    let already = view.lists.is_some();
    if already {
        return at_run_time(ensemble);
    }
    if !ensemble.changes_at_run_time() {
        return Cow::Borrowed(ensemble);
    }
    let mut changed = ensemble.clone();
    if view.is_finished() && view.claims_agree && !view.may_initialize {
        changed.size = u16::try_from(view.template.voters.len()).unwrap_or(set.replicas);
    } else {
        changed.membership_change = MembershipChange::RollingRestart;
    }
    Cow::Owned(changed)
}

/// The observation with the lists that servers judge by in the place of those that their pods were made with: what a server
/// tells, or else the latest list that is known. The planner reads it as that of an ensemble with lists in files.
pub fn as_judged(observation: &Observation, id_offset: u16) -> Cow<'_, Observation> {
    let Some((version, latest)) = latest(observation, id_offset) else {
        return Cow::Borrowed(observation);
    };
    let mut judged = observation.clone();
    for pod in &mut judged.pods {
        let told = pod.server.voters();
        if let Some(revision) = pod.revision.as_mut().filter(|r| r.version.is_some()) {
            revision.voters = told.unwrap_or(&latest).clone();
        }
    }
    let set = judged.stateful_set.as_mut();
    if let Some(template) = set.and_then(|set| set.template.as_mut()) {
        template.voters = latest.clone();
        template.version = template.version.or(Some(version));
    }
    Cow::Owned(judged)
}

/// The latest list of the ensemble that is known, with its version: what the servers agree on, or what was recorded of that.
/// `None` where servers have their lists in files that the operator writes.
pub(super) fn latest(observation: &Observation, id_offset: u16) -> Option<(u64, Voters)> {
    let lists = Lists::of(observation, id_offset)?;
    if let Ok((version, list)) = lists.settled() {
        return Some((version, list.clone()));
    }
    let set = observation.stateful_set.as_ref();
    let template = set.and_then(|set| set.template.as_ref());
    let pods = observation.pods.iter();
    let made = template
        .into_iter()
        .chain(pods.filter_map(|pod| pod.revision.as_ref()));
    let made = made.filter_map(|revision| Some((revision.version?, &revision.voters)));
    let claims = observation.claims.iter();
    let recorded = claims.filter_map(|c| Some((c.version?, c.voters.as_ref()?)));
    let all = made.chain(recorded);
    let (version, list) = all.max_by_key(|(version, _)| *version)?;
    Some((version, list.clone()))
}

/// The ensemble, as one whose members change at run time.
pub(super) fn at_run_time(ensemble: &ValidEnsemble) -> Cow<'_, ValidEnsemble> {
    if ensemble.changes_at_run_time() {
        return Cow::Borrowed(ensemble);
    }
    Cow::Owned(ValidEnsemble {
        membership_change: MembershipChange::Reconfiguration,
        ..ensemble.clone()
    })
}

/// The next list, and how many pods there are. `set` is as it was observed, with the list that new pods get.
pub(super) fn next_list(
    ensemble: &ValidEnsemble,
    view: &View<'_>,
    lists: &Lists,
    set: &StatefulSetObservation,
) -> Change {
    let given = set.template.as_ref().filter(|t| t.version.is_some());
    let given = given.unwrap_or(view.template);
    let mut change = Change::none(given, set.replicas.max(needed(view)));
    let wanted = Voters::first(ensemble.size, ensemble.id_offset);
    let (version, list) = match lists.settled() {
        Ok((0, _)) => {
            change.waiting = other("the leader to give the server list a version");
            return change;
        }
        Ok(settled) => settled,
        Err(unknown) => {
            change.waiting = other(&format!("the server list to be known: {unknown}"));
            return change;
        }
    };
    change.voters = list.clone();
    change.version = Some(version);
    let open = open_request(view, version);
    change.begins = open.cloned();
    if *list == wanted {
        let others = lists.observers != observers(ensemble) && comes_first(view, lists).is_none();
        if open.is_some() || others {
            ask_again(list, version, &mut change);
            return change;
        }
        let beyond = view.members.keys().filter(|id| !wanted.contains(**id));
        let mut may = beyond.map(|id| may_remove(*id, lists.seen()));
        if may.all(|may| may.is_ok()) {
            change.replicas = ensemble.size;
        }
        return change;
    }
    if let Some(what) = comes_first(view, lists) {
        change.waiting = Some(what);
        return change;
    }
    change.replicas = change.replicas.max(ensemble.size);
    let asked = match target(ensemble, view, list, &wanted) {
        Ok(target) => reconfiguration::next(lists.seen(), &target),
        Err(waiting) => {
            change.waiting = Some(waiting);
            return change;
        }
    };
    match asked {
        Ok(Next::StepDown(leader)) => change.bounce = Some(leader),
        Ok(Next::Ask(next, _)) if open.is_some_and(|open| *open != next) => {
            ask_again(list, version, &mut change);
        }
        Ok(Next::Ask(list, version)) => ask(view, list, version, &mut change),
        Err(why) => change.waiting = other(&why.to_string()),
    }
    change
}

/// How many pods the latest list that is known needs, and one that was asked for and may still come: also where somebody else
/// scaled the StatefulSet, since without its members nobody can tell the list.
fn needed(view: &View<'_>) -> u16 {
    let asked = volumes::staying(view.claims).filter_map(|claim| claim.next.as_ref());
    let lists = [&view.template.voters].into_iter().chain(asked);
    let ids = lists.flat_map(Voters::iter);
    let pods = ids.map(|id| view.ordinal(id).saturating_add(1));
    pods.max().unwrap_or(0)
}

fn other(what: &str) -> Option<WaitingOn> {
    Some(WaitingOn::Other(what.to_owned()))
}

/// The list that was asked for and may still come: the claims carry it beside the present list with this version.
fn open_request<'a>(view: &'a View<'_>, version: u64) -> Option<&'a Voters> {
    let of_present = |claim: &&ClaimObservation| claim.version == Some(version);
    let mut claims = volumes::staying(view.claims).filter(of_present);
    claims.find_map(|claim| claim.next.as_ref())
}

/// The observers that a list has to name. They are in no majority, so the list may name them before they run and after.
fn observers(ensemble: &ValidEnsemble) -> BTreeSet<ServerId> {
    let ordinals = 0..ensemble.observers;
    let id = |ordinal| ServerId::of_observer(ordinal, ensemble.id_offset);
    ordinals.map(id).collect()
}

/// Asks for the present voters again, with the observers that are wanted now. The list gets another version, so that an earlier
/// request, which may still be on its way, is refused. Until then no server that the earlier request names is removed.
fn ask_again(present: &Voters, version: u64, change: &mut Change) {
    change.ask = Some(Ask {
        list: present.clone(),
        version,
    });
}

/// What has to be over before the list changes.
fn comes_first(view: &View<'_>, lists: &Lists) -> Option<WaitingOn> {
    let list = &view.template.voters;
    let what = match () {
        () if view.may_initialize => "the first start to be over",
        () if view
            .members
            .values()
            .any(|m| m.serves() && list.contains(m.id) && m.outdated) =>
        {
            "the roll to be over"
        }
        () if !view.serving.iter().all(|id| lists.held.contains_key(&id)) => {
            "every member to change its list at run time"
        }
        () => return None,
    };
    other(what)
}

/// The list to go to: the wanted one without newcomers that cannot follow. These hold up only themselves, and the others only as
/// long as a start may take.
fn target(
    ensemble: &ValidEnsemble,
    view: &View<'_>,
    list: &Voters,
    wanted: &Voters,
) -> Result<Voters, WaitingOn> {
    let newcomers = wanted.difference(list);
    let follows = |id: &ServerId| {
        view.members
            .get(id)
            .is_some_and(|m| m.serves() && !m.outdated && !m.pod.terminating)
    };
    let late: Vec<ServerId> = newcomers.iter().filter(|id| !follows(id)).collect();
    let on_its_way = |id: &&ServerId| match view.members.get(*id) {
        None => true,
        Some(m) => {
            let fails = matches!(m.pod.state, PodState::Failing { .. });
            let long = view.now.duration_since(m.pod.created) >= view.joining_time;
            !fails && !long || m.outdated
        }
    };
    let missing = Voters::from_iter(late.iter().copied());
    let target = wanted.difference(&missing);
    let waits = late.iter().find(on_its_way);
    match waits.or(late.first().filter(|_| target == *list)) {
        Some(id) => Err(waits_for(ensemble, view, *id)),
        None => Ok(target),
    }
}

/// What a newcomer still has to do before it follows.
fn waits_for(ensemble: &ValidEnsemble, view: &View<'_>, id: ServerId) -> WaitingOn {
    let pod = pod_name(&ensemble.name, view.ordinal(id));
    match view.members.get(&id) {
        None => WaitingOn::Creation(pod),
        Some(member) if member.pod.terminating => WaitingOn::Deletion(pod),
        Some(member) if member.answers() => WaitingOn::Join(pod),
        Some(_) => WaitingOn::Start(pod),
    }
}

/// Asks for a list as soon as every volume claim carries it: writes may be acknowledged under it from then on.
fn ask(view: &View<'_>, list: Voters, version: u64, change: &mut Change) {
    let serving = view.members.values().filter(|m| !m.pod.terminating);
    let serving: Voters = serving.filter(|m| m.serves()).map(|m| m.id).collect();
    if !holds_majority(&serving, &list) {
        let why = format!("too few of the servers {list} serve");
        change.waiting = Some(WaitingOn::Majority(why));
        return;
    }
    let carries = |claim: &ClaimObservation| {
        claim.voters.as_ref() == Some(&change.voters)
            && claim.version == change.version
            && claim.next.as_ref() == Some(&list)
    };
    if to_record(view).all(carries) {
        change.ask = Some(Ask {
            list: list.clone(),
            version,
        });
    }
    change.begins = Some(list);
}

/// The claims with data of this ensemble: those of newcomers are recorded as soon as they have some.
fn to_record<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a ClaimObservation> {
    let has_data = |claim: &&ClaimObservation| {
        let member = view.members.get(&view.id(claim.ordinal));
        let says = |m: &Member<'_>| m.pod.volumes.as_ref().is_some_and(|v| v.has_database);
        claim.voters.is_some() || member.is_some_and(|m| m.serves() || says(m))
    };
    volumes::staying(view.claims).filter(has_data)
}

/// The claims whose lists have to change: once the ensemble's list is known, each carries it with its version, and the list that
/// is about to be asked for.
pub(super) fn plan_records(view: &View<'_>, lists: &Lists, change: &Change) -> Vec<DesiredObject> {
    let Ok((version, list)) = lists.settled() else {
        return Vec::new();
    };
    if version == 0 {
        return Vec::new();
    }
    let next = change.begins.as_ref();
    let carries = |claim: &ClaimObservation| {
        let (voters, known) = (claim.voters.as_ref(), claim.version);
        (voters, known, claim.next.as_ref()) == (Some(list), Some(version), next)
    };
    to_record(view)
        .filter(|claim| !carries(claim))
        .map(|claim| claims::record(claim, (list, Some(version)), next))
        .collect()
}

/// The request for another list, if it may be made now. The leader is asked, since another member would only hand it on.
pub(super) fn step(ensemble: &ValidEnsemble, view: &View<'_>, change: &Change) -> Option<Step> {
    let ask = change.ask.as_ref()?;
    let leader = view.members.get(&view.leader?)?;
    Some(Step::Reconfigure {
        pod: leader.pod.name.clone(),
        id: leader.id,
        list: ServerList {
            voters: ask.list.clone(),
            observers: observers(ensemble),
        },
        version: ask.version,
    })
}

#[cfg(test)]
#[path = "reconfiguration/tests.rs"]
mod tests;
