//! The store behind the front ends: objects, their changes in order, and who made them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::admission::Admission;
use super::kind::Kind;
use super::object::Object;
use super::ownership::Ownership;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was made.
    Added,
    /// It is another one than before.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change, as watches tell it.
#[derive(Clone, Debug)]
pub struct Event {
    /// The revision of the store that it made.
    pub revision: u64,
    /// When.
    pub at: Instant,
    /// What happened.
    pub change: Change,
    /// The object after it; of a deletion, the object as it was last.
    pub object: Arc<Object>,
    /// The object before it.
    pub before: Option<Arc<Object>>,
}

/// A request that would change an object, and what became of it.
#[derive(Clone, Debug)]
pub struct Write {
    /// When.
    pub at: Timestamp,
    /// When a client sent the request for it; `None` for the controllers.
    pub sent: Option<Instant>,
    /// Who asked for it.
    pub actor: Arc<str>,
    /// What was asked for.
    pub verb: Verb,
    /// The kind of the object.
    pub kind: Kind,
    /// Its namespace; empty where there is none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The subresource; empty for the object itself.
    pub subresource: &'static str,
    /// The object before, if it was.
    pub before: Option<Arc<Object>>,
    /// The object after the write, `None` if it was deleted; or the code and the message of the refusal.
    pub result: Result<Option<Arc<Object>>, (u16, String)>,
}

/// What a write asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the verb of its name")]
pub enum Verb {
    Create,
    Update,
    Patch,
    Apply,
    Delete,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) object: Arc<Object>,
    pub(crate) ownership: Ownership,
}

/// The objects of one kind.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// By namespace, then by name.
    objects: BTreeMap<String, BTreeMap<String, Entry>>,
    /// The changes that are remembered, oldest first.
    events: VecDeque<Event>,
    /// The revision of the newest change that is not remembered any more.
    forgotten: u64,
    /// The revision of the last change.
    changed: u64,
    pub(crate) notify: Arc<Notify>,
}

/// How many changes of a kind are remembered.
const REMEMBERED: usize = 5_000;

/// The store.
#[derive(Debug)]
pub struct Store {
    revision: u64,
    tables: Vec<Table>,
    random: fastrand::Rng,
    writes: Vec<Write>,
    /// When the request that is being carried out was sent.
    pub(crate) sent: Option<Instant>,
    /// What is asked before a write is carried out.
    pub admission: Admission,
}

impl Store {
    /// An empty store; everything random comes from the seed.
    pub fn new(seed: u64) -> Self {
        Self {
            // A cluster that just began has some history already.
            revision: 100,
            tables: Kind::all().map(|_| Table::default()).collect(),
            random: fastrand::Rng::with_seed(seed),
            writes: Vec::new(),
            sent: None,
            admission: Admission::default(),
        }
    }

    /// The revision of the last change of any kind.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision of the last change of a kind: as long as it stays, nothing of the kind is different.
    pub fn changed(&self, kind: Kind) -> u64 {
        self.table(kind).changed
    }

    /// The revision of the last change of a kind up to a revision.
    pub(crate) fn changed_by(&self, kind: Kind, revision: u64) -> u64 {
        let table = self.table(kind);
        if revision >= table.changed {
            return table.changed;
        }
        let after = table.events.partition_point(|e| e.revision <= revision);
        let last = after.checked_sub(1).and_then(|last| table.events.get(last));
        last.map_or(table.forgotten, |event| event.revision)
    }

    /// An object.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        let entry = self.table(kind).objects.get(namespace)?.get(name)?;
        Some(&entry.object)
    }

    /// The objects of a kind by namespace and name; all of them, or those of a namespace.
    pub fn list<'s>(
        &'s self,
        kind: Kind,
        namespace: Option<&'s str>,
    ) -> impl Iterator<Item = &'s Arc<Object>> {
        let all = self.table(kind).objects.iter();
        all.filter(move |(within, _)| namespace.is_none_or(|namespace| namespace == *within))
            .flat_map(|(_, objects)| objects.values())
            .map(|entry| &entry.object)
    }

    /// The changes of a kind after a revision, oldest first.
    ///
    /// # Errors
    /// The oldest revision that changes are remembered since, when some of them are forgotten.
    pub fn events_since(
        &self,
        kind: Kind,
        revision: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Event>, u64> {
        let table = self.table(kind);
        if revision < table.forgotten {
            return Err(table.forgotten);
        }
        let from = table.events.partition_point(|e| e.revision <= revision);
        Ok(table.events.range(from..))
    }

    /// Forgets the changes of a kind up to a revision, as etcd and the watch caches do after a while.
    pub fn forget(&mut self, kind: Kind, up_to: u64) {
        let table = &mut self.tables[kind.index()];
        while table.events.front().is_some_and(|e| e.revision <= up_to) {
            table.events.pop_front();
        }
        table.forgotten = table.forgotten.max(up_to.min(self.revision));
    }

    /// Every write so far, in order.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Takes the writes so far out of the log.
    pub fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }

    pub(crate) fn log(&mut self, write: Write) {
        self.writes.push(write);
    }

    pub(crate) fn table(&self, kind: Kind) -> &Table {
        &self.tables[kind.index()]
    }

    pub(crate) fn entry_mut(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Option<&mut Entry> {
        let table = &mut self.tables[kind.index()];
        table.objects.get_mut(namespace)?.get_mut(name)
    }

    /// A new uid, which distinguishes objects of the same name.
    pub(crate) fn new_uid(&mut self) -> String {
        let id = self.random.u128(..);
        // The version and the variant of a random UUID.
        let id = id & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        let hex = format!("{id:032x}");
        [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ]
        .join("-")
    }

    /// The end of a generated name.
    pub(crate) fn new_suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let letter = |_| char::from(LETTERS[self.random.usize(..LETTERS.len())]);
        (0..5).map(letter).collect()
    }

    /// Puts an object in place of what was there.
    pub(crate) fn put(&mut self, kind: Kind, value: Value, ownership: Ownership) -> Arc<Object> {
        self.revision += 1;
        let object = Arc::new(Object::new(value, self.revision));
        let table = &mut self.tables[kind.index()];
        let entry = Entry {
            object: object.clone(),
            ownership,
        };
        let within = table.objects.entry(object.namespace().to_owned());
        let before = within.or_default().insert(object.name().to_owned(), entry);
        let before = before.map(|entry| entry.object);
        table.remember(Event {
            revision: self.revision,
            at: Instant::now(),
            change: match before {
                Some(_) => Change::Modified,
                None => Change::Added,
            },
            object: object.clone(),
            before,
        });
        object
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        let table = &mut self.tables[kind.index()];
        let Some(within) = table.objects.get_mut(namespace) else {
            return;
        };
        let Some(entry) = within.remove(name) else {
            return;
        };
        if within.is_empty() {
            table.objects.remove(namespace);
        }
        self.revision += 1;
        let last = Object::new((*entry.object).clone(), self.revision);
        table.remember(Event {
            revision: self.revision,
            at: Instant::now(),
            change: Change::Deleted,
            object: Arc::new(last),
            before: Some(entry.object),
        });
    }
}

impl Table {
    fn remember(&mut self, event: Event) {
        self.changed = event.revision;
        self.events.push_back(event);
        if self.events.len() > REMEMBERED
            && let Some(oldest) = self.events.pop_front()
        {
            self.forgotten = oldest.revision;
        }
        self.notify.notify_waiters();
    }

    /// The revision of the newest change that is not remembered.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }
}
