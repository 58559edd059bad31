//! `bellwether-member prepare`: reads what is there, has it judged, and writes what is decided.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bellwether_member::{
    Around, Found, Identity, MARK, MYID, Marker, decide, epoch_of_file, identify, is_database_file,
    is_leftover_file,
};
use serde_json::json;

use crate::files::{
    describe, names, read_if_there, remove_if_there, replace, value, write_atomically,
};
use crate::options::Directories;
use crate::run_time_list::{self, Given, SECURE_PORT, SETTINGS};
use crate::tls_files;
use crate::volumes::{self, VERSION};

/// The file that permits ZooKeeper to start with an empty database; and the files that permit this
/// program to create it.
const INITIALIZE: &str = "initialize";

/// What the process finds around it.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// `POD_NAME`.
    pub(crate) pod_name: Option<String>,
    /// `ENSEMBLE`.
    pub(crate) ensemble: Option<String>,
    /// `ID_OFFSET`.
    pub(crate) id_offset: Option<String>,
    /// Whether `PEER_TYPE` is `observer`.
    pub(crate) observer: bool,
    /// The list of the ensemble when the pod was made, where members change at run time.
    pub(crate) given: Given,
    /// Unix seconds.
    pub(crate) now: u64,
}

impl Environment {
    /// That of this process.
    pub(crate) fn from_process() -> Self {
        Self {
            pod_name: std::env::var("POD_NAME").ok(),
            ensemble: std::env::var("ENSEMBLE").ok(),
            id_offset: std::env::var("ID_OFFSET").ok(),
            observer: std::env::var("PEER_TYPE").is_ok_and(|t| t == "observer"),
            given: Given {
                members: std::env::var("MEMBERS").ok(),
                version: std::env::var("LIST_VERSION").ok(),
            },
            now: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_secs()),
        }
    }
}

/// Prepares the pod; returns the line to log.
pub(crate) fn prepare(dirs: &Directories, environment: &Environment) -> Result<String, String> {
    let identity = identify(
        environment.pod_name.as_deref(),
        environment.ensemble.as_deref(),
        environment.id_offset.as_deref(),
    )?;
    let at_run_time = read_if_there(&dirs.config.join(SETTINGS))?;
    let zoo_cfg = if let Some(settings) = &at_run_time {
        settings.clone()
    } else if environment.observer {
        read_observers_zoo_cfg(dirs, &identity, environment.pod_name.as_deref())?
    } else {
        read_zoo_cfg(dirs, &identity)?
    };
    let separate_log = dirs.datalog.is_dir()
        && !same_directory(&dirs.data, &dirs.datalog)
        && separates_log(&zoo_cfg);

    let decision = decide(&look_around(
        dirs,
        &identity,
        separate_log,
        environment.now,
    )?)?;
    let marker_directory = if separate_log {
        &dirs.datalog
    } else {
        &dirs.data
    };
    // A marker that is not permitted any more must not stay, even if a later step fails.
    if decision.marker != Ok(Marker::Create) {
        remove_if_there(&dirs.data.join(INITIALIZE))?;
        remove_if_there(&dirs.datalog.join(INITIALIZE))?;
    }
    let marker = decision.marker?;

    // The data volume's mark is written after the log volume's: it implies that the log volume is marked,
    // too.
    let mark = decision.mark.as_bytes();
    if separate_log {
        write_atomically(&dirs.datalog.join(MARK), mark, 0o644)?;
    }
    write_atomically(&dirs.data.join(MARK), mark, 0o644)?;
    write_atomically(
        &dirs.data.join(MYID),
        format!("{}\n", identity.server_id).as_bytes(),
        0o644,
    )?;

    if marker == Marker::Create {
        remove_leftovers(&dirs.data.join(VERSION))?;
        remove_leftovers(&dirs.datalog.join(VERSION))?;
        replace(&marker_directory.join(INITIALIZE), b"", 0o644)?;
    }
    let zoo_cfg = match &at_run_time {
        Some(settings) => {
            let places = [&dirs.config, &dirs.conf, &dirs.data].map(|path| path.as_path());
            run_time_list::provide(places, settings, &environment.given, identity.server_id)?
        }
        None => {
            run_time_list::forget(&dirs.data)?;
            zoo_cfg
        }
    };
    let copied = copy_configuration(dirs, &zoo_cfg)?;
    let credentials = &dirs.credentials;
    if credentials.tls.is_dir() {
        tls_files::provide(credentials)?;
        if at_run_time.is_some() {
            credentials.make_own_client()?;
        }
        credentials.provide()?;
        if value(&zoo_cfg, SECURE_PORT).is_some()
            && !credentials.tls.join(tls_files::CLIENT_PORT).exists()
        {
            return Err(format!(
                "there is no certificate for clients in {}, which this server needs for its port for TLS. The operator \
                 writes it; its log says why if it cannot.",
                credentials.identity.display()
            ));
        }
    }

    Ok(json!({
        "level": "info",
        "message": "prepared",
        "ensemble": identity.ensemble,
        "serverId": identity.server_id,
        "volume": if decision.known { "known" } else { "new" },
        "separateTransactionLog": separate_log,
        "initialize": marker == Marker::Create,
        "because": marker.explain(),
        "configuration": copied,
    })
    .to_string())
}

fn read_zoo_cfg(dirs: &Directories, identity: &Identity) -> Result<Vec<u8>, String> {
    let path = dirs.config.join(format!("zoo-{}.cfg", identity.server_id));
    read_if_there(&path)?.ok_or_else(|| {
        format!(
            "{identity} is not a member of this configuration revision: there is no {}. The operator \
             removes this pod, or gives it a revision that it is a member of.",
            path.display()
        )
    })
}

/// The file that all observers share, with this one's id and name put in.
fn read_observers_zoo_cfg(
    dirs: &Directories,
    identity: &Identity,
    pod_name: Option<&str>,
) -> Result<Vec<u8>, String> {
    let path = dirs.config.join("zoo-observer.cfg");
    let shared = read_if_there(&path)?.ok_or_else(|| {
        format!(
            "this configuration revision is not for observers: there is no {}. The operator gives \
             this pod another one.",
            path.display()
        )
    })?;
    let text = String::from_utf8_lossy(&shared)
        .replace("{id}", &identity.server_id.to_string())
        .replace("{pod}", pod_name.unwrap_or_default());
    Ok(text.into_bytes())
}

/// Whether this `zoo.cfg` keeps transaction logs apart from snapshots.
fn separates_log(zoo_cfg: &[u8]) -> bool {
    let directory = |key| value(zoo_cfg, key).map(|path| path.trim_end_matches('/').to_owned());
    directory("dataLogDir").is_some_and(|log| Some(log) != directory("dataDir"))
}

fn same_directory(a: &Path, b: &Path) -> bool {
    match (fs::canonicalize(a), fs::canonicalize(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// Reads all that the decision depends on.
fn look_around(
    dirs: &Directories,
    identity: &Identity,
    separate_log: bool,
    now: u64,
) -> Result<Around, String> {
    let found = gather_volume(dirs, separate_log)?;
    let epoch = match found.database {
        Some(_) => epoch_on_disk(dirs)?,
        None => 0,
    };
    Ok(Around {
        identity: identity.clone(),
        found,
        epoch,
        recorded: read_if_there(&dirs.bootstrap.join("epochs"))?,
        permitted: read_if_there(&dirs.bootstrap.join(INITIALIZE))?,
        until: read_if_there(&dirs.bootstrap.join("until"))?,
        required: read_if_there(&dirs.config.join(INITIALIZE))?,
        now,
    })
}

fn gather_volume(dirs: &Directories, separate_log: bool) -> Result<Found, String> {
    if !dirs.data.is_dir() {
        return Err(format!("there is no directory {}", dirs.data.display()));
    }
    let mut database = None;
    for directory in [&dirs.data, &dirs.datalog] {
        let version = directory.join(VERSION);
        let file = names(&version)?
            .into_iter()
            .find(|name| is_database_file(name));
        database = database.or(file.map(|name| version.join(name).display().to_string()));
    }
    let log_mark = match separate_log {
        true => Some(read_if_there(&dirs.datalog.join(MARK))?),
        false => None,
    };
    Ok(Found {
        mark: read_if_there(&dirs.data.join(MARK))?,
        log_mark,
        myid: read_if_there(&dirs.data.join(MYID))?,
        database,
    })
}

/// The epoch of the database: what ZooKeeper wrote down, or else that of the newest file.
fn epoch_on_disk(dirs: &Directories) -> Result<u64, String> {
    if let Some(epoch) = volumes::epoch(&dirs.data.join(VERSION), "currentEpoch")? {
        return Ok(epoch);
    }
    let mut newest = 0;
    for directory in [&dirs.data, &dirs.datalog] {
        let names = names(&directory.join(VERSION))?;
        let epochs = names.iter().filter_map(|name| epoch_of_file(name));
        newest = epochs.fold(newest, u64::max);
    }
    Ok(newest)
}

/// Removes the files that a start without a database left behind. An unknown file is an error and stays.
fn remove_leftovers(version: &Path) -> Result<(), String> {
    let names = names(version)?;
    if let Some(unknown) = names.iter().find(|name| !is_leftover_file(name)) {
        return Err(format!(
            "{} is no file that ZooKeeper leaves in an empty database directory. Remove it by hand if \
             it is not needed; the server may not bootstrap beside it.",
            version.join(unknown).display()
        ));
    }
    for name in &names {
        remove_if_there(&version.join(name))?;
    }
    if version.is_dir() {
        describe(fs::remove_dir(version), "remove", version)?;
    }
    Ok(())
}

fn copy_configuration(dirs: &Directories, zoo_cfg: &[u8]) -> Result<Vec<String>, String> {
    let mut copied = Vec::new();
    for name in names(&dirs.config)? {
        // A mounted ConfigMap has `..data` and the directory that it points to beside its files.
        let of_a_member = name.starts_with("zoo-") && name.ends_with(".cfg");
        let own = [INITIALIZE, "zoo.cfg", SETTINGS].contains(&name.as_str());
        if of_a_member || own || name.starts_with("..") {
            continue;
        }
        let path = dirs.config.join(&name);
        if !path.is_file() {
            continue;
        }
        if let Some(content) = read_if_there(&path)? {
            write_atomically(&dirs.conf.join(&name), &content, 0o644)?;
            copied.push(name);
        }
    }
    write_atomically(&dirs.conf.join("zoo.cfg"), zoo_cfg, 0o644)?;
    copied.push("zoo.cfg".to_owned());
    Ok(copied)
}

#[cfg(test)]
mod tests;
