//! The router as a browser sees it, with an API server in memory.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request};
use bellwether_api_server::{ApiServer, Kind, Recorder};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use bellwether::{Metrics, admin};

const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// An API server with one election and no ensemble, and what it was asked.
struct Cluster {
    server: ApiServer,
    asked: Recorder,
}

impl Cluster {
    fn new() -> Self {
        let (server, asked) = (ApiServer::new(1, 1), Recorder::default());
        server.set_faults(asked.clone());
        let election = json!({
            "metadata": { "name": "app", "namespace": "shop" },
            "spec": {
                "ensembleRef": { "name": "main" }, "path": "/app", "dialect": { "type": "Kazoo" },
            },
        });
        let status = json!({
            "candidateCount": 1, "leaderTransitions": 0, "terms": 1, "unmatchedChildren": 0,
            "leader": { "identity": HOSTILE, "identitySource": "Data", "node": "n_1" },
            "candidates": [{ "node": "n_1", "position": 0, "identity": HOSTILE }],
            "conditions": [{
                "type": "Synced", "status": "True", "reason": "Watching", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        });
        let mut store = server.store();
        store.create("user", Kind::ELECTION, election).unwrap();
        let at = ("shop", "app");
        store
            .update_status("operator", Kind::ELECTION, at, |now| *now = status)
            .unwrap();
        drop(store);
        Self { server, asked }
    }

    /// The namespaces of all requests.
    fn asked(&self) -> Vec<String> {
        let calls = self.asked.calls().into_iter();
        calls.map(|call| call.namespace).collect()
    }
}

/// The routes, and what stops them when it is dropped.
fn names() -> Names {
    Names {
        cluster_domain: "cluster.local".to_owned(),
        added: Vec::new(),
    }
}

fn page(cluster: &Cluster, namespaces: Vec<Option<String>>) -> (Router, watch::Sender<bool>) {
    let (stop, stopped) = watch::channel(false);
    let client = cluster.server.client("page");
    let window = Window::new(client.clone(), namespaces).lingering(Duration::from_millis(50));
    let operator = Operator {
        version: "1.2.3",
        identity: "bellwether-0".to_owned(),
    };
    let page = Page {
        client,
        window,
        operator,
        stopped,
    };
    let page = routes_of(page, names());
    (admin::reports(Metrics::new(|_| {}), Some(page)), stop)
}

async fn ask(routes: &Router, method: Method, path: &str) -> Response {
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Body::empty()).unwrap();
    routes.clone().oneshot(request).await.unwrap()
}

async fn text(response: Response) -> String {
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn there_is_no_page_unless_it_is_asked_for() {
    let routes = admin::reports(Metrics::new(|_| {}), None);
    for path in ["/", "/page", "/page.js", "/page/events", "/page/view.json"] {
        let response = ask(&routes, Method::GET, path).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let response = ask(&routes, Method::GET, "/metrics").await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn it_is_read_only_and_nothing_foreign_may_run_in_it() {
    let cluster = Cluster::new();
    let (routes, _stop) = page(&cluster, vec![None]);
    for path in ["/page", "/page.css", "/page.js", "/page/view.json"] {
        let response = ask(&routes, Method::GET, path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert!(
            header("content-security-policy").starts_with("default-src 'none'; script-src 'self';")
        );
        assert!(header("content-security-policy").contains("frame-ancestors 'none'"));
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert_eq!(header("cache-control"), "no-store");
        let head = ask(&routes, Method::HEAD, path).await;
        assert_eq!(head.status(), StatusCode::OK, "{path}");
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let response = ask(&routes, method, path).await;
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        }
    }
}

/// Another name may stand for the operator's address on the word of its owner, whose scripts would read the answer.
#[tokio::test]
async fn the_page_is_not_answered_under_names_of_others() {
    let cluster = Cluster::new();
    let (routes, _stop) = page(&cluster, vec![None]);
    let under = async |path: &str, host: &str| {
        let request = Request::builder().uri(path).header("host", host);
        let request = request.body(Body::empty()).unwrap();
        routes.clone().oneshot(request).await.unwrap().status()
    };
    for path in ["/page", "/page.js", "/page/view.json"] {
        assert_eq!(under(path, "localhost:8080").await, StatusCode::OK);
        for host in ["evil.example:8080", "not a name"] {
            let refused = StatusCode::MISDIRECTED_REQUEST;
            assert_eq!(under(path, host).await, refused, "{host}");
        }
    }
    // The metrics are no page.
    assert_eq!(under("/metrics", "evil.example").await, StatusCode::OK);
}

/// What the policy forbids would fail silently in a browser, and what makes markup of text would let
/// identities run.
#[test]
fn the_page_has_no_inline_script_or_style_and_makes_no_markup_of_text() {
    let html = include_str!("assets/page.html");
    for word in [" style=", "<style", "javascript:", "http:", "https:", "//"] {
        assert!(!html.contains(word), "page.html has {word:?}");
    }
    let handler = |word: &&str| word.starts_with("on") && word.contains('=');
    assert_eq!(html.split_whitespace().find(handler), None);
    assert_eq!(html.matches("<script").count(), 1);
    let script = include_str!("assets/page.js");
    for word in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "DOMParser",
        ".style",
        "http:",
        "https:",
    ] {
        assert!(!script.contains(word), "page.js has {word:?}");
    }
}

#[tokio::test]
async fn what_is_shown_is_what_the_objects_say_and_what_was_asked_for() {
    let cluster = Cluster::new();
    let (routes, _stop) = page(&cluster, vec![None]);
    let response = ask(&routes, Method::GET, "/page/view.json?election=shop/app").await;
    let view: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(view["complete"], true);
    assert_eq!(view["trouble"], Value::Null);
    assert_eq!(view["elections"]["shown"][0]["leader"], HOSTILE);
    assert_eq!(view["election"]["found"]["queue"][0]["identity"], HOSTILE);
    assert_eq!(view["election"]["found"]["queue"][0]["leads"], true);
    // An election that was not listed is not asked for either.
    let response = ask(
        &routes,
        Method::GET,
        "/page/view.json?election=other/app&q=zzz",
    )
    .await;
    let view: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(view["election"]["missing"], "other/app");
    assert_eq!(view["elections"]["matching"], 0);
    assert_eq!(view["elections"]["total"], 1);
    assert!(!cluster.asked().contains(&"other".to_owned()));
}

#[tokio::test]
async fn only_the_namespaces_of_the_operator_are_asked() {
    let cluster = Cluster::new();
    let scope = ["shop", "bank"].map(|name| Some(name.to_owned()));
    let (routes, _stop) = page(&cluster, scope.to_vec());
    let response = ask(&routes, Method::GET, "/page/view.json").await;
    assert_eq!(response.status(), StatusCode::OK);
    let asked = cluster.asked();
    assert!(asked.len() >= 6, "{asked:?}");
    for namespace in asked {
        assert!(["shop", "bank"].contains(&&*namespace), "{namespace}");
    }
}

#[tokio::test]
async fn nothing_is_asked_while_nobody_looks() {
    let cluster = Cluster::new();
    let (routes, _stop) = page(&cluster, vec![None]);
    let response = ask(&routes, Method::GET, "/page").await;
    assert_eq!(response.status(), StatusCode::OK);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(cluster.asked(), Vec::<String>::new());

    let open = ask(&routes, Method::GET, "/page/events").await;
    let second = ask(&routes, Method::GET, "/page/events?namespace=shop").await;
    wait("two pages share three watches", || {
        cluster.server.watches() == 3
    })
    .await;
    drop((open, second));
    wait("the watches end", || cluster.server.watches() == 0).await;
}

#[tokio::test]
async fn a_stream_begins_with_the_document_and_ends_with_the_operator() {
    let cluster = Cluster::new();
    let (routes, stop) = page(&cluster, vec![None]);
    let response = ask(&routes, Method::GET, "/page/events").await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body().into_data_stream();
    let first = body.next().await.unwrap().unwrap();
    let first = String::from_utf8(first.to_vec()).unwrap();
    assert!(
        first.starts_with("event: view\ndata: {\"operator\":"),
        "{first}"
    );
    // The page receives what is read a moment later without another request.
    let rest = async {
        while let Some(Ok(part)) = body.next().await {
            if String::from_utf8_lossy(&part).contains("\"complete\":true") {
                return true;
            }
        }
        false
    };
    let found = tokio::time::timeout(Duration::from_secs(10), rest).await;
    assert_eq!(found, Ok(true));
    stop.send_replace(true);
    let end = tokio::time::timeout(Duration::from_secs(10), async {
        while let Some(part) = body.next().await {
            part.unwrap();
        }
    });
    end.await.unwrap();
}

#[tokio::test]
async fn pages_beyond_what_there_is_room_for_are_refused() {
    let cluster = Cluster::new();
    let (routes, _stop) = page(&cluster, vec![None]);
    let mut open = Vec::new();
    for _ in 0..32 {
        let response = ask(&routes, Method::GET, "/page/events").await;
        assert_eq!(response.status(), StatusCode::OK);
        open.push(response);
    }
    let response = ask(&routes, Method::GET, "/page/events").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    open.pop();
    let response = ask(&routes, Method::GET, "/page/events").await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_api_server_that_cannot_be_asked_is_told() {
    let nowhere: axum::http::Uri = "http://127.0.0.1:1".parse().unwrap();
    let client = Client::try_from(kube::Config::new(nowhere)).unwrap();
    let (_stop, stopped) = watch::channel(false);
    let operator = Operator {
        version: "1.2.3",
        identity: "bellwether-0".to_owned(),
    };
    let routes = routes(client, vec![None], names(), operator, stopped);
    let response = ask(&routes, Method::GET, "/page/view.json").await;
    let view: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(view["complete"], false);
    let message = view["trouble"]["message"].as_str().unwrap();
    assert!(message.contains("cannot be"), "{message}");
}

async fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within 5 s: {what}");
}
