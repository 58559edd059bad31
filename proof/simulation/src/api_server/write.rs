//! Creating and changing objects.

mod apply;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::admission::{Review, check_growth, check_quotas};
use super::custom;
use super::defaults;
use super::kind::Kind;
use super::object::{Object, finalizers, is_terminating, time_stamp, word};
use super::ownership::{Manager, Ownership};
use super::refusal::{Flaw, Refusal, already_exists, conflict, invalid, not_found, outdated};
use super::store::{Store, Verb, Write};
use super::structure::Place;
use super::{refusal, validation};

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

/// Fields that only the API server sets.
const KEPT: &[&str] = &[
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "name",
    "namespace",
    "generateName",
];

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

    /// An object as it may be made.
    fn admit_new(&mut self, target: &Target<'_>, mut object: Value) -> Result<Value, Refusal> {
        let kind = target.kind;
        let resource = kind.resource();
        let Some(fields) = object.as_object_mut() else {
            return Err(refusal::bad_request("the object is no object"));
        };
        fields.insert("apiVersion".to_owned(), resource.api_version().into());
        fields.insert("kind".to_owned(), resource.name.into());
        if resource.status {
            fields.remove("status");
        }
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        let Some(metadata) = metadata.as_object_mut() else {
            return Err(refusal::bad_request("the metadata are no object"));
        };
        if metadata
            .remove("resourceVersion")
            .is_some_and(|version| version != "")
        {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(refusal::bad_request(why));
        }
        metadata.retain(|_, value| !value.is_null());
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
        ] {
            metadata.remove(field);
        }
        if let (None, Some(stem)) = (metadata.get("name"), metadata.get("generateName")) {
            let stem = stem.as_str().unwrap_or_default();
            let name = format!("{stem}{}", self.new_suffix());
            metadata.insert("name".to_owned(), name.into());
        }
        let name = metadata.get("name").and_then(Value::as_str);
        let Some(name) = name.filter(|name| !name.is_empty()).map(str::to_owned) else {
            let flaw = Flaw {
                field: "metadata.name".to_owned(),
                reason: "FieldValueRequired",
                message: "Required value: name or generateName is required".to_owned(),
            };
            return Err(invalid(kind, "", &[flaw]));
        };
        if resource.namespaced {
            metadata.insert("namespace".to_owned(), target.namespace.into());
        } else {
            metadata.remove("namespace");
        }
        metadata.insert("uid".to_owned(), self.new_uid().into());
        metadata.insert("creationTimestamp".to_owned(), time_stamp(0));
        if resource.counts_generations {
            metadata.insert("generation".to_owned(), 1.into());
        }
        self.admission.review(Review {
            actor: target.actor,
            verb: target.verb,
            kind,
            subresource: target.subresource,
            object: &mut object,
            before: None,
        })?;
        let custom = custom::admit(kind, &mut object, None, false);
        custom.map_err(|flaws| invalid(kind, &name, &flaws))?;
        defaults::fill_new(kind, &mut object);
        let flaws = validation::check(kind, &object, None);
        if !flaws.is_empty() {
            return Err(invalid(kind, &name, &flaws));
        }
        check_quotas(self, kind, target.namespace, &name)?;
        if self.get(kind, target.namespace, &name).is_some() {
            return Err(already_exists(kind, &name));
        }
        Ok(object)
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

    /// An object as it may be after a change; `None` if nothing changes.
    fn admit_change(
        &mut self,
        target: &Target<'_>,
        before: &Object,
        mut after: Value,
    ) -> Result<Option<Value>, Refusal> {
        let kind = target.kind;
        let resource = kind.resource();
        keep(target, before, &mut after)?;
        // Each part is written by its own subresource.
        if target.subresource == "status" {
            let status = after["status"].take();
            after = (**before).clone();
            set(&mut after, "status", &status);
        } else if resource.status {
            set(&mut after, "status", &before["status"]);
        }
        self.admission.review(Review {
            actor: target.actor,
            verb: target.verb,
            kind,
            subresource: target.subresource,
            object: &mut after,
            before: Some(before),
        })?;
        let status = target.subresource == "status";
        let custom = custom::admit(kind, &mut after, Some(before), status);
        custom.map_err(|flaws| invalid(kind, target.name, &flaws))?;
        defaults::fill(kind, &mut after);
        if after == **before {
            return Ok(None);
        }
        if kind == Kind::CLAIM && target.subresource.is_empty() {
            check_growth(self, target.name, before, &after)?;
        }
        let mut flaws = validation::check(kind, &after, Some(before));
        if kind == Kind::POD && target.subresource != "binding" {
            flaws.extend(validation::pod(before, &after));
        }
        flaws.extend(new_finalizers(before, &after));
        if !flaws.is_empty() {
            return Err(invalid(kind, target.name, &flaws));
        }
        if resource.counts_generations && asks_for_another(before, &after) {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or(0);
            after["metadata"]["generation"] = (generation + 1).into();
        }
        Ok(Some(after))
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
}

/// Checks what a change expects of the object, and keeps what it may not change.
fn keep(target: &Target<'_>, before: &Object, after: &mut Value) -> Result<(), Refusal> {
    if !after.is_object() {
        return Err(refusal::bad_request("the object is no object"));
    }
    let version = word(after, "resourceVersion");
    if !version.is_empty() && version.parse() != Ok(before.revision()) {
        return Err(outdated(target.kind, target.name));
    }
    let uid = word(after, "uid");
    if !uid.is_empty() && uid != before.uid() {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            before.uid()
        );
        return Err(conflict(target.kind, target.name, &why));
    }
    for field in ["apiVersion", "kind"] {
        after[field] = before[field].clone();
    }
    let metadata = &mut after["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    for field in KEPT {
        set(metadata, field, &before["metadata"][field]);
    }
    metadata["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("managedFields");
        metadata.retain(|_, value| !value.is_null());
    }
    Ok(())
}

/// Sets a field, or removes it for null.
fn set(object: &mut Value, field: &str, value: &Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    if value.is_null() {
        fields.remove(field);
    } else if fields.get(field) != Some(value) {
        fields.insert(field.to_owned(), value.clone());
    }
}

/// Whether anything but the metadata and the status is different.
fn asks_for_another(before: &Value, after: &Value) -> bool {
    let empty = Map::new();
    let before = before.as_object().unwrap_or(&empty);
    let after = after.as_object().unwrap_or(&empty);
    let matters = |name: &&String| *name != "metadata" && *name != "status";
    let names = before.keys().chain(after.keys()).filter(matters);
    names
        .into_iter()
        .any(|name| before.get(name) != after.get(name))
}

/// A finalizer that is added while the object is being deleted.
fn new_finalizers(before: &Object, after: &Value) -> Option<Flaw> {
    if !before.is_terminating() {
        return None;
    }
    let new: Vec<&str> = finalizers(after)
        .filter(|finalizer| before.finalizers().all(|old| old != *finalizer))
        .collect();
    let found = format!(
        "[]string{{{}}}",
        new.iter()
            .map(|f| format!("{f:?}"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let told = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers {found}"
    );
    (!new.is_empty()).then(|| Flaw::forbidden("metadata.finalizers", &told))
}

impl Store {
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
