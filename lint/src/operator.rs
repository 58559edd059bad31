//! What the API server accepts and the operator rejects: reported here before a status reports it.

use std::sync::Arc;

use bellwether_api::ensemble::{settings, versions};
use bellwether_api::{LeaderElection, ZooKeeperEnsemble};
use bellwether_election::projection::Binder;
use bellwether_ensemble::validate::{Context, validate};
use serde_json::Value;

use crate::finding::{Problem, Severity, Source};
use crate::path::Path;

/// What the operator refuses or warns of in an object of this kind.
pub(crate) fn check(kind: &str, object: &Value) -> Vec<Problem> {
    match kind {
        "ZooKeeperEnsemble" => deserialize(object).map_or_else(|p| vec![p], |e| ensemble(&e)),
        "LeaderElection" => deserialize(object).map_or_else(|p| vec![p], |e| election(&e)),
        _ => Vec::new(),
    }
}

fn deserialize<K: serde::de::DeserializeOwned>(object: &Value) -> Result<K, Problem> {
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
    // What an administrator configured is not known here, such as a catalogue of images.
    match validate(ensemble, &Context::default()) {
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
                ..Problem::error(Source::Operator, Path::parse(field), text)
            };
            let config = ensemble.spec.config.iter();
            let keys = config.flat_map(|c| c.additional.keys());
            let not_read = keys.filter_map(|key| {
                let read = settings::read_instead(key)?;
                let path = Path::parse("spec.config.additional").field(key);
                let text = format!(
                    "ZooKeeper's documentation has this key, but its servers read {read} and ignore this one"
                );
                Some(Problem {
                    severity: Severity::Warning,
                    ..Problem::error(Source::Operator, path, text)
                })
            });
            let told = flaw.into_iter().chain(not_known).map(warning);
            told.chain(not_read).collect()
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

/// The path of a field as the operator names it: a number in brackets is an item, any other text in
/// them is a key of a map, and a remark in parentheses is ignored.
fn path_of(field: &str) -> Path {
    let mut rest = field.split(" (").next().unwrap_or(field);
    let mut path = Path::root();
    while !rest.is_empty() {
        let (step, after) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            Some((inside, after)) => {
                let step = inside
                    .parse()
                    .map_or_else(|_| path.field(inside), |index: usize| path.item(index));
                (step, after)
            }
            None => {
                let name = rest.strip_prefix('.').unwrap_or(rest);
                // Each step takes at least one character, so that this comes to an end.
                let after_first = name.char_indices().nth(1).map_or(name.len(), |(at, _)| at);
                let end = name[after_first..].find(['.', '[']);
                let end = end.map_or(name.len(), |end| after_first + end);
                let (name, after) = name.split_at(end);
                (path.field(name), after)
            }
        };
        path = step;
        rest = after;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::path_of;

    #[test]
    fn a_field_of_the_operator_is_found_in_the_text() {
        for (field, path) in [
            ("spec.replicas", "spec.replicas"),
            ("spec.config (tickTime)", "spec.config"),
            ("spec.config.additional[a.b]", "spec.config.additional.a.b"),
            ("spec.pod.tolerations[1].key", "spec.pod.tolerations[1].key"),
            ("spec.a[0].b[2]", "spec.a[0].b[2]"),
            ("spec.a[0", "spec.a.[0"),
        ] {
            assert_eq!(path_of(field).to_string(), path);
        }
    }
}
