//! The API server as clients see it.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::StreamExt as _;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tower::BoxError;

use super::cache::{get_at, list_at};
use super::delete::Delete;
use super::events::{named_as_core, renamed};
use super::faults::{Answer, Faults, NoFaults, Then};
use super::front_end::{Connection, FrontEnds, Link};
use super::kind::Kind;
use super::merge::{json_patch, merge_applied, merge_patch};
use super::object::{Object, written};
use super::refusal::{self, Refusal};
use super::request::{Action, Call, Query, read};
use super::scale;
use super::store::{Store, Verb};
use super::structure::Place;
use super::watch::Watch;
use super::write::Target;
use crate::stops::Stops;

/// How long a request waits for a cache that is behind.
const PATIENCE: Duration = Duration::from_secs(3);
/// After this time the client's kernel gives a connection up on which nothing is acknowledged.
const GIVEN_UP: Duration = Duration::from_secs(15 * 60);

pub(crate) struct Shared {
    store: Mutex<Store>,
    front_ends: Mutex<FrontEnds>,
    faults: Mutex<Box<dyn Faults>>,
    stops: Stops,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl Shared {
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn front_ends(&self) -> MutexGuard<'_, FrontEnds> {
        self.front_ends
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, Box<dyn Faults>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The API servers of a cluster.
#[derive(Clone, Debug)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

impl ApiServer {
    /// This many API servers before one empty store; everything random comes from the seed.
    pub fn new(seed: u64, front_ends: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                store: Mutex::new(Store::new(seed)),
                front_ends: Mutex::new(FrontEnds::new(front_ends)),
                faults: Mutex::new(Box::new(NoFaults)),
                stops: Stops::default(),
            }),
        }
    }

    /// The store, for everything that is not the operator. Never hold it across an await.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.shared.store()
    }

    /// Sets what decides about requests.
    pub fn set_faults(&self, faults: impl Faults + 'static) {
        *self.shared.faults() = Box::new(faults);
    }

    /// The clients whose processes are stopped.
    pub fn stops(&self) -> &Stops {
        &self.shared.stops
    }

    /// Connects a client to a front end; what it had open breaks.
    pub fn connect(&self, client: &str, front_end: usize) {
        self.shared
            .front_ends()
            .connect(&Arc::from(client), front_end);
    }

    /// Sets what is between a client and a front end.
    pub fn set_link(&self, client: &str, front_end: usize, link: Link) {
        let client = Arc::from(client);
        self.shared.front_ends().link(&client, front_end, link);
    }

    /// Sets how long after a change of a kind a front end's cache has it.
    pub fn set_lag(&self, front_end: usize, kind: Kind, lag: Duration) {
        self.shared.front_ends().set_lag(front_end, kind, lag);
    }

    /// Stops a front end's caches where they are.
    pub fn freeze(&self, front_end: usize) {
        let now = self.store().revision();
        self.shared.front_ends().freeze(front_end, Some(now));
    }

    /// Lets a front end's caches follow the store again.
    pub fn thaw(&self, front_end: usize) {
        self.shared.front_ends().freeze(front_end, None);
    }

    /// Starts a front end anew: its connections break, and watches that ask for older changes are told that
    /// they are too old.
    pub fn restart(&self, front_end: usize) {
        let now = self.store().revision();
        self.shared.front_ends().restart(front_end, now);
    }

    /// A client of this name, whose namespace is `default` where it says none.
    pub fn client(&self, name: &str) -> Client {
        let shared = self.shared.clone();
        let name: Arc<str> = Arc::from(name);
        let service = tower::service_fn(move |request| {
            let (shared, name) = (shared.clone(), name.clone());
            async move {
                // A process that is stopped reads no answer.
                let answer = serve(&shared, &name, request).await;
                shared.stops.passed(&name).await;
                answer
            }
        });
        Client::new(service, "default")
    }
}

/// A request that led to no answer.
fn failed(kind: io::ErrorKind, what: &str) -> BoxError {
    io::Error::new(kind, what).into()
}

fn broken() -> BoxError {
    failed(io::ErrorKind::ConnectionReset, "connection reset by peer")
}

/// The client hears nothing, until its connection breaks.
async fn silence(shared: &Shared, client: &Arc<str>, connection: Connection) -> BoxError {
    let wait = async {
        loop {
            let notify = shared.front_ends().notify.clone();
            let changed = notify.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if shared.front_ends().connection(client).number != connection.number {
                return;
            }
            changed.await;
        }
    };
    let _ = timeout(GIVEN_UP, wait).await;
    failed(io::ErrorKind::TimedOut, "connection timed out")
}

async fn serve(
    shared: &Arc<Shared>,
    client: &Arc<str>,
    request: Request<Body>,
) -> Result<Response<AnswerBody>, BoxError> {
    let connection = shared.front_ends().connection(client);
    match connection.link {
        Link::Up => {}
        Link::Refused => {
            return Err(failed(
                io::ErrorKind::ConnectionRefused,
                "connection refused",
            ));
        }
        Link::Silent => return Err(silence(shared, client, connection).await),
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let (call, query) = match read(client, connection.front_end, &parts) {
        Ok(read) => read,
        Err(refusal) => return refused(&refusal),
    };
    shared.faults().made(&call);
    // A process that is stopped sends nothing.
    shared.stops.passed(client).await;
    let before = shared.faults().before(&call);
    if !before.delay.is_zero() {
        sleep(before.delay).await;
    }
    match before.then {
        Then::CarryOut => {}
        Then::TooManyRequests(seconds) => return refused(&refusal::too_many_requests(seconds)),
        Then::InternalError => return refused(&refusal::internal_error()),
        Then::Unavailable => return refused(&refusal::unavailable()),
        Then::Expired => {
            let told = "too old resource version".to_owned();
            return refused(&refusal::expired(told));
        }
        Then::Refuse => {
            return Err(failed(
                io::ErrorKind::ConnectionRefused,
                "connection refused",
            ));
        }
        Then::Hang => return Err(silence(shared, client, connection).await),
    }
    let now = shared.front_ends().connection(client);
    match now.link {
        _ if now.number != connection.number => return Err(broken()),
        Link::Up => {}
        Link::Refused => return Err(broken()),
        Link::Silent => return Err(silence(shared, client, connection).await),
    }
    let reply = carry_out(shared, &call, &query, &body, connection).await;
    let code = match &reply {
        Ok(Reply::Text(code, _)) => *code,
        Ok(Reply::Watch(_)) => 200,
        Err(refusal) => refusal.code,
    };
    let after = shared.faults().after(&call, code);
    if !after.delay.is_zero() {
        sleep(after.delay).await;
    }
    let now = shared.front_ends().connection(client);
    match (after.answer, now.link) {
        (Answer::Break, _) | (_, Link::Refused) => return Err(broken()),
        _ if now.number != connection.number => return Err(broken()),
        (Answer::Lose, _) | (_, Link::Silent) => {
            return Err(silence(shared, client, connection).await);
        }
        (Answer::Deliver, Link::Up) => {}
    }
    match reply {
        Ok(Reply::Text(code, text)) => answer(code, text),
        Ok(Reply::Watch(watch)) => {
            let lines = watch.stream().map(|line| match line {
                Ok(line) => Ok(Frame::data(line)),
                Err(error) => Err(BoxError::from(error)),
            });
            let body = StreamBody::new(lines).boxed_unsync();
            Ok(Response::builder()
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body)?)
        }
        Err(refusal) => refused(&refusal),
    }
}

fn answer(code: u16, text: Bytes) -> Result<Response<AnswerBody>, BoxError> {
    let body = Full::new(text).map_err(|never: Infallible| match never {});
    Ok(Response::builder()
        .status(code)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.boxed_unsync())?)
}

fn refused(refusal: &Refusal) -> Result<Response<AnswerBody>, BoxError> {
    let mut status = serde_json::to_value(refusal)?;
    status["kind"] = "Status".into();
    status["apiVersion"] = "v1".into();
    status["metadata"] = json!({});
    let mut response = answer(refusal.code, written(&status))?;
    let retry = refusal.details.as_ref().map(|d| d.retry_after_seconds);
    if let Some(seconds) = retry.filter(|seconds| *seconds > 0) {
        let headers = response.headers_mut();
        headers.insert(http::header::RETRY_AFTER, seconds.into());
    }
    Ok(response)
}

enum Reply {
    Text(u16, Bytes),
    Watch(Box<Watch>),
}

async fn carry_out(
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
            let (code, text) = change(&mut store, call, query, body)?;
            Ok(Reply::Text(code, text))
        }
    }
}

/// A request that says how new its answer must be waits until the cache is.
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

/// Where a list goes on: the revision of its first part, and the last object that was in it.
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
    // What comes from the cache comes whole.
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

/// What is said of an object that is gone.
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
