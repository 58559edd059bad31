//! The servers on their own: what real ones were seen to do, they do too.

mod disks;
mod elections;
mod faults;
mod lists;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellwether_ensemble::ServerId;

use super::clients::Writer;
use super::*;

const NAME: &str = "shop/zk";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// An ensemble whose servers are started and ended by hand, and clients that write.
struct Bench {
    zoo: Zoo,
    disks: BTreeMap<u16, DiskId>,
    processes: BTreeMap<u16, ProcessId>,
    writers: Vec<Writer>,
    settings: Settings,
}

fn host(id: u16) -> String {
    format!("zk-{}", id - 1)
}

impl Bench {
    fn empty(seed: u64) -> Self {
        Self {
            zoo: Zoo::new(seed),
            disks: BTreeMap::new(),
            processes: BTreeMap::new(),
            writers: Vec::new(),
            // As Bellwether renders them.
            settings: Settings {
                autocreate: false,
                longest_notification: ms(500),
                longest_wait_for_epoch: Some(secs(2)),
                connect_delay: ms(200),
                ..Settings::default()
            },
        }
    }

    /// Servers 1 to `size` that serve.
    fn started(seed: u64, size: u16) -> Self {
        let mut bench = Self::empty(seed);
        let all: Vec<u16> = (1..=size).collect();
        for id in &all {
            bench.disk(*id, true);
            bench.start(*id, &all);
        }
        bench.run(secs(5));
        assert_eq!(
            bench.serving().len(),
            usize::from(size),
            "{}",
            bench.story()
        );
        bench
    }

    /// A new disk for a member; a `first` one may vote while it is empty.
    fn disk(&mut self, id: u16, first: bool) -> DiskId {
        let disk = self.zoo.new_disk();
        self.disks.insert(id, disk);
        let bootstrap = Bootstrap {
            initialize: first.then(|| id.to_string()),
            until: Some("1".to_owned()),
            epochs: None,
        };
        let around = Prepare {
            ensemble: NAME.to_owned(),
            id: ServerId(id),
            disk,
            log_disk: None,
            bootstrap,
            required: None,
            now: 0,
        };
        assert_eq!(self.zoo.prepare(&around).unwrap().initialize, first);
        disk
    }

    /// Starts a member, or restarts it, with a list.
    fn start(&mut self, id: u16, list: &[u16]) -> ProcessId {
        let now = self.zoo.now();
        let process = self.start_unresolved(id, list);
        self.zoo.resolve(&host(id), Some(process), now);
        process
    }

    fn start_unresolved(&mut self, id: u16, list: &[u16]) -> ProcessId {
        let now = self.zoo.now();
        if let Some(old) = self.processes.get(&id) {
            self.zoo.kill(now, *old);
        }
        let start = Start {
            ensemble: NAME.to_owned(),
            id: ServerId(id),
            host: host(id),
            voters: list.iter().map(|id| (ServerId(*id), host(*id))).collect(),
            version: 0,
            servers: BTreeMap::new(),
            observers: BTreeSet::new(),
            observer: !list.contains(&id),
            disk: self.disks[&id],
            log_disk: None,
            settings: self.settings.clone(),
        };
        let process = self.zoo.start(now, start);
        self.processes.insert(id, process);
        process
    }

    fn kill(&mut self, id: u16) {
        self.zoo.kill(self.zoo.now(), self.processes[&id]);
    }

    /// A client that writes every 5 ms through these members.
    fn write_through(&mut self, ids: &[u16]) {
        let client = ClientId(u64::try_from(self.writers.len()).unwrap() + 1);
        let mut writer = Writer::new(client, NAME, ms(5), self.zoo.now());
        writer.use_servers(ids.iter().map(|id| self.processes[id]).collect());
        self.writers.push(writer);
    }

    /// The clients stop, and what is under way comes to its end.
    fn stop_writing(&mut self) {
        for writer in &mut self.writers {
            writer.use_servers(vec![]);
        }
        self.run(secs(1));
    }

    /// Lets time pass.
    fn run(&mut self, time: Duration) {
        let end = self.zoo.now() + time;
        loop {
            let own = self.writers.iter().filter_map(Writer::next_event).min();
            let next = own.into_iter().chain(self.zoo.next_event()).min();
            let now = next.unwrap_or(end).max(self.zoo.now()).min(end);
            self.zoo.advance(now);
            let answers = self.zoo.take_answers();
            for writer in &mut self.writers {
                writer.advance(&mut self.zoo, now, &answers);
            }
            if now == end {
                return;
            }
        }
    }

    /// Lets time pass until this holds; how long it took.
    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Duration {
        let begin = self.zoo.now();
        while !holds(self) {
            assert!(
                self.zoo.now() < begin + secs(120),
                "{what}: {}",
                self.story()
            );
            self.run(ms(10));
        }
        self.zoo.now() - begin
    }

    fn phase(&self, id: u16) -> Phase {
        self.zoo.phase(self.processes[&id])
    }

    fn serving(&self) -> Vec<u16> {
        let serves = |p: &ProcessId| self.zoo.read(*p).is_some();
        self.processes
            .iter()
            .filter(|(_, p)| serves(p))
            .map(|(id, _)| *id)
            .collect()
    }

    fn leaders(&self) -> Vec<u16> {
        let leaders = self.zoo.leaders_that_can_commit(NAME);
        leaders.iter().map(|p| self.zoo.start_of(*p).id.0).collect()
    }

    fn leader(&self) -> u16 {
        let leaders = self.leaders();
        assert_eq!(leaders.len(), 1);
        leaders[0]
    }

    fn acknowledged(&self) -> usize {
        self.writers.iter().map(Writer::acknowledged).sum()
    }

    fn harm(&self) -> Vec<Harm> {
        self.zoo.violations().iter().map(|v| v.kind).collect()
    }

    fn story(&self) -> String {
        let happening = |h: &Happening| {
            let id = self.zoo.start_of(h.process).id;
            format!("{:>9.3} s  server {id}: {}\n", h.at.as_secs_f64(), h.text)
        };
        let lines: String = self.zoo.happenings.iter().map(happening).collect();
        format!("\n{lines}{:#?}", self.zoo.violations())
    }
}
