//! The namespace of one test.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};
use bellwether_api::{LeaderElection, ZooKeeperEnsemble};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::clients::{CLIENTS, Clients};
use crate::election::Election;
use crate::ensemble::Ensemble;
use crate::kubectl::Kubectl;
use crate::process;
use crate::wait::until;
use crate::watch::Watch;

/// The namespace that the operator is installed in.
pub const OPERATOR_NAMESPACE: &str = "bellwether-system";

/// A namespace of its own, with the restricted pod security standard enforced.
#[derive(Debug)]
pub struct World {
    /// How to reach the cluster.
    pub kubectl: Kubectl,
    /// The namespace.
    pub namespace: String,
    /// The pods in it.
    pub pods: Watch,
    /// The ensembles in it.
    pub ensembles: Watch,
    /// The elections in it.
    pub elections: Watch,
    /// Held while an object is applied.
    applying: Mutex<()>,
    reconfigures: AtomicBool,
}

impl World {
    /// Creates the namespace of the test with this name.
    pub fn create(kubectl: &Kubectl, test: &str) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let short: String = test
            .rsplit("::")
            .next()
            .unwrap_or(test)
            .chars()
            .map(|c| if c == '_' { '-' } else { c })
            .take(32)
            .collect();
        let namespace = format!(
            "e2e-{}-{:x}{number:x}",
            short.trim_end_matches('-'),
            std::process::id()
        );
        Self::named(kubectl, &namespace)
    }

    /// Creates a namespace of this name.
    pub fn named(kubectl: &Kubectl, namespace: &str) -> Result<Self> {
        kubectl.apply(&json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace,
                "labels": {
                    "bellwether.dev/e2e": "true",
                    "pod-security.kubernetes.io/enforce": "restricted",
                },
            },
        }))?;
        Ok(Self {
            pods: Watch::start::<Pod>(namespace)?,
            ensembles: Watch::start::<ZooKeeperEnsemble>(namespace)?,
            elections: Watch::start::<LeaderElection>(namespace)?,
            kubectl: kubectl.clone(),
            namespace: namespace.to_owned(),
            applying: Mutex::new(()),
            reconfigures: AtomicBool::new(false),
        })
    }

    /// From now on, the ensembles created here change their members at run time.
    pub fn at_run_time(&self) -> &Self {
        self.reconfigures.store(true, Ordering::Relaxed);
        self
    }

    /// Runs kubectl in the namespace.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut all = vec!["-n", &self.namespace];
        all.extend(arguments);
        self.kubectl.run(&all)
    }

    /// Applies an object into the namespace.
    pub fn apply(&self, object: &Value) -> Result<()> {
        match self.try_apply(object)? {
            Ok(()) => Ok(()),
            Err(message) => Err(anyhow!("apply was refused: {message}")),
        }
    }

    /// Applies an object that may be refused.
    pub fn try_apply(&self, object: &Value) -> Result<Result<(), String>> {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(self.namespace);
        // Tests that share a namespace apply the same ensemble at the same moment, and kubectl fails
        // when an object that it did not find is created by somebody else.
        let _guard = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        self.kubectl.try_apply(&object)
    }

    /// Creates an ensemble with exactly this spec, but for [`World::at_run_time`].
    pub fn ensemble(&self, name: &'static str, mut spec: Value) -> Result<Ensemble<'_>> {
        if self.reconfigures.load(Ordering::Relaxed) {
            spec["membershipChange"] = json!("Reconfiguration");
        }
        self.apply(&Ensemble::manifest(name, spec))?;
        Ok(Ensemble::new(self, name))
    }

    /// Creates a small ensemble of this size and waits until it serves.
    pub fn small_ensemble(&self, size: u16) -> Result<Ensemble<'_>> {
        let ensemble = self.ensemble("main", Ensemble::small(size))?;
        ensemble.wait_ready(size)?;
        Ok(ensemble)
    }

    /// Creates a mirror of an election in the ensemble `main`.
    pub fn election(&self, name: &str, path: &str, dialect: Value) -> Result<Election<'_>> {
        self.adopt_election(&Election::manifest(name, "main", path, dialect))
    }

    /// Creates or changes a mirror of an election by its manifest.
    pub fn adopt_election(&self, object: &Value) -> Result<Election<'_>> {
        self.apply(object)?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Ok(Election::new(self, name))
    }

    /// A handle to an election that was applied as a whole.
    pub fn election_handle(&self, name: &str) -> Election<'_> {
        Election::new(self, name)
    }

    /// The pod that client programs run in.
    pub fn clients(&self) -> Result<Clients<'_>> {
        Clients::start(self, CLIENTS)
    }

    /// The pod that the processes of a whole application run in; its image is of that name.
    pub fn application(&self, name: &'static str) -> Result<Clients<'_>> {
        Clients::start(self, name)
    }

    /// Kills every operator process without notice: with SIGKILL where the tests run beside the
    /// cluster's processes, else by removing the pods at once.
    pub fn kill_operator(&self) -> Result<()> {
        let processes = process::of_operator();
        process::signal(&processes, "KILL");
        if processes.is_empty() {
            self.replace_operator()?;
        }
        Ok(())
    }

    /// Removes every operator pod at once, as a failing node would; others take their place.
    pub fn replace_operator(&self) -> Result<()> {
        self.kubectl.run(&[
            "-n",
            OPERATOR_NAMESPACE,
            "delete",
            "pods",
            "-l",
            "app.kubernetes.io/name=bellwether",
            "--grace-period=0",
            "--force",
            "--wait=false",
        ])?;
        Ok(())
    }

    /// The operator's processes: the uid of each pod and how often its container was started again.
    ///
    /// # Errors
    /// When kubectl fails.
    pub fn operators(&self) -> Result<String> {
        let process = "{.metadata.uid} {.status.containerStatuses[*].restartCount}";
        let all = format!("jsonpath={{range .items[*]}}{process}{{\"\\n\"}}{{end}}");
        let label = "app.kubernetes.io/name=bellwether";
        let pods = ["-n", OPERATOR_NAMESPACE, "get", "pods", "-l", label];
        self.kubectl.run(&[&pods[..], &["-o", &all]].concat())
    }

    /// Waits until every operator pod is ready.
    pub fn wait_operator(&self) -> Result<()> {
        let namespace = OPERATOR_NAMESPACE;
        let wait = [
            "rollout",
            "status",
            "deployment/bellwether",
            "--timeout=120s",
        ];
        self.kubectl
            .run(&[&["-n", namespace], &wait[..]].concat())?;
        Ok(())
    }

    /// Deletes objects that a controller creates again at once. `kubectl delete` would wait for
    /// ever for one that is created again just after it looked: it compares uids only once.
    pub fn take_away(&self, objects: &[&str]) -> Result<()> {
        self.run(&[&["delete", "--wait=false"], objects].concat())
            .map(drop)
    }

    /// Waits until no pod of the namespace carries this name any more, or one with another uid does.
    pub fn wait_replaced(&self, pod: &str, uid: &str) -> Result<()> {
        until(
            &format!("pod {pod} is replaced"),
            Duration::from_secs(60),
            || match self.pods.get(pod) {
                Some(p) if p["metadata"]["uid"] != uid => Ok(()),
                Some(_) => Err("the old pod is still there".to_owned()),
                None => Err("there is no pod of that name".to_owned()),
            },
        )
    }

    /// Everything that helps to understand a failure.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let mut part = |title: &str, arguments: &[&str]| {
            let output = match self.kubectl.output(arguments) {
                Ok(o) => {
                    let mut both = String::from_utf8_lossy(&o.stdout).into_owned();
                    both.push_str(&String::from_utf8_lossy(&o.stderr));
                    both
                }
                Err(error) => error.to_string(),
            };
            let _ = writeln!(text, "---- {title}\n{}", output.trim_end());
        };
        let ns = self.namespace.as_str();
        part(
            "objects",
            &[
                "-n",
                ns,
                "get",
                "zke,le,statefulsets,pods,pvc",
                "-o",
                "wide",
            ],
        );
        part("ensembles", &["-n", ns, "get", "zke", "-o", "yaml"]);
        part("elections", &["-n", ns, "get", "le", "-o", "yaml"]);
        part(
            "events",
            &["-n", ns, "get", "events", "--sort-by=.lastTimestamp"],
        );
        part("pods", &["-n", ns, "describe", "pods"]);
        for pod in self.pods.all() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let mut containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            if !containers.any(|container| container["name"] == "zookeeper") {
                continue;
            }
            let log = |title: &str, container: &str, previous: bool| {
                let mut arguments = vec!["-n", ns, "logs", name, "-c", container, "--tail=60"];
                if previous {
                    arguments.push("--previous");
                }
                (
                    format!("{title} of {name}"),
                    arguments.iter().map(|s| (*s).to_owned()).collect(),
                )
            };
            let logs: [(String, Vec<String>); 2] = [
                log("preparation", "prepare", false),
                log("log", "zookeeper", false),
            ];
            for (title, arguments) in logs {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                part(&title, &arguments);
            }
        }
        part(
            "operator",
            &[
                "-n",
                OPERATOR_NAMESPACE,
                "logs",
                "-l",
                "app.kubernetes.io/name=bellwether",
                "--tail=150",
                "--prefix",
            ],
        );
        text
    }

    /// Removes the namespace, and waits until its pods are gone: they take the room of the next.
    pub fn remove(self) {
        let ns = self.namespace.as_str();
        let delete = ["delete", "namespace", ns, "--timeout=90s"];
        let _ = self.kubectl.output(&delete);
    }
}
