//! A leader that hangs for longer than its session, and leads on when it goes on.

use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::clients::pod;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

use crate::projections::manifest;

const PATIENCE: Duration = Duration::from_secs(120);

/// Two candidates that do not notice that their session expired.
fn candidates(hosts: &str) -> Value {
    // The program is no first process of its container, which takes no signal that stops it.
    let script = format!(
        "python3 /clients/kazoo_election.py --hosts {hosts} --path /app --id $(hostname) --timeout 4 --resign 8088 --unaware; exit 1"
    );
    let mut template = pod("web", &["sh", "-c", &script]);
    template["spec"]["terminationGracePeriodSeconds"] = json!(1);
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 2,
            "serviceName": "web",
            "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": template["spec"] },
        },
    })
}

/// It is told of with both fencing tokens while it claims the lead, and no more once its pod is another one.
pub(crate) fn a_leader_that_hung_for_longer_than_its_session_is_told_of(
    world: &World,
) -> Result<()> {
    let hosts = world.small_ensemble(1)?.service();
    world.apply(&candidates(&hosts))?;
    let mut object = manifest("app", "/app", Value::Null);
    object["spec"]["podBinding"] = json!({ "selector": { "matchLabels": { "app": "web" } } });
    object["spec"]["leadershipCheck"] = json!({ "http": { "port": 8088, "path": "/leads" } });
    let election = world.adopt_election(&object)?;
    until("two stand", PATIENCE, || {
        let status = election.status()?;
        (status["candidateCount"] == 2)
            .then_some(())
            .ok_or_else(|| status.to_string())
    })?;
    election.wait_condition("SoleLeader", "True", "NobodyElse")?;
    let leader = || -> Result<(String, String), String> {
        let leader = election.status()?["leader"].take();
        let of = |field: &str| leader[field].as_str().map(str::to_owned);
        of("identity")
            .zip(of("fencingToken"))
            .ok_or_else(|| leader.to_string())
    };
    let (first, old) = leader().map_err(anyhow::Error::msg)?;
    let signal = |name: &str| {
        let all = format!(
            "for p in /proc/[0-9]*; do if grep -qa ^python3 $p/cmdline; then kill -{name} ${{p#/proc/}}; fi; done"
        );
        world.run(&["exec", &first, "--", "sh", "-c", &all])
    };
    signal("STOP")?;
    let (second, new) = until("another one leads", PATIENCE, || {
        leader().and_then(|(now, token)| match now == first {
            true => Err(now),
            false => Ok((now, token)),
        })
    })?;
    signal("CONT")?;
    election.wait_condition("SoleLeader", "False", "RivalLeader")?;
    let told = election.message("SoleLeader").map_err(anyhow::Error::msg)?;
    for words in [
        format!("{second} leads by its znode, with the fencing token {new}."),
        format!("{first} says that it leads."),
        format!("with the fencing token {old},"),
    ] {
        ensure!(told.contains(&words), "{words}: {told}");
    }
    world.run(&["delete", "pod", &first])?;
    election.wait_condition("SoleLeader", "True", "NobodyElse")?;
    Ok(())
}
