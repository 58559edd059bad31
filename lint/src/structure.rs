//! A manifest against the structural schema, as the API server checks it with `--validate=strict`.

use serde_json::{Map, Value};

use crate::finding::{Problem, Source};
use crate::path::Path;
use crate::schema::{Bounds, Schema, Type};
use crate::yaml::{Data, Entry, Node};

/// How near an unknown name must be to a known one to be taken for it.
const SIMILAR: f64 = 0.75;

/// Checks an object; what it returns has the defaults in place, and nothing that the schema does not
/// know. Values that are wrong are left out.
pub(crate) fn check(schema: &Schema, object: &Node, problems: &mut Vec<Problem>) -> Value {
    let strict = true;
    walk(schema, object, Walk { problems, strict })
}

/// As [`check`], but fields that the schema does not know are dropped without a finding.
pub(crate) fn prune(schema: &Schema, object: &Node, problems: &mut Vec<Problem>) -> Value {
    let strict = false;
    walk(schema, object, Walk { problems, strict })
}

/// As [`prune`], of a field of the object alone.
pub(crate) fn prune_field(
    schema: &Schema,
    name: &str,
    field: &Node,
    problems: &mut Vec<Problem>,
) -> Option<Value> {
    let strict = false;
    let below = schema.properties.get(name)?;
    Walk { problems, strict }.value(below, field, &Path::root().field(name))
}

fn walk(schema: &Schema, object: &Node, mut walk: Walk<'_>) -> Value {
    let mut root = Map::new();
    let Data::Map(entries) = &object.data else {
        return Value::Null;
    };
    let root_path = Path::root();
    walk.duplicates(entries, &root_path);
    for entry in entries {
        match entry.key.as_str() {
            "apiVersion" | "kind" | "metadata" => {
                root.insert(entry.key.clone(), entry.value.to_json());
            }
            // The status belongs to the operator; the API server drops it from a manifest.
            "status" => {}
            key if !schema.properties.contains_key(key) => {
                walk.unknown(schema, entry, &root_path);
            }
            _ => {}
        }
    }
    for (name, below) in schema
        .properties
        .iter()
        .filter(|(name, _)| *name != "status")
    {
        let path = root_path.field(name);
        match object.get(name) {
            Some(node) => {
                if let Some(value) = walk.value(below, node, &path) {
                    root.insert(name.clone(), value);
                }
            }
            _ if schema.required.contains(name) => walk.problem(&path, "Required value"),
            _ => {}
        }
    }
    Value::Object(root)
}

struct Walk<'p> {
    problems: &'p mut Vec<Problem>,
    /// Whether what the schema does not know is a problem.
    strict: bool,
}

impl Walk<'_> {
    fn problem(&mut self, path: &Path, message: impl Into<String>) {
        self.problems.push(Problem::schema(path.clone(), message));
    }

    /// A value of any type; `None` if the node is not of the schema's type. A null has no type.
    fn value(&mut self, schema: &Schema, node: &Node, path: &Path) -> Option<Value> {
        let value = match (&node.data, schema.type_) {
            (Data::Map(entries), Type::Object) => {
                return Some(self.object(schema, node, entries, path));
            }
            (Data::List(items), Type::Array) => return Some(self.list(schema, items, path)),
            (Data::Text(text), Type::String | Type::IntOrString) => {
                self.text(schema, text, path);
                Value::from(text.as_str())
            }
            (Data::Integer(number), Type::Integer | Type::IntOrString | Type::Number) => {
                self.number(schema, *number, path);
                Value::from(*number)
            }
            (Data::Float(number), Type::Number) => Value::from(*number),
            (Data::Bool(value), Type::Boolean) => Value::from(*value),
            (data, type_) => {
                self.wrong_type(data, type_, path);
                return None;
            }
        };
        if let Some(words) = &schema.one_of
            && !words.iter().any(|word| value == *word)
        {
            let known: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
            let near = value.as_str().and_then(|text| nearest(text, words.iter()));
            let hint = near
                .map(|near| format!("; did you mean {near}?"))
                .unwrap_or_default();
            let known = known.join(", ");
            self.problem(
                path,
                format!("Unsupported value: {value}: supported values: {known}{hint}"),
            );
        }
        Some(value)
    }

    fn wrong_type(&mut self, data: &Data, type_: Type, path: &Path) {
        let (what, hint) = match data {
            Data::Null => ("null", ""),
            Data::Bool(_) => ("boolean", "; quote it if the text is meant"),
            Data::Integer(_) => ("integer", "; quote it if the text is meant"),
            Data::Float(_) => ("number", "; quote it if the text is meant"),
            Data::Text(_) => ("string", ""),
            Data::List(_) => ("array", ""),
            Data::Map(_) => ("object", ""),
        };
        let hint = if type_ == Type::String { hint } else { "" };
        let wanted = type_.word();
        self.problem(
            path,
            format!("Invalid value: {what:?}: it must be of type {wanted}{hint}"),
        );
    }

    fn object(&mut self, schema: &Schema, node: &Node, entries: &[Entry], path: &Path) -> Value {
        self.duplicates(entries, path);
        let mut object = Map::new();
        for entry in entries {
            let below = schema
                .properties
                .get(&entry.key)
                .or(schema.additional.as_deref());
            let Some(below) = below else {
                self.unknown(schema, entry, path);
                continue;
            };
            // The rules treat a null as if the field were absent. Where no null is allowed,
            // `kubectl create` drops it and server-side apply refuses it.
            if matches!(entry.value.data, Data::Null) {
                if !below.nullable && below.default.is_none() {
                    self.wrong_type(&entry.value.data, below.type_, &path.field(&entry.key));
                }
                continue;
            }
            // Of two, the last counts; the first has its finding already.
            if node
                .get(&entry.key)
                .is_some_and(|last| !std::ptr::eq(last, &raw const entry.value))
            {
                continue;
            }
            let path = path.field(&entry.key);
            if let Some(value) = self.value(below, &entry.value, &path) {
                object.insert(entry.key.clone(), value);
            }
        }
        for (name, below) in &schema.properties {
            let given = match node.get(name) {
                None => false,
                Some(Node {
                    data: Data::Null, ..
                }) => below.nullable || below.default.is_none(),
                Some(_) => true,
            };
            match &below.default {
                _ if given => {}
                Some(default) => {
                    object.insert(name.clone(), default.clone());
                }
                None if schema.required.contains(name) => {
                    self.problem(&path.field(name), "Required value");
                }
                None => {}
            }
        }
        self.count("keys", entries.len(), schema.keys_count, path);
        Value::Object(object)
    }

    fn list(&mut self, schema: &Schema, items: &[Node], path: &Path) -> Value {
        self.count("items", items.len(), schema.items_count, path);
        let Some(below) = &schema.items else {
            return Value::Array(Vec::new());
        };
        let mut values: Vec<Value> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = path.item(index);
            let Some(value) = self.value(below, item, &path) else {
                continue;
            };
            let key = |value: &Value| -> Vec<Value> {
                schema
                    .list_keys
                    .iter()
                    .map(|key| value[key].clone())
                    .collect()
            };
            if !schema.list_keys.is_empty() && values.iter().any(|other| key(other) == key(&value))
            {
                let keys = schema.list_keys.join(" and ");
                let told = format!("Duplicate value: another item has the same {keys}");
                self.problem(&path, told);
            }
            values.push(value);
        }
        Value::Array(values)
    }

    fn text(&mut self, schema: &Schema, text: &str, path: &Path) {
        let length = text.chars().count();
        if schema.length.most.is_some_and(|most| length > most) {
            let most = schema.length.most.unwrap_or_default();
            self.problem(
                path,
                format!("Too long: {length} characters; at most {most} may be"),
            );
        }
        if schema.length.least.is_some_and(|least| length < least) {
            let least = schema.length.least.unwrap_or_default();
            let what = format!("Invalid value: {text:?}: at least {least} characters must be");
            self.problem(path, what);
        }
        if let Some(pattern) = schema.pattern.as_ref().filter(|p| !p.is_match(text)) {
            let what = format!(
                "Invalid value: {text:?}: it does not match {:?}",
                pattern.as_str()
            );
            self.problem(path, what);
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "bounds are small")]
    fn number(&mut self, schema: &Schema, number: i64, path: &Path) {
        let Bounds { least, most } = schema.range;
        if least.is_some_and(|least| (number as f64) < least)
            || most.is_some_and(|most| number as f64 > most)
        {
            let range = match (least, most) {
                (Some(least), Some(most)) => format!("from {least} to {most}"),
                (Some(least), None) => format!("at least {least}"),
                (_, most) => format!("at most {}", most.unwrap_or_default()),
            };
            self.problem(path, format!("Invalid value: {number}: it must be {range}"));
        }
        if schema.format.as_deref() == Some("int32") && i32::try_from(number).is_err() {
            self.problem(
                path,
                format!("Invalid value: {number}: it must fit into 32 bits"),
            );
        }
    }

    fn count(&mut self, what: &str, count: usize, bounds: Bounds<usize>, path: &Path) {
        if let Some(most) = bounds.most.filter(|most| count > *most) {
            self.problem(
                path,
                format!("Too many: {count} {what}; at most {most} may be"),
            );
        }
        if let Some(least) = bounds.least.filter(|least| count < *least) {
            let told = format!("Invalid value: {count} {what}; at least {least} must be");
            self.problem(path, told);
        }
    }

    fn unknown(&mut self, schema: &Schema, entry: &Entry, path: &Path) {
        if !self.strict {
            return;
        }
        let near = nearest(&entry.key, schema.properties.keys());
        let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        let mut problem = Problem::schema(path.field(&entry.key), format!("unknown field{hint}"));
        problem.at = Some(entry.at);
        self.problems.push(problem);
    }

    fn duplicates(&mut self, entries: &[Entry], path: &Path) {
        for (index, entry) in entries.iter().enumerate() {
            if entries[..index].iter().any(|other| other.key == entry.key) {
                let told = "this key is here for the second time; kubectl takes the last silently";
                let mut problem = Problem::error(Source::Yaml, path.field(&entry.key), told);
                problem.at = Some(entry.at);
                self.problems.push(problem);
            }
        }
    }
}

/// The known name that is most like this one, if one is.
fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n String>) -> Option<&'n str> {
    let name = name.to_lowercase();
    known
        .map(|known| (strsim::jaro_winkler(&name, &known.to_lowercase()), known))
        .filter(|(similar, _)| *similar >= SIMILAR)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known.as_str())
}
