//! The jars of a ZooKeeper server, from Maven's repository.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{hash::Inputs, paths::Paths, requirements, seed};
use crate::{process, progress};

/// The versions that the tests on real servers run: ZooKeeper's, and that of its Prometheus provider.
const VERSION: (&str, &str) = ("3.9.5", "3.9.4");

/// A Maven command that copies what a recipe depends on.
pub(super) fn maven(recipe: &Path, out: &Path) -> Command {
    let mut command = process::command("mvn", ["-q", "-B", "-f"]);
    command
        .arg(recipe.join("pom.xml"))
        .arg("dependency:copy-dependencies");
    command.arg(format!("-DoutputDirectory={}", out.display()));
    command
}

/// Puts the jars of a server into `directory`.
pub(super) fn fetch(paths: &Paths, version: &str, metrics: &str, directory: &Path) -> Result<()> {
    let recipe = paths.recipes().join("images/zookeeper");
    let mut command = maven(&recipe, directory);
    command.arg(format!("-Dzookeeper.version={version}"));
    command.arg(format!("-Dmetrics.version={metrics}"));
    let title = format!("fetching ZooKeeper {version}");
    progress::long_step(&title, &mut command, &paths.build_log("zookeeper"))?;
    remove_foreign_libraries(directory)
}

/// Native libraries for systems that nothing here runs on.
pub(super) fn remove_foreign_libraries(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.contains("-osx-") || name.contains("-windows-") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A directory with the jars of the server that tests without a cluster run; kept in the cache.
pub fn server_jars() -> Result<PathBuf> {
    requirements::to_run_servers()?;
    let paths = Paths::from_environment()?;
    let (version, metrics) = VERSION;
    let key = Inputs::default()
        .value("version", version)
        .value("metrics", metrics)
        .tree(&paths.recipes().join("images/zookeeper"))?
        .key()?;
    let jars = paths.cache.join(format!("jars-{version}-{key}"));
    if jars.is_dir() {
        return Ok(jars);
    }
    // Complete or not there at all, also when two processes fetch them at once.
    let work = paths
        .cache
        .join("work")
        .join(format!("jars-{}", std::process::id()));
    fs::create_dir_all(&work)?;
    fetch(&paths, version, metrics, &work)?;
    if fs::rename(&work, &jars).is_err() && jars.is_dir() {
        seed::remove(&work)?;
    }
    Ok(jars)
}
