//! Where in an object something is, written as the API server writes it: `spec.storage.size`.

use std::fmt;

/// One step down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Into a field, or to the value of a key of a map.
    Field(String),
    /// Into an item of a list, counted from 0.
    Item(usize),
}

/// The way from the root of an object to a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(pub(crate) Vec<Step>);

impl Path {
    /// The object itself.
    pub(crate) fn root() -> Self {
        Self::default()
    }

    /// A field of this, or the value of a key.
    pub(crate) fn field(&self, name: &str) -> Self {
        self.with(Step::Field(name.to_owned()))
    }

    /// An item of this.
    pub(crate) fn item(&self, index: usize) -> Self {
        self.with(Step::Item(index))
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// A field by its names, separated by dots.
    pub(crate) fn parse(dotted: &str) -> Self {
        dotted
            .split('.')
            .fold(Self::root(), |path, name| path.field(name))
    }

    /// Whether this is at or below `other`.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// Whether one of the two is at or below the other.
    pub(crate) fn is_related(&self, other: &Self) -> bool {
        self.is_within(other) || other.is_within(self)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if index == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Item(item) => write!(f, "[{item}]")?,
            }
        }
        Ok(())
    }
}
