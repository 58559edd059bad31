//! The content of the bootstrap ConfigMap: which members may start with an empty disk and a vote, and the epoch
//! below which a member's disk is too old.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::loss;
use super::membership::Change;
use super::view::View;
use crate::ids::{ServerId, Voters};
use crate::observation::{Acceptance, BootstrapPermission, Observation, PodObservation};
use crate::rules::Rule;
use crate::safety::may_start_empty;

/// How long a permission to start with an empty disk holds without being renewed. If the operator
/// dies while it is open, a disk that is lost later must not be taken for a new one.
pub const PERMISSION: SignedDuration = SignedDuration::from_mins(10);

/// The permission to start with an empty disk and a vote.
///
/// The permission of a new ensemble ends for good when a member or a readiness probe reports that the ensemble
/// serves, or when it expires. The operator does not renew it while a running server does not answer: the
/// ensemble may serve without the operator seeing it. The newcomer in the step from one member to two has the
/// permission until that step is finished: while the lists {1} and {1,2} are live, nothing can be decided
/// without member 1 and its data. No other step begins before the permission is closed, because under the next
/// list members 2 and 3 decide alone, and a disk of member 2 that was lost and initialized again would outvote
/// member 1. The third permission is that of a loss that a person accepted.
pub fn permission(
    observation: &Observation,
    view: &View<'_>,
    change: &Change,
    loss: &loss::Decision,
) -> BootstrapPermission {
    let members = view.members.values();
    let ready = members.filter(|m| m.pod.ready && view.rules.keep(Rule::PermissionEnds));
    let ready: Voters = ready.map(|m| m.id).collect();
    let first = observation
        .bootstrap
        .as_ref()
        .and_then(|b| match view.rules.keep(Rule::PermissionEnds) {
            true => b.first_start(observation.now),
            false => b.initialize.as_ref(),
        })
        .filter(|_| may_start_empty(&view.serving, &ready));
    let stepping = change.voters != view.template.voters || !view.is_finished();
    let newcomer = change
        .initialize
        .filter(|_| stepping && view.live.iter().all(|voters| voters.len() <= 2))
        .map(|id| Voters::from_iter([id]));
    let permission = match newcomer.or(loss.permit.clone()).or(first.cloned()) {
        Some(initialize) => open_permission(observation, initialize),
        None => BootstrapPermission::default(),
    };
    BootstrapPermission {
        epochs: epochs(observation, view, loss.acceptance.as_ref()),
        acceptance: loss.acceptance.clone(),
        ..permission
    }
}

/// The highest epoch that each voter was seen serving in. Only an election changes it, so the operator writes
/// nothing for an idle ensemble. Former members have no entry, because they may return with an old disk;
/// members whose loss is accepted have none, because they return with an empty disk.
fn epochs(
    observation: &Observation,
    view: &View<'_>,
    acceptance: Option<&Acceptance>,
) -> BTreeMap<ServerId, u64> {
    let mut epochs = recorded_epochs(observation);
    for member in view
        .members
        .values()
        .filter(|m| view.serving.contains(m.id))
    {
        let on_disk = member.pod.volumes.as_ref().and_then(|v| v.current_epoch);
        let seen = member.pod.server.zxid().map(|z| z >> 32).max(on_disk);
        let epoch = epochs.entry(member.id).or_default();
        *epoch = seen.unwrap_or_default().max(*epoch);
    }
    let votes = |id: &ServerId| view.live.iter().any(|voters| voters.contains(*id));
    let lost = |id: ServerId| acceptance.is_some_and(|a| !a.over && a.lost.contains(id));
    epochs.retain(|id, epoch| *epoch > 0 && votes(id) && !lost(*id));
    epochs
}

fn recorded_epochs(observation: &Observation) -> BTreeMap<ServerId, u64> {
    let map = observation.bootstrap.as_ref();
    map.map(|b| b.epochs.clone()).unwrap_or_default()
}

/// The bootstrap content with this permission open for a limited time; all other fields stay.
pub fn open_permission(observation: &Observation, initialize: Voters) -> BootstrapPermission {
    let now = observation.now;
    let written = observation.bootstrap.as_ref();
    let same = written.filter(|b| b.initialize.as_ref() == Some(&initialize));
    let silent = observation.pods.iter().any(PodObservation::is_silent);
    let until = match same.and_then(|b| b.until) {
        Some(until) if silent || until.duration_since(now) >= PERMISSION / 2 => until,
        _ => now + PERMISSION,
    };
    BootstrapPermission {
        initialize: Some(initialize),
        until: Some(until),
        ..closed(observation)
    }
}

/// The bootstrap content without a permission to start with an empty disk and a vote; all other fields stay.
pub fn closed(observation: &Observation) -> BootstrapPermission {
    BootstrapPermission {
        initialize: None,
        until: None,
        ..observation.bootstrap.clone().unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "permission/tests.rs"]
mod tests;
