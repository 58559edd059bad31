//! The labels on the pods of candidates.
//!
//! Each election labels with a field manager of its own, so the pod itself records which election set
//! which label. Applying no labels under that name removes those of the election. A label that another
//! client set is a conflict and stays. The same holds for the leader's deletion cost, which is an annotation.

use std::collections::BTreeMap;

use bellwether_api::election::PodLabelsProjection;
use bellwether_api::labels::{DELETION_COST, LABELLED_BY, ROLE_LABELLED, ROLE_MANAGER};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::{Value, json};

use super::PodFacts;

/// The labels that one election has applied to one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedLabels {
    /// The uid of the pod.
    pub pod_uid: String,
    /// The name of the election, from the pod's annotation.
    pub election: String,
    /// The labels that the election set, without the one that all labelled pods have.
    pub labels: BTreeMap<String, String>,
    /// Whether it set the deletion cost.
    pub is_costly: bool,
}

/// The deletion cost of the leader's pod. That of others is 0.
const COST: &str = "100";

/// The field manager under which an election labels pods.
pub fn role_manager(election_uid: &str) -> String {
    format!("{ROLE_MANAGER}{election_uid}")
}

/// The labels that elections have applied to a pod, by the uids of the elections.
pub fn applied_labels(pod: &ObjectMeta) -> BTreeMap<String, AppliedLabels> {
    let managers = pod.managed_fields.as_deref().unwrap_or_default();
    managers
        .iter()
        .filter_map(|entry| {
            let uid = entry.manager.as_deref()?.strip_prefix(ROLE_MANAGER)?;
            (entry.operation.as_deref() == Some("Apply")).then(|| {
                let election = pod
                    .annotations
                    .as_ref()
                    .and_then(|all| all.get(&format!("{LABELLED_BY}{uid}")));
                let applied = AppliedLabels {
                    pod_uid: pod.uid.clone().unwrap_or_default(),
                    election: election.cloned().unwrap_or_default(),
                    labels: owned(entry, pod.labels.as_ref()),
                    is_costly: owns_cost(entry),
                };
                (uid.to_owned(), applied)
            })
        })
        .collect()
}

fn owns_cost(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry.fields_v1.as_ref();
    let annotations = fields.and_then(|fields| fields.0["f:metadata"]["f:annotations"].as_object());
    annotations.is_some_and(|all| all.contains_key(&format!("f:{DELETION_COST}")))
}

fn owned(
    entry: &ManagedFieldsEntry,
    labels: Option<&BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let fields = entry.fields_v1.as_ref();
    let fields = fields.and_then(|fields| fields.0["f:metadata"]["f:labels"].as_object());
    let Some((fields, labels)) = fields.zip(labels) else {
        return BTreeMap::new();
    };
    let keys = fields.keys().filter_map(|key| key.strip_prefix("f:"));
    keys.filter(|key| *key != ROLE_LABELLED)
        .filter_map(|key| Some((key.to_owned(), labels.get(key)?.clone())))
        .collect()
}

/// Which pods have to be labelled how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    key: String,
    leader: Option<(String, String)>,
    /// Names, uids and values.
    pods: BTreeMap<String, (String, String)>,
    /// Whether the leader's pod has a deletion cost.
    has_cost: bool,
}

impl Roles {
    /// The roles of these pods. A pod in which the leader and other candidates run has the leader's role.
    pub fn new<'p>(
        projection: &PodLabelsProjection,
        leader: Option<&PodFacts>,
        candidates: impl Iterator<Item = &'p PodFacts>,
    ) -> Self {
        let with = |pod: &PodFacts, value: &str| {
            let named = pod.name.clone();
            (named, (pod.uid.clone(), value.to_owned()))
        };
        let mut pods: BTreeMap<_, _> = candidates
            .map(|pod| with(pod, &projection.other_value))
            .collect();
        pods.extend(leader.map(|pod| with(pod, &projection.leader_value)));
        Self {
            key: projection.key.clone(),
            leader: leader.map(|pod| (pod.name.clone(), pod.uid.clone())),
            pods,
            has_cost: projection.deletion_cost,
        }
    }

    fn is_leader(&self, pod: &str, uid: &str) -> bool {
        let leader = self.leader.as_ref();
        leader.is_some_and(|(name, leader)| name == pod && leader == uid)
    }

    /// The labels that a pod has to have.
    fn labels(&self, pod: &str, uid: &str) -> BTreeMap<String, String> {
        let role = self.pods.get(pod).filter(|(wanted, _)| wanted == uid);
        role.map(|(_, value)| (self.key.clone(), value.clone()))
            .into_iter()
            .collect()
    }
}

/// A change of the labels of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The pod.
    pub pod: String,
    /// Its uid.
    pub pod_uid: String,
    /// All labels that the election has on it afterwards; empty takes everything back.
    pub labels: BTreeMap<String, String>,
    /// Whether it has the leader's deletion cost afterwards.
    pub is_costly: bool,
    /// It must be carried out only if every change before it in the list was.
    pub only_after_all: bool,
}

/// The changes from what the election has set to what it should have, in the order in which they have to be
/// carried out: first other pods lose what may be the leader's label, then the leader's pod gets it, then the
/// remaining pods are labelled.
pub fn changes(roles: &Roles, applied_labels: &BTreeMap<String, AppliedLabels>) -> Vec<Change> {
    let change = |pod: &str, uid: &str| Change {
        pod: pod.to_owned(),
        pod_uid: uid.to_owned(),
        labels: roles.labels(pod, uid),
        is_costly: roles.has_cost && roles.is_leader(pod, uid),
        only_after_all: false,
    };
    let mut changes: Vec<Change> = applied_labels
        .iter()
        .filter(|(pod, applied)| !roles.is_leader(pod, &applied.pod_uid))
        .map(|(pod, applied)| (change(pod, &applied.pod_uid), applied))
        // An entry without labels still counts: another client removed the label, but not the annotation.
        .filter(|(change, applied)| !change.is_done(applied) || change.labels.is_empty())
        .map(|(change, _)| change)
        .collect();
    let has = |pod: &str, uid: &str| {
        applied_labels
            .get(pod)
            .filter(|applied| applied.pod_uid == uid)
    };
    if let Some((pod, uid)) = &roles.leader {
        let mut leader = change(pod, uid);
        leader.only_after_all = true;
        if !has(pod, uid).is_some_and(|applied| leader.is_done(applied)) {
            changes.push(leader);
        }
    }
    for (pod, (uid, _)) in &roles.pods {
        if !roles.is_leader(pod, uid) && has(pod, uid).is_none() {
            changes.push(change(pod, uid));
        }
    }
    changes
}

impl Change {
    /// Whether a pod that has this needs no change.
    pub fn is_done(&self, applied: &AppliedLabels) -> bool {
        applied.labels == self.labels && applied.is_costly == self.is_costly
    }
}

/// The object to apply to a pod that is of this version now, under [`role_manager`] and without force.
pub fn patch(election: (&str, &str), pod: &ObjectMeta, change: &Change) -> Value {
    let (uid, name) = election;
    let mut metadata = json!({
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "resourceVersion": pod.resource_version,
    });
    if !change.labels.is_empty() {
        let mut labels = change.labels.clone();
        labels.insert(ROLE_LABELLED.to_owned(), "true".to_owned());
        metadata["labels"] = json!(labels);
        metadata["annotations"] = json!({ format!("{LABELLED_BY}{uid}"): name });
        if change.is_costly {
            metadata["annotations"][DELETION_COST] = json!(COST);
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
}
