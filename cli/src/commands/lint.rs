//! `bellwether lint`: manifests against the rules, before anybody applies them.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellwether_lint::{Existing, Finding, Linter, Severity};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{FOUND, UNREADABLE, complain, name, read};

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// Files with YAML or JSON, folders, or - for standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The objects as they are: check also that the change is allowed.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// How to print what was found.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
    /// Let a warning fail too.
    #[arg(long)]
    strict: bool,
    /// Say also what was checked and what was left alone.
    #[arg(short, long)]
    verbose: bool,
}

/// How to print what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line for each, as a compiler prints it.
    Text,
    /// One JSON list.
    Json,
}

/// A finding with its file.
#[derive(Serialize)]
struct InFile {
    file: String,
    #[serde(flatten)]
    finding: Finding,
}

/// Checks; returns 0 if all is well, 1 if something was found, 2 if something could not be read.
pub(crate) fn lint(arguments: &Lint) -> ExitCode {
    match check(arguments) {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::from(UNREADABLE)
        }
    }
}

fn check(arguments: &Lint) -> anyhow::Result<ExitCode> {
    let linter = Linter::new()?;
    let against = match &arguments.against {
        None => Existing::default(),
        Some(file) => {
            let text = read(file).map_err(|error| unreadable(file, &error))?;
            Existing::parse(&text)
                .map_err(|finding| anyhow::anyhow!("{}:{finding}", file.display()))?
        }
    };
    let mut files = Vec::new();
    let mut all_read = true;
    for path in &arguments.files {
        if let Err(error) = collect(path, &mut files) {
            all_read = false;
            complain(&unreadable(path, &error).to_string());
        }
    }
    let mut found = Vec::new();
    let mut objects = 0;
    for file in files {
        let text = match read(&file) {
            Ok(text) => text,
            Err(error) => {
                all_read = false;
                complain(&unreadable(&file, &error).to_string());
                continue;
            }
        };
        let report = linter.check(&text, &against);
        objects += report.checked.len();
        let name = name(&file);
        if arguments.verbose {
            for object in &report.checked {
                complain(&format!("{name}: {object} checked"));
            }
            for object in &report.skipped {
                complain(&format!(
                    "{name}: {object} left alone: it is of another group"
                ));
            }
        }
        found.extend(report.findings.into_iter().map(|finding| InFile {
            file: name.clone(),
            finding,
        }));
    }
    print(arguments.output, &found)?;
    let count = |severity| {
        found
            .iter()
            .filter(|f| f.finding.severity == severity)
            .count()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    if arguments.output == Format::Text {
        complain(&format!(
            "{objects} objects checked: {errors} errors, {warnings} warnings"
        ));
    }
    Ok(if !all_read {
        ExitCode::from(UNREADABLE)
    } else if errors > 0 || arguments.strict && warnings > 0 {
        ExitCode::from(FOUND)
    } else {
        ExitCode::SUCCESS
    })
}

fn unreadable(file: &Path, error: &io::Error) -> anyhow::Error {
    anyhow::anyhow!("{}: cannot be read: {error}", name(file))
}

/// The file itself, or the manifests in a folder and below, sorted. A file that is named is read
/// with any extension; in a folder only files that look like manifests are.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path == Path::new("-") || !fs::metadata(path)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut below = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // A link may lead back to where it is.
        let kind = entry.file_type()?;
        let path = entry.path();
        let extension = path
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default();
        if kind.is_dir() || ["yaml", "yml", "json"].contains(&extension) {
            below.push(path);
        }
    }
    below.sort();
    below.iter().try_for_each(|path| collect(path, files))
}

fn print(format: Format, found: &[InFile]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match format {
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(found)?)?,
        Format::Text => {
            for InFile { file, finding } in found {
                writeln!(out, "{file}:{finding}")?;
            }
        }
    }
    Ok(())
}
