//! `bellwether status`: one ensemble as a tree of its members, and what it waits for.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use bellwether_api::ensemble::MemberState;
use bellwether_api::{ZooKeeperEnsemble, labels};
use clap::Args;
use jiff::Zoned;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::cluster::{Cluster, Target};
use super::style::{Cell, Format, Style, StyleArguments};
use crate::view::Tone;
use crate::view::ensemble::{EnsembleView, MemberView, PodFacts};

/// How often `--watch` looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Which ensemble.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The ensemble.
    name: String,
    /// Go on and show every change, until it is interrupted.
    #[arg(short, long)]
    watch: bool,
    /// How to print.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
    #[command(flatten)]
    style: StyleArguments,
    #[command(flatten)]
    target: Target,
}

/// Prints it.
///
/// # Errors
/// When the cluster does not answer, or has no such ensemble. After the first output, `--watch`
/// reports such an error and continues.
pub(crate) async fn status(arguments: &Status) -> anyhow::Result<ExitCode> {
    let cluster = arguments.target.open().await?;
    let style = arguments.style.decide();
    let look = async || {
        let (ensemble, pods) = read(&cluster, &arguments.name).await?;
        match arguments.output {
            Format::Json => json_of(&ensemble, &pods),
            Format::Text => Ok(render(&ensemble, &pods, style)),
        }
    };
    let mut shown = look().await?;
    if !arguments.watch {
        io::stdout().write_all(shown.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    draw(&shown, true)?;
    let mut trouble: Option<String> = None;
    loop {
        tokio::time::sleep(INTERVAL).await;
        match look().await {
            Ok(text) => {
                let healed = trouble.take().is_some();
                if healed || text != shown {
                    draw(&text, false)?;
                    shown = text;
                }
            }
            Err(error) => {
                let now = format!("{error:#}; trying again");
                if trouble.as_ref() != Some(&now) {
                    complain(&shown, &now, style)?;
                    trouble = Some(now);
                }
            }
        }
    }
}

/// Says why nothing new is shown, without spoiling what a program reads.
fn complain(shown: &str, trouble: &str, style: Style) -> io::Result<()> {
    if io::stdout().is_terminal() {
        let since = Zoned::now().strftime("%H:%M:%S");
        let line = style.paint(&format!("since {since}: {trouble}"), Tone::Bad);
        draw(&format!("{shown}{line}\n"), false)
    } else {
        writeln!(io::stderr(), "{trouble}")
    }
}

/// Writes over what was there, line by line, so that nothing flickers; into a pipe, one after the other.
fn draw(text: &str, first: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        let clear = if first { "\x1b[2J" } else { "" };
        let lines = text.replace('\n', "\x1b[K\n");
        write!(out, "{clear}\x1b[H{lines}\x1b[J")?;
    } else {
        out.write_all(text.as_bytes())?;
    }
    out.flush()
}

async fn read(
    cluster: &Cluster,
    name: &str,
) -> anyhow::Result<(ZooKeeperEnsemble, BTreeMap<String, PodFacts>)> {
    let ensemble = cluster.ensemble(name).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let selector = ListParams::default().labels(&labels::selector_string(name));
    // Who may read ensembles need not be allowed to read pods; the rest is shown without them.
    let pods = pods.list(&selector).await.map(|list| list.items);
    let facts = pods
        .unwrap_or_default()
        .iter()
        .map(|pod| (pod.name_any(), PodFacts::of(pod)))
        .collect();
    Ok((ensemble, facts))
}

fn json_of(
    ensemble: &ZooKeeperEnsemble,
    pods: &BTreeMap<String, PodFacts>,
) -> anyhow::Result<String> {
    let pods: BTreeMap<_, _> = pods
        .iter()
        .map(|(name, facts)| (name, json!({ "ready": facts.ready, "image": facts.image })))
        .collect();
    let value = json!({
        "name": ensemble.name_any(),
        "namespace": ensemble.namespace(),
        "replicas": ensemble.spec.replicas,
        "paused": ensemble.spec.paused,
        "status": ensemble.status,
        "pods": pods,
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&value)?))
}

fn render(ensemble: &ZooKeeperEnsemble, pods: &BTreeMap<String, PodFacts>, style: Style) -> String {
    let view = EnsembleView::of(ensemble, |name| pods.get(name));
    let title = format!("{}/{}", view.namespace, view.name);
    let (phase, tone, message) = (view.phase, view.tone, view.message);
    let voters: Vec<String> = view.voters.iter().map(ToString::to_string).collect();
    let mut facts = vec![
        ("size", view.size.to_string()),
        ("ready", view.ready),
        ("leader", view.leader.unwrap_or_else(|| "none".to_owned())),
        ("version", view.version),
        ("voters", format!("{{{}}}", voters.join(","))),
    ];
    if let Some(observers) = view.observers {
        facts.push(("observers", observers));
    }
    let mut lines = Vec::new();
    if style.terminal {
        let facts: Vec<String> = facts
            .iter()
            .map(|(key, value)| format!("{key} {value}"))
            .collect();
        lines.push(format!("{title}  {}", style.paint(&phase, tone)));
        lines.push(format!("│ {}", facts.join(", ")));
        lines.push(format!("│ {}", style.paint(&message, Tone::Plain)));
    } else {
        lines.push(format!(
            "ensemble\t{title}\t{phase}\t{}",
            style.paint(&message, Tone::Plain)
        ));
        lines.extend(facts.iter().map(|(key, value)| format!("{key}\t{value}")));
    }
    members(&view.members, style, &mut lines);
    let conditions: Vec<Vec<Cell>> = view
        .conditions
        .iter()
        .map(|condition| {
            let head = if style.terminal {
                Vec::new()
            } else {
                vec!["condition".into()]
            };
            let cells = [
                condition.type_.clone().into(),
                Cell::new(condition.status.clone(), condition.tone),
                condition.reason.clone().into(),
                condition.message.clone().into(),
            ];
            head.into_iter().chain(cells).collect()
        })
        .collect();
    if style.terminal && !conditions.is_empty() {
        lines.push("└ conditions".to_owned());
    }
    lines.extend(style.table("    ", &conditions));
    lines.join("\n") + "\n"
}

/// Every member, and below it what it waits for.
fn members(members: &[MemberView], style: Style, lines: &mut Vec<String>) {
    let rows: Vec<Vec<Cell>> = members
        .iter()
        .map(|member| {
            let ready = match member.ready {
                Some(true) => Cell::new("ready", Tone::Good),
                Some(false) => Cell::new("not ready", Tone::Bad),
                None => "".into(),
            };
            let mut row: Vec<Cell> = vec![
                member.name.clone().into(),
                member.ordinal.clone().into(),
                Cell::new(member.role.clone(), member.tone),
                member.id.to_string().into(),
                member
                    .epoch
                    .map(|epoch| epoch.to_string())
                    .unwrap_or_default()
                    .into(),
                member.zxid.clone().unwrap_or_default().into(),
                ready,
                member.image.clone().unwrap_or_default().into(),
                member.node.clone().unwrap_or_default().into(),
            ];
            if !style.terminal {
                row.insert(0, "member".into());
                row.push(member.verdict.clone().into());
            }
            row
        })
        .collect();
    if !style.terminal {
        lines.extend(style.table("", &rows));
        return;
    }
    if members.is_empty() {
        return;
    }
    let head = [
        "MEMBER", "ORDINAL", "ROLE", "ID", "EPOCH", "ZXID", "POD", "IMAGE", "NODE",
    ];
    let head: Vec<Cell> = head
        .iter()
        .map(|word| Cell::new(*word, Tone::Faint))
        .collect();
    let all: Vec<Vec<Cell>> = std::iter::once(head).chain(rows).collect();
    let mut table = style.table("", &all).into_iter();
    lines.extend(table.next().map(|line| format!("│   {line}")));
    for (line, member) in table.zip(members) {
        lines.push(format!("├── {line}"));
        let tone = match member.state {
            MemberState::UpToDate => None,
            MemberState::Restarting => Some(Tone::Busy),
            MemberState::Waiting => Some(Tone::Faint),
        };
        if let Some(tone) = tone {
            lines.push(format!("│     {}", style.paint(&member.verdict, tone)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (ZooKeeperEnsemble, BTreeMap<String, PodFacts>) {
        let object = json!({
            "apiVersion": "zookeeper.bellwether.dev/v1alpha1",
            "kind": "ZooKeeperEnsemble",
            "metadata": { "name": "main", "namespace": "shop", "generation": 2 },
            "spec": { "replicas": 3 },
            "status": {
                "observedGeneration": 2,
                "phase": "Rolling",
                "message": "Restarting main-0: its configuration changed.",
                "ready": "2/2", "leader": "main-1", "version": "3.9.5", "voters": [1, 2],
                "members": [
                    { "name": "main-0", "serverId": 1, "role": "Follower", "epoch": 3,
                      "zxid": "0x300000005", "state": "Restarting", "verdict": "Restart: its configuration changed", "node": "n1" },
                    { "name": "main-1", "serverId": 2, "role": "Leader", "epoch": 3,
                      "zxid": "0x300000006", "state": "Waiting", "verdict": "Waiting for main-0; the leader restarts last" },
                ],
                "conditions": [
                    { "type": "Ready", "status": "False", "reason": "Rolling", "message": "it rolls",
                      "lastTransitionTime": "2026-01-01T00:00:00Z" },
                    { "type": "Degraded", "status": "False", "reason": "Healthy", "message": "",
                      "lastTransitionTime": "2026-01-01T00:00:00Z" },
                ],
            },
        });
        let image = Some("docker.io/library/zookeeper:3.9.5".to_owned());
        let pods = BTreeMap::from([("main-0".to_owned(), PodFacts { ready: true, image })]);
        (serde_json::from_value(object).unwrap(), pods)
    }

    #[test]
    fn a_terminal_shows_a_tree() {
        let (ensemble, pods) = example();
        let style = Style {
            terminal: true,
            color: false,
        };
        let expected = "\
shop/main  Rolling
│ size 3, ready 2/2, leader main-1, version 3.9.5, voters {1,2}
│ Restarting main-0: its configuration changed.
│   MEMBER  ORDINAL  ROLE      ID  EPOCH  ZXID         POD    IMAGE            NODE
├── main-0  0        follower  1   3      0x300000005  ready  zookeeper:3.9.5  n1
│     Restart: its configuration changed
├── main-1  1        leader    2   3      0x300000006  -      -                -
│     Waiting for main-0; the leader restarts last
└ conditions
    Ready     False  Rolling  it rolls
    Degraded  False  Healthy  -
";
        assert_eq!(render(&ensemble, &pods, style), expected);
        let color = Style {
            terminal: true,
            color: true,
        };
        let colored = render(&ensemble, &pods, color);
        assert!(colored.contains("\x1b[33mRolling\x1b[0m"), "{colored}");
    }

    #[test]
    fn a_pipe_gets_lines_with_tabs() {
        let (ensemble, pods) = example();
        let style = Style {
            terminal: false,
            color: false,
        };
        let text = render(&ensemble, &pods, style);
        let member = "member\tmain-0\t0\tfollower\t1\t3\t0x300000005\tready\tzookeeper:3.9.5\tn1\t\
                      Restart: its configuration changed\n";
        assert!(text.contains(member), "{text}");
        assert!(text.contains("\nleader\tmain-1\n"), "{text}");
        assert!(
            text.contains("condition\tReady\tFalse\tRolling\tit rolls\n"),
            "{text}"
        );
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn an_operator_that_does_not_run_is_told() {
        let (mut ensemble, pods) = example();
        ensemble.metadata.generation = Some(3);
        let text = render(
            &ensemble,
            &pods,
            Style {
                terminal: false,
                color: false,
            },
        );
        assert!(text.contains("does it run?"), "{text}");
        ensemble.status = None;
        let text = render(
            &ensemble,
            &pods,
            Style {
                terminal: true,
                color: false,
            },
        );
        assert!(text.starts_with("shop/main  Unknown\n"), "{text}");
    }
}
