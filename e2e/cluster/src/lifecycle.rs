//! Starting and stopping the cluster.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, bail};

use super::{
    cgroup::Hierarchies,
    images::{self, Archives},
    keeper, network,
    paths::Paths,
    programs::{self, Programs},
    requirements, seed,
    state::{Layout, Process},
};
use crate::{process, progress};

/// How long the start may take as a whole, on a slow machine.
const START_DEADLINE: Duration = Duration::from_secs(300);

/// How long images stay in the cache that no cluster asks for.
const UNUSED: Duration = Duration::from_secs(2 * 60 * 60);

/// How long the kernel may take to end all processes.
const STOP_DEADLINE: Duration = Duration::from_secs(20);

/// Everything that `up` needs and a fresh machine lacks.
pub(crate) struct Artifacts {
    programs: Programs,
    /// The images as archives, for clusters that are not ours.
    pub(crate) archives: Archives,
    seed: PathBuf,
}

/// Builds what is not in the cache.
pub(crate) fn build(paths: &Paths) -> Result<Artifacts> {
    requirements::to_run()?;
    let _lock = Lock::take(paths, "build")?;
    let (_, programs_built) = programs::locate(paths)?;
    let (_, images_built) = images::locate(paths)?;
    if !programs_built || !images_built {
        requirements::to_build()?;
    }
    let programs = programs::build(paths)?;
    let archives = images::build(paths)?;
    let all = archives.all();
    let mut seeds: Vec<PathBuf> = Vec::new();
    for count in 1..=all.len() {
        let seed = seed_of(paths, &all[..count])?;
        if !seed.exists() {
            // Each archive brings its own layers; those that it shares with the ones before are there.
            let base = seeds.last().map(PathBuf::as_path);
            seed::build(base, all[count - 1], &seed)?;
        }
        seeds.push(seed);
    }
    let used = all
        .iter()
        .copied()
        .chain(seeds.iter().map(PathBuf::as_path));
    forget_old(paths, &used.collect::<Vec<_>>())?;
    let seed = seeds.pop().context("there are archives")?;
    Ok(Artifacts {
        programs,
        archives,
        seed,
    })
}

/// The seed that holds these archives' images.
fn seed_of(paths: &Paths, archives: &[&Path]) -> Result<PathBuf> {
    let mut name = "seed".to_owned();
    for archive in archives {
        let stem = archive.file_stem().context("an archive with a name")?;
        name = format!("{name}-{}", stem.to_string_lossy());
    }
    Ok(paths.cache.join(name))
}

/// Images are large and change with the tests, so images that were not used for a while are
/// removed. Not at once, because clusters of two clones of the repository share the cache.
fn forget_old(paths: &Paths, used: &[&Path]) -> Result<()> {
    let now = SystemTime::now();
    for path in used {
        File::open(path)?.set_modified(now)?;
    }
    for entry in fs::read_dir(&paths.cache)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let ours = ["servers-", "applications-", "clients-", "seed-"]
            .iter()
            .any(|kind| name.starts_with(kind));
        let age = now
            .duration_since(path.metadata()?.modified()?)
            .unwrap_or_default();
        if !ours || age < UNUSED {
            continue;
        }
        if path.is_dir() {
            seed::remove(&path)?
        } else {
            fs::remove_file(&path)?
        }
    }
    Ok(())
}

/// Starts a cluster, or finds that it runs.
pub(crate) fn up(paths: &Paths, nodes: u8) -> Result<()> {
    let started = Instant::now();
    if already_up(paths, nodes)? {
        return Ok(());
    }
    let artifacts = build(paths)?;
    let _lock = Lock::take(paths, &paths.cgroup()?)?;
    if already_up(paths, nodes)? {
        return Ok(());
    }
    clean(paths)?;
    let layout = Layout {
        nodes,
        seed: artifacts.seed,
        cni: requirements::to_run()?,
        cgroup: paths.cgroup()?,
        mount_points: make_mount_points()?,
    };
    fs::create_dir_all(paths.logs())?;
    paths.write_layout(&layout)?;
    link_programs(paths, &artifacts.programs)?;
    progress::say(format!("starting {nodes} nodes ..."));
    let (keeper, leash) = start_keeper(paths)?;
    if let Err(error) = await_ready(paths, keeper, leash) {
        let kept = paths.logs();
        // The logs stay for a look; `down` and the next `up` remove them.
        stop(paths)?;
        return Err(error.context(format!(
            "the cluster did not start; logs: {}",
            kept.display()
        )));
    }
    progress::say(format!(
        "{nodes} nodes are ready in {}",
        progress::seconds(started.elapsed())
    ));
    Ok(())
}

fn already_up(paths: &Paths, nodes: u8) -> Result<bool> {
    if paths.running()?.is_none() {
        return Ok(false);
    }
    let (_, layout) = paths.ready()?;
    if layout.nodes != nodes {
        bail!(
            "a cluster of {} nodes is running: end it first with `cargo xtask cluster down`",
            layout.nodes
        );
    }
    progress::say(format!("a cluster of {nodes} nodes is already running"));
    Ok(true)
}

/// Makes the directories that the cluster mounts over, and returns which to remove after it: those
/// that did not exist, and those that exist only for another cluster.
fn make_mount_points() -> Result<Vec<PathBuf>> {
    let mut ours = Vec::new();
    for point in keeper::MOUNT_POINTS.iter().map(Path::new) {
        if !point.exists() || is_mounted_over(point) {
            fs::create_dir_all(point).with_context(|| format!("create {}", point.display()))?;
            ours.push(point.to_owned());
        }
    }
    Ok(ours)
}

/// Whether any process sees something mounted there. To remove the directory would unmount it.
fn is_mounted_over(point: &Path) -> bool {
    let is_point = |line: &str| line.split_whitespace().nth(4).map(Path::new) == Some(point);
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .any(|process| {
            let mounts = fs::read_to_string(process.path().join("mountinfo")).unwrap_or_default();
            mounts.lines().any(is_point)
        })
}

fn link_programs(paths: &Paths, programs: &Programs) -> Result<()> {
    let directory = paths.programs();
    fs::create_dir_all(&directory)?;
    for (name, target) in [
        ("kube", programs.kube()),
        ("kubectl", programs.kube()),
        ("helm", programs.helm()),
        ("coredns", programs.coredns()),
        ("policies", programs.policies()),
    ] {
        std::os::unix::fs::symlink(target, directory.join(name))?;
    }
    Ok(())
}

/// Starts the keeper in namespaces of its own and in a session of its own, so that ending the
/// terminal does not end the cluster. Until it is released, it ends with this process.
fn start_keeper(paths: &Paths) -> Result<(Child, ChildStdin)> {
    let log = File::create(paths.logs().join("keeper.log"))?;
    let mut command = Command::new("setsid");
    command.args([
        "unshare",
        "--net",
        "--mount",
        "--pid",
        "--mount-proc",
        "--fork",
    ]);
    command
        .arg("--kill-child")
        .arg("--")
        .arg(std::env::current_exe()?)
        .args(["cluster", "keep"]);
    command
        .env("BELLWETHER_CLUSTER_DIR", &paths.state)
        .env("BELLWETHER_CACHE", &paths.cache);
    // Kubernetes' programs collect garbage more seldom: memory is there, and the processor is what tests wait for.
    command.env("GOGC", "400");
    command
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log);
    let mut keeper = command.spawn().context("run setsid and unshare")?;
    let leash = keeper.stdin.take().context("the keeper's standard input")?;
    let process = Process::find(i32::try_from(keeper.id())?).context("the keeper ended at once")?;
    paths.write_keeper(process)?;
    Ok((keeper, leash))
}

fn await_ready(paths: &Paths, mut keeper: Child, mut leash: ChildStdin) -> Result<()> {
    let deadline = Instant::now() + START_DEADLINE;
    while !paths.ready_file().exists() {
        if let Some(status) = keeper.try_wait()? {
            let log = paths.logs().join("keeper.log");
            let said = fs::read_to_string(log).unwrap_or_default();
            bail!(
                "its keeper ended ({status}):\n{}",
                process::last_lines(&said, 15)
            );
        }
        if Instant::now() > deadline {
            bail!("it is not ready after {} s", START_DEADLINE.as_secs());
        }
        thread::sleep(Duration::from_millis(100));
    }
    writeln!(leash, "{}", keeper::RELEASE).context("release the keeper")?;
    Ok(())
}

/// Ends the cluster and removes everything of it.
pub(crate) fn down(paths: &Paths) -> Result<()> {
    let _lock = Lock::take(paths, &paths.cgroup()?)?;
    let was_running = paths.keeper()?.is_some();
    clean(paths)?;
    progress::say(if was_running {
        "the cluster is gone"
    } else {
        "no cluster was running"
    });
    Ok(())
}

/// Ends what runs, well or not, and removes the state directory.
fn clean(paths: &Paths) -> Result<()> {
    stop(paths)?;
    if !paths.state.exists() {
        return Ok(());
    }
    let Some(layout) = paths.layout()? else {
        let empty = fs::read_dir(&paths.state)?.next().is_none();
        if !empty {
            bail!(
                "{} holds something else: set BELLWETHER_CLUSTER_DIR to another directory",
                paths.state.display()
            );
        }
        return Ok(());
    };
    for point in layout
        .mount_points
        .iter()
        .filter(|point| !is_mounted_over(point))
    {
        // Not empty means that somebody else uses it by now.
        let _ = fs::remove_dir(point);
    }
    seed::remove(&paths.state)
}

/// Ends every process of the cluster and removes its control groups.
fn stop(paths: &Paths) -> Result<()> {
    if let Some(outer) = paths.keeper()? {
        let inner = outer.child();
        for process in [Some(outer), inner].into_iter().flatten() {
            process.kill();
        }
        // The first process of a namespace ends last.
        let deadline = Instant::now() + STOP_DEADLINE;
        while outer.is_alive() || inner.is_some_and(Process::is_alive) {
            if Instant::now() > deadline {
                bail!("process {} does not end", outer.pid());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    Hierarchies::find()?.remove(&paths.cgroup()?)
}

/// Pulls a node's network cable, or plugs it in again.
pub(crate) fn set_cable(paths: &Paths, number: u8, plugged: bool) -> Result<()> {
    let (running, layout) = paths.ready()?;
    if !(1..=layout.nodes).contains(&number) {
        bail!(
            "there is no node {number}: this cluster has nodes 1 to {}",
            layout.nodes
        );
    }
    let state = if plugged { "up" } else { "down" };
    let cable = network::node_cable(number);
    let mut command = process::command("nsenter", ["--net", "--target"]);
    command.arg(running.inner.pid().to_string());
    process::run(command.args(["--", "ip", "link", "set", &cable, state]))?;
    let did = if plugged {
        "plugged in again"
    } else {
        "cut off"
    };
    progress::say(format!("{} is {did}", network::node_name(number)));
    Ok(())
}

/// Keeps two of this program from doing the same thing at once.
struct Lock(#[allow(dead_code, reason = "held until dropped")] File);

impl Lock {
    fn take(paths: &Paths, name: &str) -> Result<Self> {
        fs::create_dir_all(&paths.cache)
            .with_context(|| format!("create {}", paths.cache.display()))?;
        let file = File::create(paths.cache.join(format!("{name}.lock")))?;
        if file.try_lock().is_err() {
            progress::say("waiting for another `cargo xtask cluster` to finish ...");
            file.lock().context("take a lock")?;
        }
        Ok(Self(file))
    }
}
