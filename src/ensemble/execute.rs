//! Carrying out a plan. Nothing is decided here: every write is in the plan, and a precondition that
//! does not hold ends the pass.

use bellwether_api::FIELD_MANAGER;
use bellwether_ensemble::desired::{
    DesiredObject, ObjectKind, Write, bootstrap_config_map, needs_write,
};
use bellwether_ensemble::plan::Step;
use bellwether_ensemble::{Plan, plan, validate};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt};
use tracing::{Span, instrument};

use super::Context;
use super::error::Error;
use super::gather::{Gathered, gather};
use crate::traces::SPANS;

/// What was carried out.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Whether the StatefulSet was written; then no disruptive step was taken.
    pub stateful_set_written: bool,
    /// The step that was carried out.
    pub step: Option<Step>,
    /// Whether the bootstrap permission was written.
    pub permission_written: bool,
    /// What ended the pass early.
    pub failure: Option<Error>,
    /// The first of what could not be written last, and held nothing else up.
    pub refused: Option<Error>,
}

/// Carries out a plan as far as it goes.
#[instrument(target = SPANS, skip_all)]
pub(crate) async fn execute(context: &Context, gathered: &Gathered, plan: &Plan) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(failure) = try_execute(context, gathered, plan, &mut outcome).await {
        outcome.failure = Some(failure);
    }
    outcome
}

async fn try_execute(
    context: &Context,
    gathered: &Gathered,
    plan: &Plan,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let namespace = gathered.ensemble.namespace().unwrap_or_default();
    for object in &plan.objects {
        let written = write_if_needed(context, gathered, &namespace, object).await?;
        outcome.stateful_set_written |= written && object.kind == ObjectKind::StatefulSet;
        outcome.permission_written |=
            written && object.name == bootstrap_config_map(&gathered.ensemble.name_any());
    }
    if let (Some(step), false) = (&plan.step, outcome.stateful_set_written) {
        check_lease(context)?;
        let name = gathered.ensemble.name_any();
        if take(context, &namespace, &name, step).await? {
            outcome.step = Some(step.clone());
        }
    }
    for name in &plan.prune {
        check_lease(context)?;
        let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
        match maps.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => {
                other.map_err(Error::write(format!("ConfigMap {name}")))?;
            }
        }
    }
    for object in &plan.last {
        let written = write_if_needed(context, gathered, &namespace, object).await;
        outcome.refused = outcome.refused.take().or(written.err());
    }
    Ok(())
}

/// Writes an object unless it is so already. Returns whether that changed it. An admission webhook may undo
/// a write on its way; then the resource version stays, and nothing has to take effect.
async fn write_if_needed(
    context: &Context,
    gathered: &Gathered,
    namespace: &str,
    object: &DesiredObject,
) -> Result<bool, Error> {
    let live = gathered.live.get(&(object.kind, object.name.clone()));
    if !needs_write(object, live) {
        return Ok(false);
    }
    check_lease(context)?;
    let after = write(context, gathered, namespace, object, live).await?;
    context.metrics.written(word(object.kind));
    tracing::debug!(%namespace, kind = ?object.kind, name = %object.name, "object written");
    let before = live.and_then(|live| live["metadata"]["resourceVersion"].as_str());
    Ok(before.is_none() || before != after.as_deref())
}

fn check_lease(context: &Context) -> Result<(), Error> {
    if *context.lease.borrow() {
        Ok(())
    } else {
        Err(Error::LeaseLost)
    }
}

fn word(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::ConfigMap => "ConfigMap",
        ObjectKind::Service => "Service",
        ObjectKind::PodDisruptionBudget => "PodDisruptionBudget",
        ObjectKind::PersistentVolumeClaim => "PersistentVolumeClaim",
        ObjectKind::StatefulSet => "StatefulSet",
    }
}

fn resource(kind: ObjectKind) -> ApiResource {
    let group = match kind {
        ObjectKind::ConfigMap | ObjectKind::Service | ObjectKind::PersistentVolumeClaim => "",
        ObjectKind::PodDisruptionBudget => "policy",
        ObjectKind::StatefulSet => "apps",
    };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", word(kind)))
}

#[instrument(target = SPANS, skip_all, fields(
    otel.kind = "client", k8s.object.kind = word(object.kind), k8s.object.name = object.name,
    error.type, otel.status_code
))]
async fn write(
    context: &Context,
    gathered: &Gathered,
    namespace: &str,
    object: &DesiredObject,
    live: Option<&serde_json::Value>,
) -> Result<Option<String>, Error> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), namespace, &resource(object.kind));
    if live.is_none() {
        refuse_foreign(&api, object).await?;
    }
    let mut body = object.body.clone();
    // The StatefulSet decides about pods, and the bootstrap permission about votes: they are written
    // only as they were seen when that was planned.
    let guarded = object.kind == ObjectKind::StatefulSet
        || object.name == bootstrap_config_map(&gathered.ensemble.name_any());
    if guarded && let Some(live) = live {
        body["metadata"]["uid"] = live["metadata"]["uid"].clone();
        body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    }
    let what = || format!("{:?} {}", object.kind, object.name);
    let written = match object.write {
        Write::Apply => {
            let params = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(&object.name, &params, &Patch::Apply(body)).await
        }
        Write::Merge => {
            let params = PatchParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..Default::default()
            };
            api.patch(&object.name, &params, &Patch::Merge(body)).await
        }
    }
    .map_err(Error::write(what()))
    .inspect_err(|error| error.show(&Span::current()))?;
    Ok(written.resource_version())
}

/// An object of this name that does not carry this ensemble's labels is somebody else's, and applying
/// over it would take it away from them: ensemble `a-members` and the Service `a-members` of ensemble
/// `a`, for instance.
async fn refuse_foreign(api: &Api<DynamicObject>, object: &DesiredObject) -> Result<(), Error> {
    let what = format!("{:?} {}", object.kind, object.name);
    match api
        .get_opt(&object.name)
        .await
        .map_err(Error::read("an object before it is created"))?
    {
        None => Ok(()),
        Some(_) => Err(Error::Foreign { what }),
    }
}

/// Takes the step, if everything read and planned again just before asks for the same one. Returns
/// whether it was taken.
#[instrument(target = SPANS, name = "restart", skip_all, fields(k8s.pod.name, bellwether.restart.taken = false))]
async fn take(context: &Context, namespace: &str, name: &str, step: &Step) -> Result<bool, Error> {
    let Step::RestartMember {
        pod,
        uid,
        resource_version,
        id,
        expect,
        reason,
    } = step;
    let span = Span::current();
    span.record("k8s.pod.name", pod);
    let again = gather(context, namespace, name).await?;
    let confirmed = again.is_some_and(|now| {
        validate(&now.ensemble, &context.contribution)
            .is_ok_and(|valid| plan(&valid, &now.observation).step.as_ref() == Some(step))
    });
    if !confirmed {
        tracing::info!(%namespace, %pod, role = ?expect, "something changed since the restart was planned; planning anew");
        return Ok(false);
    }
    check_lease(context)?;
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.clone()),
            resource_version: Some(resource_version.clone()),
        }),
        ..Default::default()
    };
    match pods.delete(pod, &params).await {
        Ok(_) => {}
        // The pod changed or went away since it was judged.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            return Ok(false);
        }
        Err(error) => return Err(Error::write(format!("Pod {pod}"))(error)),
    }
    span.record("bellwether.restart.taken", true);
    context.metrics.restarted(namespace, name);
    tracing::info!(%namespace, %pod, server = %id, role = ?expect, %reason, "restarting member");
    Ok(true)
}
