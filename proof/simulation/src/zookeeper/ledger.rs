//! What was acknowledged and committed, and what must never be the case.

use std::collections::BTreeMap;

use super::Zoo;
use super::disk::holds;
use super::process::{Lead, Role};
use super::types::{Entry, Harm, ProcessId, Violation};

/// How many lost writes a sentence names.
const NAMED: usize = 5;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The writes that were acknowledged to clients, by ensemble.
    acknowledged: BTreeMap<String, Vec<Entry>>,
    /// What leaders committed, and which one first.
    committed: BTreeMap<String, BTreeMap<i64, (u64, ProcessId)>>,
    pub(super) violations: Vec<Violation>,
    /// The pairs of leaders that were reported.
    reported: Vec<(ProcessId, ProcessId)>,
}

impl Zoo {
    /// What was seen so far that must never be the case.
    pub fn violations(&self) -> &[Violation] {
        &self.ledger.violations
    }

    /// The writes of this ensemble that were acknowledged and not excused.
    pub fn acknowledged(&self, ensemble: &str) -> &[Entry] {
        self.ledger
            .acknowledged
            .get(ensemble)
            .map_or(&[], Vec::as_slice)
    }

    /// How many writes this ensemble has committed.
    pub fn committed(&self, ensemble: &str) -> usize {
        self.ledger.committed.get(ensemble).map_or(0, BTreeMap::len)
    }

    /// A person has accepted that data of this ensemble is lost, or deleted the ensemble: the
    /// ledger forgets what was acknowledged until now.
    pub fn excuse(&mut self, ensemble: &str) {
        self.ledger.acknowledged.remove(ensemble);
        self.ledger.committed.remove(ensemble);
    }

    /// The leaders of this ensemble that could commit a write now: a majority of the own list follows
    /// and can be reached.
    pub fn leaders_that_can_commit(&self, ensemble: &str) -> Vec<ProcessId> {
        let all = self.alive.iter().copied();
        all.filter(|id| self.process(*id).start.ensemble == ensemble && self.can_commit(*id))
            .collect()
    }

    fn can_commit(&self, id: ProcessId) -> bool {
        let process = self.process(id);
        let Role::Leading(leading) = &process.role else {
            return false;
        };
        if leading.stage != Lead::Serving || process.frozen {
            return false;
        }
        let works = leading
            .learners
            .iter()
            .filter(|(link, l)| l.copied && self.link_works(**link));
        let own = process.id();
        let works = works.map(|(_, l)| l.id).chain([own]).collect();
        process.decides(&works)
    }

    /// Looks whether every leader that can commit has every acknowledged write; at the end of a run
    /// and whenever the caller likes.
    pub fn check(&mut self, ensemble: &str) {
        let leaders = self.leaders_that_can_commit(ensemble);
        for leader in leaders {
            self.check_history(leader, Harm::StaleRead);
            self.check_followers_of(leader);
        }
        self.check_leaders(ensemble);
    }

    pub(super) fn note_acknowledged(&mut self, id: ProcessId, entry: Entry) {
        let ensemble = self.process(id).start.ensemble.clone();
        self.ledger
            .acknowledged
            .entry(ensemble)
            .or_default()
            .push(entry);
    }

    pub(super) fn note_commit(&mut self, id: ProcessId, entry: Entry) {
        let ensemble = self.process(id).start.ensemble.clone();
        let committed = self.ledger.committed.entry(ensemble.clone()).or_default();
        let first = *committed.entry(entry.zxid).or_insert((entry.write, id));
        if first.0 != entry.write {
            let text = format!(
                "{} and {} both committed zxid {:#x}: the one write {}, the other write {}",
                self.name(first.1),
                self.name(id),
                entry.zxid,
                first.0,
                entry.write
            );
            self.violate(&ensemble, Harm::TwoHistories, text);
        }
        self.check_leaders(&ensemble);
    }

    /// A new leader has finished its synchronization.
    pub(super) fn leader_serves(&mut self, id: ProcessId) {
        self.check_history(id, Harm::LostWrite);
        let ensemble = self.process(id).start.ensemble.clone();
        self.check_leaders(&ensemble);
    }

    fn check_history(&mut self, id: ProcessId, kind: Harm) {
        let ensemble = self.process(id).start.ensemble.clone();
        let history = self.process(id).data.committed();
        let Some(acknowledged) = self.ledger.acknowledged.get(&ensemble) else {
            return;
        };
        let lost: Vec<Entry> = acknowledged
            .iter()
            .filter(|e| !holds(history, **e))
            .copied()
            .collect();
        if lost.is_empty() {
            return;
        }
        let writes = lost
            .iter()
            .take(NAMED)
            .map(|e| format!("{} ({:#x})", e.write, e.zxid));
        let writes: Vec<String> = writes.collect();
        let text = format!(
            "{} leads without {} of {} acknowledged writes: {}{}",
            self.name(id),
            lost.len(),
            acknowledged.len(),
            writes.join(", "),
            if lost.len() > NAMED { " ..." } else { "" }
        );
        // Each loss is reported once.
        if let Some(acknowledged) = self.ledger.acknowledged.get_mut(&ensemble) {
            acknowledged.retain(|e| !lost.contains(e));
        }
        self.violate(&ensemble, kind, text);
    }

    /// Checks that the leader has everything that its followers serve.
    fn check_followers_of(&mut self, leader: ProcessId) {
        let Role::Leading(leading) = &self.process(leader).role else {
            return;
        };
        let history = self.process(leader).data.committed();
        let links = leading
            .learners
            .keys()
            .filter_map(|link| self.network.linked(*link));
        let serving = links
            .map(|(learner, _)| learner)
            .filter(|l| self.process(*l).serves());
        let mut texts = Vec::new();
        for learner in serving {
            let own = self.process(learner).data.committed();
            if let Some(entry) = own.iter().find(|e| !holds(history, **e)) {
                texts.push(format!(
                    "{} serves write {} with zxid {:#x}, which its leader, {}, does not have",
                    self.name(learner),
                    entry.write,
                    entry.zxid,
                    self.name(leader)
                ));
            }
        }
        let ensemble = self.process(leader).start.ensemble.clone();
        for text in texts {
            self.violate(&ensemble, Harm::TwoHistories, text);
        }
    }

    fn check_leaders(&mut self, ensemble: &str) {
        let leaders = self.leaders_that_can_commit(ensemble);
        for pair in leaders.windows(2) {
            let pair = (pair[0], pair[1]);
            if self.ledger.reported.contains(&pair) {
                continue;
            }
            self.ledger.reported.push(pair);
            let text = format!(
                "{} and {} can both commit writes",
                self.described(pair.0),
                self.described(pair.1)
            );
            self.violate(ensemble, Harm::TwoLeaders, text);
        }
    }

    fn violate(&mut self, ensemble: &str, kind: Harm, text: String) {
        let violation = Violation {
            at: self.now,
            ensemble: ensemble.to_owned(),
            kind,
            text,
        };
        self.ledger.violations.push(violation);
    }

    fn name(&self, id: ProcessId) -> String {
        let process = self.process(id);
        format!("server {} (process {})", process.id(), id.0)
    }

    /// A leader with its list and its followers.
    fn described(&self, id: ProcessId) -> String {
        let process = self.process(id);
        let list: Vec<String> = process.voters.keys().map(ToString::to_string).collect();
        let followers: Vec<String> = match &process.role {
            Role::Leading(leading) => leading
                .learners
                .values()
                .map(|l| l.id.to_string())
                .collect(),
            _ => vec![],
        };
        let epoch = process.data.current_epoch;
        format!(
            "server {} with list {} in epoch {epoch}, followed by {}",
            process.id(),
            list.join(","),
            followers.join(",")
        )
    }
}
