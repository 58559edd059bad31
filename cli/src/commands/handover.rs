//! `bellwether handover`: ask the leader of an election to let another candidate lead, and wait until one does.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bellwether_api::election::{ConditionType, DEFAULT_HANDOVER_TIMEOUT, Reason};
use bellwether_api::{LeaderElection, labels};
use clap::Args;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::act::FIELD_MANAGER;
use super::cluster::{Target, unanswered};

/// How often the election is looked at.
const PERIOD: Duration = Duration::from_millis(200);
/// How long the operator may take beyond the time that the spec gives the leader.
const MARGIN: Duration = Duration::from_secs(15);

/// Which election.
#[derive(Debug, Args)]
pub(crate) struct Handover {
    /// The election.
    name: String,
    #[command(flatten)]
    target: Target,
}

/// Asks for the handover, and prints who leads then.
///
/// # Errors
/// When the cluster cannot be asked or refuses, there is no such election, or it has no leader that can be asked. A leader
/// that still leads after its time is no error, but the exit code 1.
pub(crate) async fn handover(arguments: &Handover) -> anyhow::Result<ExitCode> {
    let cluster = arguments.target.open().await?;
    let name = &arguments.name;
    let elections: Api<LeaderElection> =
        Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let election = elections.get_opt(name).await.map_err(unanswered)?;
    let election = election.with_context(|| {
        format!(
            "there is no LeaderElection {name} in the namespace {}",
            cluster.namespace
        )
    })?;
    let leader = askable(&election)?;
    let patch = json!({ "metadata": { "annotations": { labels::HANDOVER: leader.token } } });
    let patch = Patch::Merge(&patch);
    let parameters = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let begin = Instant::now();
    let patched = elections.patch(name, &parameters, &patch);
    patched.await.map_err(unanswered)?;
    writeln!(
        io::stdout(),
        "{name}: {} is asked to hand over.",
        leader.identity
    )?;
    loop {
        sleep(PERIOD).await;
        let election = elections.get(name).await.map_err(unanswered)?;
        let took = begin.elapsed();
        match course(&election, &leader) {
            Course::Over(next) => {
                writeln!(
                    io::stdout(),
                    "{name}: {next} after {:.1} s.",
                    took.as_secs_f64()
                )?;
                return Ok(ExitCode::SUCCESS);
            }
            Course::Failed(why) => {
                writeln!(io::stdout(), "{name}: {why}")?;
                return Ok(ExitCode::FAILURE);
            }
            Course::On if took > leader.timeout + MARGIN => {
                bail!("{name}: the operator says nothing; does one run that mirrors this election?")
            }
            Course::On => {}
        }
    }
}

/// A leader that can be asked.
#[derive(Debug, PartialEq, Eq)]
struct Askable {
    token: String,
    identity: String,
    timeout: Duration,
}

fn askable(election: &LeaderElection) -> anyhow::Result<Askable> {
    let name = election.metadata.name.as_deref().unwrap_or_default();
    let Some(handover) = &election.spec.handover else {
        bail!("{name}: spec.handover does not say how its leader hands over");
    };
    let status = election.status.as_ref();
    let Some(leader) = status.and_then(|status| status.leader.as_ref()) else {
        bail!("{name}: nobody leads, so nobody can hand over");
    };
    let Some(token) = &leader.fencing_token else {
        bail!("{name}: its leader has no fencing token, by which the request would name it");
    };
    let seconds = u64::try_from(handover.timeout_seconds);
    let seconds = seconds.unwrap_or(DEFAULT_HANDOVER_TIMEOUT.unsigned_abs().into());
    Ok(Askable {
        token: token.clone(),
        identity: leader.identity.clone(),
        timeout: Duration::from_secs(seconds),
    })
}

/// How far a handover is.
#[derive(Debug, PartialEq, Eq)]
enum Course {
    /// The leader still leads.
    On,
    /// Another one leads, as the sentence says.
    Over(String),
    /// It is not asked, or no longer.
    Failed(String),
}

fn course(election: &LeaderElection, asked: &Askable) -> Course {
    let Some(status) = &election.status else {
        return Course::On;
    };
    if status.stale_since.is_some() {
        return Course::On;
    }
    // A moment without a leader belongs to a handover.
    if let Some(leader) = &status.leader
        && leader.fencing_token.as_ref() != Some(&asked.token)
    {
        return Course::Over(format!("{} leads", leader.identity));
    }
    let mut conditions = status.conditions.iter();
    let told = conditions.find(|told| told.type_ == ConditionType::HandedOver.as_str());
    let failures = [
        Reason::HandoverFailed,
        Reason::HandoverNotAllowed,
        Reason::HandoverUnusable,
    ];
    match told {
        Some(told)
            if failures
                .iter()
                .any(|failure| failure.as_str() == told.reason) =>
        {
            Course::Failed(told.message.clone())
        }
        _ => Course::On,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn election(handover: Value, status: Value) -> LeaderElection {
        let election = json!({
            "metadata": { "name": "scheduler" },
            "spec": {
                "ensembleRef": { "name": "main" }, "path": "/e", "dialect": { "type": "Kazoo" }, "handover": handover,
            },
            "status": status,
        });
        serde_json::from_value(election).unwrap()
    }

    fn led(by: &str, token: Value) -> Value {
        json!({ "leader": { "identity": by, "node": "n", "fencingToken": token, "identitySource": "Data" } })
    }

    #[test]
    fn only_a_leader_with_a_token_can_be_asked() {
        let how = json!({ "http": { "port": 8080, "path": "/resign" } });
        let asked = askable(&election(how.clone(), led("a", json!("7")))).unwrap();
        assert_eq!((asked.token.as_str(), asked.timeout.as_secs()), ("7", 30));
        for (handover, status, words) in [
            (Value::Null, led("a", json!("7")), "spec.handover"),
            (how.clone(), json!({}), "nobody leads"),
            (how, led("a", Value::Null), "no fencing token"),
        ] {
            let why = askable(&election(handover, status))
                .unwrap_err()
                .to_string();
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_handover_is_over_when_another_leads_and_has_failed_when_the_operator_says_so() {
        let asked = Askable {
            token: "7".to_owned(),
            identity: "a".to_owned(),
            timeout: Duration::from_secs(30),
        };
        let course = |status| course(&election(Value::Null, status), &asked);
        assert_eq!(course(led("a", json!("7"))), Course::On);
        assert_eq!(course(json!({})), Course::On);
        assert_eq!(
            course(led("b", json!("9"))),
            Course::Over("b leads".to_owned())
        );
        let mut failed = led("a", json!("7"));
        failed["conditions"] = json!([{
            "type": "HandedOver", "status": "False", "reason": "HandoverFailed", "message": "It still leads.",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        assert_eq!(course(failed), Course::Failed("It still leads.".to_owned()));
    }
}
