//! A real browser without a screen, driven through its DevTools protocol
//! (<https://chromedevtools.github.io/devtools-protocol/>).

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

use crate::wait::until;

/// The program, and Debian's package.
const PROGRAM: &str = "chromium";
/// How long it may take to start, to answer, or to show what it is to show: other tests end the operator,
/// whose container then waits to be started again.
const PATIENCE: Duration = Duration::from_secs(180);

/// A browser with one page; it ends when this is dropped.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    socket: WebSocket<TcpStream>,
    session: String,
    number: u64,
    /// What it keeps on disk.
    _home: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// Whether there is one on this machine.
    pub fn is_there() -> bool {
        let version = Command::new(PROGRAM).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    }

    /// Starts it with an empty page.
    pub fn start() -> Result<Self> {
        let home = TempDir::new()?;
        let mut child = Command::new(PROGRAM)
            // Tests run as root, as whom it has no sandbox, and open nothing but the operator's page.
            .args(["--headless=new", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars"])
            .args(["--disable-background-networking", "--no-first-run"])
            .arg("--remote-debugging-port=0")
            .arg(format!("--user-data-dir={}", home.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {PROGRAM}"))?;
        // Its port, and the path that its DevTools have on it.
        let file = home.path().join("DevToolsActivePort");
        let started = until("the browser listens", PATIENCE, || {
            let text = fs::read_to_string(&file).map_err(|e| e.to_string())?;
            let (port, path) = text.trim().split_once('\n').ok_or("half written")?;
            let port: u16 = port.parse().map_err(|e| format!("{port:?}: {e}"))?;
            Ok((port, path.to_owned()))
        });
        let connected = started.and_then(|(port, path)| {
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let address = format!("ws://127.0.0.1:{port}{path}");
            let (socket, _) = tungstenite::client(address, stream)?;
            Ok(socket)
        });
        let socket = match connected {
            Ok(socket) => socket,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        let mut browser = Self {
            child,
            socket,
            session: String::new(),
            number: 0,
            _home: home,
        };
        let page = browser.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach)?;
        let session = attached["sessionId"].as_str();
        browser.session = session.context("no session")?.to_owned();
        Ok(browser)
    }

    /// Calls a method of the protocol. Events that the browser sends meanwhile are ignored.
    fn call(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.number += 1;
        let mut request = json!({ "id": self.number, "method": method, "params": parameters });
        if !self.session.is_empty() {
            request["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(request.to_string()))?;
        loop {
            let message = self.socket.read().with_context(|| method.to_owned())?;
            let Message::Text(text) = message else {
                continue;
            };
            let mut answer: Value = serde_json::from_str(&text)?;
            if answer["id"] != self.number {
                continue;
            }
            if !answer["error"].is_null() {
                bail!("{method}: {}", answer["error"]);
            }
            return Ok(answer["result"].take());
        }
    }

    /// Opens an address.
    pub fn open(&mut self, address: &str) -> Result<()> {
        let result = self.call("Page.navigate", &json!({ "url": address }))?;
        ensure!(
            result["errorText"].is_null(),
            "{address}: {}",
            result["errorText"]
        );
        Ok(())
    }

    /// The value of a JavaScript expression.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let ask = json!({ "expression": expression, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", &ask)?;
        ensure!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        Ok(answer["result"]["value"].take())
    }

    /// Waits until an expression is true.
    pub fn wait(&mut self, expression: &str) -> Result<()> {
        until(expression, PATIENCE, || {
            match self.evaluate(expression).map_err(|e| format!("{e:#}"))? {
                Value::Bool(true) => Ok(()),
                other => {
                    let text = self.evaluate("document.body.innerText");
                    Err(format!("{other}: {text:?}"))
                }
            }
        })
    }

    /// Sets the width of the page, and whether its colour scheme is dark.
    pub fn appear(&mut self, width: u16, dark: bool) -> Result<()> {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size)?;
        let scheme = if dark { "dark" } else { "light" };
        let scheme = json!({ "name": "prefers-color-scheme", "value": scheme });
        let still = json!({ "name": "prefers-reduced-motion", "value": "reduce" });
        let media = json!({ "features": [scheme, still] });
        self.call("Emulation.setEmulatedMedia", &media)?;
        Ok(())
    }

    /// Keeps a picture of the whole page.
    pub fn picture(&mut self, file: &Path) -> Result<()> {
        let ask =
            "[innerWidth, Math.ceil(document.documentElement.getBoundingClientRect().height)]";
        let size = self.evaluate(ask)?;
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        let whole = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let picture = self.call("Page.captureScreenshot", &whole)?;
        let text = picture["data"].as_str().context("no picture")?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(text)?;
        fs::write(file, bytes).with_context(|| file.display().to_string())
    }
}
