//! Where lives begin: a process that has prepared what every life needs, and lives each in a copy of itself.
//!
//! To compile the rules of the CustomResourceDefinitions takes longer than many a life. A nursery does it once,
//! before virtual time begins, and has one thread. It keeps nothing of a request, so that each copy begins with the
//! same memory whichever lives came before.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use bellwether_simulation::life::{self, Story};
use bellwether_virtual_time::{End, begin, in_a_copy};
use clap::Parser as _;

use crate::Arguments;

/// A life that takes more of the processor's time than this hangs. A whole life takes a few seconds of it.
const PATIENCE_SECONDS: u32 = 120;
/// The longest request.
const LONGEST: usize = 4096;

/// Lives each life that standard input asks for, and writes what the life says, or why it says nothing.
pub(crate) fn serve() -> Result<()> {
    // What is prepared must not depend on the time or on chance.
    begin(0);
    life::prepare();
    let mut input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let mut request = [0; LONGEST];
    loop {
        // The next request comes after the answer to this one, so that one read takes one whole request.
        let length = input.read(&mut request)?;
        if length == 0 {
            return Ok(());
        }
        match in_a_copy(PATIENCE_SECONDS, || life_of(&request[..length]))? {
            End::Well => {}
            End::Late => output.write_all(b"it did not end in time\n")?,
            End::Badly => output.write_all(b"it ended without a story\n")?,
        }
    }
}

/// Lives the life that these arguments ask for.
#[allow(
    clippy::print_stderr,
    reason = "the copy has no other way to say what is wrong"
)]
fn life_of(request: &[u8]) -> ExitCode {
    let arguments: Result<Vec<String>, _> = serde_json::from_slice(request);
    let arguments = arguments.map_err(anyhow::Error::from);
    let lived = arguments.and_then(|arguments| {
        let program = ["simulate".to_owned()].into_iter();
        crate::child(&Arguments::try_parse_from(program.chain(arguments))?)
    });
    match lived {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The nurseries that wait for a life.
static IDLE: Mutex<Vec<Nursery>> = Mutex::new(Vec::new());

/// A nursery, as the process that started it sees it.
pub(crate) struct Nursery {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Nursery {
    /// One that waits for a life, or a new one.
    pub(crate) fn idle() -> Result<Self> {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(Self::start, Ok)
    }

    fn start() -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut command = match Path::new("/usr/bin/setarch").exists() {
            // Hash maps that seed themselves by addresses have to see the same ones.
            true => {
                let mut command = Command::new("/usr/bin/setarch");
                command.args(["--addr-no-randomize"]).arg(program);
                command
            }
            false => Command::new(program),
        };
        // A life makes and drops small objects all the time; the C library keeps more of them at hand.
        command.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=127");
        let mut process = command
            .arg("--nursery")
            .stdout(Stdio::piped())
            .stdin(Stdio::piped())
            .spawn()?;
        let input = process.stdin.take().context("no input")?;
        let output = process.stdout.take().context("no output")?;
        Ok(Self {
            process,
            input,
            output: BufReader::new(output),
        })
    }

    /// Lives the life that these arguments ask for.
    pub(crate) fn live(mut self, arguments: &[String], name: &str) -> Result<Story> {
        let request = serde_json::to_vec(arguments)?;
        if request.len() > LONGEST {
            bail!("{name} asks for too much");
        }
        self.input.write_all(&request)?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        if answer.is_empty() {
            self.process.wait()?;
            bail!("{name} ended with its nursery");
        }
        let story = match answer.starts_with('{') {
            true => Ok(serde_json::from_str(&answer)?),
            false => Err(anyhow::anyhow!("{name}: {}", answer.trim_end())),
        };
        IDLE.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self);
        story
    }
}
