//! The commands of a page of the documentation, typed as they stand there.
//!
//! Every block of commands has a mark before it: `run`, `run: it fails`, or `not run:` and why. In what a command
//! should print, `...` stands for anything, ages for any age, and spaces for any number of them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context as _, Result, bail, ensure};
use bellwether_e2e::helm;
use bellwether_e2e::kubectl::VARIABLE;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;

/// For how long the output of a command may still differ, since it shows work in progress.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command of a page, and what it should print.
#[derive(Debug, Default, PartialEq)]
struct Step {
    command: String,
    output: Vec<String>,
    fails: bool,
}

pub(crate) fn getting_started_does_what_it_says(world: &World) -> Result<()> {
    let root = helm::chart().join("../..");
    let page = fs::read_to_string(root.join("docs/getting-started.md"))?;
    let steps = steps(&page)?;
    ensure!(steps.len() > 12, "only {} commands were found", steps.len());
    let programs = env::temp_dir().join(format!("{}-programs", world.namespace));
    fs::create_dir_all(&programs)?;
    let result = kubectl_of(world, &programs).and_then(|()| {
        steps.iter().try_for_each(|step| {
            eprintln!("$ {}", step.command.lines().next().unwrap_or_default());
            carry_out(step, &root, &programs)
        })
    });
    fs::remove_dir_all(&programs)?;
    result
}

/// A kubectl that works in the test's namespace, as a reader's works in the one of the current context.
fn kubectl_of(world: &World, programs: &Path) -> Result<()> {
    let kubectl = env::var(VARIABLE)?;
    let path = env::var("PATH")?;
    let script = format!(
        "#!/bin/sh\nPATH='{path}'\ncase \"$1\" in -n) exec {kubectl} \"$@\";; esac\nexec {kubectl} -n {} \"$@\"\n",
        world.namespace
    );
    let file = programs.join("kubectl");
    fs::write(&file, script)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn carry_out(step: &Step, root: &Path, programs: &Path) -> Result<()> {
    let path = format!("{}:{}", programs.display(), env::var("PATH")?);
    let attempt = || -> Result<(), String> {
        let output = Command::new("bash")
            .args(["-c", &format!("{{ {}\n}} 2>&1", step.command)])
            .current_dir(root)
            .env("PATH", &path)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() == step.fails {
            return Err(format!("{}: {text}", output.status));
        }
        if matches(&step.output, &text) {
            Ok(())
        } else {
            Err(format!(
                "it printed\n{text}\nand not\n{}",
                step.output.join("\n")
            ))
        }
    };
    let what = step.command.clone();
    // Only commands that change nothing may be repeated. Other tests replace the operator, which a
    // rollout's status reports.
    let asks = [
        "kubectl get",
        "kubectl exec",
        "kubectl -n bellwether-system rollout status",
    ];
    if asks.iter().any(|start| what.starts_with(start)) {
        return until(&what, PATIENCE, attempt);
    }
    attempt().map_err(anyhow::Error::msg).context(what)
}

/// The commands of a page that are to be run.
fn steps(page: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut mark, mut runs) = (None, None);
    for line in page.lines() {
        if let Some(comment) = line.strip_prefix("<!-- ") {
            mark = comment.strip_suffix(" -->");
            continue;
        }
        if line == "```console" {
            runs = Some(match mark.take() {
                Some("run") => Some(false),
                Some("run: it fails") => Some(true),
                Some(why) if why.starts_with("not run: ") => None,
                other => bail!("a block of commands without a mark, or with {other:?}"),
            });
        } else if line.starts_with("```") {
            runs = None;
        } else if let Some(Some(fails)) = runs {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step {
                    command: command.to_owned(),
                    output: Vec::new(),
                    fails,
                });
                continue;
            }
            let step = steps.last_mut().context("output before any command")?;
            match line.strip_prefix("> ") {
                Some(more) => step.command.extend(["\n", more]),
                None => step.output.push(line.to_owned()),
            }
        }
    }
    Ok(steps)
}

/// Whether the text has these lines and no others.
fn matches(expected: &[String], text: &str) -> bool {
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    expected.len() == lines.len() && expected.iter().zip(lines).all(|(e, l)| line_matches(e, l))
}

fn line_matches(expected: &str, line: &str) -> bool {
    let words = |text: &str| -> String {
        let age = |word: &&str| -> bool {
            let units = word.ends_with(['s', 'm', 'h', 'd']);
            units && word.starts_with(|c: char| c.is_ascii_digit())
        };
        let words = text
            .split_whitespace()
            .map(|w| if age(&w) { "AGE" } else { w });
        words.collect::<Vec<_>>().join(" ")
    };
    let (expected, line) = (words(expected), words(line));
    let mut parts = expected.split("...");
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}
