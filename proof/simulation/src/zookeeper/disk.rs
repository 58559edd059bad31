//! Volumes, and what a server has in memory of them.

use bellwether_ensemble::ServerId;

use super::types::{Entry, List, epoch_of};

/// A volume.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    /// What the member program wrote on it.
    pub(super) mark: Option<String>,
    /// The file `myid`.
    pub(super) myid: Option<ServerId>,
    /// Whether the file `initialize` is there.
    pub(super) initialize: bool,
    /// The newest snapshot.
    pub(super) snapshot: Option<Snapshot>,
    /// The transaction log after the snapshot, as far as it is safe.
    pub(super) log: Vec<Entry>,
    /// The file `currentEpoch`.
    pub(super) current_epoch: Option<i64>,
    /// The file `acceptedEpoch`.
    pub(super) accepted_epoch: Option<i64>,
    /// The file with the list that the server knows as committed, where members change at run time.
    pub(super) committed: Option<List>,
    /// The file `zoo.cfg.dynamic.next`.
    pub(super) stored: Option<List>,
    /// How large it is, and how much of it is used beside what is counted here.
    pub(super) size: u64,
    pub(super) used: u64,
    /// Whether nothing can be written to it.
    pub(super) full: bool,
}

/// Every transaction up to a zxid.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) zxid: i64,
    pub(super) entries: Vec<Entry>,
}

impl Disk {
    pub(super) fn has_database(&self) -> bool {
        self.snapshot.is_some() || !self.log.is_empty()
    }

    /// What the newest of its files is named after.
    pub(super) fn newest_file_epoch(&self) -> u64 {
        let snapshot = self.snapshot.as_ref().map(|s| s.zxid);
        let log = self.log.first().map(|e| e.zxid);
        let newest = snapshot.into_iter().chain(log).max().unwrap_or(0);
        u64::try_from(epoch_of(newest)).unwrap_or(0)
    }

    pub(super) fn epoch(epoch: Option<i64>) -> Option<u64> {
        epoch.and_then(|e| u64::try_from(e).ok())
    }
}

/// The database of a running server.
#[derive(Clone, Debug, Default)]
pub(super) struct Database {
    /// Everything in its log, committed or not.
    pub(super) entries: Vec<Entry>,
    /// How many of them are committed, as far as it knows.
    pub(super) applied: usize,
    /// How many of them are safe on the disk.
    pub(super) safe: usize,
    /// `lastProcessedZxid`: of the last one applied, or the beginning of an epoch, or -1.
    pub(super) last: i64,
    pub(super) current_epoch: i64,
    pub(super) accepted_epoch: i64,
}

impl Database {
    /// Reads the volumes as `QuorumPeer.loadDataBase` does.
    ///
    /// With `db.autocreate=false` an empty volume without `initialize` gives the zxid -1, with which a
    /// server does not vote.
    pub(super) fn load(
        data: &mut Disk,
        log: Option<&mut Disk>,
        autocreate: bool,
    ) -> Result<Self, String> {
        let mut entries = data.snapshot.as_ref().map_or(vec![], |s| s.entries.clone());
        let mut last = data.snapshot.as_ref().map_or(-1, |s| s.zxid);
        let (initialize, newer) = match log {
            Some(log) => (&mut log.initialize, log.log.clone()),
            None => (&mut data.initialize, data.log.clone()),
        };
        let trusted = std::mem::take(initialize) || autocreate;
        if data.snapshot.is_none() {
            if !newer.is_empty() {
                return Err(
                    "No snapshot found, but there are log entries. Something is broken!".into(),
                );
            }
            if trusted {
                last = 0;
                data.snapshot = Some(Snapshot {
                    zxid: 0,
                    entries: vec![],
                });
            }
        }
        for entry in newer
            .into_iter()
            .filter(|e| e.zxid > last)
            .collect::<Vec<_>>()
        {
            last = entry.zxid;
            entries.push(entry);
        }
        let current = *data.current_epoch.get_or_insert(epoch_of(last));
        if epoch_of(last) > current {
            return Err(format!(
                "The current epoch, {current:x}, is older than the last zxid, {last:#x}"
            ));
        }
        let accepted = *data.accepted_epoch.get_or_insert(epoch_of(last));
        if accepted < current {
            return Err(format!(
                "The accepted epoch, {accepted:x} is less than the current epoch, {current:x}"
            ));
        }
        let count = entries.len();
        Ok(Self {
            entries,
            applied: count,
            safe: count,
            last,
            current_epoch: current,
            accepted_epoch: accepted,
        })
    }

    /// Takes everything logged as committed, which is what a server does when it ends a role
    /// (`ZKDatabase.fastForwardDataBase`).
    pub(super) fn apply_all(&mut self) {
        self.applied = self.entries.len();
        self.last = self.last.max(self.entries.last().map_or(-1, |e| e.zxid));
    }

    /// The committed transactions.
    pub(super) fn committed(&self) -> &[Entry] {
        &self.entries[..self.applied]
    }
}

/// Whether a history has this transaction with this write.
pub(super) fn holds(history: &[Entry], entry: Entry) -> bool {
    history
        .binary_search_by_key(&entry.zxid, |e| e.zxid)
        .is_ok_and(|at| history[at].write == entry.write)
}
