//! A real Prometheus asks the real operator and the members of an ensemble: every query of the dashboard and of the
//! alerts is answered.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bellwether_e2e::clients::Clients;
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::helm;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::{OPERATOR_NAMESPACE, World};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// Queries that rightly find nothing while all is well, by a part of them, with the reason.
const EMPTY: &[(&str, &str)] = &[
    (
        "bellwether_ensemble_leader_server_id) == 0",
        "the alert finds ensembles without a leader",
    ),
    (
        "bellwether_ensemble_serving_members) < max",
        "the alert finds ensembles with a member away",
    ),
    (
        "bellwether_ensemble_ready) == 0",
        "the alert finds ensembles that are not ready",
    ),
    (
        "certificate_end_timestamp_seconds) - time() <",
        "the alert finds certificates that end soon",
    ),
    (
        "absent(bellwether_election_mirrors",
        "the alert finds that no operator reports",
    ),
    (
        "{outcome=\"failed\"}",
        "the alerts find what fails, and nothing does",
    ),
    (
        "bellwether_election_has_leader) == 0",
        "the alert finds elections without a leader",
    ),
    (
        "bellwether:election_without_leader:ratio1d",
        "this Prometheus records nothing",
    ),
    (
        "{type=\"SoleLeader\", status=\"false\"}",
        "the alert finds a pod that claims the lead of another",
    ),
    (
        "{type=\"Bridged\", reason=\"TwoMayLead\"}",
        "the alert finds a bridge that holds neither lock",
    ),
    (
        "bellwether_election_series_left_out) > 0",
        "the alert finds elections that ask for series and have none",
    ),
    (
        "bellwether_election_conditions{status!=\"true\"}",
        "no condition of an election need be other than true",
    ),
];

/// Prometheus with what it has stored; it ends with this.
struct Prometheus {
    process: Child,
    address: SocketAddr,
    directory: PathBuf,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Prometheus {
    /// Starts one that asks these: the operator's pods with a token, and members.
    fn start(name: &str, targets: &Targets, token: &str) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let configuration = json!({
            "global": { "scrape_interval": "1s", "scrape_timeout": "1s" },
            "scrape_configs": [
                {
                    "job_name": "operator", "honor_labels": true, "static_configs": targets.operator,
                    "scheme": "https", "tls_config": { "insecure_skip_verify": true },
                    "authorization": { "credentials": token },
                },
                { "job_name": "members", "honor_labels": true, "static_configs": targets.members },
            ],
        });
        // YAML contains JSON.
        let file = directory.join("prometheus.yml");
        fs::write(&file, configuration.to_string())?;
        let output = fs::File::create(directory.join("output"))?;
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("start prometheus; install Debian's package prometheus")?;
        Ok(Self {
            process,
            address,
            directory,
        })
    }

    /// What the API answers.
    fn ask(&self, path: &str, query: Option<&str>) -> Result<Value, String> {
        let answer = || -> Result<Value> {
            let mut stream = TcpStream::connect(self.address)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            // Queries may be long, so they use POST; the other endpoints do not accept it.
            let body = query.map(|q| format!("query={}", encoded(q)));
            let (method, body) = body.map_or(("GET", String::new()), |body| ("POST", body));
            write!(
                stream,
                "{method} /api/v1/{path} HTTP/1.0\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            let (_, body) = text.split_once("\r\n\r\n").context("no body")?;
            let value: Value = serde_json::from_str(body).with_context(|| text.clone())?;
            ensure!(
                value["status"] == "success",
                "{}: {value}",
                query.unwrap_or(path)
            );
            Ok(value["data"].clone())
        };
        answer().map_err(|e| format!("{e:#}"))
    }

    /// The series that a query finds.
    fn find(&self, query: &str) -> Result<Vec<Value>, String> {
        let data = self.ask("query", Some(query))?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }
}

/// Letters and digits stay as they are; any other byte becomes `%` and its number.
fn encoded(text: &str) -> String {
    let byte = |b: u8| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(b).to_string(),
        _ => format!("%{b:02X}"),
    };
    text.bytes().map(byte).collect()
}

pub(crate) fn every_query_is_answered_and_names_metrics_that_exist(world: &World) -> Result<()> {
    world.wait_operator()?;
    let mut spec = Ensemble::small(3);
    spec["metrics"] = json!({ "enabled": true });
    let ensemble = world.ensemble("main", spec)?;
    let clients = world.clients()?;
    ensemble.wait_ready(3)?;
    let hosts = ensemble.members(3);
    let arguments = ["--hosts", &hosts, "--path", "/leader", "--id", "a"];
    let candidate = clients.python("a", "unfair.py", &arguments)?;
    let election = world.election("one", "/leader", json!({ "type": "SingleText" }))?;
    election.wait_agrees(&[&candidate], 1)?;
    let measured = r#"{"spec":{"ownSeries":true}}"#;
    world.run(&["patch", "le/one", "--type=merge", "-p", measured])?;

    // Restarts of members by the operator, so that there are some to count.
    let before = ensemble.uids();
    let now = "zookeeper.bellwether.dev/restartedAt=now";
    world.run(&["annotate", "zke/main", now])?;
    until("every member has restarted", 3 * PATIENCE, || {
        let now = ensemble.uids();
        let replaced = |(pod, uid): (&String, &String)| now.get(pod).is_some_and(|n| n != uid);
        if before.iter().all(replaced) {
            Ok(())
        } else {
            Err(format!("{before:?}, then {now:?}"))
        }
    })?;
    ensemble.wait_ready(3)?;

    let Some(targets) = targets(world)? else {
        eprintln!("pods of this cluster cannot be reached from here: Prometheus asks nobody");
        return Ok(());
    };
    let token = token(world)?;
    only_those_who_may_read(&clients, &targets, &token)?;
    let prometheus = Prometheus::start(&world.namespace, &targets, &token)?;
    until("every target is asked", PATIENCE, || {
        let up = prometheus.find("up == 1")?.len();
        let all = targets.operator.len() + targets.members.len();
        if up == all {
            Ok(())
        } else {
            let down = prometheus.ask("targets?state=active", None)?;
            Err(format!("{up} of {all}: {down}"))
        }
    })?;
    let queries = queries()?;
    ensure!(
        queries.len() > 40,
        "only {} queries were found",
        queries.len()
    );
    // A rate takes two samples.
    until("every query is answered", PATIENCE, || {
        answered(&prometheus, world, &queries).map_err(|e| format!("{e:#}"))
    })?;
    goes_away(&prometheus, world)
}

/// What Prometheus asks, each an address with labels.
struct Targets {
    operator: Vec<Value>,
    members: Vec<Value>,
}

/// The operator's pods and the ensemble's members; none if they cannot be reached from here.
fn targets(world: &World) -> Result<Option<Targets>> {
    let operator = "app.kubernetes.io/component=operator";
    let operator = addresses(world, OPERATOR_NAMESPACE, operator, 8443)?;
    let members = addresses(
        world,
        &world.namespace,
        "app.kubernetes.io/name=zookeeper",
        7000,
    )?;
    let (Some(operator), Some(mut members)) = (operator, members) else {
        return Ok(None);
    };
    for member in &mut members {
        member["labels"]["ensemble"] = json!("main");
    }
    ensure!(!operator.is_empty() && members.len() == 3, "too few pods");
    Ok(Some(Targets { operator, members }))
}

/// This port of the pods with a label.
fn addresses(
    world: &World,
    namespace: &str,
    selector: &str,
    port: u16,
) -> Result<Option<Vec<Value>>> {
    let mut targets = Vec::new();
    let pods = ["-n", namespace, "get", "pods", "-l", selector];
    let pods = world.kubectl.json(&pods)?;
    for pod in pods["items"].as_array().into_iter().flatten() {
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        // This test does not cover the cluster's service discovery.
        let address = pod["status"]["podIP"]
            .as_str()
            .context("a pod without an address")?;
        let address: SocketAddr = format!("{address}:{port}").parse()?;
        if TcpStream::connect_timeout(&address, Duration::from_secs(5)).is_err() {
            return Ok(None);
        }
        let labels = json!({ "namespace": namespace, "pod": pod["metadata"]["name"] });
        targets.push(json!({ "targets": [address.to_string()], "labels": labels }));
    }
    Ok(Some(targets))
}

/// The token of somebody who may read the metrics and nothing else.
fn token(world: &World) -> Result<String> {
    let namespace = &world.namespace;
    world.run(&["create", "serviceaccount", "reader"])?;
    // It is of no use when the namespace is gone.
    let bound = world.kubectl.try_apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": format!("{namespace}-metrics-reader") },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": format!("{}-metrics-reader", helm::RELEASE),
        },
        "subjects": [{ "kind": "ServiceAccount", "name": "reader", "namespace": namespace }],
    }))?;
    bound.map_err(anyhow::Error::msg)?;
    Ok(world.run(&["create", "token", "reader"])?.trim().to_owned())
}

/// Asks one address several times, each time with a path and a header, and prints the codes.
const ASK: &str = "
import ssl, sys, urllib.error, urllib.request
insecure = ssl._create_unverified_context()
for url, header in zip(sys.argv[1::2], sys.argv[2::2]):
    request = urllib.request.Request(url, headers={'Authorization': header} if header else {})
    try:
        print(urllib.request.urlopen(request, context=insecure, timeout=5).status)
    except urllib.error.HTTPError as error:
        print(error.code)
    except OSError:
        print('closed')
";

/// The metrics are for those whom the API server lets read them, the page for others, and neither is served in clear.
fn only_those_who_may_read(clients: &Clients<'_>, targets: &Targets, token: &str) -> Result<()> {
    let address = targets.operator[0]["targets"][0].as_str();
    let address = address.context("no address")?;
    let [metrics, page] = ["metrics", "page"].map(|path| format!("https://{address}/{path}"));
    let clear = format!("http://{}/metrics", address.replace(":8443", ":8080"));
    let bearer = format!("Bearer {token}");
    let codes = clients.output(&[
        "python3",
        "-c",
        ASK,
        &metrics,
        &bearer,
        &metrics,
        "",
        &metrics,
        "Bearer nobody",
        &page,
        &bearer,
        &clear,
        &bearer,
    ])?;
    let codes: Vec<&str> = codes.split_whitespace().collect();
    // A policy that is enforced closes the port to all but kubelets.
    let clear = ["404", "closed"];
    ensure!(
        codes.len() == 5 && codes[..4] == ["200", "401", "401", "403"] && clear.contains(&codes[4]),
        "{codes:?}"
    );
    Ok(())
}

/// Every query of the dashboard and of the alerts, with Grafana's variables in place.
fn queries() -> Result<BTreeSet<String>> {
    let read = |name: &str| fs::read_to_string(helm::chart().join("files").join(name));
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")?)?;
    let alerts: Value = serde_yaml::from_str(&read("alerts.yaml")?)?;
    let mut queries = BTreeSet::new();
    for panel in dashboard["panels"].as_array().into_iter().flatten() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"]
                .as_str()
                .context("a target without a query")?;
            queries.insert(
                query
                    .replace("$namespace", ".*")
                    .replace("$ensemble", ".*")
                    .replace("$__rate_interval", "1m"),
            );
        }
    }
    for group in alerts["groups"].as_array().into_iter().flatten() {
        for rule in group["rules"].as_array().into_iter().flatten() {
            let query = rule["expr"].as_str().context("an alert without a query")?;
            queries.insert(query.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    Ok(queries)
}

fn answered(prometheus: &Prometheus, world: &World, queries: &BTreeSet<String>) -> Result<()> {
    let metadata = prometheus
        .ask("metadata", None)
        .map_err(anyhow::Error::msg)?;
    let metadata = metadata.as_object().context("no metadata")?;
    let mut wrong = Vec::new();
    for query in queries {
        let found = prometheus.find(query).map_err(anyhow::Error::msg)?;
        let is_expected_empty = EMPTY.iter().any(|(part, _)| query.contains(part));
        if found.is_empty() && !is_expected_empty {
            wrong.push(format!("nothing is found by {query}"));
        }
        for name in metrics(query) {
            let family = ["_total", "_bucket", "_count", "_sum", "_info"]
                .iter()
                .find_map(|part| name.strip_suffix(part));
            let known = |name: &str| metadata.contains_key(name);
            if !known(&name) && !family.is_some_and(known) {
                wrong.push(format!("there is no metric {name}, in {query}"));
            }
        }
    }
    for (part, reason) in EMPTY {
        let used = queries.iter().any(|query| query.contains(part));
        ensure!(used, "no query contains {part:?} ({reason})");
    }
    // Wrong values would pass for answers.
    let namespace = &world.namespace;
    for (metric, labels, least) in [
        (
            "ensemble_condition",
            "type=\"Available\", status=\"true\", ",
            1,
        ),
        ("ensemble_phase", "phase=\"Ready\", ", 1),
        ("ensemble_serving_members", "", 3),
        ("ensemble_wanted_members", "", 3),
        ("ensemble_member_restarts_total", "", 3),
        ("ensemble_epoch", "", 1),
        ("ensemble_leader_server_id", "", 1),
        ("election_has_leader", "name=\"one\", ", 1),
    ] {
        let query = format!("bellwether_{metric}{{{labels}namespace=\"{namespace}\"}} >= {least}");
        if prometheus
            .find(&query)
            .map_err(anyhow::Error::msg)?
            .is_empty()
        {
            wrong.push(format!("it is not so that {query}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The names of metrics in a query: words before a selector, and words with a prefix that metrics have.
fn metrics(query: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut rest = query;
    while let Some(start) = rest.find(is_word) {
        let word = &rest[start..];
        let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        let own = ["bellwether_", "process_", "jvm_"];
        if after.starts_with(['{', '[']) || own.iter().any(|prefix| word.starts_with(prefix)) {
            names.insert(word.to_owned());
        }
        rest = after;
    }
    names
}

/// No series is left of an ensemble that was deleted.
fn goes_away(prometheus: &Prometheus, world: &World) -> Result<()> {
    let of = |name: &str| {
        format!(
            "count({{__name__=~\"{name}\", namespace=\"{}\"}})",
            world.namespace
        )
    };
    let series = of("bellwether_ensemble_.*");
    if prometheus
        .find(&series)
        .map_err(anyhow::Error::msg)?
        .is_empty()
    {
        bail!("there were none");
    }
    world.run(&["delete", "zke/main", "--wait=false"])?;
    until("its series are gone", PATIENCE, || {
        match prometheus.find(&series)?.first() {
            None => Ok(()),
            Some(found) => Err(found["value"].to_string()),
        }
    })
}
