//! A page for people: ensembles, the changes under way, and elections, live in a browser.
//!
//! It is read only, and off by default. All that it shows is read from the API server, so that
//! every replica answers alike, and only while the page is open in a browser.

mod looking;
mod names;
mod store;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use kube::Client;
use tokio::sync::watch;

use looking::Window;
pub(crate) use names::Names;
use store::Ask;
pub(crate) use store::Operator;
use stream::Look;

/// Scripts, styles and requests are limited to what this program serves, and no page may show this
/// one in a frame; there are no inline scripts or styles.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What the handlers share.
#[derive(Clone)]
struct Page {
    client: Client,
    window: Window,
    operator: Operator,
    stopped: watch::Receiver<bool>,
}

/// The page and what belongs to it.
///
/// `namespaces` are those that the operator works in, one `None` for all of them; `names` those under which the page is
/// answered; `stopped` becomes true when the operator stops, which ends what is open.
pub(crate) fn routes(
    client: Client,
    namespaces: Vec<Option<String>>,
    names: Names,
    operator: Operator,
    stopped: watch::Receiver<bool>,
) -> Router {
    let window = Window::new(client.clone(), namespaces);
    let page = Page {
        client,
        window,
        operator,
        stopped,
    };
    routes_of(page, names)
}

fn routes_of(page: Page, names: Names) -> Router {
    let text = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    let html = include_str!("page/assets/page.html");
    let style = include_str!("page/assets/page.css");
    let script = include_str!("page/assets/page.js");
    // All links of the page are relative to it, so that it works behind a proxy with a path of its own.
    Router::new()
        .route("/", get(|| async { Redirect::temporary("page") }))
        .route("/page", text("text/html; charset=utf-8", html))
        .route("/page.css", text("text/css; charset=utf-8", style))
        .route("/page.js", text("text/javascript; charset=utf-8", script))
        .route("/page/events", get(events))
        .route("/page/view.json", get(view))
        .layer(from_fn_with_state(Arc::new(names), names::check))
        .layer(map_response(secured))
        .with_state(page)
}

/// Every change of what the page asks for, until it is closed.
async fn events(State(page): State<Page>, Query(ask): Query<Ask>) -> Response {
    match page.look(ask) {
        Some(look) => look.events(page.stopped.clone()).into_response(),
        None => full(),
    }
}

/// What the page would show now, once.
async fn view(State(page): State<Page>, Query(ask): Query<Ask>) -> Response {
    match page.look(ask) {
        Some(mut look) => {
            let json = (header::CONTENT_TYPE, "application/json");
            ([json], look.complete().await).into_response()
        }
        None => full(),
    }
}

fn full() -> Response {
    let text = "too many pages are open; close one, or ask another replica\n";
    let later = [(header::RETRY_AFTER, "30")];
    (StatusCode::SERVICE_UNAVAILABLE, later, text).into_response()
}

impl Page {
    fn look(&self, ask: Ask) -> Option<Look> {
        let viewer = self.window.look()?;
        let operator = self.operator.clone();
        Some(Look::new(self.client.clone(), viewer, operator, ask))
    }
}

async fn secured(mut response: Response) -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in headers {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests;
