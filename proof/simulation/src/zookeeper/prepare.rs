//! What the member program does to a member's volumes before its server starts
//! (`bellwether-member prepare`), by the member program's own decision.

use bellwether_ensemble::ServerId;
use bellwether_member::{Around, Found, Identity, Marker, decide};

use super::Zoo;
use super::disk::Disk;
use super::types::DiskId;

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
    /// The data of the bootstrap ConfigMap, as the pod sees it.
    pub bootstrap: Bootstrap,
    /// The revision's list of servers that have to vote with an empty volume.
    pub required: Option<String>,
    /// Unix seconds.
    pub now: u64,
}

/// The keys of the bootstrap ConfigMap.
#[derive(Clone, Debug, Default)]
pub struct Bootstrap {
    /// The servers that may vote with an empty volume.
    pub initialize: Option<String>,
    /// Unix seconds after which they may no more.
    pub until: Option<String>,
    /// The epochs that the operator saw voters serving in.
    pub epochs: Option<String>,
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
        let decision = decide(&self.look_around(around))?;
        if decision.marker != Ok(Marker::Create) {
            for disk in [Some(around.disk), around.log_disk].into_iter().flatten() {
                self.disks[disk.0].initialize = false;
            }
        }
        let initialize = decision.marker? == Marker::Create;
        if let Some(log) = around.log_disk {
            self.disks[log.0].mark = Some(decision.mark.clone());
        }
        let data = &mut self.disks[around.disk.0];
        data.mark = Some(decision.mark);
        data.myid = Some(around.id);
        if initialize {
            data.current_epoch = None;
            data.accepted_epoch = None;
            let marked = around.log_disk.unwrap_or(around.disk);
            self.disks[marked.0].initialize = true;
        }
        Ok(Prepared { initialize })
    }

    fn look_around(&self, around: &Prepare) -> Around {
        let data = &self.disks[around.disk.0];
        let log = around.log_disk.map(|log| &self.disks[log.0]);
        let has_database = data.has_database() || log.is_some_and(Disk::has_database);
        let newest = data
            .newest_file_epoch()
            .max(log.map_or(0, Disk::newest_file_epoch));
        let bytes = |text: &Option<String>| text.clone().map(String::into_bytes);
        Around {
            identity: Identity {
                ensemble: around.ensemble.clone(),
                server_id: around.id.0.into(),
            },
            found: Found {
                mark: bytes(&data.mark),
                log_mark: log.map(|log| bytes(&log.mark)),
                myid: data.myid.map(|id| id.to_string().into_bytes()),
                database: has_database.then(|| "version-2".to_owned()),
            },
            epoch: Disk::epoch(data.current_epoch).unwrap_or(newest),
            recorded: bytes(&around.bootstrap.epochs),
            permitted: bytes(&around.bootstrap.initialize),
            until: bytes(&around.bootstrap.until),
            required: bytes(&around.required),
            now: around.now,
        }
    }
}
