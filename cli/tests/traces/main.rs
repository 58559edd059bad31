//! The operator with `--traces-endpoint`, against an API server on loopback and a stand-in for a collector.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use bellwether_api::labels::selector;
use bellwether_api_server::{ApiServer, Kind};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

const PATIENCE: Duration = Duration::from_secs(30);

/// An operator at work; it ends with this.
struct Operator {
    process: Child,
    folder: TempDir,
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log"));
            eprintln!("{}", log.unwrap_or_default());
        }
    }
}

impl Operator {
    /// Starts one that logs as JSON.
    fn start(cluster: &Cluster, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(&kubeconfig, cluster.kubeconfig.to_string()).unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let process = program()
            .env("KUBECONFIG", kubeconfig)
            .env("RUST_LOG", "info,bellwether=trace")
            .env("POD_NAME", "operator-0")
            .env("POD_NAMESPACE", "default")
            .env("OTEL_BSP_SCHEDULE_DELAY", "100")
            .env("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=test")
            .args(["--listen=127.0.0.1:0", "--log-format=json"])
            .args(arguments)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { process, folder }
    }

    /// The lines of its log.
    fn log(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path().join("log")).unwrap();
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        // The last line may be in the middle of being written.
        let end = text.rfind('\n').unwrap_or(0);
        text[..end].lines().map(parse).collect()
    }

    /// Asks it to stop. Returns how it ended and how long that took.
    async fn stop(&mut self) -> (ExitStatus, Duration) {
        let since = Instant::now();
        let id = self.process.id().to_string();
        let mut ask = Command::new("sh");
        let asked = ask.args(["-c", "kill -TERM $0", &id]).status();
        assert!(asked.unwrap().success());
        let status = until("the operator ends", || self.process.try_wait().unwrap()).await;
        (status, since.elapsed())
    }
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    let mine = std::env::vars().filter(|(name, _)| name.starts_with("OTEL_"));
    for (name, _) in mine {
        command.env_remove(name);
    }
    command.args(["run", "--member-image=bellwether:test"]);
    command.stdin(Stdio::null());
    command
}

async fn until<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = holds() {
            return found;
        }
        assert!(Instant::now() < give_up, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A span and what is said of it and of its process.
#[derive(Clone, Debug)]
struct Received {
    span: Span,
    attributes: BTreeMap<String, String>,
    resource: BTreeMap<String, String>,
}

/// What a collector received.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Received>>>);

impl Collector {
    /// Starts one, and tells its address.
    async fn start() -> (Self, String) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/traces", post(Self::take));
        let router = router.with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (collector, address)
    }

    async fn take(State(collector): State<Self>, headers: HeaderMap, body: Bytes) {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        let mut received = collector.0.lock().unwrap();
        for part in request.resource_spans {
            let resource = texts(&part.resource.unwrap_or_default().attributes);
            for span in part.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                received.push(Received {
                    attributes: texts(&span.attributes),
                    resource: resource.clone(),
                    span,
                });
            }
        }
    }

    /// All spans with this name.
    fn named(&self, name: &str) -> Vec<Received> {
        let received = self.0.lock().unwrap();
        let named = received
            .iter()
            .filter(|received| received.span.name == name);
        named.cloned().collect()
    }

    /// The spans whose parent this is.
    fn below(&self, parent: &Received) -> Vec<Received> {
        let received = self.0.lock().unwrap();
        let is_below = |child: &&Received| {
            child.span.parent_span_id == parent.span.span_id
                && child.span.trace_id == parent.span.trace_id
        };
        received.iter().filter(is_below).cloned().collect()
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &any_value::Value| match value {
        any_value::Value::StringValue(text) => text.clone(),
        any_value::Value::BoolValue(value) => value.to_string(),
        any_value::Value::IntValue(value) => value.to_string(),
        any_value::Value::DoubleValue(value) => value.to_string(),
        other => format!("{other:?}"),
    };
    let pair = |attribute: &KeyValue| {
        let value = attribute.value.as_ref()?.value.as_ref()?;
        Some((attribute.key.clone(), text(value)))
    };
    attributes.iter().filter_map(pair).collect()
}

fn names(spans: &[Received]) -> Vec<&str> {
    spans
        .iter()
        .map(|received| received.span.name.as_str())
        .collect()
}

/// An API server on loopback, and the way to it.
struct Cluster {
    server: ApiServer,
    kubeconfig: Value,
}

impl Cluster {
    /// A cluster with an ensemble that has nothing yet, and one that has a pod whose server does not answer.
    async fn start() -> Self {
        let server = ApiServer::new(1, 1);
        let meta = |name: &str| json!({ "name": name, "namespace": "default" });
        let mut pod = json!({ "metadata": meta("held-0"), "spec": { "containers": [] } });
        pod["metadata"]["labels"] = json!(selector("held"));
        let ensemble = |name| json!({ "metadata": meta(name), "spec": { "replicas": 3 } });
        let address = server.listen("operator").await.unwrap();
        {
            let mut store = server.store();
            store
                .create("user", Kind::ENSEMBLE, ensemble("main"))
                .unwrap();
            store
                .create("user", Kind::ENSEMBLE, ensemble("held"))
                .unwrap();
            store.create("user", Kind::POD, pod).unwrap();
            let has = |status: &mut Value| *status = json!({ "podIP": "127.99.99.99" });
            store
                .update_status("kubelet", Kind::POD, ("default", "held-0"), has)
                .unwrap();
        }
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://{address}") } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
            "users": [{ "name": "test", "user": {} }],
        });
        Self { server, kubeconfig }
    }
}

fn has_status(cluster: &Cluster) -> Option<()> {
    let store = cluster.server.store();
    let ensemble = store.get(Kind::ENSEMBLE, "default", "main")?;
    ensemble["status"]["phase"].is_string().then_some(())
}

/// The names of the spans in the lines of the log, and the keys of the lines that report a write.
fn shown(operator: &Operator) -> (BTreeSet<String>, BTreeSet<String>) {
    let log = operator.log();
    let spans = log.iter().flat_map(|line| {
        let all = line["spans"].as_array().cloned().unwrap_or_default();
        all.into_iter().chain(line.get("span").cloned())
    });
    let spans = spans.map(|span| span["name"].as_str().unwrap().to_owned());
    let written = log
        .iter()
        .filter(|line| line["message"] == "object written");
    let keys = written.flat_map(|line| line.as_object().unwrap().keys().cloned());
    (spans.collect(), keys.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconcile_is_a_trace_with_its_parts_and_the_log_does_not_show_it() {
    let (collector, address) = Collector::start().await;
    let cluster = Cluster::start().await;
    let mut operator = Operator::start(&cluster, &["--traces-endpoint", &address]);
    let reconcile = until("a trace of a whole reconcile", || {
        let whole = |trace: &Received| {
            trace.attributes["bellwether.ensemble.name"] == "main"
                && names(&collector.below(trace)).contains(&"publish")
                && collector
                    .below(trace)
                    .iter()
                    .any(|part| part.span.name == "execute" && !collector.below(part).is_empty())
        };
        collector.named("reconcile").into_iter().find(whole)
    })
    .await;
    assert_eq!(reconcile.span.parent_span_id, [0_u8; 0]);
    let expected = [
        ("k8s.namespace.name", "default"),
        ("bellwether.ensemble.name", "main"),
        ("bellwether.ensemble.phase", "Starting"),
        ("bellwether.outcome", "done"),
    ];
    for (key, value) in expected {
        let found = reconcile.attributes.get(key).map(String::as_str);
        assert_eq!(found, Some(value), "{key}: {:?}", reconcile.attributes);
    }
    let requeue = &reconcile.attributes["bellwether.requeue_after_seconds"];
    assert!(requeue.parse::<f64>().unwrap() > 0.0, "{requeue}");
    for (key, value) in [
        ("service.name", "bellwether"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("k8s.pod.name", "operator-0"),
        ("k8s.namespace.name", "default"),
        ("k8s.cluster.name", "test"),
    ] {
        assert_eq!(reconcile.resource.get(key).map(String::as_str), Some(value));
    }

    let mut parts = collector.below(&reconcile);
    parts.sort_by_key(|part| part.span.start_time_unix_nano);
    let whole = ["look", "gather", "plan", "execute", "publish"];
    assert_eq!(names(&parts), whole);
    for part in &parts {
        assert!(part.span.start_time_unix_nano >= reconcile.span.start_time_unix_nano);
        assert!(part.span.end_time_unix_nano <= reconcile.span.end_time_unix_nano);
    }
    let writes = collector.below(&parts[3]);
    assert!(names(&writes).iter().all(|name| *name == "write"));
    let kinds: BTreeSet<&str> = writes
        .iter()
        .map(|write| write.attributes["k8s.object.kind"].as_str())
        .collect();
    assert!(
        kinds.contains("Service") && kinds.contains("ConfigMap"),
        "{kinds:?}"
    );
    let status = collector.below(&parts[4]);
    assert_eq!(names(&status), ["write"]);
    assert_eq!(status[0].attributes["k8s.object.kind"], "ZooKeeperEnsemble");

    let probe = until("a probe", || collector.named("probe").pop()).await;
    assert_eq!(probe.attributes["k8s.pod.name"], "held-0");
    assert_eq!(probe.attributes["bellwether.member.role"], "Down");
    until("what the probe is part of", || {
        let mut gathers = collector.named("gather").into_iter();
        gathers.find(|gather| names(&collector.below(gather)) == ["probe"])
    })
    .await;

    // The last spans are sent at the end, and nothing else ever is.
    let (status, _) = operator.stop().await;
    assert!(status.success());
    let all = collector.0.lock().unwrap().clone();
    let sent: BTreeSet<&str> = all
        .iter()
        .map(|received| received.span.name.as_str())
        .collect();
    let known = [
        "execute",
        "gather",
        "look",
        "plan",
        "probe",
        "publish",
        "reconcile",
        "write",
    ];
    assert_eq!(sent, BTreeSet::from(known));
    assert!(all.iter().all(|received| received.span.events.is_empty()));

    let (spans, keys) = shown(&operator);
    let cluster = Cluster::start().await;
    let mut silent = Operator::start(&cluster, &[]);
    until("a status", || has_status(&cluster)).await;
    silent.stop().await;
    let without = shown(&silent);
    assert!(!without.1.is_empty());
    // It is of the library that calls reconciles.
    assert_eq!(spans, BTreeSet::from(["reconciling object".to_owned()]));
    assert_eq!((spans, keys), without);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_not_there_is_told_of_once_and_holds_nothing_up() {
    // A port without a listener.
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", dead.local_addr().unwrap());
    drop(dead);
    let cluster = Cluster::start().await;
    let mut operator = Operator::start(&cluster, &["--traces-endpoint", &address]);
    until("a status", || has_status(&cluster)).await;
    let complaints = |operator: &Operator| {
        let log = operator.log();
        let is_it = |line: &&Value| {
            line["message"]
                .as_str()
                .is_some_and(|m| m.starts_with("traces do not reach"))
        };
        log.iter().filter(is_it).cloned().collect::<Vec<_>>()
    };
    until("a complaint", || complaints(&operator).pop()).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (status, took) = operator.stop().await;
    assert!(status.success());
    assert!(took < Duration::from_secs(8), "{took:?}");
    let complaints = complaints(&operator);
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert_eq!(complaints[0]["level"], "WARN");
    let problem = complaints[0]["problem"].as_str().unwrap();
    assert!(problem.contains("refused"), "{problem}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_never_answers_holds_nothing_up() {
    // The system accepts connections, and no program reads from them.
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", mute.local_addr().unwrap());
    let cluster = Cluster::start().await;
    let mut operator = Operator::start(&cluster, &["--traces-endpoint", &address]);
    until("a status", || has_status(&cluster)).await;
    let accepted = tokio::time::timeout(PATIENCE, mute.accept()).await;
    let _connection = accepted.unwrap().unwrap();
    let (status, took) = operator.stop().await;
    assert!(status.success());
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn what_cannot_work_is_refused_at_the_start() {
    for (arguments, environment, reason) in [
        (
            vec!["--traces-endpoint=collector:4318"],
            None,
            "neither http:// nor https://",
        ),
        (
            vec![
                "--traces-endpoint=http://collector",
                "--traces-sample-ratio=2",
            ],
            None,
            "from 0 to 1",
        ),
        (
            vec!["--traces-endpoint=https://collector"],
            Some(("SSL_CERT_FILE", "/dev/null")),
            "SSL_CERT_FILE",
        ),
    ] {
        let mut program = program();
        program
            .args(&arguments)
            .env("KUBECONFIG", "/dev/null")
            .env_remove("SSL_CERT_DIR")
            .envs(environment);
        let output = program.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(text.contains(reason), "{arguments:?}: {text}");
    }
}
