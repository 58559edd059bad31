//! What the API server takes and the operator does not: told here before it is told in a status.

use std::sync::Arc;

use bellwether_api::ensemble::versions;
use bellwether_api::{LeaderElection, ZooKeeperEnsemble};
use bellwether_election::projection::Binder;
use bellwether_ensemble::validate::{Context, validate};
use serde_json::Value;

use crate::finding::{Problem, Severity, Source};
use crate::path::Path;

/// What the operator refuses or warns of in an object of this kind.
pub(crate) fn check(kind: &str, object: &Value) -> Vec<Problem> {
    match kind {
        "ZooKeeperEnsemble" => read(object).map_or_else(|p| vec![p], |e| ensemble(&e)),
        "LeaderElection" => read(object).map_or_else(|p| vec![p], |e| election(&e)),
        _ => Vec::new(),
    }
}

fn read<K: serde::de::DeserializeOwned>(object: &Value) -> Result<K, Problem> {
    serde_json::from_value(object.clone()).map_err(|error| {
        let path = Path::root().field("spec");
        Problem::error(
            Source::Operator,
            path,
            format!("the operator cannot read it: {error}"),
        )
    })
}

fn ensemble(ensemble: &ZooKeeperEnsemble) -> Vec<Problem> {
    // What the operator contributes decides nothing here.
    let context = Context {
        member_image: String::new(),
        cluster_domain: "cluster.local".to_owned(),
        version: String::new(),
    };
    match validate(ensemble, &context) {
        Err(problems) => problems
            .into_iter()
            .map(|p| Problem::error(Source::Operator, path_of(&p.field), p.problem))
            .collect(),
        Ok(valid) => {
            let release = valid.release.as_deref();
            let flaw = release.and_then(versions::flaw).map(versions::sentence);
            let not_known = release.and_then(versions::not_known);
            let field = if ensemble.spec.image.is_some() {
                "spec.image"
            } else {
                "spec.version"
            };
            let warning = |text| Problem {
                severity: Severity::Warning,
                ..Problem::error(Source::Operator, Path::of(field), text)
            };
            flaw.into_iter().chain(not_known).map(warning).collect()
        }
    }
}

fn election(election: &LeaderElection) -> Vec<Problem> {
    let rules = bellwether_election::Rules::new(Arc::new(election.spec.clone()), None);
    let dialect = rules.err().map(|invalid| invalid.0);
    let binding = Binder::new(election.spec.pod_binding.as_deref()).err();
    dialect.into_iter().chain(binding).map(sentence).collect()
}

/// The field of a sentence that begins with one.
fn sentence(text: String) -> Problem {
    let field = text
        .split(' ')
        .next()
        .filter(|word| word.starts_with("spec."));
    let path = path_of(field.unwrap_or("spec"));
    Problem::error(Source::Operator, path, text)
}

/// The path of a field as the operator names it: a key in brackets is one step, and a remark in
/// parentheses is none.
fn path_of(field: &str) -> Path {
    let field = field.split(' ').next().unwrap_or(field);
    match field.split_once('[') {
        Some((map, key)) => Path::of(map).field(key.trim_end_matches(']')),
        None => Path::of(field),
    }
}
