//! The executor: carries out a plan on a [`World`].
//!
//! Nothing is decided here: every write is in the plan, and a precondition that does not hold ends the
//! pass. The operator, the forecast, the model check, the servers on loopback and the tests differ only in
//! the world that they give to it.

pub mod objects;

use serde_json::Value;

use crate::desired::{DesiredObject, ObjectKind, bootstrap_config_map, needs_write};
use crate::plan::facts::Facts;
use crate::plan::{Plan, Step, Unwanted};
use crate::rules::{Rule, Rules};

/// What a plan is carried out on: an API server with the servers behind it, or a stand-in.
///
/// The futures are `Send`, so that a pass may run on any thread of the operator.
pub trait World: Send {
    /// Why something could not be done.
    type Error: Send;

    /// The safety rules that hold: all of them, except in the simulation, which shows what each one prevents.
    fn rules(&self) -> Rules {
        Rules::ALL
    }

    /// Whether this process may still write, because it holds the operator's lease. The executor asks before
    /// every write, and an error ends the pass.
    fn may_act(&self) -> Result<(), Self::Error>;

    /// The object of this kind and name as the plan's observation has it.
    fn live(&self, kind: ObjectKind, name: &str) -> Option<&Value>;

    /// Writes an object. Where the body carries a uid or a resource version, these are preconditions.
    /// Returns the resource version that the object has then.
    fn write(
        &mut self,
        object: &DesiredObject,
    ) -> impl Future<Output = Result<Option<String>, Self::Error>> + Send;

    /// The facts of steps, all of them read again now; `None` if the ensemble does not exist any more.
    fn facts(&mut self) -> impl Future<Output = Result<Option<Facts>, Self::Error>> + Send;

    /// Takes a step, with every precondition that it names. Returns false when one does not hold.
    fn take(&mut self, step: &Step) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// The step is not taken, because the facts that it was decided on have changed.
    fn declined(&mut self, step: &Step, why: &str);

    /// Deletes an object that is not wanted any more; if a unique id is given, only the object with this id. An object
    /// that does not exist is not an error.
    fn prune(&mut self, object: &Unwanted) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// What was carried out.
#[derive(Debug)]
pub struct Outcome<E> {
    /// Whether a StatefulSet was written; then no disruptive step was taken.
    pub stateful_set_written: bool,
    /// The step that was carried out.
    pub step: Option<Step>,
    /// Whether the bootstrap permission was written.
    pub permission_written: bool,
    /// What ended the pass early.
    pub failure: Option<E>,
    /// The first failed write of [`Plan::last`]. It does not end the pass.
    pub refused: Option<E>,
}

impl<E> Default for Outcome<E> {
    fn default() -> Self {
        Self {
            stateful_set_written: false,
            step: None,
            permission_written: false,
            failure: None,
            refused: None,
        }
    }
}

/// Whether there is nothing to carry out: `live` has every object as the plan wants it, and the plan has no step.
pub fn asks_for_nothing<'a>(
    plan: &Plan,
    live: impl Fn(ObjectKind, &str) -> Option<&'a Value>,
) -> bool {
    let mut objects = plan.objects.iter().chain(&plan.last);
    plan.step.is_none()
        && plan.prune.is_empty()
        && objects.all(|object| !needs_write(object, live(object.kind, &object.name)))
}

/// Carries out the plan for the ensemble of this name until it is done or a failure ends the pass.
pub async fn execute<W: World>(world: &mut W, ensemble: &str, plan: &Plan) -> Outcome<W::Error> {
    let mut outcome = Outcome::default();
    if let Err(failure) = try_execute(world, ensemble, plan, &mut outcome).await {
        outcome.failure = Some(failure);
    }
    outcome
}

async fn try_execute<W: World>(
    world: &mut W,
    ensemble: &str,
    plan: &Plan,
    outcome: &mut Outcome<W::Error>,
) -> Result<(), W::Error> {
    let permission = bootstrap_config_map(ensemble);
    for object in &plan.objects {
        let written = write_if_needed(world, &permission, object).await?;
        outcome.stateful_set_written |= written && object.kind == ObjectKind::StatefulSet;
        outcome.permission_written |= written && object.name == permission;
    }
    let looks_first = world.rules().keep(Rule::WriteThenLook);
    if let (Some(step), false) = (&plan.step, outcome.stateful_set_written && looks_first)
        && take(world, plan, step).await?
    {
        outcome.step = Some(step.clone());
    }
    for object in &plan.prune {
        world.may_act()?;
        world.prune(object).await?;
    }
    for object in &plan.last {
        let written = write_if_needed(world, &permission, object).await;
        outcome.refused = outcome.refused.take().or(written.err());
    }
    Ok(())
}

/// Takes the step if the facts that it was decided on are still the same.
async fn take<W: World>(world: &mut W, plan: &Plan, step: &Step) -> Result<bool, W::Error> {
    world.may_act()?;
    if !world.rules().keep(Rule::FreshFacts) {
        return world.take(step).await;
    }
    let change = match world.facts().await? {
        Some(now) => plan.facts.change(&now, step),
        None => Some("the ensemble does not exist any more".to_owned()),
    };
    if let Some(why) = change {
        world.declined(step, &why);
        return Ok(false);
    }
    world.may_act()?;
    world.take(step).await
}

/// Writes an object if it differs from the plan, and returns whether the write changed it. If an admission
/// webhook undoes a write, the resource version stays, and there is no change to wait for.
async fn write_if_needed<W: World>(
    world: &mut W,
    permission: &str,
    object: &DesiredObject,
) -> Result<bool, W::Error> {
    let live = world.live(object.kind, &object.name);
    if !needs_write(object, live) {
        return Ok(false);
    }
    let before = live.map(|live| live["metadata"]["resourceVersion"].clone());
    let as_seen = world.rules().keep(Rule::WriteAsSeen);
    let guarded = guarded(permission, object, live).filter(|_| as_seen);
    world.may_act()?;
    let after = world.write(guarded.as_ref().unwrap_or(object)).await?;
    let before = before.as_ref().and_then(Value::as_str);
    Ok(before.is_none() || before != after.as_deref())
}

/// The StatefulSet decides about pods, and the bootstrap permission about votes: the API server accepts a write
/// of them only if they have not changed since the plan's observation.
fn guarded(
    permission: &str,
    object: &DesiredObject,
    live: Option<&Value>,
) -> Option<DesiredObject> {
    if object.kind != ObjectKind::StatefulSet && object.name != permission {
        return None;
    }
    let live = &live?["metadata"];
    let mut guarded = object.clone();
    for field in ["uid", "resourceVersion"] {
        guarded.body["metadata"][field] = live[field].clone();
    }
    Some(guarded)
}

#[cfg(test)]
mod tests;
