//! What the machine brings: Java, the jars of a ZooKeeper server, and `bellwether-member`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Result, ensure};

/// The directory with the jars of a ZooKeeper server; `cargo xtask test` sets it.
pub const JARS: &str = "BELLWETHER_ZOOKEEPER_JARS";
/// The program `bellwether-member`; `cargo xtask test` sets it.
pub const MEMBER: &str = "BELLWETHER_MEMBER";

/// Where things are.
#[derive(Clone, Debug)]
pub struct Installation {
    class_path: String,
    member: PathBuf,
    archive: Option<PathBuf>,
    short_lived: bool,
}

impl Installation {
    /// What the environment says; `None` when it says nothing.
    pub fn from_environment() -> Option<Self> {
        let jars = PathBuf::from(env::var_os(JARS)?);
        let member = PathBuf::from(env::var_os(MEMBER)?);
        let mut names: Vec<String> = fs::read_dir(&jars)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path().display().to_string()))
            .filter(|name| name.ends_with(".jar"))
            .collect();
        names.sort();
        Some(Self {
            class_path: names.join(":"),
            member,
            archive: None,
            short_lived: true,
        })
    }

    /// Uses an archive of classes that [`crate::classes::archive`] wrote. It takes a third off the time
    /// that a server needs to start.
    pub fn share_classes(&mut self, archive: PathBuf) {
        self.archive = Some(archive);
    }

    /// Compiles code that runs often as well as Java can, for servers whose speed is measured. Without this, the first
    /// compiler alone runs: servers start sooner, and encrypt without the processor's instructions for it.
    pub fn compile_fully(&mut self) {
        self.short_lived = false;
    }

    /// A command that runs Java with small memory and the server's classes.
    pub fn java(&self) -> Command {
        // A test program that is killed takes its servers with it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "java"]);
        command.args(["-Xms32m", "-Xmx64m", "-Xss512k", "-XX:+UseSerialGC"]);
        command.arg("-XX:-UsePerfData");
        if self.short_lived {
            command.arg("-XX:TieredStopAtLevel=1");
        }
        if let Some(archive) = &self.archive {
            command.arg(format!("-XX:SharedArchiveFile={}", archive.display()));
        }
        command.args(["-classpath", &self.class_path]);
        command.stdin(Stdio::null());
        command
    }

    /// A command that runs `bellwether-member`.
    pub fn member(&self) -> Command {
        let mut command = Command::new(&self.member);
        command.stdin(Stdio::null());
        command
    }

    /// Checks that everything is there.
    ///
    /// # Errors
    /// What is missing.
    pub fn check(&self) -> Result<()> {
        ensure!(
            self.class_path.contains("/zookeeper-"),
            "{JARS} names a directory without the jars of a ZooKeeper server"
        );
        ensure!(
            self.member.is_file(),
            "{MEMBER}: there is no {}",
            self.member.display()
        );
        Ok(())
    }
}
