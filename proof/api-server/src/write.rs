//! Creating and changing objects.

mod admit;
mod apply;

use std::sync::Arc;

use serde_json::Value;

use super::kind::Kind;
use super::object::{Object, finalizers, is_terminating, word};
use super::ownership::{Manager, Ownership};
use super::refusal::{Refusal, conflict, not_found};
use super::store::{Store, Verb, Write};
use super::structure::Place;

/// Who asks for a write, and of which object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'t> {
    pub(crate) actor: &'t str,
    /// Under which name the fields are owned.
    pub(crate) manager: &'t str,
    pub(crate) verb: Verb,
    pub(crate) kind: Kind,
    pub(crate) subresource: &'static str,
    pub(crate) namespace: &'t str,
    pub(crate) name: &'t str,
}

impl Target<'_> {
    fn manager(&self) -> Manager {
        Manager {
            name: self.manager.to_owned(),
            applies: self.verb == Verb::Apply,
            subresource: self.subresource,
            api_version: self.kind.resource().api_version(),
        }
    }
}

impl Store {
    /// Makes an object.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn create(
        &mut self,
        actor: &str,
        kind: Kind,
        object: Value,
    ) -> Result<Arc<Object>, Refusal> {
        let namespace = word(&object, "namespace").to_owned();
        let name = word(&object, "name").to_owned();
        let target = Target {
            actor,
            manager: actor,
            verb: Verb::Create,
            kind,
            subresource: "",
            namespace: &namespace,
            name: &name,
        };
        self.create_as(&target, object)
    }

    /// Changes an object as it is now. The status, if it is a subresource, stays.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn update(
        &mut self,
        actor: &str,
        kind: Kind,
        (namespace, name): (&str, &str),
        change: impl FnOnce(&mut Value),
    ) -> Result<Arc<Object>, Refusal> {
        self.update_part(actor, kind, "", (namespace, name), change)
    }

    /// Changes the status of an object as it is now, and nothing else of it.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn update_status(
        &mut self,
        actor: &str,
        kind: Kind,
        (namespace, name): (&str, &str),
        change: impl FnOnce(&mut Value),
    ) -> Result<Arc<Object>, Refusal> {
        let change = |object: &mut Value| change(&mut object["status"]);
        self.update_part(actor, kind, "status", (namespace, name), change)
    }

    /// Changes the status of an object, if it is still the version that was seen.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn update_status_of(
        &mut self,
        actor: &str,
        kind: Kind,
        seen: &Object,
        change: impl FnOnce(&mut Value),
    ) -> Result<Arc<Object>, Refusal> {
        let at = (seen.namespace(), seen.name());
        self.update_part(actor, kind, "status", at, |object| {
            for key in ["uid", "resourceVersion"] {
                object["metadata"][key] = seen["metadata"][key].clone();
            }
            change(&mut object["status"]);
        })
    }

    fn update_part(
        &mut self,
        actor: &str,
        kind: Kind,
        subresource: &'static str,
        (namespace, name): (&str, &str),
        change: impl FnOnce(&mut Value),
    ) -> Result<Arc<Object>, Refusal> {
        let target = Target {
            actor,
            manager: actor,
            verb: Verb::Update,
            kind,
            subresource,
            namespace,
            name,
        };
        self.update_as(&target, |object| {
            change(object);
            Ok(())
        })
    }

    pub(crate) fn logged<T>(
        &mut self,
        target: &Target<'_>,
        carry_out: impl FnOnce(&mut Self) -> Result<T, Refusal>,
        after: impl FnOnce(&T) -> Option<Arc<Object>>,
    ) -> Result<T, Refusal> {
        let before = self
            .get(target.kind, target.namespace, target.name)
            .cloned();
        let result = carry_out(self);
        let object = result.as_ref().ok().and_then(after);
        if let Some(object) = &object {
            self.show_managed_fields(target.kind, object);
        }
        let name = match &object {
            Some(object) => object.name().to_owned(),
            None => target.name.to_owned(),
        };
        self.log(Write {
            at: crate::clock::now(),
            sent: self.sent,
            actor: Arc::from(target.actor),
            verb: target.verb,
            kind: target.kind,
            namespace: target.namespace.to_owned(),
            name,
            subresource: target.subresource,
            before,
            result: match &result {
                Ok(_) => Ok(object),
                Err(refusal) => Err((refusal.code, refusal.message.clone())),
            },
        });
        result
    }

    /// Shows who manages the fields of an object after a write. Nobody reads that of other kinds, nor of pods
    /// that were never applied, and it takes long to work out.
    fn show_managed_fields(&mut self, kind: Kind, object: &Arc<Object>) {
        if !matches!(kind, Kind::POD | Kind::STATEFUL_SET) {
            return;
        }
        if let Some(entry) = self.entry_mut(kind, object.namespace(), object.name())
            && Arc::ptr_eq(&entry.object, object)
            && (kind == Kind::STATEFUL_SET || entry.ownership.is_applied())
        {
            object.show_managed_fields(|| entry.ownership.managed_fields(&Place::root(kind)));
        }
    }

    pub(crate) fn create_as(
        &mut self,
        target: &Target<'_>,
        object: Value,
    ) -> Result<Arc<Object>, Refusal> {
        self.logged(
            target,
            |store| {
                let object = store.admit_new(target, object)?;
                let object = store.put(target.kind, object, Ownership::default());
                store.owned_by_update(target, None, &object);
                Ok(object)
            },
            |object| Some(object.clone()),
        )
    }

    fn owned_by_update(
        &mut self,
        target: &Target<'_>,
        before: Option<Arc<Object>>,
        after: &Arc<Object>,
    ) {
        let place = Place::root(target.kind);
        if let Some(entry) = self.entry_mut(target.kind, after.namespace(), after.name()) {
            let manager = target.manager();
            entry
                .ownership
                .updated(manager, before, after.clone(), &place);
        }
    }

    /// Changes an object; `change` gets it as it is.
    pub(crate) fn update_as(
        &mut self,
        target: &Target<'_>,
        change: impl FnOnce(&mut Value) -> Result<(), Refusal>,
    ) -> Result<Arc<Object>, Refusal> {
        self.logged(
            target,
            |store| {
                let before = store.existing(target)?;
                let mut after = (**before).clone();
                change(&mut after)?;
                let Some(after) = store.admit_change(target, &before, after)? else {
                    return Ok(before);
                };
                let Some(after) = store.put_or_finalize(target, &before, after) else {
                    return Ok(before);
                };
                store.owned_by_update(target, Some(before), &after);
                Ok(after)
            },
            |object| Some(object.clone()),
        )
    }

    pub(crate) fn existing(&self, target: &Target<'_>) -> Result<Arc<Object>, Refusal> {
        self.get(target.kind, target.namespace, target.name)
            .cloned()
            .ok_or_else(|| not_found(target.kind, target.name))
    }

    /// Puts the object, or removes it when it waited for its last finalizer only.
    fn put_or_finalize(
        &mut self,
        target: &Target<'_>,
        before: &Object,
        after: Value,
    ) -> Option<Arc<Object>> {
        let grace = before["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let gone = is_terminating(&after)
            && finalizers(&after).next().is_none()
            && grace.unwrap_or(0) == 0;
        if gone {
            self.remove(target.kind, target.namespace, target.name);
            return None;
        }
        let ownership = self.take_ownership(target);
        Some(self.put(target.kind, after, ownership))
    }

    fn take_ownership(&mut self, target: &Target<'_>) -> Ownership {
        self.entry_mut(target.kind, target.namespace, target.name)
            .map(|entry| std::mem::take(&mut entry.ownership))
            .unwrap_or_default()
    }

    /// Places a pod on a node, as the scheduler does.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn bind(
        &mut self,
        actor: &str,
        (namespace, pod): (&str, &str),
        node: &str,
    ) -> Result<Arc<Object>, Refusal> {
        let target = Target {
            actor,
            manager: actor,
            verb: Verb::Update,
            kind: Kind::POD,
            subresource: "binding",
            namespace,
            name: pod,
        };
        self.update_as(&target, |pod| {
            let placed = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            if !placed.is_empty() && placed != node {
                let why = format!("pod {} is already assigned to node {placed:?}", target.name);
                return Err(conflict(Kind::POD, target.name, &why));
            }
            pod["spec"]["nodeName"] = node.into();
            Ok(())
        })
    }
}
