//! The files of a member whose ensemble changes its members at run time: its `zoo.cfg` is on the data volume, since ZooKeeper
//! writes each list beside it, and a password lets the member program ask its own server for another list.

use std::fs;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellwether_member::{List, STORED, committed_file, pending, version_in, zoo_cfg};

use crate::files::{describe, names, read_if_there, remove_if_there, value, write_atomically};

/// The file with the settings, in the configuration revision and, with the password's digest, in ZooKeeper's configuration
/// directory.
pub(crate) const SETTINGS: &str = "settings.cfg";
/// The file with the lines of all servers that the ensemble can have, in both.
const SERVERS: &str = "servers";
/// The file with the password of the super user, there.
const PASSWORD: &str = "super-password";
/// The setting with the port for clients that speak TLS.
pub(crate) const SECURE_PORT: &str = "secureClientPort";
/// The directory of ZooKeeper's files on the data volume.
const DIRECTORY: &str = "config";
/// How many random bytes the password has.
const RANDOM: usize = 24;

/// The list of the ensemble when the pod was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    /// `MEMBERS`: server ids, separated by commas.
    pub(crate) members: Option<String>,
    /// `LIST_VERSION`, in hexadecimal digits.
    pub(crate) version: Option<String>,
}

/// The directory of the files on the data volume.
pub(crate) fn directory(data: &Path) -> PathBuf {
    data.join(DIRECTORY)
}

/// Writes the files of a server before it starts. `settings` is that file of the configuration revision. Returns its `zoo.cfg`.
///
/// # Errors
/// What is missing or wrong.
pub(crate) fn provide(
    [config, conf, data]: [&Path; 3],
    settings: &[u8],
    given: &Given,
    id: u64,
) -> Result<Vec<u8>, String> {
    let all = all_lines(config)?;
    let own = lines(&all, &id.to_string())?;
    let id = u16::try_from(id).map_err(|_| format!("there is no server {id}"))?;
    let members = lines(&all, given.members.as_deref().unwrap_or_default())?;
    let version = given.version.as_deref().unwrap_or_default();
    let version = u64::from_str_radix(version, 16).map_err(|_| {
        format!("LIST_VERSION is {version:?}, which is no version of a server list. The operator makes this pod anew.")
    })?;
    let password = password()?;
    let settings = String::from_utf8_lossy(settings);
    let settings = format!("{}{}", settings, super_user(&password));

    let directory = directory(data);
    describe(fs::create_dir_all(&directory), "create", &directory)?;
    let path = directory.join("zoo.cfg");
    let last = text(&path)?;
    let committed = last.as_deref().and_then(committed_file);
    if let Some(committed) = committed {
        // A file that stays does no harm, so the server starts all the same.
        let _ = remove_earlier(&directory, committed);
    }
    let committed = committed.map(|name| (directory.join(name), version_in(name).unwrap_or(0)));
    let list = match &committed {
        Some((path, _)) => text(path)?,
        None => None,
    };
    let committed = committed.as_ref().zip(list.as_ref());
    let shown = committed.map(|((path, _), _)| path.display().to_string());
    let committed = committed.map(|((_, version), lines)| List {
        version: *version,
        lines,
    });
    let given = List {
        version,
        lines: &members,
    };
    let committed = shown.as_deref().zip(committed);
    let zoo_cfg = zoo_cfg(&settings, committed, given, (id, &own));
    write_atomically(&conf.join(SETTINGS), settings.as_bytes(), 0o600)?;
    write_atomically(&conf.join(SERVERS), all.as_bytes(), 0o644)?;
    write_atomically(&conf.join(PASSWORD), password.as_bytes(), 0o600)?;
    write_atomically(&path, zoo_cfg.as_bytes(), 0o600)?;
    Ok(zoo_cfg.into_bytes())
}

/// Removes the lists of earlier versions, which ZooKeeper leaves behind: one for each change.
fn remove_earlier(directory: &Path, committed: &str) -> Result<(), String> {
    let present = version_in(committed);
    let is_earlier =
        |name: &String| version_in(name).is_some_and(|version| Some(version) < present);
    for name in names(directory)?.into_iter().filter(is_earlier) {
        remove_if_there(&directory.join(name))?;
    }
    Ok(())
}

/// Removes the files of a server whose list is in a file of the operator's again: they are of another time.
pub(crate) fn forget(data: &Path) -> Result<(), String> {
    let directory = directory(data);
    match directory.is_dir() {
        true => describe(fs::remove_dir_all(&directory), "remove", &directory),
        false => Ok(()),
    }
}

/// The version of a list that the server has stored and does not know as committed.
///
/// # Errors
/// When the files cannot be read.
pub(crate) fn stored(data: &Path) -> Result<Option<u64>, String> {
    let directory = directory(data);
    let stored = text(&directory.join(STORED))?;
    let last = text(&directory.join("zoo.cfg"))?;
    let committed = last.as_deref().and_then(committed_file);
    Ok(pending(committed, stored.as_deref()))
}

/// What is needed to ask the server for another list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The super user's password.
    pub(crate) password: String,
    /// The lines of the servers.
    pub(crate) lines: String,
    /// The server's port for clients that speak TLS, if it has one.
    pub(crate) secure_port: Option<u16>,
}

/// What is needed to ask the server for the list of these members.
///
/// # Errors
/// What is missing or wrong.
pub(crate) fn request(conf: &Path, members: &str) -> Result<Request, String> {
    let password = text(&conf.join(PASSWORD))?.ok_or(
        "this member has its list in a file of the operator's, which does not change at run time",
    )?;
    let settings = read_if_there(&conf.join(SETTINGS))?.unwrap_or_default();
    let secure_port = value(&settings, SECURE_PORT).and_then(|port| port.parse().ok());
    Ok(Request {
        password,
        lines: lines(&all_lines(conf)?, members)?,
        secure_port,
    })
}

fn text(path: &Path) -> Result<Option<String>, String> {
    let content = read_if_there(path)?;
    Ok(content.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// The lines of these servers, whose ids are separated by commas; `all` are those of all that the ensemble can have.
fn lines(all: &str, ids: &str) -> Result<String, String> {
    let line = |id: &str| {
        let id: u16 = id
            .trim()
            .parse()
            .map_err(|_| format!("{ids:?} is no list of server ids"))?;
        let name = format!("server.{id}=");
        let line = all.lines().find(|line| line.starts_with(&name));
        let line = line.ok_or_else(|| format!("this ensemble can have no server {id}"))?;
        Ok(format!("{line}\n"))
    };
    ids.split(',').map(line).collect()
}

fn all_lines(directory: &Path) -> Result<String, String> {
    let path = directory.join(SERVERS);
    text(&path)?.ok_or_else(|| format!("there is no {}", path.display()))
}

/// The setting that names the super user. The password has as much chance in it as its digest has bits, so that nobody finds
/// it from that, and it is another one for each start of a pod.
///
/// ZooKeeper compares this digest (`DigestAuthenticationProvider.generateDigest`); it is no weaker where only few know it.
fn super_user(password: &str) -> String {
    let user = format!("super:{password}");
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, user.as_bytes());
    format!(
        "DigestAuthenticationProvider.superDigest=super:{}\n",
        STANDARD.encode(digest)
    )
}

fn password() -> Result<String, String> {
    let mut random = [0; RANDOM];
    rand::fill(&mut random).map_err(|_| "the system gives no random numbers".to_owned())?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
