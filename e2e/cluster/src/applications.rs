//! The images of whole applications, one for each: what Maven brings, with a program around the
//! application's own main class that says what the application reports.
//!
//! An application is a directory of `images/` with a `pom.xml`, and one of `e2e/applications` with
//! the Java program. They change rarely and are large, so they have an archive of their own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde_json::json;

use super::{
    hash::{self, Inputs},
    images::{self, Base, SYSTEM_PATH, USER},
    jars,
    oci::{Image, Layer},
    paths::Paths,
};
use crate::progress;

/// Changes when the way of building does.
const RECIPE: &str = "1";

/// What the tests run.
const APPLICATIONS: &[&str] = &["flink", "kafka", "solr", "spark"];

/// What their programs share with those of the clients.
const SHARED: &[&str] = &["java/LogReader.java", "java/Say.java"];

/// The name that pods ask for.
fn image_name(application: &str) -> String {
    format!("docker.io/bellwether/e2e-{application}:dev")
}

fn recipe(paths: &Paths, application: &str) -> PathBuf {
    paths.recipes().join("images").join(application)
}

/// The key of an application's libraries.
fn libraries_key(paths: &Paths, application: &str) -> Result<String> {
    let inputs = Inputs::default()
        .value("recipe", RECIPE)
        .value("libraries of", application);
    inputs.tree(&recipe(paths, application))?.key()
}

/// The key of the archive with all applications on top of this base.
pub(super) fn key(paths: &Paths, base: &str) -> Result<String> {
    let mut inputs = Inputs::default().value("base", base);
    for source in SHARED {
        inputs = inputs.value(source, fs::read(paths.clients().join(source))?);
    }
    for application in APPLICATIONS {
        inputs = inputs.value("libraries", libraries_key(paths, application)?);
        inputs = inputs.tree(&paths.applications().join(application))?;
    }
    inputs.key()
}

/// Builds the archive with all applications.
pub(super) fn build(base: &Base<'_>, archive: &Path) -> Result<()> {
    let work = base.work("applications")?;
    let images: Result<Vec<Image>> = APPLICATIONS
        .iter()
        .map(|application| image(base, application, &work))
        .collect();
    images::finish(&images?, &work, archive)
}

fn image(base: &Base<'_>, application: &str, work: &Path) -> Result<Image> {
    let libraries = libraries(base, application)?;
    let jars = work.join(format!("{application}-jars"));
    images::unpack(&libraries, &jars)?;
    let tree = work.join(application);
    let classes = tree.join("application/classes");
    fs::create_dir_all(&classes)?;
    let mut sources = images::java_below(&base.paths.applications().join(application))?;
    sources.extend(
        SHARED
            .iter()
            .map(|source| base.paths.clients().join(source)),
    );
    images::compile_java(&sources, &jars.join("application/lib"), &classes)?;
    Ok(Image {
        name: image_name(application),
        layers: vec![
            base.layer.clone(),
            Layer::from_archive(&libraries)?,
            Layer::from_tree(&tree, &work.join(format!("{application}.tar")))?,
        ],
        config: json!({
            "User": format!("{USER}:{USER}"),
            "Env": [
                format!("PATH={SYSTEM_PATH}"),
                "CLASSPATH=/application/lib/*:/application/classes",
            ],
            "WorkingDir": "/tmp",
            "Cmd": ["sleep", "infinity"],
        }),
    })
}

/// The layer with the application's own jars: fetched once, not for every change of the program.
fn libraries(base: &Base<'_>, application: &str) -> Result<PathBuf> {
    let key = libraries_key(base.paths, application)?;
    let archive = base
        .paths
        .cache
        .join(format!("libraries-{application}-{key}.tar"));
    if archive.exists() {
        return Ok(archive);
    }
    let work = base.work(&format!("libraries-{application}"))?;
    let out = work.join("tree/application/lib");
    fs::create_dir_all(&out)?;
    progress::long_step(
        &format!("fetching {application}"),
        &mut jars::maven(&recipe(base.paths, application), &out),
        &base.paths.build_log(application),
    )?;
    jars::remove_foreign_libraries(&out)?;
    let size: u64 = hash::files_below(&out)?
        .iter()
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum();
    progress::say(format!("  {application}: {} MB", size / 1_000_000));
    images::pack(&work, &archive)?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_application_has_a_recipe_and_a_program() {
        let paths = Paths::from_environment().unwrap();
        for application in APPLICATIONS {
            assert!(recipe(&paths, application).join("pom.xml").is_file());
            let sources = paths.applications().join(application);
            assert!(!images::java_below(&sources).unwrap().is_empty());
        }
    }
}
