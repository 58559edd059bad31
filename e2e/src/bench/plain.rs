//! The StatefulSet without the operator.
//!
//! It is made from what the operator itself rendered: the same images, JVM flags, security
//! properties, probes and `zoo.cfg`. What only the operator has is replaced by what people write: an
//! init container that writes `myid` and copies the files, the image's own `zkServer.sh`, and no
//! `db.autocreate=false`, which needs an operator that knows when a disk may be empty.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::ensemble::Ensemble;
use crate::kubectl::Kubectl;
use crate::wait::until;
use crate::world::World;

/// The name of the StatefulSet, and what its members' names begin with.
pub const NAME: &str = "main";
const PATTERN_NAMESPACE: &str = "bench-pattern";
/// Keys of `zoo.cfg` that only the operator sets.
const OPERATORS_OWN: [&str; 1] = ["db.autocreate"];
const INIT: &str = "set -e; echo $((${POD_NAME##*-} + 1)) >/data/myid; \
                    cp /etc/bellwether/config/* /conf/";

/// What the operator renders, without anything that ties it to the operator.
#[derive(Clone, Debug)]
pub struct Pattern {
    stateful_set: Value,
    services: Vec<Value>,
    files: BTreeMap<String, String>,
    settings: String,
}

/// How the StatefulSet controller takes up a new pod template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Restarts pods by itself, from the highest ordinal.
    RollingUpdate,
    /// Waits until a pod is deleted.
    OnDelete,
}

impl Pattern {
    /// Lets the operator render an ensemble of one, and takes its objects as the pattern.
    pub fn read(kubectl: &Kubectl) -> Result<Self> {
        super::in_namespace(kubectl, PATTERN_NAMESPACE, Self::read_in)
    }

    fn read_in(world: &World) -> Result<Self> {
        world.apply(&Ensemble::manifest(NAME, Ensemble::small(1)))?;
        let get = |what: &str, name: &str| -> Result<Value, String> {
            let arguments = ["-n", PATTERN_NAMESPACE, "get", what, name];
            world.kubectl.json(&arguments).map_err(|e| e.to_string())
        };
        let patience = Duration::from_secs(60);
        let set = until("the operator renders a StatefulSet", patience, || {
            get("statefulset", NAME)
        })?;
        let mut services = Vec::new();
        for name in [NAME, "main-members"] {
            services.push(get("service", name).map_err(anyhow::Error::msg)?);
        }
        let annotations = &set["spec"]["template"]["metadata"]["annotations"];
        let revision = annotations["zookeeper.bellwether.dev/config-revision"]
            .as_str()
            .context("the pod template names no configuration revision")?;
        let map = get("configmap", revision).map_err(anyhow::Error::msg)?;
        Self::of(&set, &services, &map)
    }

    fn of(set: &Value, services: &[Value], map: &Value) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut settings = None;
        for (name, text) in map["data"].as_object().context("an empty ConfigMap")? {
            let text = text.as_str().unwrap_or_default();
            if name == "zoo-1.cfg" {
                settings = Some(settings_of(text));
            } else if !name.starts_with("zoo-") && name != "initialize" {
                files.insert(name.clone(), text.to_owned());
            }
        }
        let services = services.iter().map(|service| {
            let mut spec = service["spec"].clone();
            spec["selector"] = labels();
            if spec["clusterIP"] != "None"
                && let Some(spec) = spec.as_object_mut()
            {
                spec.remove("clusterIP");
            }
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("clusterIPs");
            }
            json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": { "name": service["metadata"]["name"], "labels": labels() },
                "spec": spec,
            })
        });
        Ok(Self {
            stateful_set: plain_set(set)?,
            services: services.collect(),
            files,
            settings: settings.context("the ConfigMap has no zoo-1.cfg")?,
        })
    }

    /// Creates the Services and a StatefulSet of `size` members.
    pub fn create(&self, world: &World, size: u16, strategy: Strategy) -> Result<()> {
        for service in &self.services {
            world.apply(service)?;
        }
        self.apply(world, size, size, strategy)
    }

    /// Applies the configuration of `voters` members and a StatefulSet of `replicas` that uses it.
    pub fn apply(
        &self,
        world: &World,
        voters: u16,
        replicas: u16,
        strategy: Strategy,
    ) -> Result<()> {
        // As charts have it, the ConfigMap keeps its name and a checksum in the template makes pods
        // restart. By hand each list has a ConfigMap of its own: then a member that crashes comes
        // back with the list that it had.
        let config = match strategy {
            Strategy::RollingUpdate => "config".to_owned(),
            Strategy::OnDelete => format!("config-{voters}"),
        };
        let mut files = self.files.clone();
        files.insert("zoo.cfg".to_owned(), self.zoo_cfg(world, voters));
        world.apply(&json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": config, "labels": labels() },
            "data": files,
        }))?;
        let mut set = self.stateful_set.clone();
        let spec = &mut set["spec"];
        spec["replicas"] = json!(replicas);
        spec["updateStrategy"] = match strategy {
            Strategy::RollingUpdate => json!({ "type": "RollingUpdate" }),
            Strategy::OnDelete => json!({ "type": "OnDelete" }),
        };
        let template = &mut spec["template"];
        template["metadata"]["annotations"] = json!({ "bench/voters": voters.to_string() });
        let volumes = template["spec"]["volumes"].as_array_mut();
        for volume in volumes.into_iter().flatten() {
            if volume["name"] == "config" {
                volume["configMap"]["name"] = json!(config);
            }
        }
        world.apply(&set)
    }

    fn zoo_cfg(&self, world: &World, voters: u16) -> String {
        let mut text = self.settings.clone();
        for ordinal in 0..voters {
            text.push_str(&format!(
                "server.{}={NAME}-{ordinal}.{NAME}-members.{}.svc.cluster.local:2888:3888:participant\n",
                ordinal + 1,
                world.namespace,
            ));
        }
        text
    }
}

/// What people's charts label members with. The operator looks for its own label too, and leaves
/// these alone.
fn labels() -> Value {
    json!({ "app.kubernetes.io/name": "zookeeper", "app.kubernetes.io/instance": NAME })
}

/// The lines of a rendered `zoo.cfg` that do not depend on who votes.
fn settings_of(zoo_cfg: &str) -> String {
    let of_the_operator = |line: &&str| {
        let key = line.split('=').next().unwrap_or_default();
        key.starts_with("server.") || OPERATORS_OWN.contains(&key)
    };
    let lines = zoo_cfg.lines().filter(|line| !of_the_operator(line));
    lines.map(|line| format!("{line}\n")).collect()
}

fn plain_set(set: &Value) -> Result<Value> {
    let mut spec = set["spec"].clone();
    spec["selector"]["matchLabels"] = labels();
    spec["persistentVolumeClaimRetentionPolicy"] =
        json!({ "whenDeleted": "Delete", "whenScaled": "Delete" });
    for claim in spec["volumeClaimTemplates"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        claim["metadata"] = json!({ "name": claim["metadata"]["name"] });
        if let Some(claim) = claim.as_object_mut() {
            claim.remove("status");
        }
    }
    let template = &mut spec["template"];
    template["metadata"] = json!({ "labels": labels() });
    let pod = &mut template["spec"];
    let terms =
        &mut pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    for term in terms.as_array_mut().into_iter().flatten() {
        term["podAffinityTerm"]["labelSelector"]["matchLabels"] = labels();
    }
    // A volume of the operator's own: mounts of it go too.
    let drop_bootstrap = |list: &mut Value| {
        if let Some(list) = list.as_array_mut() {
            list.retain(|item| item["name"] != "bootstrap" && item["name"] != "bellwether");
        }
    };
    drop_bootstrap(&mut pod["volumes"]);
    let server = pod["containers"]
        .as_array_mut()
        .and_then(|all| all.iter_mut().find(|c| c["name"] == "zookeeper"))
        .context("the pod template has no container zookeeper")?;
    server["command"] = json!(["zkServer.sh", "start-foreground"]);
    if let Some(server) = server.as_object_mut() {
        server.remove("args");
    }
    drop_bootstrap(&mut server["volumeMounts"]);
    let image = server["image"].clone();
    let init = &mut pod["initContainers"][0];
    init["image"] = image;
    init["command"] = json!(["sh", "-c", INIT]);
    drop_bootstrap(&mut init["volumeMounts"]);
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": NAME, "labels": labels() },
        "spec": spec,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_operator_stays_in_the_plain_stateful_set() {
        let set = json!({
            "metadata": { "name": "main", "ownerReferences": [{ "kind": "ZooKeeperEnsemble" }] },
            "spec": {
                "selector": { "matchLabels": { "app.kubernetes.io/managed-by": "bellwether" } },
                "template": {
                    "metadata": { "annotations": { "zookeeper.bellwether.dev/voters": "1" } },
                    "spec": {
                        "initContainers": [{ "name": "prepare", "image": "operator", "volumeMounts": [{ "name": "bootstrap" }] }],
                        "containers": [{ "name": "zookeeper", "image": "zookeeper:3.9.5", "command": ["other"] }],
                        "volumes": [{ "name": "bootstrap" }, { "name": "config" }],
                    },
                },
            },
        });
        let map = json!({ "data": {
            "zoo-1.cfg": "tickTime=1000\ndb.autocreate=false\nserver.1=a:2888:3888:participant\n",
            "zoo-2.cfg": "x=y\n",
            "security.properties": "networkaddress.cache.ttl=1\n",
        }});
        let pattern = Pattern::of(&set, &[], &map).unwrap();
        assert_eq!(pattern.settings, "tickTime=1000\n");
        assert_eq!(
            pattern.files.keys().collect::<Vec<_>>(),
            ["security.properties"]
        );
        let text = pattern.stateful_set.to_string();
        for word in ["bellwether.dev", "managed-by", "bootstrap\"", "operator\""] {
            assert!(!text.contains(word), "{word} in {text}");
        }
        assert!(text.contains(r#"["zkServer.sh","start-foreground"]"#));
    }
}
