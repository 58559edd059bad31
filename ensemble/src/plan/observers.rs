//! Observers: how many there are, and when one of them restarts.
//!
//! Observers never count: not in a majority, not in a server list that voters judge by, not in whether a step
//! is finished. So any number of them may join and leave at any time. This module decides only the order of
//! restarts:
//!
//! 1. In every roll outdated observers restart before any voter, one at a time, each when the one
//!    before it serves again. An updated observer whose pod cannot run stops the roll: the same change would
//!    take down the voters next, and no quorum needs the observer.
//! 2. An observer that could not join under the new server list, since no majority of that list serves yet,
//!    restarts after the voters instead, as in the step from one to two members.
//! 3. Voters do not wait for an observer that cannot join, whose node is lost, or whose time (`PATIENCE`) is
//!    over. They do not wait while no member leads, or when an idle voter restarts, since that is a repair. For a pod that
//!    Kubernetes does not create they wait without a bound: it might not create a voter's again either.

use std::collections::BTreeSet;

use bellwether_api::ensemble::Phase;
use bellwether_api::ensemble::status::Reason;
use jiff::SignedDuration;

use crate::desired::claims::ClaimSizes;
use crate::desired::{DesiredObject, observers as desired, stateful_set};
use crate::ids::ServerId;
use crate::observation::{Observation, PodObservation, PodState, Revision, ServerReport};
use crate::plan::report::{MemberReport, START_TIME};
use crate::plan::roll::Roll;
use crate::plan::trouble::{Trouble, beside};
use crate::plan::verdict::{Verdict, WaitingOn};
use crate::plan::view::View;
use crate::plan::{Expect, Step};
use crate::safety::{can_join, may_restart_observer};
use crate::validate::ValidEnsemble;

/// How long voters wait for an observer that starts or joins. Loading a large snapshot takes minutes; an
/// observer on a lost node never joins.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// What is planned for the observers.
#[derive(Debug)]
pub struct ObserverPlan<'a> {
    /// Their StatefulSet as it should be; `None` where none is wanted and none exists.
    pub object: Option<DesiredObject>,
    /// Whether the object needs the revision that is rendered now.
    pub needs_rendered: bool,
    /// The names of the revisions that observers use.
    pub revisions: BTreeSet<&'a str>,
    pods: Vec<&'a PodObservation>,
    wanted: u16,
    changing: bool,
    /// How many pods were made from another template than the current one.
    outdated: usize,
    choice: Choice<'a>,
}

#[derive(Debug)]
enum Choice<'a> {
    Restart(&'a PodObservation, Expect, String),
    Wait(WaitingOn),
    Blocked(Trouble),
    Nothing,
}

/// Plans the observers' StatefulSet and which of them restarts now.
pub fn plan_observers<'a>(
    ensemble: &ValidEnsemble,
    observation: &'a Observation,
    view: &View<'_>,
    rendered: &Revision,
) -> ObserverPlan<'a> {
    let wanted = ensemble.observers;
    let set = observation.observers.stateful_set.as_ref();
    let pods: Vec<&PodObservation> = observation.observers.pods.iter().collect();
    let mut revisions: BTreeSet<&str> = pods
        .iter()
        .filter_map(|p| p.revision.as_ref())
        .chain(set.and_then(|s| s.template.as_ref()))
        .map(|r| r.name.as_str())
        .collect();
    let own = set.map(|s| super::growth::template_sizes(ensemble, s));
    let sizes = own.unwrap_or_else(|| ClaimSizes::wanted(ensemble));
    let same_inputs = set.is_some_and(|s| {
        let inputs = stateful_set::inputs_hash(ensemble, rendered, sizes);
        s.inputs_hash.as_ref() == Some(&inputs)
    });
    // As for the voters: what an older operator rendered stays until the user changes something.
    let keep_template = same_inputs
        && set.is_some_and(|s| s.edited.is_none())
        && set.is_some_and(|s| {
            s.rendered_by.as_ref() != Some(&ensemble.context.version)
                && s.template
                    .as_ref()
                    .is_some_and(|t| observation.revisions.contains(&t.name))
        });
    let (object, needs_rendered) = match set {
        None if wanted == 0 => (None, false),
        Some(s) if s.terminating => (None, false),
        Some(s) if let Some(patch) = &s.left_over => {
            let name = desired::set_name(&ensemble.name);
            (Some(stateful_set::without_left_over(&name, patch)), false)
        }
        Some(_) if keep_template || wanted == 0 => {
            let name = desired::set_name(&ensemble.name);
            (Some(stateful_set::replicas_only(&name, wanted)), false)
        }
        _ => (
            Some(desired::stateful_set(ensemble, rendered, wanted, sizes)),
            true,
        ),
    };
    if wanted == 0 && pods.is_empty() {
        revisions.clear();
    }
    let replicas_change = set.map_or(wanted > 0, |s| s.replicas != wanted);
    let left_over = set.is_some_and(|s| s.left_over.is_some());
    let changing = replicas_change || left_over || (wanted > 0 && !same_inputs);
    let choice = if wanted == 0 {
        Choice::Nothing
    } else if changing {
        let what = "the observers' pod template to take effect";
        Choice::Wait(WaitingOn::Other(what.to_owned()))
    } else {
        choose(ensemble, observation, view)
    };
    let is_outdated = |p: &&&PodObservation| set.is_none_or(|set| p.is_outdated(set));
    let outdated = pods.iter().filter(is_outdated).count();
    ObserverPlan {
        outdated,
        object,
        needs_rendered,
        revisions,
        pods,
        wanted,
        changing,
        choice,
    }
}

fn choose<'a>(
    ensemble: &ValidEnsemble,
    observation: &'a Observation,
    view: &View<'_>,
) -> Choice<'a> {
    let observers = &observation.observers;
    let Some(set) = observers.stateful_set.as_ref() else {
        return Choice::Nothing;
    };
    if set.update_revision.is_none() {
        let what = "the StatefulSet controller to notice the observers' new pod template";
        return Choice::Wait(WaitingOn::Other(what.to_owned()));
    }
    let is_updated = |p: &&PodObservation| !p.is_outdated(set);
    let updated = || observers.pods.iter().filter(is_updated);
    let outdated = || observers.pods.iter().filter(|p| !is_updated(p));
    if let Some(trouble) = updated().find_map(failing) {
        return Choice::Blocked(trouble);
    }
    let lost = |p: &PodObservation| observers.overdue.contains(&p.name);
    if let Some(going) = observers.pods.iter().find(|p| p.terminating && !lost(p)) {
        return Choice::Wait(WaitingOn::Deletion(going.name.clone()));
    }
    let missing = |o: &u16| observers.pods.iter().all(|p| p.ordinal != *o);
    if let Some(ordinal) = (0..ensemble.observers).find(missing) {
        let pod = crate::desired::observers::pod_name(&ensemble.name, ordinal);
        return Choice::Wait(WaitingOn::Creation(pod));
    }
    let in_time =
        |p: &PodObservation| !p.terminating && view.now.duration_since(p.created) < PATIENCE;
    if let Some(starting) = updated().find(|p| !p.answers() && in_time(p)) {
        return Choice::Wait(WaitingOn::Start(starting.name.clone()));
    }
    let new = &view.template.voters;
    let joins = |p: &PodObservation| can_join(id(ensemble, p), new, &view.serving, view.leader);
    if let Some(joining) = updated().find(|p| !p.serves() && in_time(p) && joins(p)) {
        return Choice::Wait(WaitingOn::Join(joining.name.clone()));
    }
    let live = || view.live.iter().copied();
    let may = |p: &&PodObservation| may_restart_observer(id(ensemble, p), live()).is_ok();
    let mut restartable = outdated().filter(|p| !p.terminating).filter(may);
    if let Some(idle) = restartable.clone().find(|p| p.is_idle()) {
        let why = "its pod template changed; it takes part in nothing".to_owned();
        return Choice::Restart(idle, Expect::Idle, why);
    }
    match restartable.find(|p| p.serves() && joins(p)) {
        Some(next) => {
            let why = "its pod template changed; observers restart before voters".to_owned();
            Choice::Restart(next, Expect::Follower, why)
        }
        None => Choice::Nothing,
    }
}

impl ObserverPlan<'_> {
    /// Puts the observers' restarts before those of the voters, where these can wait.
    pub fn go_first(&self, ensemble: &ValidEnsemble, view: &View<'_>, roll: &mut Roll) {
        let repairs = matches!(
            &roll.step,
            Some(Step::RestartMember {
                expect: Expect::Idle,
                ..
            })
        );
        let voters_first = repairs || view.leader.is_none();
        match &self.choice {
            Choice::Restart(pod, expect, reason) if !voters_first || roll.step.is_none() => {
                roll.hold(&format!("{}; observers restart first", pod.name));
                roll.step = Some(Step::RestartMember {
                    pod: pod.name.clone(),
                    uid: pod.uid.clone(),
                    resource_version: pod.resource_version.clone(),
                    id: id(ensemble, pod),
                    expect: *expect,
                    reason: reason.clone(),
                });
            }
            Choice::Wait(on) if !voters_first && roll.step.is_some() => {
                roll.hold(&on.to_string());
                roll.waiting = Some(on.clone());
            }
            Choice::Blocked(trouble) if !voters_first && roll.step.is_some() => {
                roll.hold(&trouble.awaited());
                roll.trouble.get_or_insert_with(|| trouble.clone());
            }
            _ => {}
        }
    }

    /// Whether there are as many observers as wanted, all of them serving under the wanted template.
    fn is_complete(&self) -> bool {
        !self.changing
            && self.pods.len() == usize::from(self.wanted)
            && self.pods.iter().all(|p| p.serves() && !p.terminating)
            && matches!(self.choice, Choice::Nothing)
    }

    /// How many observers the spec asks for.
    pub fn wanted(&self) -> u16 {
        self.wanted
    }

    /// Every observer with its verdict.
    pub fn members(&self, ensemble: &ValidEnsemble) -> Vec<MemberReport> {
        let report = |p: &&PodObservation| MemberReport::new(p, id(ensemble, p), self.verdict(p));
        self.pods.iter().map(report).collect()
    }

    /// What the operator does about the observers once the voters are `Ready`, and the phase while the
    /// observers are incomplete. `voters` is the voters' phase.
    pub fn doing(&self, view: &View<'_>, voters: Phase) -> Option<(Option<Phase>, String)> {
        if voters != Phase::Ready {
            return None;
        }
        let serving = self.pods.iter().filter(|p| p.serves()).count();
        if self.is_complete() {
            let sentence = || match serving {
                1 => (None, "1 observer serves.".to_owned()),
                _ => (None, format!("{serving} observers serve.")),
            };
            return (self.wanted > 0).then(sentence);
        }
        let doing = match &self.choice {
            Choice::Restart(pod, _, reason) => format!("Restarting {}: {reason}.", pod.name),
            Choice::Wait(on) => format!("Waiting for {on}."),
            Choice::Blocked(trouble) => format!("{}.", trouble.message),
            Choice::Nothing => self.away(),
        };
        let sentence = format!("{serving} of {} observers serve. {doing}", self.wanted);
        Some((Some(self.phase(view)), sentence.trim_end().to_owned()))
    }

    /// What is being done to observers that are not as they should be.
    fn phase(&self, view: &View<'_>) -> Phase {
        let is_new = |p: &PodObservation| view.now.duration_since(p.created) < START_TIME;
        let missing = self.pods.len() < usize::from(self.wanted);
        if self.pods.len() > usize::from(self.wanted) {
            Phase::Shrinking
        } else if self.outdated > 0 {
            Phase::Rolling
        } else if missing || self.pods.iter().all(|p| p.serves() || is_new(p)) {
            Phase::Growing
        } else {
            Phase::Recovering
        }
    }

    fn away(&self) -> String {
        let away: Vec<String> = self
            .pods
            .iter()
            .filter(|p| !p.serves())
            .map(|p| match &p.server {
                _ if p.terminating => format!("{} is being deleted", p.name),
                ServerReport::Looking => format!("{} looks for a leader", p.name),
                _ => format!("{} does not answer", p.name),
            })
            .collect();
        if away.is_empty() {
            String::new()
        } else {
            format!("{}.", away.join(", "))
        }
    }

    /// What is wrong with them.
    pub fn trouble(&self, view: &View<'_>) -> Option<Trouble> {
        if let Some(failing) = self.pods.iter().find_map(|p| failing(p)) {
            return Some(failing);
        }
        let late = self.pods.iter().find(|p| {
            !p.serves() && !p.ready && view.now.duration_since(p.created) >= START_TIME
        })?;
        (view.leader.is_some()).then(|| Trouble {
            reason: Reason::MemberDown,
            message: format!(
                "Observer {} does not serve. The voters do not need it, and a change waits for it for \
                 a few minutes at most. Clients that read from it do need it: see its pod's events and \
                 log.",
                late.name
            ),
        })
    }

    fn verdict(&self, pod: &PodObservation) -> Verdict {
        match &self.choice {
            Choice::Restart(next, _, reason) if next.uid == pod.uid => {
                Verdict::Restart(reason.clone())
            }
            _ if pod.ordinal >= self.wanted => Verdict::Waiting(WaitingOn::Leave),
            Choice::Wait(on) if self.changing => Verdict::Waiting(on.clone()),
            _ if pod.terminating => Verdict::Waiting(WaitingOn::Deletion(pod.name.clone())),
            _ if pod.serves() => Verdict::UpToDate,
            _ if pod.answers() => Verdict::Waiting(WaitingOn::Join(pod.name.clone())),
            _ => Verdict::Waiting(WaitingOn::Start(pod.name.clone())),
        }
    }
}

fn id(ensemble: &ValidEnsemble, pod: &PodObservation) -> ServerId {
    ServerId::of_observer(pod.ordinal, ensemble.id_offset)
}

fn failing(pod: &PodObservation) -> Option<Trouble> {
    let PodState::Failing { reason, message } = &pod.state else {
        let beside = beside(pod)?;
        return Some(Trouble {
            message: format!("{} No voter is restarted until it runs", beside.message),
            ..beside
        });
    };
    let said = if message.is_empty() {
        String::new()
    } else {
        format!(" ({message})")
    };
    Some(Trouble {
        reason: Reason::PodFailing,
        message: format!(
            "Observer {} cannot run: {reason}{said}. No voter is restarted until it runs; correct \
             or revert the spec, or ask for fewer observers",
            pod.name
        ),
    })
}

#[cfg(test)]
#[path = "observers/report_tests.rs"]
mod report_tests;
#[cfg(test)]
#[path = "observers/tests.rs"]
mod tests;
