//! Compiling everything that is tested, by one command: cargo unites the features of what it compiles together, so that each
//! package on its own would compile many libraries once more.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{build, process};

/// A program with tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tests {
    /// The name of the cargo target.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The directory of its package, which tests run in.
    directory: PathBuf,
}

impl Tests {
    /// Runs those whose name contains this, if it is given.
    pub(crate) fn command(&self, filter: Option<&str>) -> Command {
        let mut command = Command::new(&self.path);
        command.args(filter).current_dir(&self.directory);
        // As cargo says it, for libraries that look for the package's files.
        command.env("CARGO_MANIFEST_DIR", &self.directory);
        // Golden texts are compared, never written, by the tests.
        command.env("INSTA_UPDATE", "no");
        command
    }
}

/// What cargo built.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    /// The programs with unit tests and with tests of a package from outside.
    pub(crate) tests: Vec<Tests>,
    /// The programs that the tests run, by the names of their cargo targets.
    programs: BTreeMap<String, PathBuf>,
    /// What the compiler, and in CI the linter, say of the project's code.
    said: Vec<String>,
}

/// Compiles all of it.
///
/// # Errors
/// When it does not compile, with what the compiler says.
pub(crate) fn all() -> Result<Compiled> {
    let mut cargo = build::cargo("build")?;
    cargo.args(["--workspace", "--all-targets", "--locked"]);
    cargo.args(build::AS_TESTED);
    cargo.args(["--quiet", "--message-format=json"]);
    let mut child = cargo
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {}", process::name(&cargo)))?;
    let messages = child.stdout.take().context("no standard output")?;
    let mut compiled = Compiled::default();
    for message in BufReader::new(messages).lines() {
        compiled.take(&message?);
    }
    if !child.wait()?.success() {
        bail!("{}\nnot everything compiles", compiled.said.join("\n"));
    }
    Ok(compiled)
}

impl Compiled {
    /// Takes in one of cargo's messages.
    fn take(&mut self, message: &str) {
        let Ok(message) = serde_json::from_str::<Value>(message) else {
            return;
        };
        if let Some(said) = message["message"]["rendered"].as_str() {
            self.said.push(said.to_owned());
        }
        let target = &message["target"];
        let (Some(name), Some(path)) = (target["name"].as_str(), message["executable"].as_str())
        else {
            return;
        };
        if message["profile"]["test"] == true && target["kind"][0] != "bench" {
            let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
            self.tests.push(Tests {
                name: name.to_owned(),
                path: path.into(),
                directory: manifest.parent().unwrap_or(manifest).to_owned(),
            });
        }
        let tests = target["kind"][0] == "test";
        // A program proper is compiled a second time, with its own unit tests in it.
        let is_program = tests || target["kind"][0] == "bin";
        if is_program && message["profile"]["test"] == tests {
            self.programs.insert(name.to_owned(), path.into());
        }
    }

    /// The program of this name.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf> {
        let path = self.programs.get(name).cloned();
        path.with_context(|| format!("cargo built no program {name}"))
    }

    /// Fails when the compiler said anything.
    ///
    /// # Errors
    /// What it said.
    pub(crate) fn without_warnings(&self) -> Result<()> {
        if !self.said.is_empty() {
            bail!("{}", self.said.join("\n"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    #[test]
    fn programs_are_told_from_their_unit_tests_and_from_libraries() {
        let mut compiled = Compiled::default();
        let mut built = |kind: &str, name: &str, test: bool, path: &str| {
            let target = json!({ "kind": [kind], "name": name });
            let profile = json!({ "test": test });
            let message = json!({
                "target": target,
                "profile": profile,
                "executable": path,
                "manifest_path": "/project/crate/Cargo.toml",
            });
            compiled.take(&message.to_string());
        };
        built("bin", "member", false, "/member");
        built("bin", "member", true, "/member-unit-tests");
        built("test", "cluster", true, "/cluster-1");
        built("lib", "cluster", true, "/unit-tests");
        built("bench", "plan", true, "/plan");
        compiled.take(&json!({ "reason": "build-finished" }).to_string());
        let path = |name: &str| compiled.program(name).unwrap();
        assert_eq!(path("member"), Path::new("/member"));
        assert_eq!(path("cluster"), Path::new("/cluster-1"));
        assert!(compiled.program("simulate").is_err());
        let tests = compiled.tests.iter().map(|tests| tests.path.as_path());
        let expected = ["/member-unit-tests", "/cluster-1", "/unit-tests"];
        assert!(tests.eq(expected.map(Path::new)), "{:?}", compiled.tests);
        let directory = |tests: &Tests| tests.directory == Path::new("/project/crate");
        assert!(compiled.tests.iter().all(directory));
        compiled.without_warnings().unwrap();
    }

    #[test]
    fn a_warning_is_told_in_the_compilers_words() {
        let mut compiled = Compiled::default();
        compiled.take(&json!({ "message": { "rendered": "warning: unused" } }).to_string());
        let told = compiled.without_warnings().unwrap_err().to_string();
        assert!(told.contains("warning: unused"), "{told}");
    }
}
