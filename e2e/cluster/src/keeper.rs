//! The first process of the cluster's own namespaces: it makes the network, starts every program and
//! starts again what ends. When it ends, the kernel ends everything else, because it is the first
//! process of a process namespace.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::WaitOptions;
use serde::{Deserialize, Serialize};

use super::{
    cgroup::Hierarchies,
    config, control_plane,
    network::{self, CONTROL_PLANE},
    node,
    paths::Paths,
    state::{self, Process},
};
use crate::process;

/// What `up` writes to the keeper's standard input to let it go on without `up`.
pub(crate) const RELEASE: &str = "release";

/// How long a part of the start may take before it counts as failed.
const DEADLINE: Duration = Duration::from_secs(120);

/// A program that keeps ending is not started more often than this.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Where in a mount namespace programs write without asking; each gets a file system of its own
/// there, so that nothing is left on the host.
pub(crate) const MOUNT_POINTS: &[&str] =
    &["/var/lib/kubelet", "/var/lib/cni", "/var/log/containers"];

/// A program of the cluster: how to start it (again).
#[derive(Clone, Debug)]
pub(crate) struct Component {
    /// What `status` and its log file call it.
    pub(crate) name: String,
    /// The network namespace of a node, or the control plane's.
    pub(crate) node: Option<u8>,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
}

/// What `status` shows of a component.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Health {
    /// Whether it runs now.
    pub(crate) running: bool,
    /// How often it was started again.
    pub(crate) restarts: u32,
}

/// Starts programs and remembers them by process id.
struct Supervisor<'a> {
    paths: &'a Paths,
    running: BTreeMap<i32, Component>,
    health: BTreeMap<String, Health>,
}

impl Supervisor<'_> {
    fn start(&mut self, component: Component) -> Result<()> {
        let log = self.paths.logs().join(format!("{}.log", component.name));
        let log = File::options().create(true).append(true).open(&log)?;
        let mut command = in_namespace(component.node, &component.command);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        command.current_dir(&self.paths.state);
        let child = command
            .spawn()
            .with_context(|| format!("start {}", component.name))?;
        self.health
            .entry(component.name.clone())
            .or_default()
            .running = true;
        self.running.insert(i32::try_from(child.id())?, component);
        Ok(())
    }

    /// Fails if a program has ended: during the start none may.
    fn check(&self) -> Result<()> {
        for (pid, component) in &self.running {
            if Process::find(*pid).is_none() {
                let log = self.paths.logs().join(format!("{}.log", component.name));
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!(
                    "{} ended:\n{}",
                    component.name,
                    process::last_lines(&said, 10)
                );
            }
        }
        Ok(())
    }

    /// Waits until `condition` holds.
    fn wait(&self, what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
        let deadline = Instant::now() + DEADLINE;
        while !condition() {
            self.check()?;
            if Instant::now() > deadline {
                bail!("{what}: not within {} s", DEADLINE.as_secs());
            }
            thread::sleep(Duration::from_millis(200));
        }
        println!("{what}");
        Ok(())
    }

    fn publish(&self) -> Result<()> {
        state::write_json(&self.paths.components_file(), &self.health)
    }

    /// Reaps whatever ends, as the first process must, and starts again what should run.
    fn supervise(mut self) -> Result<()> {
        loop {
            self.publish()?;
            let ended = match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => (pid.as_raw_nonzero().get(), status),
                Ok(None) | Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error).context("wait for the cluster's programs"),
            };
            let Some(component) = self.running.remove(&ended.0) else {
                continue;
            };
            println!(
                "{} ended ({:?}); starting it again",
                component.name, ended.1
            );
            if let Some(health) = self.health.get_mut(&component.name) {
                health.running = false;
                health.restarts += 1;
            }
            self.publish()?;
            thread::sleep(RESTART_DELAY);
            self.start(component)?;
        }
    }
}

/// A command in a node's network namespace, or in the control plane's, where the keeper is.
pub(crate) fn in_namespace(node: Option<u8>, words: &[String]) -> Command {
    match node {
        None => process::command(&words[0], &words[1..]),
        Some(number) => {
            let namespace = format!("--net=/run/netns/{}", network::node_name(number));
            let mut command = process::command("nsenter", [namespace.as_str(), "--"]);
            command.args(words);
            command
        }
    }
}

/// Runs the cluster: returns only with an error.
pub(crate) fn keep(paths: &Paths) -> Result<()> {
    hold_leash();
    let layout = paths.layout()?.context("`keep` is for `up` to call")?;
    let mut supervisor = Supervisor {
        paths,
        running: BTreeMap::new(),
        health: BTreeMap::new(),
    };
    prepare_mounts(paths)?;
    batch(None, &network::control_plane_links())?;
    forward_packets(None)?;
    control_plane::write_certificates(paths, layout.nodes)?;
    for component in control_plane::first(paths) {
        supervisor.start(component)?;
    }
    let cgroups = Hierarchies::find()?;
    let prepared: Result<Vec<()>> = thread::scope(|scope| {
        let prepare = |number| {
            let (layout, cgroups) = (&layout, &cgroups);
            scope.spawn(move || node::prepare(paths, layout, cgroups, number))
        };
        let threads: Vec<_> = (1..=layout.nodes).map(prepare).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("preparing a node panicked"),
        });
        joined.collect()
    });
    prepared?;
    for number in 1..=layout.nodes {
        supervisor.start(node::containerd(paths, number))?;
    }
    supervisor.wait("the API server answers", || api_server_answers(paths))?;
    for component in control_plane::controllers(paths)? {
        supervisor.start(component)?;
    }
    for number in 1..=layout.nodes {
        supervisor.wait(&format!("containerd of node {number} answers"), || {
            paths.containerd_socket(number).exists()
        })?;
        for component in node::agents(paths, number) {
            supervisor.start(component)?;
        }
    }
    apply_manifests(paths)?;
    supervisor.wait("DNS answers", dns_answers)?;
    supervisor.wait("every node is ready", || {
        ready_nodes(paths) == usize::from(layout.nodes)
    })?;
    supervisor.wait("pods can be made", || has_service_account(paths))?;
    fs::write(paths.ready_file(), "")?;
    supervisor.supervise()
}

/// Ends the cluster if `up` ends before the cluster is ready.
fn hold_leash() {
    thread::spawn(|| {
        let released = std::io::stdin().lock().lines().map_while(Result::ok).next();
        if released.as_deref() != Some(RELEASE) {
            eprintln!("`up` ended before the cluster was ready");
            std::process::exit(1);
        }
    });
}

fn prepare_mounts(paths: &Paths) -> Result<()> {
    let resolv_conf = fs::canonicalize("/etc/resolv.conf").ok();
    for point in [Path::new("/run")]
        .into_iter()
        .chain(MOUNT_POINTS.iter().map(Path::new))
    {
        let mut mount = process::command("mount", ["-t", "tmpfs", "-o", "mode=755", "bellwether"]);
        process::run(mount.arg(point))?;
    }
    // Pods and `exec` ask the cluster's DNS server; the latter finds names as a pod would.
    let search = network::DOMAIN;
    let text = format!(
        "nameserver {CONTROL_PLANE}\nsearch default.svc.{search} svc.{search} {search}\n\
         options ndots:5\n"
    );
    let host = paths.state.join("exec-resolv.conf");
    fs::write(&host, text)?;
    fs::write(
        paths.state.join("resolv.conf"),
        format!("nameserver {CONTROL_PLANE}\n"),
    )?;
    if let Some(target) = resolv_conf {
        if !target.exists() {
            // It was below /run, which is empty now.
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&target, "")?;
        }
        process::run(
            process::command("mount", ["--bind"])
                .arg(&host)
                .arg(&target),
        )?;
    }
    Ok(())
}

/// Runs lines for `ip` in a namespace.
pub(crate) fn batch(node: Option<u8>, lines: &str) -> Result<()> {
    let words = ["ip", "-batch", "-"].map(str::to_owned);
    process::feed(&mut in_namespace(node, &words), lines.as_bytes()).map(drop)
}

/// Lets a namespace pass on packets that are not its own.
pub(crate) fn forward_packets(node: Option<u8>) -> Result<()> {
    let script = "echo 1 >/proc/sys/net/ipv4/ip_forward";
    process::run(&mut in_namespace(
        node,
        &["sh", "-c", script].map(str::to_owned),
    ))
}

fn kubectl(paths: &Paths, arguments: &[&str]) -> Command {
    let mut command = process::command(paths.programs().join("kubectl"), arguments);
    command.env("KUBECONFIG", paths.kubeconfig());
    command
}

fn connects(port: u16) -> Option<TcpStream> {
    let address = SocketAddr::from((CONTROL_PLANE, port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()
}

fn api_server_answers(paths: &Paths) -> bool {
    // Starting kubectl costs more than a look at the port.
    connects(6443).is_some() && process::run(&mut kubectl(paths, &["get", "--raw=/readyz"])).is_ok()
}

fn dns_answers() -> bool {
    let Some(mut stream) = connects(8181) else {
        return false;
    };
    let mut answer = String::new();
    stream.write_all(b"GET /ready HTTP/1.0\r\n\r\n").is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer
            .lines()
            .next()
            .is_some_and(|line| line.contains("200"))
}

fn ready_nodes(paths: &Paths) -> usize {
    let path = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
    let text = process::output(&mut kubectl(paths, &["get", "nodes", "-o", path]));
    text.unwrap_or_default()
        .split_whitespace()
        .filter(|status| *status == "True")
        .count()
}

fn has_service_account(paths: &Paths) -> bool {
    process::run(&mut kubectl(paths, &["get", "serviceaccount", "default"])).is_ok()
}

fn apply_manifests(paths: &Paths) -> Result<()> {
    let mut apply = kubectl(paths, &["apply", "--server-side", "-f", "-"]);
    process::feed(&mut apply, config::MANIFESTS.as_bytes()).map(drop)
}
