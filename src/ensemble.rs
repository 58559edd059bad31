//! The controller of `ZooKeeperEnsemble`: one way through, from watch event to status.

mod creation;
mod durations;
mod error;
mod execute;
mod gather;
pub(crate) mod members;
mod publish;
mod volumes;

use std::sync::Arc;

use bellwether_api::ensemble::Phase;
use bellwether_api::{ZooKeeperEnsemble, labels};
use bellwether_ensemble::plan::{Step, plan_under};
use bellwether_ensemble::rules::Rules;
use bellwether_ensemble::validate::{Context as Contribution, invalid_message};
use bellwether_ensemble::{status, validate};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::DeserializeGuard;
use kube::runtime::controller::{Action, Config};
use kube::runtime::events::Reporter;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use kube::{Client, Resource, ResourceExt};
use tracing::field::{Empty, debug};
use tracing::{Instrument as _, Span, info_span};

use crate::backoff::Backoff;
use crate::lease::Held;
use crate::metrics::Metrics;
use crate::scoped::api;
use crate::traces::SPANS;
use creation::Creation;
use durations::Durations;
use error::Error;
use execute::Outcome;
use members::Members;

/// What every reconcile of an ensemble uses.
pub(crate) struct Context {
    /// The API server.
    pub client: Client,
    /// The members, to ask.
    pub members: Arc<dyn Members>,
    /// What the operator contributes to every ensemble.
    pub contribution: Contribution,
    /// The safety rules that the planner keeps.
    pub rules: Rules,
    /// Who reports events.
    pub reporter: Reporter,
    /// True while this process holds the operator's lease.
    pub lease: Held,
    /// Counters.
    pub metrics: Metrics,
    /// Retry times of ensembles whose last reconcile failed.
    pub backoff: Backoff,
    /// Why pods are not created.
    pub creation: Creation,
    /// For how long pods are not ready, and their servers do not answer.
    pub durations: Durations,
}

/// The unit of work: an ensemble that may not parse.
type Guarded = DeserializeGuard<ZooKeeperEnsemble>;

/// Runs the controller for one namespace, or for all of them, until `shutdown`.
pub(crate) async fn run(
    context: Arc<Context>,
    namespace: Option<String>,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let client = context.client.clone();
    let owned = watcher::Config::default().labels(&format!(
        "{}={}",
        labels::MANAGED_BY,
        labels::MANAGED_BY_VALUE
    ));
    let to_ensemble = |pod: Pod| {
        let name = pod.labels().get(labels::INSTANCE)?.clone();
        let namespace = pod.namespace()?;
        Some(ObjectRef::<Guarded>::new(&name).within(&namespace))
    };
    let within = namespace.as_deref();
    let controller = Controller::new(api::<Guarded>(&client, within), watcher::Config::default());
    let store = controller.store();
    context.metrics.watch(move |namespace, name| {
        let reference = ObjectRef::<Guarded>::new(name).within(namespace);
        store.get(&reference).is_some()
    });
    controller
        .with_config(Config::default().concurrency(16))
        .owns(api::<StatefulSet>(&client, within), owned.clone())
        .owns(api::<ConfigMap>(&client, within), owned.clone())
        .owns(api::<Service>(&client, within), owned.clone())
        .owns(api::<PodDisruptionBudget>(&client, within), owned.clone())
        .watches(api::<Pod>(&client, within), owned, to_ensemble)
        .graceful_shutdown_on(shutdown)
        .run(reconcile, error_policy, context)
        .for_each(|result| async {
            if let Err(error) = result {
                tracing::debug!(%error, "reconcile ended with an error");
            }
        })
        .await;
}

/// One pass, and a trace of it.
async fn reconcile(guarded: Arc<Guarded>, context: Arc<Context>) -> Result<Action, Error> {
    let reference = guarded.object_ref(&());
    let (name, namespace) = (
        reference.name.unwrap_or_default(),
        reference.namespace.unwrap_or_default(),
    );
    let span = info_span!(
        target: SPANS,
        "reconcile",
        k8s.namespace.name = namespace,
        bellwether.ensemble.name = name,
        bellwether.ensemble.phase = Empty,
        bellwether.step = Empty,
        bellwether.outcome = Empty,
        bellwether.requeue_after_seconds = Empty,
        error.type = Empty,
        otel.status_code = Empty,
    );
    let result = pass(&guarded, &context, &namespace, &name, &span)
        .instrument(span.clone())
        .await;
    if let Err(error) = &result {
        span.record("bellwether.outcome", "failed");
        error.show(&span);
    }
    result
}

/// One pass: gather, validate, plan, execute, publish.
async fn pass(
    guarded: &Guarded,
    context: &Context,
    namespace: &str,
    name: &str,
    span: &Span,
) -> Result<Action, Error> {
    let timer = context.metrics.reconcile_started("ZooKeeperEnsemble");
    let done = |outcome: &'static str| {
        timer.done(outcome);
        span.record("bellwether.outcome", outcome);
    };
    if let Err(error) = &guarded.0 {
        publish::unreadable(context, namespace, name, error).await?;
        done("unreadable");
        return Ok(Action::await_change());
    }
    let Some(gathered) = gather::gather(context, namespace, name).await? else {
        context.metrics.forget(namespace, name);
        context.backoff.reset(namespace, name);
        done("gone");
        return Ok(Action::await_change());
    };
    let ensemble = &gathered.ensemble;
    if ensemble.meta().deletion_timestamp.is_some() {
        // Everything that the ensemble owns goes with it by its owner references.
        done("deleting");
        return Ok(Action::await_change());
    }
    let valid = match validate(ensemble, &context.contribution) {
        Ok(valid) => valid,
        Err(problems) => {
            let offset = u16::try_from(ensemble.spec.id_offset.unwrap_or(0)).unwrap_or(0);
            let report = status::refused(&gathered.observation, offset, invalid_message(&problems));
            publish::status(context, &gathered, None, &report, &Outcome::default()).await?;
            done("invalid");
            return Ok(Action::requeue(std::time::Duration::from_secs(30)));
        }
    };
    let mut plan = info_span!(target: SPANS, "plan")
        .in_scope(|| plan_under(context.rules, &valid, &gathered.observation));
    let status = gathered.ensemble.status.as_ref();
    plan.report.go_on_from(status.and_then(|s| s.phase));
    span.record("bellwether.ensemble.phase", debug(plan.report.phase));
    let step = plan.step.as_ref().map(|step| match step {
        Step::RestartMember { pod, .. } => format!("restart {pod}"),
        Step::DeleteClaim { claim, .. } => format!("delete {claim}"),
    });
    span.record("bellwether.step", step);
    let outcome = execute::execute(context, &gathered, &plan).await;
    publish::status(context, &gathered, Some(&valid), &plan.report, &outcome).await?;
    publish::events(context, &gathered, &plan, &outcome).await;
    // What was refused holds nothing up: while something is under way it goes on at its pace.
    let is_idle = plan.report.phase == Phase::Ready;
    let failure = outcome.failure.or(outcome.refused.filter(|_| is_idle));
    done(if failure.is_some() { "failed" } else { "done" });
    if let Some(failure) = failure {
        return Err(failure);
    }
    context.backoff.reset(namespace, name);
    let requeue = plan.requeue.as_secs_f64();
    span.record("bellwether.requeue_after_seconds", requeue);
    Ok(Action::requeue(plan.requeue))
}

fn error_policy(guarded: Arc<Guarded>, error: &Error, context: Arc<Context>) -> Action {
    let reference = guarded.object_ref(&());
    let (name, namespace) = (
        reference.name.unwrap_or_default(),
        reference.namespace.unwrap_or_default(),
    );
    let disposition = error.disposition();
    let after = context.backoff.next(&namespace, &name, disposition.retry);
    if disposition.warn {
        tracing::warn!(%namespace, ensemble = %name, %error, retry_after = ?after, "reconcile failed");
    } else {
        tracing::debug!(%namespace, ensemble = %name, %error, retry_after = ?after, "reconcile will be tried again");
    }
    Action::requeue(after)
}
