//! Two leaders, and members that served with another majority. No change by the operator causes them; a pod
//! template edited by hand, a pod deleted by force, or servers started by somebody else do.

use bellwether_api::ensemble::MemberRole;
use bellwether_api::ensemble::status::Reason;

use super::trouble::Trouble;
use super::view::{Member, View};
use crate::observation::ServerReport;

/// Members that report at the same time that they lead.
pub(super) fn leaders(view: &View<'_>) -> Option<Trouble> {
    // One that is being deleted is about to stop.
    let stays = view.members.values().filter(|m| !m.pod.terminating);
    let leading = stays.filter_map(|m| match &m.pod.server {
        ServerReport::Serving {
            role: MemberRole::Leader,
            zxid,
            voters,
            ..
        } => Some(format!(
            "{} (epoch {}, server list {voters})",
            m.pod.name,
            zxid >> 32
        )),
        _ => None,
    });
    let leading: Vec<String> = leading.collect();
    (leading.len() > 1).then(|| Trouble {
        reason: Reason::TwoLeaders,
        message: format!(
            "{} say at the same time that they lead. One that was replaced notices within seconds; if \
             this lasts, each acknowledges writes that the other lacks. No member is restarted. \
             docs/runbook.md says what to do.",
            leading.join(" and ")
        ),
    })
}

/// Why a member that looks for a leader cannot follow the one that there is.
///
/// A server follows no leader of an earlier epoch than it accepted itself (ZooKeeper's
/// `Learner.registerWithLeader`), and one that served in a later epoch did so with another majority.
pub(super) fn cannot_follow(view: &View<'_>, member: &Member<'_>) -> Option<String> {
    let leader = view.members.get(&view.leader?)?;
    let epoch = |m: &Member<'_>| m.pod.volumes.as_ref()?.current_epoch;
    let (its, leaders) = (epoch(member)?, epoch(leader)?);
    let looks = matches!(member.pod.server, ServerReport::Looking);
    (looks && !member.pod.ready && its > leaders).then(|| {
        format!(
            "{} looks for a leader and cannot follow {}: it served in epoch {its}, after the leader's \
             {leaders}, with another majority, and each has writes that the other lacks (docs/runbook.md \
             says what to do)",
            member.pod.name, leader.pod.name
        )
    })
}
