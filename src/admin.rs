//! The operator's own HTTP endpoints: `/livez`, `/readyz`, `/metrics`, and the page if it is wanted.

mod bounded;

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::metrics::Metrics;
use bounded::Limits;

/// Serves until `shutdown`.
///
/// A replica that waits for the lease is ready, too: it can do no more, and a Deployment would otherwise
/// never finish its rollout.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve(
    address: SocketAddr,
    metrics: Metrics,
    page: Option<Router>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let app = routes(metrics, page);
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; choose another --listen address"))?;
    bounded::serve(listener, app, Limits::default(), shutdown).await;
    Ok(())
}

/// Everything that is served.
pub fn routes(metrics: Metrics, page: Option<Router>) -> Router {
    let text = move || async move {
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        ([(header::CONTENT_TYPE, kind)], metrics.text()).into_response()
    };
    let own = Router::new()
        .route("/livez", get(|| async { (StatusCode::OK, "ok\n") }))
        .route("/readyz", get(|| async { (StatusCode::OK, "ok\n") }))
        .route("/metrics", get(text));
    own.merge(page.unwrap_or_default())
}
