//! The names under which the page is answered.
//!
//! A browser shows its page to the scripts of another one if both have the same name: the owner of a domain can let its
//! name stand for the operator's address after his own page was loaded (DNS rebinding). So only names are answered that
//! nobody else can own.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The names.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The domain of the cluster's names.
    pub(crate) cluster_domain: String,
    /// Those that the administrator added.
    pub(crate) added: Vec<String>,
}

impl Names {
    /// Whether the page is answered under this name. Nobody owns an address, a name without a dot, or one within the
    /// cluster.
    fn has(&self, host: &str) -> bool {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let host = host.to_ascii_lowercase();
        let within = format!(".svc.{}", self.cluster_domain.to_ascii_lowercase());
        address.parse::<IpAddr>().is_ok()
            || !host.contains('.')
            || host.ends_with(".svc")
            || host.ends_with(&within)
            || self
                .added
                .iter()
                .any(|added| added.eq_ignore_ascii_case(&host))
    }
}

/// Answers requests under these names only. Browsers always say which name they ask.
pub(super) async fn check(
    State(names): State<Arc<Names>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(asked) = request.headers().get(header::HOST) else {
        return next.run(request).await;
    };
    let asked = asked
        .to_str()
        .ok()
        .and_then(|text| text.parse::<Authority>().ok());
    match asked.is_some_and(|asked| names.has(asked.host())) {
        true => next.run(request).await,
        false => {
            let text = "the page is not answered under this name: add it to page.hosts of the chart (--page-host)\n";
            (StatusCode::MISDIRECTED_REQUEST, text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_nobody_else_can_own_are_answered() {
        let names = Names {
            cluster_domain: "cluster.local".to_owned(),
            added: vec!["bellwether.example.com".to_owned()],
        };
        for host in [
            "localhost",
            "127.0.0.1",
            "[::1]",
            "bellwether",
            "bellwether.ops.svc",
            "bellwether.ops.svc.cluster.local",
            "Bellwether.Example.com",
        ] {
            assert!(names.has(host), "{host}");
        }
        for host in [
            "example.com",
            "evil.bellwether.example.com",
            "x.svc.evil.example",
            "127.0.0.1.evil.example",
            "cluster.local.evil.example",
            "bellwether.ops",
        ] {
            assert!(!names.has(host), "{host}");
        }
    }
}
