//! What the plan says to people: one value that the status, the events, the logs and the golden
//! tests all render.

use bellwether_api::ensemble::status::Reason;
use bellwether_api::ensemble::{MemberRole, Phase};

use crate::desired::pod_name;
use crate::ids::{ServerId, Voters};
use crate::observation::{Acceptance, PodObservation, Revision, ServerReport};
use crate::plan::Step;
use crate::plan::loss::Decision;
use crate::plan::membership::Change;
use crate::plan::roll::Roll;
use crate::plan::split;
use crate::plan::trouble::{Trouble, trouble, unreachable};
use crate::plan::verdict::{Verdict, WaitingOn};
use crate::plan::view::{Member, View};
use crate::safety::holds_majority;
use crate::validate::ValidEnsemble;
use jiff::SignedDuration;

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

/// The whole.
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
    /// How many observers there are to be.
    pub observers_wanted: u16,
    /// The revision that new pods get.
    pub revision: Option<Revision>,
    /// Whether every member that does not serve is on its way: its pod is being replaced, or is new.
    pub on_their_way: bool,
    /// What a person has to know.
    pub trouble: Option<Trouble>,
    /// Volumes that are growing, in words.
    pub growing: Option<String>,
    /// The last loss of data that a person accepted.
    pub accepted: Option<Acceptance>,
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
            trouble: None,
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

    /// Adds what is to be said of volumes. Trouble with members comes first: it hurts already.
    pub fn volumes(&mut self, growing: Option<String>, troubles: impl Iterator<Item = Trouble>) {
        if let (Some(growing), Phase::Ready) = (&growing, self.phase) {
            self.message = format!("{} {growing}", self.message);
        }
        self.growing = growing;
        self.trouble = Trouble::all(self.trouble.take().into_iter().chain(troubles));
    }

    /// A report of trouble.
    pub fn trouble(phase: Phase, trouble: Trouble) -> Self {
        let message = trouble.message.clone();
        Self {
            trouble: Some(trouble),
            ..Self::new(phase, message)
        }
    }

    /// Says that a majority of the disks is lost: the operator cannot go on before a person acted, or
    /// a person did and it goes on.
    pub fn loss(&mut self, loss: &Decision) {
        self.accepted = loss.acceptance.clone();
        let Some(trouble) = &loss.trouble else { return };
        self.phase = match &loss.acceptance {
            Some(accepted) if !accepted.over && trouble.reason == Reason::DataLossAccepted => {
                Phase::Recovering
            }
            _ => Phase::Blocked,
        };
        self.message = trouble.message.clone();
        self.trouble = Some(trouble.clone());
    }

    /// Says that somebody else changed the pod template, which is put back.
    pub fn edited(&mut self) {
        let edited = Trouble {
            reason: Reason::TemplateEdited,
            message: "Somebody else changed the pod template of a StatefulSet of this ensemble. It is put \
                      back, and no member is restarted into it; change the ZooKeeperEnsemble instead."
                .to_owned(),
        };
        self.trouble = Trouble::all(self.trouble.take().into_iter().chain([edited]));
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

/// Makes the report of a running ensemble.
pub fn compose(
    ensemble: &ValidEnsemble,
    view: &View<'_>,
    change: &Change,
    roll: &Roll,
    revision: &Revision,
    template_changes: bool,
) -> Report {
    let members: Vec<MemberReport> = view
        .members
        .values()
        .map(|m| {
            let verdict = roll.verdicts.iter().find(|(id, _)| *id == m.id);
            MemberReport::new(
                m.pod,
                m.id,
                verdict.map_or(Verdict::UpToDate, |(_, v)| v.clone()),
            )
        })
        .collect();
    let wanted = Voters::first(ensemble.size, ensemble.id_offset);
    let phase = phase(view, change, roll, &wanted, template_changes);
    let waits = roll.step.is_none() && step_waits(view, change, &wanted);
    let trouble = roll
        .trouble
        .clone()
        .or_else(|| trouble(view, waits || phase == Phase::Recovering));
    let graver = split::leaders(view).into_iter().chain(unreachable(view));
    let trouble = Trouble::all(graver.chain(trouble));
    let message = match (&trouble, phase) {
        (Some(trouble), Phase::Blocked | Phase::Starting | Phase::Recovering) => {
            trouble.message.clone()
        }
        _ if waits => format!(
            "{} to {}: the next step begins when every member serves, and {}.",
            if wanted.len() > view.template.voters.len() {
                "Growing"
            } else {
                "Shrinking"
            },
            wanted.len(),
            away(view)
        ),
        _ => message(ensemble, view, change, roll, phase, &wanted),
    };
    Report {
        phase,
        message,
        members,
        missing: view.missing.len(),
        observers: Vec::new(),
        observers_wanted: 0,
        revision: Some(revision.clone()),
        on_their_way: view
            .members
            .values()
            .all(|m| m.serves() || m.pod.terminating || is_new(view, m)),
        trouble,
        growing: None,
        accepted: None,
    }
}

/// `template_changes` says that the StatefulSet does not have the wanted pod template yet: members
/// that are up to date with the old one must not pass for ready.
fn phase(
    view: &View<'_>,
    change: &Change,
    roll: &Roll,
    wanted: &Voters,
    template_changes: bool,
) -> Phase {
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
    if template_changes || view.members.values().any(|m| m.outdated) {
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
        && change.voters == view.template.voters
        && change.begins.is_none()
        && view.live.len() == 1
        && !view.may_initialize
        && !away(view).is_empty()
}

/// How long a new pod may take to serve before that is worth a person's attention.
pub(crate) const START_TIME: SignedDuration = SignedDuration::from_secs(60);

pub(crate) fn is_new(view: &View<'_>, member: &Member<'_>) -> bool {
    view.now.duration_since(member.pod.created) < START_TIME
}

/// How many members serve, and what the others do.
pub(crate) fn serve(view: &View<'_>) -> String {
    let (serving, all) = (view.serving.len(), view.template.voters.len());
    let away = away(view);
    let colon = if away.is_empty() { "" } else { ": " };
    format!("{serving} of {all} members serve{colon}{away}")
}

fn away(view: &View<'_>) -> String {
    let mut words: Vec<String> = view
        .missing
        .iter()
        .map(|o| format!("the pod with ordinal {o} does not exist yet"))
        .collect();
    let away = |m: &&Member<'_>| !m.serves() || m.pod.terminating;
    words.extend(view.members.values().filter(away).map(|m| {
        if let Some(why) = split::cannot_follow(view, m) {
            return why;
        }
        let what = match &m.pod.server {
            _ if m.pod.terminating => "is being deleted",
            ServerReport::Looking => "looks for a leader",
            _ => "does not answer yet",
        };
        format!("{} {what}", m.pod.name)
    }));
    words.join(", ")
}

fn message(
    ensemble: &ValidEnsemble,
    view: &View<'_>,
    change: &Change,
    roll: &Roll,
    phase: Phase,
    wanted: &Voters,
) -> String {
    let doing = match &roll.step {
        Some(Step::RestartMember { pod, reason, .. }) => format!("Restarting {pod}: {reason}."),
        // A roll has no other step.
        Some(Step::DeleteClaim { .. }) | None => waiting(roll),
    };
    let size = wanted.len();
    match phase {
        Phase::Ready => format!(
            "All {size} members serve; {} leads.",
            view.leader
                .map_or_else(String::new, |l| pod_name(&ensemble.name, view.ordinal(l)))
        ),
        Phase::Starting => format!(
            "{}. Members elect a leader when a majority is up.",
            serve(view)
        ),
        Phase::Recovering if view.leader.is_none() => format!(
            "No member leads: {}. Members elect a leader as soon as a majority can.",
            away(view)
        ),
        Phase::Recovering => format!("{}.", serve(view)),
        Phase::Growing | Phase::Shrinking => {
            let word = if phase == Phase::Growing {
                "Growing"
            } else {
                "Shrinking"
            };
            let next = change.begins.as_ref().unwrap_or(&change.voters);
            let step = if view.template.voters == *next {
                format!("the server list is {{{next}}}")
            } else {
                format!("the next server list is {{{next}}}")
            };
            format!("{word} to {size} in steps of one member; {step}. {doing}")
                .trim_end()
                .to_owned()
        }
        _ => doing,
    }
}

fn waiting(roll: &Roll) -> String {
    if let Some(on) = &roll.waiting {
        return format!("Waiting for {on}.");
    }
    roll.verdicts
        .iter()
        .find_map(|(_, verdict)| match verdict {
            Verdict::Waiting(WaitingOn::Leave) => None,
            Verdict::Waiting(on) => Some(format!("Waiting for {on}.")),
            _ => None,
        })
        .unwrap_or_default()
}

#[cfg(test)]
#[path = "report/tests.rs"]
mod tests;
