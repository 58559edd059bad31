//! Lists on which servers agree while they run (`reconfig`): `QuorumPeer.processReconfig`, `Leader.propose`,
//! `Leader.startZkServer` and `PrepRequestProcessor`.
//!
//! What is simplified: a learner takes over the leader's list when it is up to date, also where it has stored another one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellwether_ensemble::ids::ServerList;
use bellwether_ensemble::{ServerId, Voters};

use super::process::{Lead, Role};
use super::types::{Entry, List, ListId, ProcessId, ReconfigurationId, Start, zxid_of};
use super::{DiskId, Event, Zoo};

/// One request in so many is on its way for long.
const LATE: u8 = 12;
/// For how long at most.
const LONGEST: Duration = Duration::from_secs(20);

/// What became of a request for another list.
pub(super) type Reconfigured = Result<(), String>;

impl Zoo {
    fn new_list(&mut self, list: List) -> ListId {
        self.lists.push(list);
        ListId(self.lists.len() - 1)
    }

    /// The list that a process begins with, and what it has stored since.
    pub(super) fn begin_with(
        &mut self,
        start: &Start,
        voters: &BTreeMap<ServerId, String>,
    ) -> (i64, Option<ListId>, Option<List>) {
        let disk = &mut self.disks[start.disk.0];
        if !start.settings.reconfigures {
            (disk.committed, disk.stored) = (None, None);
            return (0, None, None);
        }
        if start.version == 0 {
            disk.committed = None;
        }
        let stored = disk.stored.clone();
        let next = stored.filter(|list| list.version > start.version);
        let own = || List {
            version: start.version,
            voters: voters.clone(),
            observers: start.observers.clone(),
        };
        let list = (start.version > 0).then(|| self.new_list(own()));
        (start.version, list, next)
    }

    /// A server knows this list as committed, if it is later than its own. Returns whether it is. A learner that observes by one of
    /// them and not by the other connects again (`QuorumPeer.updateLearnerType`).
    pub(super) fn adopt(&mut self, id: ProcessId, list: ListId) -> bool {
        let new = self.lists[list.0].clone();
        let process = self.process(id);
        if !process.start.settings.reconfigures || new.version <= process.version {
            return false;
        }
        if new.observers.contains(&process.id()) != process.observes() {
            self.leave(id, "becomes another kind of learner");
        }
        let process = &mut self.processes[id.0];
        process.voters = new.voters.clone();
        process.observers = new.observers.clone();
        (process.list, process.version) = (Some(list), new.version);
        process.next = process
            .next
            .take()
            .filter(|next| next.version > new.version);
        self.disks[process.start.disk.0].committed = Some(new);
        self.tell(id, "has another list");
        true
    }

    /// A server has stored a list that is proposed.
    pub(super) fn store_list(&mut self, id: ProcessId, list: ListId) {
        let new = self.lists[list.0].clone();
        let process = &mut self.processes[id.0];
        if process.start.settings.reconfigures && new.version > process.version {
            process.next = Some(new.clone());
            self.disks[process.start.disk.0].stored = Some(new);
        }
    }

    /// A learner that is up to date takes over the list of its leader.
    pub(super) fn take_over(&mut self, id: ProcessId, list: Option<ListId>) {
        let Some(list) = list else { return };
        self.adopt(id, list);
        let process = &mut self.processes[id.0];
        if process.start.settings.reconfigures {
            process.next = None;
            self.disks[process.start.disk.0].stored = None;
        }
    }

    /// A leader that begins to serve completes the list that it has stored. The first leader gives the list a version.
    pub(super) fn complete_list(&mut self, id: ProcessId, epoch: i64) {
        let process = self.process(id);
        if !process.start.settings.reconfigures {
            return;
        }
        let list = match &process.next {
            Some(next) => Some(next.clone()),
            None => (process.version == 0).then(|| List {
                version: zxid_of(epoch),
                voters: process.voters.clone(),
                observers: process.observers.clone(),
            }),
        };
        if let Some(list) = list {
            let list = self.new_list(list);
            self.adopt(id, list);
        }
    }

    /// A leader that its list does not name steps down.
    pub(super) fn leave_if_not_named(&mut self, id: ProcessId) {
        let process = self.process(id);
        let leads = matches!(&process.role, Role::Leading(l) if l.stage == Lead::Serving);
        if leads && !process.voters.contains_key(&process.id()) {
            self.leave(id, "leads by a list that does not name it");
        }
    }

    /// Somebody asks a server for another list, if the present one has this version. The request may be on its way for long.
    pub fn reconfigure(
        &mut self,
        now: Duration,
        process: ProcessId,
        list: &ServerList,
        version: u64,
    ) -> ReconfigurationId {
        self.advance(now);
        let request = ReconfigurationId(u64::try_from(self.reconfigurations.len()).unwrap_or(0));
        self.reconfigurations.push(None);
        let longest = match self.rng.u8(0..LATE) {
            0 => LONGEST,
            _ => self.timing.latency.1,
        };
        let way = self.between((self.timing.latency.0, longest));
        self.schedule(
            self.now + way,
            Event::Reconfigure {
                process,
                request,
                list: list.clone(),
                version: i64::try_from(version).unwrap_or(i64::MAX),
            },
        );
        request
    }

    /// What became of a request, if it is decided.
    pub fn outcome(&self, request: ReconfigurationId) -> Option<Reconfigured> {
        let number = usize::try_from(request.0).ok()?;
        self.reconfigurations.get(number)?.clone()
    }

    pub(super) fn reconfigured(&mut self, request: ReconfigurationId, outcome: Reconfigured) {
        let number = usize::try_from(request.0).unwrap_or(usize::MAX);
        if let Some(of) = self.reconfigurations.get_mut(number) {
            *of = Some(outcome);
        }
    }

    pub(super) fn ask_for_list(
        &mut self,
        id: ProcessId,
        request: ReconfigurationId,
        list: &ServerList,
        version: i64,
    ) {
        if let Err(why) = self.try_reconfigure(id, request, list, version) {
            self.reconfigured(request, Err(why.to_owned()));
        }
    }

    fn try_reconfigure(
        &mut self,
        id: ProcessId,
        request: ReconfigurationId,
        list: &ServerList,
        version: i64,
    ) -> Result<(), &'static str> {
        let process = self.process(id);
        let Role::Leading(leading) = &process.role else {
            return Err("it does not lead");
        };
        if !process.alive || leading.stage != Lead::Serving {
            return Err("it does not lead");
        }
        if process.next.is_some() {
            return Err("ReconfigInProgress");
        }
        if process.version != version {
            return Err("BadVersion");
        }
        let synced = leading.learners.values().filter(|l| l.copied);
        let synced: BTreeSet<ServerId> = synced.map(|l| l.id).chain([process.id()]).collect();
        let host = |id: ServerId| Some((id, process.start.servers.get(&id)?.clone()));
        let voters: Option<BTreeMap<ServerId, String>> = list.voters.iter().map(host).collect();
        let voters = voters.ok_or("BadArguments")?;
        let observers = list.observers.clone();
        if observers.iter().any(|id| host(*id).is_none()) {
            return Err("BadArguments");
        }
        if synced.iter().filter(|id| voters.contains_key(id)).count() <= voters.len() / 2 {
            return Err("NewConfigNoQuorum");
        }
        let zxid = leading.last_proposed + 1;
        let list = self.new_list(List {
            version: zxid,
            voters,
            observers,
        });
        self.propose_entry(id, Entry::of_list(zxid, list), Some(request));
        Ok(())
    }

    /// The list that a server judges by.
    pub fn list_of(&self, process: ProcessId) -> Voters {
        self.process(process).voters.keys().copied().collect()
    }

    /// The list that is on a volume as the committed one.
    pub fn committed_list(&self, disk: DiskId) -> Option<&List> {
        self.disks[disk.0].committed.as_ref()
    }
}
