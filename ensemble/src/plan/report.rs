//! What the plan says to people: one value that the status, the events, the logs and the golden
//! tests all render.

mod sentences;

use std::collections::BTreeMap;

use bellwether_api::ensemble::status::Reason;
use bellwether_api::ensemble::{MemberRole, Phase};

use crate::creation;
use crate::ids::{ServerId, Voters};
use crate::observation::{Acceptance, PodObservation, Revision};
use crate::plan::Step;
use crate::plan::growth::Growth;
use crate::plan::loss::Decision;
use crate::plan::membership::Change;
use crate::plan::observers::ObserverPlan;
use crate::plan::roll::Roll;
use crate::plan::split;
use crate::plan::trouble::{Trouble, trouble, unreachable};
use crate::plan::verdict::{Verdict, WaitingOn};
use crate::plan::view::{Member, View};
use crate::safety::holds_majority;
use crate::validate::ValidEnsemble;
use jiff::SignedDuration;

pub(crate) use sentences::serve;
use sentences::{away, sentence};

/// Whether clients can read and write, as far as the operator knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// One member leads.
    Serving,
    /// More than one member reports that it leads.
    TwoLeaders,
    /// No member leads.
    NoQuorum,
    /// No leader answers. But members that Kubernetes counts as ready do not answer the operator, and could be a
    /// majority.
    Unknown,
}

/// One member in the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// Its pod.
    pub pod: String,
    /// Its server id.
    pub id: ServerId,
    /// Its role.
    pub role: MemberRole,
    /// The last transaction that it saw.
    pub zxid: Option<u64>,
    /// The configuration revision that it runs.
    pub revision: Option<String>,
    /// Its node.
    pub node: Option<String>,
    /// Whether Kubernetes counts its pod as ready, and a Service sends clients to it.
    pub ready: bool,
    /// The verdict.
    pub verdict: Verdict,
}

impl MemberReport {
    /// What was seen of a pod, with the verdict on it.
    pub fn new(pod: &PodObservation, id: ServerId, verdict: Verdict) -> Self {
        Self {
            pod: pod.name.clone(),
            id,
            role: pod.server.role(),
            zxid: pod.server.zxid(),
            revision: pod.revision.as_ref().map(|r| r.name.clone()),
            node: pod.node.clone(),
            ready: pod.ready,
            verdict,
        }
    }
}

/// The whole report on an ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the operator is doing.
    pub phase: Phase,
    /// What is the case and what happens next.
    pub message: String,
    /// Every voter, by server id; and members that are about to leave.
    pub members: Vec<MemberReport>,
    /// How many members have no pod yet.
    pub missing: usize,
    /// Every observer, by server id.
    pub observers: Vec<MemberReport>,
    /// How many observers the spec asks for.
    pub observers_wanted: u16,
    /// The revision that new pods get.
    pub revision: Option<Revision>,
    /// Whether every member that does not serve is on its way: its pod is being replaced, or is new.
    pub on_their_way: bool,
    /// The change that is under way.
    pub change: Option<ChangeReport>,
    /// What a person has to know or act on, the gravest first.
    pub troubles: Vec<Trouble>,
    /// Volumes that are growing, in words.
    pub growing: Option<String>,
    /// The last loss of data that a person accepted.
    pub accepted: Option<Acceptance>,
}

/// A change of size or a roll, as far as it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeReport {
    /// The list that the present step of a size change leaves.
    pub from: Option<Voters>,
    /// The list that it brings to every member.
    pub to: Voters,
    /// The pod that restarts now.
    pub restarting: Option<String>,
    /// What the next restart or step waits for.
    pub waiting: Option<WaitingOn>,
}

impl Report {
    /// A report without members.
    pub fn new(phase: Phase, message: String) -> Self {
        Self {
            phase,
            message,
            members: Vec::new(),
            missing: 0,
            observers: Vec::new(),
            observers_wanted: 0,
            revision: None,
            on_their_way: false,
            change: None,
            troubles: Vec::new(),
            growing: None,
            accepted: None,
        }
    }

    /// The voters that say that they lead: one, if all is well.
    pub fn leading(&self) -> Vec<&MemberReport> {
        let leads = |m: &&MemberReport| m.role == MemberRole::Leader;
        self.members.iter().filter(leads).collect()
    }

    /// The one that leads; `None` also when two say so.
    pub fn leader(&self) -> Option<&MemberReport> {
        match self.leading().as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Whether clients can read and write.
    pub fn availability(&self) -> Availability {
        let ids = |chosen: fn(&MemberReport) -> bool| -> Voters {
            let members = self.members.iter().filter(|m| chosen(m));
            members.map(|m| m.id).collect()
        };
        match self.leading().len() {
            0 => {}
            1 => return Availability::Serving,
            _ => return Availability::TwoLeaders,
        }
        let unseen = ids(|m| m.role == MemberRole::Down && m.ready);
        let serving = ids(|m| m.role.serves());
        let list = self.revision.as_ref().map(|revision| &revision.voters);
        let majority = |list| holds_majority(&serving.union(&unseen), list);
        match !unseen.is_empty() && list.is_some_and(majority) {
            true => Availability::Unknown,
            false => Availability::NoQuorum,
        }
    }

    /// All troubles in one: the gravest gives the reason.
    pub fn trouble(&self) -> Option<Trouble> {
        Trouble::all(self.troubles.iter().cloned())
    }

    /// Whether the operator may rest on the plan: what the report says then changes only with an object or with what
    /// a leader tells. A volume that is nearly full gets room without either.
    pub fn may_rest(&self) -> bool {
        let is_full = |t: &Trouble| t.reason == Reason::VolumeNearlyFull;
        self.phase == Phase::Ready && !self.troubles.iter().any(is_full)
    }

    /// A report of trouble that keeps the operator from going on.
    pub fn of_trouble(phase: Phase, trouble: Trouble) -> Self {
        Self {
            message: trouble.message.clone(),
            troubles: vec![trouble],
            ..Self::new(phase, String::new())
        }
    }

    /// Says that nothing is carried out.
    pub fn pause(&mut self) {
        let would = if self.phase == Phase::Ready {
            "Nothing is to be done.".to_owned()
        } else {
            format!("When it goes on: {}", self.message)
        };
        self.message = format!("Paused by the spec: nothing is changed or restarted. {would}");
        self.phase = Phase::Paused;
        for member in self.members.iter_mut().chain(&mut self.observers) {
            if matches!(member.verdict, Verdict::Restart(_)) {
                let what = "the pause to end".to_owned();
                member.verdict = Verdict::Waiting(WaitingOn::Other(what));
            }
        }
    }
}

/// The observations of a running ensemble and the decisions about it: the report contains all of them.
#[derive(Clone, Copy)]
pub struct Findings<'a> {
    /// What is asked for.
    pub ensemble: &'a ValidEnsemble,
    /// What was observed.
    pub view: &'a View<'a>,
    /// The server list and the number of pods.
    pub change: &'a Change,
    /// Who restarts, and what the others wait for.
    pub roll: &'a Roll,
    /// The revision that new pods get.
    pub revision: &'a Revision,
    /// Whether the StatefulSet does not have the wanted pod template yet.
    pub template_changes: bool,
    /// The observers.
    pub observers: &'a ObserverPlan<'a>,
    /// Whether somebody else changed the pod template of a StatefulSet.
    pub edited: bool,
    /// Pods that Kubernetes refuses to create, and why.
    pub refused: &'a BTreeMap<String, String>,
    /// What becomes of the volumes' sizes.
    pub growth: &'a Growth,
    /// Volumes that have little room left.
    pub full: Option<&'a Trouble>,
    /// A member that is to be replaced and is not yet.
    pub replacement: Option<&'a Trouble>,
    /// The members' certificate, if it ends soon.
    pub expiring: Option<&'a Trouble>,
    /// The certificate for clients, if cert-manager does not make it.
    pub not_issued: Option<&'a Trouble>,
    /// A majority of disks that is lost, and what a person decided.
    pub loss: &'a Decision,
    /// What is done now.
    pub step: Option<&'a Step>,
}

/// Makes the report of a running ensemble.
pub fn compose(found: Findings<'_>) -> Report {
    let Findings { view, loss, .. } = found;
    let wanted = Voters::first(found.ensemble.size, found.ensemble.id_offset);
    let base = phase(&found, &wanted);
    let waits = found.roll.step.is_none() && step_waits(view, found.change, &wanted);
    let members = members_troubles(&found, waits || base == Phase::Recovering);
    let refused = creation::trouble(found.refused);
    let others = [
        found.observers.trouble(view),
        refused.clone(),
        found.edited.then(edited),
        found.growth.trouble.clone(),
        found.full.cloned(),
        found.replacement.cloned(),
        found.expiring.cloned(),
        found.not_issued.cloned(),
    ];
    let observing = found.observers.doing(view, base);
    let phase = observing.as_ref().and_then(|(phase, _)| *phase);
    let phase = phase.unwrap_or(base);
    let growing = &found.growth.under_way;
    let deletion = match found.step {
        Some(Step::DeleteClaim { claim, reason, .. }) => {
            Some(format!("Deleting volume claim {claim}: {reason}."))
        }
        Some(Step::Replace { id, reason, .. }) => Some(format!("Replacing server {id}: {reason}.")),
        _ => None,
    };
    let sentences = [
        Some(sentence(&found, &members, base, waits, &wanted)),
        observing.map(|(_, sentence)| sentence),
        refused.map(|refused| refused.message),
        growing.clone().filter(|_| phase == Phase::Ready),
        deletion,
    ];
    let sentences: Vec<String> = sentences.into_iter().flatten().collect();
    let of_member = |member: &Member<'_>| {
        let mut verdicts = found.roll.verdicts.iter();
        let verdict = verdicts.find(|(id, _)| *id == member.id);
        let verdict = verdict.map_or(Verdict::UpToDate, |(_, verdict)| verdict.clone());
        MemberReport::new(member.pod, member.id, verdict)
    };
    let report = Report {
        phase,
        message: sentences.join(" ").trim().to_owned(),
        members: view.members.values().map(of_member).collect(),
        missing: view.missing.len(),
        observers: found.observers.members(found.ensemble),
        observers_wanted: found.observers.wanted(),
        revision: Some(found.revision.clone()),
        on_their_way: view
            .members
            .values()
            .all(|m| m.serves() || m.pod.terminating || is_new(view, m)),
        change: change_of(&found, phase),
        troubles: members
            .into_iter()
            .chain(others.into_iter().flatten())
            .collect(),
        growing: growing.clone(),
        accepted: loss.acceptance.clone(),
    };
    match &loss.trouble {
        Some(trouble) => Report {
            phase: loss.phase(),
            message: trouble.message.clone(),
            ..report
        },
        None => report,
    }
}

fn change_of(found: &Findings<'_>, phase: Phase) -> Option<ChangeReport> {
    let changes = [
        Phase::Growing,
        Phase::Shrinking,
        Phase::Rolling,
        Phase::Blocked,
    ];
    let view = found.view;
    let wanted = Voters::first(found.ensemble.size, found.ensemble.id_offset);
    let next = match view.lists {
        Some(_) => &wanted,
        None => &found.change.voters,
    };
    let to = found.change.begins.as_ref().unwrap_or(next);
    let from = view.live.iter().find(|list| **list != to);
    let rolls = view.members.values().any(|member| member.outdated);
    if !changes.contains(&phase) || !(rolls || from.is_some() || found.template_changes) {
        return None;
    }
    Some(ChangeReport {
        from: from.map(|list| (*list).clone()),
        to: to.clone(),
        restarting: match found.step {
            Some(Step::RestartMember { pod, .. }) => Some(pod.clone()),
            _ => None,
        },
        waiting: found.roll.waiting.clone(),
    })
}

/// What is wrong with members, the gravest first. The loss of a majority of disks explains the rest.
fn members_troubles(found: &Findings<'_>, idle: bool) -> Vec<Trouble> {
    if let Some(loss) = &found.loss.trouble {
        return vec![loss.clone()];
    }
    let view = found.view;
    let graver = split::leaders(view).into_iter().chain(unreachable(view));
    match &found.roll.trouble {
        Some(trouble) => graver.chain([trouble.clone()]).collect(),
        None => graver.chain(trouble(view, idle)).collect(),
    }
}

fn edited() -> Trouble {
    Trouble {
        reason: Reason::TemplateEdited,
        message:
            "Somebody else changed the pod template of a StatefulSet of this ensemble. It is put \
                  back, and no member is restarted into it; change the ZooKeeperEnsemble instead."
                .to_owned(),
    }
}

/// The phase. Members that match an old pod template must not count as ready.
fn phase(found: &Findings<'_>, wanted: &Voters) -> Phase {
    let Findings {
        view, change, roll, ..
    } = *found;
    if roll.trouble.is_some() {
        return Phase::Blocked;
    }
    if view.may_initialize && view.template.initialize.is_none() && !view.is_finished() {
        return Phase::Starting;
    }
    let live = &view.live;
    let sizes = || {
        live.iter()
            .map(|v| v.len())
            .chain([change.voters.len(), wanted.len()])
    };
    let moving = live.len() > 1
        || change.voters != *wanted
        || view.template.voters != change.voters
        || view.members.len() > wanted.len();
    if moving {
        let from = sizes()
            .find(|s| *s != wanted.len())
            .unwrap_or(view.members.len());
        return if from < wanted.len() {
            Phase::Growing
        } else {
            Phase::Shrinking
        };
    }
    if found.template_changes || view.members.values().any(|m| m.outdated) {
        return Phase::Rolling;
    }
    if view.is_finished() {
        return Phase::Ready;
    }
    Phase::Recovering
}

/// Whether the next step of a size change does not begin because a member is away.
fn step_waits(view: &View<'_>, change: &Change, wanted: &Voters) -> bool {
    view.template.voters != *wanted
        && view.lists.is_none()
        && change.voters == view.template.voters
        && change.begins.is_none()
        && view.live.len() == 1
        && !view.may_initialize
        && !away(view).is_empty()
}

/// How long a new pod may take to serve before the operator warns.
pub(crate) const START_TIME: SignedDuration = SignedDuration::from_secs(60);

pub(crate) fn is_new(view: &View<'_>, member: &Member<'_>) -> bool {
    view.now.duration_since(member.pod.created) < START_TIME
}

#[cfg(test)]
#[path = "report/tests.rs"]
mod tests;
