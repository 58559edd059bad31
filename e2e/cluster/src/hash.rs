//! Keys of the cache: a thing is built again when, and only when, what goes into it changed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::process;

/// Collects what goes into a built thing.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    bytes: Vec<u8>,
}

impl Inputs {
    /// A named value; the lengths keep two inputs from running into each other.
    pub(crate) fn value(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        for part in [name.as_bytes(), value.as_ref()] {
            self.bytes
                .extend_from_slice(part.len().to_string().as_bytes());
            self.bytes.push(b':');
            self.bytes.extend_from_slice(part);
        }
        self
    }

    /// Every file below a directory, by relative path and content; a missing directory is empty.
    pub(crate) fn tree(mut self, directory: &Path) -> Result<Self> {
        for file in files_below(directory)? {
            let content = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
            let relative = file.strip_prefix(directory).unwrap_or(&file);
            self = self.value(&relative.to_string_lossy(), content);
        }
        Ok(self)
    }

    /// The key: short enough for a directory's name.
    pub(crate) fn key(&self) -> Result<String> {
        let mut digest = sha256(&self.bytes)?;
        digest.truncate(16);
        Ok(digest)
    }
}

/// Every regular file below a directory, sorted, without what editors and interpreters leave.
pub(crate) fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        if !directory.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name == "__pycache__" || name.starts_with('.') {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if path.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The SHA-256 of some bytes, in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> Result<String> {
    first_word(&process::feed(
        &mut process::command("sha256sum", ["-"]),
        bytes,
    )?)
}

/// The SHA-256 of a file, in hexadecimal. The program beats a debug build of any crate by far, and
/// layers are hundreds of megabytes.
pub(crate) fn sha256_of_file(file: &Path) -> Result<String> {
    let mut command = process::command("sha256sum", ["--"]);
    first_word(&process::output(command.arg(file))?)
}

fn first_word(text: &str) -> Result<String> {
    let word = text
        .split_whitespace()
        .next()
        .context("sha256sum said nothing")?;
    Ok(word.trim_start_matches('\\').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha256_is_sha256() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc").unwrap(), expected);
    }

    #[test]
    fn inputs_do_not_run_into_each_other() {
        let first = Inputs::default().value("a", "bc").key().unwrap();
        let second = Inputs::default().value("ab", "c").key().unwrap();
        assert_ne!(first, second);
        assert_eq!(first.len(), 16);
    }

    #[test]
    fn tree_sees_content_and_names() {
        let directory =
            std::env::temp_dir().join(format!("bellwether-hash-test-{}", std::process::id()));
        let key = || Inputs::default().tree(&directory).unwrap().key().unwrap();
        let missing = key();
        fs::create_dir_all(directory.join("deep/__pycache__")).unwrap();
        assert_eq!(key(), missing);
        fs::write(directory.join("deep/a"), "1").unwrap();
        let first = key();
        assert_ne!(first, missing);
        fs::write(directory.join("deep/__pycache__/x"), "1").unwrap();
        assert_eq!(key(), first);
        fs::write(directory.join("deep/a"), "2").unwrap();
        assert_ne!(key(), first);
        fs::remove_dir_all(&directory).unwrap();
    }
}
