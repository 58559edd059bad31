//! What the kubelet does for one pod: prepares the volume, runs the server, starts it again when it
//! ends, and asks whether it is ready.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bellwether_ensemble::desired::config::{SERVERS, SETTINGS};
use bellwether_ensemble::desired::{DesiredObject, config};
use bellwether_ensemble::execute::objects::Template;
use bellwether_ensemble::observation::{PodState, Revision, ServerReport};
use bellwether_ensemble::{ServerId, ValidEnsemble, Voters};
use bellwether_member::{List, committed_file, version_in, zoo_cfg};
use jiff::Timestamp;

use crate::installation::Installation;
use crate::server::{Process, Server};

/// How often the readiness probe runs, and how many failures in a row make a pod unready, as in the
/// StatefulSet.
const READINESS_PERIOD: Duration = Duration::from_secs(1);
const READINESS_FAILURES: u32 = 3;
/// How soon a container that ended is started again; it doubles with every time that it ends within
/// [`STABLE`].
const BACK_OFF: Duration = Duration::from_millis(100);
const STABLE: Duration = Duration::from_secs(10);
/// From this many quick ends on, the kubelet calls it a crash loop.
const CRASH_LOOP: u32 = 4;

/// Where the pods of one ensemble find things.
#[derive(Clone, Debug)]
pub struct Node {
    /// Java and the programs.
    pub installation: Installation,
    /// The directory of this ensemble.
    pub root: PathBuf,
}

impl Node {
    /// The volume of a member.
    pub fn volume(&self, ordinal: u16) -> PathBuf {
        self.root.join(format!("volumes/data-{ordinal}"))
    }

    /// The permission to bootstrap, as every pod sees it.
    pub fn bootstrap(&self) -> PathBuf {
        self.root.join("bootstrap")
    }

    /// The Secret with the members' certificate.
    pub fn secret(&self) -> PathBuf {
        self.root.join("secret")
    }

    /// The files of a configuration revision.
    pub fn revision(&self, name: &str) -> PathBuf {
        self.root.join("revisions").join(name)
    }

    /// Writes the files of a ConfigMap where pods find them.
    ///
    /// # Errors
    /// When the disk refuses them.
    pub fn write_files(&self, map: &DesiredObject) -> Result<()> {
        let directory = match map.name.ends_with("-bootstrap") {
            true => self.bootstrap(),
            false => self.revision(&map.name),
        };
        fs::create_dir_all(&directory)?;
        for (name, text) in map.body["data"].as_object().into_iter().flatten() {
            fs::write(directory.join(name), text.as_str().unwrap_or_default())?;
        }
        Ok(())
    }

    /// Removes the volume of a member, if it has one.
    ///
    /// # Errors
    /// When the disk refuses that.
    pub fn remove_volume(&self, ordinal: u16) -> Result<()> {
        match fs::remove_dir_all(self.volume(ordinal)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// What a member's servers print, one after the other.
    pub fn log(&self, ordinal: u16) -> PathBuf {
        self.root.join(format!("server-{}.log", ordinal + 1))
    }
}

/// One pod.
#[derive(Debug)]
pub struct Pod {
    /// Its ordinal.
    pub ordinal: u16,
    /// Its unique id.
    pub uid: u32,
    /// Changes with everything that the API server would show of it.
    pub resource_version: u32,
    /// The configuration revision that it was made with.
    pub revision: Revision,
    /// The hash of the template that it was made from.
    pub template: String,
    /// The hash of that template without the server list, where members change at run time.
    pub template_hash: Option<String>,
    /// Where its server listens.
    pub address: Ipv4Addr,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether the readiness probe succeeds.
    pub ready: bool,
    /// When it was made.
    pub created: Timestamp,
    server: Option<Server>,
    failures: u32,
    last_probe: Instant,
    quick_ends: u32,
    start_at: Instant,
}

impl Pod {
    /// Prepares the volume with `bellwether-member` and starts the server.
    ///
    /// # Errors
    /// When the volume is refused or a program cannot be run.
    pub fn start(
        node: &Node,
        ensemble: &ValidEnsemble,
        ordinal: u16,
        uid: u32,
        template: Template,
        address: impl Fn(ServerId) -> Ipv4Addr,
    ) -> Result<Self> {
        let id = ServerId::of_ordinal(ordinal, ensemble.id_offset);
        let conf = node.root.join(format!("pods/{uid}"));
        let volume = node.volume(ordinal);
        fs::create_dir_all(&conf)?;
        fs::create_dir_all(&volume)?;
        let revision = template.revision;
        if revision.tls.needs_certificates() {
            fs::create_dir_all(conf.join("tls"))?;
        }
        prepare(node, ensemble, ordinal, &revision, &conf)?;
        let mut rendered = vec![conf.join("zoo.cfg")];
        if revision.version.is_some() {
            rendered.extend([SETTINGS, SERVERS].map(|name| conf.join(name)));
            rendered.push(own_files(&volume).join("zoo.cfg"));
            fs::copy(
                conf.join("logback.xml"),
                own_files(&volume).join("logback.xml"),
            )?;
        }
        for path in rendered {
            let text = fs::read_to_string(&path)?;
            let text = on_loopback(&text, ensemble, id, [&volume, &conf], &address);
            fs::write(&path, text)?;
        }
        let mut pod = Self {
            ordinal,
            uid,
            resource_version: 0,
            revision,
            template: template.hash,
            template_hash: template.template_hash,
            address: address(id),
            terminating: false,
            ready: false,
            created: Timestamp::now(),
            server: None,
            failures: 0,
            last_probe: Instant::now(),
            quick_ends: 0,
            start_at: Instant::now(),
        };
        pod.run(node)?;
        Ok(pod)
    }

    fn run(&mut self, node: &Node) -> Result<()> {
        let mut conf = self.conf(node);
        if self.revision.version.is_some() {
            let volume = node.volume(self.ordinal);
            name_itself(ServerId(self.ordinal + 1), &conf, &volume)?;
            conf = own_files(&volume);
        }
        let log = node.log(self.ordinal);
        let server = Server::start(&node.installation, self.address, &conf, &log)?;
        self.server = Some(server);
        self.resource_version += 1;
        Ok(())
    }

    /// The directory of its configuration.
    pub fn conf(&self, node: &Node) -> PathBuf {
        node.root.join(format!("pods/{}", self.uid))
    }

    /// The process of its server, to be ended while a request is under way.
    pub fn process(&self) -> Option<Process> {
        self.server.as_ref()?.process()
    }

    /// Stops its server, with its connections open.
    pub fn freeze(&self) {
        if let Some(server) = &self.server {
            server.freeze();
        }
    }

    /// Deletes the pod as the API server does: the server is asked to end.
    pub fn delete(&mut self) {
        self.terminating = true;
        self.resource_version += 1;
        if let Some(server) = &self.server {
            server.terminate();
        }
    }

    /// Ends the server at once, as a crash or the end of memory does.
    pub fn kill(&self) {
        if let Some(server) = &self.server {
            server.kill();
        }
    }

    /// Waits for the server's end.
    ///
    /// # Errors
    /// When the process cannot be waited for.
    pub async fn ended(&mut self) -> Result<()> {
        match &mut self.server {
            Some(server) => server.wait().await,
            None => Ok(()),
        }
    }

    /// Looks after the server; returns whether the pod is gone.
    ///
    /// # Errors
    /// When the server cannot be started again.
    pub fn look_after(&mut self, node: &Node) -> Result<bool> {
        if let Some(server) = &mut self.server
            && server.ended().is_some()
        {
            let quick = server.started.elapsed() < STABLE;
            self.quick_ends = if quick { self.quick_ends + 1 } else { 0 };
            self.start_at = Instant::now() + BACK_OFF * 2_u32.pow(self.quick_ends.min(6));
            self.server = None;
            self.ready = false;
            self.resource_version += 1;
        }
        if self.server.is_none() {
            if self.terminating {
                return Ok(true);
            }
            if Instant::now() >= self.start_at {
                self.run(node)?;
            }
        }
        Ok(false)
    }

    /// Lets the readiness probe see what the server just answered.
    pub fn probe(&mut self, report: &ServerReport) {
        if self.last_probe.elapsed() < READINESS_PERIOD {
            return;
        }
        self.last_probe = Instant::now();
        let serves = matches!(report, ServerReport::Serving { .. });
        self.failures = if serves { 0 } else { self.failures + 1 };
        let ready = serves || (self.ready && self.failures < READINESS_FAILURES);
        if ready != self.ready {
            self.ready = ready;
            self.resource_version += 1;
        }
    }

    /// What the API server would show of the containers.
    pub fn state(&self) -> PodState {
        if self.server.is_some() {
            PodState::Running
        } else if self.quick_ends >= CRASH_LOOP {
            PodState::Failing {
                reason: "CrashLoopBackOff".to_owned(),
                message: "the server ends again and again".to_owned(),
            }
        } else {
            PodState::Starting
        }
    }

    /// The voters that it judges quorums by.
    pub fn voters(&self) -> &Voters {
        &self.revision.voters
    }
}

/// Where the server's files are on its volume, where members change at run time.
pub fn own_files(volume: &Path) -> PathBuf {
    volume.join("config")
}

/// What the container's command does before it starts a server that its own list does not name.
fn name_itself(id: ServerId, conf: &Path, volume: &Path) -> Result<()> {
    let own = own_files(volume);
    let path = own.join("zoo.cfg");
    let last = fs::read_to_string(&path)?;
    let Some(name) = committed_file(&last) else {
        return Ok(());
    };
    let file = own.join(name);
    let lines = fs::read_to_string(&file)?;
    let committed = List {
        version: version_in(name).unwrap_or(0),
        lines: &lines,
    };
    let servers = fs::read_to_string(conf.join(SERVERS))?;
    let begins = format!("server.{id}=");
    let line = servers.lines().find(|line| line.starts_with(&begins));
    let text = zoo_cfg(
        &fs::read_to_string(conf.join(SETTINGS))?,
        Some((&file.display().to_string(), committed)),
        List {
            version: 0,
            lines: "",
        },
        (id.0, line.context("the servers have no line of this one")?),
    );
    Ok(fs::write(path, text)?)
}

fn prepare(
    node: &Node,
    ensemble: &ValidEnsemble,
    ordinal: u16,
    revision: &Revision,
    conf: &Path,
) -> Result<()> {
    let mut command = node.installation.member();
    command.arg("prepare");
    for (flag, path) in [
        ("--config", node.revision(&revision.name)),
        ("--bootstrap", node.bootstrap()),
        ("--conf", conf.to_owned()),
        ("--data", node.volume(ordinal)),
        ("--datalog", node.root.join("no-separate-log")),
        ("--identity", node.secret()),
        ("--tls", conf.join("tls")),
        ("--termination-log", conf.join("termination-log")),
    ] {
        command.arg(flag).arg(path);
    }
    command
        .env("POD_NAME", format!("{}-{ordinal}", ensemble.name))
        .env(
            "ENSEMBLE",
            format!("{}/{}", ensemble.namespace, ensemble.name),
        )
        .env("ID_OFFSET", ensemble.id_offset.to_string());
    if let Some(version) = revision.version {
        command
            .env("MEMBERS", revision.voters.to_string())
            .env("LIST_VERSION", format!("{version:x}"));
    }
    let output = command.output().context("run bellwether-member")?;
    ensure!(
        output.status.success(),
        "bellwether-member prepare for ordinal {ordinal}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// The rendered file with what only a container has replaced: names by addresses, the directories, and
/// listening on one address instead of all.
fn on_loopback(
    rendered: &str,
    ensemble: &ValidEnsemble,
    id: ServerId,
    [volume, conf]: [&Path; 2],
    address: impl Fn(ServerId) -> Ipv4Addr,
) -> String {
    let mut text = rendered
        .replace("=/tls/", &format!("={}/tls/", conf.display()))
        .replace(
            "dataDir=/data\n",
            &format!("dataDir={}\n", volume.display()),
        )
        .replace("quorumListenOnAllIPs=true", "quorumListenOnAllIPs=false")
        .replace(
            "admin.serverAddress=127.0.0.1",
            &format!("admin.serverAddress={}", address(id)),
        );
    for other in Voters::first(14, ensemble.id_offset).iter() {
        let name = config::member_host(ensemble, other);
        text = text.replace(&format!("={name}:"), &format!("={}:", address(other)));
    }
    for key in ["clientPort", "secureClientPort"] {
        if text.contains(&format!("\n{key}=")) {
            text.push_str(&format!("{key}Address={}\n", address(id)));
        }
    }
    text
}
