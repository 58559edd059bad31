//! `bellwether plan`: the steps of a change, before it is applied.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use bellwether_api::ZooKeeperEnsemble;
use bellwether_api::ensemble::Phase;
use bellwether_ensemble::forecast::{Event, Forecast, forecast};
use bellwether_ensemble::validate::{Context, invalid_message};
use bellwether_ensemble::{ServerId, ValidEnsemble, validate};
use bellwether_lint::{Existing, Linter, Severity, parse_objects};
use clap::Args;
use kube::{Api, ResourceExt};

use super::cluster::{Target, unanswered};
use super::{FOUND, complain, name, read};

/// What to plan.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// A file with the ensembles as they should be, or - for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The ensembles as they are: `cluster`, `nothing`, or a file such as `kubectl get -o yaml` writes.
    /// Default: the cluster, if there is one and the ensemble exists.
    #[arg(long, value_name = "cluster|nothing|FILE")]
    against: Option<PathBuf>,
    /// The DNS domain of the cluster, which is in every address.
    #[arg(long, default_value = "cluster.local")]
    cluster_domain: String,
    #[command(flatten)]
    target: Target,
}

/// Prints the steps of each ensemble's change. Reads only.
///
/// # Errors
/// When something cannot be read, or the manifest is invalid.
pub(crate) async fn plan(arguments: &Plan) -> anyhow::Result<ExitCode> {
    let text = read(&arguments.file)
        .with_context(|| format!("{} cannot be read", name(&arguments.file)))?;
    let wanted = ensembles(&text)?;
    ensure!(
        !wanted.is_empty(),
        "{} holds no ZooKeeperEnsemble",
        name(&arguments.file)
    );
    let mut present = Vec::new();
    for new in &wanted {
        present.push(existing(arguments, new).await?);
    }
    if refused(arguments, &text, &present)? {
        return Ok(ExitCode::from(FOUND));
    }
    let mut out = String::new();
    for (new, old) in wanted.iter().zip(&present) {
        describe(arguments, old.as_ref(), new, &mut out)?;
    }
    io::stdout().write_all(out.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn ensembles(text: &str) -> anyhow::Result<Vec<ZooKeeperEnsemble>> {
    let objects = parse_objects(text).map_err(|finding| anyhow::anyhow!("{finding}"))?;
    let ours = objects.into_iter().filter(|object| {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        object["kind"] == "ZooKeeperEnsemble" && version.starts_with(bellwether_api::GROUP)
    });
    ours.map(|object| serde_json::from_value(object).context("a ZooKeeperEnsemble makes no sense"))
        .collect()
}

/// The ensemble as it is.
async fn existing(
    arguments: &Plan,
    new: &ZooKeeperEnsemble,
) -> anyhow::Result<Option<ZooKeeperEnsemble>> {
    let asked = arguments.against.as_deref().and_then(|path| path.to_str());
    match asked {
        Some("nothing") => return Ok(None),
        None | Some("cluster") => {}
        Some(_) => {
            let file = arguments.against.as_deref().unwrap_or(&arguments.file);
            let text = read(file).with_context(|| format!("{} cannot be read", name(file)))?;
            let old = ensembles(&text)?;
            let old = old.into_iter().find(|old| old.name_any() == new.name_any());
            let what = || format!("{} holds no ensemble {}", name(file), new.name_any());
            return old.map(Some).with_context(what);
        }
    }
    let found = async {
        let cluster = arguments.target.open().await?;
        let namespace = arguments
            .target
            .namespace
            .clone()
            .or_else(|| new.namespace());
        let namespace = namespace.unwrap_or(cluster.namespace);
        let api: Api<ZooKeeperEnsemble> = Api::namespaced(cluster.client, &namespace);
        api.get_opt(&new.name_any()).await.map_err(unanswered)
    };
    match found.await {
        Ok(old) => Ok(old),
        Err(error) if asked.is_none() => {
            complain(&format!("planning for a new ensemble, since {error:#}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Prints what the API server or the operator would refuse in the change; returns whether there is anything.
fn refused(
    arguments: &Plan,
    text: &str,
    present: &[Option<ZooKeeperEnsemble>],
) -> anyhow::Result<bool> {
    let present: Vec<_> = present.iter().flatten().collect();
    let mut yaml = String::new();
    for old in present {
        write!(yaml, "---\n{}", serde_yaml::to_string(old)?)?;
    }
    let against = Existing::parse(&yaml).map_err(|finding| anyhow::anyhow!("{finding}"))?;
    let report = Linter::new()?.check(text, &against);
    for finding in &report.findings {
        complain(&format!("{}:{finding}", name(&arguments.file)));
    }
    Ok(report
        .findings
        .iter()
        .any(|f| f.severity == Severity::Error))
}

fn describe(
    arguments: &Plan,
    old: Option<&ZooKeeperEnsemble>,
    new: &ZooKeeperEnsemble,
    out: &mut String,
) -> anyhow::Result<()> {
    let context = Context {
        cluster_domain: arguments.cluster_domain.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Context::default()
    };
    let mut new = new.clone();
    let place = old.and_then(ResourceExt::namespace);
    let place = place.or_else(|| arguments.target.namespace.clone());
    new.metadata.namespace = place
        .or(new.metadata.namespace)
        .or_else(|| Some("default".to_owned()));
    let valid = |ensemble: &ZooKeeperEnsemble, which: &str| -> anyhow::Result<ValidEnsemble> {
        validate(ensemble, &context)
            .map_err(|problems| anyhow::anyhow!("the {which} spec: {}", invalid_message(&problems)))
    };
    let after = valid(&new, "new")?;
    let namespace = new.metadata.namespace.clone();
    let before = match old {
        None => None,
        Some(old) => {
            let mut old = old.clone();
            old.metadata.namespace = namespace;
            Some(valid(&old, "present")?)
        }
    };
    let status = old.and_then(|old| old.status.as_ref());
    let leader = status.and_then(|status| {
        let leader = status.leader.as_deref()?;
        let member = status.members.iter().find(|member| member.name == leader)?;
        u16::try_from(member.server_id).ok().map(ServerId)
    });
    let forecast = forecast(before.as_ref(), &after, leader);
    if !forecast.complete {
        bail!("the change does not come to an end: {}", forecast.message);
    }
    let title = format!("ZooKeeperEnsemble {}/{}", after.namespace, after.name);
    match &before {
        None => writeln!(out, "{title}: new, {} members", after.size)?,
        Some(before) if before.size == after.size => {
            writeln!(out, "{title}: {} members", after.size)?;
        }
        Some(before) => writeln!(out, "{title}: {} -> {} members", before.size, after.size)?,
    }
    if let Some(leader) = status.and_then(|status| status.leader.as_deref()) {
        writeln!(out, "{leader} leads.")?;
    }
    if let Some(status) = status
        && status
            .phase
            .is_some_and(|phase| phase != Phase::Ready && phase != Phase::Paused)
    {
        let message = status.message.as_deref().unwrap_or_default();
        writeln!(
            out,
            "A change or a repair is under way, and comes first: {message}"
        )?;
    }
    render(&forecast, out)
}

/// The steps with what each of them changes, like a diff.
fn render(forecast: &Forecast, out: &mut String) -> anyhow::Result<()> {
    let width = forecast.events.len().to_string().len();
    for (index, event) in forecast.events.iter().enumerate() {
        writeln!(out, "{:>width$}. {event}", index + 1)?;
        if let Event::Configure {
            zoo_cfg, template, ..
        } = event
        {
            for (title, lines) in [("zoo.cfg", zoo_cfg), ("pod template", template)] {
                if !lines.is_empty() {
                    writeln!(out, "{:width$}    {title}", "")?;
                }
                for line in lines {
                    writeln!(out, "{:width$}      {line}", "")?;
                }
            }
        }
    }
    let (restarts, leaders) = forecast.restarts();
    if forecast.events.is_empty() {
        writeln!(out, "Nothing would change.")?;
    } else {
        writeln!(out, "{restarts} restarts, {leaders} of them of a leader.")?;
    }
    writeln!(out, "In the end: {}", forecast.message)?;
    Ok(())
}
