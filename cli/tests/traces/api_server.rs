//! A stand-in for the API server on loopback: it stores what it receives, and its watches send no events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, Response, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Objects by path, such as `pods/main-0`.
type Objects = Arc<Mutex<BTreeMap<String, Value>>>;

pub(crate) struct ApiServer {
    pub(crate) address: String,
    objects: Objects,
}

impl ApiServer {
    /// Starts one that has these objects.
    pub(crate) async fn start(objects: &[(&str, Value)]) -> Self {
        let objects = objects.iter().map(|(path, object)| {
            let mut object = object.clone();
            complete(&mut object);
            ((*path).to_owned(), object)
        });
        let objects: Objects = Arc::new(Mutex::new(objects.collect()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(objects.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, objects }
    }

    /// A kubeconfig for it.
    pub(crate) fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": self.address } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
            "users": [{ "name": "test", "user": {} }],
        })
        .to_string()
    }

    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        self.objects.lock().unwrap().get(path).cloned()
    }
}

/// What the API server adds.
fn complete(object: &mut Value) {
    let meta = &mut object["metadata"];
    meta["uid"] = json!("uid");
    meta["namespace"] = json!("default");
    let version = meta["resourceVersion"].as_str().unwrap_or("0");
    let version: u64 = version.parse().unwrap();
    meta["resourceVersion"] = json!((version + 1).to_string());
}

async fn answer(
    State(objects): State<Objects>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response<Body> {
    if uri
        .query()
        .is_some_and(|query| query.contains("watch=true"))
    {
        return Response::new(Body::from_stream(futures::stream::pending::<
            Result<Bytes, std::io::Error>,
        >()));
    }
    let answered = |code: StatusCode, object: &Value| {
        let mut response = Response::new(Body::from(object.to_string()));
        *response.status_mut() = code;
        response
    };
    let path = uri.path();
    let (_, rest) = path.split_once("/v1").unwrap();
    let rest = rest.trim_start_matches("alpha1").trim_start_matches('/');
    let mut parts: Vec<&str> = rest.split('/').collect();
    if parts[0] == "namespaces" {
        parts.drain(..2);
    }
    let mut objects = objects.lock().unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match (&method, parts.as_slice()) {
        (&Method::GET, [kind]) => {
            let of_kind = |path: &str| path.split('/').next() == Some(kind);
            let items = objects.iter().filter(|(path, _)| of_kind(path));
            let items: Vec<&Value> = items.map(|(_, object)| object).collect();
            let list = json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "1" }, "items": items });
            answered(StatusCode::OK, &list)
        }
        (&Method::GET, [kind, name]) => match objects.get(&format!("{kind}/{name}")) {
            Some(object) => answered(StatusCode::OK, object),
            None => {
                let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {},
                    "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found" });
                answered(StatusCode::NOT_FOUND, &status)
            }
        },
        (&Method::POST, [kind]) => {
            let mut object = body;
            complete(&mut object);
            let name = object["metadata"]["name"].as_str().unwrap_or("event");
            objects.insert(format!("{kind}/{name}"), object.clone());
            answered(StatusCode::CREATED, &object)
        }
        (_, [kind, name, status @ ..]) => {
            let object = objects.entry(format!("{kind}/{name}")).or_default();
            if status.is_empty() {
                *object = body;
            } else {
                object["status"] = body["status"].clone();
            }
            complete(object);
            answered(StatusCode::OK, object)
        }
        _ => panic!("{method} {uri}"),
    }
}
