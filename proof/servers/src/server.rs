//! One ZooKeeper server: a process of its own, killed when it is dropped.

use std::fs::OpenOptions;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::installation::Installation;

const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// The process of a server. It must not be kept for longer than the server, whose number another process may get then.
#[derive(Clone, Copy, Debug)]
pub struct Process(Pid);

impl Process {
    /// Ends it at once.
    pub fn kill(self) {
        self.signal(Signal::KILL);
    }

    fn signal(self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(self.0, signal);
    }
}

/// A running or ended server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// When it was started.
    pub started: Instant,
    /// Where it listens.
    pub address: Ipv4Addr,
}

impl Server {
    /// Starts a server with `zoo.cfg` and `logback.xml` in `conf`; its output goes to the end of
    /// `log`.
    ///
    /// # Errors
    /// When the process cannot be made.
    pub fn start(
        installation: &Installation,
        address: Ipv4Addr,
        conf: &Path,
        log: &Path,
    ) -> Result<Self> {
        Self::start_with(installation, address, conf, log, &[])
    }

    /// As [`Self::start`], with further options of the virtual machine.
    ///
    /// # Errors
    /// When the process cannot be made.
    pub fn start_with(
        installation: &Installation,
        address: Ipv4Addr,
        conf: &Path,
        log: &Path,
        options: &[&str],
    ) -> Result<Self> {
        let output = OpenOptions::new().create(true).append(true).open(log)?;
        let logback = conf.join("logback.xml");
        let mut java = installation.java();
        java.arg(format!("-Dlogback.configurationFile={}", logback.display()))
            .arg("-XX:+ExitOnOutOfMemoryError")
            .args(options)
            .arg(MAIN)
            .arg(conf.join("zoo.cfg"))
            .current_dir(conf)
            .stdout(output.try_clone()?)
            .stderr(output);
        let mut command = Command::from(java);
        let child = command.kill_on_drop(true).spawn().context("start java")?;
        Ok(Self {
            child,
            started: Instant::now(),
            address,
        })
    }

    /// Asks it to end, as the kubelet does.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends it at once.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Stops it, with its connections open: it neither reads nor writes.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Its process, if it has not been waited for.
    pub fn process(&self) -> Option<Process> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        pid.and_then(Pid::from_raw).map(Process)
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = self.process() {
            process.signal(signal);
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When the process cannot be waited for.
    pub async fn wait(&mut self) -> Result<()> {
        self.child.wait().await?;
        Ok(())
    }
}
