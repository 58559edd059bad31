//! The structural schema of a CustomResourceDefinition, with its rules compiled.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use regex::Regex;
use serde_json::{Map, Value};

use crate::expression::Rule;
use crate::path::Path;

/// Why manifests cannot be checked: the schema holds something that this crate does not understand.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the schema of {at} cannot be used: {problem}")]
pub struct UnusableSchema {
    /// The field.
    pub at: String,
    /// What is not understood.
    pub problem: String,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

impl Type {
    /// The word of the API.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer or string",
        }
    }
}

/// What a value may be.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) type_: Type,
    pub(crate) nullable: bool,
    pub(crate) default: Option<Value>,
    pub(crate) one_of: Option<Vec<String>>,
    pub(crate) pattern: Option<Regex>,
    pub(crate) format: Option<String>,
    /// The smallest and the largest number.
    pub(crate) range: Bounds<f64>,
    /// The fewest and the most characters.
    pub(crate) length: Bounds<usize>,
    /// The fewest and the most items of a list.
    pub(crate) items_count: Bounds<usize>,
    /// The fewest and the most keys of a map.
    pub(crate) keys_count: Bounds<usize>,
    pub(crate) properties: BTreeMap<String, Schema>,
    pub(crate) required: Vec<String>,
    /// What every value of a map with free keys may be.
    pub(crate) additional: Option<Box<Schema>>,
    pub(crate) items: Option<Box<Schema>>,
    /// The fields that distinguish the items of a list.
    pub(crate) list_keys: Vec<String>,
    pub(crate) rules: Vec<Rule>,
}

/// Inclusive bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<T> {
    pub(crate) least: Option<T>,
    pub(crate) most: Option<T>,
}

/// What a schema may say that needs no check of its own; `x-kubernetes-map-type` is about who owns fields.
const WITHOUT_MEANING: &[&str] = &["description", "title", "example", "x-kubernetes-map-type"];
/// Kinds of lists; `map` needs its keys, the others are as they are.
const LIST_TYPES: &[&str] = &["atomic", "map"];

impl Schema {
    /// The schema of the only version of a CustomResourceDefinition.
    pub(crate) fn of_crd(crd: &CustomResourceDefinition) -> Result<Self, UnusableSchema> {
        let name = crd.spec.names.kind.as_str();
        let fail = |problem: String| UnusableSchema {
            at: name.to_owned(),
            problem,
        };
        let value = serde_json::to_value(&crd.spec).map_err(|error| fail(error.to_string()))?;
        let schema = &value["versions"][0]["schema"]["openAPIV3Schema"];
        let mut read = Reader {
            value: schema,
            at: Path::root(),
        };
        let schema = read.schema()?;
        for field in ["apiVersion", "kind", "metadata"] {
            if schema.properties.contains_key(field) {
                return Err(fail(format!("it says something of {field}")));
            }
        }
        Ok(schema)
    }
}

/// Reads one level of a schema.
struct Reader<'v> {
    value: &'v Value,
    at: Path,
}

impl<'v> Reader<'v> {
    fn fail<T>(&self, problem: impl Into<String>) -> Result<T, UnusableSchema> {
        Err(UnusableSchema {
            at: format!("the field {:?}", self.at.to_string()),
            problem: problem.into(),
        })
    }

    fn below(&self, value: &'v Value, at: Path) -> Result<Schema, UnusableSchema> {
        Reader { value, at }.schema()
    }

    fn schema(&mut self) -> Result<Schema, UnusableSchema> {
        let Value::Object(fields) = self.value else {
            return self.fail("it is no object");
        };
        let mut schema = Schema {
            type_: self.type_(fields)?,
            nullable: false,
            default: None,
            one_of: None,
            pattern: None,
            format: None,
            range: Bounds {
                least: None,
                most: None,
            },
            length: Bounds {
                least: None,
                most: None,
            },
            items_count: Bounds {
                least: None,
                most: None,
            },
            keys_count: Bounds {
                least: None,
                most: None,
            },
            properties: BTreeMap::new(),
            required: Vec::new(),
            additional: None,
            items: None,
            list_keys: Vec::new(),
            rules: Vec::new(),
        };
        for (keyword, value) in fields {
            self.keyword(&mut schema, keyword, value)?;
        }
        Ok(schema)
    }

    fn type_(&self, fields: &Map<String, Value>) -> Result<Type, UnusableSchema> {
        let int_or_string = fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
        Ok(match fields.get("type").and_then(Value::as_str) {
            None if int_or_string => Type::IntOrString,
            Some("object") => Type::Object,
            Some("array") => Type::Array,
            Some("string") => Type::String,
            Some("integer") => Type::Integer,
            Some("number") => Type::Number,
            Some("boolean") => Type::Boolean,
            other => return self.fail(format!("its type is {other:?}")),
        })
    }

    fn keyword(
        &self,
        schema: &mut Schema,
        keyword: &str,
        value: &'v Value,
    ) -> Result<(), UnusableSchema> {
        match keyword {
            "type" | "x-kubernetes-int-or-string" => {}
            "nullable" => schema.nullable = value == &Value::Bool(true),
            "default" => schema.default = Some(value.clone()),
            "enum" => schema.one_of = Some(self.words(value)?),
            "pattern" => {
                let text = value.as_str().unwrap_or_default();
                match Regex::new(text) {
                    Ok(pattern) => schema.pattern = Some(pattern),
                    Err(error) => return self.fail(format!("pattern {text:?}: {error}")),
                }
            }
            "format" => match value.as_str() {
                Some(format @ ("int32" | "int64" | "date-time")) => {
                    schema.format = Some(format.to_owned());
                }
                other => return self.fail(format!("its format is {other:?}")),
            },
            "minimum" => schema.range.least = Some(self.number(value)?),
            "maximum" => schema.range.most = Some(self.number(value)?),
            "minLength" => schema.length.least = Some(self.count(value)?),
            "maxLength" => schema.length.most = Some(self.count(value)?),
            "minItems" => schema.items_count.least = Some(self.count(value)?),
            "maxItems" => schema.items_count.most = Some(self.count(value)?),
            "minProperties" => schema.keys_count.least = Some(self.count(value)?),
            "maxProperties" => schema.keys_count.most = Some(self.count(value)?),
            "required" => schema.required = self.words(value)?,
            "properties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    let below = self.below(value, self.at.field(name))?;
                    schema.properties.insert(name.clone(), below);
                }
            }
            "additionalProperties" => {
                let below = self.below(value, self.at.field("*"))?;
                schema.additional = Some(Box::new(below));
            }
            "items" => {
                let below = self.below(value, self.at.item(0))?;
                schema.items = Some(Box::new(below));
            }
            "x-kubernetes-list-map-keys" => schema.list_keys = self.words(value)?,
            "x-kubernetes-list-type" => {
                if !value.as_str().is_some_and(|v| LIST_TYPES.contains(&v)) {
                    return self.fail(format!("its list type is {value}"));
                }
            }
            "x-kubernetes-validations" => {
                for rule in value.as_array().into_iter().flatten() {
                    match Rule::compile(rule) {
                        Ok(rule) => schema.rules.push(rule),
                        Err(problem) => return self.fail(problem),
                    }
                }
            }
            known if WITHOUT_MEANING.contains(&known) => {}
            unknown => return self.fail(format!("it says {unknown}, which lint does not know")),
        }
        Ok(())
    }

    fn number(&self, value: &Value) -> Result<f64, UnusableSchema> {
        value
            .as_f64()
            .map_or_else(|| self.fail(format!("{value} is no number")), Ok)
    }

    fn count(&self, value: &Value) -> Result<usize, UnusableSchema> {
        let count = value.as_u64().and_then(|n| usize::try_from(n).ok());
        count.map_or_else(|| self.fail(format!("{value} is no count")), Ok)
    }

    fn words(&self, value: &Value) -> Result<Vec<String>, UnusableSchema> {
        let mut words = Vec::new();
        for word in value.as_array().into_iter().flatten() {
            match word {
                Value::String(word) => words.push(word.clone()),
                // The generator lists null among the words of a field that may be null.
                Value::Null => {}
                other => return self.fail(format!("{other} is no text")),
            }
        }
        Ok(words)
    }
}
