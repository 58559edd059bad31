//! One version of an object.

use std::ops::Deref;
use std::sync::OnceLock;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// One version of an object, as it is in the store. It reads like a [`Value`], and is written as text once.
#[derive(Debug)]
pub struct Object {
    value: Value,
    revision: u64,
    name: Box<str>,
    namespace: Box<str>,
    uid: Box<str>,
    /// Who manages its fields. It is not in the value, of which nothing is written because of it.
    managed_fields: OnceLock<Value>,
    text: OnceLock<Bytes>,
    metadata_text: OnceLock<Bytes>,
}

impl Deref for Object {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

impl Object {
    /// This version of an object.
    pub(crate) fn new(mut value: Value, revision: u64) -> Self {
        value["metadata"]["resourceVersion"] = Value::String(revision.to_string());
        // They are asked for many times in each step.
        let word = |key: &str| Box::from(word(&value, key));
        let (name, namespace, uid) = (word("name"), word("namespace"), word("uid"));
        Self {
            value,
            revision,
            name,
            namespace,
            uid,
            managed_fields: OnceLock::new(),
            text: OnceLock::new(),
            metadata_text: OnceLock::new(),
        }
    }

    /// The resource version.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Shows who manages its fields to those who read it from now on.
    pub(crate) fn show_managed_fields(&self, managed_fields: impl FnOnce() -> Value) {
        self.managed_fields.get_or_init(managed_fields);
    }

    /// Its metadata as clients read them.
    fn metadata(&self) -> Value {
        let mut metadata = self.value["metadata"].clone();
        if let Some(managed_fields) = self.managed_fields.get() {
            metadata["managedFields"] = managed_fields.clone();
        }
        metadata
    }

    /// The object as JSON.
    pub(crate) fn text(&self) -> &Bytes {
        self.text.get_or_init(|| {
            if self.managed_fields.get().is_none() {
                return written(&self.value);
            }
            let mut value = self.value.clone();
            value["metadata"] = self.metadata();
            written(&value)
        })
    }

    /// Its metadata alone, as a `PartialObjectMetadata`.
    pub(crate) fn metadata_text(&self) -> &Bytes {
        self.metadata_text.get_or_init(|| {
            written(&json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": self.metadata(),
            }))
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace; empty where there is none.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The uid, which differs between objects of the same name.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.value["metadata"]["labels"][key].as_str()
    }

    /// Whether it is being deleted.
    pub fn is_terminating(&self) -> bool {
        is_terminating(&self.value)
    }

    /// The finalizers.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        finalizers(&self.value)
    }

    /// The owner references.
    pub fn owners(&self) -> &[Value] {
        let owners = self.value["metadata"]["ownerReferences"].as_array();
        owners.map(Vec::as_slice).unwrap_or_default()
    }

    /// The reference to the owner that manages it.
    pub fn controller(&self) -> Option<&Value> {
        self.owners()
            .iter()
            .find(|owner| owner["controller"] == Value::Bool(true))
    }
}

/// A value as JSON; values are always writable.
pub(crate) fn written(value: &Value) -> Bytes {
    Bytes::from(serde_json::to_vec(value).unwrap_or_default())
}

/// A text of the metadata.
pub(crate) fn word<'v>(value: &'v Value, key: &str) -> &'v str {
    value["metadata"][key].as_str().unwrap_or_default()
}

pub(crate) fn is_terminating(value: &Value) -> bool {
    value["metadata"]["deletionTimestamp"].is_string()
}

pub(crate) fn finalizers(value: &Value) -> impl Iterator<Item = &str> {
    let finalizers = value["metadata"]["finalizers"].as_array();
    finalizers.into_iter().flatten().filter_map(Value::as_str)
}

/// The time as Kubernetes writes it, in whole seconds (`metav1.Time`), some seconds from now.
pub fn time_stamp(seconds_from_now: i64) -> Value {
    let then = crate::clock::now().as_second();
    let then = Timestamp::from_second(then)
        .and_then(|now| now.checked_add(SignedDuration::from_secs(seconds_from_now)))
        .unwrap_or(Timestamp::MAX);
    Value::String(then.to_string())
}
