//! The loss of a majority of the voters' disks: which disks are lost, and what a person decided about it.
//!
//! An empty member does not vote, so no leader can be elected, and the operator does nothing by itself:
//! acknowledged writes may have been on the lost disks only. A person may accept the loss with an annotation
//! that carries the token in the status. The token identifies this loss by the members, their claims, and the
//! epochs of those that still have data; so an annotation that stays in a manifest does not accept another
//! loss.
//!
//! Then only as many empty members may vote as a majority lacks. Every quorum then needs every member that
//! still has data, and the newest of these leads: an empty member's vote is of epoch 0 and zxid 0
//! (`FastLeaderElection.totalOrderPredicate` compares the epoch, then the zxid, then the server id), and a
//! server with data has served in epoch 1 at least.

use bellwether_api::ensemble::Phase;
use bellwether_api::ensemble::status::Reason;
use bellwether_api::labels;
use jiff::Timestamp;
use serde_json::json;

use super::report::START_TIME;
use super::trouble::Trouble;
use super::view::{Member, View};
use super::{Expect, Step};
use crate::desired::{pod_name, short_hash};
use crate::ids::{ServerId, Voters};
use crate::observation::{Acceptance, BootstrapPermission, Observation, PodState};
use crate::safety::{holds_majority, majority, may_restart_idle};
use crate::validate::{AcceptRequest, ValidEnsemble};

/// What there is to record, to permit, to say and to do.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// The last loss that was accepted, which stays on record.
    pub acceptance: Option<Acceptance>,
    /// Whether it was accepted just now.
    pub is_new: bool,
    /// Who may start with an empty disk and vote.
    pub permit: Option<Voters>,
    /// What a person has to know.
    pub trouble: Option<Trouble>,
    /// The restart of an empty member whose permission came after its start: a member reads it only at its
    /// start.
    pub step: Option<Step>,
}

impl Decision {
    /// `Recovering` while the operator carries out an accepted loss; otherwise `Blocked`, since a person has to
    /// act.
    pub fn phase(&self) -> Phase {
        let reason = self.trouble.as_ref().map(|trouble| trouble.reason);
        let goes_on = self.acceptance.as_ref().is_some_and(|a| !a.over);
        match goes_on && reason == Some(Reason::DataLossAccepted) {
            true => Phase::Recovering,
            false => Phase::Blocked,
        }
    }
}

/// The state of the disks.
enum State {
    /// Members serve.
    Serving,
    /// Enough members have a disk, as far as is known.
    Enough,
    /// No judgement: two lists are live, or members start for the first time.
    Unclear,
    /// A majority is empty.
    Lost(Loss),
}

struct Loss {
    /// The empty members.
    empty: Voters,
    /// The others.
    rest: Voters,
    /// Those of the others that do not say what is on their disks.
    silent: Voters,
}

/// Decides.
pub fn decide(ensemble: &ValidEnsemble, observation: &Observation, view: &View<'_>) -> Decision {
    let recorded = recorded(observation);
    let loss = match judge(recorded, view) {
        State::Lost(loss) => loss,
        state => {
            // An acceptance ends when it is no longer needed; the next loss needs another one.
            let over = matches!(state, State::Serving | State::Enough);
            let close = |a: &Acceptance| Acceptance {
                over: a.over || over,
                ..a.clone()
            };
            return Decision {
                acceptance: recorded.map(close),
                ..Default::default()
            };
        }
    };
    if let Some(accepted) = recorded.filter(|a| !a.over && a.lost == loss.empty) {
        return carry_out(observation, view, &loss, accepted.clone(), false);
    }
    let token = token(ensemble, observation, view, &loss);
    let asked = ensemble.accept_data_loss.as_ref();
    let accepts = |r: &&AcceptRequest| r.token == token && loss.silent.is_empty();
    if let Some(request) = asked.filter(accepts).filter(|_| !ensemble.paused) {
        let accepted = Acceptance {
            token,
            at: observation.now,
            by: request.by.clone(),
            members: permitted(recorded, view, &loss),
            lost: loss.empty.clone(),
            over: false,
        };
        return carry_out(observation, view, &loss, accepted, true);
    }
    let asked = asked.map(|r| r.token.as_str());
    Decision {
        acceptance: recorded.cloned(),
        trouble: Some(Trouble {
            reason: Reason::DisksLost,
            message: message(ensemble, observation, view, &loss, &token, asked),
        }),
        ..Default::default()
    }
}

fn recorded(observation: &Observation) -> Option<&Acceptance> {
    observation.bootstrap.as_ref()?.acceptance.as_ref()
}

fn judge(recorded: Option<&Acceptance>, view: &View<'_>) -> State {
    if !view.serving.is_empty() {
        return State::Serving;
    }
    let open = recorded.filter(|a| !a.over);
    if view.live.len() > 1 || view.template.initialize.is_some() {
        return State::Unclear;
    }
    if view.may_initialize && open.is_none() {
        return State::Unclear;
    }
    let voters = &view.template.voters;
    let report = |id: ServerId| view.members.get(&id)?.pod.volumes.as_ref();
    // Nothing was written since the loss was accepted, so a member that was empty then is empty now, even if it
    // is restarting or made an empty database, as permitted.
    let was = |id: ServerId| open.is_some_and(|a| a.lost.contains(id));
    let may = |id: ServerId| open.is_some_and(|a| a.members.contains(id));
    let is_empty = |id: &ServerId| match report(*id) {
        Some(report) => !report.has_database || may(*id),
        None => was(*id),
    };
    let empty: Voters = voters.iter().filter(is_empty).collect();
    let rest = voters.difference(&empty);
    if empty.is_empty() || holds_majority(&rest, voters) {
        return State::Enough;
    }
    let silent = rest.iter().filter(|id| report(*id).is_none()).collect();
    State::Lost(Loss {
        empty,
        rest,
        silent,
    })
}

/// As many of the empty members as a majority lacks. Members that were permitted before come first, since they
/// may vote already; then the lowest server ids.
fn permitted(recorded: Option<&Acceptance>, view: &View<'_>, loss: &Loss) -> Voters {
    let needed = majority(&view.template.voters).saturating_sub(loss.rest.len());
    let open = recorded.filter(|a| !a.over);
    let before = open.map(|a| a.members.intersection(&loss.empty));
    let before = before.unwrap_or_default();
    let others = loss.empty.difference(&before);
    before.iter().chain(others.iter()).take(needed).collect()
}

/// The token, which identifies this loss and no other.
fn token(
    ensemble: &ValidEnsemble,
    observation: &Observation,
    view: &View<'_>,
    loss: &Loss,
) -> String {
    let claim = |id: ServerId| {
        let ordinal = view.ordinal(id);
        let mut all = observation.claims.iter();
        all.find(|c| c.ordinal == ordinal).map(|c| c.uid.as_str())
    };
    let empty: Vec<_> = loss.empty.iter().map(|id| (id.0, claim(id))).collect();
    let rest: Vec<_> = loss.rest.iter().map(|id| (id.0, epoch(view, id))).collect();
    let before = recorded(observation).map(|a| (&a.token, a.at.as_second()));
    let hash = short_hash(&json!([
        ensemble.uid,
        view.template.voters.to_string(),
        empty,
        rest,
        before
    ]));
    format!("{}-{hash}", loss.empty.to_string().replace(',', "-"))
}

/// The epoch that a member last served in, as its disk says.
fn epoch(view: &View<'_>, id: ServerId) -> Option<u64> {
    view.members.get(&id)?.pod.volumes.as_ref()?.current_epoch
}

fn carry_out(
    observation: &Observation,
    view: &View<'_>,
    loss: &Loss,
    acceptance: Acceptance,
    is_new: bool,
) -> Decision {
    // A member that has a database needs no permission any more. A running member that reports no volumes gets
    // none: it may serve without the operator seeing it.
    let waits = |id: ServerId| match view.members.get(&id) {
        None => true,
        Some(m) => match (&m.pod.volumes, &m.pod.state) {
            (Some(report), _) => !report.has_database,
            (None, state) => m.pod.terminating || !matches!(state, PodState::Running),
        },
    };
    let pending = acceptance.members.iter().any(waits);
    let by = acceptance.by.as_ref();
    let names = |ids: &Voters| names(view, ids);
    let trouble = Trouble {
        reason: Reason::DataLossAccepted,
        message: format!(
            "The loss of the disks of {} was accepted at {}{} with the token {}. {}; {}.",
            names(&acceptance.lost),
            acceptance.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            by.map_or_else(String::new, |by| format!(" through {by}")),
            acceptance.token,
            start_empty(view, &acceptance.members),
            if loss.rest.is_empty() {
                "no member has data, so the ensemble begins anew".to_owned()
            } else {
                format!("the newest of {} is to lead", survivors(view, loss))
            },
        ),
    };
    let bootstrap = observation.bootstrap.as_ref();
    Decision {
        step: bootstrap.and_then(|b| tell(b, view, &acceptance)),
        permit: pending.then(|| acceptance.members.clone()),
        acceptance: Some(acceptance),
        is_new,
        trouble: Some(trouble),
    }
}

/// Restarts a permitted member that waits without a vote, since it started before it was permitted. A kubelet
/// may show a new pod the earlier permission, so a member that still waits after `START_TIME` restarts again.
fn tell(written: &BootstrapPermission, view: &View<'_>, acceptance: &Acceptance) -> Option<Step> {
    let open = written.initialize.as_ref() == Some(&acceptance.members)
        && written.until.is_some_and(|until| until > view.now);
    let waits = |m: &&Member<'_>| {
        let old = |created: Timestamp| {
            created <= acceptance.at || view.now.duration_since(created) >= START_TIME
        };
        acceptance.members.contains(m.id)
            && m.pod.volumes.as_ref().is_some_and(|r| !r.has_database)
            && matches!(m.pod.state, PodState::Running)
            && m.is_idle()
            && may_restart_idle(m.id, &view.serving).is_ok()
            && !m.pod.terminating
            && old(m.pod.created)
    };
    let member = view.members.values().find(waits).filter(|_| open)?;
    Some(Step::RestartMember {
        pod: member.pod.name.clone(),
        uid: member.pod.uid.clone(),
        resource_version: member.pod.resource_version.clone(),
        id: member.id,
        expect: Expect::Idle,
        reason: "its disk is empty, and the accepted loss lets it start with a vote".to_owned(),
    })
}

fn message(
    ensemble: &ValidEnsemble,
    observation: &Observation,
    view: &View<'_>,
    loss: &Loss,
    token: &str,
    asked: Option<&str>,
) -> String {
    let voters = &view.template.voters;
    let annotation = labels::ACCEPT_DATA_LOSS;
    let survivors = if loss.rest.is_empty() {
        "No other member has data".to_owned()
    } else {
        format!("{} still have theirs", survivors(view, loss))
    };
    let known = observation.bootstrap.as_ref().map(|b| &b.epochs);
    let newest = known.and_then(|e| e.values().max().copied());
    let left = loss.rest.iter().filter_map(|id| epoch(view, id)).max();
    let older = match newest {
        Some(newest) if left < Some(newest) => {
            format!(" Members served in epoch {newest}, of which nothing is left.")
        }
        _ => String::new(),
    };
    let way = if loss.silent.is_empty() {
        let empty = permitted(recorded(observation), view, loss);
        format!(
            "accept the loss: kubectl annotate zke {} {annotation}={token}. Then {}",
            ensemble.name,
            start_empty(view, &empty)
        )
    } else {
        format!(
            "wait: the loss can be accepted when {}",
            match loss.silent.len() {
                1 => format!("{} reports what is on its disk", names(view, &loss.silent)),
                _ => format!(
                    "{} report what is on their disks",
                    names(view, &loss.silent)
                ),
            }
        )
    };
    let wrong = asked.map_or_else(String::new, |asked| {
        if asked == token {
            return format!(" The annotation {annotation} names this loss.");
        }
        let asked: String = asked.chars().take(40).collect();
        format!(" The annotation {annotation} says {asked:?}, which accepts nothing of this.")
    });
    format!(
        "No leader can be elected: the disks of {} are empty, and an empty member does not vote. \
         {survivors}; {} of {} are needed.{older} Writes that only the empty members had acknowledged \
         are gone with their disks. Nothing is decided without a person: bring the lost volumes back, \
         or {way}.{wrong}",
        names(view, &loss.empty),
        majority(voters),
        voters.len(),
    )
}

fn survivors(view: &View<'_>, loss: &Loss) -> String {
    let one = |id: ServerId| {
        let epoch = epoch(view, id).map_or_else(|| "unknown".to_owned(), |e| e.to_string());
        format!("{} (epoch {epoch})", name(view, id))
    };
    loss.rest.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn names(view: &View<'_>, ids: &Voters) -> String {
    let all: Vec<String> = ids.iter().map(|id| name(view, id)).collect();
    all.join(", ")
}

fn start_empty(view: &View<'_>, ids: &Voters) -> String {
    let verbs = match ids.len() {
        1 => "starts empty and votes",
        _ => "start empty and vote",
    };
    format!("{} {verbs}", names(view, ids))
}

fn name(view: &View<'_>, id: ServerId) -> String {
    pod_name(view.ensemble, view.ordinal(id))
}

#[cfg(test)]
#[path = "loss/tests.rs"]
mod tests;
