//! A Kubernetes cluster to test on: one of our own on this machine, or an existing one; and what builds and runs
//! programs for it.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command as Process, ExitCode},
};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

mod applications;
pub mod cargo;
mod cgroup;
mod class_archive;
mod config;
mod control_plane;
mod existing;
mod hash;
pub mod image;
mod images;
pub mod jars;
mod keeper;
mod lifecycle;
mod load;
mod network;
mod node;
mod oci;
mod paths;
pub mod process;
mod programs;
pub mod progress;
pub mod requirements;
mod seed;
mod state;
mod status;

use paths::Paths;
use state::{Layout, Running};

/// Which cluster to use.
#[derive(Clone, Debug, Default, Args)]
pub struct Target {
    /// Use the existing cluster of this kubeconfig instead of one on this machine
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Use the existing cluster that the variable KUBECONFIG names
    #[arg(long, global = true)]
    existing: bool,
}

impl Target {
    /// Whether an existing cluster is asked for.
    pub fn is_existing(&self) -> Result<bool> {
        Ok(self.kubeconfig()?.is_some())
    }

    /// The existing cluster's kubeconfig, if one is asked for.
    fn kubeconfig(&self) -> Result<Option<PathBuf>> {
        let environment = env::var_os("KUBECONFIG").map(PathBuf::from);
        existing::kubeconfig(self.kubeconfig.as_deref(), self.existing, environment)
    }
}

/// What to do with the cluster.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build Kubernetes and the images into the cache (`up` does it too)
    Build,
    /// Start the cluster and return when every node is ready
    Up {
        /// How many nodes
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
        nodes: u8,
    },
    /// Stop the cluster and remove everything of it
    Down,
    /// Show nodes, components and where the logs are
    Status,
    /// Run a command in the cluster's network, with KUBECONFIG, kubectl and helm
    #[command(disable_help_flag = true)]
    Exec {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// Run kubectl
    #[command(disable_help_flag = true)]
    Kubectl {
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Bring images to every node; without arguments those of the tests that changed since `up`
    Load {
        /// Archives: OCI layouts or what `docker save` writes
        archives: Vec<PathBuf>,
    },
    /// Build an image from a Dockerfile and bring it to every node
    Image {
        /// The Dockerfile
        #[arg(long, default_value = "Dockerfile")]
        file: PathBuf,
        /// The image's full name
        #[arg(long)]
        tag: String,
        /// The directory that COPY copies from
        #[arg(default_value = ".")]
        context: PathBuf,
    },
    /// Cut a node off the network
    Cut {
        /// The node's number
        node: u8,
    },
    /// Give a node its network back
    Heal {
        /// The node's number
        node: u8,
    },
    /// The first process of the cluster (for `up` to call)
    #[command(hide = true)]
    Keep,
}

/// Runs a command of `cargo xtask cluster`.
pub fn run(command: Command, target: &Target) -> Result<ExitCode> {
    let paths = Paths::from_environment()?;
    if target.kubeconfig()?.is_some() {
        let ours = match command {
            Command::Up { .. } => Some("up"),
            Command::Down => Some("down"),
            Command::Cut { .. } => Some("cut"),
            Command::Heal { .. } => Some("heal"),
            _ => None,
        };
        if let Some(name) = ours {
            bail!("`{name}` is for the cluster on this machine, not for an existing one");
        }
    }
    match command {
        Command::Build => lifecycle::build(&paths).map(drop)?,
        Command::Up { nodes } => Cluster::up(nodes).map(drop)?,
        Command::Down => lifecycle::down(&paths)?,
        Command::Status => Cluster::open(target)?.print_status()?,
        Command::Exec { command } => return become_command(Cluster::open(target)?.exec(&command)?),
        Command::Kubectl { arguments } => {
            return become_command(Cluster::open(target)?.kubectl(&arguments)?);
        }
        Command::Load { archives } => {
            let cluster = Cluster::open(target)?;
            if archives.is_empty() {
                cluster.load_test_images()?;
            }
            for archive in archives {
                cluster.load(&archive)?;
            }
        }
        Command::Image { file, tag, context } => {
            let archive = image::build_from_dockerfile(&file, &context, &tag)?;
            Cluster::open(target)?.load(&archive)?;
        }
        Command::Cut { node } => lifecycle::set_cable(&paths, node, false)?,
        Command::Heal { node } => lifecycle::set_cable(&paths, node, true)?,
        Command::Keep => keeper::keep(&paths)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Becomes the command, so that a signal to this process is one to the command.
fn become_command(mut command: Process) -> Result<ExitCode> {
    let error = command.exec();
    Err(error).with_context(|| format!("run {}", process::name(&command)))
}

/// Helm: the one that was built for the cluster, else that of the path.
pub fn find_helm() -> Result<Option<PathBuf>> {
    let (programs, built) = programs::locate(&Paths::from_environment()?)?;
    let built = built.then(|| programs.helm());
    Ok(built.or_else(|| process::find_program("helm")))
}

/// A cluster that is there and can be used.
#[derive(Debug)]
pub struct Cluster {
    paths: Paths,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Own(Running, Layout),
    Existing(PathBuf),
}

impl Cluster {
    /// Starts the cluster on this machine, or finds that it runs.
    pub fn up(nodes: u8) -> Result<Self> {
        let paths = Paths::from_environment()?;
        lifecycle::up(&paths, nodes)?;
        Self::open(&Target::default())
    }

    /// Stops the cluster on this machine.
    pub fn down() -> Result<()> {
        lifecycle::down(&Paths::from_environment()?)
    }

    /// The cluster that is asked for; one on this machine must run.
    pub fn open(target: &Target) -> Result<Self> {
        let paths = Paths::from_environment()?;
        let kind = match target.kubeconfig()? {
            Some(file) => Kind::Existing(file),
            None => {
                let (running, layout) = paths.ready()?;
                Kind::Own(running, layout)
            }
        };
        Ok(Self { paths, kind })
    }

    /// The administrator's kubeconfig. That of a cluster on this machine is valid in [`Self::exec`].
    pub fn kubeconfig(&self) -> PathBuf {
        match &self.kind {
            Kind::Own(..) => self.paths.kubeconfig(),
            Kind::Existing(file) => file.clone(),
        }
    }

    /// A command that reaches the cluster: in its network, with its DNS, or for an existing cluster on
    /// the host. Killing it kills what it runs.
    pub fn exec<S: AsRef<str>>(&self, words: &[S]) -> Result<Process> {
        let words: Vec<String> = words.iter().map(|word| word.as_ref().to_owned()).collect();
        if words.is_empty() {
            bail!("a command is missing");
        }
        let running = match &self.kind {
            Kind::Existing(file) => return Ok(existing::exec(file, &words)),
            Kind::Own(running, _) => running,
        };
        let mut command = process::command("nsenter", ["--net", "--mount", "--pid", "--target"]);
        command.arg(running.inner.pid().to_string());
        command.arg(directory_option(env::current_dir().ok().as_deref()));
        // nsenter stays outside as the parent: when it is killed, the kernel kills the command.
        command
            .args(["--", "setpriv", "--pdeathsig", "KILL", "--"])
            .args(&words);
        command.env("KUBECONFIG", self.kubeconfig());
        // As for Kubernetes' own programs: kubectl ends before it needs to collect garbage.
        command.env("GOGC", "400");
        command.env(
            "PATH",
            search_path(&self.paths.programs(), env::var_os("PATH"))?,
        );
        Ok(command)
    }

    /// kubectl with these arguments.
    pub fn kubectl<S: AsRef<str>>(&self, arguments: &[S]) -> Result<Process> {
        let mut command = match &self.kind {
            Kind::Existing(file) => existing::kubectl(&self.paths, file)?,
            Kind::Own(..) => {
                let kubectl = self.paths.programs().join("kubectl");
                self.exec(&[kubectl.to_string_lossy()])?
            }
        };
        command.args(arguments.iter().map(AsRef::as_ref));
        Ok(command)
    }

    /// Brings the images of an archive to every node.
    pub fn load(&self, archive: &Path) -> Result<()> {
        match &self.kind {
            Kind::Existing(file) => existing::load(&self.paths, file, archive),
            Kind::Own(running, layout) => load::load(&self.paths, *running, layout, archive),
        }
    }

    fn print_status(&self) -> Result<()> {
        if let Kind::Own(running, layout) = &self.kind {
            println!("{}", status::components(&self.paths)?);
            for node in status::cut_nodes(*running, layout.nodes)? {
                println!("  {} is cut off", network::node_name(node));
            }
            println!("logs:       {}", self.paths.logs().display());
        }
        println!("kubeconfig: {}", self.kubeconfig().display());
        let status = self.kubectl(&["get", "nodes", "-o", "wide"])?.status()?;
        if !status.success() {
            bail!("the API server does not answer");
        }
        Ok(())
    }

    /// Builds the images of the tests and brings those to the nodes that changed since `up`.
    pub fn load_test_images(&self) -> Result<()> {
        let artifacts = lifecycle::build(&self.paths)?;
        progress::say("bringing the test images to the nodes ...");
        for archive in artifacts.archives.all() {
            self.load(archive)?;
        }
        Ok(())
    }
}

/// Where a command starts: here, if here exists.
fn directory_option(directory: Option<&Path>) -> String {
    format!("--wd={}", directory.unwrap_or(Path::new("/")).display())
}

fn search_path(first: &Path, path: Option<OsString>) -> Result<OsString> {
    let path = path.unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let all = std::iter::once(first.to_owned())
        .chain(env::split_paths(&path))
        .chain(system);
    Ok(env::join_paths(all)?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: Command,
    }

    fn parse(words: &str) -> Line {
        Line::try_parse_from(std::iter::once("x").chain(words.split(' '))).unwrap()
    }

    #[test]
    fn three_nodes_unless_asked() {
        assert!(matches!(parse("up").command, Command::Up { nodes: 3 }));
        assert!(matches!(
            parse("up --nodes 5").command,
            Command::Up { nodes: 5 }
        ));
        assert!(Line::try_parse_from(["x", "up", "--nodes", "0"]).is_err());
    }

    #[test]
    fn kubectl_gets_all_its_arguments() {
        let Command::Kubectl { arguments } = parse("kubectl -n foo get pods -o=wide").command
        else {
            panic!("not kubectl");
        };
        assert_eq!(arguments, ["-n", "foo", "get", "pods", "-o=wide"]);
        let Command::Kubectl { arguments } = parse("kubectl get --help").command else {
            panic!("not kubectl");
        };
        assert_eq!(arguments, ["get", "--help"]);
    }

    #[test]
    fn the_target_may_come_anywhere() {
        let line = parse("load --kubeconfig /k a.tar");
        assert_eq!(line.target.kubeconfig, Some(PathBuf::from("/k")));
        assert!(parse("--existing status").target.existing);
    }

    #[test]
    fn our_programs_come_first() {
        let path = search_path(Path::new("/s/bin"), Some("/usr/bin".into())).unwrap();
        assert!(path.to_string_lossy().starts_with("/s/bin:/usr/bin:"));
    }
}
