//! What the member program does to a member's volumes before its server starts
//! (`bellwether-member prepare`): it marks them, refuses those that belong to another member or are
//! old copies, and permits an empty one to vote or not.

use bellwether_ensemble::ServerId;

use super::Zoo;
use super::disk::{Disk, Mark};
use super::types::DiskId;

/// The permission to start with an empty volume and vote, as the bootstrap ConfigMap has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permission {
    /// The servers that may.
    pub ids: Vec<ServerId>,
    /// Unix seconds after which they may no more.
    pub until: Option<u64>,
}

impl Permission {
    /// Reads the keys `initialize` and `until` of the bootstrap ConfigMap.
    pub fn parse(initialize: Option<&str>, until: Option<&str>) -> Self {
        let ids = initialize
            .unwrap_or_default()
            .split(',')
            .filter_map(|id| id.trim().parse().ok());
        Self {
            ids: ids.map(ServerId).collect(),
            until: until.and_then(|u| u.trim().parse().ok()),
        }
    }
}

/// What the member program finds around it.
#[derive(Clone, Debug)]
pub struct Prepare {
    /// `namespace/name` of the ensemble.
    pub ensemble: String,
    /// The member's id.
    pub id: ServerId,
    /// The volumes, as in the member's `zoo.cfg`.
    pub disk: DiskId,
    /// The volume of the transaction log, if it is another one.
    pub log_disk: Option<DiskId>,
    /// The permission, as the pod sees it.
    pub permission: Permission,
    /// Whether the revision says that this member votes with an empty volume.
    pub must_initialize: bool,
    /// The epoch on record of this member.
    pub recorded_epoch: Option<u64>,
    /// Unix seconds.
    pub now: u64,
}

/// What the member program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Whether the server votes with its empty volume.
    pub initialize: bool,
}

impl Zoo {
    /// Prepares a member's volumes.
    ///
    /// # Errors
    /// Why the member program refuses them, and its container fails and is tried again.
    pub fn prepare(&mut self, around: &Prepare) -> Result<Prepared, String> {
        let data = &self.disks[around.disk.0];
        let log = around.log_disk.map(|log| &self.disks[log.0]);
        let has_database = data.has_database() || log.is_some_and(Disk::has_database);
        check_owner(around, data, log, has_database)?;
        let empty_at = if has_database {
            data.mark.as_ref().and_then(|m| m.empty_at)
        } else {
            around.recorded_epoch
        };
        if has_database {
            check_epoch(around, data, log, empty_at)?;
        }
        let marker = decide_marker(around, has_database);
        let starts = log.map(|log| {
            let of = |disk: &Disk| disk.mark.as_ref().and_then(|m| m.starts);
            of(data).or(of(log)).unwrap_or(0) + 1
        });
        if marker != Ok(true) {
            for disk in [Some(around.disk), around.log_disk].into_iter().flatten() {
                self.disks[disk.0].initialize = false;
            }
        }
        let initialize = marker?;
        let mark = Mark {
            ensemble: around.ensemble.clone(),
            id: around.id,
            empty_at,
            starts,
        };
        if let Some(log) = around.log_disk {
            self.disks[log.0].mark = Some(mark.clone());
        }
        let data = &mut self.disks[around.disk.0];
        data.mark = Some(mark);
        data.myid = Some(around.id);
        if initialize {
            data.current_epoch = None;
            data.accepted_epoch = None;
            let marked = around.log_disk.unwrap_or(around.disk);
            self.disks[marked.0].initialize = true;
        }
        Ok(Prepared { initialize })
    }
}

fn check_owner(
    around: &Prepare,
    data: &Disk,
    log: Option<&Disk>,
    has_database: bool,
) -> Result<(), String> {
    let own = |mark: &Mark| mark.ensemble == around.ensemble && mark.id == around.id;
    let marks = [("data", Some(data)), ("transaction log", log)];
    for (volume, mark) in marks
        .iter()
        .filter_map(|(v, d)| Some((v, (*d)?.mark.as_ref()?)))
    {
        if !own(mark) {
            return Err(format!(
                "the {volume} volume belongs to server {} of ensemble {}, but this pod is server {} of \
                 ensemble {}",
                mark.id, mark.ensemble, around.id, around.ensemble
            ));
        }
    }
    if let Some(id) = data.myid.filter(|id| *id != around.id) {
        return Err(format!("the data volume has the myid of server {id}"));
    }
    let starts = |disk: &Disk| disk.mark.as_ref().and_then(|m| m.starts);
    let Some(log) = log else {
        if starts(data).is_some() {
            return Err(
                "the transaction log is on another volume, which this pod lacks".to_owned(),
            );
        }
        return match data.mark {
            None if has_database => {
                Err("the volume holds a database but no mark of Bellwether".to_owned())
            }
            _ => Ok(()),
        };
    };
    if let (Some(of_data), Some(of_log)) = (starts(data), starts(log))
        && has_database
        && of_log != of_data
        && of_log != of_data + 1
    {
        return Err(format!(
            "the data volume is of start {of_data} of this member, and the transaction log volume of \
             start {of_log}: one of them is an old copy"
        ));
    }
    match (&data.mark, &log.mark) {
        (None, Some(_)) if has_database => Err("the data volume is new, the log is not".to_owned()),
        (Some(_), None) if has_database => Err("the log volume is new, the data is not".to_owned()),
        (None, None) if has_database => {
            Err("the volume holds a database but no mark of Bellwether".to_owned())
        }
        _ => Ok(()),
    }
}

fn check_epoch(
    around: &Prepare,
    data: &Disk,
    log: Option<&Disk>,
    empty_at: Option<u64>,
) -> Result<(), String> {
    let newest = data
        .newest_file_epoch()
        .max(log.map_or(0, Disk::newest_file_epoch));
    let on_disk = Disk::epoch(data.current_epoch).unwrap_or(newest);
    match around.recorded_epoch {
        Some(recorded) if on_disk < recorded && empty_at != Some(recorded) => Err(format!(
            "the data volume is older than it should be: its database is of epoch {on_disk}, and this \
             server has served in epoch {recorded}"
        )),
        _ => Ok(()),
    }
}

fn decide_marker(around: &Prepare, has_database: bool) -> Result<bool, String> {
    if has_database {
        return Ok(false);
    }
    let permitted = around.permission.ids.contains(&around.id);
    let until = around.permission.until.unwrap_or(0);
    if permitted && around.now > until {
        return Err(format!(
            "the permission to bootstrap expired {} s ago",
            around.now - until
        ));
    }
    if around.must_initialize && !permitted {
        return Err(
            "the volume is empty, this server's list needs its vote, and nothing permits it \
                    to vote with an empty volume"
                .to_owned(),
        );
    }
    Ok(permitted)
}
