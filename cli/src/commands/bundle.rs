//! `bellwether support-bundle`: one file with everything that a helper needs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bellwether_api::{GROUP, VERSION, labels};
use bellwether_ensemble::desired::config::CLIENT_PORT;
use bellwether_ensemble::desired::stateful_set::PROBES_CONTAINER;
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    ApiResource, AttachParams, DynamicObject, GroupVersionKind, ListParams, LogParams,
};
use kube::{Api, ResourceExt};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::cluster::{Cluster, Target, unanswered};
use super::complain;

/// The most of one log, in lines and in bytes: the newest.
const LOG_LINES: i64 = 5000;
const LOG_BYTES: i64 = 5 << 20;
/// The most of one answer of a server, in bytes.
const ANSWER: u64 = 1 << 20;
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The four-letter words that each server is asked. None of them changes anything.
const WORDS: [&str; 4] = ["srvr", "mntr", "conf", "isro"];
/// What is put in the place of a value that may be a secret.
const LEFT_OUT: &str = "(left out)";
/// kubectl's copy of the manifest that it applied last: the whole object once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What to collect.
#[derive(Debug, Args)]
pub(crate) struct Bundle {
    /// The file to write. Default: bellwether-support-NAMESPACE.tar.gz.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The namespace of the operator.
    #[arg(long, default_value = "bellwether-system")]
    operator_namespace: String,
    #[command(flatten)]
    target: Target,
}

/// What was collected, by its name in the bundle.
#[derive(Default)]
struct Collected {
    files: BTreeMap<String, Vec<u8>>,
    /// What could not be had, and why.
    missing: Vec<String>,
}

impl Collected {
    fn add(&mut self, name: String, content: anyhow::Result<String>) {
        match content {
            Ok(text) => {
                self.files.insert(name, text.into_bytes());
            }
            Err(error) => self.missing.push(format!("{name}: {error:#}")),
        }
    }
}

/// Writes the bundle. It lists what could not be collected, and contains all the rest.
///
/// # Errors
/// When there is no cluster, or the file cannot be written.
pub(crate) async fn bundle(arguments: &Bundle) -> anyhow::Result<ExitCode> {
    let cluster = arguments.target.open().await?;
    let mut collected = Collected::default();
    let version = cluster.client.apiserver_version().await;
    let version = version.map_err(unanswered)?;
    let about = format!(
        "bellwether {}\nKubernetes {}\nnamespace {}\n",
        env!("CARGO_PKG_VERSION"),
        version.git_version,
        cluster.namespace
    );
    collected.add("about.txt".to_owned(), Ok(about));
    let names = objects(&cluster, &mut collected).await;
    events(&cluster, &names, &mut collected).await;
    members(&cluster, &mut collected).await;
    operator(&cluster, &arguments.operator_namespace, &mut collected).await;
    let missing = collected.missing.join("\n");
    if !missing.is_empty() {
        complain(&format!("could not be had:\n{missing}"));
        collected
            .files
            .insert("missing.txt".to_owned(), missing.into_bytes());
    }
    let folder = format!("bellwether-support-{}", cluster.namespace);
    let path = arguments
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    pack(&folder, &collected.files, file)
        .with_context(|| format!("cannot write {}", path.display()))?;
    writeln!(
        io::stdout(),
        "{} holds {} files. Look at them before you send it: Secrets and values of environment \
         variables are left out, but names, addresses and logs are not.",
        path.display(),
        collected.files.len()
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Kinds and whether only those are meant that the operator owns. Secrets are not among them.
const KINDS: [(&str, &str, &str, bool); 10] = [
    (GROUP, VERSION, "ZooKeeperEnsemble", false),
    (GROUP, VERSION, "LeaderElection", false),
    ("apps", "v1", "StatefulSet", true),
    ("policy", "v1", "PodDisruptionBudget", true),
    ("networking.k8s.io", "v1", "NetworkPolicy", true),
    ("", "v1", "Pod", true),
    ("", "v1", "PersistentVolumeClaim", true),
    ("", "v1", "ConfigMap", true),
    ("", "v1", "Service", true),
    ("coordination.k8s.io", "v1", "Lease", true),
];

fn kind(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn owned() -> ListParams {
    let label = format!("{}={}", labels::MANAGED_BY, labels::MANAGED_BY_VALUE);
    ListParams::default().labels(&label)
}

/// Collects the objects of the namespace; returns the names of ensembles and elections.
async fn objects(cluster: &Cluster, collected: &mut Collected) -> Vec<String> {
    let mut names = Vec::new();
    for (group, version, word, only_owned) in KINDS {
        let api: Api<DynamicObject> = Api::namespaced_with(
            cluster.client.clone(),
            &cluster.namespace,
            &kind(group, version, word),
        );
        let params = if only_owned {
            owned()
        } else {
            ListParams::default()
        };
        let listed = api.list(&params).await;
        let text = listed.map_err(anyhow::Error::from).and_then(|list| {
            if !only_owned {
                names.extend(list.items.iter().map(ResourceExt::name_any));
            }
            yaml(list.items.iter().map(serde_json::to_value))
        });
        collected.add(format!("objects/{word}.yaml"), text);
    }
    names
}

fn yaml(objects: impl Iterator<Item = Result<Value, serde_json::Error>>) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        let mut object = object?;
        clean(&mut object);
        text.push_str("---\n");
        text.push_str(&serde_yaml::to_string(&object)?);
    }
    Ok(text)
}

/// Takes out what may be a secret, and what only makes an object long.
fn clean(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("managedFields");
            fields.remove(LAST_APPLIED);
            for (key, value) in fields.iter_mut() {
                if key == "env" {
                    for variable in value.as_array_mut().into_iter().flatten() {
                        if let Some(value) = variable.get_mut("value") {
                            *value = Value::from(LEFT_OUT);
                        }
                    }
                }
                clean(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        _ => {}
    }
}

/// The events of the objects that these names begin.
async fn events(cluster: &Cluster, names: &[String], collected: &mut Collected) {
    let api: Api<DynamicObject> = Api::namespaced_with(
        cluster.client.clone(),
        &cluster.namespace,
        &kind("", "v1", "Event"),
    );
    let listed = api.list(&ListParams::default()).await;
    let text = listed.map_err(anyhow::Error::from).and_then(|list| {
        let about = |event: &&DynamicObject| {
            let name = event.data["involvedObject"]["name"]
                .as_str()
                .unwrap_or_default();
            is_of(name, names)
        };
        yaml(list.items.iter().filter(about).map(serde_json::to_value))
    });
    collected.add("objects/Event.yaml".to_owned(), text);
}

/// Whether an object of this name belongs to one of these: `main-0` and `data-main-0` to `main`.
fn is_of(object: &str, names: &[String]) -> bool {
    names.iter().any(|name| {
        let own = ["", "data-", "datalog-"]
            .iter()
            .find_map(|prefix| object.strip_prefix(prefix)?.strip_prefix(name.as_str()));
        own.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
    })
}

/// The logs of the members, and their own reports.
async fn members(cluster: &Cluster, collected: &mut Collected) {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let pods = match api.list(&owned()).await {
        Ok(pods) => pods.items,
        Err(error) => {
            collected.missing.push(format!("members: {error}"));
            return;
        }
    };
    for pod in &pods {
        let name = pod.name_any();
        logs(&api, pod, &format!("members/{name}"), collected).await;
        let volumes = in_time(volumes(&api, &name)).await;
        collected.add(format!("members/{name}/volumes.txt"), volumes);
        for word in WORDS {
            let answer = in_time(ask(&api, &name, word)).await;
            collected.add(format!("members/{name}/{word}.txt"), answer);
        }
    }
}

async fn in_time(answer: impl Future<Output = anyhow::Result<String>>) -> anyhow::Result<String> {
    let answer = tokio::time::timeout(PATIENCE, answer).await;
    answer.with_context(|| format!("no answer within {} s", PATIENCE.as_secs()))?
}

/// What the member program says of the volumes.
async fn volumes(api: &Api<Pod>, pod: &str) -> anyhow::Result<String> {
    let container = AttachParams::default()
        .container(PROBES_CONTAINER)
        .stderr(false);
    let mut process = api
        .exec(pod, ["/bellwether-member", "volumes"], &container)
        .await?;
    let said = process.stdout().context("the program says nothing")?;
    let mut bytes = Vec::new();
    said.take(ANSWER).read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Asks a member's server for what a four-letter word stands for, through the API server.
async fn ask(api: &Api<Pod>, pod: &str, word: &str) -> anyhow::Result<String> {
    let mut forward = api.portforward(pod, &[CLIENT_PORT]).await?;
    let stream = forward.take_stream(CLIENT_PORT);
    let mut stream = stream.context("the port is not forwarded")?;
    stream.write_all(word.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.take(ANSWER).read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The logs of each container, also those of the run before, if there was one.
async fn logs(api: &Api<Pod>, pod: &Pod, folder: &str, collected: &mut Collected) {
    let status = pod.status.as_ref();
    let states = status.map(|s| {
        s.init_container_statuses
            .iter()
            .chain(&s.container_statuses)
    });
    for state in states.into_iter().flatten().flatten() {
        let runs = if state.restart_count > 0 {
            &[false, true][..]
        } else {
            &[false]
        };
        for previous in runs {
            let parameters = LogParams {
                container: Some(state.name.clone()),
                previous: *previous,
                tail_lines: Some(LOG_LINES),
                limit_bytes: Some(LOG_BYTES),
                timestamps: true,
                ..LogParams::default()
            };
            let text = api.logs(&pod.name_any(), &parameters).await;
            let which = if *previous { ".previous" } else { "" };
            let file = format!("{folder}/{}{which}.log", state.name);
            collected.add(file, text.map_err(anyhow::Error::from));
        }
    }
}

/// The operator's Deployments, pods and logs.
async fn operator(cluster: &Cluster, namespace: &str, collected: &mut Collected) {
    let label = ListParams::default().labels("app.kubernetes.io/component=operator");
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    match api.list(&label).await {
        Ok(pods) => {
            if pods.items.is_empty() {
                let hint = "say with --operator-namespace where it is";
                collected
                    .missing
                    .push(format!("operator: no pod in {namespace}; {hint}"));
            }
            let text = yaml(pods.items.iter().map(serde_json::to_value));
            collected.add("operator/Pod.yaml".to_owned(), text);
            for pod in &pods.items {
                let folder = format!("operator/{}", pod.name_any());
                logs(&api, pod, &folder, collected).await;
            }
        }
        Err(error) => collected.missing.push(format!("operator: {error}")),
    }
}

/// Writes the files into one compressed archive, below a folder.
fn pack(
    folder: &str,
    files: &BTreeMap<String, Vec<u8>>,
    out: impl io::Write,
) -> anyhow::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(u64::try_from(content.len())?);
        header.set_mode(0o644);
        archive.append_data(&mut header, format!("{folder}/{name}"), content.as_slice())?;
    }
    archive.into_inner()?.finish()?.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Read as _;

    #[test]
    fn no_value_of_the_environment_and_no_copy_of_a_manifest_is_left() {
        let mut pod = json!({
            "metadata": {
                "name": "main-0",
                "managedFields": [{ "manager": "x" }],
                "annotations": { LAST_APPLIED: "hunter2", "kept": "yes" },
            },
            "spec": { "containers": [{ "name": "a", "env": [
                { "name": "PASSWORD", "value": "hunter2" },
                { "name": "REFERENCE", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } },
            ] }], "initContainers": [{ "name": "b", "env": [{ "name": "P", "value": "hunter2" }] }] },
        });
        clean(&mut pod);
        let text = pod.to_string();
        assert!(
            !text.contains("hunter2") && !text.contains("managedFields"),
            "{text}"
        );
        assert!(
            text.contains("PASSWORD") && text.contains("secretKeyRef") && text.contains("kept")
        );
        assert!(KINDS.iter().all(|(_, _, kind, _)| *kind != "Secret"));
    }

    #[test]
    fn events_are_those_of_the_objects() {
        let names = ["main".to_owned()];
        for (name, ours) in [
            ("main", true),
            ("main-0", true),
            ("main.17a", true),
            ("data-main-0", true),
            ("datalog-main-observer-1", true),
            ("mainframe-0", false),
            ("other", false),
        ] {
            assert_eq!(is_of(name, &names), ours, "{name}");
        }
    }

    #[test]
    fn the_archive_can_be_read_again() {
        let files = BTreeMap::from([("a/b.txt".to_owned(), b"text".to_vec())]);
        let mut packed = Vec::new();
        pack("folder", &files, &mut packed).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let mut entries = archive.entries().unwrap();
        let mut entry = entries.next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap().to_str(), Some("folder/a/b.txt"));
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        assert!(entries.next().is_none());
    }
}
