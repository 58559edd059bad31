//! The operator's page, as a person reaches it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::browser::Browser;
use crate::demo::NAMESPACE;
use crate::kubectl::Kubectl;
use crate::world::OPERATOR_NAMESPACE;

/// How long to wait before the port is forwarded again.
const PAUSE: Duration = Duration::from_millis(300);

/// The operator's port on this machine, forwarded by `kubectl port-forward`; it ends when this is
/// dropped.
///
/// kubectl forwards to one pod and ends with it, and other tests delete the operator's pods. It is started
/// again then, on the same port, as a person would do.
#[derive(Debug)]
pub struct Forward {
    port: u16,
    running: Arc<Mutex<Option<Child>>>,
    keeper: Option<JoinHandle<()>>,
}

impl Drop for Forward {
    fn drop(&mut self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        end(running, None);
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// Ends what runs, and puts another one in its place.
fn end(mut running: MutexGuard<'_, Option<Child>>, next: Option<Child>) {
    if let Some(mut child) = std::mem::replace(&mut *running, next) {
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Forward {
    /// Forwards a port that is free, or the one that an earlier one had.
    pub fn start(kubectl: &Kubectl, port: Option<u16>) -> Result<Self> {
        let (child, mut output, port) = forward(kubectl, port)?;
        let running = Arc::new(Mutex::new(Some(child)));
        let (kubectl, kept) = (kubectl.clone(), Arc::clone(&running));
        let keeper = thread::spawn(move || {
            loop {
                // The output is not needed, but without a reader the process would end.
                let _ = std::io::copy(&mut output, &mut std::io::sink());
                thread::sleep(PAUSE);
                let ended = || {
                    kept.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .is_none()
                };
                if ended() {
                    return;
                }
                let next = forward(&kubectl, Some(port));
                let running = kept.lock().unwrap_or_else(PoisonError::into_inner);
                match next {
                    Ok((mut child, _, _)) if running.is_none() => {
                        let _ = child.kill();
                        let _ = child.wait();
                        return;
                    }
                    Ok((child, said, _)) => {
                        output = said;
                        end(running, Some(child));
                    }
                    Err(_) if running.is_none() => return,
                    // No pod of the operator is there; the next try may find one.
                    Err(_) => {}
                }
            }
        });
        Ok(Self {
            port,
            running,
            keeper: Some(keeper),
        })
    }

    /// The port on this machine.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of the page for one namespace.
    pub fn address(&self, namespace: &str) -> String {
        format!("http://127.0.0.1:{}/page?namespace={namespace}", self.port)
    }
}

/// Starts to forward, and tells from which port.
fn forward(kubectl: &Kubectl, port: Option<u16>) -> Result<(Child, BufReader<ChildStdout>, u16)> {
    let ports = port.map_or(":8080".to_owned(), |port| format!("{port}:8080"));
    let mut child = kubectl
        .command(&["-n", OPERATOR_NAMESPACE, "port-forward"])
        .args(["deployment/bellwether", &ports])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let output = child.stdout.take().context("no output");
    let found = output.and_then(|output| {
        let mut output = BufReader::new(output);
        output.read_line(&mut line)?;
        let said = line.rsplit_once(" -> ").map_or("", |(from, _)| from);
        let port = said.rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.with_context(|| format!("kubectl port-forward said {line:?}"))?;
        Ok((output, port))
    });
    match found {
        Ok((output, port)) => Ok((child, output, port)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// The variable with the folder for pictures of the page.
pub const PICTURES: &str = "BELLWETHER_PICTURES";

/// Makes the pictures of the documentation while the demonstration runs.
#[derive(Debug)]
pub struct Camera {
    browser: Browser,
    forward: Forward,
    folder: PathBuf,
}

impl Camera {
    /// Opens the page of the demonstration's namespace, if pictures are asked for.
    ///
    /// # Errors
    /// When they are and the page cannot be opened.
    pub fn from_environment(kubectl: &Kubectl) -> Result<Option<Self>> {
        let Some(folder) = std::env::var_os(PICTURES) else {
            return Ok(None);
        };
        let forward = Forward::start(kubectl, None)?;
        let mut browser = Browser::start()?;
        browser.appear(1040, false)?;
        browser.open(&forward.address(NAMESPACE))?;
        Ok(Some(Self {
            browser,
            forward,
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
        let address = format!(
            "{}&election={NAMESPACE}/app",
            self.forward.address(NAMESPACE)
        );
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
