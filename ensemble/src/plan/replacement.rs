//! The replacement of a member whose node or disk is gone for good: its volumes are given up, and it starts with empty ones.
//!
//! A person asks for it with an annotation that names the pod and its claim, so that an annotation that stays in a manifest replaces
//! nobody else; or `spec.replacement` says after which time. The member keeps its server id. It has no vote until it has
//! copied everything from the others, which serve on and restart for nothing: the leader has every acknowledged write, and a majority of
//! every list follows it.
//!
//! A pod that is being deleted may still run on a node that is cut off. It is left alone until Kubernetes knows that it is gone.

use bellwether_api::ensemble::status::Reason;
use bellwether_api::labels;
use jiff::SignedDuration;

use super::trouble::Trouble;
use super::view::{Member, View};
use super::{Seen, Step};
use crate::ids::ServerId;
use crate::observation::{Observation, PodState};
use crate::safety::may_replace;
use crate::validate::ValidEnsemble;

/// How long a person's request waits for a member to come back by itself.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// What is done, and what a person has to know.
#[derive(Clone, Debug, Default)]
pub struct Replacement {
    /// The deletion of the member's claims, and of its pod.
    pub step: Option<Step>,
    /// Why a request is not carried out yet.
    pub trouble: Option<Trouble>,
}

/// Who is to be replaced, and why.
struct Wanted {
    id: ServerId,
    /// The unique id of the claim that is given up; whichever there is, if nobody named one.
    claim: Option<String>,
    why: String,
}

/// Plans the replacement of one member.
pub fn plan(ensemble: &ValidEnsemble, observation: &Observation, view: &View<'_>) -> Replacement {
    if let Some(request) = &ensemble.replace_member {
        return match requested(observation, view, request) {
            Ok(None) => overdue(ensemble, observation, view),
            Ok(Some(wanted)) => carry_out(observation, view, &wanted),
            Err(why) => waits(request, &why),
        };
    }
    overdue(ensemble, observation, view)
}

fn waits(request: &str, why: &str) -> Replacement {
    Replacement {
        step: None,
        trouble: Some(Trouble {
            reason: Reason::ReplacementWaits,
            message: format!(
                "The annotation {} asks to replace {request:?}, and {why}. No volume is deleted.",
                labels::REPLACE_MEMBER
            ),
        }),
    }
}

/// The member that the annotation names, by its pod and the unique id of its claim; `None` if that claim is gone and
/// another one is in its place: the request is carried out.
fn requested(
    observation: &Observation,
    view: &View<'_>,
    request: &str,
) -> Result<Option<Wanted>, String> {
    let form = "it has to be the name of a pod and the unique id of its data volume's claim, such as \
                main-1:6f1c9d1e-0b7a-4c62-9a53-2f6d1f0e8a11";
    let (pod, uid) = request.trim().split_once(':').ok_or(form)?;
    let ordinal = pod
        .strip_prefix(view.ensemble)
        .and_then(|rest| rest.strip_prefix('-'));
    let ordinal: u16 = ordinal.and_then(|o| o.parse().ok()).ok_or(form)?;
    let id = view.id(ordinal);
    let voters = &view.template.voters;
    if !voters.contains(id) {
        return Err(format!("{pod} is no member of {{{voters}}}"));
    }
    let mut claims = observation.claims.iter();
    let claim = claims.find(|claim| claim.ordinal == ordinal);
    if claim.is_some_and(|claim| claim.uid != uid) {
        return Ok(None);
    }
    Ok(Some(Wanted {
        id,
        claim: Some(uid.to_owned()),
        why: "as the annotation asks".to_owned(),
    }))
}

/// The replacement of a member that could not run for as long as the spec says.
fn overdue(ensemble: &ValidEnsemble, observation: &Observation, view: &View<'_>) -> Replacement {
    let Some(patience) = ensemble.replace_after else {
        return Replacement::default();
    };
    let late = |m: &&Member<'_>| {
        // A server that runs may be copying data; one that does not run at all has none to wait for.
        let runs = m.pod.state == PodState::Running;
        view.template.voters.contains(m.id) && !runs && is_away(view, m, patience).is_ok()
    };
    let minutes = patience.as_mins();
    let wanted = view.members.values().find(late).map(|m| Wanted {
        id: m.id,
        claim: None,
        why: format!("it could not run for {minutes} minutes"),
    });
    match wanted {
        // The next look finds it as it is; there is nothing to tell that the state of the member does not.
        Some(wanted) => Replacement {
            trouble: None,
            ..carry_out(observation, view, &wanted)
        },
        None => Replacement::default(),
    }
}

/// Whether a member has been away for this long, and is known not to run.
fn is_away(view: &View<'_>, member: &Member<'_>, patience: SignedDuration) -> Result<(), String> {
    let pod = &member.pod.name;
    if member.pod.terminating {
        return Err(format!(
            "{pod} is being deleted: as long as Kubernetes does not know that it has ended, it may run on a node that is cut off. If \
             the node is gone for good, delete the Node"
        ));
    }
    if member.serves() || member.pod.ready {
        return Err(format!("{pod} serves"));
    }
    if !member.is_idle() {
        return Err(format!("it is not known whether {pod} serves"));
    }
    let since = member.pod.unready_since;
    match since.is_some_and(|since| view.now.duration_since(since) >= patience) {
        true => Ok(()),
        false => Err(format!("{pod} may still come up by itself")),
    }
}

fn carry_out(observation: &Observation, view: &View<'_>, wanted: &Wanted) -> Replacement {
    let ordinal = view.ordinal(wanted.id);
    let member = view.members.get(&wanted.id);
    let judged = match member {
        Some(member) => is_away(view, member, PATIENCE),
        None => Ok(()),
    };
    let live = view.live.iter().copied();
    let others = || may_replace(wanted.id, &view.serving, view.leader, live);
    let judged = judged.and_then(|()| others().map_err(|why| why.to_string()));
    if let Err(why) = judged {
        let pod = crate::desired::pod_name(view.ensemble, ordinal);
        return waits(&pod, &why);
    }
    let claims = observation.claims.iter().filter(|claim| {
        let named = wanted.claim.as_ref();
        named.is_none_or(|uid| claim.uid == *uid)
    });
    let claims = observation.log_claims.iter().chain(claims);
    let own = claims.filter(|claim| claim.ordinal == ordinal && !claim.terminating);
    let claims: Vec<Seen> = own
        .map(|c| Seen::of(&c.name, &c.uid, &c.resource_version))
        .collect();
    let pod = member.map(|m| &m.pod);
    Replacement {
        step: Some(Step::Replace {
            id: wanted.id,
            claims,
            pod: pod.map(|pod| Seen::of(&pod.name, &pod.uid, &pod.resource_version)),
            reason: format!("it starts again with an empty volume, {}", wanted.why),
        }),
        trouble: None,
    }
}

#[cfg(test)]
#[path = "replacement/tests.rs"]
mod tests;
