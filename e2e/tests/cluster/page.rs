//! The page in a real browser, for the tests that have something to show.

use anyhow::{Result, ensure};
use bellwether_e2e::browser::Browser;
use bellwether_e2e::page::Shown;
use bellwether_e2e::world::World;
use serde_json::json;

/// The identity of a candidate that would run in a page that takes text for markup.
const HOSTILE: &str = "<img src=x onerror=window.hacked=1>";

pub(crate) fn a_hostile_leader_is_shown_as_text_and_a_lost_connection_comes_back(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let hosts = world.small_ensemble(1)?.service();
    let arguments = ["--hosts", &hosts, "--path", "/page", "--id", HOSTILE];
    let candidate = clients.python(HOSTILE, "kazoo_election.py", &arguments)?;
    world.election("page", "/page", json!({ "type": "Kazoo" }))?;
    if let Some(mut page) = Page::open(world)? {
        page.wait_card(&["Ready", "1/1", "leader"])?;
        page.hostile_leader(world, "page")?;
        page.survives_a_lost_connection(world)?;
    }
    candidate.stop()?;
    Ok(())
}

/// A page that is open.
pub(crate) struct Page {
    browser: Browser,
    shown: Option<Shown>,
    port: Option<u16>,
}

/// What the first ensemble's card says, as JavaScript.
const CARD: &str = "document.querySelector('#ensemble-list > article')";

impl Page {
    /// Opens it for the namespace of a test; `None` without a browser.
    pub(crate) fn open(world: &World) -> Result<Option<Self>> {
        if !Browser::is_there() {
            eprintln!("nobody looks at the page: install Debian's package chromium");
            return Ok(None);
        }
        let shown = Shown::start(&world.namespace, None)?;
        let mut browser = Browser::start()?;
        browser.appear(1200, false)?;
        browser.open(shown.address())?;
        browser.wait("document.getElementById('link')?.textContent === 'Live'")?;
        // A reload would remove this mark.
        browser.evaluate("window.loadedOnce = true")?;
        Ok(Some(Self {
            browser,
            port: shown.port(),
            shown: Some(shown),
        }))
    }

    /// Waits until the card of the ensemble says this, without a reload.
    pub(crate) fn wait_card(&mut self, words: &[&str]) -> Result<()> {
        for word in words {
            let word = json!(word);
            self.browser
                .wait(&format!("!!{CARD}?.innerText.includes({word})"))?;
        }
        let loaded = self.browser.evaluate("window.loadedOnce === true")?;
        ensure!(loaded == true, "the page was loaded again");
        Ok(())
    }

    /// Waits until a member is as far as this in the step that is under way.
    pub(crate) fn wait_turn(&mut self, member: &str, stage: &str) -> Result<()> {
        let start = json!(format!("{member}:"));
        let turns = format!("[...{CARD}.querySelectorAll('ol.turns li')]");
        let (turn, stage) = (format!("t.textContent.startsWith({start})"), json!(stage));
        self.browser.wait(&format!(
            "{turns}.some(t => {turn} && t.dataset.stage === {stage})"
        ))
    }

    /// Opens an election as a person at a keyboard does, and checks that the identity of its leader is
    /// text and nothing else.
    fn hostile_leader(&mut self, world: &World, election: &str) -> Result<()> {
        let name = json!(format!("{}/{election}", world.namespace));
        let button = format!(
            "[...document.querySelectorAll('#election-list button')].find(b => b.textContent === {name})"
        );
        self.browser.wait(&format!("!!{button}"))?;
        self.browser.evaluate(&format!("{button}.click()"))?;
        self.browser
            .wait("document.activeElement?.id === 'election-title'")?;
        let hostile = json!(HOSTILE);
        for place in [
            "#election-list td:nth-of-type(2)",
            "#election dd",
            "#election tbody bdi",
        ] {
            let text = format!("document.querySelector('{place}')?.textContent === {hostile}");
            self.browser.wait(&text)?;
        }
        let harm = "document.images.length + (window.hacked ? 1 : 0)";
        let harm = self.browser.evaluate(harm)?;
        ensure!(harm == 0, "the identity became markup");
        Ok(())
    }

    /// The connection ends and comes back, as when the command is started again.
    fn survives_a_lost_connection(&mut self, world: &World) -> Result<()> {
        self.shown = None;
        let lost = "document.getElementById('old').textContent.startsWith('Connection lost since')";
        self.browser.wait(lost)?;
        self.shown = Some(Shown::start(&world.namespace, self.port)?);
        self.browser.wait(
            "document.getElementById('link').textContent === 'Live' && document.getElementById('old').hidden",
        )?;
        let loaded = self.browser.evaluate("window.loadedOnce === true")?;
        ensure!(loaded == true, "the page was loaded again");
        Ok(())
    }
}
