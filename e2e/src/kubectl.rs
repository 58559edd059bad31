//! Commands, as a user types them.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The variable with the command line that reaches the cluster, for example a path to `kubectl`.
pub const VARIABLE: &str = "BELLWETHER_KUBECTL";

/// How to reach the cluster.
#[derive(Clone, Debug)]
pub struct Kubectl {
    words: Vec<String>,
}

impl Kubectl {
    /// From the environment; `None` if there is no cluster.
    pub fn from_environment() -> Option<Self> {
        let line = std::env::var(VARIABLE).ok()?;
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        (!words.is_empty()).then_some(Self { words })
    }

    /// A command with these arguments, not started.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.words[0]);
        command
            .args(&self.words[1..])
            .args(arguments)
            // It ends before its garbage matters, and tests start it a thousand times.
            .env("GOGC", "off")
            .stdin(Stdio::null());
        command
    }

    /// Runs to the end. A failure of the command is not an error.
    pub fn output(&self, arguments: &[&str]) -> Result<Output> {
        self.command(arguments)
            .output()
            .with_context(|| format!("starting {:?}", self.words))
    }

    /// Runs with this on standard input, whatever becomes of it.
    ///
    /// # Errors
    /// When kubectl cannot be started.
    pub fn feed(&self, arguments: &[&str], input: &str) -> Result<Output> {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {:?}", self.words))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        Ok(child.wait_with_output()?)
    }

    /// Runs and returns standard output; an error holds standard error.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.output(arguments)?;
        if !output.status.success() {
            bail!(
                "kubectl {} failed: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs with `-o json`.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let mut all = arguments.to_vec();
        all.extend(["-o", "json"]);
        serde_json::from_str(&self.run(&all)?).context("kubectl printed no JSON")
    }

    /// `kubectl apply` of one object.
    pub fn apply(&self, object: &Value) -> Result<()> {
        match self.try_apply(object)? {
            Ok(()) => Ok(()),
            Err(message) => bail!("apply was refused: {message}"),
        }
    }

    /// `kubectl apply` that may be refused: the inner error is what the user reads.
    pub fn try_apply(&self, object: &Value) -> Result<Result<(), String>> {
        let output = self.feed(&["apply", "-f", "-"], &object.to_string())?;
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(if output.status.success() {
            Ok(())
        } else {
            Err(message)
        })
    }
}
