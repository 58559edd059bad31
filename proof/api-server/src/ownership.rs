//! Who set which field, as far as server-side apply asks for it.
//!
//! A set of fields is a tree of path elements, named as in `managedFields`: `f:` a field, `k:` an item of a
//! list by its keys, `v:` an item of a set.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::object::Object;
use super::structure::{Place, item_element};

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// Whether the place itself is in the set.
    pub(crate) whole: bool,
    pub(crate) below: BTreeMap<String, Fields>,
}

impl Fields {
    pub(crate) fn is_empty(&self) -> bool {
        !self.whole && self.below.is_empty()
    }

    fn leaf() -> Self {
        Self {
            whole: true,
            below: BTreeMap::new(),
        }
    }

    /// The fields of a configuration: leaves, items of lists and keys of maps.
    pub(crate) fn of(value: &Value, place: &Place<'_>) -> Self {
        let mut fields = Self::default();
        match value {
            Value::Object(map) if !map.is_empty() && !place.is_atomic(value) => {
                for (name, value) in map {
                    if place.is_ignored(name) {
                        continue;
                    }
                    let below = Self::of(value, &place.field(name));
                    if !below.is_empty() {
                        fields.below.insert(format!("f:{name}"), below);
                    }
                }
            }
            Value::Array(items) if !items.is_empty() && !place.is_atomic(value) => {
                for item in items {
                    let element = item_element(item, place);
                    let mut below = if element.starts_with("v:") {
                        Self::default()
                    } else {
                        Self::of(item, &place.item())
                    };
                    below.whole = true;
                    fields.below.insert(element, below);
                }
            }
            _ => return Self::leaf(),
        }
        fields
    }

    /// Removes what is in the other set.
    pub(crate) fn subtract(&mut self, other: &Self) {
        if other.whole {
            self.whole = false;
        }
        for (element, below) in &other.below {
            if let Some(mine) = self.below.get_mut(element) {
                mine.subtract(below);
                if mine.is_empty() {
                    self.below.remove(element);
                }
            }
        }
    }

    /// Adds what is in the other set.
    pub(crate) fn add(&mut self, other: &Self) {
        self.whole |= other.whole;
        for (element, below) in &other.below {
            self.below.entry(element.clone()).or_default().add(below);
        }
    }

    /// Removes what is at or below a place of the other set.
    fn subtract_below(&mut self, gone: &Self) {
        if gone.whole {
            *self = Self::default();
            return;
        }
        for (element, below) in &gone.below {
            if let Some(mine) = self.below.get_mut(element) {
                mine.subtract_below(below);
                if mine.is_empty() {
                    self.below.remove(element);
                }
            }
        }
    }

    /// The set as `managedFields` has it.
    fn fields_v1(&self) -> Value {
        let below = self.below.iter();
        let mut all: Map<String, Value> = below
            .map(|(element, below)| (element.clone(), below.fields_v1()))
            .collect();
        if self.whole && !all.is_empty() {
            all.insert(".".to_owned(), Value::Object(Map::new()));
        }
        Value::Object(all)
    }

    /// The places of both sets, written as in messages: `.metadata.labels.app`.
    pub(crate) fn shared(&self, other: &Self, at: &str, found: &mut Vec<String>) {
        if self.whole && other.whole {
            found.push(at.to_owned());
        }
        for (element, below) in &self.below {
            if let Some(other) = other.below.get(element) {
                let at = match element.split_once(':') {
                    Some(("f", name)) => format!("{at}.{name}"),
                    Some((_, key)) => format!("{at}[{}]", bracketed(key)),
                    None => at.to_owned(),
                };
                below.shared(other, &at, found);
            }
        }
    }
}

/// The keys of an item as messages write them: `name="zookeeper"`.
fn bracketed(key: &str) -> String {
    let Ok(Value::Object(keys)) = serde_json::from_str(key) else {
        return format!("={key}");
    };
    let pairs = keys.iter().map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join(",")
}

/// What a change did to the fields.
#[derive(Debug, Default)]
struct Difference {
    /// Set, or set to something else.
    set: Fields,
    removed: Fields,
}

impl Difference {
    fn of(old: &Value, new: &Value, place: &Place<'_>) -> Self {
        let mut difference = Self::default();
        if old == new {
            return difference;
        }
        let whole = new;
        match (old, new) {
            (Value::Object(old), Value::Object(new)) if !place.is_atomic(whole) => {
                for (name, value) in new {
                    if place.is_ignored(name) {
                        continue;
                    }
                    let below = match old.get(name) {
                        Some(old) => Self::of(old, value, &place.field(name)),
                        None => Self {
                            set: Fields::of(value, &place.field(name)),
                            removed: Fields::default(),
                        },
                    };
                    difference.put(format!("f:{name}"), below);
                }
                for name in old.keys().filter(|name| !new.contains_key(*name)) {
                    if !place.is_ignored(name) {
                        difference
                            .removed
                            .below
                            .insert(format!("f:{name}"), Fields::leaf());
                    }
                }
            }
            (Value::Array(old), Value::Array(new)) if !place.is_atomic(whole) => {
                let keyed = |items: &[Value]| -> BTreeMap<String, usize> {
                    let items = items.iter().enumerate();
                    items
                        .map(|(i, item)| (item_element(item, place), i))
                        .collect()
                };
                let (olds, news) = (keyed(old), keyed(new));
                for (element, index) in &news {
                    let item = &new[*index];
                    let below = match olds.get(element) {
                        Some(before) => Self::of(&old[*before], item, &place.item()),
                        None => {
                            let mut set = if element.starts_with("v:") {
                                Fields::default()
                            } else {
                                Fields::of(item, &place.item())
                            };
                            set.whole = true;
                            Self {
                                set,
                                removed: Fields::default(),
                            }
                        }
                    };
                    difference.put(element.clone(), below);
                }
                for element in olds
                    .into_keys()
                    .filter(|element| !news.contains_key(element))
                {
                    difference.removed.below.insert(element, Fields::leaf());
                }
            }
            _ => difference.set = Fields::of(new, place),
        }
        difference
    }

    fn put(&mut self, element: String, below: Self) {
        if !below.set.is_empty() {
            self.set.below.insert(element.clone(), below.set);
        }
        if !below.removed.is_empty() {
            self.removed.below.insert(element, below.removed);
        }
    }
}

/// A manager of fields: the same name may apply and update, and write the status beside the rest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) applies: bool,
    pub(crate) subresource: &'static str,
    /// The version of the API that it wrote in, for messages.
    pub(crate) api_version: String,
}

impl Manager {
    fn title(&self) -> String {
        let subresource = match self.subresource {
            "" => String::new(),
            subresource => format!(" with subresource {subresource:?}"),
        };
        format!("{:?}{subresource} using {}", self.name, self.api_version)
    }
}

/// A change whose fields are not worked out yet.
#[derive(Clone, Debug)]
struct Change {
    manager: Manager,
    old: Option<Arc<Object>>,
    new: Arc<Object>,
}

/// How many changes wait at most before they are worked out.
const WAITING: usize = 32;

/// Who owns which fields of an object. Most objects are never applied: what updates did to the fields is
/// worked out only when an apply asks for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ownership {
    managers: BTreeMap<Manager, Fields>,
    waiting: Vec<Change>,
}

impl Ownership {
    /// Notes an update, or a creation by other means than apply.
    pub(crate) fn updated(
        &mut self,
        manager: Manager,
        old: Option<Arc<Object>>,
        new: Arc<Object>,
        place: &Place<'_>,
    ) {
        if let Some(last) = self.waiting.last_mut()
            && last.manager == manager
        {
            last.new = new;
            return;
        }
        self.waiting.push(Change { manager, old, new });
        if self.waiting.len() > WAITING {
            self.work_out(place);
        }
    }

    fn work_out(&mut self, place: &Place<'_>) {
        for change in std::mem::take(&mut self.waiting) {
            let nothing = Value::Object(Map::new());
            let old = change.old.as_deref().map_or(&nothing, |old| &**old);
            let difference = Difference::of(old, &change.new, place);
            for fields in self.managers.values_mut() {
                fields.subtract_below(&difference.removed);
            }
            for (manager, fields) in &mut self.managers {
                if *manager != change.manager {
                    fields.subtract(&difference.set);
                }
            }
            self.managers
                .entry(change.manager)
                .or_default()
                .add(&difference.set);
            self.managers.retain(|_, fields| !fields.is_empty());
        }
    }

    /// Whether somebody applied the object and still owns fields by that.
    pub(crate) fn is_applied(&self) -> bool {
        self.managers.keys().any(|manager| manager.applies)
    }

    /// The `managedFields` of the object.
    pub(crate) fn managed_fields(&mut self, place: &Place<'_>) -> Value {
        self.work_out(place);
        let entry = |(manager, fields): (&Manager, &Fields)| {
            json!({
                "manager": manager.name,
                "operation": if manager.applies { "Apply" } else { "Update" },
                "apiVersion": manager.api_version,
                "fieldsType": "FieldsV1",
                "fieldsV1": fields.fields_v1(),
                "subresource": manager.subresource,
            })
        };
        self.managers.iter().map(entry).collect()
    }

    /// What a manager applied last.
    pub(crate) fn of(&mut self, manager: &Manager, place: &Place<'_>) -> Fields {
        self.work_out(place);
        self.managers.get(manager).cloned().unwrap_or_default()
    }

    /// The fields of all but this manager.
    pub(crate) fn of_others(&self, manager: &Manager) -> Fields {
        let mut all = Fields::default();
        for (other, fields) in &self.managers {
            if other != manager {
                all.add(fields);
            }
        }
        all
    }

    /// The fields that a change from one state to the other would take from other managers, each with its
    /// manager.
    pub(crate) fn conflicts(
        &self,
        manager: &Manager,
        old: &Value,
        new: &Value,
        place: &Place<'_>,
    ) -> Vec<(String, String)> {
        let changed = Difference::of(old, new, place).set;
        let mut conflicts = Vec::new();
        for (other, fields) in self.managers.iter().filter(|(other, _)| *other != manager) {
            let mut found = Vec::new();
            fields.shared(&changed, "", &mut found);
            conflicts.extend(found.into_iter().map(|field| (other.title(), field)));
        }
        conflicts
    }

    /// Notes what a manager applied, and the change that it made.
    pub(crate) fn applied(
        &mut self,
        manager: Manager,
        fields: Fields,
        old: &Value,
        new: &Value,
        place: &Place<'_>,
    ) {
        self.work_out(place);
        let difference = Difference::of(old, new, place);
        for (other, theirs) in &mut self.managers {
            if *other != manager {
                theirs.subtract(&difference.set);
            }
            theirs.subtract_below(&difference.removed);
        }
        self.managers.insert(manager, fields);
        self.managers.retain(|_, fields| !fields.is_empty());
    }
}
