//! Patches.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::ownership::Fields;
use super::structure::{Place, item_element};

/// Merges as RFC 7386 says: null removes.
pub(crate) fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merge_patch(target.entry(name.as_str()).or_insert(Value::Null), value);
        }
    }
}

/// Merges a configuration into an object: maps by their keys, lists by the keys of their items.
pub(crate) fn merge_applied(target: &mut Value, applied: &Value, place: &Place<'_>) {
    match (target, applied) {
        (Value::Object(target), Value::Object(map)) if !place.is_atomic(applied) => {
            for (name, value) in map {
                match target.get_mut(name) {
                    Some(target) => merge_applied(target, value, &place.field(name)),
                    None => {
                        target.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(target), Value::Array(items)) if !place.is_atomic(applied) => {
            *target = merge_items(std::mem::take(target), items, place);
        }
        (target, applied) => *target = applied.clone(),
    }
}

/// The items of both lists: those that are applied in their order, the others where they were.
fn merge_items(live: Vec<Value>, applied: &[Value], place: &Place<'_>) -> Vec<Value> {
    let order: Vec<String> = live.iter().map(|item| item_element(item, place)).collect();
    let mut live: Vec<Option<Value>> = live.into_iter().map(Some).collect();
    let mut at: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, element) in order.iter().enumerate() {
        at.entry(element).or_insert(index);
    }
    let elements: Vec<String> = applied
        .iter()
        .map(|item| item_element(item, place))
        .collect();
    let wanted: BTreeSet<&str> = elements.iter().map(String::as_str).collect();
    let merge = |element: &str, item: &Value, live: &mut [Option<Value>]| {
        let before = at.get(element).and_then(|index| live[*index].take());
        match before {
            Some(mut before) => {
                merge_applied(&mut before, item, &place.item());
                before
            }
            None => item.clone(),
        }
    };
    let mut rest = elements.iter().zip(applied);
    let mut merged = Vec::new();
    for (index, element) in order.iter().enumerate() {
        if !wanted.contains(element.as_str()) {
            merged.extend(live[index].take());
            continue;
        }
        // Applied items keep their own order, up to this one.
        while live[index].is_some() {
            let Some((next, item)) = rest.next() else {
                break;
            };
            merged.push(merge(next, item, &mut live));
        }
    }
    for (next, item) in rest {
        merged.push(merge(next, item, &mut live));
    }
    merged
}

/// Removes what a manager applied last and does not any more, unless others own it too. `kept` is what the
/// manager applies now, and what others own.
pub(crate) fn prune(value: &mut Value, last: &Fields, kept: &Fields, place: &Place<'_>) {
    let none = Fields::default();
    match value {
        Value::Object(map) => {
            for (element, last) in &last.below {
                let name = element.trim_start_matches("f:");
                let Some(below) = map.get_mut(name) else {
                    continue;
                };
                let kept = kept.below.get(element).unwrap_or(&none);
                if last.whole && kept.is_empty() {
                    map.remove(name);
                    continue;
                }
                prune(below, last, kept, &place.field(name));
                let emptied = match below {
                    Value::Object(map) => map.is_empty(),
                    Value::Array(items) => items.is_empty(),
                    _ => false,
                };
                if emptied && kept.is_empty() {
                    map.remove(name);
                }
            }
        }
        Value::Array(items) => {
            items.retain_mut(|item| {
                let element = item_element(item, place);
                let Some(last) = last.below.get(&element) else {
                    return true;
                };
                let kept = kept.below.get(&element).unwrap_or(&none);
                if last.whole && kept.is_empty() {
                    return false;
                }
                prune(item, last, kept, &place.item());
                true
            });
        }
        _ => {}
    }
}

/// Carries out a patch of RFC 6902.
pub(crate) fn json_patch(target: &mut Value, patch: &Value) -> Result<(), String> {
    for operation in patch.as_array().into_iter().flatten() {
        let text = |key: &str| operation[key].as_str().unwrap_or_default();
        let path = text("path");
        let value = &operation["value"];
        match text("op") {
            "test" => {
                if target.pointer(path) != Some(value) {
                    return Err(format!("testing value {path} failed"));
                }
            }
            "add" | "replace" => put_at(target, path, value, text("op") == "add")?,
            "remove" => take_at(target, path)?,
            other => return Err(format!("unsupported operation {other:?}")),
        }
    }
    Ok(())
}

fn parent<'t>(target: &'t mut Value, path: &str) -> Result<(&'t mut Value, String), String> {
    let (above, last) = path.rsplit_once('/').ok_or("a path begins with '/'")?;
    let last = last.replace("~1", "/").replace("~0", "~");
    let missing = || format!("doc is missing path: {path}");
    Ok((target.pointer_mut(above).ok_or_else(missing)?, last))
}

fn put_at(target: &mut Value, path: &str, value: &Value, add: bool) -> Result<(), String> {
    let missing = || format!("doc is missing key: {path}");
    match parent(target, path)? {
        (Value::Object(map), name) => {
            if !add && !map.contains_key(&name) {
                return Err(missing());
            }
            map.insert(name, value.clone());
        }
        (Value::Array(items), index) => {
            let index = match index.as_str() {
                "-" => items.len(),
                index => index.parse().map_err(|_| missing())?,
            };
            if index > items.len() || (!add && index == items.len()) {
                return Err(missing());
            }
            if add {
                items.insert(index, value.clone());
            } else {
                items[index] = value.clone();
            }
        }
        _ => return Err(missing()),
    }
    Ok(())
}

fn take_at(target: &mut Value, path: &str) -> Result<(), String> {
    let missing = || format!("doc is missing key: {path}");
    match parent(target, path)? {
        (Value::Object(map), name) => {
            map.remove(&name).ok_or_else(missing)?;
        }
        (Value::Array(items), index) => {
            let index: usize = index.parse().map_err(|_| missing())?;
            if index >= items.len() {
                return Err(missing());
            }
            items.remove(index);
        }
        _ => return Err(missing()),
    }
    Ok(())
}
