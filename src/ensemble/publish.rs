//! Telling people: the status, once and only if it differs, and events, best effort.

use bellwether_api::ensemble::{Phase, ZooKeeperEnsembleStatus};
use bellwether_api::{FIELD_MANAGER, GROUP, VERSION, ZooKeeperEnsemble};
use bellwether_ensemble::plan::report::Report;
use bellwether_ensemble::plan::{Expect, Step};
use bellwether_ensemble::status::{StatusInput, needs_write, status as compute};
use bellwether_ensemble::{Plan, ValidEnsemble};
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use super::Context;
use super::error::Error;
use super::execute::Outcome;
use super::gather::Gathered;

/// Writes the status if it differs from what the ensemble carries.
pub(crate) async fn status(
    context: &Context,
    gathered: &Gathered,
    valid: Option<&ValidEnsemble>,
    report: &Report,
    outcome: &Outcome,
) -> Result<(), Error> {
    let ensemble = &gathered.ensemble;
    let name = ensemble.name_any();
    let namespace = ensemble.namespace().unwrap_or_default();
    context.metrics.observe(&namespace, &name, report);
    // A conflict is somebody else's write in between; nobody needs to hear of it.
    let failure = outcome
        .failure
        .as_ref()
        .filter(|f| !f.is_conflict())
        .map(ToString::to_string);
    let new = compute(
        StatusInput {
            name: &name,
            generation: ensemble.metadata.generation,
            version: valid.map(|v| v.version.as_str()),
            report,
            failure: failure.as_deref(),
            now: gathered.observation.now,
        },
        ensemble.status.as_ref(),
    );
    if !needs_write(ensemble.status.as_ref(), &new) || !*context.lease.borrow() {
        return Ok(());
    }
    write_status(context, &namespace, &name, &new).await
}

async fn write_status(
    context: &Context,
    namespace: &str,
    name: &str,
    new: &ZooKeeperEnsembleStatus,
) -> Result<(), Error> {
    let api: Api<ZooKeeperEnsemble> = Api::namespaced(context.client.clone(), namespace);
    let body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "ZooKeeperEnsemble",
        "metadata": { "name": name },
        "status": new,
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch_status(name, &params, &Patch::Apply(body))
        .await
        .map_err(Error::write("the status"))?;
    context.metrics.written();
    Ok(())
}

/// Says that an ensemble cannot even be read. The API server's schema makes this rare.
pub(crate) async fn unreadable(
    context: &Context,
    namespace: &str,
    name: &str,
    error: &str,
) -> Result<(), Error> {
    tracing::warn!(%namespace, ensemble = %name, %error, "the ZooKeeperEnsemble cannot be read; it is left alone");
    let status = ZooKeeperEnsembleStatus {
        phase: Some(Phase::Invalid),
        message: Some(format!(
            "The object cannot be read: {error}. The running ensemble is left as it is."
        )),
        ..Default::default()
    };
    write_status(context, namespace, name, &status).await
}

/// Publishes what happened in this pass.
pub(crate) async fn events(context: &Context, gathered: &Gathered, plan: &Plan, outcome: &Outcome) {
    let old = gathered.ensemble.status.as_ref();
    let mut notes = Vec::new();
    if outcome.stateful_set_written
        && let Some(change) = list_change(gathered, plan)
    {
        notes.push((
            EventType::Normal,
            "ServerListChanged",
            "ChangeServerList",
            change,
        ));
    }
    if let Some(Step::RestartMember {
        pod,
        reason,
        expect,
        ..
    }) = &outcome.step
    {
        let word = if *expect == Expect::Leader {
            "RestartingLeader"
        } else {
            "RestartingMember"
        };
        notes.push((
            EventType::Normal,
            word,
            "Restart",
            format!("Restarting {pod}: {reason}"),
        ));
    }
    if old.and_then(|o| o.phase) != Some(plan.report.phase) {
        let (kind, word) = match plan.report.phase {
            Phase::Ready => (EventType::Normal, "Ready"),
            Phase::Blocked => (EventType::Warning, "Blocked"),
            Phase::Recovering => (EventType::Normal, "Recovering"),
            Phase::Growing => (EventType::Normal, "Growing"),
            Phase::Shrinking => (EventType::Normal, "Shrinking"),
            Phase::Rolling => (EventType::Normal, "Rolling"),
            Phase::Paused => (EventType::Normal, "Paused"),
            Phase::Invalid => (EventType::Warning, "InvalidSpec"),
            Phase::Starting => (EventType::Normal, "Starting"),
            Phase::Deleting => (EventType::Normal, "Deleting"),
        };
        notes.push((kind, word, "Reconcile", plan.report.message.clone()));
    }
    let leader = plan
        .report
        .members
        .iter()
        .find(|m| m.role == bellwether_api::ensemble::MemberRole::Leader)
        .map(|m| m.pod.clone());
    if let (Some(leader), Some(old)) = (leader, old)
        && old.leader.as_ref() != Some(&leader)
    {
        let from = old
            .leader
            .as_ref()
            .map_or_else(String::new, |l| format!(", {l} before"));
        notes.push((
            EventType::Normal,
            "LeaderElected",
            "Observe",
            format!("{leader} leads{from}"),
        ));
    }
    let reference = gathered.ensemble.object_ref(&());
    for (type_, reason, action, note) in notes {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            // The API server refuses notes of more than 1 kB.
            note: Some(note.chars().take(1000).collect()),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = context.recorder.publish(&event, &reference).await {
            tracing::debug!(%error, "an event was not published");
        }
    }
}

fn list_change(gathered: &Gathered, plan: &Plan) -> Option<String> {
    let new = &plan.report.revision.as_ref()?.voters;
    match gathered
        .observation
        .stateful_set
        .as_ref()
        .and_then(|s| s.template.as_ref())
    {
        Some(old) if old.voters == *new => None,
        Some(old) => Some(format!(
            "The server list becomes {{{new}}} after {{{}}}; members take it over one by one, the leader last",
            old.voters
        )),
        None => Some(format!("The server list is {{{new}}}")),
    }
}
