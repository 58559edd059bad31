//! A control group per node, on machines with version 1 (or both) and with version 2.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// What kubelet needs of version 2.
const NEEDED_CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// How long the kernel may take to let go of the groups of killed processes.
const REMOVAL_DEADLINE: Duration = Duration::from_secs(10);

/// The machine's control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hierarchies {
    /// Version 1: one directory per controller.
    V1 {
        /// The controllers' directories.
        controllers: Vec<PathBuf>,
        /// A version 2 tree without controllers beside them: nothing needs it, but runc uses it.
        beside: Option<PathBuf>,
    },
    /// Version 2: one directory.
    V2(PathBuf),
}

impl Hierarchies {
    /// Finds them among this machine's mounts.
    pub(crate) fn find() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?;
        Self::parse(&mounts).context(
            "no control groups are mounted below /sys/fs/cgroup. In a container, start it \
             privileged with the host's control groups (docker run --privileged --cgroupns=host)",
        )
    }

    fn parse(mountinfo: &str) -> Option<Self> {
        let mut v1 = Vec::new();
        let mut v2 = None;
        for line in mountinfo.lines() {
            // "36 35 98:0 /root /mount/point options - type source options"
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let Some(point) = left.split_whitespace().nth(4) else {
                continue;
            };
            if !point.starts_with("/sys/fs/cgroup") {
                continue;
            }
            match right.split_whitespace().next() {
                Some("cgroup") => v1.push(PathBuf::from(point)),
                Some("cgroup2") => v2 = Some(PathBuf::from(point)),
                _ => {}
            }
        }
        if v1.is_empty() {
            return v2.map(Self::V2);
        }
        Some(Self::V1 {
            controllers: v1,
            beside: v2,
        })
    }

    fn roots(&self) -> &[PathBuf] {
        match self {
            Self::V1 { controllers, .. } => controllers,
            Self::V2(root) => std::slice::from_ref(root),
        }
    }

    /// Where groups may be that this program did not make.
    fn beside(&self) -> Option<&PathBuf> {
        match self {
            Self::V1 { beside, .. } => beside.as_ref(),
            Self::V2(_) => None,
        }
    }

    /// Makes `group/child` everywhere.
    pub(crate) fn create(&self, group: &str, child: &str) -> Result<()> {
        for root in self.roots() {
            let mut parent = root.clone();
            for name in [group, child] {
                let directory = parent.join(name);
                match self {
                    Self::V1 { .. } => make_v1(&parent, &directory)?,
                    Self::V2(_) => make_v2(&parent, &directory)?,
                }
                parent = directory;
            }
            if let Self::V2(_) = self {
                delegate(&parent)?;
            }
        }
        Ok(())
    }

    /// Kills what is still in a group and removes it with everything below.
    pub(crate) fn remove(&self, group: &str) -> Result<()> {
        let deadline = Instant::now() + REMOVAL_DEADLINE;
        for root in self.roots().iter().chain(self.beside()) {
            let directory = root.join(group);
            while directory.exists() {
                remove_tree(&directory);
                if Instant::now() > deadline {
                    bail!(
                        "the control group {} is still in use: see the processes in its \
                         cgroup.procs files",
                        directory.display()
                    );
                }
                if directory.exists() {
                    thread::sleep(Duration::from_millis(50));
                }
            }
        }
        Ok(())
    }
}

fn make(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| {
        format!(
            "create the control group {} (in a container, it must be privileged)",
            directory.display()
        )
    })
}

fn make_v1(parent: &Path, directory: &Path) -> Result<()> {
    make(directory)?;
    // A new cpuset is empty, and a process cannot join an empty one.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if let Ok(value) = fs::read_to_string(parent.join(file)) {
            fs::write(directory.join(file), value)?;
        }
    }
    Ok(())
}

fn make_v2(parent: &Path, directory: &Path) -> Result<()> {
    delegate(parent)?;
    make(directory)
}

/// Lets the children of a version 2 group use every controller it has.
fn delegate(directory: &Path) -> Result<()> {
    let controllers = fs::read_to_string(directory.join("cgroup.controllers"))?;
    let has = |wanted: &str| controllers.split_whitespace().any(|name| name == wanted);
    if let Some(missing) = NEEDED_CONTROLLERS.into_iter().find(|name| !has(name)) {
        bail!(
            "{} has no {missing} controller, which kubelet needs",
            directory.display()
        );
    }
    let enable: Vec<String> = controllers
        .split_whitespace()
        .map(|c| format!("+{c}"))
        .collect();
    fs::write(directory.join("cgroup.subtree_control"), enable.join(" ")).with_context(|| {
        format!(
            "let children of {} use its controllers. In a container the processes of its root \
             group must first be moved into a child group",
            directory.display()
        )
    })
}

fn remove_tree(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let members = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| line.parse().ok()) {
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            // Its own group, named for this cluster: whatever is in it is the cluster's.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    // Fails while a dying process holds it; the caller tries again.
    let _ = fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_wins_over_a_version_2_tree_beside_it() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                      32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let controllers = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory"].map(PathBuf::from);
        let expected = Hierarchies::V1 {
            controllers: controllers.to_vec(),
            beside: Some("/sys/fs/cgroup/unified".into()),
        };
        assert_eq!(Hierarchies::parse(mounts), Some(expected));
    }

    #[test]
    fn version_2_is_one_mount() {
        let mounts = "31 30 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            Hierarchies::parse(mounts),
            Some(Hierarchies::V2("/sys/fs/cgroup".into()))
        );
    }

    #[test]
    fn other_mounts_are_no_control_groups() {
        assert_eq!(
            Hierarchies::parse("1 2 0:3 / /proc rw - proc proc rw\n"),
            None
        );
    }
}
