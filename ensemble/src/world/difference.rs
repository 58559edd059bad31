//! How two texts or two objects differ, as lines.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// A line that is not in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Only the old text or object has it.
    Gone(String),
    /// Only the new text or object has it.
    New(String),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(text) => write!(f, "-{text}"),
            Self::New(text) => write!(f, "+{text}"),
        }
    }
}

/// The lines of two files that are in one of them only. The order of the lines is ignored.
pub(super) fn of_texts(old: &str, new: &str) -> Vec<Line> {
    let missing = |line: &&str, text: &str| !text.lines().any(|other| other == *line);
    let gone = old.lines().filter(|line| missing(line, new));
    let come = new.lines().filter(|line| missing(line, old));
    gone.map(|line| Line::Gone(line.to_owned()))
        .chain(come.map(|line| Line::New(line.to_owned())))
        .collect()
}

/// The fields of two objects that differ, as `path: value`; fields whose path or value is in `hidden` are
/// omitted.
pub(super) fn of_objects(old: &Value, new: &Value, hidden: &[&str]) -> Vec<Line> {
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    flatten(old, String::new(), &mut before);
    flatten(new, String::new(), &mut after);
    let mut lines = Vec::new();
    let paths: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for path in paths {
        let (one, other) = (before.get(path), after.get(path));
        let is_hidden = |word: &&str| {
            path.contains(word) || [one, other].iter().flatten().any(|v| v.contains(word))
        };
        if one == other || hidden.iter().any(is_hidden) {
            continue;
        }
        lines.extend(one.map(|value| Line::Gone(format!("{path}: {value}"))));
        lines.extend(other.map(|value| Line::New(format!("{path}: {value}"))));
    }
    lines
}

fn flatten(value: &Value, path: String, fields: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (key, value) in object {
                let dot = if path.is_empty() { "" } else { "." };
                flatten(value, format!("{path}{dot}{key}"), fields);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                // A named item keeps its path when another item is inserted before it.
                let name = item["name"]
                    .as_str()
                    .map_or(index.to_string(), str::to_owned);
                flatten(item, format!("{path}[{name}]"), fields);
            }
        }
        Value::String(text) => {
            fields.insert(path, text.clone());
        }
        other => {
            fields.insert(path, other.to_string());
        }
    }
}
