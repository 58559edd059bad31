//! containerd's directory with images already unpacked in it. Importing a Java image takes seconds;
//! linking the unpacked files takes a fraction of one, for every node of every cluster.

use std::{
    fs,
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::config;
use crate::{process, progress};

/// How long containerd may take to start.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// Copies a containerd directory. Unpacked files and blobs are never written again, so they are
/// shared (where the file system can); databases are not.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().context("a directory with a parent")?;
    fs::create_dir_all(parent)?;
    let linked = process::run(process::command("cp", ["-a", "--link"]).arg(from).arg(to));
    if linked.is_err() {
        // Another file system: every node gets its own copy.
        remove(to)?;
        return process::run(process::command("cp", ["-a"]).arg(from).arg(to));
    }
    for plugin in fs::read_dir(to)? {
        for file in fs::read_dir(plugin?.path())? {
            let file = file?.path();
            if file.extension().is_some_and(|extension| extension == "db") {
                let copy = file.with_extension("copy");
                fs::copy(&file, &copy)?;
                fs::rename(&copy, &file)?;
            }
        }
    }
    Ok(())
}

/// Removes a directory if it is there.
pub(crate) fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// Makes `seed` from another one (or nothing) and the images of an archive.
pub(crate) fn build(base: Option<&Path>, archive: &Path, seed: &Path) -> Result<()> {
    let started = Instant::now();
    progress::say(format!("unpacking {} ...", archive.display()));
    let partial = seed.with_extension("partial");
    remove(&partial)?;
    if let Some(base) = base {
        copy(base, &partial)?;
    }
    // Not below the cache: a socket's path must be short.
    let work = std::env::temp_dir().join(format!("bellwether-seed-{}", std::process::id()));
    fs::create_dir_all(&work)?;
    let imported = import(&work, &partial, archive);
    remove(&work)?;
    imported?;
    remove(seed)?;
    fs::rename(&partial, seed)?;
    progress::say(format!(
        "  done in {}",
        progress::seconds(started.elapsed())
    ));
    Ok(())
}

fn import(work: &Path, root: &Path, archive: &Path) -> Result<()> {
    let configuration = work.join("containerd.toml");
    fs::write(&configuration, config::containerd(work, root, None))?;
    let log = fs::File::create(work.join("log"))?;
    // In a mount namespace of its own, so that nothing stays mounted; ended by the kernel if this
    // process is.
    let mut command = process::command("setpriv", ["--pdeathsig", "TERM", "--"]);
    command.args([
        "unshare",
        "--mount",
        "--fork",
        "--kill-child",
        "containerd",
        "--config",
    ]);
    command
        .arg(&configuration)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let mut containerd = Killed(command.spawn().context("run containerd")?);
    let socket = work.join("containerd.sock");
    await_containerd(&socket, &mut containerd.0).with_context(|| {
        let said = fs::read_to_string(work.join("log")).unwrap_or_default();
        process::last_lines(&said, 15)
    })?;
    process::run(ctr(&socket).args(["images", "import"]).arg(archive))
}

/// A client of a containerd, in the name space of Kubernetes.
pub(crate) fn ctr(socket: &Path) -> std::process::Command {
    let mut command = process::command("ctr", ["--address"]);
    command.arg(socket).args(["--namespace", "k8s.io"]);
    command
}

fn await_containerd(socket: &Path, containerd: &mut Child) -> Result<()> {
    let deadline = Instant::now() + START_DEADLINE;
    while process::run(ctr(socket).arg("version")).is_err() {
        if let Some(status) = containerd.try_wait()? {
            bail!("containerd ended ({status})");
        }
        if Instant::now() > deadline {
            bail!("containerd does not answer");
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// A child that does not outlive its owner.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
