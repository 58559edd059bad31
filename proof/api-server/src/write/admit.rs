//! What becomes of an object before it is stored: it is completed, checked and reviewed, or refused.

use serde_json::{Map, Value, json};

use super::Target;
use crate::admission::{Review, check_growth, check_quotas};
use crate::kind::Kind;
use crate::object::{Object, finalizers, time_stamp, word};
use crate::refusal::{self, Flaw, Refusal, already_exists, conflict, invalid, outdated};
use crate::store::Store;
use crate::{custom, defaults, validation};

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
    /// An object as it may be made.
    pub(super) fn admit_new(
        &mut self,
        target: &Target<'_>,
        mut object: Value,
    ) -> Result<Value, Refusal> {
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

    /// An object as it may be after a change; `None` if nothing changes.
    pub(super) fn admit_change(
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
