//! What the chart renders, with every value as it may be, is what a real API server takes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use bellwether_e2e::helm::{self, helm};
use bellwether_e2e::world::{OPERATOR_NAMESPACE, World};
use serde_json::{Value, json};

/// A value of the chart: its path, such as `image.tag`, and its schema.
type Leaf = (String, Value);

/// Renders the chart with each value changed, from its defaults and with everything switched on. Each change must
/// show; all that came of it is then sent to the API server.
pub(crate) fn every_value_shows_and_the_api_server_takes_what_is_rendered(
    world: &World,
) -> Result<()> {
    let read = |name: &str| fs::read_to_string(helm::chart().join(name)).context(name.to_owned());
    let schema: Value = serde_json::from_str(&read("values.schema.json")?)?;
    let defaults: Value = serde_yaml::from_str(&read("values.yaml")?)?;
    let leaves = leaves(&schema, "");
    let mut described: BTreeSet<&str> = leaves.iter().map(|(path, _)| path.as_str()).collect();
    // Helm itself hands it to charts that contain this one.
    described.remove("global");
    let mut given = BTreeSet::new();
    paths(&defaults, &schema, "", &mut given);
    let given: BTreeSet<&str> = given.iter().map(String::as_str).collect();
    ensure!(
        described == given,
        "only in values.schema.json or only in values.yaml: {:?}",
        described.symmetric_difference(&given)
    );

    let chart = helm::chart();
    helm(&["lint", "--strict", &chart.to_string_lossy()])?;

    let default = |path: &str| {
        path.split('.')
            .fold(&defaults, |value, key| &value[key])
            .clone()
    };
    // The definitions are large and change with their own values only.
    let plain = BTreeMap::from([("crds.install".to_owned(), json!(false))]);
    let mut all_on = plain.clone();
    for (path, schema) in &leaves {
        if schema["type"] == "boolean" && path != "crds.install" {
            all_on.insert(path.clone(), json!(true));
        }
    }
    let mut unchanged = BTreeMap::new();
    for base in [&plain, &all_on] {
        let mut with_definitions = base.clone();
        with_definitions.insert("crds.install".to_owned(), json!(true));
        for base in [base, &with_definitions] {
            unchanged.insert(format!("{base:?}"), render(base)?);
        }
    }
    let mut documents: BTreeSet<String> = unchanged.values().flatten().cloned().collect();
    let mut unseen = Vec::new();
    for (path, schema) in leaves.iter().filter(|(path, _)| path != "global") {
        for changed in alternatives(path, schema, &default(path))? {
            let mut shows = false;
            for base in [&plain, &all_on] {
                let mut base = base.clone();
                if path.starts_with("crds.") {
                    base.insert("crds.install".to_owned(), json!(true));
                }
                let before = unchanged.get(&format!("{base:?}"));
                base.insert(path.clone(), changed.clone());
                let after = render(&base)?;
                shows |= before != Some(&after);
                documents.extend(after);
            }
            if !shows {
                unseen.push(format!("{path}={changed}"));
            }
        }
    }
    ensure!(unseen.is_empty(), "values that change nothing: {unseen:?}");

    // The cluster has no definitions of the Prometheus operator.
    let is_foreign = |text: &String| text.contains("\napiVersion: monitoring.coreos.com/");
    let (foreign, ours): (Vec<String>, Vec<String>) = documents.into_iter().partition(is_foreign);
    ensure!(foreign.len() >= 3, "no monitors or rules were rendered");
    for text in &foreign {
        let object: Value = serde_yaml::from_str(text)?;
        ensure!(object["spec"].is_object(), "no spec: {text}");
    }
    eprintln!("{} different objects are sent", ours.len());
    let text = ours.join("\n---\n");
    dry_run(world, &["-f", "-"], &text)
}

pub(crate) fn values_that_cannot_be_are_refused(_: &World) -> Result<()> {
    for (name, value, words) in [
        ("nonsense", json!(1), "nonsense"),
        ("watch.namespaces", json!("shop"), "namespaces"),
        ("watch.namespaces", json!([""]), "namespaces"),
        ("replicas", json!(0), "replicas"),
        ("traces.endpoint", json!("collector:4318"), "endpoint"),
        ("traces.sampleRatio", json!(2), "sampleRatio"),
        ("image.digest", json!("sha256:0"), "digest"),
        ("connections.allowedHosts", json!("zk"), "allowedHosts"),
        ("connections.allowedHosts", json!(["a b"]), "allowedHosts"),
        ("projections.labelKeys", json!([""]), "labelKeys"),
        ("networkPolicy.apiServerPorts", json!([]), "apiServerPorts"),
    ] {
        match render(&BTreeMap::from([(name.to_owned(), value.clone())])) {
            Ok(_) => bail!("{name}={value} was rendered"),
            Err(error) => ensure!(error.to_string().contains(words), "{error}"),
        }
    }
    Ok(())
}

/// The plain manifest is taken as it is, and its image is set at one place.
pub(crate) fn the_plain_manifest_is_taken_and_its_image_is_set_at_one_place(
    world: &World,
) -> Result<()> {
    let root = helm::chart().join("../..");
    let deploy = root.join("deploy");
    dry_run(world, &["-k", &deploy.to_string_lossy()], "")?;

    let copy = std::env::temp_dir().join(&world.namespace);
    for part in ["deploy", "crds"] {
        fs::create_dir_all(copy.join(part))?;
        for file in fs::read_dir(root.join(part))? {
            let file = file?;
            fs::copy(file.path(), copy.join(part).join(file.file_name()))?;
        }
    }
    let file = copy.join("deploy/kustomization.yaml");
    let tag = "newTag: 0.1.0";
    let text = fs::read_to_string(&file)?;
    ensure!(text.contains(tag), "deploy sets no tag: {text}");
    fs::write(&file, text.replace(tag, "newTag: 9.9.9"))?;
    let built = world
        .kubectl
        .run(&["kustomize", &file.with_file_name("").to_string_lossy()]);
    fs::remove_dir_all(&copy)?;
    let built = built?;
    let images = built
        .matches("docker.io/bellwether/bellwether:9.9.9")
        .count();
    let old = built
        .matches("docker.io/bellwether/bellwether:0.1.0")
        .count();
    ensure!((images, old) == (2, 0), "{images} new images, {old} old");
    Ok(())
}

/// Every value that a schema describes. Objects with properties are not values but groups of them.
fn leaves(schema: &Value, prefix: &str) -> Vec<Leaf> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties
        .flat_map(|(key, schema)| {
            let path = format!("{prefix}{key}");
            if schema["properties"].is_object() {
                leaves(schema, &format!("{path}."))
            } else {
                vec![(path, schema.clone())]
            }
        })
        .collect()
}

/// The paths of the values that values.yaml gives, as deep as the schema knows groups.
fn paths(values: &Value, schema: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    for (key, value) in values.as_object().into_iter().flatten() {
        let schema = &schema["properties"][key];
        let path = format!("{prefix}{key}");
        if schema["properties"].is_object() {
            paths(value, schema, &format!("{path}."), found);
        } else {
            found.insert(path);
        }
    }
}

/// What a value may be instead of its default.
fn alternatives(path: &str, schema: &Value, default: &Value) -> Result<Vec<Value>> {
    let list = |key: &str| schema[key].as_array().cloned().unwrap_or_default();
    let mut found = list("enum");
    found.extend(list("examples"));
    if schema["type"] == "boolean" {
        found.extend([json!(true), json!(false)]);
    }
    found.retain(|value| value != default);
    ensure!(
        !found.is_empty(),
        "values.schema.json has neither enum nor examples for {path}: give one that is not the default"
    );
    Ok(found)
}

/// The objects that the chart renders with these values.
fn render(values: &BTreeMap<String, Value>) -> Result<BTreeSet<String>> {
    let chart = helm::chart();
    let mut words = vec![
        "template".to_owned(),
        helm::RELEASE.to_owned(),
        chart.to_string_lossy().into_owned(),
        "--namespace".to_owned(),
        OPERATOR_NAMESPACE.to_owned(),
    ];
    for (name, value) in values {
        words.extend(["--set-json".to_owned(), format!("{name}={value}")]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let text = helm(&words)?;
    let documents = text.split("\n---\n");
    Ok(documents
        .filter(|text| text.contains("apiVersion:"))
        .map(|text| format!("\n{}", text.trim_start_matches("---\n").trim()))
        .collect())
}

/// Has the API server check objects without keeping them.
fn dry_run(world: &World, from: &[&str], input: &str) -> Result<()> {
    let mut arguments = vec!["apply", "--server-side", "--force-conflicts"];
    arguments.extend(["--dry-run=server", "--field-manager=chart-test"]);
    arguments.extend(from);
    let output = world.kubectl.feed(&arguments, input)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "refused: {said}");
    // Such as an unknown field, which the API server leaves out.
    ensure!(!said.contains("Warning"), "warned: {said}");
    Ok(())
}
