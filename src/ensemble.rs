//! The controller of `ZooKeeperEnsemble`: one path from watch event to status.

mod creation;
mod durations;
mod error;
mod execute;
mod gather;
pub(crate) mod identity;
pub(crate) mod members;
mod objects;
mod pace;
mod publish;
mod stores;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use bellwether_api::ZooKeeperEnsemble;
use bellwether_api::ensemble::Phase;
use bellwether_ensemble::execute::asks_for_nothing;
use bellwether_ensemble::plan::report::Report;
use bellwether_ensemble::plan::{self, Step, plan_under};
use bellwether_ensemble::rules::Rules;
use bellwether_ensemble::validate::{Context as Contribution, invalid_message};
use bellwether_ensemble::{Plan, ValidEnsemble, status, validate};
use futures::StreamExt;
use kube::core::DeserializeGuard;
use kube::runtime::controller::{Action, Config};
use kube::runtime::events::Reporter;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Client, Resource};
use tokio::time::{Instant, timeout_at};
use tracing::field::{Empty, debug};
use tracing::{Instrument as _, Span, info_span, instrument};

use crate::backoff::Backoff;
use crate::lease::Held;
use crate::metrics::Metrics;
use crate::scoped::api;
use crate::traces::SPANS;
use creation::Creation;
use durations::Durations;
use error::Error;
use gather::Gathered;
use identity::Identities;
use members::Members;
use objects::Trim as _;
use pace::{Inputs, Pace};
use stores::{Key, PAGE, Stores};

/// What every reconcile of an ensemble uses.
pub(crate) struct Context {
    /// The API server.
    pub client: Client,
    /// The members, to ask.
    pub members: Arc<dyn Members>,
    /// The certificates of members.
    pub identities: Identities,
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

/// How many passes may be under way at once. Each holds the objects of its ensemble, and all ensembles have one when
/// the operator starts: without a bound the operator needs more memory than its container has.
const PASSES: u16 = 48;
/// How long passes wait for the first lists after the start. If a kind cannot be listed, reading the ensemble fails
/// as well, and the status reports why.
const LISTED: Duration = Duration::from_secs(10);
/// How soon a spec that is refused is looked at again.
const INVALID: Duration = Duration::from_secs(30);

/// The unit of work: an ensemble that may not parse.
type Guarded = DeserializeGuard<ZooKeeperEnsemble>;

/// The ensembles of one namespace, or of all of them.
struct Scope {
    context: Arc<Context>,
    stores: Stores,
    pace: Pace,
    /// When the watches began.
    begin: Instant,
}

/// Runs the controller for one namespace, or for all of them, until `shutdown`.
pub(crate) async fn run(
    context: Arc<Context>,
    namespace: Option<String>,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let client = context.client.clone();
    let within = namespace.as_deref();
    let scope = Arc::new(Scope {
        context: context.clone(),
        stores: Stores::default(),
        pace: Pace::default(),
        begin: Instant::now(),
    });
    let changed = scope
        .stores
        .follow(&client, within, context.contribution.cert_manager);
    let changed =
        changed.map(|(namespace, name)| ObjectRef::<Guarded>::new(&name).within(&namespace));
    let (store, writer) = reflector::store();
    let shown = watcher(
        api::<Guarded>(&client, within),
        watcher::Config::default().page_size(PAGE),
    );
    let shown = shown.default_backoff().modify(|guarded| {
        if let Ok(ensemble) = &mut guarded.0 {
            ensemble.trim();
        }
    });
    let shown = shown.reflect(writer).applied_objects();
    let controller = Controller::for_stream(shown, store.clone());
    context.metrics.watch(move |namespace, name| {
        let reference = ObjectRef::<Guarded>::new(name).within(namespace);
        store.get(&reference).is_some()
    });
    controller
        .with_config(Config::default().concurrency(PASSES))
        .reconcile_on(changed)
        .graceful_shutdown_on(shutdown)
        .run(reconcile, error_policy, scope)
        .for_each(|result| async {
            if let Err(error) = result {
                tracing::debug!(%error, "reconcile ended with an error");
            }
        })
        .await;
}

/// One pass, and a trace of it.
async fn reconcile(guarded: Arc<Guarded>, scope: Arc<Scope>) -> Result<Action, Error> {
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
    let result = pass(&guarded, &scope, &(namespace, name), &span)
        .instrument(span.clone())
        .await;
    if let Err(error) = &result {
        span.record("bellwether.outcome", "failed");
        error.show(&span);
    }
    result
}

/// One pass: gather, validate, plan, execute, publish.
///
/// The first plan uses what watches show. If it asks for anything, the pass reads everything from the API
/// server and plans again.
async fn pass(guarded: &Guarded, scope: &Scope, key: &Key, span: &Span) -> Result<Action, Error> {
    let context = &*scope.context;
    let (namespace, name) = (key.0.as_str(), key.1.as_str());
    let timer = context.metrics.reconcile_started("ZooKeeperEnsemble");
    let done = |outcome: &'static str| {
        timer.done(outcome);
        span.record("bellwether.outcome", outcome);
    };
    let shown = match &guarded.0 {
        Ok(shown) => shown,
        Err(error) => {
            publish::unreadable(context, namespace, name, error).await?;
            done("unreadable");
            return Ok(Action::await_change());
        }
    };
    match look(scope, key, shown, span).await {
        Look::Rests(wait) => {
            context.backoff.reset(namespace, name);
            done("done");
            return Ok(Action::requeue(wait));
        }
        Look::Waits(wait) => {
            done("waits");
            return Ok(Action::requeue(wait));
        }
        Look::Reads => {}
    }
    scope.pace.reads(key);
    let gathered = gather::gather(context, namespace, name).await?;
    let exists = |g: &Gathered| g.ensemble.meta().deletion_timestamp.is_none();
    let Some(gathered) = gathered.filter(exists) else {
        // Kubernetes deletes everything that the ensemble owns, by its owner references.
        context.metrics.forget(namespace, name);
        context.backoff.reset(namespace, name);
        scope.pace.forget(key);
        done("gone");
        return Ok(Action::await_change());
    };
    let (valid, plan) = match decide(context, &gathered) {
        Ok(decided) => decided,
        Err(report) => {
            publish::status(context, &gathered, None, &report, None).await?;
            done("invalid");
            return Ok(Action::requeue(INVALID));
        }
    };
    span.record("bellwether.ensemble.phase", debug(plan.report.phase));
    let step = plan.step.as_ref().map(|step| match step {
        Step::RestartMember { pod, .. } => format!("restart {pod}"),
        Step::Reconfigure { list, .. } => format!("reconfigure {list}"),
        Step::Replace { id, .. } => format!("replace {id}"),
        Step::DeleteClaim { claim, .. } => format!("delete {claim}"),
    });
    span.record("bellwether.step", step);
    let outcome = execute::execute(context, &gathered, &valid, &plan).await;
    let said = publish::failure(&outcome);
    let failure = said.as_deref();
    publish::status(context, &gathered, Some(&valid), &plan.report, failure).await?;
    publish::events(context, &gathered, &plan, &outcome).await;
    // A refused write does not delay a change that is under way: it fails the pass only in phase `Ready`.
    let is_idle = plan.report.phase == Phase::Ready;
    let failure = outcome.failure.or(outcome.refused.filter(|_| is_idle));
    done(if failure.is_some() { "failed" } else { "done" });
    if let Some(failure) = failure {
        scope.pace.fails(key, said);
        return Err(failure);
    }
    context.backoff.reset(namespace, name);
    let requeue = scope.pace.after(key, plan.requeue);
    span.record("bellwether.requeue_after_seconds", requeue.as_secs_f64());
    Ok(Action::requeue(requeue))
}

/// The result of a look at what watches show.
enum Look {
    /// There is nothing to write and no step to take; the next look is due after this time.
    Rests(Duration),
    /// The last pass failed, nothing has changed since, and the next one is not due: look again after this time.
    Waits(Duration),
    /// Everything has to be read from the API server.
    Reads,
}

/// Looks at an ensemble as watches show it.
#[instrument(target = SPANS, skip_all)]
async fn look(scope: &Scope, key: &Key, shown: &ZooKeeperEnsemble, span: &Span) -> Look {
    let (context, pace) = (&*scope.context, &scope.pace);
    let listed = timeout_at(scope.begin + LISTED, scope.stores.listed()).await;
    if listed.is_err() || shown.meta().deletion_timestamp.is_some() {
        return Look::Reads;
    }
    let known = shown.metadata.resource_version.as_ref();
    let resting = pace.resting(key, known, &scope.stores.version(key));
    if let Some((members, learners)) = resting
        && gather::are_as_before(context, &members, learners).await
    {
        return Look::Rests(pace.after(key, plan::LATER));
    }
    let (objects, version) = scope.stores.objects(shown.clone(), key);
    let gathered = gather::observe(context, &objects).await;
    let observation = &gathered.observation;
    pace.look(key, Inputs::of(known.cloned(), version, observation));
    let failed = pace.failed(key);
    if failed.is_none() && pace.must_read(key) {
        return Look::Reads;
    }
    let (valid, plan) = match decide(context, &gathered) {
        Ok(decided) => decided,
        Err(report) => {
            return match publish::next(context, &gathered, None, &report, None) {
                None => Look::Rests(pace.after(key, INVALID)),
                Some(_) => Look::Reads,
            };
        }
    };
    let failure = failed.as_ref().and_then(|failed| failed.failure.as_deref());
    if publish::next(context, &gathered, Some(&valid), &plan.report, failure).is_some() {
        return Look::Reads;
    }
    if let Some(failed) = failed {
        return Look::Waits(pace.waits(key, failed.remaining()));
    }
    let live = |kind, name: &str| gathered.live.get(&(kind, name.to_owned()));
    let wanted = context.identities.wanted(&gathered, &valid).await;
    if !asks_for_nothing(&plan, live) || wanted.is_some() {
        return Look::Reads;
    }
    span.record("bellwether.ensemble.phase", debug(plan.report.phase));
    // Members that take up new certificates change no object.
    let record = observation.identity.as_ref();
    let replaces = record.is_some_and(|record| record.trust.other.is_some());
    if plan.report.may_rest() && !replaces {
        pace.rests(key, gather::resting(&objects, &gathered));
    }
    Look::Rests(pace.after(key, plan.requeue))
}

/// The plan for what was gathered, or the report on a spec that is refused.
fn decide(context: &Context, gathered: &Gathered) -> Result<(ValidEnsemble, Plan), Box<Report>> {
    let ensemble = &gathered.ensemble;
    let valid = validate(ensemble, &context.contribution).map_err(|problems| {
        let offset = u16::try_from(ensemble.spec.id_offset.unwrap_or(0)).unwrap_or(0);
        let message = invalid_message(&problems);
        Box::new(status::refused(&gathered.observation, offset, message))
    })?;
    let plan = info_span!(target: SPANS, "plan")
        .in_scope(|| plan_under(context.rules, &valid, &gathered.observation));
    Ok((valid, plan))
}

fn error_policy(guarded: Arc<Guarded>, error: &Error, scope: Arc<Scope>) -> Action {
    let reference = guarded.object_ref(&());
    let (name, namespace) = (
        reference.name.unwrap_or_default(),
        reference.namespace.unwrap_or_default(),
    );
    let disposition = error.disposition();
    let after = scope
        .context
        .backoff
        .next(&namespace, &name, disposition.retry);
    let key = (namespace, name);
    let look = scope.pace.waits(&key, after);
    let (namespace, name) = key;
    if disposition.warn {
        tracing::warn!(%namespace, ensemble = %name, %error, retry_after = ?after, "reconcile failed");
    } else {
        tracing::debug!(%namespace, ensemble = %name, %error, retry_after = ?after, "reconcile will be tried again");
    }
    Action::requeue(look)
}
