//! Programs in the cluster that use ZooKeeper as applications do.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::history::is_ready;
use crate::wait::until;
use crate::world::World;

/// The pod and the image of the programs that use client libraries.
pub(crate) const CLIENTS: &str = "clients";

/// A pod that runs one command in the image with the client programs.
pub fn pod(name: &str, command: &[&str]) -> Value {
    pod_of(CLIENTS, name, command)
}

/// A pod that runs one command in one of the tests' images.
pub(crate) fn pod_of(image: &str, name: &str, command: &[&str]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 1000,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": image,
                "image": format!("docker.io/bellwether/e2e-{image}:dev"),
                "imagePullPolicy": "IfNotPresent",
                "command": command,
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": { "drop": ["ALL"] },
                },
            }],
        },
    })
}

/// A pod that programs run in, as one process each.
#[derive(Clone, Copy, Debug)]
pub struct Clients<'w> {
    world: &'w World,
    pod: &'static str,
    /// Whether they connect over TLS.
    secure: bool,
    /// Whether they show a certificate.
    certified: bool,
    /// The name and the password that they log in with.
    user: Option<(&'static str, &'static str)>,
}

/// The authority that the programs trust, and the certificate that they show, with its key.
const AUTHORITY: &str = "/tmp/ca.pem";
const CERTIFICATE: &str = "/tmp/client.pem";
/// What ZooKeeper's own client, and so Curator, is told of TLS. DIGEST-MD5 is not approved by FIPS.
const JAVA_OVER_TLS: &str = "JDK_JAVA_OPTIONS=-Dzookeeper.client.secure=true -Dzookeeper.fips-mode=false \
    -Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty \
    -Dzookeeper.ssl.trustStore.location=/tmp/ca.pem";

impl<'w> Clients<'w> {
    /// Starts the pod of this name, which is also its image's.
    pub(crate) fn start(world: &'w World, name: &'static str) -> Result<Self> {
        let pod = pod_of(name, name, &["sleep", "infinity"]);
        // The namespace's service account comes a moment after the namespace.
        until(
            &format!("the pod {name} is accepted"),
            Duration::from_secs(30),
            || world.apply(&pod).map_err(|e| e.to_string()),
        )?;
        let runs = format!("the pod {name} runs");
        until(&runs, Duration::from_secs(90), || {
            let pod = world.pods.get(name).ok_or("it is not there".to_owned())?;
            is_ready(&pod)
                .then_some(())
                .ok_or_else(|| format!("phase {}", pod["status"]["phase"]))
        })?;
        Ok(Self {
            world,
            pod: name,
            secure: false,
            certified: false,
            user: None,
        })
    }

    /// The same programs, connecting over TLS and trusting this certificate.
    pub fn over_tls(self, authority: &str) -> Result<Self> {
        self.write(AUTHORITY, authority)?;
        Ok(Self {
            secure: true,
            ..self
        })
    }

    /// Whether the programs connect over TLS.
    pub fn are_over_tls(&self) -> bool {
        self.secure
    }

    /// The same programs, showing this certificate, which its key precedes.
    pub fn with_certificate(self, certificate: &str) -> Result<Self> {
        self.write(CERTIFICATE, certificate)?;
        Ok(Self {
            certified: true,
            ..self
        })
    }

    /// The same programs, logging in by SASL DIGEST-MD5.
    pub fn as_user(self, name: &'static str, password: &'static str) -> Result<Self> {
        let quoted = password.replace('\\', "\\\\").replace('"', "\\\"");
        let login = format!(
            "Client {{ org.apache.zookeeper.server.auth.DigestLoginModule required \
             username=\"{name}\" password=\"{quoted}\"; }};"
        );
        self.write(&format!("/tmp/{name}.conf"), &login)?;
        Ok(Self {
            user: Some((name, password)),
            ..self
        })
    }

    fn write(&self, file: &str, content: &str) -> Result<()> {
        let script = "printf %s \"$1\" >\"$2\"";
        let exec = [
            "exec", self.pod, "--", "sh", "-c", script, "sh", content, file,
        ];
        self.world.run(&exec).map(drop)
    }

    /// The variables by which the programs know whom to trust and who they are.
    fn environment(&self) -> Vec<String> {
        let mut all = Vec::new();
        if !self.secure {
            return all;
        }
        all.push(format!("CA={AUTHORITY}"));
        let mut java = JAVA_OVER_TLS.to_owned();
        if self.certified {
            all.push(format!("CERTIFICATE={CERTIFICATE}"));
            java += &format!(" -Dzookeeper.ssl.keyStore.location={CERTIFICATE}");
        }
        if let Some((name, password)) = self.user {
            all.push(format!("SASL_NAME={name}"));
            all.push(format!("SASL_PASSWORD={password}"));
            java += &format!(" -Djava.security.auth.login.config=/tmp/{name}.conf");
        }
        all.push(java);
        all
    }

    /// These hosts with the port that the programs connect to.
    pub(crate) fn hosts(&self, plain: &str) -> String {
        match self.secure {
            true => plain.replace(":2181", ":2281"),
            false => plain.to_owned(),
        }
    }

    /// How to run a command in the pod.
    fn exec(&self, command: &[&str]) -> Command {
        let environment = self.environment();
        let mut arguments = vec!["-n", &self.world.namespace, "exec", self.pod, "--", "env"];
        arguments.extend(environment.iter().map(String::as_str));
        arguments.extend(command);
        self.world.kubectl.command(&arguments)
    }

    /// Starts a program and waits for its first line.
    pub fn spawn(&self, id: &str, command: &[&str]) -> Result<Client<'w>> {
        let mut child = self
            .exec(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting a client")?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let noise = Arc::new(Mutex::new(String::new()));
        if let Some(output) = child.stdout.take() {
            let lines = Arc::clone(&lines);
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if let Ok(value) = serde_json::from_str::<Value>(&line) {
                        lines
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(value);
                    }
                }
            });
        }
        if let Some(errors) = child.stderr.take() {
            let noise = Arc::clone(&noise);
            thread::spawn(move || {
                for line in BufReader::new(errors).lines().map_while(Result::ok) {
                    let mut noise = noise.lock().unwrap_or_else(PoisonError::into_inner);
                    if noise.len() < 4000 {
                        noise.push_str(&line);
                        noise.push('\n');
                    }
                }
            });
        }
        let client = Client {
            world: self.world,
            pod: self.pod,
            id: id.to_owned(),
            child: Mutex::new(child),
            lines,
            noise,
        };
        client.wait_event("started")?;
        Ok(client)
    }

    /// Starts a Python program of the image.
    pub fn python(&self, id: &str, program: &str, arguments: &[&str]) -> Result<Client<'w>> {
        let path = format!("/clients/{program}");
        let mut command = vec!["python3", path.as_str()];
        command.extend(arguments);
        self.spawn(id, &command)
    }

    /// Starts a Java program of the image with hosts, path and identity.
    pub fn java(&self, id: &str, class: &str, hosts: &str, path: &str) -> Result<Client<'w>> {
        self.java_with(id, &["-Xmx48m"], &[class, hosts, path, id])
    }

    /// Starts the Go program of the image: a holder of the lock at this path.
    pub fn go_lock(&self, id: &str, hosts: &str, path: &str) -> Result<Client<'w>> {
        let program = "/clients/go_lock";
        self.spawn(id, &[program, "-hosts", hosts, "-path", path, "-id", id])
    }

    /// Starts the Rust program of the image: a holder of the lock at this path.
    pub fn rust_lock(&self, id: &str, hosts: &str, path: &str) -> Result<Client<'w>> {
        self.spawn(id, &["/clients/rust_lock", hosts, path, id])
    }

    /// Starts a Java program of the image with options of its own: its class, and its arguments.
    pub fn java_with(&self, id: &str, options: &[&str], program: &[&str]) -> Result<Client<'w>> {
        let mut command = vec!["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];
        command.extend(options);
        command.extend(program);
        self.spawn(id, &command)
    }

    /// Runs a program to its end and returns what it printed; its exit code does not matter.
    pub fn output(&self, command: &[&str]) -> Result<String> {
        let output = self.exec(command).output().context("starting a client")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.trim().is_empty() {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            anyhow::bail!("{command:?} printed nothing: {}", error.trim());
        }
        Ok(text)
    }
}

/// A running program.
#[derive(Debug)]
pub struct Client<'w> {
    world: &'w World,
    pod: &'static str,
    id: String,
    child: Mutex<Child>,
    lines: Arc<Mutex<Vec<Value>>>,
    noise: Arc<Mutex<String>>,
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Client<'_> {
    /// The identity that it was given.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Every line so far.
    pub fn lines(&self) -> Vec<Value> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Its last lines, and what it said on standard error.
    pub(crate) fn last_words(&self) -> String {
        let lines = self.lines();
        let last: Vec<String> = lines[lines.len().saturating_sub(5)..]
            .iter()
            .map(Value::to_string)
            .collect();
        let noise = self.noise.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{}: {} {noise}", self.id, last.join(" "))
    }

    /// The first line with this event.
    pub fn event(&self, event: &str) -> Option<Value> {
        self.lines().into_iter().find(|line| line["event"] == event)
    }

    /// The last view that its own library reported.
    pub fn last_view(&self) -> Option<Value> {
        self.lines()
            .into_iter()
            .rfind(|line| line["event"] == "view")
    }

    /// Waits for a line with this event.
    pub fn wait_event(&self, event: &str) -> Result<Value> {
        until(
            &format!("{} says {event:?}", self.id),
            Duration::from_secs(60),
            || {
                self.event(event).ok_or_else(|| {
                    let noise = self.noise.lock().unwrap_or_else(PoisonError::into_inner);
                    format!("it said {:?} and {noise:?}", self.lines())
                })
            },
        )
    }

    /// Waits until it prints the view of its library or application, however long the start takes
    /// on a busy machine.
    pub fn wait_view(&self) -> Result<()> {
        until(
            &format!("{} has started", self.id),
            Duration::from_secs(240),
            || match self.last_view() {
                Some(view) if view["hasLeadership"].is_boolean() => Ok(()),
                _ => {
                    let noise = self.noise.lock().unwrap_or_else(PoisonError::into_inner);
                    Err(format!("it said {:?} and {noise:?}", self.lines()))
                }
            },
        )
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let started = self
            .event("started")
            .context("the client has not started")?;
        let pid = started["pid"].to_string();
        self.world
            .run(&["exec", self.pod, "--", "kill", signal, &pid])?;
        Ok(())
    }

    /// Kills it without notice: its session lives on until it expires.
    pub fn kill(&self) -> Result<()> {
        self.signal("-KILL")
    }

    /// Ends it in an orderly way and returns its last line.
    pub fn stop(&self) -> Result<Value> {
        self.signal("-TERM")?;
        let ended = until(
            &format!("{} ends", self.id),
            Duration::from_secs(60),
            || {
                let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
                match child.try_wait() {
                    Ok(Some(_)) => Ok(()),
                    _ => Err("it still runs".to_owned()),
                }
            },
        );
        if let Err(error) = ended {
            // The programs in Python print where their threads are; others end by it.
            let _ = self.signal("-USR1");
            thread::sleep(Duration::from_secs(2));
            return Err(error.context(self.last_words()));
        }
        // The reader may be a moment behind the end of the process.
        Ok(self
            .event("summary")
            .or_else(|| self.lines().pop())
            .unwrap_or_default())
    }
}
