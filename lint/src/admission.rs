//! Objects as the API server takes them: defaults filled in, what it does not know dropped.

use serde_json::Value;

use crate::finding::Problem;
use crate::structure::{prune, prune_field};
use crate::yaml::Node;
use crate::{Linter, expression};

/// What the API server refuses in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The field, as the API server writes it; empty for the whole.
    pub field: String,
    /// What is wrong.
    pub message: String,
}

impl From<Problem> for Flaw {
    fn from(problem: Problem) -> Self {
        Self {
            field: problem.path.to_string(),
            message: problem.message,
        }
    }
}

impl Linter {
    /// The object of a kind as the API server would keep it. `old` is the object as it is, for the rules that
    /// compare; its status is kept. An object of a kind that is not known stays as it is.
    ///
    /// # Errors
    /// What the API server would refuse.
    pub fn admit(
        &self,
        kind: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Value, Vec<Flaw>> {
        let Some(schema) = self.kinds.get(kind) else {
            return Ok(object.clone());
        };
        let mut problems = Vec::new();
        let mut value = prune(schema, &Node::from(object), &mut problems);
        if let Some(status) = old.and_then(|old| old.get("status")) {
            value["status"] = status.clone();
        }
        let mut rules = expression::Run::new(&problems);
        rules.check(schema, &value, old);
        problems.extend(rules.found);
        if problems.is_empty() {
            Ok(value)
        } else {
            Err(problems.into_iter().map(Flaw::from).collect())
        }
    }

    /// The status of an object of a kind as the API server would keep it.
    ///
    /// # Errors
    /// What the API server would refuse.
    pub fn admit_status(&self, kind: &str, status: &Value) -> Result<Value, Vec<Flaw>> {
        let Some(schema) = self.kinds.get(kind) else {
            return Ok(status.clone());
        };
        let mut problems = Vec::new();
        let status = prune_field(schema, "status", &Node::from(status), &mut problems);
        if problems.is_empty() {
            Ok(status.unwrap_or_default())
        } else {
            Err(problems.into_iter().map(Flaw::from).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ensemble(spec: &Value) -> Value {
        json!({
            "apiVersion": format!("{}/{}", bellwether_api::GROUP, bellwether_api::VERSION),
            "kind": "ZooKeeperEnsemble",
            "metadata": { "name": "zk", "namespace": "shop" },
            "spec": spec,
        })
    }

    #[test]
    fn defaults_are_filled_in_and_what_is_unknown_is_dropped() {
        let linter = Linter::new().unwrap();
        let object = ensemble(&json!({ "replicas": 3, "metrics": {}, "unheardOf": 1 }));
        let kept = linter.admit("ZooKeeperEnsemble", &object, None).unwrap();
        assert_eq!(kept["spec"]["metrics"]["enabled"], false);
        assert_eq!(kept["spec"].get("unheardOf"), None);
        assert_eq!(kept["metadata"], object["metadata"]);
    }

    #[test]
    fn types_and_rules_are_checked_and_changes_compared() {
        let linter = Linter::new().unwrap();
        let admit = |spec: &Value, old: Option<&Value>| {
            linter.admit("ZooKeeperEnsemble", &ensemble(spec), old)
        };
        let flaws = admit(&json!({ "replicas": "three" }), None).unwrap_err();
        assert_eq!(flaws[0].field, "spec.replicas");
        let old = admit(
            &json!({ "replicas": 3, "storage": { "size": "2Gi" } }),
            None,
        )
        .unwrap();
        let flaws = admit(
            &json!({ "replicas": 3, "storage": { "size": "1Gi" } }),
            Some(&old),
        )
        .unwrap_err();
        assert!(flaws[0].field.starts_with("spec.storage"), "{flaws:?}");
        assert!(
            admit(
                &json!({ "replicas": 3, "storage": { "size": "3Gi" } }),
                Some(&old)
            )
            .is_ok()
        );
    }

    #[test]
    fn a_status_is_pruned_and_checked_by_itself() {
        let linter = Linter::new().unwrap();
        let status = json!({ "ready": "3/3", "unheardOf": 1 });
        let kept = linter.admit_status("ZooKeeperEnsemble", &status).unwrap();
        assert_eq!(kept.get("unheardOf"), None);
        let wrong = linter.admit_status("ZooKeeperEnsemble", &json!({ "replicas": "x" }));
        assert_eq!(wrong.unwrap_err()[0].field, "status.replicas");
    }
}
