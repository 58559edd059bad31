//! Traces: what became of a reconcile or of a change in an election, step by step, for an OpenTelemetry
//! collector. Without `--traces-endpoint` nothing of this runs.
//!
//! Spans are those of the crate `tracing` with the target [`SPANS`]. Two filters keep them and the log apart:
//! the log never shows such a span, whatever its filter is, and a collector receives only these spans and no
//! log lines. Without a collector their call sites are disabled and cost one comparison.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::http::Uri;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Subscriber, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::registry::LookupSpan;

/// The target of all spans that are sent.
pub(crate) const SPANS: &str = "bellwether::spans";

/// How long one request to the collector may take, even if OTEL_EXPORTER_OTLP_TIMEOUT allows more for all retries.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long sending the last spans may take when the process stops.
const LAST: Duration = Duration::from_secs(3);

/// The least time between two warnings that the collector cannot be reached.
const SILENCE: Duration = Duration::from_secs(600);

/// The longest answer that is read; a collector's has some bytes.
const MAX_ANSWER: usize = 64 * 1024;

/// Where spans go: OTLP over HTTP, as protobuf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Uri);

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Endpoint {
    type Err = String;

    /// Reads a URL. One without a path gets OTLP's, `/v1/traces`.
    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write one such as http://collector:4318";
        let url: Uri = text
            .parse()
            .map_err(|error| format!("this is no URL ({error}); {example}"))?;
        let scheme = match url.scheme_str() {
            Some(scheme @ ("http" | "https")) => scheme,
            _ => return Err(format!("it is neither http:// nor https://; {example}")),
        };
        let authority = url.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            let instead = "set the header with OTEL_EXPORTER_OTLP_HEADERS instead";
            return Err(format!(
                "it has a user name or password, which logs would show; {instead}"
            ));
        }
        // The parser drops a port that is not a number or is too large, instead of refusing it.
        let after_address = authority.rsplit(']').next().unwrap_or_default();
        let bad_port = after_address.contains(':') && url.port_u16().is_none();
        if bad_port || url.host().is_none_or(str::is_empty) {
            return Err(format!("it names no host, or no valid port; {example}"));
        }
        if url.path() != "/" || url.query().is_some() {
            return Ok(Self(url));
        }
        let url = format!("{scheme}://{authority}/v1/traces");
        url.parse().map(Self).map_err(|e| format!("{url}: {e}"))
    }
}

/// Reads the part of all traces that is sent.
pub fn ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|_| "this is no number".to_owned())?;
    if (0.0..=1.0).contains(&ratio) {
        Ok(ratio)
    } else {
        Err("it has to be from 0 to 1".to_owned())
    }
}

/// Sends spans in a thread of its own. Spans that do not fit into its queue are lost.
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts sending. `ratio` is the part of all traces that is sent; without it, the SDK's environment
    /// variables decide.
    ///
    /// # Errors
    /// When the SDK's environment variables make no sense, or when no certificates are found for an endpoint
    /// with https.
    pub fn start(endpoint: &Endpoint, ratio: Option<f64>) -> anyhow::Result<Self> {
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint.to_string())
            .with_http_client(Sender::new(endpoint)?)
            .build()
            .context("cannot send traces")?;
        let mut provider = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_batch_exporter(exporter);
        if let Some(ratio) = ratio {
            let sampler = Sampler::TraceIdRatioBased(ratio);
            provider = provider.with_sampler(Sampler::ParentBased(Box::new(sampler)));
        }
        Ok(Self(provider.build()))
    }

    /// Takes the spans of a subscriber.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("bellwether"))
            // Where in the source a span begins, and in which thread, is of no use to those who run this.
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(filter_fn(is_sent).with_max_level_hint(LevelFilter::INFO))
    }

    /// Sends the remaining spans, for at most 3 s.
    pub async fn stop(self) {
        // The SDK waits by blocking the thread.
        let stopping = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(LAST));
        // The sender has already logged that spans cannot be sent.
        let _ = stopping.await;
    }
}

/// Passes everything to the log except spans that are for a collector.
pub(crate) fn not_sent() -> FilterFn {
    let not_sent: fn(&Metadata<'_>) -> bool = |metadata| !is_sent(metadata);
    FilterFn::new(not_sent).with_max_level_hint(LevelFilter::TRACE)
}

fn is_sent(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == SPANS
}

/// The attributes of this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES change it.
fn resource() -> Resource {
    let known = |key, variable| {
        let value = std::env::var(variable).ok();
        let value = value.filter(|value| !value.is_empty())?;
        Some(KeyValue::new(key, value))
    };
    let own = [
        Some(KeyValue::new("service.name", "bellwether")),
        Some(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))),
        known("service.instance.id", "POD_NAME"),
        known("k8s.pod.name", "POD_NAME"),
        known("k8s.namespace.name", "POD_NAMESPACE"),
    ];
    let name = known("service.name", "OTEL_SERVICE_NAME");
    Resource::builder_empty()
        .with_attributes(own.into_iter().flatten())
        .with_detector(Box::new(EnvResourceDetector::new()))
        .with_attributes(name)
        .build()
}

/// Sends the requests of the SDK's thread on the operator's runtime.
#[derive(Debug)]
struct Sender {
    endpoint: Endpoint,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
    complaints: Complaints,
}

impl Sender {
    fn new(endpoint: &Endpoint) -> anyhow::Result<Self> {
        let tls = HttpsConnectorBuilder::new();
        let connector = if endpoint.0.scheme_str() == Some("https") {
            tls.with_native_roots().context(
                "the traces' endpoint has https, and no certificates of authorities were found; \
                 name a file with them in SSL_CERT_FILE",
            )?
        } else {
            let nobody = RootCertStore::empty();
            let config = ClientConfig::builder().with_root_certificates(nobody);
            tls.with_tls_config(config.with_no_client_auth())
        };
        let connector = connector.https_or_http().enable_http1().build();
        Ok(Self {
            endpoint: endpoint.clone(),
            client: Client::builder(TokioExecutor::new()).build(connector),
            runtime: Handle::current(),
            complaints: Complaints::default(),
        })
    }
}

#[async_trait::async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let exchange = async move {
            let answer = client.request(request.map(Full::new)).await?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(head, body))
        };
        // The clock is the runtime's, too.
        let in_time = async { timeout(PATIENCE, exchange).await };
        let result = self.runtime.spawn(in_time).await;
        let result = result
            .map_err(HttpError::from)
            .and_then(|in_time| match in_time {
                Ok(answered) => answered,
                Err(_) => Err(format!("no answer within {PATIENCE:?}").into()),
            });
        let problem = match &result {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(chain(error.as_ref())),
        };
        if let Some(problem) = problem
            && self.complaints.may_be_told(Instant::now())
        {
            let endpoint = &self.endpoint;
            warn!(%endpoint, problem, "traces do not reach the collector and may be lost; this warning is logged every ten minutes at most");
        }
        result
    }
}

/// An error with its causes: the outermost of a client says only that it could not connect.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}

/// When the last warning was logged that the collector cannot be reached.
#[derive(Debug, Default)]
struct Complaints(Mutex<Option<Instant>>);

impl Complaints {
    fn may_be_told(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let may = last.is_none_or(|last| now.duration_since(last) >= SILENCE);
        if may {
            *last = Some(now);
        }
        may
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SpanData, SpanExporter};

    use super::*;

    /// Lets one test run at a time: a call site is disabled only if no subscriber in the process wants it.
    pub(crate) static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    /// What would be sent, in the order in which it ended.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().unwrap().extend(batch);
            Ok(())
        }
    }

    impl Kept {
        pub(crate) fn start() -> (Self, Traces) {
            let kept = Self::default();
            let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone());
            (kept, Traces(provider.build()))
        }

        pub(crate) fn spans(&self) -> Vec<SpanData> {
            self.0.lock().unwrap().clone()
        }
    }

    #[test]
    fn an_endpoint_without_a_path_gets_that_of_otlp() {
        for (given, meant) in [
            ("http://collector:4318", "http://collector:4318/v1/traces"),
            ("https://collector/", "https://collector/v1/traces"),
            ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
            ("http://collector/other", "http://collector/other"),
        ] {
            assert_eq!(given.parse::<Endpoint>().unwrap().to_string(), meant);
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_a_reason() {
        for (given, reason) in [
            ("", "no URL"),
            ("collector:4318", "neither http:// nor https://"),
            ("/v1/traces", "neither http:// nor https://"),
            ("grpc://collector:4317", "neither http:// nor https://"),
            ("http://", "no URL"),
            ("http://:4318", "no host"),
            ("http://a b:4318", "no URL"),
            ("http://collector:99999", "no valid port"),
            ("http://collector:", "no valid port"),
            (
                "http://me:secret@collector:4318",
                "OTEL_EXPORTER_OTLP_HEADERS",
            ),
        ] {
            let error = given.parse::<Endpoint>().unwrap_err();
            assert!(error.contains(reason), "{given}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_ratio_is_between_nothing_and_all() {
        assert_eq!(ratio("0.25"), Ok(0.25));
        for bad in ["-0.1", "1.5", "NaN", "all", ""] {
            assert!(ratio(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_unreachable_collector_is_told_of_once_in_a_while() {
        let complaints = Complaints::default();
        let begin = Instant::now();
        let told = [0, 5, 599, 600, 601, 1200];
        let told = told.map(|after| complaints.may_be_told(begin + Duration::from_secs(after)));
        assert_eq!(told, [true, false, false, true, false, true]);
    }
}
