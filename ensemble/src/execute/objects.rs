//! The objects that a stand-in for the API server keeps, for worlds that exist in memory only.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::desired::{DesiredObject, ObjectKind, Write};

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

    /// Writes an object and returns its resource version, which moves only if the write changed it.
    pub fn write(&mut self, object: &DesiredObject) -> String {
        let key = (object.kind, object.name.clone());
        let before = self.all.get(&key).cloned();
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
        version
    }

    /// Changes an object as somebody else than the operator would; one that does not exist is left.
    pub fn edit(&mut self, kind: ObjectKind, name: &str, change: impl FnOnce(&mut Value)) {
        if let Some(object) = self.all.get_mut(&(kind, name.to_owned())) {
            change(object);
            self.version += 1;
            object["metadata"]["resourceVersion"] = Value::String(self.version.to_string());
        }
    }

    /// Removes an object.
    pub fn remove(&mut self, kind: ObjectKind, name: &str) {
        self.all.remove(&(kind, name.to_owned()));
    }

    /// Removes every object.
    pub fn clear(&mut self) {
        self.all.clear();
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
