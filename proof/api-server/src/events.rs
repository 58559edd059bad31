//! Events in the words of `events.k8s.io`; the store has them in those of the core.

use serde_json::Value;

/// The names of a field in the core and in `events.k8s.io`.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("source", "deprecatedSource"),
];

/// An event of the core in the words of `events.k8s.io`.
pub(crate) fn renamed(event: &Value) -> Value {
    let mut renamed = event.clone();
    if let Some(fields) = renamed.as_object_mut() {
        for (core, new) in NAMES {
            if let Some(value) = fields.remove(*core) {
                fields.insert((*new).to_owned(), value);
            }
        }
        fields.insert("apiVersion".to_owned(), "events.k8s.io/v1".into());
    }
    renamed
}

/// An event, or a patch of one, of `events.k8s.io` in the words of the core.
pub(crate) fn named_as_core(event: &mut Value) {
    if let Some(fields) = event.as_object_mut() {
        for (core, new) in NAMES {
            if let Some(value) = fields.remove(*new) {
                fields.insert((*core).to_owned(), value);
            }
        }
        fields.insert("apiVersion".to_owned(), "v1".into());
    }
}
