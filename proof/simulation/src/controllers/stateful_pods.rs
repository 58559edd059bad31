//! The pods and claims of a StatefulSet.

use std::sync::Arc;

use bellwether_api_server::{Cache, Kind, Object, Refusal, Store};
use serde_json::{Map, Value, json};

use super::events::record;
use super::stateful_sets::{ACTOR, owner_reference};

/// Why a pod is not as it should be.
pub(super) struct Failure(pub(super) String);

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.message.clone())
    }
}

/// The ordinal of a pod of a set, by its name.
pub(super) fn ordinal(set: &Object, pod: &str) -> Option<i64> {
    let rest = pod.strip_prefix(set.name())?.strip_prefix('-')?;
    let digits = !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    rest.parse().ok().filter(|_| digits)
}

/// The ordinals that a set has pods of.
pub(super) fn ordinals(set: &Object) -> std::ops::Range<i64> {
    let start = set["spec"]["ordinals"]["start"].as_i64().unwrap_or(0);
    start..start + set["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// The claim templates of a set, with the names of a pod's claims.
fn claims(set: &Object, ordinal: i64) -> Vec<(&Value, String)> {
    let templates = set["spec"]["volumeClaimTemplates"].as_array();
    let name = |template: &Value| {
        let template = template["metadata"]["name"].as_str().unwrap_or_default();
        format!("{template}-{}-{ordinal}", set.name())
    };
    let templates = templates.into_iter().flatten();
    templates
        .map(|template| (template, name(template)))
        .collect()
}

/// The pod of an ordinal, of the set's template.
fn new_pod(set: &Object, revision: &str, ordinal: i64) -> Value {
    let template = &set["spec"]["template"];
    let name = format!("{}-{ordinal}", set.name());
    let mut metadata = Map::new();
    for key in ["labels", "annotations", "finalizers"] {
        let value = &template["metadata"][key];
        if !value.is_null() {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    let mut metadata = Value::Object(metadata);
    let labels = &mut metadata["labels"];
    labels["controller-revision-hash"] = revision.into();
    labels["statefulset.kubernetes.io/pod-name"] = name.as_str().into();
    labels["apps.kubernetes.io/pod-index"] = ordinal.to_string().into();
    metadata["generateName"] = format!("{}-", set.name()).into();
    metadata["name"] = name.as_str().into();
    metadata["namespace"] = set.namespace().into();
    metadata["ownerReferences"] = json!([owner_reference(set)]);
    let mut spec = template["spec"].clone();
    spec["hostname"] = name.into();
    spec["subdomain"] = set["spec"]["serviceName"].clone();
    let mut volumes = Vec::new();
    let claims = claims(set, ordinal);
    for (template, claim) in &claims {
        volumes.push(json!({
            "name": template["metadata"]["name"],
            "persistentVolumeClaim": { "claimName": claim },
        }));
    }
    let others = spec["volumes"].as_array().into_iter().flatten();
    let replaced = |volume: &Value| {
        claims
            .iter()
            .any(|(t, _)| t["metadata"]["name"] == volume["name"])
    };
    volumes.extend(others.filter(|volume| !replaced(volume)).cloned());
    spec["volumes"] = volumes.into();
    json!({ "metadata": metadata, "spec": spec })
}

fn told(store: &mut Store, set: &Object, verb: &str, pod: &str, result: &Result<(), Failure>) {
    let mut title = verb.to_owned();
    title[..1].make_ascii_uppercase();
    let set_name = set.name();
    match result {
        Ok(()) => {
            let message = format!("{verb} Pod {pod} in StatefulSet {set_name} successful");
            record(
                store,
                (ACTOR, set),
                false,
                &format!("Successful{title}"),
                &message,
            );
        }
        Err(Failure(why)) => {
            let message = format!("{verb} Pod {pod} in StatefulSet {set_name} failed error: {why}");
            record(
                store,
                (ACTOR, set),
                true,
                &format!("Failed{title}"),
                &message,
            );
        }
    }
}

/// Makes the claims and the pod of an ordinal.
pub(super) fn create(
    store: &mut Store,
    cache: &mut Cache,
    set: &Object,
    revision: &str,
    ordinal: i64,
) -> Result<(), Failure> {
    let pod = new_pod(set, revision, ordinal);
    let name = format!("{}-{ordinal}", set.name());
    if let Err(failure) = create_claims(store, cache, set, ordinal) {
        let result = Err(failure);
        told(store, set, "create", &name, &result);
        return result;
    }
    match store.create(ACTOR, Kind::POD, pod) {
        Err(refusal) if refusal.is_already_exists() => Err(refusal.into()),
        result => {
            let result = result.map(|_| ()).map_err(Failure::from);
            told(store, set, "create", &name, &result);
            result
        }
    }
}

/// Deletes a pod.
pub(super) fn delete(store: &mut Store, set: &Object, pod: &Object) -> Result<(), Failure> {
    let at = (pod.namespace(), pod.name());
    let result = store.delete(ACTOR, Kind::POD, at, &Default::default());
    let result = result.map(|_| ()).map_err(Failure::from);
    told(store, set, "delete", pod.name(), &result);
    result
}

/// Makes the claims of an ordinal that are not there.
pub(super) fn create_claims(
    store: &mut Store,
    cache: &mut Cache,
    set: &Object,
    ordinal: i64,
) -> Result<(), Failure> {
    let pod = format!("{}-{ordinal}", set.name());
    let mut failures = Vec::new();
    for (template, name) in claims(set, ordinal) {
        let known = cache.get(store, Kind::CLAIM, (set.namespace(), &name));
        match known {
            Some(claim) if claim.is_terminating() => {
                failures.push(format!("pvc {name} is being deleted"));
            }
            Some(_) => {}
            None => {
                let claim = new_claim(set, template, &name);
                match store.create(ACTOR, Kind::CLAIM, claim) {
                    Ok(_) => {
                        let message = format!(
                            "create Claim {name} Pod {pod} in StatefulSet {} success",
                            set.name()
                        );
                        record(store, (ACTOR, set), false, "SuccessfulCreate", &message);
                    }
                    Err(refusal) => {
                        let why = &refusal.message;
                        if !refusal.is_already_exists() {
                            let message = format!(
                                "create Claim {name} for Pod {pod} in StatefulSet {} failed error: {why}",
                                set.name()
                            );
                            record(store, (ACTOR, set), true, "FailedCreate", &message);
                        }
                        failures.push(format!("failed to create PVC {name}: {why}"));
                    }
                }
            }
        }
    }
    match failures.as_slice() {
        [] => {}
        [one] => return Err(Failure(one.clone())),
        many => return Err(Failure(format!("[{}]", many.join(", ")))),
    }
    let pod = cache.get(store, Kind::POD, (set.namespace(), &pod));
    own_claims(store, set, ordinal, pod.as_ref());
    Ok(())
}

fn new_claim(set: &Object, template: &Value, name: &str) -> Value {
    let mut labels = template["metadata"]["labels"].clone();
    let matched = set["spec"]["selector"]["matchLabels"].as_object();
    for (key, value) in matched.into_iter().flatten() {
        labels[key] = value.clone();
    }
    let mut metadata = json!({ "name": name, "namespace": set.namespace(), "labels": labels });
    if !template["metadata"]["annotations"].is_null() {
        metadata["annotations"] = template["metadata"]["annotations"].clone();
    }
    json!({ "metadata": metadata, "spec": template["spec"] })
}

/// Whether a claim waits for its owner, an earlier pod of the same name, to be forgotten.
pub(super) fn claim_is_stale(store: &Store, cache: &mut Cache, set: &Object, ordinal: i64) -> bool {
    if set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] != "Delete" {
        return false;
    }
    let pod = format!("{}-{ordinal}", set.name());
    claims(set, ordinal).iter().any(|(_, name)| {
        let claim = cache.get(store, Kind::CLAIM, (set.namespace(), name));
        let owned = |owner: &Value| owner["kind"] == "Pod" && owner["name"] == pod;
        claim.is_some_and(|claim| claim.owners().iter().any(owned))
    })
}

/// Gives the claims of an ordinal the owners that the set's retention policy asks for.
pub(super) fn own_claims(store: &mut Store, set: &Object, ordinal: i64, pod: Option<&Arc<Object>>) {
    let policy = &set["spec"]["persistentVolumeClaimRetentionPolicy"];
    let deletes = |when: &str| policy[when] == "Delete";
    let condemned = !ordinals(set).contains(&ordinal);
    for (_, name) in claims(set, ordinal) {
        let Some(claim) = store.get(Kind::CLAIM, set.namespace(), &name).cloned() else {
            continue;
        };
        let other = |owner: &&Value| {
            owner["uid"] != set.uid() && pod.is_none_or(|pod| owner["uid"] != pod.uid())
        };
        let mut owners: Vec<Value> = claim.owners().iter().filter(other).cloned().collect();
        // A claim with another controller is left alone.
        if owners.iter().any(|owner| owner["controller"] == true) {
            continue;
        }
        if deletes("whenScaled") && condemned {
            owners.extend(pod.map(|pod| owner_reference(pod)));
        } else if deletes("whenDeleted") {
            owners.push(owner_reference(set));
        }
        if owners.as_slice() == claim.owners() {
            continue;
        }
        let _ = store.update(ACTOR, Kind::CLAIM, (set.namespace(), &name), |claim| {
            claim["metadata"]["ownerReferences"] = owners.into();
        });
    }
}
