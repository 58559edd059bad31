//! `bellwether reference`: what the generated pages of the documentation are made of. It is hidden: the pages are
//! for reading.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use bellwether_api::events::EventReason;
use bellwether_api::guidance::Guidance;
use bellwether_api::{election, ensemble};
use clap::{Args, ValueEnum};
use schemars::JsonSchema;

/// Of what.
#[derive(Debug, Args)]
pub(crate) struct Reference {
    /// Of what.
    #[arg(value_enum)]
    of: Of,
}

/// What there are references of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Of {
    /// Every metric, as Prometheus reads it.
    Metrics,
    /// Conditions, their reasons, and events: the page itself.
    Conditions,
}

/// Prints it.
///
/// # Errors
/// When standard output is closed.
pub(crate) fn reference(arguments: &Reference) -> anyhow::Result<ExitCode> {
    let text = match arguments.of {
        Of::Metrics => bellwether::metrics_reference(),
        Of::Conditions => conditions(),
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The page `docs/conditions.md` without its heading.
fn conditions() -> String {
    let mut page = String::new();
    let types = described::<ensemble::status::ConditionType>();
    let reasons = described::<ensemble::status::Reason>();
    let guidance = ensemble::status::Reason::ALL.map(ensemble::status::Reason::guidance);
    kind(&mut page, "ZooKeeperEnsemble", &types, &reasons, &guidance);
    let types = described::<election::ConditionType>();
    let reasons = described::<election::Reason>();
    let guidance = election::Reason::ALL.map(election::Reason::guidance);
    kind(&mut page, "LeaderElection", &types, &reasons, &guidance);
    page.push_str(
        "\n## Events\n\nAn event about what is wrong with an ensemble has the reason of its condition `Degraded`, \
         above. The others:\n\n| reason | of | what a person does |\n|---|---|---|\n",
    );
    for ((word, text), reason) in described::<EventReason>().iter().zip(EventReason::ALL) {
        let _ = writeln!(page, "| `{word}` | {text} | {} |", reason.guidance().person);
    }
    page
}

fn kind(
    page: &mut String,
    kind: &str,
    types: &[(String, String)],
    reasons: &[(String, String)],
    guidance: &[Guidance],
) {
    let _ = write!(
        page,
        "\n## {kind}\n\n| condition | is true when |\n|---|---|\n"
    );
    for (word, text) in types {
        let _ = writeln!(page, "| `{word}` | {text} |");
    }
    let _ = write!(
        page,
        "\n| reason | it means | the operator | a person |\n|---|---|---|---|\n"
    );
    for ((word, text), guidance) in reasons.iter().zip(guidance) {
        let more = guidance.runbook.map_or_else(String::new, |anchor| {
            format!(" [Runbook](runbook.md#{anchor}).")
        });
        let Guidance {
            operator, person, ..
        } = guidance;
        let _ = writeln!(page, "| `{word}` | {text} | {operator} | {person}{more} |");
    }
}

/// The words of an enumeration with their documentation, on one line each, in the order of its declaration.
fn described<T: JsonSchema>() -> Vec<(String, String)> {
    let schema = schemars::schema_for!(T);
    let variants = schema.get("oneOf").and_then(|v| v.as_array());
    let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().replace('\n', " ");
    variants
        .into_iter()
        .flatten()
        .map(|v| (text(&v["const"]), text(&v["description"])))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_reason_and_event_has_a_line_with_what_to_do() {
        let page = conditions();
        let words = ensemble::status::Reason::ALL.map(ensemble::status::Reason::as_str);
        let elections = election::Reason::ALL.map(election::Reason::as_str);
        let events = EventReason::ALL.iter().map(|reason| reason.as_str());
        for word in words.into_iter().chain(elections).chain(events) {
            let start = format!("| `{word}` | ");
            let mut lines = page.lines().filter(|line| line.starts_with(&start));
            let full = |line: &str| {
                line.split(" | ")
                    .all(|cell| !cell.trim_matches(['|', ' ']).is_empty())
            };
            assert!(lines.clone().count() >= 1, "{word} is missing");
            // The operator does nothing more about an orderly queue.
            assert!(
                word == "Orderly" || lines.all(full),
                "{word} has an empty cell"
            );
        }
    }
}
