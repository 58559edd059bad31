//! Identities in JSON.

use serde_json::Value;

/// Larger data is not an identity, and would take many times its size as a tree.
const MAX_JSON: usize = 64 * 1024;

/// Data that is JSON.
pub(super) struct Json(Value);

impl Json {
    /// `None` if the data is not JSON, or too large. The parser limits nesting.
    pub(super) fn parse(data: &[u8]) -> Option<Self> {
        if data.len() > MAX_JSON {
            return None;
        }
        serde_json::from_slice(data).ok().map(Self)
    }

    /// What the pointers point at, joined with `:`; `None` unless each points at a text, a number
    /// or a truth value.
    pub(super) fn joined(&self, pointers: &[impl AsRef<str>]) -> Option<String> {
        let parts: Option<Vec<String>> = pointers
            .iter()
            .map(|pointer| match self.0.pointer(pointer.as_ref())? {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                Value::Bool(truth) => Some(truth.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => None,
            })
            .collect();
        parts
            .filter(|parts| !parts.is_empty())
            .map(|parts| parts.join(":"))
    }

    /// The text that a pointer points at.
    pub(super) fn text(&self, pointer: &str) -> Option<&str> {
        self.0.pointer(pointer)?.as_str()
    }

    /// Whether the value at a pointer exists and is neither null nor false.
    pub(super) fn is_set(&self, pointer: &str) -> bool {
        let value = self.0.pointer(pointer);
        !matches!(value, None | Some(Value::Null | Value::Bool(false)))
    }
}
