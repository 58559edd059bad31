//! What requests do, and what they are answered with.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cache::{get_at, list_at};
use super::delete::Delete;
use super::events::{named_as_core, renamed};
use super::front_end::Connection;
use super::kind::Kind;
use super::merge::{json_patch, merge_applied, merge_patch};
use super::object::{Object, written};
use super::refusal::{self, Refusal};
use super::request::{Action, Call, Query};
use super::scale;
use super::service::Shared;
use super::store::{Store, Verb};
use super::structure::Place;
use super::watch::Watch;
use super::write::Target;

/// How long a request waits for a cache that is behind.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a request is answered with.
pub(super) enum Reply {
    Text(u16, Bytes),
    Watch(Box<Watch>),
}

/// Carries a request out.
pub(super) async fn carry_out(
    shared: &Arc<Shared>,
    call: &Call,
    query: &Query,
    body: &[u8],
    connection: Connection,
) -> Result<Reply, Refusal> {
    if matches!(call.action, Action::Get | Action::List) {
        wait_for_cache(shared, call, query).await?;
    }
    match call.action {
        Action::Get => {
            let object = find(shared, call, query)?;
            if call.subresource == "scale" {
                return Ok(Reply::Text(200, written(&scale::of(call.kind, &object))));
            }
            Ok(Reply::Text(200, text(&object, query)))
        }
        Action::List => Ok(Reply::Text(200, list(shared, call, query)?)),
        Action::Watch => {
            let watch = Watch::begin(shared, call, query, connection)?;
            Ok(Reply::Watch(Box::new(watch)))
        }
        _ => {
            let mut store = shared.store();
            store.sent = Some(call.sent);
            let changed = change(&mut store, call, query, body);
            store.sent = None;
            let (code, text) = changed?;
            Ok(Reply::Text(code, text))
        }
    }
}

/// Waits until the cache has reached the resource version that the request asks for.
async fn wait_for_cache(shared: &Shared, call: &Call, query: &Query) -> Result<(), Refusal> {
    let asked = query.resource_version.as_deref().unwrap_or("0");
    let Ok(asked) = asked.parse::<u64>() else {
        return Err(refusal::bad_request(format!(
            "invalid resource version {asked:?}"
        )));
    };
    if asked == 0 || query.exact_version {
        return Ok(());
    }
    let step = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    loop {
        let reached = {
            let store = shared.store();
            let mut front_ends = shared.front_ends();
            front_ends.reached(call.front_end, call.kind, &store).0
        };
        if reached >= asked {
            return Ok(());
        }
        if waited >= PATIENCE {
            return Err(refusal::too_large_version(asked, reached));
        }
        sleep(step).await;
        waited += step;
    }
}

/// The revision that a read is answered from; `None` for the store itself.
fn cached(shared: &Shared, store: &Store, call: &Call, query: &Query) -> Option<u64> {
    query.resource_version.as_ref()?;
    let mut front_ends = shared.front_ends();
    Some(front_ends.reached(call.front_end, call.kind, store).0)
}

fn find(shared: &Shared, call: &Call, query: &Query) -> Result<Arc<Object>, Refusal> {
    let store = shared.store();
    let revision = cached(shared, &store, call, query).unwrap_or(store.revision());
    get_at(&store, call.kind, (&call.namespace, &call.name), revision)
        .ok()
        .flatten()
        .ok_or_else(|| refusal::not_found(call.kind, &call.name))
}

fn text(object: &Object, query: &Query) -> Bytes {
    match (query.metadata_only, query.new_events) {
        (true, _) => object.metadata_text().clone(),
        (false, true) => written(&renamed(object)),
        (false, false) => object.text().clone(),
    }
}

/// Where a list continues: the revision of its first part, and the last object that was in it.
fn continued(token: &str) -> Option<(u64, (&str, &str))> {
    let (revision, key) = token.split_once('.')?;
    Some((revision.parse().ok()?, key.split_once('/')?))
}

fn list(shared: &Shared, call: &Call, query: &Query) -> Result<Bytes, Refusal> {
    let store = shared.store();
    let mut revision = cached(shared, &store, call, query).unwrap_or(store.revision());
    let mut after = None;
    if let Some(token) = &query.continue_from {
        let invalid = || refusal::bad_request("continue key is not valid");
        let (of, key) = continued(token).ok_or_else(invalid)?;
        revision = of;
        after = Some(key);
    } else if query.exact_version {
        let asked = query.resource_version.as_deref().unwrap_or_default();
        revision = asked.parse().unwrap_or(revision);
    }
    let within = Some(call.namespace.as_str()).filter(|within| !within.is_empty());
    let objects = list_at(&store, call.kind, within, revision).map_err(|_| {
        refusal::expired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.".to_owned())
    })?;
    let key = |object: &Object| (object.namespace().to_owned(), object.name().to_owned());
    let mut objects = objects
        .into_iter()
        .filter(|object| after.is_none_or(|after| (object.namespace(), object.name()) > after))
        .filter(|object| query.selector.selects(object))
        .peekable();
    // A list at resource version 0 comes from the cache, which ignores the limit.
    let limit = query
        .limit
        .filter(|_| query.resource_version.as_deref() != Some("0"));
    let limit = limit.unwrap_or(usize::MAX);
    let resource = call.kind.resource();
    let (kind, version) = match (query.metadata_only, query.new_events) {
        (true, _) => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
        (false, true) => ("Event", "events.k8s.io/v1".to_owned()),
        (false, false) => (resource.name, resource.api_version()),
    };
    let mut items = BytesMut::new();
    let mut last = None;
    for _ in 0..limit {
        let Some(object) = objects.next() else {
            break;
        };
        if !items.is_empty() {
            items.put_u8(b',');
        }
        items.put(text(&object, query));
        if objects.peek().is_some() {
            last = Some(key(&object));
        } else {
            last = None;
        }
    }
    let mut metadata = json!({ "resourceVersion": revision.to_string() });
    if let Some((namespace, name)) = last {
        metadata["continue"] = format!("{revision}.{namespace}/{name}").into();
        if query.selector.is_everything() {
            metadata["remainingItemCount"] = objects.count().into();
        }
    }
    let mut list = BytesMut::with_capacity(items.len() + 200);
    let head = format!("{{\"kind\":\"{kind}List\",\"apiVersion\":\"{version}\",\"metadata\":");
    list.put(head.as_bytes());
    list.put(written(&metadata));
    list.put(&b",\"items\":["[..]);
    list.put(items);
    list.put(&b"]}"[..]);
    Ok(list.freeze())
}

fn change(
    store: &mut Store,
    call: &Call,
    query: &Query,
    body: &[u8],
) -> Result<(u16, Bytes), Refusal> {
    let manager = query.manager.as_deref().unwrap_or(&call.client);
    let mut target = Target {
        actor: &call.client,
        manager,
        verb: Verb::Update,
        kind: call.kind,
        subresource: call.subresource,
        namespace: &call.namespace,
        name: &call.name,
    };
    if call.action == Action::Delete {
        let options = match body {
            [] => Delete::default(),
            body => serde_json::from_slice(body)
                .map_err(|error| refusal::bad_request(error.to_string()))?,
        };
        let at = (call.namespace.as_str(), call.name.as_str());
        let uid = store.get(call.kind, at.0, at.1).map(|o| o.uid().to_owned());
        return Ok(match store.delete(&call.client, call.kind, at, &options)? {
            Some(object) => (200, text(&object, query)),
            None => (200, deleted(call, &uid.unwrap_or_default())),
        });
    }
    let mut given: Value =
        serde_json::from_slice(body).map_err(|error| refusal::bad_request(error.to_string()))?;
    if query.new_events {
        named_as_core(&mut given);
    }
    if call.subresource == "eviction" {
        let options = serde_json::from_value(given["deleteOptions"].take()).unwrap_or_default();
        store.evict(&call.client, (&call.namespace, &call.name), &options)?;
        return Ok((201, deleted(call, "")));
    }
    if call.subresource == "scale" {
        return scale::change(store, &target, call.action, &given);
    }
    let object = match call.action {
        Action::Create => {
            target.verb = Verb::Create;
            let name = given["metadata"]["name"].as_str().unwrap_or_default();
            let name = name.to_owned();
            target.name = &name;
            let object = store.create_as(&target, given)?;
            return Ok((201, text(&object, query)));
        }
        Action::Apply => {
            target.verb = Verb::Apply;
            let existed = store.get(call.kind, &call.namespace, &call.name).is_some();
            let object = store.apply_as(&target, given, query.force)?;
            let code = if existed { 200 } else { 201 };
            return Ok((code, text(&object, query)));
        }
        Action::Update => store.update_as(&target, |object| {
            let said = |key: &str| given["metadata"][key].as_str().unwrap_or_default();
            if said("name") != call.name {
                let why = format!(
                    "the name of the object ({}) does not match the name on the URL ({})",
                    said("name"),
                    call.name
                );
                return Err(refusal::bad_request(why));
            }
            if said("resourceVersion").is_empty()
                && (call.kind.is_custom() || call.kind == Kind::LEASE)
            {
                let told = "Invalid value: 0: must be specified for an update";
                let flaw = refusal::Flaw::invalid("metadata.resourceVersion", told);
                return Err(refusal::invalid(call.kind, &call.name, &[flaw]));
            }
            *object = given;
            Ok(())
        })?,
        action => {
            target.verb = Verb::Patch;
            store.update_as(&target, |object| {
                match action {
                    Action::JsonPatch => {
                        json_patch(object, &given).map_err(refusal::bad_request)?
                    }
                    // Lists are merged by their keys; directives are not known here.
                    Action::StrategicPatch if !call.kind.is_custom() => {
                        merge_applied(object, &given, &Place::root(call.kind));
                    }
                    _ => merge_patch(object, &given),
                }
                Ok(())
            })?
        }
    };
    Ok((200, text(&object, query)))
}

/// The answer about an object that was deleted.
fn deleted(call: &Call, uid: &str) -> Bytes {
    let resource = call.kind.resource();
    written(&json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {
            "name": call.name,
            "group": resource.group,
            "kind": resource.plural,
            "uid": uid,
        },
    }))
}
