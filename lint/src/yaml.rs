//! YAML with the place of every value, read as kubectl reads it.
//!
//! kubectl reads YAML 1.1: `yes`, `no`, `on` and `off` are booleans, and `0755` is an octal number. Keys
//! are turned into text, since an object in JSON has no others.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use serde::Serialize;
use serde_json::Value;

use crate::path::{Path, Step};

/// How deep a text may be nested: deeper ones are no manifest, and must not exhaust the stack.
const MAX_DEPTH: usize = 100;
/// How many values a text may have once its aliases are replaced: a few lines of aliases of aliases
/// stand for billions.
const MAX_NODES: usize = 200_000;

/// A place in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl From<Marker> for Position {
    fn from(marker: Marker) -> Self {
        Self {
            line: marker.line(),
            column: marker.col() + 1,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why a text is not YAML.
#[derive(Clone, Debug)]
pub(crate) struct SyntaxError {
    pub(crate) at: Position,
    pub(crate) message: String,
}

/// A value and where it begins.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: Position,
    pub(crate) data: Data,
}

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) at: Position,
    pub(crate) value: Node,
}

/// Values that come from no text have no place in one.
impl From<&Value> for Node {
    fn from(value: &Value) -> Self {
        let at = Position::default();
        let data = match value {
            Value::Null => Data::Null,
            Value::Bool(value) => Data::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(number) => Data::Integer(number),
                None => Data::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Data::Text(text.clone()),
            Value::Array(items) => Data::List(items.iter().map(Self::from).collect()),
            Value::Object(fields) => {
                let entry = |(key, value): (&String, &Value)| Entry {
                    key: key.clone(),
                    at,
                    value: Self::from(value),
                };
                Data::Map(fields.iter().map(entry).collect())
            }
        };
        Self { at, data }
    }
}

impl Node {
    /// The value of a key; of the last one, if it is there twice, as kubectl takes it.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.data {
            Data::Map(entries) => entries.iter().rev().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The text of a key.
    pub(crate) fn text_at(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.data {
            Data::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Where a field is: a plain value itself, for anything else its key. For a field that is not there,
    /// what it should be in.
    pub(crate) fn position_of(&self, path: &Path) -> Position {
        let (mut node, mut at) = (self, self.at);
        for step in &path.0 {
            let next = match (step, &node.data) {
                (Step::Field(name), _) => node.entry(name).map(|entry| {
                    let nested = matches!(entry.value.data, Data::List(_) | Data::Map(_));
                    let at = if nested { entry.at } else { entry.value.at };
                    (&entry.value, at)
                }),
                (Step::Item(index), Data::List(items)) => items.get(*index).map(|i| (i, i.at)),
                (Step::Item(_), _) => None,
            };
            let Some(next) = next else { break };
            (node, at) = next;
        }
        at
    }

    /// The value as JSON.
    pub(crate) fn to_json(&self) -> Value {
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::from(*value),
            Data::Integer(value) => Value::from(*value),
            Data::Float(value) => Value::from(*value),
            Data::Text(value) => Value::from(value.as_str()),
            Data::List(items) => items.iter().map(Self::to_json).collect(),
            Data::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), entry.value.to_json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }

    fn count(&self) -> usize {
        match &self.data {
            Data::List(items) => items.iter().fold(1, |n, i| n + i.count()),
            Data::Map(entries) => entries.iter().fold(1, |n, e| n + e.value.count()),
            _ => 1,
        }
    }
}

/// The documents of a text that hold something.
pub(crate) fn parse(text: &str) -> Result<Vec<Node>, SyntaxError> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        anchors: BTreeMap::new(),
        nodes: 0,
    };
    let mut documents = Vec::new();
    loop {
        let (event, at) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(documents),
            Event::DocumentStart(_) => {
                let (event, at) = reader.next()?;
                let node = reader.node(event, at, 0)?;
                if !matches!(node.data, Data::Null) {
                    documents.push(node);
                }
            }
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            other => {
                let message = format!("{other:?} outside of a document");
                return Err(SyntaxError { at, message });
            }
        }
    }
}

struct Reader<'t> {
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Position), SyntaxError> {
        match self.parser.next() {
            Some(Ok((event, span))) => Ok((event, span.start.into())),
            Some(Err(error)) => Err(SyntaxError {
                at: (*error.marker()).into(),
                message: format!("this is no YAML: {}", error.info()),
            }),
            None => Ok((Event::StreamEnd, Position::default())),
        }
    }

    fn node(&mut self, event: Event<'t>, at: Position, depth: usize) -> Result<Node, SyntaxError> {
        let fail = |message: String| Err(SyntaxError { at, message });
        self.nodes += 1;
        if depth > MAX_DEPTH {
            return fail(format!(
                "nested deeper than {MAX_DEPTH}: this is no manifest"
            ));
        }
        let (data, anchor) = match event {
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    return fail(
                        "an alias of something that contains it, or of nothing".to_owned(),
                    );
                };
                self.nodes += node.count();
                if self.nodes > MAX_NODES {
                    return fail(format!("aliases stand for more than {MAX_NODES} values"));
                }
                return Ok(node.clone());
            }
            Event::Scalar(text, style, anchor, tag) => (scalar(&text, style, tag.as_ref()), anchor),
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break,
                        (event, at) => items.push(self.node(event, at, depth + 1)?),
                    }
                }
                (Data::List(items), anchor)
            }
            Event::MappingStart(anchor, _) => {
                let mut entries = Vec::new();
                loop {
                    let (event, at) = match self.next()? {
                        (Event::MappingEnd, _) => break,
                        other => other,
                    };
                    let key = self.node(event, at, depth + 1)?;
                    let (event, value_at) = self.next()?;
                    let value = self.node(event, value_at, depth + 1)?;
                    add(&mut entries, key, value)?;
                }
                (Data::Map(entries), anchor)
            }
            other => return fail(format!("{other:?} in the place of a value")),
        };
        let node = Node { at, data };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }
}

/// Adds a key; the key `<<` adds those of the maps that it names, where they are not given.
fn add(entries: &mut Vec<Entry>, key: Node, value: Node) -> Result<(), SyntaxError> {
    let at = key.at;
    let key = match key.data {
        Data::Text(text) => text,
        Data::Bool(value) => value.to_string(),
        Data::Integer(value) => value.to_string(),
        Data::Float(value) => value.to_string(),
        Data::Null => "null".to_owned(),
        Data::List(_) | Data::Map(_) => {
            let message = "a key must be text: an object in JSON has no other keys".to_owned();
            return Err(SyntaxError { at, message });
        }
    };
    if key == "<<" {
        let maps = match value.data {
            Data::List(items) => items,
            _ => vec![value],
        };
        for map in maps {
            let Data::Map(merged) = map.data else {
                let message = "the key << merges maps, and this is none".to_owned();
                return Err(SyntaxError { at, message });
            };
            for entry in merged {
                if !entries.iter().any(|e| e.key == entry.key) {
                    entries.push(entry);
                }
            }
        }
        return Ok(());
    }
    entries.push(Entry { key, at, value });
    Ok(())
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Cow<'_, Tag>>) -> Data {
    let is_text = |tag: &Cow<'_, Tag>| tag.is_yaml_core_schema() && tag.suffix == "str";
    if style != ScalarStyle::Plain || tag.is_some_and(is_text) {
        return Data::Text(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Data::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => {
            return Data::Bool(true);
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N" => {
            return Data::Bool(false);
        }
        _ => {}
    }
    number(text).unwrap_or_else(|| Data::Text(text.to_owned()))
}

fn number(text: &str) -> Option<Data> {
    let plain = text.replace('_', "");
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let radix = |prefix: &str, radix| i64::from_str_radix(digits.strip_prefix(prefix)?, radix).ok();
    let octal = || {
        let octal = digits.len() > 1 && digits.bytes().all(|b| (b'0'..=b'7').contains(&b));
        octal.then(|| radix("0", 8))?
    };
    let integer = radix("0x", 16)
        .or_else(|| radix("0o", 8))
        .or_else(|| radix("0b", 2))
        .or_else(octal)
        .or_else(|| digits.parse().ok());
    if let Some(integer) = integer {
        return Some(Data::Integer(if negative { -integer } else { integer }));
    }
    let float: f64 = digits.parse().ok()?;
    let float = if negative { -float } else { float };
    Some(whole(float).map_or(Data::Float(float), Data::Integer))
}

/// A number without a fraction, as kubectl writes it into JSON.
#[allow(
    clippy::cast_possible_truncation,
    reason = "numbers of this size are exact in both"
)]
fn whole(float: f64) -> Option<i64> {
    (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Value {
        let documents = parse(text).unwrap();
        documents.iter().map(Node::to_json).collect()
    }

    #[test]
    fn values_are_those_of_yaml_1_1() {
        for (text, value) in [
            ("yes", json!(true)),
            ("off", json!(false)),
            ("\"yes\"", json!("yes")),
            ("3", json!(3)),
            ("-3", json!(-3)),
            ("3.0", json!(3)),
            ("3.5", json!(3.5)),
            ("0755", json!(493)),
            ("0x10", json!(16)),
            ("3.9.5", json!("3.9.5")),
            ("512Mi", json!("512Mi")),
            ("1e3", json!(1000)),
            ("1_000", json!(1000)),
            (".", json!(".")),
            ("-", json!([null])),
            ("!!str 5", json!("5")),
            ("|\n  a\n  b\n", json!("a\nb\n")),
            ("inf", json!("inf")),
            ("null", json!(null)),
        ] {
            let text = format!("a: {text}\n");
            let text = if text == "a: -\n" {
                "a:\n- \n".to_owned()
            } else {
                text
            };
            assert_eq!(read(&text), json!([{ "a": value }]), "{text}");
        }
    }

    #[test]
    fn documents_anchors_and_merges_are_read() {
        let text =
            "---\n# nothing\n---\na: &x {b: 1}\nc: *x\n---\nd:\n  <<: {e: 1, f: 2}\n  e: 3\n";
        let expected = json!([{"a": {"b": 1}, "c": {"b": 1}}, {"d": {"e": 3, "f": 2}}]);
        assert_eq!(read(text), expected);
    }

    #[test]
    fn what_is_no_yaml_or_would_never_end_is_told_with_its_place() {
        let bomb: String = (1..12).fold("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned(), |all, n| {
            let items = vec![format!("*a{}", n - 1); 10].join(",");
            format!("{all}a{n}: &a{n} [{items}]\n")
        });
        for text in [
            "a: [1",
            "a: b: c",
            "{[1]: 2}",
            "a: &a [*a]",
            &bomb,
            &"[".repeat(5000),
        ] {
            assert!(parse(text).is_err(), "{}", &text[..text.len().min(40)]);
        }
        let error = parse("a: 1\nb: [1\nc: 2\n").unwrap_err();
        assert!(error.at.line >= 2, "{:?}", error.at);
    }
}
