//! Manifests of `ZooKeeperEnsemble` and `LeaderElection`, checked before they are applied.
//!
//! ```text
//! text --yaml--> nodes with line and column --+
//!                                             +--> findings
//! generated CRD --schema--> types, CEL rules --+
//! the pure crates --operator--> what the operator itself refuses or warns of
//! ```
//!
//! The rules are those of the CustomResourceDefinitions that this build would install, so a manifest
//! that passes here is one that the API server takes; an end-to-end test compares the two. A rule
//! that cannot be understood or evaluated is an error, never a pass.
//!
//! This crate is pure: it reads no file and talks to nothing.

mod admission;
mod expression;
mod finding;
mod metadata;
mod operator;
mod path;
mod quantity;
mod schema;
mod structure;
mod together;
mod yaml;

use std::collections::BTreeMap;

use bellwether_api::{GROUP, LeaderElection, VERSION, ZooKeeperEnsemble};
use kube::CustomResourceExt;
use serde_json::Value;

pub use admission::Flaw;
pub use finding::{Finding, Severity, Source};
pub use schema::UnusableSchema;
pub use yaml::Position;

use finding::Problem;
use path::Path;
use schema::Schema;
use yaml::{Data, Node};

/// What became of one document.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is wrong, in the order of the text.
    pub findings: Vec<Finding>,
    /// The objects that were checked, as `Kind/name`.
    pub checked: Vec<String>,
    /// The objects of other groups, which were left alone, as `apiVersion Kind/name`.
    pub skipped: Vec<String>,
}

/// The rules of both kinds, ready to check with.
#[derive(Debug)]
pub struct Linter {
    kinds: BTreeMap<&'static str, Schema>,
    /// How often each rule held and did not, by its place in the schema; for the test that every rule
    /// is exercised.
    #[cfg(test)]
    evaluated: std::cell::RefCell<BTreeMap<String, (usize, usize)>>,
}

impl Linter {
    /// Takes the rules from the CustomResourceDefinitions of this build.
    ///
    /// # Errors
    /// When a schema says something that this crate does not know, or a rule does not compile: then
    /// nothing can be checked.
    pub fn new() -> Result<Self, UnusableSchema> {
        let mut kinds = BTreeMap::new();
        for (kind, crd) in [
            ("ZooKeeperEnsemble", ZooKeeperEnsemble::crd()),
            ("LeaderElection", LeaderElection::crd()),
        ] {
            kinds.insert(kind, Schema::of_crd(&crd)?);
        }
        Ok(Self {
            kinds,
            #[cfg(test)]
            evaluated: std::cell::RefCell::default(),
        })
    }

    /// Checks every document of a text. `against` holds the objects as they are, for the rules that
    /// compare a change with what was before; an object is found there by kind, namespace and name.
    pub fn check(&self, text: &str, against: &Existing) -> Report {
        let mut report = Report::default();
        let documents = match yaml::parse(text) {
            Ok(documents) => documents,
            Err(problem) => {
                report.findings.push(Finding::syntax(problem));
                return report;
            }
        };
        let all: Vec<&Node> = documents.iter().flat_map(objects).collect();
        for object in &all {
            self.check_object(object, against, &mut report);
        }
        for (object, problem) in together::check(&all) {
            report.findings.push(problem.locate(object, &title(object)));
        }
        report.findings.sort_by_key(|f| f.at);
        report
    }

    fn check_object(&self, object: &Node, against: &Existing, report: &mut Report) {
        let name = title(object);
        let mut add = |problem: Problem| {
            report.findings.push(problem.locate(object, &name));
        };
        if !matches!(object.data, Data::Map(_)) {
            add(Problem::schema(
                Path::root(),
                "a document must be an object with apiVersion and kind",
            ));
            return;
        }
        let version = object.text_at("apiVersion").unwrap_or_default();
        let kind = object.text_at("kind").unwrap_or_default();
        for (key, value) in [("apiVersion", version), ("kind", kind)] {
            if value.is_empty() {
                let what = format!("Required value: every object says its {key}");
                add(Problem::schema(Path::root().field(key), what));
            }
        }
        if version.is_empty() || kind.is_empty() {
            return;
        }
        let group = version.split_once('/').map_or("", |(group, _)| group);
        if group != GROUP {
            report.skipped.push(format!("{version} {name}"));
            return;
        }
        let served = format!("{GROUP}/{VERSION}");
        if version != served {
            add(Problem::schema(
                Path::root().field("apiVersion"),
                format!("no matches for {version:?}: the group is served as {served}"),
            ));
            return;
        }
        let Some(schema) = self.kinds.get(kind) else {
            let known: Vec<&str> = self.kinds.keys().copied().collect();
            add(Problem::schema(
                Path::root().field("kind"),
                format!(
                    "no matches for kind {kind:?} in {served}: use {}",
                    known.join(" or ")
                ),
            ));
            return;
        };
        let old = against.find(object);
        for problem in self.problems(kind, schema, object, old) {
            add(problem);
        }
        report.checked.push(name);
    }

    fn problems(
        &self,
        kind: &str,
        schema: &Schema,
        object: &Node,
        old: Option<&Node>,
    ) -> Vec<Problem> {
        let mut problems = metadata::check(object);
        let mut value = structure::check(schema, object, &mut problems);
        // The present object was accepted once; only its values count. A change of it keeps its status.
        let old = old.map(|old| {
            let mut before = structure::check(schema, old, &mut Vec::new());
            if let Some(status) = old.get("status") {
                before["status"] = status.to_json();
                value["status"] = status.to_json();
            }
            before
        });
        let mut rules = expression::Run::new(&problems);
        rules.check(schema, &value, old.as_ref());
        #[cfg(test)]
        for (rule, held) in &rules.evaluated {
            let mut evaluated = self.evaluated.borrow_mut();
            let counts = evaluated.entry(format!("{kind} {rule}")).or_default();
            *if *held { &mut counts.0 } else { &mut counts.1 } += 1;
        }
        problems.extend(rules.found);
        for problem in operator::check(kind, &value) {
            let told = |p: &Problem| p.path.is_related(&problem.path);
            if problem.severity == Severity::Warning || !problems.iter().any(told) {
                problems.push(problem);
            }
        }
        problems
    }
}

/// Objects as they are, to compare a change with.
#[derive(Clone, Debug, Default)]
pub struct Existing(Vec<Node>);

impl Existing {
    /// Reads the objects of a text.
    ///
    /// # Errors
    /// The finding, when the text is not YAML.
    pub fn parse(text: &str) -> Result<Self, Finding> {
        let documents = yaml::parse(text).map_err(Finding::syntax)?;
        Ok(Self(documents.iter().flat_map(objects).cloned().collect()))
    }

    fn find(&self, object: &Node) -> Option<&Node> {
        let key = |node: &Node| {
            let metadata = node.get("metadata");
            let word = |key: &str| metadata.and_then(|m| m.text_at(key)).map(str::to_owned);
            (
                node.text_at("kind").map(str::to_owned),
                word("name"),
                word("namespace"),
            )
        };
        let (kind, name, namespace) = key(object);
        self.0.iter().find(|old| {
            let (old_kind, old_name, old_namespace) = key(old);
            // The command line decides the namespace of a file that names none.
            let same_place =
                namespace.is_none() || old_namespace.is_none() || namespace == old_namespace;
            kind == old_kind && name == old_name && same_place
        })
    }
}

/// The objects of a document: itself, or the items of a `List`.
fn objects(document: &Node) -> Vec<&Node> {
    if let Data::Map(_) = document.data
        && document.text_at("apiVersion") == Some("v1")
        && document.text_at("kind") == Some("List")
        && let Some(Data::List(items)) = document.get("items").map(|items| &items.data)
    {
        return items.iter().flat_map(objects).collect();
    }
    vec![document]
}

/// What an object is called in messages: `Kind/name`.
fn title(object: &Node) -> String {
    let name = object.get("metadata").and_then(|m| {
        m.text_at("name")
            .or_else(|| m.text_at("generateName"))
            .map(str::to_owned)
    });
    let kind = object.text_at("kind").unwrap_or("object");
    format!("{kind}/{}", name.as_deref().unwrap_or("?"))
}

/// The objects of both kinds in a text, as the operator would see them: defaults in place. For commands
/// that go on with a manifest after it passed.
///
/// # Errors
/// The finding, when the text is not YAML.
pub fn parse_objects(text: &str) -> Result<Vec<Value>, Finding> {
    let documents = yaml::parse(text).map_err(Finding::syntax)?;
    let all = documents.iter().flat_map(objects).map(Node::to_json);
    Ok(all.collect())
}

#[cfg(test)]
mod tests;
