//! Where the pods may run.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Problems;
use super::names::{self, is_dns_label, is_dns_subdomain, is_key, is_label_value};
use super::pod::labels_of;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Checks it as the API server does. `labels` are those of the pods.
pub(super) fn check(
    affinity: &Affinity,
    labels: &BTreeMap<String, String>,
    problems: &mut Problems,
) {
    let root = "spec.pod.affinity";
    if let Some(nodes) = &affinity.node_affinity {
        let root = format!("{root}.nodeAffinity");
        if let Some(required) = &nodes.required_during_scheduling_ignored_during_execution {
            let field = format!("{root}.{REQUIRED}.nodeSelectorTerms");
            if required.node_selector_terms.is_empty() {
                problems.add(&field, "there must be a term, or no pod is placed anywhere");
            }
            for (index, term) in required.node_selector_terms.iter().enumerate() {
                node_term(&format!("{field}[{index}]"), term, true, problems);
            }
        }
        let preferred = &nodes.preferred_during_scheduling_ignored_during_execution;
        for (index, term) in preferred.iter().flatten().enumerate() {
            let field = format!("{root}.{PREFERRED}[{index}]");
            weight(&field, term.weight, problems);
            node_term(
                &format!("{field}.preference"),
                &term.preference,
                false,
                problems,
            );
        }
    }
    if let Some(pods) = &affinity.pod_affinity {
        pod_terms(
            &format!("{root}.podAffinity"),
            pods.required_during_scheduling_ignored_during_execution
                .as_deref(),
            pods.preferred_during_scheduling_ignored_during_execution
                .as_deref(),
            labels,
            problems,
        );
    }
    if let Some(pods) = &affinity.pod_anti_affinity {
        pod_terms(
            &format!("{root}.podAntiAffinity"),
            pods.required_during_scheduling_ignored_during_execution
                .as_deref(),
            pods.preferred_during_scheduling_ignored_during_execution
                .as_deref(),
            labels,
            problems,
        );
    }
}

fn weight(field: &str, weight: i32, problems: &mut Problems) {
    if !(1..=100).contains(&weight) {
        problems.add(format!("{field}.weight"), format!("{weight}: use 1 to 100"));
    }
}

/// Checks a term of nodes. Values of a preference may be any text.
fn node_term(field: &str, term: &NodeSelectorTerm, strict: bool, problems: &mut Problems) {
    for (index, one) in term.match_expressions.iter().flatten().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        let values = one.values.as_deref().unwrap_or_default();
        match one.operator.as_str() {
            "Gt" | "Lt" if values.len() != 1 => problems.add(
                format!("{field}.values"),
                format!("with the operator {} there is one value", one.operator),
            ),
            "Gt" | "Lt" => {}
            operator => set_operator(
                &field,
                operator,
                values,
                "In, NotIn, Exists, DoesNotExist, Gt or Lt",
                problems,
            ),
        }
        key(&field, &one.key, problems);
        if strict {
            all_values(&field, values, problems);
        }
    }
    for (index, one) in term.match_fields.iter().flatten().enumerate() {
        node_field(&format!("{field}.matchFields[{index}]"), one, problems);
    }
}

fn node_field(field: &str, one: &NodeSelectorRequirement, problems: &mut Problems) {
    let values = one.values.as_deref().unwrap_or_default();
    if !["In", "NotIn"].contains(&one.operator.as_str()) {
        let problem = format!("{:?}: use In or NotIn", one.operator);
        problems.add(format!("{field}.operator"), problem);
    } else if values.len() != 1 {
        problems.add(format!("{field}.values"), "there must be one value");
    }
    if one.key != "metadata.name" {
        let problem = format!("{:?}: the only field is metadata.name", one.key);
        problems.add(format!("{field}.key"), problem);
    } else if let Some(value) = values.iter().find(|value| !is_dns_subdomain(value)) {
        let problem = format!("{value:?} can be the name of no node: {}", names::NO_NAME);
        problems.add(format!("{field}.values"), problem);
    }
}

fn key(field: &str, key: &str, problems: &mut Problems) {
    if !is_key(key) {
        problems.add(
            format!("{field}.key"),
            format!("{key:?}: {}", names::NO_KEY),
        );
    }
}

fn all_values(field: &str, values: &[String], problems: &mut Problems) {
    for value in values.iter().filter(|value| !is_label_value(value)) {
        let problem = format!("{value:?}: {}", names::NO_VALUE);
        problems.add(format!("{field}.values"), problem);
    }
}

/// Checks an operator with its values, of those that selectors of nodes and of labels share.
fn set_operator(
    field: &str,
    operator: &str,
    values: &[String],
    known: &str,
    problems: &mut Problems,
) {
    match operator {
        "In" | "NotIn" if values.is_empty() => problems.add(
            format!("{field}.values"),
            format!("with the operator {operator} there are values"),
        ),
        "Exists" | "DoesNotExist" if !values.is_empty() => problems.add(
            format!("{field}.values"),
            format!("with the operator {operator} there are no values"),
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => problems.add(
            format!("{field}.operator"),
            format!("{other:?}: use {known}"),
        ),
    }
}

fn pod_terms(
    field: &str,
    required: Option<&[PodAffinityTerm]>,
    preferred: Option<&[WeightedPodAffinityTerm]>,
    labels: &BTreeMap<String, String>,
    problems: &mut Problems,
) {
    for (index, term) in required.into_iter().flatten().enumerate() {
        pod_term(
            &format!("{field}.{REQUIRED}[{index}]"),
            term,
            labels,
            problems,
        );
    }
    for (index, weighted) in preferred.into_iter().flatten().enumerate() {
        let field = format!("{field}.{PREFERRED}[{index}]");
        weight(&field, weighted.weight, problems);
        let term = &weighted.pod_affinity_term;
        pod_term(&format!("{field}.podAffinityTerm"), term, labels, problems);
    }
}

fn pod_term(
    field: &str,
    term: &PodAffinityTerm,
    labels: &BTreeMap<String, String>,
    problems: &mut Problems,
) {
    let selectors = [
        ("labelSelector", &term.label_selector),
        ("namespaceSelector", &term.namespace_selector),
    ];
    for (name, selector) in selectors {
        if let Some(selector) = selector {
            label_selector(&format!("{field}.{name}"), selector, problems);
        }
    }
    for name in term
        .namespaces
        .iter()
        .flatten()
        .filter(|n| !is_dns_label(n))
    {
        let problem = format!("{name:?} can be the name of no namespace");
        problems.add(format!("{field}.namespaces"), problem);
    }
    if !is_key(&term.topology_key) {
        let problem = format!("{:?}: {}", term.topology_key, names::NO_KEY);
        problems.add(format!("{field}.topologyKey"), problem);
    }
    let matching = term.match_label_keys.as_deref().unwrap_or_default();
    let mismatching = term.mismatch_label_keys.as_deref().unwrap_or_default();
    for (name, keys) in [
        ("matchLabelKeys", matching),
        ("mismatchLabelKeys", mismatching),
    ] {
        let field = format!("{field}.{name}");
        if !keys.is_empty() && term.label_selector.is_none() {
            problems.add(&field, "it needs a labelSelector beside it");
        }
        for one in keys.iter().filter(|one| !is_key(one)) {
            problems.add(&field, format!("{one:?}: {}", names::NO_KEY));
        }
    }
    let field = format!("{field}.matchLabelKeys");
    for one in matching {
        if mismatching.contains(one) {
            problems.add(&field, format!("{one}: it is in mismatchLabelKeys too"));
        }
        // For a pod that has this label the API server adds a requirement with this key to `labelSelector`.
        let selected = term
            .label_selector
            .as_ref()
            .is_some_and(|s| selects_by(s, one));
        if selected && labels.contains_key(one) {
            problems.add(&field, format!("{one}: it is in labelSelector too"));
        }
    }
}

fn selects_by(selector: &LabelSelector, key: &str) -> bool {
    let expressions = selector.match_expressions.iter().flatten();
    let labels = selector.match_labels.iter().flatten();
    labels
        .map(|(k, _)| k)
        .chain(expressions.map(|e| &e.key))
        .any(|k| k == key)
}

pub(super) fn label_selector(field: &str, selector: &LabelSelector, problems: &mut Problems) {
    if let Some(labels) = &selector.match_labels {
        labels_of(&format!("{field}.matchLabels"), labels, problems);
    }
    for (index, one) in selector.match_expressions.iter().flatten().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        let values = one.values.as_deref().unwrap_or_default();
        set_operator(
            &field,
            &one.operator,
            values,
            "In, NotIn, Exists or DoesNotExist",
            problems,
        );
        key(&field, &one.key, problems);
        all_values(&field, values, problems);
    }
}
