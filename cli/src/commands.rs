//! The commands for people. None of them is part of the operator.

pub(crate) mod act;
pub(crate) mod bundle;
mod cluster;
pub(crate) mod elections;
pub(crate) mod generate;
pub(crate) mod handover;
pub(crate) mod lint;
pub(crate) mod page;
pub(crate) mod plan;
pub(crate) mod reference;
pub(crate) mod replace;
pub(crate) mod status;
mod style;
pub(crate) mod timeline;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// The exit code when something was found.
const FOUND: u8 = 1;
/// The exit code when something could not be read or checked.
const UNREADABLE: u8 = 2;

/// The text of a file, or of standard input for `-`.
fn read(file: &Path) -> io::Result<String> {
    if file != Path::new("-") {
        return fs::read_to_string(file);
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

/// What a file is called in messages.
fn name(file: &Path) -> String {
    if file == Path::new("-") {
        "<stdin>".to_owned()
    } else {
        file.display().to_string()
    }
}

/// Writes for people, beside what other programs read.
fn complain(text: &str) {
    // If standard error is closed, there is no other place for the text.
    let _ = writeln!(io::stderr(), "{text}");
}
