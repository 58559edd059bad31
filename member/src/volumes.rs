//! What is on the volumes, for the operator: whether there is a database, its epochs, and how full
//! they are.

use std::path::Path;

use serde_json::{Value, json};

use crate::files::{describe, names, read_if_there};
use crate::run_time_list;
use bellwether_member::is_database_file;

/// The directory that ZooKeeper keeps its database in, under `dataDir` and `dataLogDir`.
pub(crate) const VERSION: &str = "version-2";

/// The report as JSON. `datalog` is null where transaction logs have no volume of their own.
pub(crate) fn report(data: &Path, datalog: &Path) -> Result<Value, String> {
    let version = data.join(VERSION);
    let separate = datalog.is_dir();
    let mut files = names(&version)?;
    if separate {
        files.extend(names(&datalog.join(VERSION))?);
    }
    Ok(json!({
        "database": files.iter().any(|name| is_database_file(name)),
        "currentEpoch": epoch(&version, "currentEpoch")?,
        "acceptedEpoch": epoch(&version, "acceptedEpoch")?,
        "storedList": run_time_list::stored(data)?,
        "data": usage(data)?,
        "datalog": if separate { usage(datalog)? } else { Value::Null },
    }))
}

/// The number in one of ZooKeeper's epoch files; `None` if there is none, or it is unfinished.
pub(crate) fn epoch(version: &Path, file: &str) -> Result<Option<u64>, String> {
    let content = read_if_there(&version.join(file))?;
    Ok(content
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| text.trim().parse().ok()))
}

fn usage(directory: &Path) -> Result<Value, String> {
    let found = describe(
        rustix::fs::statvfs(directory).map_err(std::io::Error::from),
        "ask for the size of",
        directory,
    )?;
    // As `df` has it: blocks that are reserved for root count neither as used nor as available.
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    let usable = used.saturating_add(found.f_bavail);
    Ok(json!({
        "total": usable.saturating_mul(found.f_frsize),
        "free": found.f_bavail.saturating_mul(found.f_frsize),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_volume_and_one_with_a_database_are_told_apart() {
        let name = format!("member-volumes-{}", std::process::id());
        let data = std::env::temp_dir().join(name);
        std::fs::create_dir(&data).unwrap();
        let none = data.join("none");
        let read = || report(&data, &none).unwrap();
        let empty = read();
        assert_eq!(empty["database"], false);
        assert_eq!(empty["currentEpoch"], Value::Null);
        assert_eq!(empty["datalog"], Value::Null);
        assert!(empty["data"]["total"].as_u64() >= empty["data"]["free"].as_u64());
        let version = data.join(VERSION);
        std::fs::create_dir(&version).unwrap();
        std::fs::write(version.join("log.100000001"), b"").unwrap();
        std::fs::write(version.join("currentEpoch"), b"7\n").unwrap();
        std::fs::write(version.join("acceptedEpoch"), b"-1").unwrap();
        let full = read();
        assert_eq!(full["database"], true);
        assert_eq!(full["currentEpoch"], 7);
        assert_eq!(full["acceptedEpoch"], Value::Null);
        std::fs::remove_dir_all(&data).unwrap();
    }
}
