//! The kinds that a CustomResourceDefinition describes: defaults, pruning and rules.

use std::sync::LazyLock;

use bellwether_lint::{Linter, UnusableSchema};
use serde_json::Value;

use super::kind::Kind;
use super::refusal::Flaw;

/// The rules of both kinds; compiling them takes longer than a simulated life.
static RULES: LazyLock<Result<Linter, UnusableSchema>> = LazyLock::new(Linter::new);

/// Compiles the rules now instead of at the first write.
pub(crate) fn prepare() {
    LazyLock::force(&RULES);
}

/// Fills in, prunes and checks an object, or its status alone. What did not change is as it was.
pub(crate) fn admit(
    kind: Kind,
    object: &mut Value,
    before: Option<&Value>,
    status: bool,
) -> Result<(), Vec<Flaw>> {
    if !kind.is_custom() {
        return Ok(());
    }
    let part = if status { "status" } else { "spec" };
    if before.is_some_and(|before| before[part] == object[part]) {
        return Ok(());
    }
    let rules = match &*RULES {
        Ok(rules) => rules,
        Err(error) => return Err(vec![Flaw::invalid("", error.to_string())]),
    };
    let name = kind.resource().name;
    let admitted = if status {
        rules.admit_status(name, &object["status"])
    } else {
        rules.admit(name, object, before)
    };
    match admitted {
        Ok(status_value) if status => object["status"] = status_value,
        Ok(admitted) => *object = admitted,
        Err(flaws) => {
            let flaws = flaws.into_iter();
            return Err(flaws.map(|f| Flaw::invalid(&f.field, f.message)).collect());
        }
    }
    Ok(())
}
