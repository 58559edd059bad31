use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::body::to_bytes;
use axum::http::Method;
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use kube::client::Body as KubeBody;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;

/// What an API server would answer, and how often it was asked.
#[derive(Clone, Default)]
struct Reviews {
    asked: Arc<AtomicUsize>,
    revoked: Arc<AtomicBool>,
    broken: Arc<AtomicBool>,
}

impl Reviews {
    /// The token `NAME-token` is that of the user NAME. The user `prometheus` may read the metrics, `anna` the page.
    fn client(&self) -> Client {
        let reviews = self.clone();
        let service = tower::service_fn(move |request: axum::http::Request<KubeBody>| {
            let reviews = reviews.clone();
            async move {
                reviews.asked.fetch_add(1, Ordering::Relaxed);
                assert_eq!(request.method(), Method::POST);
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect_bytes().await.unwrap();
                let mut review: Value = serde_json::from_slice(&body).unwrap();
                let spec = review["spec"].clone();
                review["status"] = match path.as_str() {
                    "/apis/authentication.k8s.io/v1/tokenreviews" => reviews.user(&spec),
                    "/apis/authorization.k8s.io/v1/subjectaccessreviews" => rights(&spec),
                    path => panic!("{path}"),
                };
                let code = match reviews.broken.load(Ordering::Relaxed) {
                    true => 500,
                    false => 201,
                };
                let response = axum::http::Response::builder().status(code);
                Ok::<_, Infallible>(
                    response
                        .body(KubeBody::from(review.to_string().into_bytes()))
                        .unwrap(),
                )
            }
        });
        Client::new(service, "default")
    }

    fn user(&self, spec: &Value) -> Value {
        let name = spec["token"].as_str().unwrap().strip_suffix("-token");
        match name.filter(|_| !self.revoked.load(Ordering::Relaxed)) {
            Some(name) => json!({
                "authenticated": true, "user": { "username": name, "groups": ["people"] },
            }),
            None => json!({ "authenticated": false, "error": "unknown" }),
        }
    }
}

fn rights(spec: &Value) -> Value {
    assert_eq!(spec["groups"], json!(["people"]));
    assert_eq!(spec["nonResourceAttributes"]["verb"], "get");
    let path = spec["nonResourceAttributes"]["path"].as_str().unwrap();
    let allowed = matches!(
        (spec["user"].as_str().unwrap(), path),
        ("prometheus", "/metrics") | ("anna", "/page")
    );
    json!({ "allowed": allowed })
}

fn guarded(reviews: &Reviews) -> Router {
    let events = || async {
        let alive = futures::stream::unfold((), |()| async {
            sleep(Duration::from_secs(5)).await;
            Some((Ok::<_, Infallible>(Event::default().data("alive")), ()))
        });
        Sse::new(alive)
    };
    let routes = Router::new()
        .route("/metrics", get(|| async { "metrics" }))
        .route("/page", get(|| async { "page" }))
        .route("/page/events", get(events));
    guard(routes, reviews.client())
}

async fn ask(routes: &Router, path: &str, authorization: Option<&str>) -> Response {
    let mut request = Request::builder().uri(path);
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let request = request.body(Body::empty()).unwrap();
    routes.clone().oneshot(request).await.unwrap()
}

#[tokio::test]
async fn who_may_reads_and_nobody_else() {
    let reviews = Reviews::default();
    let routes = guarded(&reviews);
    let code = async |path: &str, authorization: Option<&str>| {
        ask(&routes, path, authorization).await.status().as_u16()
    };
    for (path, authorization, expected) in [
        ("/metrics", Some("Bearer prometheus-token"), 200),
        ("/page", Some("Bearer prometheus-token"), 403),
        ("/page", Some("Bearer anna-token"), 200),
        ("/page/", Some("Bearer prometheus-token"), 403),
        ("/page/events", Some("Bearer prometheus-token"), 403),
        ("/metrics", Some("Bearer anna-token"), 403),
        ("/metrics", Some("Bearer somebody"), 401),
        ("/metrics", Some("Bearer "), 401),
        ("/metrics", None, 401),
        ("/nowhere", None, 401),
        // `x:anna-token` and `anna-token:`, as a browser sends them.
        ("/page", Some("Basic eDphbm5hLXRva2Vu"), 200),
        ("/page", Some("Basic YW5uYS10b2tlbjo="), 401),
        ("/page", Some("Basic nonsense!"), 401),
        ("/page", Some("Digest anna-token"), 401),
    ] {
        assert_eq!(
            code(path, authorization).await,
            expected,
            "{path} {authorization:?}"
        );
    }
    let refused = ask(&routes, "/page", None).await;
    let asks = refused.headers()[header::WWW_AUTHENTICATE]
        .to_str()
        .unwrap();
    assert!(asks.starts_with("Basic realm="), "{asks}");
    let refused = ask(&routes, "/metrics", Some("Bearer anna-token")).await;
    let text = to_bytes(refused.into_body(), 1 << 10).await.unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert!(text.starts_with("anna may not get /metrics: "), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_for_a_minute() {
    let reviews = Reviews::default();
    let routes = guarded(&reviews);
    let code = async || {
        let response = ask(&routes, "/metrics", Some("Bearer prometheus-token")).await;
        response.status().as_u16()
    };
    assert_eq!([code().await, code().await], [200, 200]);
    assert_eq!(reviews.asked.load(Ordering::Relaxed), 2);
    reviews.revoked.store(true, Ordering::Relaxed);
    tokio::time::advance(COUNTS).await;
    assert_eq!(code().await, 401);
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_lets_nobody_in() {
    let reviews = Reviews::default();
    reviews.broken.store(true, Ordering::Relaxed);
    let response = ask(
        &guarded(&reviews),
        "/metrics",
        Some("Bearer prometheus-token"),
    )
    .await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn what_is_open_ends_when_the_right_does_and_not_because_nobody_can_be_asked() {
    let reviews = Reviews::default();
    let routes = guarded(&reviews);
    let response = ask(&routes, "/page/events", Some("Bearer anna-token")).await;
    let mut events = response.into_body().into_data_stream();
    reviews.broken.store(true, Ordering::Relaxed);
    let start = Instant::now();
    while start.elapsed() < 3 * COUNTS {
        assert!(events.next().await.is_some());
    }
    reviews.broken.store(false, Ordering::Relaxed);
    reviews.revoked.store(true, Ordering::Relaxed);
    while events.next().await.is_some() {
        assert!(start.elapsed() < 5 * COUNTS, "it is still open");
    }
}
