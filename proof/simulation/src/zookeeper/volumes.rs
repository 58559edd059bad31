//! Volumes as the rest of the simulation sees them.

use bellwether_ensemble::volume_report::{Usage, VolumeReport};

use super::Zoo;
use super::disk::Disk;
use super::types::{DiskId, Entry, ProcessId};

/// The size of a new volume.
const SIZE: u64 = 8 << 30;
/// What one transaction takes on a disk.
const ENTRY_BYTES: u64 = 200;

impl Zoo {
    /// A new, empty volume.
    pub fn new_disk(&mut self) -> DiskId {
        self.disks.push(Disk {
            size: SIZE,
            ..Disk::default()
        });
        DiskId(self.disks.len() - 1)
    }

    /// A volume with what is on this one now: an old copy, when it is used later.
    pub fn copy_disk(&mut self, disk: DiskId) -> DiskId {
        let copy = self.disks[disk.0].clone();
        self.disks.push(copy);
        DiskId(self.disks.len() - 1)
    }

    /// Everything on the volume is gone.
    pub fn wipe(&mut self, disk: DiskId) {
        let size = self.disks[disk.0].size;
        self.disks[disk.0] = Disk {
            size,
            ..Disk::default()
        };
    }

    /// How large the volume is, and how much of it is used by what the servers did not write.
    pub fn set_usage(&mut self, disk: DiskId, size: u64, used: u64) {
        let disk = &mut self.disks[disk.0];
        (disk.size, disk.used) = (size, used);
    }

    /// Nothing can be written to the volume, or it can again.
    pub fn set_full(&mut self, disk: DiskId, full: bool) {
        self.disks[disk.0].full = full;
    }

    /// What the member program reports of the volumes.
    pub fn volume_report(&self, data: DiskId, log: Option<DiskId>) -> VolumeReport {
        let disk = &self.disks[data.0];
        let log = log.map(|log| &self.disks[log.0]);
        VolumeReport {
            has_database: disk.has_database() || log.is_some_and(Disk::has_database),
            current_epoch: Disk::epoch(disk.current_epoch),
            accepted_epoch: Disk::epoch(disk.accepted_epoch),
            stored_list: disk.stored_list(),
            data: usage(disk),
            transaction_log: log.map(usage),
        }
    }

    /// What the member program of this process reports of the volumes.
    pub fn volumes_of(&self, process: ProcessId) -> VolumeReport {
        let start = &self.process(process).start;
        self.volume_report(start.disk, start.log_disk)
    }

    /// The transactions that are safe on a member's volumes.
    pub fn on_disk(&self, data: DiskId, log: Option<DiskId>) -> Vec<Entry> {
        let snapshot = self.disks[data.0].snapshot.as_ref();
        let last = snapshot.map_or(-1, |s| s.zxid);
        let mut all = snapshot.map_or(vec![], |s| s.entries.clone());
        let log = &self.disks[log.unwrap_or(data).0].log;
        all.extend(log.iter().filter(|e| e.zxid > last));
        all
    }
}

impl Disk {
    /// The version of a list that is stored and not known as committed.
    fn stored_list(&self) -> Option<u64> {
        let known = self.committed.as_ref().map_or(0, |list| list.version);
        let stored = self.stored.as_ref().map(|list| list.version);
        u64::try_from(stored.filter(|version| *version > known)?).ok()
    }
}

fn usage(disk: &Disk) -> Usage {
    let snapshot = disk.snapshot.as_ref().map_or(0, |s| s.entries.len());
    let entries = u64::try_from(snapshot + disk.log.len()).unwrap_or(0);
    let used = disk.used.saturating_add(entries * ENTRY_BYTES);
    let free = if disk.full {
        0
    } else {
        disk.size.saturating_sub(used)
    };
    Usage {
        total: disk.size,
        free,
    }
}
