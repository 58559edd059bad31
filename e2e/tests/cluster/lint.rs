//! `bellwether lint` compared with the API server: the same manifests are refused, for the same field.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result, ensure};
use bellwether_e2e::world::World;
use bellwether_lint::{Existing, Linter, Severity};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The manifests of a folder by name.
fn manifests(folder: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(root().join(folder))?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    ensure!(!paths.is_empty(), "{folder} is empty");
    Ok(paths)
}

/// Asks the API server about these files at once, without changing anything.
fn ask(world: &World, verb: &[&str], files: &[&Path]) -> Result<Output> {
    let mut all = vec!["-n", &world.namespace];
    all.extend(verb);
    all.extend(["--dry-run=server", "--validate=strict"]);
    for file in files {
        all.extend(["-f", file.to_str().context("a path that is no text")?]);
    }
    world.kubectl.output(&all)
}

/// What was said of each file, by its name: kubectl goes on after a refusal, and names the file in it.
fn by_file<'a>(output: &Output, files: &[&'a Path]) -> BTreeMap<&'a Path, String> {
    let mut said: BTreeMap<&Path, String> = BTreeMap::new();
    let mut last = None;
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        let named = files
            .iter()
            .find(|file| line.contains(&*file.to_string_lossy()));
        last = named.or(last);
        if let Some(file) = last {
            let text = said.entry(file).or_default();
            text.push_str(line);
            text.push('\n');
        }
    }
    said
}

const APPLY: &[&str] = &["apply", "--server-side"];
const CREATE: &[&str] = &["create"];

/// Whether the API server's refusal names this field.
fn names(refusal: &str, field: &str) -> bool {
    match field {
        "kind" | "apiVersion" => refusal.contains("no matches for kind"),
        // A rule of the whole object, which the API server names by no field.
        "metadata.name" if refusal.contains("<nil>: Invalid value: \"object\"") => {
            refusal.contains("the name of an ensemble")
        }
        _ => {
            let told = [
                format!(" {field}: "),
                format!("[{field}: "),
                format!("unknown field \"{field}\""),
            ];
            told.iter().any(|words| refusal.contains(words))
        }
    }
}

pub(crate) fn lint_refuses_what_the_api_server_refuses_at_the_same_field(
    world: &World,
) -> Result<()> {
    let linter = Linter::new()?;
    let mut differences = Vec::new();
    // Manifests with the fields that lint refuses.
    let (mut refused, mut only_here) = (Vec::new(), Vec::new());
    let files = manifests("lint/tests/bad")?;
    for file in files.iter().filter(|file| !is_before(file)) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let before = file.with_extension("old.yaml");
        let against = match fs::read_to_string(&before) {
            Ok(text) => Existing::parse(&text).map_err(|f| anyhow::anyhow!("{name}: {f}"))?,
            Err(_) => Existing::default(),
        };
        let text = fs::read_to_string(file)?;
        let report = linter.check(&text, &against);
        let errors = report.findings.iter();
        let errors = errors.filter(|f| f.severity == Severity::Error);
        let fields: BTreeSet<String> = errors.map(|f| f.field.clone()).collect();
        ensure!(!fields.is_empty(), "{name}: lint finds nothing");
        if !text.contains("# refused by: api\n") {
            only_here.push(file.as_path());
        } else if before.exists() {
            let old = before.to_str().context("a path that is no text")?;
            world.run(&["apply", "--server-side", "-f", old])?;
            let output = ask(world, APPLY, &[file])?;
            let refusal = String::from_utf8_lossy(&output.stderr);
            compare(&name, &fields, Some(&refusal), &mut differences);
        } else {
            refused.push((file.as_path(), fields));
        }
    }
    // Server-side apply words some refusals differently, so only that it refuses them is compared.
    let paths: Vec<&Path> = refused.iter().map(|(file, _)| *file).collect();
    let said = ask(world, CREATE, &paths)?;
    let said = by_file(&said, &paths);
    for (file, fields) in &refused {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let refusal = said.get(file).map(String::as_str);
        compare(&name, fields, refusal, &mut differences);
    }
    let taken = ask(world, APPLY, &paths)?.stdout;
    if !taken.is_empty() {
        let taken = String::from_utf8_lossy(&taken);
        differences.push(format!(
            "the API server takes by apply what it refuses by create: {taken}"
        ));
    }

    let good = tempfile::tempdir()?;
    let mut texts = documentation()?;
    for file in manifests("lint/tests/good")? {
        texts.push(fs::read_to_string(file)?);
    }
    for (number, text) in texts.iter().enumerate() {
        let report = linter.check(text, &Existing::default());
        ensure!(!report.checked.is_empty(), "nothing to check in {text}");
        for finding in report.findings {
            differences.push(format!("lint refuses a good manifest: {finding}\n{text}"));
        }
        fs::write(good.path().join(format!("{number}.yaml")), text)?;
    }
    for (what, files) in [
        ("a good manifest", &[good.path()][..]),
        ("what only lint refuses", &only_here),
    ] {
        for verb in [APPLY, CREATE] {
            let output = ask(world, verb, files)?;
            if !output.status.success() {
                let refusal = String::from_utf8_lossy(&output.stderr);
                differences.push(format!("the API server refuses {what}: {refusal}"));
            }
        }
    }
    let only_here = only_here.iter().filter_map(|file| file.file_name());
    eprintln!(
        "refused by both: {}; only by lint or the operator: {:?}; taken by both: {}",
        refused.len(),
        only_here.collect::<Vec<_>>(),
        texts.len()
    );
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    ensure!(refused.len() > 60 && texts.len() > 4);
    Ok(())
}

/// Whether this is what the API server has before the manifest of the same name.
fn is_before(file: &Path) -> bool {
    file.to_string_lossy().ends_with(".old.yaml")
}

/// Compares the fields that lint refuses with what the API server says; `None` if it takes the manifest.
fn compare(
    name: &str,
    fields: &BTreeSet<String>,
    refusal: Option<&str>,
    differences: &mut Vec<String>,
) {
    let Some(refusal) = refusal else {
        differences.push(format!("{name}: the API server takes it; lint: {fields:?}"));
        return;
    };
    for field in fields.iter().filter(|field| !names(refusal, field)) {
        differences.push(format!(
            "{name}: lint names {field}, the API server: {refusal}"
        ));
    }
}

/// The complete manifests that the documentation shows.
fn documentation() -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut pages = vec![root().join("README.md")];
    pages.extend(
        manifests("docs")?
            .into_iter()
            .filter(|p| p.extension().is_some_and(|e| e == "md")),
    );
    for page in pages {
        let text = fs::read_to_string(page)?;
        let blocks = text.split("```yaml\n").skip(1);
        let blocks = blocks.filter_map(|block| Some(block.split_once("```")?.0));
        let complete = blocks.filter(|b| {
            b.contains("\nkind: ZooKeeperEnsemble") || b.contains("\nkind: LeaderElection")
        });
        found.extend(complete.map(str::to_owned));
    }
    Ok(found)
}
