//! What follows from a reason: what the operator does next, and what a person does.

/// What follows from a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guidance {
    /// What the operator does next, in sentences.
    pub operator: &'static str,
    /// What a person does, in sentences.
    pub person: &'static str,
    /// The section of the runbook that says more, by its anchor.
    pub runbook: Option<&'static str>,
}

impl Guidance {
    /// What the operator does, and what a person does.
    pub(crate) const fn new(operator: &'static str, person: &'static str) -> Self {
        Self {
            operator,
            person,
            runbook: None,
        }
    }

    /// A section of the runbook says more.
    pub(crate) const fn more(mut self, anchor: &'static str) -> Self {
        self.runbook = Some(anchor);
        self
    }
}

/// What a person does where all is well.
pub(crate) const NOTHING: &str = "Nothing.";

/// The reasons of a type in the order of its declaration with what their documentation says, from the schema.
#[cfg(test)]
pub(crate) fn described<T: schemars::JsonSchema>() -> Vec<(String, String)> {
    let schema = schemars::schema_for!(T);
    let variants = schema.get("oneOf").and_then(|v| v.as_array());
    let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
    variants
        .into_iter()
        .flatten()
        .map(|v| (text(&v["const"]), text(&v["description"])))
        .collect()
}
