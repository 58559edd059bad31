//! An ensemble under test.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};

use crate::wait::until;
use crate::world::World;

/// How long an ensemble may take to start or to carry out one change.
const PATIENCE: Duration = Duration::from_secs(300);

/// A handle; the object itself lives in the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Ensemble<'w> {
    world: &'w World,
    name: &'w str,
}

impl<'w> Ensemble<'w> {
    /// The object.
    pub fn manifest(name: &str, spec: Value) -> Value {
        json!({
            "apiVersion": "zookeeper.bellwether.dev/v1alpha1",
            "kind": "ZooKeeperEnsemble",
            "metadata": { "name": name },
            "spec": spec,
        })
    }

    /// A spec for a small machine: little memory, short log files, quick to notice a lost session.
    pub fn small(size: u16) -> Value {
        json!({
            "replicas": size,
            "jvm": { "heap": "96Mi", "additionalOptions": ["-XX:TieredStopAtLevel=1"] },
            "storage": { "size": "256Mi", "reclaimPolicy": "Delete" },
            "config": { "tickTime": 1000, "preAllocSize": 1024 },
            // A server that speaks TLS takes three times as much of the processor to start.
            "tls": { "servers": "Disabled", "clients": "Disabled" },
            // The API server writes these as 20m and 128Mi.
            "pod": { "resources": { "requests": { "cpu": "0.02", "memory": "131072Ki" } } },
        })
    }

    /// The ensemble of that name.
    pub(crate) fn new(world: &'w World, name: &'static str) -> Self {
        Self { world, name }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.name
    }

    /// The object as last seen.
    pub fn object(&self) -> Result<Value, String> {
        self.world
            .ensembles
            .get(self.name)
            .ok_or_else(|| "the ensemble is not there".to_owned())
    }

    /// The status, if it speaks of the present spec.
    pub fn status(&self) -> Result<Value, String> {
        let mut object = self.object()?;
        let generation = object["metadata"]["generation"].clone();
        let status = object["status"].take();
        if status["observedGeneration"] != generation {
            return Err(format!(
                "the status is of generation {}, the spec of {generation}",
                status["observedGeneration"]
            ));
        }
        Ok(status)
    }

    /// A condition of the present status: its status, reason and message.
    pub fn condition(&self, type_: &str) -> Result<(String, String, String), String> {
        let status = self.status()?;
        let text = |c: &Value, key: &str| c[key].as_str().unwrap_or_default().to_owned();
        status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|c| c["type"] == type_)
            .map(|c| (text(c, "status"), text(c, "reason"), text(c, "message")))
            .ok_or_else(|| format!("there is no condition {type_}"))
    }

    /// Whether every one of `size` members serves under the present spec.
    pub fn is_ready(&self, size: u16) -> Result<(), String> {
        let status = self.status()?;
        let (ready, reason, message) = self.condition("Ready")?;
        let observers = status["observers"]["replicas"].as_u64().unwrap_or(0);
        let members = status["members"].as_array().map_or(0, |m| m.len() as u64) - observers;
        let good = ready == "True"
            && status["phase"] == "Ready"
            && status["replicas"] == size
            && status["readyReplicas"] == size
            && members == u64::from(size);
        if good {
            return Ok(());
        }
        Err(format!(
            "Ready={ready} ({reason}: {message}), phase {}, {} of {} members ready: {}",
            status["phase"], status["readyReplicas"], status["replicas"], status["message"]
        ))
    }

    /// Waits until the change is carried out.
    pub fn wait_ready(&self, size: u16) -> Result<()> {
        until(
            &format!("ensemble {} is ready with {size} members", self.name),
            PATIENCE,
            || self.is_ready(size),
        )
    }

    /// Waits until the status names a leader, and returns its pod.
    pub fn wait_leader(&self) -> Result<String> {
        until("the status names a leader", PATIENCE, || {
            let status = self.status()?;
            let leader = status["leader"].as_str().map(str::to_owned);
            leader.ok_or_else(|| format!("phase {}: {}", status["phase"], status["message"]))
        })
    }

    /// `kubectl scale`.
    pub fn scale(&self, size: u16) -> Result<()> {
        let (target, replicas) = (format!("zke/{}", self.name), format!("--replicas={size}"));
        self.world.run(&["scale", &target, &replicas])?;
        self.wait_seen()
    }

    /// `kubectl patch`, as a merge patch of the spec.
    pub fn patch(&self, spec: &Value) -> Result<()> {
        self.try_patch(spec)?
            .map_err(|e| anyhow!("the patch was refused: {e}"))?;
        self.wait_seen()
    }

    /// Waits until the watch has seen the present spec: until then its object still looks as if
    /// everything were done.
    fn wait_seen(&self) -> Result<()> {
        let target = format!("zke/{}", self.name);
        let generation = ["get", &target, "-o", "jsonpath={.metadata.generation}"];
        let generation: i64 = self.world.run(&generation)?.trim().parse()?;
        until("the watch has seen the new spec", PATIENCE, || {
            let seen = self.object()?["metadata"]["generation"].as_i64();
            if seen >= Some(generation) {
                Ok(())
            } else {
                Err(format!("{seen:?} of {generation}"))
            }
        })
    }

    /// `kubectl patch` that may be refused: the inner error is what the user reads.
    pub fn try_patch(&self, spec: &Value) -> Result<Result<(), String>> {
        let patch = json!({ "spec": spec }).to_string();
        let target = format!("zke/{}", self.name);
        let ns = self.world.namespace.as_str();
        let arguments = ["-n", ns, "patch", &target, "--type=merge", "-p", &patch];
        let output = self.world.kubectl.output(&arguments)?;
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(if output.status.success() {
            Ok(())
        } else {
            Err(message)
        })
    }

    /// The pod with this ordinal.
    pub fn pod(&self, ordinal: u16) -> String {
        format!("{}-{ordinal}", self.name)
    }

    /// The uid of each member's pod, by name.
    pub fn uids(&self) -> BTreeMap<String, String> {
        let text =
            |pod: &Value, key: &str| pod["metadata"][key].as_str().unwrap_or_default().to_owned();
        self.world
            .pods
            .all()
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["app.kubernetes.io/instance"] == self.name)
            .map(|pod| (text(pod, "name"), text(pod, "uid")))
            .collect()
    }

    /// Host and port of the first `size` members, with commas, as clients take them.
    pub fn members(&self, size: u16) -> String {
        let host = |ordinal| {
            format!(
                "{name}-{ordinal}.{name}-members.{ns}.svc.cluster.local:2181",
                name = self.name,
                ns = self.world.namespace
            )
        };
        (0..size).map(host).collect::<Vec<_>>().join(",")
    }

    /// Host and port of the first `count` observers, with commas.
    pub fn observers(&self, count: u16) -> String {
        let host = |ordinal| {
            format!(
                "{name}-observer-{ordinal}.{name}-members.{ns}.svc.cluster.local:2181",
                name = self.name,
                ns = self.world.namespace
            )
        };
        (0..count).map(host).collect::<Vec<_>>().join(",")
    }

    /// Waits until so many observers are wanted and serve, and everything else is ready too.
    pub fn wait_observers(&self, size: u16, observers: u16) -> Result<()> {
        let wanted = format!("{observers}/{observers}");
        until(
            &format!("{observers} observers of {} serve", self.name),
            PATIENCE,
            || {
                self.is_ready(size)?;
                let status = self.status()?;
                let ready = status["observers"]["ready"].as_str().unwrap_or("0/0");
                if ready == wanted {
                    Ok(())
                } else {
                    Err(format!("{ready} serve: {}", status["message"]))
                }
            },
        )
    }

    /// Host and port of the Service for clients.
    pub fn service(&self) -> String {
        format!(
            "{}.{}.svc.cluster.local:2181",
            self.name, self.world.namespace
        )
    }

    /// Deletes a member's pod as a user would, and waits until another takes its place.
    pub fn delete_pod(&self, pod: &str) -> Result<()> {
        let uid = self
            .uids()
            .remove(pod)
            .ok_or_else(|| anyhow!("there is no pod {pod}"))?;
        self.world.take_away(&["pod", pod])?;
        self.world.wait_replaced(pod, &uid)
    }
}
