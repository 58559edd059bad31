//! The controllers of Kubernetes that an ensemble depends on: StatefulSets, volumes, and the garbage collector.

use std::sync::Arc;

use bellwether_ensemble::desired::short_hash;
use serde_json::{Value, json};

use crate::api_server::{Delete, Kind, Object, Store};

/// Who writes what the StatefulSet controller writes.
const SETS: &str = "statefulset-controller";
/// Who writes what the garbage collector writes.
const GARBAGE: &str = "garbage-collector";
/// Who binds claims.
const VOLUMES: &str = "volume-controller";
/// The finalizer of a claim that a pod uses.
const PROTECTED: &str = "kubernetes.io/pvc-protection";

/// The controllers.
#[derive(Debug)]
pub struct Controllers {
    rng: fastrand::Rng,
    /// The revision at which nothing was left to do.
    quiet: u64,
}

fn target(object: &Object) -> (String, String) {
    (object.namespace().to_owned(), object.name().to_owned())
}

fn all(store: &Store, kind: Kind) -> Vec<Arc<Object>> {
    store.list(kind, None).cloned().collect()
}

impl Controllers {
    /// Controllers whose delays come from the seed.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            quiet: 0,
        }
    }

    /// Does what is due.
    pub fn step(&mut self, store: &mut Store) {
        if store.revision() == self.quiet || self.rng.u8(0..3) == 0 {
            return;
        }
        let before = store.revision();
        for set in all(store, Kind::STATEFUL_SET) {
            reconcile_set(store, &set);
        }
        bind_claims(store);
        collect_garbage(store);
        if store.revision() == before {
            self.quiet = before;
        }
    }
}

fn reference(set: &Object) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set.name(), "uid": set.uid(),
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn reconcile_set(store: &mut Store, set: &Arc<Object>) {
    if set.is_terminating() {
        return;
    }
    let (namespace, name) = target(set);
    let template = &set["spec"]["template"];
    let revision = format!("{name}-{}", short_hash(template));
    let selector = &set["spec"]["selector"]["matchLabels"];
    let selected = |pod: &Object| {
        let labels = selector.as_object().into_iter().flatten();
        labels
            .into_iter()
            .all(|(key, value)| pod.label(key) == value.as_str())
    };
    let ordinal = |pod: &Object| -> Option<u64> {
        pod.name()
            .strip_prefix(&name)?
            .strip_prefix('-')?
            .parse()
            .ok()
    };
    // Pods without a controller that match are adopted.
    for pod in all(store, Kind::POD) {
        let free = pod.controller().is_none() && !pod.is_terminating();
        if pod.namespace() == namespace && ordinal(&pod).is_some() && selected(&pod) && free {
            let _ = store.update(SETS, Kind::POD, (&namespace, pod.name()), |pod| {
                pod["metadata"]["ownerReferences"] = json!([reference(set)]);
            });
        }
    }
    let own = |store: &Store| -> Vec<Arc<Object>> {
        let all = store.list(Kind::POD, Some(&namespace));
        let owned = all.filter(|p| p.controller().is_some_and(|c| c["uid"] == set.uid()));
        owned.cloned().collect()
    };
    let replicas = set["spec"]["replicas"].as_u64().unwrap_or(1);
    let pods = own(store);
    for missing in (0..replicas).filter(|o| pods.iter().all(|p| ordinal(p) != Some(*o))) {
        create_pod(store, set, missing, &revision);
    }
    for pod in pods
        .iter()
        .filter(|p| ordinal(p).is_none_or(|o| o >= replicas))
    {
        if !pod.is_terminating() {
            let _ = store.delete(
                SETS,
                Kind::POD,
                (&namespace, pod.name()),
                &Delete::exactly(pod.uid()),
            );
        }
    }
    let pods = own(store);
    let ready = pods.iter().filter(|p| is_ready(p)).count();
    let updated = pods
        .iter()
        .filter(|p| p.label("controller-revision-hash") == Some(&revision))
        .count();
    let status = json!({
        "observedGeneration": set["metadata"]["generation"],
        "replicas": pods.len(), "readyReplicas": ready, "availableReplicas": ready,
        "updatedReplicas": updated, "updateRevision": revision,
        "currentRevision": set["status"]["currentRevision"].as_str().unwrap_or(&revision),
    });
    if set["status"] != status {
        let _ = store.update_status(SETS, Kind::STATEFUL_SET, (&namespace, &name), |s| {
            *s = status
        });
    }
}

fn is_ready(pod: &Object) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn create_pod(store: &mut Store, set: &Arc<Object>, ordinal: u64, revision: &str) {
    let (namespace, name) = target(set);
    let pod_name = format!("{name}-{ordinal}");
    if store.get(Kind::POD, &namespace, &pod_name).is_some() {
        return;
    }
    let mut pod = set["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    for template in set["spec"]["volumeClaimTemplates"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let volume = template["metadata"]["name"].as_str().unwrap_or_default();
        let claim_name = format!("{volume}-{pod_name}");
        if store.get(Kind::CLAIM, &namespace, &claim_name).is_none() {
            let mut claim = template.clone();
            claim["apiVersion"] = json!("v1");
            claim["kind"] = json!("PersistentVolumeClaim");
            claim["metadata"]["name"] = json!(claim_name);
            claim["metadata"]["namespace"] = json!(namespace);
            claim["metadata"]["finalizers"] = json!([PROTECTED]);
            let labels = set["spec"]["selector"]["matchLabels"]
                .as_object()
                .into_iter()
                .flatten();
            for (key, value) in labels {
                claim["metadata"]["labels"][key] = value.clone();
            }
            if store.create(SETS, Kind::CLAIM, claim).is_err() {
                return;
            }
        }
        let volumes = pod["spec"]["volumes"].as_array_mut();
        if let Some(volumes) = volumes {
            volumes.push(
                json!({ "name": volume, "persistentVolumeClaim": { "claimName": claim_name } }),
            );
        }
    }
    let metadata = &mut pod["metadata"];
    metadata["name"] = json!(pod_name);
    metadata["namespace"] = json!(namespace);
    metadata["labels"]["controller-revision-hash"] = json!(revision);
    metadata["labels"]["statefulset.kubernetes.io/pod-name"] = json!(pod_name);
    metadata["ownerReferences"] = json!([reference(set)]);
    pod["status"] = json!({ "phase": "Pending" });
    let created = store.create(SETS, Kind::POD, pod);
    let outcome = match &created {
        Ok(_) => format!("create Pod {pod_name} in StatefulSet {name} successful"),
        Err(refusal) => {
            format!("create Pod {pod_name} in StatefulSet {name} failed error: {refusal}")
        }
    };
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {
            "name": format!("{name}.{}", store.revision()), "namespace": namespace,
        },
        "involvedObject": { "kind": "StatefulSet", "name": name, "namespace": namespace },
        "message": outcome, "lastTimestamp": jiff::Timestamp::now().to_string(),
    });
    let _ = store.create(SETS, Kind::EVENT, event);
}

fn bind_claims(store: &mut Store) {
    let pods = all(store, Kind::POD);
    for claim in all(store, Kind::CLAIM) {
        let (namespace, name) = target(&claim);
        let uses = |pod: &Arc<Object>| {
            let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
            volumes
                .into_iter()
                .any(|v| v["persistentVolumeClaim"]["claimName"] == claim.name())
        };
        if claim.is_terminating() && !pods.iter().any(uses) {
            let _ = store.update(VOLUMES, Kind::CLAIM, (&namespace, &name), |claim| {
                claim["metadata"]["finalizers"] = json!([]);
            });
            continue;
        }
        let asked = &claim["spec"]["resources"]["requests"]["storage"];
        if claim["status"]["phase"] != "Bound" || claim["status"]["capacity"]["storage"] != *asked {
            let status = json!({ "phase": "Bound", "capacity": { "storage": asked } });
            let _ = store.update_status(VOLUMES, Kind::CLAIM, (&namespace, &name), |s| *s = status);
        }
    }
}

fn collect_garbage(store: &mut Store) {
    for kind in Kind::all().filter(|k| *k != Kind::EVENT && *k != Kind::LEASE) {
        for object in all(store, kind) {
            let finalizer = |name: &str| object.finalizers().any(|f| f == name);
            if object.is_terminating() && finalizer("orphan") {
                orphan(store, &object);
                let _ = store.update(GARBAGE, kind, (object.namespace(), object.name()), |o| {
                    o["metadata"]["finalizers"] = json!([]);
                });
                continue;
            }
            if object.is_terminating() && finalizer("foregroundDeletion") {
                continue;
            }
            let owners = object.owners();
            let exists = |owner: &Value| {
                let word = |key: &str| owner[key].as_str().unwrap_or_default();
                let Some(kind) = Kind::named(word("apiVersion"), word("kind")) else {
                    return true;
                };
                let owner = store.get(kind, object.namespace(), word("name"));
                owner.is_some_and(|o| o.uid() == word("uid"))
            };
            let garbage = !owners.is_empty() && !owners.iter().any(exists);
            if garbage && !object.is_terminating() {
                let target = (object.namespace(), object.name());
                let _ = store.delete(GARBAGE, kind, target, &Delete::exactly(object.uid()));
            }
        }
    }
}

/// Takes the owner out of its dependents.
fn orphan(store: &mut Store, owner: &Object) {
    for kind in Kind::all() {
        for object in all(store, kind) {
            if object.owners().iter().any(|o| o["uid"] == owner.uid()) {
                let _ = store.update(GARBAGE, kind, (object.namespace(), object.name()), |o| {
                    if let Some(owners) = o["metadata"]["ownerReferences"].as_array_mut() {
                        owners.retain(|o| o["uid"] != owner.uid());
                    }
                });
            }
        }
    }
}
