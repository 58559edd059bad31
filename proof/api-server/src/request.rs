//! Requests, as they are read from HTTP.

use std::sync::Arc;

use http::request::Parts;
use tokio::time::Instant;

use super::kind::Kind;
use super::refusal::{Refusal, bad_request, no_such_path};
use super::selector::Selector;

/// A request of a client.
#[derive(Clone, Debug)]
pub struct Call {
    /// The name of the client.
    pub client: Arc<str>,
    /// The front end that it goes to.
    pub front_end: usize,
    /// What is asked for.
    pub action: Action,
    /// The kind of the object or objects.
    pub kind: Kind,
    /// The namespace; empty for all of them, and where there is none.
    pub namespace: String,
    /// The name; empty for a list, a watch and an object whose name is not known yet.
    pub name: String,
    /// The subresource; empty for the object itself.
    pub subresource: &'static str,
    /// When it was sent.
    pub sent: Instant,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the verb of its name")]
pub enum Action {
    Get,
    List,
    Watch,
    Create,
    Update,
    MergePatch,
    JsonPatch,
    StrategicPatch,
    Apply,
    Delete,
}

impl Action {
    /// Whether it changes nothing.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// The rest of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pub(crate) selector: Selector,
    pub(crate) limit: Option<usize>,
    pub(crate) continue_from: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) exact_version: bool,
    pub(crate) bookmarks: bool,
    pub(crate) initial_events: bool,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) manager: Option<String>,
    pub(crate) force: bool,
    /// Whether only the metadata are wanted.
    pub(crate) metadata_only: bool,
    /// Whether the words are those of `events.k8s.io`.
    pub(crate) new_events: bool,
}

/// Reads the head of a request.
pub(crate) fn read(
    client: &Arc<str>,
    front_end: usize,
    parts: &Parts,
) -> Result<(Call, Query), Refusal> {
    let path: Vec<&str> = parts
        .uri
        .path()
        .split('/')
        .filter(|s| !s.is_empty())
        .collect();
    let (group, version, rest) = match path.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Err(no_such_path()),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, subresource] => (*plural, *name, *subresource),
        _ => return Err(no_such_path()),
    };
    let kind = Kind::at_path(group, version, plural).ok_or_else(no_such_path)?;
    let subresource = match subresource {
        "" => "",
        "status" if kind.resource().status => "status",
        "scale" if matches!(kind, Kind::STATEFUL_SET | Kind::ENSEMBLE) => "scale",
        "eviction" if kind == Kind::POD => "eviction",
        _ => return Err(no_such_path()),
    };
    let mut query = read_query(parts.uri.query().unwrap_or_default())?;
    query.0.new_events = group == "events.k8s.io";
    let header = |name: http::HeaderName| {
        let value = parts.headers.get(name);
        value.and_then(|v| v.to_str().ok()).unwrap_or_default()
    };
    query.0.metadata_only = header(http::header::ACCEPT).contains("as=PartialObjectMetadata");
    let watch = query.1;
    let action = match (parts.method.as_str(), name) {
        ("GET", "") if watch => Action::Watch,
        ("GET", "") => Action::List,
        ("GET", _) => Action::Get,
        ("POST", _) => Action::Create,
        ("PUT", name) if !name.is_empty() => Action::Update,
        ("DELETE", name) if !name.is_empty() => Action::Delete,
        ("PATCH", name) if !name.is_empty() => match header(http::header::CONTENT_TYPE) {
            "application/merge-patch+json" => Action::MergePatch,
            "application/json-patch+json" => Action::JsonPatch,
            "application/strategic-merge-patch+json" => Action::StrategicPatch,
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => Action::Apply,
            other => return Err(bad_request(format!("unknown content type {other:?}"))),
        },
        (method, _) => return Err(bad_request(format!("{method} is not for this path"))),
    };
    let call = Call {
        client: client.clone(),
        front_end,
        action,
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource,
        sent: Instant::now(),
    };
    Ok((call, query.0))
}

/// The parameters, and whether they ask for a watch.
fn read_query(text: &str) -> Result<(Query, bool), Refusal> {
    let mut query = Query::default();
    let mut watch = false;
    let (mut labels, mut fields) = (String::new(), String::new());
    for (key, value) in form_urlencoded::parse(text.as_bytes()) {
        let is_true = value == "true" || value == "1";
        match key.as_ref() {
            "labelSelector" => labels = value.into_owned(),
            "fieldSelector" => fields = value.into_owned(),
            "limit" => query.limit = value.parse().ok().filter(|limit| *limit > 0),
            "continue" => query.continue_from = Some(value.into_owned()),
            "resourceVersion" if !value.is_empty() => {
                query.resource_version = Some(value.into_owned());
            }
            "resourceVersionMatch" => query.exact_version = value == "Exact",
            "allowWatchBookmarks" => query.bookmarks = is_true,
            "sendInitialEvents" => query.initial_events = is_true,
            "timeoutSeconds" => query.timeout_seconds = value.parse().ok(),
            "watch" => watch = is_true,
            "fieldManager" => query.manager = Some(value.into_owned()),
            "force" => query.force = is_true,
            _ => {}
        }
    }
    query.selector = Selector::parse(&labels, &fields)?;
    Ok((query, watch))
}
