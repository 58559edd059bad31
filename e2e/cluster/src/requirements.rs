//! What the machine must have. Everything that is missing is reported at once.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::cgroup::Hierarchies;
use crate::{process, progress};

/// A program, the Debian package that has it, and where else to get it.
struct Program {
    name: &'static str,
    package: &'static str,
}

const fn program(name: &'static str, package: &'static str) -> Program {
    Program { name, package }
}

/// What running the cluster takes.
const TO_RUN: &[Program] = &[
    program("containerd", "containerd"),
    program("ctr", "containerd"),
    program("runc", "runc"),
    program("ip", "iproute2"),
    program("iptables", "iptables"),
    program("conntrack", "conntrack"),
    program("unshare", "util-linux"),
    program("nsenter", "util-linux"),
    program("setpriv", "util-linux"),
    program("setsid", "util-linux"),
    program("mount", "mount"),
    program("tar", "tar"),
    program("sha256sum", "coreutils"),
];

/// What building it takes; Go is not among them, because distributions' versions are too old.
const TO_BUILD: &[Program] = &[
    program("mvn", "maven"),
    program("javac", "default-jdk-headless"),
    program("mmdebstrap", "mmdebstrap"),
    program("cc", "gcc"),
    program("python3", "python3"),
    program("pip3", "python3-pip"),
];

/// What ZooKeeper servers without a cluster take, and the examples that are tried beside them: `java` runs one from its source,
/// which takes the compiler. Go is not among them, because distributions' versions are too old.
const TO_RUN_SERVERS: &[Program] = &[
    program("mvn", "maven"),
    program("javac", "default-jdk-headless"),
    program("python3", "python3"),
    program("setpriv", "util-linux"),
];

/// What building an image from a Dockerfile takes.
const TO_BUILD_DOCKERFILES: &[Program] = &[program("buildah", "buildah")];

/// What looking at the operator's page takes.
const TO_LOOK_AT_PAGES: &[Program] = &[program("chromium", "chromium")];

/// Letters for it: a browser that is installed without recommendations has none.
const FONT_PACKAGE: &str = "fonts-liberation";
/// Where Debian keeps them.
const FONT_DIRECTORY: &str = "/usr/share/fonts/truetype/liberation";

/// What asking the metrics takes: Prometheus, and the tool that tests alerts.
const TO_MONITOR: &[Program] = &[
    program("promtool", "prometheus"),
    program("prometheus", "prometheus"),
];

/// Where distributions keep the network plugins.
const CNI_DIRECTORIES: &[&str] = &[
    "/usr/lib/cni",
    "/opt/cni/bin",
    "/usr/libexec/cni",
    "/usr/lib/x86_64-linux-gnu/cni",
];

/// The network plugins' package in Debian.
const CNI_PACKAGE: &str = "containernetworking-plugins";

/// Makes sure that a cluster can run here, and says where the network plugins are.
pub fn to_run() -> Result<PathBuf> {
    let mut missing = this_machine();
    missing.extend(install(
        TO_RUN,
        cni_directory().is_none().then_some(CNI_PACKAGE),
    ));
    if cni_directory().is_none() {
        missing.push(format!(
            "the network plugins: install {CNI_PACKAGE} (in /opt/cni/bin)"
        ));
    }
    report(missing)?;
    match cni_directory() {
        Some(directory) => Ok(directory),
        None => bail!("the network plugins are missing"),
    }
}

/// Makes sure that programs and images can be built here.
pub fn to_build() -> Result<()> {
    let mut missing = install(TO_BUILD, None);
    if process::find_program("go").is_none() {
        missing.push("go: install Go 1.24 or later (https://go.dev/dl)".to_owned());
    }
    report(missing)
}

/// Makes sure that ZooKeeper servers can run here without a cluster.
pub fn to_run_servers() -> Result<()> {
    report(install(TO_RUN_SERVERS, None))
}

/// Makes sure that images can be built from Dockerfiles.
pub fn to_build_dockerfiles() -> Result<()> {
    report(install(TO_BUILD_DOCKERFILES, None))
}

/// Installs a browser if it can. Without one, the test of the page reports that it is skipped.
pub fn to_look_at_pages() {
    let fonts = !Path::new(FONT_DIRECTORY).is_dir();
    for missing in install(TO_LOOK_AT_PAGES, fonts.then_some(FONT_PACKAGE)) {
        progress::say(format!("nobody will look at the page: {missing}"));
    }
}

/// Makes sure that a Prometheus can run here.
pub fn to_monitor() -> Result<()> {
    report(install(TO_MONITOR, None))
}

/// The tool that tests alerts, installed if it can be.
pub fn promtool() -> Result<PathBuf> {
    report(install(&TO_MONITOR[..1], None))?;
    process::find_program("promtool").context("promtool is not there")
}

fn report(missing: Vec<String>) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    bail!("this machine lacks:\n  - {}", missing.join("\n  - "))
}

/// What no package brings.
fn this_machine() -> Vec<String> {
    if !cfg!(target_os = "linux") {
        // Nothing below means anything elsewhere.
        return vec![
            "Linux: use a Linux machine or virtual machine, or --kubeconfig with an existing \
             cluster"
                .to_owned(),
        ];
    }
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        missing.push("the rights of root: run it as root, or with `sudo -E env PATH=$PATH`".into());
        return missing;
    }
    if let Err(error) = Hierarchies::find() {
        missing.push(format!("control groups: {error:#}"));
    }
    if !fs::read_to_string("/proc/filesystems")
        .unwrap_or_default()
        .contains("\toverlay")
        && process::run(&mut process::command("modprobe", ["overlay"])).is_err()
    {
        missing.push("the overlay file system: a kernel with CONFIG_OVERLAY_FS".into());
    }
    let links = "ip link add name br0 type bridge && ip link add name v0 type veth peer name v1";
    let mut namespaces = process::command("unshare", ["--net", "--mount", "--pid", "--fork"]);
    if let Err(error) = process::run(namespaces.args(["--mount-proc", "sh", "-c", links])) {
        missing.push(format!(
            "namespaces with bridges and cables in them (in a container, it must be \
             privileged): {error:#}"
        ));
    }
    missing
}

/// Installs what is missing and says what could not be.
fn install(programs: &[Program], extra: Option<&str>) -> Vec<String> {
    let absent = |program: &&Program| process::find_program(program.name).is_none();
    let wanted: Vec<&Program> = programs.iter().filter(absent).collect();
    let packages = packages(&wanted, extra);
    if packages.is_empty() {
        return Vec::new();
    }
    if process::find_program("apt-get").is_some() && rustix::process::geteuid().is_root() {
        progress::say(format!("installing {} ...", packages.join(" ")));
        let mut update = process::command("apt-get", ["update", "-qq"]);
        let mut install = process::command("apt-get", ["install", "-y", "-qq"]);
        install.arg("--no-install-recommends").args(&packages);
        install.env("DEBIAN_FRONTEND", "noninteractive");
        // An index that could not be refreshed may still do; the installation says if not.
        let _ = process::run(&mut update);
        if let Err(error) = process::run(&mut install) {
            progress::say(format!("{error:#}"));
        }
    }
    let still = wanted.iter().filter(|program| absent(program));
    still
        .map(|program| format!("{}: install the package {}", program.name, program.package))
        .collect()
}

fn packages<'a>(wanted: &[&Program], extra: Option<&'a str>) -> Vec<&'a str> {
    let mut packages: Vec<&str> = wanted.iter().map(|program| program.package).collect();
    packages.extend(extra);
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn cni_directory() -> Option<PathBuf> {
    let has_all = |directory: &Path| {
        ["ptp", "host-local", "portmap", "loopback"]
            .iter()
            .all(|name| directory.join(name).exists())
    };
    CNI_DIRECTORIES
        .iter()
        .map(PathBuf::from)
        .find(|directory| has_all(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_installed_once() {
        let wanted: Vec<&Program> = TO_RUN.iter().take(3).collect();
        assert_eq!(packages(&wanted, Some("x")), ["containerd", "runc", "x"]);
    }

    #[test]
    fn everything_missing_is_reported_at_once() {
        let error = report(vec!["a".into(), "b".into()])
            .unwrap_err()
            .to_string();
        assert!(error.contains("- a") && error.contains("- b"), "{error}");
        assert!(report(Vec::new()).is_ok());
    }
}
