//! The operator's own HTTP endpoints: `/livez` and `/readyz`, `/metrics`, and the page if it is wanted.

mod bounded;
mod certificate;
mod gate;

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use kube::Client;
use tokio::net::TcpListener;

use crate::metrics::Metrics;
use bounded::Limits;
pub use certificate::Certificate;

/// Listens at this address.
///
/// # Errors
/// When the address cannot be bound.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| format!("cannot listen on {address}"))
}

/// Answers until `shutdown`: in clear, or over TLS where there is a certificate.
///
/// # Errors
/// When the certificate cannot be presented.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    certificate: Option<Certificate>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let tls = certificate.map(Certificate::configuration).transpose()?;
    bounded::serve(listener, routes, tls, Limits::default(), shutdown).await;
    Ok(())
}

/// What kubelets ask.
///
/// A replica that waits for the lease is ready, too: it can do no more, and a Deployment would otherwise
/// never finish its rollout.
pub fn health() -> Router {
    Router::new()
        .route("/livez", get(|| async { (StatusCode::OK, "ok\n") }))
        .route("/readyz", get(|| async { (StatusCode::OK, "ok\n") }))
}

/// What people and Prometheus ask.
pub fn reports(metrics: Metrics, page: Option<Router>) -> Router {
    let text = move || async move {
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        ([(header::CONTENT_TYPE, kind)], metrics.text()).into_response()
    };
    let own = Router::new().route(gate::METRICS, get(text));
    own.merge(page.unwrap_or_default())
}

/// The same only for those whom the API server lets read it.
pub fn guarded(reports: Router, client: Client) -> Router {
    gate::guard(reports, client)
}
