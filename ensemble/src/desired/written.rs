//! What the operator wrote into a StatefulSet, and whether somebody else changed it since.
//!
//! The pod template stays as an earlier operator version rendered it, so it cannot be compared with what
//! this version renders. The StatefulSet therefore carries the template as it was written. A value that differs
//! counts as changed by somebody else if the API server records another manager for it. A change by an
//! admission webhook to the operator's own write does not count.

use bellwether_api::{FIELD_MANAGER, labels};
use serde_json::{Value, json};

use super::{is_empty, is_named, is_part_of, says_the_amounts};

/// How the annotations begin by which kubectl asks for a restart. Others may ask for one.
const KUBECTL: &str = "kubectl.kubernetes.io/";

/// Adds the template to the annotations of the StatefulSet before it is written.
pub(super) fn remember(metadata: &mut Value, body: &Value) {
    let template = body["spec"]["template"].to_string();
    metadata["annotations"][labels::TEMPLATE] = json!(template);
}

/// The managed fields of others in the pod template, and the template as the operator wrote it. `None` if there are none.
fn foreign(set: &Value) -> Option<(Vec<&Value>, Value)> {
    let managers = set["metadata"]["managedFields"].as_array();
    let others = managers.into_iter().flatten();
    let others = others.filter(|entry| entry["manager"] != FIELD_MANAGER);
    let fields = others.map(|entry| &entry["fieldsV1"]["f:spec"]["f:template"]);
    let foreign: Vec<&Value> = fields.filter(|fields| !fields.is_null()).collect();
    if foreign.is_empty() {
        return None;
    }
    let text = set["metadata"]["annotations"][labels::TEMPLATE].as_str()?;
    Some((foreign, serde_json::from_str(text).ok()?))
}

/// The pod template as the operator wrote it, if somebody else changed it since.
pub fn edited(set: &Value) -> Option<Value> {
    let (foreign, written) = foreign(set)?;
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

/// The merge patch that takes out of the pod template what an earlier template left there, if there is something: after
/// `kubectl rollout undo` its fields are those of kubectl, and an apply by the operator does not remove them. Left to itself
/// the template would say of pods what their servers do not do, for example that they speak TLS.
///
/// Such a template has an annotation of the operator's that the operator did not write this time; one to which a user added a
/// sidecar, for example, has none. First the operator puts back what was changed: `None` while the template is [`edited`].
pub fn left_over(set: &Value) -> Option<Value> {
    let (foreign, written) = foreign(set)?;
    let live = &set["spec"]["template"];
    let known = &written["metadata"]["annotations"];
    let annotations = foreign
        .iter()
        .filter_map(|fields| fields["f:metadata"]["f:annotations"].as_object());
    let mut names = annotations
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("f:"));
    let earlier = |name: &str| {
        let there = !live["metadata"]["annotations"][name].is_null();
        name.starts_with(labels::PREFIX) && there && known[name].is_null()
    };
    if !names.any(earlier) || edited(set).is_some() {
        return None;
    }
    let patch = removal(&written, live, &foreign)?;
    Some(json!({ "spec": { "template": patch } }))
}

/// The merge patch that removes from `live` what `written` lacks and others manage.
fn removal(written: &Value, live: &Value, foreign: &[&Value]) -> Option<Value> {
    match (written, live) {
        (Value::Object(written), Value::Object(live)) => {
            let mut patch = serde_json::Map::new();
            for (key, value) in live {
                let field = format!("f:{key}");
                let fields = foreign.iter().filter_map(|fields| fields.get(&field));
                let fields: Vec<&Value> = fields.collect();
                if fields.is_empty() || key.starts_with(KUBECTL) {
                    continue;
                }
                // Of a map that others share, only what they manage goes.
                let shared = fields
                    .iter()
                    .any(|f| f.as_object().is_some_and(|f| !f.is_empty()));
                let change = match written.get(key) {
                    None if value.is_object() && shared => removal(&json!({}), value, &fields),
                    None => Some(Value::Null),
                    Some(written) => removal(written, value, &fields),
                };
                patch.extend(change.map(|change| (key.clone(), change)));
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        // A merge patch replaces a list as a whole.
        (Value::Array(_), Value::Array(_)) => has_more(live, written).then(|| written.clone()),
        _ => None,
    }
}

/// Whether `live` has an item in one of its lists that `written` lacks.
fn has_more(live: &Value, written: &Value) -> bool {
    match (live, written) {
        (Value::Object(live), Value::Object(written)) => {
            let more = |(key, written)| live.get(key).is_some_and(|live| has_more(live, written));
            written.iter().any(more)
        }
        (Value::Array(live), Value::Array(written)) => {
            let more = |live: &Value| {
                let mut written = written.iter();
                let own = written.find(|item| item["name"] == live["name"]);
                own.is_some_and(|own| has_more(live, own))
            };
            live.len() > written.len() || (is_named(live) && live.iter().any(more))
        }
        _ => false,
    }
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
    fn what_an_undone_rollout_left_in_the_template_is_taken_out() {
        let container = r#"k:{"name":"zookeeper"}"#;
        let old = "zookeeper.bellwether.dev/server-tls";
        let fields = json!({
            "f:metadata": {"f:annotations": {
                (format!("f:{old}")): {}, "f:kubectl.kubernetes.io/restartedAt": {},
            }},
            "f:spec": {
                "f:containers": {container: {"f:ports": {r#"k:{"containerPort":2281}"#: {".": {}}}}},
                "f:tolerations": {},
            },
        });
        let mut set = set("a:1", "kubectl-rollout", fields);
        let template = &mut set["spec"]["template"];
        template["metadata"]["annotations"] = json!({
            old: "Accepted", "kubectl.kubernetes.io/restartedAt": "now",
        });
        template["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        template["spec"]["schedulerName"] = json!("default-scheduler");
        let sidecar = json!({"name": "another", "image": "b:1"});
        template["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(sidecar);
        let containers: Value = serde_json::from_str::<Value>(
            set["metadata"]["annotations"][labels::TEMPLATE]
                .as_str()
                .unwrap(),
        )
        .unwrap()["spec"]["containers"]
            .take();
        let patch = json!({"spec": {"template": {
            "metadata": {"annotations": {old: null}},
            "spec": {"containers": containers, "tolerations": null},
        }}});
        assert_eq!(left_over(&set), Some(patch));
        // What is changed is put back first.
        let mut changed = set.clone();
        changed["spec"]["template"]["spec"]["containers"][0]["image"] = json!("a:2");
        let managed =
            &mut changed["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"]["f:template"];
        managed["f:spec"]["f:containers"][container]["f:image"] = json!({});
        assert!(edited(&changed).is_some());
        assert_eq!(left_over(&changed), None);
        // What somebody added to the operator's template stays.
        set["spec"]["template"]["metadata"]["annotations"] = json!({"reloaded": "now"});
        assert_eq!(left_over(&set), None);
    }

    #[test]
    fn a_statefulset_that_says_nothing_of_its_template_is_not_compared() {
        let mut set = set("a:2", "kubectl-set", image());
        set["metadata"]["annotations"] = json!({});
        assert_eq!(edited(&set), None);
    }
}
