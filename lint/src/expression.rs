//! CEL rules, with the functions that Kubernetes adds to the language.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::extractors::This;
use cel::objects::{Key, Opaque, Value as Cel};
use cel::{Context, Env, ExecutionError, Program};
use serde_json::Value;

use crate::finding::{Problem, Source};
use crate::path::Path;
use crate::quantity::Size;
use crate::schema::Schema;

/// A rule that is ready to be evaluated.
pub(crate) struct Rule {
    text: String,
    program: Program,
    message: Option<String>,
    message_expression: Option<Program>,
    /// The field below its place that it speaks of.
    field: Option<Vec<String>>,
    /// Whether it compares with what was before.
    pub(crate) compares: bool,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.text).finish()
    }
}

/// What a rule may say beside the rule and its message.
const WITHOUT_MEANING: &[&str] = &["reason"];

impl Rule {
    /// Compiles an item of `x-kubernetes-validations`.
    pub(crate) fn compile(rule: &Value) -> Result<Self, String> {
        let fields = rule.as_object().ok_or("a rule is no object")?;
        let known = ["rule", "message", "messageExpression", "fieldPath"];
        let known = |key: &&String| {
            !known.contains(&key.as_str()) && !WITHOUT_MEANING.contains(&key.as_str())
        };
        if let Some(unknown) = fields.keys().find(known) {
            return Err(format!("a rule has {unknown}, which lint does not know"));
        }
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let source = text("rule").ok_or("a rule has no text")?;
        let program = compile(source)?;
        let compares = program.references().has_variable("oldSelf");
        Ok(Self {
            compares,
            text: source.to_owned(),
            program,
            message: text("message").map(str::to_owned),
            message_expression: text("messageExpression").map(compile).transpose()?,
            field: text("fieldPath").map(names).transpose()?,
        })
    }

    /// Evaluates the rule: `Ok(None)` if it holds, its message if it does not, and an error if it
    /// cannot be evaluated.
    fn evaluate(&self, self_: &Value, old: Option<&Value>) -> Result<Option<String>, String> {
        let context = context(self_, old)?;
        let fail = |error: ExecutionError| {
            let rule = shortened(&self.text);
            format!("the rule {rule:?} cannot be evaluated: {error}")
        };
        match self.program.execute(&context).map_err(fail)? {
            Cel::Bool(true) => Ok(None),
            Cel::Bool(false) => {
                if let Some(expression) = &self.message_expression {
                    return match expression.execute(&context).map_err(fail)? {
                        Cel::String(message) => Ok(Some(message.to_string())),
                        other => Err(format!("a message is no text but {other:?}")),
                    };
                }
                let rule = || format!("failed rule: {}", self.text);
                Ok(Some(self.message.clone().unwrap_or_else(rule)))
            }
            other => Err(format!("a rule says neither true nor false but {other:?}")),
        }
    }
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The language with its library of strings, which Kubernetes has too.
static ENVIRONMENT: LazyLock<Result<Arc<Env>, String>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    match env.add_extension(cel::extensions::strings) {
        Ok(()) => Ok(Arc::new(env)),
        Err(error) => Err(error.to_string()),
    }
});

fn environment() -> Result<Arc<Env>, String> {
    ENVIRONMENT.clone()
}

fn compile(source: &str) -> Result<Program, String> {
    let failed = |error| format!("the rule {:?} does not compile: {error}", shortened(source));
    environment()?.compile(source).map_err(failed)
}

/// The names of a `fieldPath` such as `.spec.size`. Those with keys in brackets are not known.
fn names(path: &str) -> Result<Vec<String>, String> {
    let dotted = path
        .strip_prefix('.')
        .filter(|dotted| !dotted.contains('['));
    let dotted = dotted.ok_or_else(|| format!("lint does not know the fieldPath {path:?}"))?;
    Ok(dotted.split('.').map(str::to_owned).collect())
}

/// The variables and the functions of Kubernetes' libraries that the language itself lacks.
fn context(self_: &Value, old: Option<&Value>) -> Result<Context<'static, 'static>, String> {
    let mut context = Context::with_env(environment()?);
    context.add_variable_from_value("self", value(self_));
    if let Some(old) = old {
        context.add_variable_from_value("oldSelf", value(old));
    }
    let failed = |error: cel::DeclarationError| error.to_string();
    context
        .add_function("isQuantity", |text: Arc<String>| {
            Size::parse(&text).is_some()
        })
        .map_err(failed)?;
    context
        .add_function(
            "quantity",
            |text: Arc<String>| -> Result<Cel, ExecutionError> {
                let size = Size::parse(&text).ok_or_else(|| {
                    ExecutionError::function_error("quantity", format!("{text:?} is no size"))
                })?;
                Ok(Cel::Opaque(Arc::new(size)))
            },
        )
        .map_err(failed)?;
    context
        .add_function(
            "compareTo",
            |This(one): This<Arc<dyn Opaque>>,
             other: Arc<dyn Opaque>|
             -> Result<Cel, ExecutionError> {
                let (one, other) = sizes(&one, &other)?;
                Ok(Cel::Int(one.compare(other)))
            },
        )
        .map_err(failed)?;
    for (name, expected) in [("isGreaterThan", 1), ("isLessThan", -1)] {
        context
            .add_function(
                name,
                move |This(one): This<Arc<dyn Opaque>>,
                      other: Arc<dyn Opaque>|
                      -> Result<Cel, ExecutionError> {
                    let (one, other) = sizes(&one, &other)?;
                    Ok(Cel::Bool(one.compare(other) == expected))
                },
            )
            .map_err(failed)?;
    }
    context
        .add_function("isInteger", |This(size): This<Arc<dyn Opaque>>| {
            Ok::<_, ExecutionError>(Cel::Bool(one_size(&size, "isInteger")?.whole().is_some()))
        })
        .map_err(failed)?;
    context
        .add_function("asInteger", |This(size): This<Arc<dyn Opaque>>| {
            let whole = one_size(&size, "asInteger")?.whole();
            let none = || ExecutionError::function_error("asInteger", "the size is no integer");
            Ok::<_, ExecutionError>(Cel::Int(whole.ok_or_else(none)?))
        })
        .map_err(failed)?;
    context
        .add_function(
            "add",
            |This(one): This<Arc<dyn Opaque>>,
             other: Arc<dyn Opaque>|
             -> Result<Cel, ExecutionError> {
                let (one, other) = sizes(&one, &other)?;
                Ok(Cel::Opaque(Arc::new(one.plus(other))))
            },
        )
        .map_err(failed)?;
    Ok(context)
}

fn one_size(value: &Arc<dyn Opaque>, function: &str) -> Result<Size, ExecutionError> {
    let size: Option<&Size> = value.as_ref().downcast_ref();
    let got = value.runtime_type_name();
    size.copied()
        .ok_or_else(|| ExecutionError::function_error(function, format!("{got} is no size")))
}

fn sizes(one: &Arc<dyn Opaque>, other: &Arc<dyn Opaque>) -> Result<(Size, Size), ExecutionError> {
    Ok((one_size(one, "compareTo")?, one_size(other, "compareTo")?))
}

/// A value as CEL sees it.
fn value(json: &Value) -> Cel {
    match json {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Cel::Int(integer),
            None => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cel::from(text.as_str()),
        Value::Array(items) => Cel::from(items.iter().map(value).collect::<Vec<_>>()),
        Value::Object(fields) => {
            let fields = fields.iter();
            let map: HashMap<Key, Cel> = fields
                .map(|(key, json)| (Key::from(key.as_str()), value(json)))
                .collect();
            Cel::from(map)
        }
    }
}

/// One evaluation of all rules of an object.
pub(crate) struct Run {
    /// Paths that have a problem already: rules there and above could read values that do not exist.
    blocked: Vec<Path>,
    /// What the rules refuse.
    pub(crate) found: Vec<Problem>,
    /// The rules that were evaluated, by their place, and whether they held.
    #[cfg(test)]
    pub(crate) evaluated: Vec<(String, bool)>,
}

impl Run {
    pub(crate) fn new(problems: &[Problem]) -> Self {
        Self {
            blocked: problems.iter().map(|p| p.path.clone()).collect(),
            found: Vec::new(),
            #[cfg(test)]
            evaluated: Vec::new(),
        }
    }

    /// Evaluates every rule of an object, and those that compare if there is an old one.
    pub(crate) fn check(&mut self, schema: &Schema, object: &Value, old: Option<&Value>) {
        self.walk(
            schema,
            &of_root(object),
            old.map(of_root).as_ref(),
            &Path::root(),
            &Path::root(),
        );
    }

    /// `at` is the place in the schema, which has no indices.
    fn walk(
        &mut self,
        schema: &Schema,
        value: &Value,
        old: Option<&Value>,
        path: &Path,
        at: &Path,
    ) {
        if !value.is_null() && !self.blocked.iter().any(|blocked| blocked.is_within(path)) {
            for (index, rule) in schema.rules.iter().enumerate() {
                self.rule(rule, value, old, path, &format!("{at}#{index}"));
            }
        }
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let (below, at) = match schema.properties.get(name) {
                        Some(below) => (Some(below), at.field(name)),
                        None => (schema.additional.as_deref(), at.field("*")),
                    };
                    if let Some(below) = below {
                        // A field that was not there before has nothing to be compared with.
                        let old = old.and_then(|old| old.get(name)).filter(|o| !o.is_null());
                        self.walk(below, field, old, &path.field(name), &at);
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    if let Some(below) = &schema.items {
                        // Items of a list without keys cannot be matched with each other.
                        self.walk(below, item, None, &path.item(index), &at.field("[]"));
                    }
                }
            }
            _ => {}
        }
    }

    #[cfg_attr(
        not(test),
        allow(unused_variables, reason = "only the test asks which rule it was")
    )]
    fn rule(&mut self, rule: &Rule, value: &Value, old: Option<&Value>, path: &Path, name: &str) {
        if rule.compares && old.is_none() {
            return;
        }
        let outcome = rule.evaluate(value, old);
        #[cfg(test)]
        if let Ok(message) = &outcome {
            self.evaluated.push((name.to_owned(), message.is_none()));
        }
        let message = match outcome {
            Ok(None) => return,
            Ok(Some(message)) => format!("Invalid value: {message}"),
            Err(problem) => problem,
        };
        let path = match &rule.field {
            Some(names) => names
                .iter()
                .fold(path.clone(), |path, name| path.field(name)),
            // No field names the object itself; its rules are about its name.
            None if path.0.is_empty() && !rule.text.contains("self.spec") => {
                Path::parse("metadata.name")
            }
            None => path.clone(),
        };
        self.found.push(Problem::error(Source::Rule, path, message));
    }
}

/// What a rule of the object itself may see of it.
fn of_root(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| key == "name" || key == "generateName");
    }
    object
}
