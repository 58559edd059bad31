//! The objects that a stand-in for the API server keeps, for worlds that exist in memory only.

mod read;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::desired::{DesiredObject, ObjectKind, Write};
pub use read::{Template, storage, version};

/// A write that the API server refuses, by the name of the object: it is not as the writer saw it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not as it was seen, so the API server refuses the write")]
pub struct Refused(pub String);

/// Objects by kind and name, each with a uid and the resource version of its last change.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    all: BTreeMap<(ObjectKind, String), Value>,
    version: u64,
}

impl Objects {
    /// The object of this kind and name.
    pub fn get(&self, kind: ObjectKind, name: &str) -> Option<&Value> {
        self.all.get(&(kind, name.to_owned()))
    }

    /// The objects of this kind with their names, in the order of these.
    fn of(&self, kind: ObjectKind) -> impl Iterator<Item = (&str, &Value)> {
        let of_kind = self.all.iter().filter(move |((k, _), _)| *k == kind);
        of_kind.map(|((_, name), object)| (name.as_str(), object))
    }

    /// A number that grows with every change of an object.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Writes an object and returns its resource version, which moves only if the write changed it.
    ///
    /// # Errors
    /// When a uid or a resource version in the body is not that of the object, or nothing is there to merge
    /// with.
    pub fn write(&mut self, object: &DesiredObject) -> Result<String, Refused> {
        let key = (object.kind, object.name.clone());
        let before = self.all.get(&key).cloned();
        let differs = |field: &str| {
            let expected = &object.body["metadata"][field];
            let found = before.as_ref().map(|before| &before["metadata"][field]);
            !expected.is_null() && found != Some(expected)
        };
        let missing = before.is_none() && object.write == Write::Merge;
        if missing || differs("uid") || differs("resourceVersion") {
            return Err(Refused(object.name.clone()));
        }
        let mut after = match object.write {
            Write::Apply => object.body.clone(),
            Write::Merge => {
                let mut merged = before.clone().unwrap_or_default();
                merge(&mut merged, &object.body);
                merged
            }
        };
        for field in ["uid", "resourceVersion"] {
            after["metadata"][field] = match &before {
                Some(before) => before["metadata"][field].clone(),
                None => Value::String(self.version.to_string()),
            };
        }
        if before.as_ref() != Some(&after) {
            self.version += 1;
            after["metadata"]["resourceVersion"] = Value::String(self.version.to_string());
        }
        let version = after["metadata"]["resourceVersion"].as_str();
        let version = version.unwrap_or_default().to_owned();
        self.all.insert(key, after);
        Ok(version)
    }

    /// Changes an object as another client than the operator would, if the object exists.
    pub fn edit(&mut self, kind: ObjectKind, name: &str, change: impl FnOnce(&mut Value)) {
        if let Some(object) = self.all.get_mut(&(kind, name.to_owned())) {
            change(object);
            self.version += 1;
            object["metadata"]["resourceVersion"] = Value::String(self.version.to_string());
        }
    }

    /// Removes an object.
    pub fn remove(&mut self, kind: ObjectKind, name: &str) {
        if self.all.remove(&(kind, name.to_owned())).is_some() {
            self.version += 1;
        }
    }

    /// Removes every object of another kind.
    pub fn keep_only(&mut self, kind: ObjectKind) {
        self.all.retain(|(k, _), _| *k == kind);
        self.version += 1;
    }
}

/// A JSON merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Default::default());
    }
    for (key, value) in fields {
        match value {
            Value::Null => {
                target.as_object_mut().map(|target| target.remove(key));
            }
            _ => merge(&mut target[key.as_str()], value),
        }
    }
}
