//! Metadata, which no schema of a kind speaks of.

use regex::Regex;

use crate::finding::Problem;
use crate::path::Path;
use crate::yaml::{Data, Node};

/// The fields of `ObjectMeta`.
const FIELDS: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const NAMESPACE: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const KEY: &str =
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
const LABEL: &str = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";

/// What the API server would refuse in an object's metadata.
pub(crate) fn check(object: &Node) -> Vec<Problem> {
    let mut problems = Vec::new();
    let root = Path::root().field("metadata");
    let mut add = |path: Path, message: String| problems.push(Problem::schema(path, message));
    let metadata = object.get("metadata");
    let entries = match metadata.map(|m| &m.data) {
        Some(Data::Map(entries)) => entries.as_slice(),
        _ => &[],
    };
    for entry in entries {
        let path = root.field(&entry.key);
        match entry.key.as_str() {
            "name" | "namespace" | "generateName" => match &entry.value.data {
                Data::Text(text) => {
                    let (pattern, most) = match entry.key.as_str() {
                        "namespace" => (NAMESPACE, 63),
                        _ => (NAME, 253),
                    };
                    // A name is made from it by adding characters.
                    let whole = text.trim_end_matches('-');
                    let text = if entry.key == "generateName" {
                        whole
                    } else {
                        text
                    };
                    if !matches(pattern, text) || text.len() > most {
                        add(
                            path,
                            format!(
                                "Invalid value: {text:?}: use lower-case letters, digits and '-', beginning and ending with a letter or digit"
                            ),
                        );
                    }
                }
                _ => add(path, "Invalid value: it must be text; quote it".to_owned()),
            },
            "labels" | "annotations" => {
                let Data::Map(pairs) = &entry.value.data else {
                    if !matches!(entry.value.data, Data::Null) {
                        add(path, "Invalid value: it must be a map of texts".to_owned());
                    }
                    continue;
                };
                for pair in pairs {
                    // The API server names the map, not the key.
                    let Data::Text(text) = &pair.value.data else {
                        let what = format!("Invalid value: {:?} must be text; quote it", pair.key);
                        add(path.field(&pair.key), what);
                        continue;
                    };
                    if !matches(KEY, &pair.key) {
                        add(
                            path.clone(),
                            format!(
                                "Invalid value: {:?} is no key: use letters, digits, '-', '_' and '.', after a DNS name and '/' if at all",
                                pair.key
                            ),
                        );
                    }
                    if entry.key == "labels" && !matches(LABEL, text) {
                        add(
                            path.clone(),
                            format!(
                                "Invalid value: {text:?} is no value of a label: use at most 63 letters, digits, '-', '_' and '.'"
                            ),
                        );
                    }
                }
            }
            key if !FIELDS.contains(&key) => add(path, "unknown field".to_owned()),
            _ => {}
        }
    }
    let named = |key: &str| metadata.and_then(|m| m.get(key)).is_some();
    if !named("name") && !named("generateName") {
        add(
            root.field("name"),
            "Required value: name the object".to_owned(),
        );
    }
    problems
}

fn matches(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
}
