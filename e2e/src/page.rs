//! The page, as a person opens it: `bellwether page`.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::browser::Browser;
use crate::demo::NAMESPACE;

/// The variable with the path of the program.
pub const PROGRAM: &str = "BELLWETHER_PROGRAM";

/// The program for people, with these arguments.
///
/// # Errors
/// When the environment does not say where it is.
pub fn program(arguments: &[&str]) -> Result<Command> {
    let program = std::env::var_os(PROGRAM).with_context(|| format!("{PROGRAM} is not set"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// The page of one namespace on this machine; it ends when this is dropped.
#[derive(Debug)]
pub struct Shown {
    serves: Child,
    address: String,
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.serves.kill();
        let _ = self.serves.wait();
    }
}

impl Shown {
    /// Shows it at a port that is free, or at the one that an earlier one had.
    pub fn start(namespace: &str, port: Option<u16>) -> Result<Self> {
        let port = port.unwrap_or_default().to_string();
        let mut serves = program(&["page", "-n", namespace, "--port", &port])?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        if let Some(output) = serves.stdout.take() {
            BufReader::new(output).read_line(&mut address)?;
        }
        let shown = Self {
            serves,
            address: address.trim().to_owned(),
        };
        let address = &shown.address;
        ensure!(
            address.starts_with("http://127.0.0.1:"),
            "it said {address:?}"
        );
        Ok(shown)
    }

    /// Its port.
    pub fn port(&self) -> Option<u16> {
        let rest = self.address.strip_prefix("http://127.0.0.1:")?;
        rest.split('/').next()?.parse().ok()
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// The variable with the folder for pictures of the page.
pub const PICTURES: &str = "BELLWETHER_PICTURES";

/// Makes the pictures of the documentation while the demonstration runs.
#[derive(Debug)]
pub struct Camera {
    browser: Browser,
    shown: Shown,
    folder: PathBuf,
}

impl Camera {
    /// Opens the page of the demonstration's namespace, if pictures are asked for.
    ///
    /// # Errors
    /// When they are and the page cannot be opened.
    pub fn from_environment() -> Result<Option<Self>> {
        let Some(folder) = std::env::var_os(PICTURES) else {
            return Ok(None);
        };
        let shown = Shown::start(NAMESPACE, None)?;
        let mut browser = Browser::start()?;
        browser.appear(1040, false)?;
        browser.open(shown.address())?;
        Ok(Some(Self {
            browser,
            shown,
            folder: PathBuf::from(folder),
        }))
    }

    /// The second step of the growth, in the middle: light, dark, and narrow as on a phone.
    pub(crate) fn growth(&mut self) -> Result<()> {
        let steps = "[...document.querySelectorAll('ol.steps > li[data-stage=underWay]')]";
        let second = "step.textContent.startsWith('Server list {1,2,3,4,5}')";
        let turn = |stage: &str| format!("step.querySelector('ol.turns > li[data-stage={stage}]')");
        let [done, busy, rest] = ["done", "underWay", "remaining"].map(turn);
        self.browser.wait(&format!(
            "{steps}.some(step => {second} && {done} && {busy} && {rest} && true)"
        ))?;
        for (name, width, dark) in [("light", 1040, false), ("dark", 1040, true)] {
            self.picture(&format!("growing-{name}"), width, dark)?;
        }
        self.picture("growing-narrow", 390, false)
    }

    /// An election that is open.
    pub(crate) fn election(&mut self) -> Result<()> {
        let address = format!("{}?election={NAMESPACE}/app", self.shown.address());
        self.browser.open(&address)?;
        self.browser
            .wait("document.querySelectorAll('#election tbody tr').length > 2")?;
        self.picture("election-light", 1040, false)
    }

    fn picture(&mut self, name: &str, width: u16, dark: bool) -> Result<()> {
        self.browser.appear(width, dark)?;
        let file = self.folder.join(format!("{name}.png"));
        self.browser.picture(&file)?;
        println!("  kept {}", file.display());
        Ok(())
    }
}
