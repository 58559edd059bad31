//! A cluster that others run, such as kind: reached through a kubeconfig, from the host.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::{paths::Paths, programs};
use crate::process;

/// A command on the host that talks to the cluster.
pub(crate) fn exec(kubeconfig: &Path, words: &[String]) -> Command {
    let mut command = process::command(&words[0], &words[1..]);
    command.env("KUBECONFIG", kubeconfig);
    command
}

/// kubectl: the host's, or the one that was built for the test cluster.
pub(crate) fn kubectl(paths: &Paths, kubeconfig: &Path) -> Result<Command> {
    let mut command = match process::find_program("kubectl") {
        Some(program) => Command::new(program),
        None => {
            let (programs, built) = programs::locate(paths)?;
            if !built {
                bail!("install kubectl, or build it with `cargo xtask cluster build`");
            }
            process::command(programs.kube(), ["kubectl"])
        }
    };
    command.env("KUBECONFIG", kubeconfig);
    Ok(command)
}

/// Loads an image, which only kind can do without a registry.
pub(crate) fn load(paths: &Paths, kubeconfig: &Path, archive: &Path) -> Result<()> {
    let mut ask = kubectl(paths, kubeconfig)?;
    let context = process::output(ask.args(["config", "current-context"]))?;
    let context = context.trim();
    match kind_cluster(context) {
        Some(name) if process::find_program("kind").is_some() => {
            let mut kind = process::command("kind", ["load", "image-archive", "--name", name]);
            process::run(kind.arg(archive))
        }
        Some(_) => bail!("install kind: it brings images to the nodes of {context}"),
        None => bail!(
            "{context} is not a kind cluster: push the image of {} to a registry that its nodes \
             can reach, or import the archive on every node with `ctr -n k8s.io images import`",
            archive.display()
        ),
    }
}

/// The cluster's name in kind, if the context is one of kind's.
fn kind_cluster(context: &str) -> Option<&str> {
    context
        .strip_prefix("kind-")
        .filter(|name| !name.is_empty())
}

/// The kubeconfig that the command line or the environment names.
pub(crate) fn kubeconfig(
    option: Option<&Path>,
    existing: bool,
    environment: Option<PathBuf>,
) -> Result<Option<PathBuf>> {
    let file = match (option, existing) {
        (Some(file), _) => file.to_owned(),
        (None, false) => return Ok(None),
        (None, true) => environment
            .filter(|file| !file.as_os_str().is_empty())
            .context("--existing needs KUBECONFIG to name the cluster's kubeconfig")?,
    };
    if !file.is_file() {
        bail!("{} is not a kubeconfig file", file.display());
    }
    Ok(Some(std::path::absolute(file)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_of_kind() {
        assert_eq!(kind_cluster("kind-test"), Some("test"));
        assert_eq!(kind_cluster("kind-"), None);
        assert_eq!(kind_cluster("minikube"), None);
    }

    #[test]
    fn the_environment_counts_only_when_asked() {
        let file = PathBuf::from(file!());
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert_eq!(kubeconfig(None, false, Some(here.clone())).unwrap(), None);
        assert_eq!(
            kubeconfig(None, true, Some(here.clone())).unwrap(),
            Some(here.clone())
        );
        assert_eq!(kubeconfig(Some(&here), false, None).unwrap(), Some(here));
        assert!(kubeconfig(None, true, None).is_err());
        assert!(kubeconfig(Some(&file.join("missing")), false, None).is_err());
    }
}
