//! Deleting objects: preconditions, finalizers, and the time that a pod is given to end.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::admission::Review;
use super::kind::Kind;
use super::object::{Object, time_stamp};
use super::refusal::{Refusal, conflict};
use super::store::{Store, Verb};
use super::write::Target;

/// The finalizer of an object whose dependents go first.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents stay.
pub(crate) const ORPHAN: &str = "orphan";

/// How an object is to be deleted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Delete {
    /// What the object must be.
    pub preconditions: Option<Preconditions>,
    /// How long a pod may take to end.
    pub grace_period_seconds: Option<i64>,
    /// What becomes of the dependents.
    pub propagation_policy: Option<Propagation>,
}

/// What the object must be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preconditions {
    /// Its uid.
    pub uid: Option<String>,
    /// Its resource version.
    pub resource_version: Option<String>,
}

/// What becomes of the dependents of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Propagation {
    /// They stay.
    Orphan,
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
}

impl Delete {
    /// At once: what a kubelet says when a pod has ended.
    pub fn now(uid: &str) -> Self {
        Self {
            grace_period_seconds: Some(0),
            ..Self::exactly(uid)
        }
    }

    /// The object of this uid.
    pub fn exactly(uid: &str) -> Self {
        Self {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..Self::default()
        }
    }
}

/// What a deletion does to the object.
enum Stage {
    /// It goes.
    Gone,
    /// It is marked, and goes later.
    Marked(Value),
    /// It is marked already.
    Unchanged,
}

impl Store {
    /// Deletes an object. Returns it if it is still there.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn delete(
        &mut self,
        actor: &str,
        kind: Kind,
        (namespace, name): (&str, &str),
        options: &Delete,
    ) -> Result<Option<Arc<Object>>, Refusal> {
        let target = Target {
            actor,
            manager: actor,
            verb: Verb::Delete,
            kind,
            subresource: "",
            namespace,
            name,
        };
        self.logged(
            &target,
            |store| store.delete_as(&target, options),
            Clone::clone,
        )
    }

    fn delete_as(
        &mut self,
        target: &Target<'_>,
        options: &Delete,
    ) -> Result<Option<Arc<Object>>, Refusal> {
        let object = self.existing(target)?;
        check(target, &object, options)?;
        let mut reviewed = (**object).clone();
        self.admission.review(Review {
            actor: target.actor,
            verb: Verb::Delete,
            kind: target.kind,
            subresource: "",
            object: &mut reviewed,
            before: Some(&object),
        })?;
        match stage(target.kind, &object, options) {
            Stage::Gone => {
                self.remove(target.kind, target.namespace, target.name);
                Ok(None)
            }
            Stage::Unchanged => Ok(Some(object)),
            Stage::Marked(after) => {
                let entry = self.entry_mut(target.kind, target.namespace, target.name);
                let ownership = entry.map(|entry| std::mem::take(&mut entry.ownership));
                let ownership = ownership.unwrap_or_default();
                Ok(Some(self.put(target.kind, after, ownership)))
            }
        }
    }
}

fn check(target: &Target<'_>, object: &Object, options: &Delete) -> Result<(), Refusal> {
    let Some(preconditions) = &options.preconditions else {
        return Ok(());
    };
    let other = |asked: &Option<String>, is: &str| {
        asked
            .as_deref()
            .filter(|asked| *asked != is)
            .map(str::to_owned)
    };
    if let Some(asked) = other(&preconditions.uid, object.uid()) {
        let why = format!(
            "the UID in the precondition ({asked}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            object.uid()
        );
        return Err(conflict(target.kind, target.name, &why));
    }
    let version = object.revision().to_string();
    if let Some(asked) = other(&preconditions.resource_version, &version) {
        let why = format!(
            "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(conflict(target.kind, target.name, &why));
    }
    Ok(())
}

fn stage(kind: Kind, object: &Object, options: &Delete) -> Stage {
    let mut after = (**object).clone();
    // How long until it goes, if it is given time at all.
    let mut grace = None;
    if kind == Kind::POD {
        match grace_of_pod(object, options) {
            Grace::Pending => return Stage::Unchanged,
            Grace::Given(seconds, until) => {
                grace = Some(seconds);
                after["metadata"]["deletionTimestamp"] = until;
                after["metadata"]["deletionGracePeriodSeconds"] = seconds.into();
            }
        }
    }
    let (orphan, foreground) = propagation(object, options);
    let mut finalizers: Vec<&str> = object
        .finalizers()
        .filter(|finalizer| !matches!(*finalizer, FOREGROUND | ORPHAN))
        .collect();
    if orphan {
        finalizers.push(ORPHAN);
    }
    if foreground {
        finalizers.push(FOREGROUND);
    }
    let waits = !finalizers.is_empty();
    if waits || object["metadata"]["finalizers"].is_array() {
        after["metadata"]["finalizers"] = json!(finalizers);
    }
    if !waits && grace.unwrap_or(0) == 0 {
        return Stage::Gone;
    }
    if grace.is_none() && !object.is_terminating() {
        after["metadata"]["deletionTimestamp"] = time_stamp(0);
        after["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    }
    if !object.is_terminating()
        && let Some(generation) = object["metadata"]["generation"].as_i64()
    {
        after["metadata"]["generation"] = (generation + 1).into();
    }
    if after == **object {
        Stage::Unchanged
    } else {
        Stage::Marked(after)
    }
}

enum Grace {
    /// The pod is ending, and the request does not shorten that.
    Pending,
    /// This many seconds, until this time.
    Given(i64, Value),
}

fn grace_of_pod(pod: &Object, options: &Delete) -> Grace {
    let metadata = &pod["metadata"];
    if let (Some(until), Some(before)) = (
        metadata["deletionTimestamp"].as_str(),
        metadata["deletionGracePeriodSeconds"].as_i64(),
    ) {
        let Some(asked) = options.grace_period_seconds.filter(|asked| *asked < before) else {
            return Grace::Pending;
        };
        let until = until.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let until = until.checked_add(SignedDuration::from_secs(asked - before));
        let until = until.unwrap_or(Timestamp::UNIX_EPOCH).to_string();
        return Grace::Given(asked, until.into());
    }
    let asked = options.grace_period_seconds;
    let seconds = asked.or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64());
    let seconds = match seconds.unwrap_or(30) {
        negative if negative < 0 => 1,
        seconds => seconds,
    };
    // What never ran, or has ended, needs no time.
    let unbound = pod["spec"]["nodeName"]
        .as_str()
        .unwrap_or_default()
        .is_empty();
    let ended = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    let seconds = if unbound || ended { 0 } else { seconds };
    Grace::Given(seconds, time_stamp(seconds))
}

/// Whether the dependents stay, and whether they go first.
fn propagation(object: &Object, options: &Delete) -> (bool, bool) {
    match options.propagation_policy {
        Some(Propagation::Orphan) => (true, false),
        Some(Propagation::Foreground) => (false, true),
        Some(Propagation::Background) => (false, false),
        None => {
            let has = |finalizer| object.finalizers().any(|other| other == finalizer);
            (has(ORPHAN), has(FOREGROUND) && !has(ORPHAN))
        }
    }
}
