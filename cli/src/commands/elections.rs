//! `bellwether elections`: who leads, in one table.

use std::io::{self, Write as _};
use std::process::ExitCode;

use bellwether_api::LeaderElection;
use clap::Args;
use kube::ResourceExt;

use super::cluster::Target;
use super::style::{Cell, Format, Style, StyleArguments};
use crate::view::Tone;
use crate::view::election::ElectionRow;

/// Which elections.
#[derive(Debug, Args)]
pub(crate) struct Elections {
    /// Those of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// How to print.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
    #[command(flatten)]
    style: StyleArguments,
    #[command(flatten)]
    target: Target,
}

/// Prints them.
///
/// # Errors
/// When the cluster cannot be asked.
pub(crate) async fn elections(arguments: &Elections) -> anyhow::Result<ExitCode> {
    let cluster = arguments.target.open().await?;
    let items = cluster.elections(arguments.all_namespaces).await?;
    let mut out = io::stdout().lock();
    match arguments.output {
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(&items)?)?,
        Format::Text => {
            let style = arguments.style.decide();
            for line in table(&items, arguments.all_namespaces, style) {
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

const COLUMNS: [&str; 8] = [
    "NAME",
    "DIALECT",
    "LEADER",
    "POD",
    "CANDIDATES",
    "TOKEN",
    "SINCE",
    "STATE",
];

fn table(items: &[LeaderElection], namespaces: bool, style: Style) -> Vec<String> {
    let head = COLUMNS.iter().map(|word| Cell::new(*word, Tone::Faint));
    let namespace = namespaces.then(|| Cell::new("NAMESPACE", Tone::Faint));
    let mut rows = vec![namespace.into_iter().chain(head).collect::<Vec<_>>()];
    for election in items {
        let mut row = row(election);
        if namespaces {
            row.insert(0, election.namespace().unwrap_or_default().into());
        }
        rows.push(row);
    }
    style.table("", &rows)
}

fn row(election: &LeaderElection) -> Vec<Cell> {
    let row = ElectionRow::of(election);
    vec![
        row.name.into(),
        row.dialect.into(),
        row.leader.unwrap_or_default().into(),
        row.pod.unwrap_or_default().into(),
        row.candidates.to_string().into(),
        row.token.unwrap_or_default().into(),
        row.since.unwrap_or_default().into(),
        Cell::new(row.state, row.tone),
    ]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::{Value, json};

    pub(in crate::commands) fn election(name: &str, status: &Value) -> LeaderElection {
        serde_json::from_value(json!({
            "apiVersion": "zookeeper.bellwether.dev/v1alpha1",
            "kind": "LeaderElection",
            "metadata": { "name": name, "namespace": "shop" },
            "spec": {
                "ensembleRef": { "name": "main" }, "path": "/a", "dialect": { "type": "Auto" },
            },
            "status": status,
        }))
        .unwrap()
    }

    fn condition(type_: &str, status: &str, reason: &str) -> Value {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    }

    #[test]
    fn each_election_says_who_leads_and_whether_that_can_be_read() {
        let counts = json!({ "candidateCount": 2 });
        let with = |more: Value| {
            let mut status = counts.clone();
            let fields = more.as_object().cloned().unwrap_or_default();
            status.as_object_mut().unwrap().extend(fields);
            status
        };
        let leader = json!({
            "identity": "alice", "identitySource": "Data", "node": "n_1", "pod": "app-0",
            "fencingToken": "4294967300", "acquireTime": "2026-01-01T00:00:01.500000Z",
        });
        let synced = condition("Synced", "True", "Watching");
        let items = [
            election(
                "a",
                &with(json!({
                    "dialect": "Kazoo", "leader": leader,
                    "conditions": [synced, condition("LeaderElected", "True", "Elected")],
                })),
            ),
            election(
                "b",
                &with(json!({
                    "conditions": [synced, condition("LeaderElected", "False", "NoElection")],
                })),
            ),
            election(
                "c",
                &with(json!({
                    "staleSince": "2026-01-01T00:00:00Z",
                    "conditions": [condition("Synced", "False", "Disconnected")],
                })),
            ),
            election("d", &counts),
        ];
        let style = Style {
            terminal: false,
            color: false,
        };
        let lines = table(&items, true, style);
        assert_eq!(
            lines[0],
            "NAMESPACE\tNAME\tDIALECT\tLEADER\tPOD\tCANDIDATES\tTOKEN\tSINCE\tSTATE"
        );
        assert_eq!(
            lines[1],
            "shop\ta\tKazoo\talice\tapp-0\t2\t4294967300\t2026-01-01T00:00:01Z\treadable"
        );
        assert!(lines[2].ends_with("\treadable: NoElection"), "{}", lines[2]);
        assert!(
            lines[3].ends_with("\tstale since 2026-01-01T00:00:00Z"),
            "{}",
            lines[3]
        );
        assert!(lines[4].ends_with("\tnot observed yet"), "{}", lines[4]);
        assert!(table(&items, false, style)[1].starts_with("a\t"));
    }
}
