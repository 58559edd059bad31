//! The example consumers of fencing tokens: what a leader of the past sends is refused, also after a restart.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The languages that there is an example in.
pub(crate) const LANGUAGES: [&str; 4] = ["go", "java", "python", "rust"];

/// Zxids that create nodes: the epoch, and a count within it. A leader stops, another leads, and the first goes on.
const FIRST: &str =
    "8589934594 a\n8589934601 b\n8589934594 c\n+9999999999 d\n-1 e\n8589934601 f g\n";
const ANSWERS: &str = "written\nwritten\nrefused: 8589934594 is older than 8589934601\nrefused: no token\n\
                       refused: no token\nwritten\n";
/// The count begins anew with each epoch, which is greater all the same.
const AFTER_A_RESTART: &str = "8589934600 h\n12884901889 i\n";
const ANSWERS_AFTER_IT: &str = "refused: 8589934600 is older than 8589934601\nwritten\n";

pub(crate) fn refuses_the_past(language: &str) -> Result<String> {
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    let program = prepare(language, directory.path())?;
    let told = ask(&program, &data, FIRST)?;
    ensure!(told == ANSWERS, "it says {told:?}");
    let text = fs::read_to_string(&data)?;
    ensure!(text == "8589934601\nf g", "it keeps {text:?}");
    let told = ask(&program, &data, AFTER_A_RESTART)?;
    ensure!(told == ANSWERS_AFTER_IT, "after a restart it says {told:?}");
    let text = fs::read_to_string(&data)?;
    ensure!(
        text == "12884901889\ni",
        "after a restart it keeps {text:?}"
    );
    Ok("two leaders of the past refused".to_owned())
}

/// The words that start an example.
fn prepare(language: &str, directory: &Path) -> Result<Vec<String>> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/fencing");
    let file = |name: &str| examples.join(name).to_string_lossy().into_owned();
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let compiled = directory.join("program").to_string_lossy().into_owned();
    Ok(match language {
        "java" => words(&["java", &file("Fencing.java")]),
        "python" => words(&["python3", &file("fencing.py")]),
        "go" => {
            run(&["go", "build", "-o", &compiled, &file("fencing.go")])?;
            vec![compiled]
        }
        _ => {
            run(&[
                "rustc",
                "--edition",
                "2024",
                "-o",
                &compiled,
                &file("fencing.rs"),
            ])?;
            vec![compiled]
        }
    })
}

fn run(words: &[&str]) -> Result<()> {
    let status = Command::new(words[0]).args(&words[1..]).status();
    let status = status.with_context(|| format!("start {}", words[0]))?;
    ensure!(status.success(), "{} failed: {status}", words.join(" "));
    Ok(())
}

/// What the example answers to these requests.
fn ask(program: &[String], data: &Path, requests: &str) -> Result<String> {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).arg(data);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = command
        .spawn()
        .with_context(|| format!("start {}", program[0]))?;
    let mut input = running.stdin.take().context("no standard input")?;
    input.write_all(requests.as_bytes())?;
    drop(input);
    let output = running.wait_with_output()?;
    ensure!(output.status.success(), "it failed: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
