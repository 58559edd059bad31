//! Scenarios 6 to 9: what a user changes, well or badly.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::history::{assert_leader_last, deletions, most_unready, restarts};
use bellwether_e2e::load::Load;
use bellwether_e2e::wait::{throughout, until};
use bellwether_e2e::world::World;
use serde_json::{Value, json};

/// Refused at the door with what to do instead, and the running ensemble is not touched. That the
/// operator refuses them too, where an old CRD lets them in, is a unit test of `validate`.
pub(crate) fn scenario_06_bad_sizes_and_colliding_ids_are_refused(world: &World) -> Result<()> {
    let ensemble = world.small_ensemble(1)?;
    let before = ensemble.uids();
    let sizes: &[(i32, &[&str])] = &[
        (-1, &["at least 1", "delete the ZooKeeperEnsemble"]),
        (0, &["at least 1", "delete the ZooKeeperEnsemble"]),
        (2, &["use 1 or 3"]),
        (4, &["use 3 or 5"]),
        (15, &["at most 13"]),
    ];
    for (size, words) in sizes {
        let mut spec = Ensemble::small(1);
        spec["replicas"] = json!(size);
        let outcome = world.try_apply(&Ensemble::manifest("other", spec))?;
        expect_refusal(&format!("apply of {size}"), outcome, words)?;
        let patch = json!({ "replicas": size });
        expect_refusal(
            &format!("patch to {size}"),
            ensemble.try_patch(&patch)?,
            words,
        )?;
        // kubectl itself stops negative numbers.
        if *size >= 0 {
            let replicas = format!("--replicas={size}");
            let ns = world.namespace.as_str();
            let output =
                world
                    .kubectl
                    .output(&["-n", ns, "scale", "zke/main", replicas.as_str()])?;
            let outcome = match output.status.success() {
                true => Ok(()),
                false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            };
            expect_refusal(&format!("scale to {size}"), outcome, words)?;
        }
    }
    // Server ids come from ordinals and one offset, so two members of an ensemble cannot have the
    // same; another offset would give every member another identity.
    let cases: &[(Value, &str)] = &[
        (json!({ "idOffset": 10 }), "idOffset is immutable"),
        (json!({ "idOffset": 81 }), "less than or equal to 80"),
        (
            json!({ "config": { "additional": { "server.1": "elsewhere:2888:3888" } } }),
            "must not set server.1",
        ),
    ];
    for (patch, words) in cases {
        expect_refusal(&patch.to_string(), ensemble.try_patch(patch)?, &[words])?;
    }
    ensemble.is_ready(1).map_err(anyhow::Error::msg)?;
    ensure!(ensemble.uids() == before, "the ensemble was touched");
    Ok(())
}

pub(crate) fn expect_refusal(
    what: &str,
    outcome: Result<(), String>,
    words: &[&str],
) -> Result<()> {
    match outcome {
        Ok(()) => bail!("{what} was accepted"),
        Err(message) => {
            for word in words {
                ensure!(
                    message.contains(word),
                    "{what}: {word:?} is not in: {message}"
                );
            }
            Ok(())
        }
    }
}

/// At most one member is down, the status says why, and reverting heals without anybody deleting a
/// pod.
pub(crate) fn scenario_08_bad_image_setting_or_pod_costs_one_member_and_reverting_heals(
    world: &World,
) -> Result<()> {
    let good = Ensemble::small(3);
    let ensemble = world.ensemble("main", good.clone())?;
    ensemble.wait_ready(3)?;
    let faults = [
        (
            "a bad image",
            json!({ "image": "docker.io/library/zookeeper:there-is-no-such-tag" }),
            json!({ "image": null }),
            "Image",
        ),
        (
            "an option that the virtual machine does not know",
            json!({ "jvm": { "additionalOptions": ["-XX:NoSuchOption=1"] } }),
            json!({ "jvm": good["jvm"].clone() }),
            "CrashLoopBackOff",
        ),
        (
            "a pod that fits nowhere",
            json!({ "pod": { "nodeSelector": { "there": "is-no-such-node" } } }),
            json!({ "pod": { "nodeSelector": null } }),
            "Unschedulable",
        ),
    ];
    for (what, break_it, revert, word) in faults {
        ensemble.patch(&break_it)?;
        let message = until(
            &format!("{what} is reported"),
            Duration::from_secs(120),
            || {
                let (status, reason, message) = ensemble.condition("Degraded")?;
                if status == "True" && reason == "PodFailing" {
                    Ok(message)
                } else {
                    Err(format!("Degraded={status} ({reason}: {message})"))
                }
            },
        )?;
        ensure!(
            message.contains("main-") && message.contains(word),
            "{what}: the message does not say where or why: {message}"
        );
        // Two members serve on while the operator waits.
        throughout("two members serve on", Duration::from_secs(8), || {
            let status = ensemble.status()?;
            if status["readyReplicas"] == 2 && status["phase"] == "Blocked" {
                Ok(())
            } else {
                Err(status.to_string())
            }
        })?;
        let available = ensemble
            .condition("Available")
            .map_err(anyhow::Error::msg)?;
        ensure!(available.0 == "True", "Available is {available:?}");
        ensemble.patch(&revert)?;
        ensemble.wait_ready(3)?;
        eprintln!("{what}: {message}");
    }
    let unready = most_unready(&world.pods.history(), 3);
    ensure!(unready <= 1, "{unready} members were down at once");
    Ok(())
}

/// Each of them restarts each pod exactly once, the leader last, and nothing takes back what the
/// user's `kubectl rollout restart` wrote.
pub(crate) fn scenario_09_a_rollout_and_a_changed_spec_restart_once_each(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let ensemble = world.small_ensemble(3)?;
    let load = Load::start(clients, ensemble, 3)?;
    let roll = |what: &str, change: &dyn Fn() -> Result<()>| -> Result<()> {
        let (before, known) = (ensemble.uids(), deletions(&world.pods.history()).len());
        change()?;
        until(&format!("{what} is done"), Duration::from_secs(300), || {
            ensemble.is_ready(3)?;
            let after = ensemble.uids();
            let same = before.iter().any(|(pod, uid)| after.get(pod) == Some(uid));
            if same {
                return Err("a member has not restarted yet".to_owned());
            }
            Ok(())
        })?;
        let counts = restarts(&deletions(&world.pods.history())[known..]);
        ensure!(
            counts.len() == 3 && counts.values().all(|n| *n == 1),
            "{what}: restarts by pod: {counts:?}"
        );
        Ok(())
    };
    roll("rollout restart", &|| {
        world
            .run(&["rollout", "restart", "statefulset/main"])
            .map(drop)
    })?;
    let written = rollout_annotation(world)?;
    ensure!(!written.is_empty(), "kubectl wrote no annotation");
    // All of it at once costs one restart. The annotation is how a user or a GitOps tool asks for a restart of
    // everything; the operator only reads it.
    let annotation = "zookeeper.bellwether.dev/restartedAt";
    let patch = json!({
        "metadata": { "annotations": { annotation: "2026-01-01T00:00:00Z" } },
        "spec": {
            "config": { "syncLimit": 6 },
            "jvm": { "heap": "104Mi" },
            "pod": { "resources": { "requests": { "memory": "136Mi" } } },
        },
    })
    .to_string();
    roll("configuration, heap, resources and annotation", &|| {
        let patch = ["patch", "zke/main", "--type=merge", "--patch", &patch];
        world.run(&patch).map(drop)
    })?;
    let in_a_member = |command: &str| {
        let exec = ["exec", "main-0", "-c", "zookeeper", "--", "bash", "-c"];
        world.run(&[&exec[..], &[command]].concat())
    };
    let file = in_a_member("cat /conf/zoo.cfg")?;
    ensure!(
        file.lines().any(|l| l == "syncLimit=6"),
        "zoo.cfg is {file}"
    );
    in_a_member("grep -q /server.jsa /proc/[0-9]*/maps")
        .context("the server did not take the image's archive of classes")?;
    let object = ensemble.object().map_err(anyhow::Error::msg)?;
    ensure!(
        object["metadata"]["annotations"][annotation] == "2026-01-01T00:00:00Z",
        "the annotation became {}",
        object["metadata"]["annotations"]
    );
    let after = rollout_annotation(world)?;
    ensure!(after == written, "kubectl's annotation became {after:?}");
    let verdict = load.finish(3)?;
    eprintln!(
        "two rolls: {} writes, longest gap {} s, {} changes of the leader",
        verdict.acknowledged,
        verdict.longest_gap(),
        verdict.leader_changes()
    );
    verdict.assert_safe()?;
    for roll in deletions(&world.pods.history()).chunks(3) {
        assert_leader_last(roll, &verdict)?;
    }
    ensure!(
        verdict.leader_changes() == 2,
        "each roll needs one change of the leader: {}",
        verdict.roles
    );
    Ok(())
}

fn rollout_annotation(world: &World) -> Result<String> {
    let set = ["-n", &world.namespace, "get", "statefulset", "main"];
    let set = world.kubectl.json(&set)?;
    let annotations = &set["spec"]["template"]["metadata"]["annotations"];
    let value = annotations["kubectl.kubernetes.io/restartedAt"].as_str();
    Ok(value.unwrap_or_default().to_owned())
}
