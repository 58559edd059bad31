//! Server-side apply.

use std::sync::Arc;

use serde_json::Value;

use super::Target;
use crate::kind::Kind;
use crate::merge::{merge_applied, prune};
use crate::object::{Object, word};
use crate::ownership::{Fields, Ownership};
use crate::refusal::{self, Refusal, conflict};
use crate::store::{Store, Verb};
use crate::structure::Place;

impl Store {
    /// Applies a configuration under a manager's name.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn apply(
        &mut self,
        actor: &str,
        kind: Kind,
        (namespace, name): (&str, &str),
        applied: Value,
        force: bool,
    ) -> Result<Arc<Object>, Refusal> {
        let target = Target {
            actor,
            manager: actor,
            verb: Verb::Apply,
            kind,
            subresource: "",
            namespace,
            name,
        };
        self.apply_as(&target, applied, force)
    }

    /// Applies a configuration.
    pub(crate) fn apply_as(
        &mut self,
        target: &Target<'_>,
        mut applied: Value,
        force: bool,
    ) -> Result<Arc<Object>, Refusal> {
        without_nulls(&mut applied);
        if let Some(fields) = applied.as_object_mut() {
            if target.subresource == "status" {
                fields.retain(|name, _| {
                    matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status")
                });
            } else if target.kind.resource().status {
                fields.remove("status");
            }
        }
        self.logged(
            target,
            |store| match store.existing(target) {
                Ok(before) => {
                    let mut ownership = store.take_ownership(target);
                    let result = store.apply_to(target, &before, &mut ownership, &applied, force);
                    if let Some(entry) =
                        store.entry_mut(target.kind, target.namespace, target.name)
                    {
                        entry.ownership = ownership;
                    }
                    result
                }
                Err(refusal) if target.subresource.is_empty() => {
                    for key in ["uid", "resourceVersion"] {
                        if !word(&applied, key).is_empty() {
                            let why = format!("{key} mismatch: the provided object specified {key} {}, and no existing object was found", word(&applied, key));
                            return Err(conflict(target.kind, target.name, &why));
                        }
                    }
                    drop(refusal);
                    store.apply_new(target, applied)
                }
                Err(refusal) => Err(refusal),
            },
            |object| Some(object.clone()),
        )
    }

    fn apply_new(
        &mut self,
        target: &Target<'_>,
        mut applied: Value,
    ) -> Result<Arc<Object>, Refusal> {
        let place = Place::root(target.kind);
        let fields = Fields::of(&applied, &place);
        applied["metadata"]["name"] = target.name.into();
        let object = self.admit_new(target, applied)?;
        let mut ownership = Ownership::default();
        ownership.applied(target.manager(), fields, &Value::Null, &object, &place);
        Ok(self.put(target.kind, object, ownership))
    }

    fn apply_to(
        &mut self,
        target: &Target<'_>,
        before: &Arc<Object>,
        ownership: &mut Ownership,
        applied: &Value,
        force: bool,
    ) -> Result<Arc<Object>, Refusal> {
        let place = Place::root(target.kind);
        let manager = target.manager();
        let last = ownership.of(&manager, &place);
        let fields = Fields::of(applied, &place);
        let mut after = (***before).clone();
        merge_applied(&mut after, applied, &place);
        if !force {
            let conflicts = ownership.conflicts(&manager, before, &after, &place);
            if !conflicts.is_empty() {
                return Err(refusal::apply_conflict(&conflicts));
            }
        }
        let mut gone = last.clone();
        gone.subtract(&fields);
        let mut kept = ownership.of_others(&manager);
        kept.add(&fields);
        prune(&mut after, &gone, &kept, &place);
        let after = match self.admit_change(target, before, after)? {
            Some(after) => after,
            None if last == fields => return Ok(before.clone()),
            None => (***before).clone(),
        };
        ownership.applied(manager, fields, before, &after, &place);
        match self.put_or_finalize(target, before, after) {
            Some(after) => Ok(after),
            None => Ok(before.clone()),
        }
    }
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}
