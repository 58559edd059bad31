//! Compiling everything that is tested, by one command: cargo unites the features of what it compiles together, so that each
//! package on its own would compile many libraries once more.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::Stdio,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{build, process};

/// What cargo built.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
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
        let tests = target["kind"][0] == "test";
        // A program proper is compiled a second time, with its own unit tests in it.
        let is_program = tests || target["kind"][0] == "bin";
        if is_program
            && message["profile"]["test"] == tests
            && let (Some(name), Some(path)) =
                (target["name"].as_str(), message["executable"].as_str())
        {
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
            let message = json!({ "target": target, "profile": profile, "executable": path });
            compiled.take(&message.to_string());
        };
        built("bin", "member", false, "/member");
        built("bin", "member", true, "/member-unit-tests");
        built("test", "cluster", true, "/cluster-1");
        built("lib", "cluster", true, "/unit-tests");
        compiled.take(&json!({ "reason": "build-finished" }).to_string());
        let path = |name: &str| compiled.program(name).unwrap();
        assert_eq!(path("member"), Path::new("/member"));
        assert_eq!(path("cluster"), Path::new("/cluster-1"));
        assert!(compiled.program("simulate").is_err());
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
