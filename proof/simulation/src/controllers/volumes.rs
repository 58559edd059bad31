//! What binds claims to volumes, grows them, and keeps those that are in use.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api_server::{Delete, Kind, Object, Store, time_stamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::earlier;

const BINDER: &str = "persistentvolume-binder";
const PROTECTOR: &str = "pvc-protection-controller";
const RESIZER: &str = "external-resizer";
const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// What binds, grows and protects claims.
#[derive(Debug, Default)]
pub struct Volumes {
    /// How long it takes to make a volume, or to grow one.
    pub takes: Duration,
    /// The claims, by namespace and name, whose volumes cannot be made or grown now.
    pub failing: BTreeSet<(String, String)>,
    seen: Option<[u64; 4]>,
    /// When there is something to do, and for which claim.
    due: Vec<(Instant, String, String)>,
}

impl Volumes {
    /// Does what is due.
    pub fn step(&mut self, store: &mut Store) -> Option<Instant> {
        let kinds = [Kind::CLAIM, Kind::POD, Kind::STORAGE_CLASS, Kind::VOLUME];
        let now = Instant::now();
        let seen = kinds.map(|kind| store.changed(kind));
        let ready = self.due.iter().any(|(at, _, _)| *at <= now);
        if self.seen != Some(seen) || ready {
            let claims: Vec<Arc<Object>> = store.list(Kind::CLAIM, None).cloned().collect();
            self.due.retain(|(_, namespace, name)| {
                let here = |c: &Arc<Object>| c.namespace() == namespace && c.name() == name;
                claims.iter().any(here)
            });
            for claim in &claims {
                self.look_at(store, claim, now);
            }
            release(store);
            // What this step did is looked at again.
            self.seen = Some(seen);
        }
        let due = self.due.iter().map(|(at, _, _)| *at).min();
        earlier(due, None)
    }

    fn look_at(&mut self, store: &mut Store, claim: &Object, now: Instant) {
        let at = (claim.namespace(), claim.name());
        if claim.is_terminating() {
            if claim.finalizers().any(|f| f == PROTECTION) && !in_use(store, claim) {
                let _ = store.update(PROTECTOR, Kind::CLAIM, at, |claim| {
                    if let Some(finalizers) = claim["metadata"]["finalizers"].as_array_mut() {
                        finalizers.retain(|f| f != PROTECTION);
                    }
                });
            }
            return;
        }
        let bound = claim["status"]["phase"] == "Bound";
        let wanted = &claim["spec"]["resources"]["requests"]["storage"];
        let grows = bound && *wanted != claim["status"]["capacity"]["storage"];
        let binds = !bound && may_bind(store, claim);
        if !grows && !binds {
            return;
        }
        let failing = (claim.namespace().to_owned(), claim.name().to_owned());
        if self.failing.contains(&failing) {
            return;
        }
        let here = |(_, namespace, name): &(Instant, String, String)| {
            namespace == claim.namespace() && name == claim.name()
        };
        let ready = match self.due.iter().position(here) {
            Some(index) if self.due[index].0 > now => return,
            Some(index) => {
                self.due.swap_remove(index);
                true
            }
            None => self.takes.is_zero(),
        };
        if !ready {
            let (namespace, name) = failing;
            self.due.push((now + self.takes, namespace, name));
            if grows {
                resizing(store, claim);
            }
            return;
        }
        if grows {
            grow(store, claim);
        } else {
            bind(store, claim);
        }
    }
}

fn in_use(store: &Store, claim: &Object) -> bool {
    let uses = |volume: &Value| volume["persistentVolumeClaim"]["claimName"] == claim.name();
    let mut pods = store.list(Kind::POD, Some(claim.namespace()));
    pods.any(|pod| {
        let volumes = pod["spec"]["volumes"].as_array();
        let placed = pod["spec"]["nodeName"]
            .as_str()
            .is_some_and(|node| !node.is_empty());
        placed && volumes.into_iter().flatten().any(uses)
    })
}

fn class<'s>(store: &'s Store, claim: &Object) -> Option<&'s Arc<Object>> {
    let name = claim["spec"]["storageClassName"].as_str();
    let default = |class: &&Arc<Object>| {
        let annotations = &class["metadata"]["annotations"];
        annotations["storageclass.kubernetes.io/is-default-class"] == "true"
    };
    match name {
        Some(name) => store.get(Kind::STORAGE_CLASS, "", name),
        None => store.list(Kind::STORAGE_CLASS, None).find(default),
    }
}

/// Whether a volume is made for a claim now. Where no class is known at all, one is made for every claim.
fn may_bind(store: &Store, claim: &Object) -> bool {
    match class(store, claim) {
        None => store.list(Kind::STORAGE_CLASS, None).next().is_none(),
        Some(class) if class["volumeBindingMode"] == "WaitForFirstConsumer" => {
            let uses = |v: &Value| v["persistentVolumeClaim"]["claimName"] == claim.name();
            let mut pods = store.list(Kind::POD, Some(claim.namespace()));
            pods.any(|pod| {
                let volumes = pod["spec"]["volumes"].as_array();
                volumes.into_iter().flatten().any(uses)
            })
        }
        Some(_) => true,
    }
}

fn bind(store: &mut Store, claim: &Object) {
    let at = (claim.namespace(), claim.name());
    let storage = claim["spec"]["resources"]["requests"]["storage"].clone();
    let class = class(store, claim).cloned();
    let policy = class.as_ref().map(|class| class["reclaimPolicy"].clone());
    let policy = policy.filter(|p| !p.is_null()).unwrap_or("Delete".into());
    let name = format!("pvc-{}", claim.uid());
    let volume = json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": { "storage": storage },
            "accessModes": claim["spec"]["accessModes"],
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": claim.namespace(),
                "name": claim.name(),
                "uid": claim.uid(),
            },
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": claim["spec"]["storageClassName"],
        },
    });
    if store.create(BINDER, Kind::VOLUME, volume).is_err() {
        return;
    }
    let bound = |status: &mut Value| *status = json!({ "phase": "Bound" });
    let _ = store.update_status(BINDER, Kind::VOLUME, ("", &name), bound);
    let uid = claim.uid().to_owned();
    let written = store.update(BINDER, Kind::CLAIM, at, |claim| {
        claim["metadata"]["uid"] = uid.into();
        claim["spec"]["volumeName"] = name.as_str().into();
    });
    if written.is_err() {
        return;
    }
    let _ = store.update_status(BINDER, Kind::CLAIM, at, |status| {
        *status = json!({
            "phase": "Bound",
            "accessModes": claim["spec"]["accessModes"],
            "capacity": { "storage": storage },
        });
    });
}

fn resizing(store: &mut Store, claim: &Object) {
    let at = (claim.namespace(), claim.name());
    let _ = store.update_status(RESIZER, Kind::CLAIM, at, |status| {
        status["conditions"] = json!([{
            "type": "Resizing",
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": time_stamp(0),
        }]);
    });
}

fn grow(store: &mut Store, claim: &Object) {
    let at = (claim.namespace(), claim.name());
    let storage = claim["spec"]["resources"]["requests"]["storage"].clone();
    let volume = claim["spec"]["volumeName"].as_str().unwrap_or_default();
    let _ = store.update(RESIZER, Kind::VOLUME, ("", volume), |volume| {
        volume["spec"]["capacity"]["storage"] = storage.clone();
    });
    let _ = store.update_status(RESIZER, Kind::CLAIM, at, |status| {
        status["capacity"]["storage"] = storage;
        if let Some(status) = status.as_object_mut() {
            status.remove("conditions");
        }
    });
}

/// Volumes whose claims are gone go too, or stay without a claim.
fn release(store: &mut Store) {
    let volumes: Vec<Arc<Object>> = store.list(Kind::VOLUME, None).cloned().collect();
    for volume in volumes {
        let reference = &volume["spec"]["claimRef"];
        let text = |key: &str| reference[key].as_str().unwrap_or_default();
        let claim = store.get(Kind::CLAIM, text("namespace"), text("name"));
        if reference.is_null() || claim.is_some_and(|claim| claim.uid() == text("uid")) {
            continue;
        }
        let at = ("", volume.name());
        if volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete" {
            let _ = store.delete(BINDER, Kind::VOLUME, at, &Delete::exactly(volume.uid()));
        } else if volume["status"]["phase"] != "Released" {
            let _ = store.update_status(BINDER, Kind::VOLUME, at, |status| {
                status["phase"] = "Released".into();
            });
        }
    }
}
