//! What the bootstrap ConfigMap has to say: who may start with an empty disk and a vote, and how old a
//! disk must not be.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::loss;
use super::membership::Change;
use super::view::View;
use crate::ids::{ServerId, Voters};
use crate::observation::{Acceptance, BootstrapPermission, Observation};

/// How long a permission to start with an empty disk holds without being renewed. If the operator
/// dies while it is open, a disk that is lost later must not be taken for a new one.
pub const PERMISSION: SignedDuration = SignedDuration::from_mins(10);

/// The permission to start with an empty disk and a vote.
///
/// The first one ends when the ensemble serves for the first time. The newcomer in the step from one
/// member to two has it until that step is finished: while the lists {1} and {1,2} are live, nothing
/// can be decided without member 1 and its data. No other step begins before it is closed, because
/// under the next list members 2 and 3 decide alone, and a disk of member 2 that was lost and
/// initialized again would outvote member 1. The third is that of a loss that a person accepted.
pub fn permission(
    observation: &Observation,
    view: &View<'_>,
    change: &Change,
    loss: &loss::Decision,
) -> BootstrapPermission {
    let first = observation
        .bootstrap
        .as_ref()
        .and_then(|b| b.first_start())
        .filter(|_| view.serving.is_empty());
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

/// The highest epoch that each voter was seen serving in. It moves only with an election, so an idle
/// ensemble is not written to. A member that left may come back with what it has, and one whose loss
/// is accepted with nothing.
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

/// A permission that is open for a while from now; everything else stays.
pub fn open_permission(observation: &Observation, initialize: Voters) -> BootstrapPermission {
    let left = observation
        .bootstrap
        .as_ref()
        .and_then(|b| b.until)
        .map(|u| u.duration_since(observation.now))
        .unwrap_or_default();
    let until = if left < PERMISSION / 2 {
        observation.now + PERMISSION
    } else {
        observation.now + left
    };
    BootstrapPermission {
        initialize: Some(initialize),
        until: Some(until),
        ..closed(observation)
    }
}

/// Nobody may start with an empty disk and a vote; everything else stays.
pub fn closed(observation: &Observation) -> BootstrapPermission {
    BootstrapPermission {
        initialize: None,
        until: None,
        ..observation.bootstrap.clone().unwrap_or_default()
    }
}
