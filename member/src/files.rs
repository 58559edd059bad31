//! Reading and writing files so that a crash never leaves half of one.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// A configuration file or a mark is never larger; a ConfigMap cannot be either.
const LARGEST: u64 = 2 * 1024 * 1024;

/// Adds to an I/O error what was done to which file.
pub(crate) fn describe<T>(
    result: std::io::Result<T>,
    verb: &str,
    path: &Path,
) -> Result<T, String> {
    result.map_err(|error| format!("cannot {verb} {}: {error}", path.display()))
}

/// The content of a file; `None` if the file does not exist.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return describe(Err(error), "open", path),
    };
    let mut content = Vec::new();
    describe(
        file.take(LARGEST + 1).read_to_end(&mut content),
        "read",
        path,
    )?;
    if content.len() as u64 > LARGEST {
        return Err(format!("{} is larger than {LARGEST} bytes", path.display()));
    }
    Ok(Some(content))
}

/// The names in a directory, sorted; empty if there is no such directory.
pub(crate) fn names(directory: &Path) -> Result<Vec<String>, String> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return describe(Err(error), "list", directory),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = describe(entry, "list", directory)?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Writes a file as a whole or not at all, and lasting: temporary file, fsync, rename, fsync of the
/// directory. Nothing is written if the file already has that content.
pub(crate) fn write_atomically(path: &Path, content: &[u8], mode: u32) -> Result<(), String> {
    if read_if_there(path).is_ok_and(|there| there.as_deref() == Some(content)) {
        return Ok(());
    }
    replace(path, content, mode)
}

/// As [`write_atomically`], even if the file already has that content.
pub(crate) fn replace(path: &Path, content: &[u8], mode: u32) -> Result<(), String> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(format!("{} is no file name", path.display()));
    };
    let temporary = directory.join(format!(".{}.tmp", name.to_string_lossy()));
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&temporary)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&temporary, path)?;
        File::open(directory)?.sync_all()
    };
    describe(write(), "write", path)
}

/// Removes a file; returns whether it existed.
pub(crate) fn remove_if_there(path: &Path) -> Result<bool, String> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => describe(Err(error), "remove", path),
    }
}

/// The value of a setting of `zoo.cfg`: of several lines the last one counts.
pub(crate) fn value(zoo_cfg: &[u8], key: &str) -> Option<String> {
    let text = String::from_utf8_lossy(zoo_cfg);
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let values = lines.filter(|(name, _)| name.trim() == key);
    values.map(|(_, value)| value.trim().to_owned()).next_back()
}
