//! `bellwether timeline`: the last changes of the leaders of all elections, in one order.

use std::io::{self, Write as _};
use std::process::ExitCode;

use bellwether_api::LeaderElection;
use bellwether_api::election::EndOfTerm;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde::Serialize;

use super::cluster::Target;
use super::style::{Cell, Format, Style, StyleArguments};
use crate::view::Tone;

/// Which changes.
#[derive(Debug, Args)]
pub(crate) struct Timeline {
    /// Those of the elections of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only those of the last time so long, such as 90m or 2h.
    #[arg(long, value_name = "TIME", value_parser = period)]
    since: Option<SignedDuration>,
    /// How to print.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
    #[command(flatten)]
    style: StyleArguments,
    #[command(flatten)]
    target: Target,
}

/// Reads `90m`.
fn period(text: &str) -> Result<SignedDuration, String> {
    let period = text.parse::<SignedDuration>().ok();
    let period = period.filter(SignedDuration::is_positive);
    period.ok_or_else(|| "it is a number with a unit, such as 90m or 2h".to_owned())
}

/// Prints them, the newest last.
///
/// # Errors
/// When the cluster cannot be asked.
pub(crate) async fn timeline(arguments: &Timeline) -> anyhow::Result<ExitCode> {
    let cluster = arguments.target.open().await?;
    let elections = cluster.elections(arguments.all_namespaces).await?;
    let begin = arguments
        .since
        .and_then(|since| Timestamp::now().checked_sub(since).ok());
    let changes = changes(&elections, begin);
    let mut out = io::stdout().lock();
    match arguments.output {
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(&changes)?)?,
        Format::Text => {
            let style = arguments.style.decide();
            for line in table(&changes, arguments.all_namespaces, style) {
                writeln!(out, "{line}")?;
            }
            for line in summary(&changes, &elections) {
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A change of the leader of an election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    /// When the mirror saw it, in whole seconds.
    time: Timestamp,
    /// The namespace of the election.
    namespace: String,
    /// The name of the election.
    election: String,
    /// Who led before. `None` if nobody did, or if the status does not reach back so far.
    from: Option<String>,
    /// Who leads since then; `None` for nobody.
    to: Option<String>,
    /// The fencing token of who leads since then.
    fencing_token: Option<String>,
    /// For how many seconds the mirror saw nobody lead before, if that is known.
    seconds_without_leader: Option<i64>,
    /// What ended the term of who led before, if that is known.
    cause: Option<EndOfTerm>,
}

/// The changes that statuses tell of, not before `begin`, in the order of their times.
fn changes(elections: &[LeaderElection], begin: Option<Timestamp>) -> Vec<Change> {
    let mut changes: Vec<Change> = elections.iter().flat_map(of).collect();
    changes.retain(|change| begin.is_none_or(|begin| begin <= change.time));
    // Changes of one election within a second stay in their order.
    changes.sort_by_key(|change| change.time);
    changes
}

/// The changes of one election, the oldest first.
fn of(election: &LeaderElection) -> Vec<Change> {
    // The newest first.
    let history = election.status.iter().flat_map(|status| &status.history);
    let history: Vec<_> = history.collect();
    let before = history.iter().skip(1).map(Some).chain([None]);
    let changes = history.iter().zip(before).map(|(change, before)| {
        let nobody_led = before.filter(|before| before.identity.is_none());
        Change {
            time: change.time.0,
            namespace: election.namespace().unwrap_or_default(),
            election: election.name_any(),
            from: before.and_then(|before| before.identity.clone()),
            to: change.identity.clone(),
            fencing_token: change.fencing_token.clone(),
            cause: change.cause,
            seconds_without_leader: nobody_led
                .map(|before| change.time.0.duration_since(before.time.0).as_secs().max(0)),
        }
    });
    let mut changes: Vec<Change> = changes.collect();
    changes.reverse();
    changes
}

fn table(changes: &[Change], namespaces: bool, style: Style) -> Vec<String> {
    let columns = [
        "TIME",
        "NAMESPACE",
        "ELECTION",
        "FROM",
        "TO",
        "TOKEN",
        "NOBODY LED",
        "ENDED BY",
    ];
    let head = columns.map(|word| Cell::new(word, Tone::Faint));
    let rows = changes.iter().map(|change| {
        let nobody = || Cell::new("nobody", Tone::Bad);
        let led = |who: &Option<String>| who.as_ref().map(|who| Cell::from(who.as_str()));
        let gap = change.seconds_without_leader;
        let from = match (led(&change.from), gap) {
            (Some(from), _) => from,
            (None, Some(_)) => nobody(),
            (None, None) => "".into(),
        };
        [
            change.time.to_string().into(),
            change.namespace.as_str().into(),
            change.election.as_str().into(),
            from,
            led(&change.to).unwrap_or_else(nobody),
            change.fencing_token.as_deref().unwrap_or_default().into(),
            gap.map(|seconds| format!("{seconds} s"))
                .unwrap_or_default()
                .as_str()
                .into(),
            change.cause.map_or("", EndOfTerm::as_str).into(),
        ]
    });
    let mut rows: Vec<Vec<Cell>> = [head].into_iter().chain(rows).map(Vec::from).collect();
    if !namespaces {
        for row in &mut rows {
            row.remove(1);
        }
    }
    style.table("", &rows)
}

/// How much it is, and which elections are not seen, whose later changes are not among them.
fn summary(changes: &[Change], elections: &[LeaderElection]) -> Vec<String> {
    let seconds: i64 = changes
        .iter()
        .filter_map(|c| c.seconds_without_leader)
        .sum();
    let mut changed: Vec<_> = changes
        .iter()
        .map(|c| (&c.namespace, &c.election))
        .collect();
    changed.sort_unstable();
    changed.dedup();
    let (count, of) = (changes.len(), changed.len());
    let mut lines = vec![format!(
        "Changes: {count}, elections: {of}, nobody led: {seconds} s."
    )];
    for election in elections {
        let status = election.status.as_ref();
        if let Some(since) = status.and_then(|status| status.stale_since.as_ref()) {
            lines.push(format!(
                "{}/{} is not seen since {}: its later changes are missing.",
                election.namespace().unwrap_or_default(),
                election.name_any(),
                since.0
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::elections::tests::election;
    use super::*;

    fn led(second: u8, identity: &str, token: &str) -> Value {
        let time = format!("2026-01-01T00:00:{second:02}Z");
        json!({ "time": time, "identity": identity, "node": "n", "fencingToken": token })
    }

    fn nobody(second: u8) -> Value {
        json!({ "time": format!("2026-01-01T00:00:{second:02}Z"), "cause": "Evicted" })
    }

    fn both() -> Vec<LeaderElection> {
        let jobs = [led(9, "c", "5"), nobody(9), led(3, "d", "4")];
        let web = [led(7, "b", "2"), nobody(4), led(1, "a", "1")];
        let stale = json!({ "history": jobs, "staleSince": "2026-01-01T00:01:00Z" });
        vec![
            election("jobs", &stale),
            election("new", &Value::Null),
            election("web", &json!({ "history": web })),
        ]
    }

    const PLAIN: Style = Style {
        terminal: false,
        color: false,
    };

    #[test]
    fn changes_of_all_elections_are_in_one_order() {
        let elections = both();
        let all = changes(&elections, None);
        let lines = table(&all, true, PLAIN);
        assert_eq!(
            lines,
            [
                "TIME\tNAMESPACE\tELECTION\tFROM\tTO\tTOKEN\tNOBODY LED\tENDED BY",
                "2026-01-01T00:00:01Z\tshop\tweb\t-\ta\t1\t-\t-",
                "2026-01-01T00:00:03Z\tshop\tjobs\t-\td\t4\t-\t-",
                "2026-01-01T00:00:04Z\tshop\tweb\ta\tnobody\t-\t-\tEvicted",
                "2026-01-01T00:00:07Z\tshop\tweb\tnobody\tb\t2\t3 s\t-",
                "2026-01-01T00:00:09Z\tshop\tjobs\td\tnobody\t-\t-\tEvicted",
                "2026-01-01T00:00:09Z\tshop\tjobs\tnobody\tc\t5\t0 s\t-",
            ]
        );
        assert_eq!(
            summary(&all, &elections),
            [
                "Changes: 6, elections: 2, nobody led: 3 s.",
                "shop/jobs is not seen since 2026-01-01T00:01:00Z: its later changes are missing.",
            ]
        );
        assert_eq!(
            table(&all, false, PLAIN)[1],
            "2026-01-01T00:00:01Z\tweb\t-\ta\t1\t-\t-"
        );
    }

    #[test]
    fn older_changes_are_left_out() {
        let begin = "2026-01-01T00:00:07Z".parse().unwrap();
        let late = changes(&both(), Some(begin));
        assert_eq!(late.len(), 3);
        assert_eq!(late[0].seconds_without_leader, Some(3));
    }

    #[test]
    fn a_time_has_a_unit_and_is_in_the_past() {
        assert_eq!(period("90m"), Ok(SignedDuration::from_mins(90)));
        for text in ["", "5", "0s", "-2h", "soon"] {
            assert!(period(text).is_err(), "{text}");
        }
    }
}
