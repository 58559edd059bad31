//! Reports to users: the status, written once and only if it differs, and events, best effort.

use bellwether_api::ensemble::status::{ConditionType, Reason};
use bellwether_api::ensemble::{Phase, ZooKeeperEnsembleStatus};
use bellwether_api::events::EventReason;
use bellwether_api::{FIELD_MANAGER, ZooKeeperEnsemble};
use bellwether_ensemble::plan::report::Report;
use bellwether_ensemble::plan::{Expect, Step};
use bellwether_ensemble::status::{StatusInput, needs_write, status as compute};
use bellwether_ensemble::{Plan, ValidEnsemble};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde_json::json;
use tracing::{Span, instrument};

use super::Context;
use super::error::Error;
use super::execute::Outcome;
use super::gather::Gathered;
use crate::traces::SPANS;

/// Writes the status if it differs from what the ensemble carries.
#[instrument(target = SPANS, name = "publish", skip_all)]
pub(crate) async fn status(
    context: &Context,
    gathered: &Gathered,
    valid: Option<&ValidEnsemble>,
    report: &Report,
    failure: Option<&str>,
) -> Result<(), Error> {
    let Some(new) = next(context, gathered, valid, report, failure) else {
        return Ok(());
    };
    if !context.lease.is_held() {
        return Ok(());
    }
    let mut replaced = gathered.ensemble.clone();
    replaced.status = Some(new);
    let name = replaced.name_any();
    let namespace = replaced.namespace().unwrap_or_default();
    write_status(context, &namespace, &name, &replaced).await
}

/// The status text for a failed write. A conflict is not reported: the next pass sees the other write.
pub(crate) fn failure(outcome: &Outcome) -> Option<String> {
    let failure = outcome.failure.as_ref().or(outcome.refused.as_ref())?;
    (!failure.is_conflict()).then(|| failure.to_string())
}

/// The status that has to be written, if it differs from what the ensemble carries.
pub(crate) fn next(
    context: &Context,
    gathered: &Gathered,
    valid: Option<&ValidEnsemble>,
    report: &Report,
    failure: Option<&str>,
) -> Option<ZooKeeperEnsembleStatus> {
    let ensemble = &gathered.ensemble;
    let name = ensemble.name_any();
    let namespace = ensemble.namespace().unwrap_or_default();
    let new = compute(
        StatusInput {
            name: &name,
            generation: ensemble.metadata.generation,
            version: valid.map(|v| v.version.as_str()),
            release: valid.and_then(|v| v.release.as_deref()),
            observation: &gathered.observation,
            report,
            failure,
        },
        ensemble.status.as_ref(),
    );
    let wanted = ensemble.spec.replicas;
    let metrics = &context.metrics;
    metrics.observe((&namespace, &name), wanted, report, &new);
    needs_write(ensemble.status.as_ref(), &new).then_some(new)
}

/// Replaces the status of an ensemble, if its resource version is still the one that was read. An apply would
/// leave fields that another client wrote, such as those of a status that was restored from a backup, and
/// each pass would try in vain to correct them.
#[instrument(target = SPANS, name = "write", skip_all, fields(
    otel.kind = "client", k8s.object.kind = "ZooKeeperEnsemble", k8s.object.name = name,
    error.type, otel.status_code
))]
async fn write_status(
    context: &Context,
    namespace: &str,
    name: &str,
    ensemble: &(impl Serialize + Sync),
) -> Result<(), Error> {
    let resource = ApiResource::erase::<ZooKeeperEnsemble>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), namespace, &resource);
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    api.replace_subresource("status", name, &params, ensemble)
        .await
        .map_err(Error::write("the status"))
        .inspect_err(|error| error.show(&Span::current()))?;
    context.metrics.written("ZooKeeperEnsemble");
    Ok(())
}

/// Reports an ensemble that cannot be parsed. The API server's schema makes this rare.
pub(crate) async fn unreadable(
    context: &Context,
    namespace: &str,
    name: &str,
    invalid: &InvalidObject,
) -> Result<(), Error> {
    let error = &invalid.error;
    tracing::warn!(%namespace, ensemble = %name, %error, "the ZooKeeperEnsemble cannot be read; it is left alone");
    let status = ZooKeeperEnsembleStatus {
        phase: Some(Phase::Invalid),
        message: Some(format!(
            "The object cannot be read: {error}. The running ensemble is left as it is."
        )),
        ..Default::default()
    };
    let resource = ApiResource::erase::<ZooKeeperEnsemble>(&());
    let mut ensemble = DynamicObject::new(name, &resource).data(json!({ "status": status }));
    ensemble.metadata.resource_version = invalid.metadata.resource_version.clone();
    ensemble.metadata.uid = invalid.metadata.uid.clone();
    write_status(context, namespace, name, &ensemble).await
}

/// The action of the events that report a restart.
const RESTART: &str = "Restart";

/// An event in the making.
struct Note {
    type_: EventType,
    reason: &'static str,
    action: &'static str,
    note: String,
    /// The pod that it is about. Events of the same reason about different pods are different
    /// events; without it they would be counted as repetitions of the first.
    pod: Option<String>,
}

/// Publishes what happened in this pass.
pub(crate) async fn events(context: &Context, gathered: &Gathered, plan: &Plan, outcome: &Outcome) {
    let reference = gathered.ensemble.object_ref(&());
    for note in notes(gathered, plan, outcome) {
        // Another replica may hold the lease since this pass began, and its reports are newer.
        if !context.lease.is_held() {
            return;
        }
        // A restart is logged before it is carried out.
        if note.action != RESTART {
            let (namespace, ensemble) = (&reference.namespace, &reference.name);
            let (namespace, ensemble) = (namespace.as_deref(), ensemble.as_deref());
            tracing::info!(namespace, ensemble, reason = note.reason, note = %note.note, "ensemble changed");
        }
        let event = Event {
            type_: note.type_,
            reason: note.reason.to_owned(),
            // The API server refuses notes of more than 1 kB.
            note: Some(note.note[..note.note.floor_char_boundary(1000)].to_owned()),
            action: note.action.to_owned(),
            secondary: note.pod.map(|name| ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: reference.namespace.clone(),
                name: Some(name),
                ..Default::default()
            }),
        };
        // Each event has a recorder of its own: a shared one would merge events with the same reason and keep
        // only the first one's text.
        let recorder = Recorder::new(context.client.clone(), context.reporter.clone());
        if let Err(error) = recorder.publish(&event, &reference).await {
            tracing::debug!(%error, "an event was not published");
        }
    }
}

fn notes(gathered: &Gathered, plan: &Plan, outcome: &Outcome) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut add = |type_, reason, action, note, pod| {
        notes.push(Note {
            type_,
            reason,
            action,
            note,
            pod,
        });
    };
    let old = gathered.ensemble.status.as_ref();
    // The order of the events: what was seen, what follows from it, what the operator does.
    if let (Some(leader), Some(old)) = (plan.report.leader(), old)
        && old.leader.as_ref() != Some(&leader.pod)
    {
        let before = old
            .leader
            .as_ref()
            .map_or_else(String::new, |l| format!(", {l} before"));
        let note = format!("{} leads{before}", leader.pod);
        add(
            EventType::Normal,
            EventReason::LeaderElected.as_str(),
            "Observe",
            note,
            Some(leader.pod.clone()),
        );
    }
    if let (Some(accepted), true) = (&plan.accepted, outcome.permission_written) {
        let note = plan.report.message.clone();
        let ensemble = gathered.ensemble.name_any();
        tracing::warn!(%ensemble, token = %accepted.token, by = ?accepted.by, lost = %accepted.lost, permitted = %accepted.members, "a loss of data was accepted");
        let word = Reason::DataLossAccepted.as_str();
        add(EventType::Warning, word, "AcceptDataLoss", note, None);
    }
    if old.and_then(|o| o.phase) != Some(plan.report.phase) {
        let (kind, word) = match plan.report.phase {
            Phase::Ready => (EventType::Normal, EventReason::Ready.as_str()),
            Phase::Blocked => (EventType::Warning, EventReason::Blocked.as_str()),
            Phase::Recovering => (EventType::Normal, EventReason::Recovering.as_str()),
            Phase::Growing => (EventType::Normal, EventReason::Growing.as_str()),
            Phase::Shrinking => (EventType::Normal, EventReason::Shrinking.as_str()),
            Phase::Rolling => (EventType::Normal, EventReason::Rolling.as_str()),
            Phase::Paused => (EventType::Normal, EventReason::Paused.as_str()),
            Phase::Invalid => (EventType::Warning, EventReason::InvalidSpec.as_str()),
            Phase::Starting => (EventType::Normal, EventReason::Starting.as_str()),
            Phase::Deleting => (EventType::Normal, EventReason::Deleting.as_str()),
        };
        add(kind, word, "Reconcile", plan.report.message.clone(), None);
    }
    // No phase shows trouble while the ensemble keeps serving, so an event reports it.
    if let Some(trouble) = &plan.report.trouble()
        && plan.report.phase != Phase::Blocked
        && trouble.reason != Reason::DataLossAccepted
        && !said_before(old, trouble.reason)
    {
        let (word, note) = (trouble.reason.as_str(), trouble.message.clone());
        add(EventType::Warning, word, "Observe", note, None);
    }
    if outcome.stateful_set_written
        && let Some(change) = list_change(gathered, plan)
    {
        add(
            EventType::Normal,
            EventReason::ServerListChanged.as_str(),
            "ChangeServerList",
            change,
            None,
        );
    }
    if let Some(Step::RestartMember {
        pod,
        reason,
        expect,
        ..
    }) = &outcome.step
    {
        let word = if *expect == Expect::Leader {
            EventReason::RestartingLeader.as_str()
        } else {
            EventReason::RestartingMember.as_str()
        };
        let note = format!("Restarting {pod}: {reason}");
        add(EventType::Normal, word, RESTART, note, Some(pod.clone()));
    }
    if let Some(Step::Reconfigure { list, .. }) = &outcome.step {
        let word = EventReason::ServerListChanged.as_str();
        let note =
            format!("The members agreed on the server list {{{list}}}; none restarts for it");
        add(EventType::Normal, word, "ChangeServerList", note, None);
    }
    if let Some(Step::Replace { id, reason, .. }) = &outcome.step {
        let word = EventReason::ReplacingMember.as_str();
        let note = format!("Replacing server {id}: {reason}");
        add(EventType::Warning, word, "ReplaceMember", note, None);
    }
    if let Some(Step::DeleteClaim { claim, reason, .. }) = &outcome.step {
        let word = EventReason::DeletingVolume.as_str();
        let note = format!("Deleting volume claim {claim}: {reason}");
        add(EventType::Normal, word, "DeleteVolume", note, None);
    }
    notes
}

/// Whether the old status already reports this reason.
fn said_before(old: Option<&ZooKeeperEnsembleStatus>, reason: Reason) -> bool {
    let degraded = ConditionType::Degraded.as_str();
    old.into_iter()
        .flat_map(|o| &o.conditions)
        .any(|c| c.type_ == degraded && c.status == "True" && c.reason == reason.as_str())
}

fn list_change(gathered: &Gathered, plan: &Plan) -> Option<String> {
    let new = &plan.report.revision.as_ref()?.voters;
    match gathered
        .observation
        .stateful_set
        .as_ref()
        .and_then(|s| s.template.as_ref())
    {
        // An event tells of it when the members agree.
        Some(old) if old.voters == *new || old.version.is_some() => None,
        Some(old) => Some(format!(
            "The server list becomes {{{new}}} after {{{}}}; members take it over one by one, the leader last",
            old.voters
        )),
        None => Some(format!("The server list is {{{new}}}")),
    }
}
