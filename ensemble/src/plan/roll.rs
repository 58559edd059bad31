//! The order of a roll: which member restarts now, and what every other one waits for.
//!
//! 1. While a pod is missing or being deleted, or an updated member has not answered yet: wait. At
//!    most one member is down because of the operator.
//! 2. Members that take part in no quorum restart first: no majority needs them. This is also how a bad image
//!    is rolled back, and how a roll proceeds without a leader. A member that may be copying the leader's data
//!    takes part in no quorum yet; it gets the time to join that follows from its settings.
//! 3. Every updated member that can join the leader must have joined it. The roll does not wait for a member
//!    that cannot join (a majority of its own list does not follow yet): only further restarts let it join.
//! 4. Followers, by ordinal, each only if the members that stay serve a majority of every live list.
//! 5. The leader, when all other members are done. The roll does not wait for a member that has been silent for
//!    long, while the others are a majority of every live list without it.

use crate::desired::pod_name;
use crate::ids::{ServerId, Voters};
use crate::observation::{Credentials, PodState, ServerReport, StatefulSetObservation};
use crate::plan::trouble::{Trouble, beside};
use crate::plan::verdict::{Verdict, WaitingOn};
use crate::plan::view::{Member, View};
use crate::plan::{Expect, Step};
use crate::rules::Rule;
use crate::safety::{
    can_join, may_restart, may_restart_idle, may_roll_forward, may_step_down, never_joins, servers,
};
use bellwether_api::ensemble::status::Reason;

/// The roll as planned.
#[derive(Clone, Debug, Default)]
pub struct Roll {
    /// The restart to carry out now.
    pub step: Option<Step>,
    /// Every member's verdict.
    pub verdicts: Vec<(ServerId, Verdict)>,
    /// What the next restart waits for.
    pub waiting: Option<WaitingOn>,
    /// What blocks the roll until a person acts.
    pub trouble: Option<Trouble>,
}

impl Roll {
    /// Withdraws the step, because a person has to act first.
    pub fn block(&mut self, why: &str) {
        self.hold("the server lists to be put right");
        self.trouble = Some(Trouble {
            reason: Reason::UnknownState,
            message: format!(
                "Somebody else changed the server list in the StatefulSet's pod template, and {why}: two \
                 leaders could commit. Nothing is restarted or removed. Put the template back to the list \
                 of the members that serve, and delete the pods with the other one; docs/runbook.md says \
                 how."
            ),
        });
    }

    /// Withdraws the step, because something else has to happen first.
    pub fn hold(&mut self, what: &str) {
        self.step = None;
        for (_, verdict) in &mut self.verdicts {
            if let Verdict::Restart(_) = verdict {
                *verdict = Verdict::Waiting(WaitingOn::Other(what.to_owned()));
            }
        }
    }
}

/// Plans the roll. `bounce` is a leaver that leads and restarts although it is up to date.
pub fn plan_roll(view: &View<'_>, set: &StatefulSetObservation, bounce: Option<ServerId>) -> Roll {
    let mut roll = Roll::default();
    let choice = choose(view, set, bounce);
    if let Choice::Wait(waiting) = &choice {
        roll.waiting = Some(waiting.clone());
    }
    if let Choice::Blocked(trouble) = &choice {
        roll.trouble = Some(trouble.clone());
    }
    if let Choice::Restart(id, expect, reason) = &choice
        && let Some(member) = view.members.get(id)
    {
        roll.step = Some(Step::RestartMember {
            pod: member.pod.name.clone(),
            uid: member.pod.uid.clone(),
            resource_version: member.pod.resource_version.clone(),
            id: *id,
            expect: *expect,
            reason: reason.clone(),
        });
    }
    for member in view.members.values() {
        roll.verdicts
            .push((member.id, verdict(view, member, &choice)));
    }
    roll
}

enum Choice {
    Restart(ServerId, Expect, String),
    Wait(WaitingOn),
    Blocked(Trouble),
    Nothing,
}

/// A newcomer without a vote that runs an old pod template: no quorum needs it, and it may not be able to follow before. One
/// that may be copying data is waited for, as a voter is.
fn newcomer(view: &View<'_>) -> Option<Choice> {
    let known = |m: &&Member<'_>| {
        let votes = view.live.iter().any(|list| list.contains(m.id));
        let set = !m.pod.terminating && !votes;
        view.joining.contains(m.id) && m.outdated && set && (m.serves() || m.is_idle())
    };
    let mut newcomers = view.members.values().filter(known);
    let copies = |m: &&Member<'_>| !m.serves() && view.is_joining(m);
    let Some(member) = newcomers.clone().find(|m| !copies(m)) else {
        let joining = newcomers.next()?;
        return Some(Choice::Wait(WaitingOn::Join(joining.pod.name.clone())));
    };
    let expect = match member.serves() {
        true => Expect::Follower,
        false => Expect::Idle,
    };
    let why = "its pod template changed; it does not vote yet".to_owned();
    Some(Choice::Restart(member.id, expect, why))
}

/// The five rules, in their order. The first that has an answer decides.
fn choose(view: &View<'_>, set: &StatefulSetObservation, bounce: Option<ServerId>) -> Choice {
    let outdated: Vec<&Member<'_>> = view
        .members
        .values()
        .filter(|m| m.outdated && view.template.voters.contains(m.id))
        .collect();
    let newcomer = newcomer(view);
    let nobody = outdated.is_empty() && bounce.is_none() && newcomer.is_none();
    if nobody && must_initialize(view).is_none() {
        return Choice::Nothing;
    }
    let first = one_at_a_time(view, set)
        .or_else(|| idle_first(view, &outdated))
        .or(newcomer)
        .or_else(|| joined_before_the_next(view));
    if let Some(choice) = first {
        return choice;
    }
    let (outdated, silent): (Vec<_>, Vec<_>) = outdated.into_iter().partition(|m| m.answers());
    let rest_is_done = outdated.is_empty() && bounce.is_none();
    if let Some(choice) = wait_for_an_answer(view, &silent, rest_is_done) {
        return choice;
    }
    let Some(leader) = view.leader else {
        return Choice::Wait(WaitingOn::Leader);
    };
    leaver_steps_down(view, leader, bounce)
        .or_else(|| followers(view, &outdated, leader))
        .unwrap_or_else(|| leader_last(view, &outdated, leader))
}

/// The members that stay and were made from the current pod template. The roll does not wait for a leaver: its
/// node may be lost, and the others do not need its vote.
fn updated<'a>(view: &'a View<'a>) -> impl Iterator<Item = &'a Member<'a>> {
    let members = view.members.values();
    members.filter(|m| !m.outdated && view.template.voters.contains(m.id))
}

/// Rule 1.
fn one_at_a_time(view: &View<'_>, set: &StatefulSetObservation) -> Option<Choice> {
    if set.update_revision.is_none() {
        let what = "the StatefulSet controller to notice the new pod template";
        return Some(Choice::Wait(WaitingOn::Other(what.to_owned())));
    }
    let keeps = view.rules.keep(Rule::OneAtATime);
    let stays = |id: ServerId| view.template.voters.contains(id);
    let mut members = view.members.values();
    if let Some(going) = members.find(|m| m.pod.terminating && stays(m.id) && keeps) {
        let pod = going.pod.name.clone();
        return Some(Choice::Wait(WaitingOn::Deletion(pod)));
    }
    let missing = view.missing.iter().find(|o| stays(view.id(**o)));
    if let Some(ordinal) = missing.filter(|_| keeps) {
        let pod = pod_name(view.ensemble, *ordinal);
        return Some(Choice::Wait(WaitingOn::Creation(pod)));
    }
    if let Some(failing) = updated(view).find_map(failing) {
        return Some(Choice::Blocked(failing));
    }
    if let Some(starting) = updated(view).find(|m| !m.answers() && keeps) {
        let pod = starting.pod.name.clone();
        return Some(Choice::Wait(WaitingOn::Start(pod)));
    }
    let several = view.leaders > 1 && view.rules.keep(Rule::OneLeader);
    several.then_some(Choice::Wait(WaitingOn::OneLeader))
}

/// Rule 2.
fn idle_first(view: &View<'_>, outdated: &[&Member<'_>]) -> Option<Choice> {
    let idle = |m: &&&Member<'_>| {
        let known = m.is_idle() || !view.rules.keep(Rule::IdleIsKnown);
        known && may_restart_idle(m.id, &view.serving).is_ok()
    };
    let mut idle = outdated.iter().filter(idle);
    if let Some(idle) = idle.clone().find(|m| !view.is_joining(m)) {
        let why = format!("{}; it takes part in no quorum", reason(view, idle));
        return Some(Choice::Restart(idle.id, Expect::Idle, why));
    }
    let joining = idle.next()?;
    let leader = view.leader;
    let join = leader.map(|_| WaitingOn::Join(joining.pod.name.clone()));
    Some(Choice::Wait(join.unwrap_or(WaitingOn::Leader)))
}

/// Rule 3.
fn joined_before_the_next(view: &View<'_>) -> Option<Choice> {
    if let Some(newcomer) = must_initialize(view) {
        let why = "its disk is empty, and it has to start with a vote".to_owned();
        return Some(Choice::Restart(newcomer, Expect::Idle, why));
    }
    let joins = |m: &Member<'_>| {
        can_join(m.id, m.voters, &view.serving, view.leader) && view.rules.keep(Rule::JoinedFirst)
    };
    let joining = updated(view).find(|m| !m.serves() && joins(m))?;
    let pod = joining.pod.name.clone();
    Some(Choice::Wait(WaitingOn::Join(pod)))
}

/// A member that does not answer may still serve, so it counts as neither serving nor restarted. The roll
/// continues without it once it has been silent for long, and waits for it when all others are done.
fn wait_for_an_answer(
    view: &View<'_>,
    silent: &[&Member<'_>],
    rest_is_done: bool,
) -> Option<Choice> {
    let waits = |m: &&&Member<'_>| !view.is_lost(m) || !view.rules.keep(Rule::SilenceEnds);
    let unknown = silent.iter().find(waits);
    let last = silent.first().filter(|_| rest_is_done);
    let pod = unknown.or(last)?.pod.name.clone();
    Some(Choice::Wait(WaitingOn::Answer(pod)))
}

/// A leader that leaves restarts before the others: asked for by `bounce`, or because it was elected in the middle
/// of a step that removes it. The voters that restarted without it in their list cannot follow it. Of two members
/// the one that stays restarts alone into its list.
fn leaver_steps_down(
    view: &View<'_>,
    leader: ServerId,
    bounce: Option<ServerId>,
) -> Option<Choice> {
    let restart = |id| {
        // Its server leads until it ends.
        let going = view.members.get(&id).filter(|m| m.pod.terminating);
        if let Some(going) = going {
            return Choice::Wait(WaitingOn::Deletion(going.pod.name.clone()));
        }
        let why = "it leads and is about to leave".to_owned();
        Choice::Restart(id, Expect::Leader, why)
    };
    if let Some(leaver) = bounce {
        let safe = restart_is_safe(view, leaver);
        return Some(safe.map_or_else(Choice::Wait, |()| restart(leaver)));
    }
    let leader = view.members.get(&leader)?;
    let leaves = may_step_down(leader.id, leader.voters, &view.template.voters);
    (leaves && view.rules.keep(Rule::LeaverStepsDown)).then(|| restart(leader.id))
}

/// Rule 4; `None` when no follower is left.
fn followers(view: &View<'_>, outdated: &[&Member<'_>], leader: ServerId) -> Option<Choice> {
    if !view.rules.keep(Rule::LeaderLast)
        && let Some(first) = outdated.iter().find(|m| m.id == leader)
    {
        let why = reason(view, first);
        return Some(Choice::Restart(leader, Expect::Leader, why));
    }
    let mut waiting = None;
    for follower in outdated.iter().filter(|m| m.id != leader) {
        match restart_is_safe(view, follower.id) {
            Ok(()) => {
                let why = reason(view, follower);
                return Some(Choice::Restart(follower.id, Expect::Follower, why));
            }
            Err(on) => waiting = waiting.or(Some(on)),
        }
    }
    let waiting = Choice::Wait(waiting?);
    Some(roll_forward(view, outdated, leader).unwrap_or(waiting))
}

/// Rule 5.
fn leader_last(view: &View<'_>, outdated: &[&Member<'_>], leader: ServerId) -> Choice {
    let Some(last) = outdated.iter().find(|m| m.id == leader) else {
        return Choice::Nothing;
    };
    match restart_is_safe(view, leader) {
        Ok(()) => {
            let why = format!("{}; it leads, and all others are done", reason(view, last));
            Choice::Restart(leader, Expect::Leader, why)
        }
        Err(on) => roll_forward(view, outdated, leader).unwrap_or(Choice::Wait(on)),
    }
}

/// The newcomer of the step from one member to two, if it lost its disk after it had started: only a
/// restart of its pod gives it the permission again. If both members wait, the newcomer has lost its disk; if
/// only the newcomer waits, the other member has not restarted yet.
fn must_initialize(view: &View<'_>) -> Option<ServerId> {
    let newcomer = view.template.initialize.filter(|_| view.may_initialize)?;
    // Only after a while: a new pod is unready too, and a pod that copies the other's data is unready for
    // minutes.
    let gone = view.gone();
    let stuck = |id: ServerId| {
        view.members.get(&id).is_some_and(|m| {
            let long = gone.contains(id) && !view.is_joining(m);
            m.answers() && long && *m.voters == view.template.voters
        })
    };
    let idle = may_restart_idle(newcomer, &view.serving).is_ok();
    (idle && view.template.voters.iter().all(stuck)).then_some(newcomer)
}

/// No restart keeps a majority, because updated members look for a leader that they cannot join: a majority of
/// their list does not run it yet. A restart costs a short interruption and lets them elect a leader; waiting
/// would never end. It is safe, since the live lists always share a voter.
fn roll_forward(view: &View<'_>, outdated: &[&Member<'_>], leader: ServerId) -> Option<Choice> {
    let stuck: Voters = view
        .members
        .values()
        .filter(|m| !m.outdated && m.answers() && (m.is_idle() || never_joins(m.id, m.voters)))
        .filter(|m| !m.serves())
        .map(|m| m.id)
        .collect();
    let next = outdated
        .iter()
        .find(|m| m.id != leader)
        .or(outdated.first())?;
    let may = may_roll_forward(next.id, &stuck, &view.template.voters);
    (may && view.rules.keep(Rule::RollForward)).then(|| {
        let why = format!(
            "{}; {} cannot join before it",
            reason(view, next),
            servers(&stuck)
        );
        let expect = if next.id == leader {
            Expect::Leader
        } else {
            Expect::Follower
        };
        Choice::Restart(next.id, expect, why)
    })
}

fn restart_is_safe(view: &View<'_>, id: ServerId) -> Result<(), WaitingOn> {
    if !view.rules.keep(Rule::KeepMajority) {
        return Ok(());
    }
    // A leaver that is down, or is an observer by now, does not count as able to serve.
    let voting = view.members.values().filter(|m| m.voters.contains(m.id));
    let able = Voters::from_iter(voting.map(|m| m.id))
        .difference(&view.gone())
        .union(&view.template.voters);
    may_restart(
        id,
        &view.serving,
        &view.answering,
        &able,
        view.live.iter().copied(),
    )
    .map_err(|e| WaitingOn::Majority(e.to_string()))
}

/// Why a member restarts.
fn reason(view: &View<'_>, member: &Member<'_>) -> String {
    let new = &view.template.voters;
    if member.pod.credentials == Credentials::Outdated {
        "the users of clients, or the authorities of their certificates, changed".to_owned()
    } else if member.voters == new {
        "its pod template changed".to_owned()
    } else {
        format!(
            "its server list changes from {{{}}} to {{{new}}}",
            member.voters
        )
    }
}

fn failing(member: &Member<'_>) -> Option<Trouble> {
    match &member.pod.state {
        PodState::Failing { reason, message } => Some(Trouble {
            reason: Reason::PodFailing,
            message: format!(
                "Pod {} cannot run: {reason}{}. No further member is restarted until it runs; \
                 correct or revert the spec",
                member.pod.name,
                if message.is_empty() {
                    String::new()
                } else {
                    format!(" ({message})")
                },
            ),
        }),
        _ => {
            let beside = beside(member.pod)?;
            Some(Trouble {
                message: format!(
                    "{} No further member is restarted until it runs; correct or revert the spec",
                    beside.message
                ),
                ..beside
            })
        }
    }
}

fn verdict(view: &View<'_>, member: &Member<'_>, choice: &Choice) -> Verdict {
    if let Choice::Restart(id, _, reason) = choice
        && *id == member.id
    {
        return Verdict::Restart(reason.clone());
    }
    if member.pod.terminating {
        return Verdict::Waiting(WaitingOn::Deletion(member.pod.name.clone()));
    }
    if view.joining.contains(member.id) && member.serves() && !member.outdated {
        let what = "the members to agree on a server list with it";
        return Verdict::Waiting(WaitingOn::Other(what.to_owned()));
    }
    let stays = |id| view.template.voters.contains(id) || view.joining.contains(id);
    if !stays(member.id) {
        return Verdict::Waiting(WaitingOn::Leave);
    }
    if member.outdated {
        return Verdict::Waiting(match choice {
            Choice::Restart(id, ..) if view.leader == Some(member.id) => {
                WaitingOn::LeaderIsLast(pod_of(view, *id))
            }
            Choice::Restart(id, ..) => WaitingOn::Turn(pod_of(view, *id)),
            Choice::Wait(waiting) => waiting.clone(),
            Choice::Blocked(trouble) => WaitingOn::Other(trouble.awaited()),
            Choice::Nothing => WaitingOn::Leader,
        });
    }
    match (&member.pod.server, &member.pod.state) {
        (ServerReport::Serving { .. }, _) => Verdict::UpToDate,
        (_, PodState::Failing { reason, .. }) => {
            Verdict::Waiting(WaitingOn::Other(format!("its pod to run: {reason}")))
        }
        (ServerReport::Looking, _) if view.leader.is_some() => {
            Verdict::Waiting(WaitingOn::Join(member.pod.name.clone()))
        }
        (ServerReport::Looking, _) => Verdict::Waiting(WaitingOn::Leader),
        _ => Verdict::Waiting(WaitingOn::Start(member.pod.name.clone())),
    }
}

fn pod_of(view: &View<'_>, id: ServerId) -> String {
    view.members
        .get(&id)
        .map_or_else(|| id.to_string(), |m| m.pod.name.clone())
}

#[cfg(test)]
#[path = "roll/tests.rs"]
mod tests;
