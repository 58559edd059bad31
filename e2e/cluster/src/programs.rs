//! Building Kubernetes, helm, CoreDNS and the agent for NetworkPolicies from their Go modules.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{hash::Inputs, paths::Paths, seed};
use crate::{process, progress};

/// Changes when the way of building does.
const RECIPE: &str = "1";

/// The built programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    directory: PathBuf,
    /// Apart from the others, which take long to build.
    policies: PathBuf,
}

impl Programs {
    /// All of Kubernetes.
    pub(crate) fn kube(&self) -> PathBuf {
        self.directory.join("kube")
    }

    /// Helm.
    pub(crate) fn helm(&self) -> PathBuf {
        self.directory.join("helm")
    }

    /// The DNS server.
    pub(crate) fn coredns(&self) -> PathBuf {
        self.directory.join("coredns")
    }

    /// The agent that obeys NetworkPolicies.
    pub(crate) fn policies(&self) -> PathBuf {
        self.policies.join("policies")
    }
}

/// Where the programs of this source are, and whether they are there.
pub(crate) fn locate(paths: &Paths) -> Result<(Programs, bool)> {
    let programs = Programs {
        directory: directory(paths, "programs", &["kube", "dns"])?,
        policies: directory(paths, "policies", &["policies"])?,
    };
    let built = programs.directory.exists() && programs.policies.exists();
    Ok((programs, built))
}

/// The directory for what is built from these modules.
fn directory(paths: &Paths, name: &str, modules: &[&str]) -> Result<PathBuf> {
    let mut inputs = Inputs::default().value("recipe", RECIPE);
    inputs = inputs.value("architecture", std::env::consts::ARCH);
    for module in modules {
        inputs = inputs
            .value("module", module)
            .tree(&paths.recipes().join(module))?;
    }
    Ok(paths.cache.join(format!("{name}-{}", inputs.key()?)))
}

/// Builds what is not in the cache.
pub(crate) fn build(paths: &Paths) -> Result<Programs> {
    let (programs, _) = locate(paths)?;
    complete(&programs.directory, |partial| {
        build_kubernetes(paths, partial)
    })?;
    // After Kubernetes, whose packages it shares.
    complete(&programs.policies, |partial| {
        progress::long_step(
            "building the agent for NetworkPolicies (about 1 minute, once)",
            go_build(&paths.recipes().join("policies"), &partial.join("policies"))
                .args(["-ldflags", "-s -w", "."]),
            &paths.build_log("policies"),
        )
    })?;
    Ok(programs)
}

/// Fills a directory that does not exist. It gets its name when it is complete.
fn complete(directory: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if directory.exists() {
        return Ok(());
    }
    let partial = directory.with_extension("partial");
    seed::remove(&partial)?;
    fs::create_dir_all(&partial)?;
    fill(&partial)?;
    Ok(fs::rename(&partial, directory)?)
}

fn build_kubernetes(paths: &Paths, partial: &Path) -> Result<()> {
    let kube = paths.recipes().join("kube");
    progress::long_step(
        "building Kubernetes and helm (about 6 minutes on two cores, once)",
        go_build(&kube, partial)
            .arg("-ldflags")
            .arg(kube_flags(&kube)?)
            .args([".", "helm.sh/helm/v3/cmd/helm"]),
        &paths.build_log("kube"),
    )?;
    progress::long_step(
        "building CoreDNS (about 1 minute, once)",
        go_build(&paths.recipes().join("dns"), &partial.join("coredns"))
            .args(["-ldflags", "-s -w", "."]),
        &paths.build_log("coredns"),
    )
}

/// A command that builds a static program.
pub(super) fn go_build(module: &Path, out: &Path) -> Command {
    let mut command = process::command("go", ["build", "-trimpath", "-buildvcs=false", "-o"]);
    // A directory must say that it is one.
    command.arg(if out.is_dir() {
        out.join("")
    } else {
        out.to_owned()
    });
    command.current_dir(module).env("CGO_ENABLED", "0");
    command
}

fn kube_flags(module: &Path) -> Result<String> {
    let version = |name: &str| {
        let mut list = process::command("go", ["list", "-m", "-f", "{{.Version}}", name]);
        process::output(list.current_dir(module)).map(|text| text.trim().to_owned())
    };
    linker_flags(&version("k8s.io/kubernetes")?, &version("helm.sh/helm/v3")?)
}

/// The programs panic at start without a version; helm without one thinks it talks to Kubernetes 1.20.
fn linker_flags(kubernetes: &str, helm: &str) -> Result<String> {
    let mut numbers = kubernetes.trim_start_matches('v').split('.');
    let major = numbers.next().context("a version")?;
    let minor = numbers
        .next()
        .with_context(|| format!("{kubernetes} is not a version"))?;
    let mut flags = "-s -w".to_owned();
    for (symbol, value) in [
        ("k8s.io/component-base/version.gitVersion", kubernetes),
        ("k8s.io/component-base/version.gitMajor", major),
        ("k8s.io/component-base/version.gitMinor", minor),
        ("helm.sh/helm/v3/internal/version.version", helm),
        ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor", major),
        ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor", minor),
        ("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor", major),
        ("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor", minor),
    ] {
        flags.push_str(&format!(" -X {symbol}={value}"));
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linker_flags_carry_the_versions() {
        let flags = linker_flags("v1.34.4", "v3.19.5").unwrap();
        assert!(flags.contains("version.gitVersion=v1.34.4"), "{flags}");
        assert!(flags.contains("version.gitMinor=34"), "{flags}");
        assert!(flags.contains("chartutil.k8sVersionMinor=34"), "{flags}");
        assert!(linker_flags("latest", "v3").is_err());
    }
}
