//! `bellwether lint` compared with the API server: the same manifests are refused, for the same field.

use std::collections::BTreeSet;
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

/// Asks the API server without changing anything.
fn ask(world: &World, verb: &[&str], file: &Path) -> Result<Output> {
    let file = file.to_str().context("a path that is no text")?;
    let mut all = vec!["-n", &world.namespace];
    all.extend(verb);
    all.extend(["--dry-run=server", "--validate=strict", "-f", file]);
    world.kubectl.output(&all)
}

/// Whether the API server's refusal names this field.
fn names(refusal: &str, field: &str) -> bool {
    match field {
        "kind" | "apiVersion" => refusal.contains("no matches for kind"),
        // A rule of the whole object, which the API server names by no field.
        "metadata.name" if refusal.contains("<nil>: Invalid value: \"object\"") => {
            refusal.contains("the name of an ensemble")
        }
        _ => {
            let told = [format!(" {field}: "), format!("unknown field \"{field}\"")];
            told.iter().any(|words| refusal.contains(words))
        }
    }
}

pub(crate) fn lint_refuses_what_the_api_server_refuses_at_the_same_field(
    world: &World,
) -> Result<()> {
    let linter = Linter::new()?;
    let mut differences = Vec::new();
    let (mut refused, mut only_here) = (0, Vec::new());
    for file in manifests("lint/tests/bad")? {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".old.yaml") {
            continue;
        }
        let before = file.with_extension("old.yaml");
        let against = match fs::read_to_string(&before) {
            Ok(text) => Existing::parse(&text).map_err(|f| anyhow::anyhow!("{name}: {f}"))?,
            Err(_) => Existing::default(),
        };
        let text = fs::read_to_string(&file)?;
        let report = linter.check(&text, &against);
        let errors = report
            .findings
            .iter()
            .filter(|f| f.severity == Severity::Error);
        let fields: BTreeSet<&str> = errors.map(|f| f.field.as_str()).collect();
        ensure!(!fields.is_empty(), "{name}: lint finds nothing");
        let apply = ["apply", "--server-side"];
        let mut outputs = vec![ask(world, &apply, &file)?];
        if before.exists() {
            let before = before.to_str().context("a path that is no text")?;
            world.run(&["apply", "--server-side", "-f", before])?;
            outputs = vec![ask(world, &apply, &file)?];
        } else {
            // Server-side apply words some refusals differently.
            outputs.push(ask(world, &["create"], &file)?);
        }
        let taken = outputs
            .iter()
            .filter(|output| output.status.success())
            .count();
        let refusal = outputs.last().map(|o| String::from_utf8_lossy(&o.stderr));
        let refusal = refusal.unwrap_or_default();
        if text.contains("# refused by: api\n") {
            refused += 1;
            if taken > 0 {
                differences.push(format!("{name}: the API server takes it; lint: {fields:?}"));
            }
            for field in fields.iter().filter(|field| !names(&refusal, field)) {
                differences.push(format!(
                    "{name}: lint names {field}, the API server: {refusal}"
                ));
            }
        } else {
            if taken != outputs.len() {
                differences.push(format!("{name}: the API server refuses it too: {refusal}"));
            }
            only_here.push(name.into_owned());
        }
    }
    let good = root()
        .join("target")
        .join(format!("{}.yaml", world.namespace));
    let mut texts = documentation()?;
    for file in manifests("lint/tests/good")? {
        texts.push(fs::read_to_string(file)?);
    }
    for text in &texts {
        let report = linter.check(text, &Existing::default());
        ensure!(!report.checked.is_empty(), "nothing to check in {text}");
        for finding in report.findings {
            differences.push(format!("lint refuses a good manifest: {finding}\n{text}"));
        }
        fs::write(&good, text)?;
        for verb in [&["apply", "--server-side"][..], &["create"]] {
            let output = ask(world, verb, &good)?;
            if !output.status.success() {
                let refusal = String::from_utf8_lossy(&output.stderr);
                differences.push(format!("the API server refuses a good manifest: {refusal}"));
            }
        }
    }
    let _ = fs::remove_file(&good);
    eprintln!(
        "refused by both: {refused}; only by lint or the operator: {only_here:?}; taken by both: {}",
        texts.len()
    );
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    ensure!(refused > 60 && texts.len() > 4);
    Ok(())
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
