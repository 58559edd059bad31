//! What the operator wrote into a StatefulSet, and whether somebody else changed it since.
//!
//! The pod template stays as an earlier operator version rendered it, so it cannot be compared with what
//! this version renders. The StatefulSet therefore carries the template as it was written. A value that differs
//! counts as changed by somebody else if the API server records another manager for it. A change by an
//! admission webhook to the operator's own write does not count.

use bellwether_api::{FIELD_MANAGER, labels};
use serde_json::{Value, json};

use super::{is_empty, is_named, is_part_of, says_the_amounts};

/// Adds the template to the annotations of the StatefulSet before it is written.
pub(super) fn remember(metadata: &mut Value, body: &Value) {
    let template = body["spec"]["template"].to_string();
    metadata["annotations"][labels::TEMPLATE] = json!(template);
}

/// The pod template as the operator wrote it, if somebody else changed it since.
pub fn edited(set: &Value) -> Option<Value> {
    let managers = set["metadata"]["managedFields"].as_array();
    let others = managers.into_iter().flatten();
    let others = others.filter(|entry| entry["manager"] != FIELD_MANAGER);
    let fields = others.map(|entry| &entry["fieldsV1"]["f:spec"]["f:template"]);
    let foreign: Vec<&Value> = fields.filter(|fields| !fields.is_null()).collect();
    if foreign.is_empty() {
        return None;
    }
    let text = set["metadata"]["annotations"][labels::TEMPLATE].as_str()?;
    let written: Value = serde_json::from_str(text).ok()?;
    let mut differing = Vec::new();
    compare(
        &written,
        &set["spec"]["template"],
        &mut Vec::new(),
        &mut differing,
    );
    let owned = |fields: &&Value| differing.iter().any(|path| owns(fields, path));
    let changed = foreign.iter().any(owned);
    changed.then_some(written)
}

/// One segment of the path to a value.
#[derive(Clone, Debug)]
enum Segment<'a> {
    Field(&'a str),
    /// The item of a list, whose fields are compared with the key in the managed fields.
    Item(&'a Value),
}

/// The paths of the values in `part` that differ in `whole`.
fn compare<'a>(
    part: &'a Value,
    whole: &Value,
    path: &mut Vec<Segment<'a>>,
    differing: &mut Vec<Vec<Segment<'a>>>,
) {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            for (key, value) in part {
                path.push(Segment::Field(key));
                match whole.get(key) {
                    Some(live) if says_the_amounts(key, value, live) => {}
                    Some(live) => compare(value, live, path, differing),
                    None if is_empty(value) => {}
                    None => differing.push(path.clone()),
                }
                path.pop();
            }
        }
        (Value::Array(part), Value::Array(whole)) if is_named(part) => {
            for item in part {
                path.push(Segment::Item(item));
                match whole.iter().find(|live| live["name"] == item["name"]) {
                    Some(live) => compare(item, live, path, differing),
                    None => differing.push(path.clone()),
                }
                path.pop();
            }
        }
        _ if is_part_of(part, whole) => {}
        _ => differing.push(path.clone()),
    }
}

/// Whether these managed fields contain the value at the end of the path, or a value that contains it.
fn owns(fields: &Value, path: &[Segment<'_>]) -> bool {
    let Some(all) = fields.as_object() else {
        return false;
    };
    let Some((next, rest)) = path.split_first() else {
        return true;
    };
    if all.is_empty() {
        return true;
    }
    match next {
        Segment::Field(name) => all
            .get(&format!("f:{name}"))
            .is_some_and(|fields| owns(fields, rest)),
        Segment::Item(item) => all.iter().any(|(key, fields)| {
            let key = key.strip_prefix("k:");
            let key = key.and_then(|key| serde_json::from_str::<Value>(key).ok());
            let is_key = |key: Value| {
                let key = key.as_object().cloned().unwrap_or_default();
                // The API server adds the protocol to the key of a port.
                key.iter()
                    .all(|(name, value)| item.get(name).is_none_or(|own| own == value))
            };
            key.is_some_and(is_key) && owns(fields, rest)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(image: &str, manager: &str, fields: Value) -> Value {
        let written = json!({"spec": {"containers": [
            {"name": "zookeeper", "image": "a:1", "resources": {"requests": {"cpu": "1000m"}}},
        ]}});
        json!({
            "metadata": {
                "annotations": { labels::TEMPLATE: written.to_string() },
                "managedFields": [
                    {"manager": FIELD_MANAGER, "fieldsV1": {"f:spec": {"f:template": {}}}},
                    {"manager": manager, "fieldsV1": {"f:spec": {"f:template": fields}}},
                ],
            },
            "spec": {"template": {
                "metadata": {"annotations": {"restarted": "now"}},
                "spec": {"containers": [
                    {"name": "zookeeper", "image": image, "resources": {"requests": {"cpu": "1"}}},
                ]},
            }},
        })
    }

    fn image() -> Value {
        let key = r#"k:{"name":"zookeeper"}"#;
        json!({"f:spec": {"f:containers": {key: {"f:image": {}}}}})
    }

    #[test]
    fn another_image_by_somebody_else_is_an_edit() {
        assert!(edited(&set("a:2", "kubectl-set", image())).is_some());
        assert_eq!(edited(&set("a:1", "kubectl-set", image())), None);
    }

    #[test]
    fn what_a_webhook_makes_of_the_operators_own_write_is_none() {
        assert_eq!(edited(&set("mirror/a:1", FIELD_MANAGER, image())), None);
        let annotation = json!({"f:metadata": {"f:annotations": {"f:restarted": {}}}});
        assert_eq!(
            edited(&set("mirror/a:1", "kubectl-rollout", annotation)),
            None
        );
    }

    #[test]
    fn a_statefulset_that_says_nothing_of_its_template_is_not_compared() {
        let mut set = set("a:2", "kubectl-set", image());
        set["metadata"]["annotations"] = json!({});
        assert_eq!(edited(&set), None);
    }
}
