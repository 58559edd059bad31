//! What the API server fills in.

use serde_json::{Value, json};

use super::kind::Kind;

/// Fills in a new object, whose status begins.
pub(crate) fn fill_new(kind: Kind, object: &mut Value) {
    match kind {
        Kind::POD | Kind::CLAIM | Kind::VOLUME => object["status"] = json!({ "phase": "Pending" }),
        Kind::STATEFUL_SET => {
            object["status"] = json!({ "replicas": 0, "availableReplicas": 0 });
        }
        Kind::SERVICE => object["status"] = json!({ "loadBalancer": {} }),
        _ => {}
    }
    if kind == Kind::CLAIM {
        // The admission plugin StorageObjectInUseProtection.
        let finalizers = &mut object["metadata"]["finalizers"];
        if !finalizers.is_array() {
            *finalizers = json!([]);
        }
        if let Some(finalizers) = finalizers.as_array_mut() {
            let protection = Value::from("kubernetes.io/pvc-protection");
            if !finalizers.contains(&protection) {
                finalizers.push(protection);
            }
        }
    }
    fill(kind, object);
}

/// Fills in an object.
pub(crate) fn fill(_kind: Kind, _object: &mut Value) {}
