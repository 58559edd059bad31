//! What is known about a running cluster, and whether it still runs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{hash, paths::Paths};

/// The parts of a cluster: written by `up`, read by all other commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// How many nodes.
    pub(crate) nodes: u8,
    /// containerd's directory with the images already in it, to copy for every node.
    pub(crate) seed: PathBuf,
    /// Where the distribution keeps the network plugins.
    pub(crate) cni: PathBuf,
    /// The name of the cluster's control groups.
    pub(crate) cgroup: String,
    /// Directories made outside of the state directory, empty there: mounted over by the cluster.
    pub(crate) mount_points: Vec<PathBuf>,
}

/// A process, distinguished from a later one of the same number by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pid: i32,
    start_time: u64,
}

impl Process {
    /// The process with this number, if there is one.
    pub(crate) fn find(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, start_time) = parse_stat(&stat)?;
        Some(Self { pid, start_time })
    }

    /// Its number.
    pub(crate) fn pid(self) -> i32 {
        self.pid
    }

    /// Whether it, and not a successor with its number, still runs.
    pub(crate) fn is_alive(self) -> bool {
        Self::find(self.pid) == Some(self)
    }

    /// Ends it if it still runs.
    pub(crate) fn kill(self) {
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_alive()) {
            // It may have ended in between, which is as good.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }

    /// Its only child.
    pub(crate) fn child(self) -> Option<Self> {
        let entries = fs::read_dir("/proc").ok()?;
        let mut pids = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.find_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (parent, start_time) = parse_stat(&stat)?;
            (parent == self.pid).then_some(Self { pid, start_time })
        })
    }
}

/// The parent and the start time. The program's name, in parentheses, may hold anything.
fn parse_stat(stat: &str) -> Option<(i32, u64)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // A zombie has ended, though its number is still taken.
    if fields.first() == Some(&"Z") {
        return None;
    }
    Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

/// The processes that hold a cluster up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    /// The first process of the cluster's namespaces.
    pub(crate) inner: Process,
}

impl Paths {
    fn layout_file(&self) -> PathBuf {
        self.state.join("cluster.json")
    }

    fn keeper_file(&self) -> PathBuf {
        self.state.join("keeper.json")
    }

    /// Exists once every node is ready.
    pub(crate) fn ready_file(&self) -> PathBuf {
        self.state.join("ready")
    }

    /// What the keeper last said about its programs.
    pub(crate) fn components_file(&self) -> PathBuf {
        self.state.join("components.json")
    }

    /// The name of this state directory's control groups: two clusters do not meet.
    pub(crate) fn cgroup(&self) -> Result<String> {
        let digest = hash::sha256(self.state.as_os_str().as_encoded_bytes())?;
        Ok(format!("bellwether-{}", &digest[..8]))
    }

    /// The layout of the cluster in the state directory, running or not.
    pub(crate) fn layout(&self) -> Result<Option<Layout>> {
        read_json(&self.layout_file())
    }

    /// Writes down what a cluster will be, before anything of it exists.
    pub(crate) fn write_layout(&self, layout: &Layout) -> Result<()> {
        write_json(&self.layout_file(), layout)
    }

    /// Writes down which process holds the cluster up.
    pub(crate) fn write_keeper(&self, process: Process) -> Result<()> {
        write_json(&self.keeper_file(), &process)
    }

    /// The outermost process of a cluster, ready or not.
    pub(crate) fn keeper(&self) -> Result<Option<Process>> {
        let process = read_json::<Process>(&self.keeper_file())?;
        Ok(process.filter(|process| process.is_alive()))
    }

    /// The processes of a cluster that is there, ready or not.
    pub(crate) fn running(&self) -> Result<Option<Running>> {
        let Some(outer) = self.keeper()? else {
            return Ok(None);
        };
        Ok(outer.child().map(|inner| Running { inner }))
    }

    /// The processes and the layout of a cluster that is ready.
    pub(crate) fn ready(&self) -> Result<(Running, Layout)> {
        match (self.running()?, self.layout()?) {
            (Some(running), Some(layout)) if self.ready_file().exists() => Ok((running, layout)),
            (Some(_), _) => bail!(
                "the cluster is still starting; see {}",
                self.logs().display()
            ),
            _ => bail!("no cluster is running: start one with `cargo xtask cluster up`"),
        }
    }
}

/// Reads a file that may not be there.
pub(crate) fn read_json<T: DeserializeOwned>(file: &Path) -> Result<Option<T>> {
    match fs::read(file) {
        Ok(bytes) => {
            let value = serde_json::from_slice(&bytes);
            value
                .map(Some)
                .with_context(|| format!("{} is damaged", file.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", file.display())),
    }
}

/// Writes the whole file or nothing: others read it at any time.
pub(crate) fn write_json<T: Serialize>(file: &Path, value: &T) -> Result<()> {
    let partial = file.with_extension("partial");
    fs::write(&partial, serde_json::to_vec_pretty(value)?)
        .with_context(|| format!("write {}", partial.display()))?;
    fs::rename(&partial, file).with_context(|| format!("write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_a_strange_name() {
        let stat = "12 (a) b (c) S 7 12 12 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(parse_stat(stat), Some((7, 4711)));
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let stat = "12 (a) Z 7 12 12 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(parse_stat(stat), None);
    }

    #[test]
    fn another_process_with_the_same_number_is_another() {
        let me = Process::find(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.is_alive());
        assert!(
            !Process {
                start_time: me.start_time + 1,
                ..me
            }
            .is_alive()
        );
    }
}
