//! Which objects a request asks for.

use serde_json::Value;

use super::refusal::{Refusal, bad_request};

/// One requirement of a label selector.
#[derive(Clone, Debug)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// A label selector and a field selector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    /// Fields by their paths, the value, and whether it must be that one.
    fields: Vec<(Vec<String>, String, bool)>,
}

impl Selector {
    /// Reads both selectors of a request.
    pub(crate) fn parse(labels: &str, fields: &str) -> Result<Self, Refusal> {
        let mut selector = Self::default();
        for part in split_outside_parentheses(labels) {
            selector.labels.push(requirement(part)?);
        }
        for part in fields.split(',').filter(|part| !part.is_empty()) {
            let (path, value, equal) = match part.split_once("!=") {
                Some((path, value)) => (path, value, false),
                None => match part.split_once('=') {
                    Some((path, value)) => (path, value.trim_start_matches('='), true),
                    None => return Err(bad_request(format!("invalid selector: {part:?}"))),
                },
            };
            let path = path.split('.').map(str::to_owned).collect();
            selector.fields.push((path, value.to_owned(), equal));
        }
        Ok(selector)
    }

    /// Whether it selects everything.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether it selects an object.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let holds = |requirement: &Requirement| match requirement {
            Requirement::In(key, values) => labels[key.as_str()]
                .as_str()
                .is_some_and(|label| values.iter().any(|value| value == label)),
            Requirement::NotIn(key, values) => labels[key.as_str()]
                .as_str()
                .is_none_or(|label| values.iter().all(|value| value != label)),
            Requirement::Exists(key) => labels[key.as_str()].is_string(),
            Requirement::Absent(key) => !labels[key.as_str()].is_string(),
        };
        let is = |(path, value, equal): &(Vec<String>, String, bool)| {
            let field = path.iter().fold(object, |at, name| &at[name.as_str()]);
            (field.as_str().unwrap_or_default() == value) == *equal
        };
        self.labels.iter().all(holds) && self.fields.iter().all(is)
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

fn requirement(text: &str) -> Result<Requirement, Refusal> {
    let values = |text: &str| -> Vec<String> {
        let inner = text.trim().trim_start_matches('(').trim_end_matches(')');
        inner
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect()
    };
    if let Some((key, list)) = text.split_once(" notin ") {
        return Ok(Requirement::NotIn(key.trim().to_owned(), values(list)));
    }
    if let Some((key, list)) = text.split_once(" in ") {
        return Ok(Requirement::In(key.trim().to_owned(), values(list)));
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Ok(Requirement::NotIn(key.trim().to_owned(), values(value)));
    }
    if let Some((key, value)) = text.split_once('=') {
        let value = value.trim_start_matches('=');
        return Ok(Requirement::In(key.trim().to_owned(), values(value)));
    }
    match text.strip_prefix('!') {
        _ if text.contains(char::is_whitespace) => Err(bad_request(format!(
            "unable to parse requirement: {text:?}"
        ))),
        Some(key) => Ok(Requirement::Absent(key.to_owned())),
        None => Ok(Requirement::Exists(text.to_owned())),
    }
}

/// Whether a `LabelSelector` selects these labels; an empty one selects everything.
pub fn label_selector_selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels[key].as_str();
    let matched = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    matched
        .into_iter()
        .all(|(key, value)| label(key) == value.as_str())
        && expressions.all(|expression| {
            let label = label(expression["key"].as_str().unwrap_or_default());
            let values = expression["values"].as_array().into_iter().flatten();
            let within = values
                .into_iter()
                .any(|v| v.as_str() == label && label.is_some());
            match expression["operator"].as_str() {
                Some("In") => within,
                Some("NotIn") => !within,
                Some("Exists") => label.is_some(),
                Some("DoesNotExist") => label.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_selected_as_kubectl_writes_it() {
        let object = json!({"metadata": {"name": "a", "labels": {"app": "zk", "role": "voter"}}});
        let selects = |labels: &str| Selector::parse(labels, "").unwrap().selects(&object);
        for yes in [
            "",
            "app",
            "app=zk",
            "app==zk,role",
            "!tier",
            "role in (observer, voter)",
            "tier!=x",
            "tier notin (x)",
            "app in (zk),role!=observer",
        ] {
            assert!(selects(yes), "{yes}");
        }
        for no in [
            "tier",
            "app=zoo",
            "!app",
            "role in (observer)",
            "role notin (voter)",
            "app!=zk",
        ] {
            assert!(!selects(no), "{no}");
        }
        assert!(Selector::parse("app in", "").is_err());
    }

    #[test]
    fn fields_are_selected_by_their_paths() {
        let object = json!({"metadata": {"name": "a"}, "involvedObject": {"kind": "Pod"}});
        let selects = |fields: &str| Selector::parse("", fields).unwrap().selects(&object);
        assert!(selects("metadata.name=a,involvedObject.kind=Pod"));
        assert!(selects("metadata.name!=b"));
        assert!(!selects("metadata.name=b"));
    }
}
