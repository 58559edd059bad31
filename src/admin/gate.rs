//! Who may read the metrics and the page: those whom the API server lets `get` the paths [`METRICS`] and [`PAGE`], as for
//! Kubernetes' own components.
//!
//! A request brings a token of Kubernetes: as `Bearer`, or, since browsers ask people for no more than a name and a
//! password, as the password of any name. A TokenReview tells whose it is, a SubjectAccessReview what he may read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use headers::authorization::{Basic, Bearer};
use headers::{Authorization, HeaderMapExt as _};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

/// The path of the metrics, here and in the API server's rules.
pub(super) const METRICS: &str = "/metrics";
/// The path of the page in the API server's rules; it stands for all that belongs to the page.
const PAGE: &str = "/page";
/// How long the API server's answer counts. What is open for longer is judged again as often.
const COUNTS: Duration = Duration::from_secs(60);
/// How many answers are kept.
const KEPT: usize = 1000;
/// How many requests may ask the API server at once.
const ASKING: usize = 8;
/// How long a request waits for the API server.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the API server said of a token and a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// It is nobody's token.
    Nobody,
    /// It is this user's, who may not read the path.
    Forbidden(String),
}

struct Gate {
    client: Client,
    /// By the hash of path and token, so that no token is kept.
    known: Mutex<HashMap<Vec<u8>, (Instant, Verdict)>>,
    asking: Semaphore,
}

/// Lets only those pass who may.
pub(super) fn guard(routes: Router, client: Client) -> Router {
    let gate = Gate {
        client,
        known: Mutex::default(),
        asking: Semaphore::new(ASKING),
    };
    routes.layer(from_fn_with_state(Arc::new(gate), pass))
}

async fn pass(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let path = match request.uri().path() {
        METRICS => METRICS,
        _ => PAGE,
    };
    let Some(token) = token(request.headers()) else {
        return refused(Verdict::Nobody, path);
    };
    match gate.judge(&token, path).await {
        Ok(Verdict::Allowed) => {}
        Ok(verdict) => return refused(verdict, path),
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "nobody can be let in");
            let text =
                "the API server does not tell who you are: try again, or see the operator's log\n";
            return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
        }
    }
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    let lasts = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    match lasts {
        true => response.map(|body| {
            let ends = async move { gate.refuses(&token, path).await };
            Body::from_stream(body.into_data_stream().take_until(Box::pin(ends)))
        }),
        false => response,
    }
}

/// The token that a request brings.
fn token(headers: &HeaderMap) -> Option<String> {
    let bearer = headers.typed_get::<Authorization<Bearer>>();
    let basic = || headers.typed_get::<Authorization<Basic>>();
    let token = bearer.map(|bearer| bearer.token().to_owned());
    let token = token.or_else(|| basic().map(|basic| basic.password().to_owned()));
    token.filter(|token| !token.is_empty())
}

fn refused(verdict: Verdict, path: &str) -> Response {
    match verdict {
        Verdict::Forbidden(user) => {
            let text = format!(
                "{user} may not get {path}: bind the ClusterRole of the chart that ends with {}-reader, or another one with the verb get for this nonResourceURL\n",
                path.trim_start_matches('/')
            );
            (StatusCode::FORBIDDEN, text).into_response()
        }
        Verdict::Nobody | Verdict::Allowed => {
            let text = "bring a token of Kubernetes: as Bearer, or as the password of any name (kubectl create token)\n";
            let ask =
                "Basic realm=\"Bellwether: any name, and a token of Kubernetes as the password\"";
            let headers = [(header::WWW_AUTHENTICATE, ask)];
            (StatusCode::UNAUTHORIZED, headers, text).into_response()
        }
    }
}

impl Gate {
    /// Completes when this token is of no use for this path any more. Without an answer of the API server it stays as it is.
    async fn refuses(&self, token: &str, path: &str) {
        loop {
            sleep(COUNTS).await;
            if let Ok(verdict) = self.judge(token, path).await
                && verdict != Verdict::Allowed
            {
                return;
            }
        }
    }

    async fn judge(&self, token: &str, path: &str) -> anyhow::Result<Verdict> {
        let key = digest(&SHA256, format!("{path} {token}").as_bytes());
        let key = key.as_ref().to_vec();
        let known = self.known().get(&key).cloned();
        if let Some((since, verdict)) = known
            && since.elapsed() < COUNTS
        {
            return Ok(verdict);
        }
        let ask = async {
            let _turn = self.asking.acquire().await;
            self.ask(token, path).await
        };
        let verdict = timeout(PATIENCE, ask).await;
        let verdict = verdict.context("the API server did not answer in time")??;
        let mut known = self.known();
        if known.len() >= KEPT {
            known.retain(|_, (since, _)| since.elapsed() < COUNTS);
        }
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, (Instant::now(), verdict.clone()));
        Ok(verdict)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Vec<u8>, (Instant, Verdict)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, token: &str, path: &str) -> anyhow::Result<Verdict> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews = Api::<TokenReview>::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &review).await;
        let status = review.context("a TokenReview")?.status.unwrap_or_default();
        let user = match (status.authenticated, status.user) {
            (Some(true), Some(user)) => user,
            _ => return Ok(Verdict::Nobody),
        };
        let name = user.username.clone().unwrap_or_default();
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let access = access(user, path);
        let review = reviews.create(&PostParams::default(), &access).await;
        let status = review.context("a SubjectAccessReview")?.status;
        match status.is_some_and(|status| status.allowed && status.denied != Some(true)) {
            true => Ok(Verdict::Allowed),
            false => Ok(Verdict::Forbidden(name)),
        }
    }
}

fn access(user: UserInfo, path: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests;
