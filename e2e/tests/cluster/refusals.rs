//! What is refused at the door, with a message that says what to do instead.

use std::time::Duration;

use anyhow::Result;
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use serde_json::{Value, json};

use crate::scenarios::expect_refusal;

/// A paused ensemble: an object to change, without any pod.
fn paused(world: &World) -> Result<Ensemble<'_>> {
    let mut spec = Ensemble::small(3);
    spec["paused"] = json!(true);
    world.ensemble("main", spec)
}

pub(crate) fn keys_of_zoo_cfg_that_the_operator_owns_or_nobody_knows_are_refused(
    world: &World,
) -> Result<()> {
    let cases: &[(&str, Value, &[&str])] = &[
        (
            "server",
            json!({ "server.4": "x:2888:3888" }),
            &["must not set server.4"],
        ),
        (
            "data",
            json!({ "dataDir": "/tmp" }),
            &["must not set dataDir", "belongs to the operator"],
        ),
        (
            "typed",
            json!({ "tickTime": "100" }),
            &["must not set tickTime", "under config"],
        ),
        (
            "acl",
            json!({ "skipACL": "yes" }),
            &["must not set skipACL"],
        ),
        (
            "prefix",
            json!({ "zookeeper.forceSync": "no" }),
            &["must not set zookeeper.forceSync"],
        ),
        (
            "typo",
            json!({ "maxCnxn": "9" }),
            &["unknown key: maxCnxn", "check the spelling"],
        ),
        (
            "line",
            json!({ "maxCnxns": "9\nskipACL=yes" }),
            &["must be one line"],
        ),
    ];
    for (what, additional, words) in cases {
        let mut spec = Ensemble::small(1);
        spec["config"]["additional"] = additional.clone();
        let outcome = world.try_apply(&Ensemble::manifest("other", spec))?;
        expect_refusal(what, outcome, words)?;
    }
    let mut spec = Ensemble::small(1);
    spec["paused"] = json!(true);
    spec["config"]["additional"] = json!({ "maxCnxns": "9", "audit.enable": "true" });
    world.apply(&Ensemble::manifest("other", spec))
}

pub(crate) fn releases_of_zookeeper_that_lose_data_are_refused_and_old_ones_warned_of(
    world: &World,
) -> Result<()> {
    let ensemble = paused(world)?;
    let cases: &[(Value, &[&str])] = &[
        (
            json!({ "version": "3.9.3" }),
            &["ZOOKEEPER-4925", "use 3.9.5"],
        ),
        (
            json!({ "version": "3.8.4" }),
            &["ZOOKEEPER-4785", "use 3.9.5"],
        ),
        (
            json!({ "version": "3.9.1" }),
            &["ZOOKEEPER-4785", "use 3.9.5"],
        ),
        (
            json!({ "image": "mirror.local:5000/library/zookeeper:3.9.3-jre-17" }),
            &["ZOOKEEPER-4925"],
        ),
    ];
    for (patch, words) in cases {
        expect_refusal(&patch.to_string(), ensemble.try_patch(patch)?, words)?;
    }
    let recommended = |patch: Value, expected: &str, word: &str| {
        ensemble.patch(&patch)?;
        until("the version is judged", Duration::from_secs(60), || {
            let (status, reason, message) = ensemble.condition("VersionRecommended")?;
            if status == expected && message.contains(word) {
                Ok(())
            } else {
                Err(format!("{status} ({reason}): {message}"))
            }
        })
    };
    recommended(json!({ "version": "3.8.5" }), "False", "CVE-2026-24281")?;
    recommended(json!({ "version": "3.9.5" }), "True", "3.9.5")?;
    let tag = json!({ "version": null, "image": "mirror.local/zookeeper:3.9.4" });
    recommended(tag, "False", "CVE-2026-24308")?;
    // The operator knows no release behind a user's own image, so it reports nothing about it.
    ensemble.patch(&json!({ "image": "mirror.local/own:3.9.3" }))?;
    until(
        "nothing is said",
        Duration::from_secs(60),
        || match ensemble.condition("VersionRecommended") {
            Err(_) if ensemble.condition("Ready").is_ok() => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
}

pub(crate) fn immutable_fields_are_refused(world: &World) -> Result<()> {
    let ensemble = paused(world)?;
    let cases: &[(Value, &str)] = &[
        (
            json!({ "storage": { "size": "128Mi" } }),
            "storage.size cannot shrink",
        ),
        (
            json!({ "storage": { "size": "large" } }),
            "storage.size must be a size",
        ),
        (
            json!({ "storage": { "transactionLog": {} } }),
            "storage.transactionLog is set when the ensemble is created, or never",
        ),
        (
            json!({ "storage": { "storageClassName": "fast" } }),
            "storageClassName is immutable",
        ),
        (json!({ "idOffset": 10 }), "idOffset is immutable"),
    ];
    for (patch, words) in cases {
        expect_refusal(words, ensemble.try_patch(patch)?, &[words])?;
    }
    // Said in other words it is the same, and accepted.
    ensemble.patch(&json!({ "idOffset": 0 }))?;
    ensemble.patch(&json!({ "storage": { "size": "262144Ki" } }))?;
    ensemble.patch(&json!({ "storage": { "size": 536_870_912 } }))?;
    world.election("one", "/a", json!({ "type": "ZkElection" }))?;
    let other = bellwether_e2e::election::Election::manifest(
        "one",
        "main",
        "/b",
        json!({ "type": "ZkElection" }),
    );
    expect_refusal("path", world.try_apply(&other)?, &["path is immutable"])
}
