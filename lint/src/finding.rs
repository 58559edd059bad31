//! What is wrong, and where.

use std::fmt;

use serde::Serialize;

use crate::path::Path;
use crate::yaml::{Node, Position, SyntaxError};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The API server or the operator refuses it, or it means something else than it seems to.
    Error,
    /// The operator takes it and warns of it.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// The source of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// The text itself: it is not YAML, or has a key twice, of which kubectl takes the last.
    Yaml,
    /// The API server, by types, bounds and names.
    Schema,
    /// The API server, by a CEL rule.
    Rule,
    /// The operator, in the status of an object that the API server takes.
    Operator,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The line and the column, both from 1.
    #[serde(flatten)]
    pub at: Position,
    /// How bad it is.
    pub severity: Severity,
    /// The object, as `Kind/name`; empty for a text that is not YAML.
    pub object: String,
    /// The field, as the API server writes it; empty for the whole.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
    /// The source of the finding.
    pub source: Source,
}

impl Finding {
    pub(crate) fn syntax(error: SyntaxError) -> Self {
        Self {
            at: error.at,
            severity: Severity::Error,
            object: String::new(),
            field: String::new(),
            message: error.message,
            source: Source::Yaml,
        }
    }
}

/// As a compiler writes it, without the file: `3:13: error: spec.replicas: ...`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.at, self.severity)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// A finding before it has a place in the text.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    /// Where in the object.
    pub(crate) path: Path,
    pub(crate) severity: Severity,
    pub(crate) source: Source,
    pub(crate) message: String,
    /// Where in the text, if it is not the place of the path.
    pub(crate) at: Option<Position>,
}

impl Problem {
    /// An error of this source.
    pub(crate) fn error(source: Source, path: Path, message: impl Into<String>) -> Self {
        Self {
            path,
            severity: Severity::Error,
            source,
            message: message.into(),
            at: None,
        }
    }

    /// What the API server refuses by types, bounds and names.
    pub(crate) fn schema(path: Path, message: impl Into<String>) -> Self {
        Self::error(Source::Schema, path, message)
    }

    pub(crate) fn locate(self, object: &Node, title: &str) -> Finding {
        Finding {
            at: self.at.unwrap_or_else(|| object.position_of(&self.path)),
            severity: self.severity,
            object: title.to_owned(),
            field: self.path.to_string(),
            message: self.message,
            source: self.source,
        }
    }
}
