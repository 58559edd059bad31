//! The status: one pure function of what was seen and planned.

use bellwether_api::conditions::{ConditionStatus, NewCondition, merge_conditions};
use bellwether_api::ensemble::status::{
    ConditionType, DataLossAccepted, ObserversStatus, Reason, TlsStatus,
};
use bellwether_api::ensemble::versions;
use bellwether_api::ensemble::{ChangeStatus, MemberStatus, Phase, ZooKeeperEnsembleStatus};
use bellwether_api::labels;

use crate::certificates::Record;
use crate::encryption::Encryption;
use crate::ids::Voters;
use crate::observation::{Acceptance, Observation};
use crate::plan::growth;
use crate::plan::report::{Availability, Report};
use crate::plan::trouble::Trouble;
use crate::plan::verdict::WaitingOn;
use crate::stage::{Running, Stage as _};

/// What the status is made of.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    /// The ensemble's name.
    pub name: &'a str,
    /// The generation of the spec that was planned for.
    pub generation: Option<i64>,
    /// The wanted version, if the spec is valid.
    pub version: Option<&'a str>,
    /// The ZooKeeper release that is wanted, if it is known.
    pub release: Option<&'a str>,
    /// What was seen.
    pub observation: &'a Observation,
    /// The report of the plan.
    pub report: &'a Report,
    /// What went wrong when the plan was carried out.
    pub failure: Option<&'a str>,
}

/// The status of an ensemble whose plan was made and carried out.
pub fn status(
    input: StatusInput<'_>,
    old: Option<&ZooKeeperEnsembleStatus>,
) -> ZooKeeperEnsembleStatus {
    let report = input.report;
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let ready = report.members.iter().filter(|m| m.role.serves()).count();
    let old_conditions = old.map(|o| o.conditions.as_slice()).unwrap_or_default();
    ZooKeeperEnsembleStatus {
        observed_generation: input.generation,
        phase: Some(report.phase),
        message: Some(report.message.clone()),
        replicas: count(report.members.len()),
        ready_replicas: count(ready),
        ready: Some(format!("{ready}/{}", report.members.len() + report.missing)),
        selector: Some(labels::voters_selector_string(input.name)),
        leader: report.leader().map(|m| m.pod.clone()),
        version: input.version.map(str::to_owned),
        config_revision: report.revision.as_ref().map(|r| r.name.clone()),
        voters: report
            .revision
            .as_ref()
            .map(|r| ids(&r.voters))
            .unwrap_or_default(),
        change: report.change.as_ref().map(|change| ChangeStatus {
            from: change.from.as_ref().map(ids).unwrap_or_default(),
            to: ids(&change.to),
            restarting: change.restarting.clone(),
            waiting_for: change.waiting.as_ref().map(WaitingOn::waiting_for),
        }),
        observers: (report.observers_wanted > 0 || !report.observers.is_empty()).then(|| {
            let serving = report.observers.iter().filter(|m| m.role.serves()).count();
            ObserversStatus {
                replicas: count(report.observers.len()),
                ready_replicas: count(serving),
                ready: format!("{serving}/{}", report.observers_wanted),
            }
        }),
        members: report
            .members
            .iter()
            .chain(&report.observers)
            .map(|m| MemberStatus {
                name: m.pod.clone(),
                server_id: i32::from(m.id.0),
                role: m.role,
                epoch: m.zxid.and_then(|z| i64::try_from(z >> 32).ok()),
                zxid: m.zxid.map(|z| format!("{z:#x}")),
                config_revision: m.revision.clone(),
                state: m.verdict.state(),
                waiting_for: m.verdict.waiting_for(),
                verdict: m.verdict.to_string(),
                node: m.node.clone(),
            })
            .collect(),
        storage: growth::asked(input.observation),
        tls: Encryption::least(&Running::of(input.observation)).map(|least| TlsStatus {
            servers: least.servers.as_str().to_owned(),
            clients: Some(least.clients.as_str().to_owned()),
        }),
        certificate: input.observation.identity.as_ref().map(Record::status),
        data_loss_accepted: report.accepted.as_ref().map(accepted),
        conditions: merge_conditions(
            old_conditions,
            conditions(report, input.failure)
                .into_iter()
                .chain(input.release.map(version_recommended))
                .collect(),
            input.generation,
            input.observation.now,
        ),
    }
}

fn ids(voters: &Voters) -> Vec<i32> {
    voters.iter().map(|id| i32::from(id.0)).collect()
}

fn accepted(acceptance: &Acceptance) -> DataLossAccepted {
    DataLossAccepted {
        token: acceptance.token.clone(),
        at: acceptance.at.to_string(),
        by: acceptance.by.clone(),
        lost: ids(&acceptance.lost),
        permitted: ids(&acceptance.members),
        over: acceptance.over,
    }
}

/// Whether this release should be used. The ones that must not be used are refused before this.
fn version_recommended(release: &str) -> NewCondition {
    let flaw = versions::flaw(release);
    let (reason, message) = match flaw {
        Some(flaw) => (Reason::KnownFlaw, versions::sentence(flaw)),
        None => (
            Reason::NoKnownFlaw,
            format!("No flaw of ZooKeeper {release} is known to this version of the operator."),
        ),
    };
    NewCondition {
        type_: ConditionType::VersionRecommended.as_str(),
        status: ConditionStatus::from(flaw.is_none()),
        reason: reason.as_str(),
        message,
    }
}

fn conditions(report: &Report, failure: Option<&str>) -> Vec<NewCondition> {
    let condition =
        |type_: ConditionType, holds: bool, reason: Reason, message: &str| NewCondition {
            type_: type_.as_str(),
            status: ConditionStatus::from(holds),
            reason: reason.as_str(),
            message: message.to_owned(),
        };
    let is_ready = report.phase == Phase::Ready && failure.is_none();
    let ready_reason = match report.phase {
        _ if failure.is_some() => Reason::ApplyFailed,
        Phase::Ready => Reason::AllMembersServing,
        Phase::Starting | Phase::Deleting => Reason::Starting,
        Phase::Growing => Reason::Growing,
        Phase::Shrinking => Reason::Shrinking,
        Phase::Rolling => Reason::Rolling,
        Phase::Recovering => Reason::MemberDown,
        Phase::Paused => Reason::Paused,
        Phase::Invalid => Reason::InvalidSpec,
        Phase::Blocked => report
            .troubles
            .first()
            .map_or(Reason::UnknownState, |t| t.reason),
    };
    let (progressing, progress) = match report.phase {
        Phase::Starting => (true, Reason::Starting),
        Phase::Growing => (true, Reason::Growing),
        Phase::Shrinking => (true, Reason::Shrinking),
        Phase::Rolling => (true, Reason::Rolling),
        Phase::Recovering => (true, Reason::MemberDown),
        Phase::Paused => (false, Reason::Paused),
        Phase::Blocked | Phase::Invalid => (false, ready_reason),
        Phase::Ready if report.growing.is_some() => (true, Reason::VolumesGrowing),
        Phase::Ready | Phase::Deleting => (false, Reason::Stable),
    };
    let (status, reason, message) = match report.availability() {
        Availability::Serving => (
            ConditionStatus::True,
            Reason::QuorumServing,
            "A leader leads a majority; clients can read and write.",
        ),
        Availability::TwoLeaders => (
            ConditionStatus::False,
            Reason::TwoLeaders,
            "Two members say that they lead: what clients of one write, those of the other may not see.",
        ),
        Availability::NoQuorum => (
            ConditionStatus::False,
            Reason::NoQuorum,
            "No member leads: clients cannot read or write. Members elect a leader as soon as a majority of them can talk to each other.",
        ),
        Availability::Unknown => (
            ConditionStatus::Unknown,
            Reason::MembersUnreachable,
            "The operator cannot ask enough members to know whether one leads. Kubernetes counts them as ready, so clients may be able to read and write.",
        ),
    };
    let available = NewCondition {
        type_: ConditionType::Available.as_str(),
        status,
        reason: reason.as_str(),
        message: message.to_owned(),
    };
    let failed = failure.map(|f| Trouble {
        reason: Reason::ApplyFailed,
        message: format!("{f}. The operator tries again, at growing intervals."),
    });
    let degraded = match Trouble::all(failed.into_iter().chain(report.troubles.iter().cloned())) {
        Some(t) => condition(ConditionType::Degraded, true, t.reason, &t.message),
        None => {
            let message = if report.phase == Phase::Recovering {
                "A member does not serve; it is given a minute to start before this is a warning."
            } else {
                "Nothing is wrong."
            };
            condition(ConditionType::Degraded, false, Reason::Healthy, message)
        }
    };
    let stalled = matches!(report.phase, Phase::Blocked | Phase::Invalid)
        .then(|| condition(ConditionType::Stalled, true, ready_reason, &report.message));
    let mut conditions = vec![
        condition(
            ConditionType::Ready,
            is_ready,
            ready_reason,
            failure.unwrap_or(&report.message),
        ),
        available,
        condition(
            ConditionType::Progressing,
            progressing,
            progress,
            &report.message,
        ),
        degraded,
    ];
    conditions.extend(stalled);
    conditions
}

/// Whether the status has to be written. A new zxid alone is not a reason: clients change it all the time, and
/// an idle operator writes nothing.
pub fn needs_write(old: Option<&ZooKeeperEnsembleStatus>, new: &ZooKeeperEnsembleStatus) -> bool {
    let Some(old) = old else { return true };
    let without_zxid = |s: &ZooKeeperEnsembleStatus| {
        let mut s = s.clone();
        s.members.iter_mut().for_each(|m| m.zxid = None);
        s
    };
    without_zxid(old) != without_zxid(new)
}

/// The report on an ensemble whose spec is refused: the operator reports what runs and changes nothing.
pub fn refused(observation: &Observation, id_offset: u16, message: String) -> Report {
    let trouble = Trouble {
        reason: Reason::InvalidSpec,
        message,
    };
    let mut report = Report::of_trouble(Phase::Invalid, trouble);
    report.list_pods(observation, id_offset, "the spec to be corrected");
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions_in(phase: Phase) -> Vec<(&'static str, &'static str)> {
        let conditions = conditions(&Report::new(phase, "why".to_owned()), None);
        let word = |c: NewCondition| (c.type_, c.status.as_str());
        conditions.into_iter().map(word).collect()
    }

    /// As kstatus reads it: `Stalled` is a failure, `Ready` that is not true is work under way.
    #[test]
    fn only_what_needs_a_person_is_stalled() {
        for phase in [Phase::Blocked, Phase::Invalid] {
            let found = conditions_in(phase);
            assert!(found.contains(&("Ready", "False")), "{phase:?}: {found:?}");
            assert!(found.contains(&("Stalled", "True")), "{phase:?}: {found:?}");
        }
        for phase in [
            Phase::Starting,
            Phase::Growing,
            Phase::Shrinking,
            Phase::Rolling,
            Phase::Recovering,
            Phase::Paused,
            Phase::Ready,
        ] {
            let found = conditions_in(phase);
            let stalled = found.iter().any(|(type_, _)| *type_ == "Stalled");
            assert!(!stalled, "{phase:?}: {found:?}");
            let ready = if phase == Phase::Ready {
                "True"
            } else {
                "False"
            };
            assert!(found.contains(&("Ready", ready)), "{phase:?}: {found:?}");
        }
    }
}
